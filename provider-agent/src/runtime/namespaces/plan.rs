//! Arguments of the helper.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::PathBuf;

/// What to show and what to run.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) status_fd: RawFd,
    pub(super) root: PathBuf,
    pub(super) work: PathBuf,
    pub(super) data: PathBuf,
    pub(super) output: PathBuf,
    pub(super) hidden: Vec<PathBuf>,
    pub(super) devices: Vec<PathBuf>,
    pub(super) program: PathBuf,
    pub(super) command: Vec<OsString>,
}

impl Plan {
    /// Reads `--name value` pairs up to `--`, then the command.
    pub(super) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut args = args.into_iter();
        let (mut hidden, mut devices) = (Vec::new(), Vec::new());
        let (mut status, mut root, mut work, mut data, mut output, mut program) = (None, None, None, None, None, None);
        loop {
            let name = args.next().ok_or("the command is missing; this is an internal command of the agent")?;
            if name == "--" {
                break;
            }
            let value = args.next().ok_or_else(|| format!("{} needs a value", name.display()))?;
            match name.to_str() {
                Some("--status-fd") => status = value.to_str().and_then(|text| text.parse().ok()),
                Some("--root") => root = Some(PathBuf::from(value)),
                Some("--work") => work = Some(PathBuf::from(value)),
                Some("--data") => data = Some(PathBuf::from(value)),
                Some("--output") => output = Some(PathBuf::from(value)),
                Some("--program") => program = Some(PathBuf::from(value)),
                Some("--hide") => hidden.push(PathBuf::from(value)),
                Some("--device") => devices.push(PathBuf::from(value)),
                _ => return Err(format!("unknown argument {}", name.display())),
            }
        }
        let missing =
            |what: &'static str| move || format!("{what} is missing; this is an internal command of the agent");
        let command: Vec<OsString> = args.collect();
        if command.is_empty() {
            return Err(missing("the command")());
        }
        Ok(Self {
            status_fd: status.ok_or_else(missing("--status-fd"))?,
            root: root.ok_or_else(missing("--root"))?,
            work: work.ok_or_else(missing("--work"))?,
            data: data.ok_or_else(missing("--data"))?,
            output: output.ok_or_else(missing("--output"))?,
            program: program.ok_or_else(missing("--program"))?,
            hidden,
            devices,
            command,
        })
    }
}
