//! A support bundle: what somebody who helps an owner needs to know of his machine, and nothing that is secret.
//!
//! It is put together from what is listed here, and from nothing else: no file of the state directory goes in but the
//! diary. What renters brought or printed, keys, tokens and vouchers are not on the list; every text is searched for the
//! secrets that the settings and the state directory hold all the same.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;
use tokio::process::Command;
use tokio::time::timeout;

use crate::config::Config;
use crate::doctor::{Check, Findings, examine};
use crate::gpus::NvmlGpus;
use crate::scrub::{self, Secrets};
use crate::status::last_events;

/// Events in it at most.
const EVENTS: usize = 500;
/// Longest wait for a program that tells its version.
const TELL: Duration = Duration::from_secs(5);
/// Most bytes of a version or of a file of the kernel.
const MOST: usize = 64 << 10;
/// Programs whose versions matter, and how each is asked.
const PROGRAMS: [(&str, &str); 5] = [
    ("slirp4netns", "--version"),
    ("nft", "--version"),
    ("runc", "--version"),
    ("systemctl", "--version"),
    ("ldd", "--version"),
];
/// Facts of the kernel and the distribution. None names a person or a boot option.
const FACTS: [&str; 14] = [
    "/proc/version",
    "/etc/os-release",
    "/proc/swaps",
    "/proc/filesystems",
    "/proc/self/cgroup",
    "/proc/self/limits",
    "/proc/self/uid_map",
    "/proc/driver/nvidia/version",
    "/proc/sys/kernel/unprivileged_userns_clone",
    "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
    "/proc/sys/user/max_user_namespaces",
    "/sys/kernel/security/lsm",
    "/sys/fs/cgroup/cgroup.controllers",
    "/sys/module/overlay/initstate",
];
/// Said of itself.
const README: &str = "A support bundle of a Selion agent.\n\n\
    versions.json  releases of Selion, kernel, driver and programs\n\
    doctor.json    what `selion agent doctor` found\n\
    config.json    settings; of URLs only scheme, host and port\n\
    spec.json      what the node says it is, which is public\n\
    status.json    what the running agent is at, if one runs\n\
    events.log     the last events that `selion agent up` printed\n\
    kernel.txt     facts of the kernel and the distribution\n\n\
    Not in it: keys, tokens, vouchers, environments, and whatever renters ran, brought, printed or left.\n";

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Bundle {
    /// Where it is, readable by its owner only.
    pub path: PathBuf,
    /// What is in it.
    pub files: Vec<String>,
    /// What the doctor found.
    pub checks: Vec<Check>,
}

/// Why there is no bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The file is there already.
    #[error("{} is there already; name a file that is not", path.display())]
    Exists {
        /// Which.
        path: PathBuf,
    },
    /// The file cannot be written.
    #[error("the bundle {}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Looks at everything as [`doctor`](crate::doctor()) does, and writes what it found to a new `.tar.gz` at `path`.
///
/// # Errors
///
/// [`BundleError`]; no file is left then.
pub async fn bundle(config: &Config, path: &Path) -> Result<Bundle, BundleError> {
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::AlreadyExists => BundleError::Exists { path: path.to_owned() },
        _ => BundleError::Io { path: path.to_owned(), source },
    };
    // First of all: whoever cannot have the file need not wait for the rest.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    let found = examine(config).await;
    let parts = parts(config, &found).await;
    let secrets = Secrets::of(config);
    let struck: Vec<(&str, String)> = parts.iter().map(|(name, text)| (*name, secrets.strike(text))).collect();
    if let Err(error) = pack(file, &struck) {
        // What there is of it is no bundle.
        let _ = fs::remove_file(path);
        return Err(failed(error));
    }
    let files = struck.iter().map(|(name, _)| (*name).to_owned()).collect();
    Ok(Bundle { path: path.to_owned(), files, checks: found.checks })
}

/// The texts, by name.
async fn parts(config: &Config, found: &Findings) -> Vec<(&'static str, String)> {
    let mut parts = vec![
        ("README", README.to_owned()),
        ("versions.json", pretty(&versions().await)),
        ("doctor.json", pretty(&found.checks)),
        ("config.json", pretty(&scrub::config(config))),
        ("events.log", last_events(&config.state_dir, EVENTS).join("\n") + "\n"),
        ("kernel.txt", kernel()),
    ];
    parts.extend(found.spec.as_ref().map(|spec| ("spec.json", pretty(spec))));
    parts.extend(found.status.as_ref().map(|status| ("status.json", pretty(status))));
    parts
}

fn pretty(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|error| error.to_string())
}

async fn versions() -> serde_json::Value {
    let driver = NvmlGpus::open().and_then(|nvml| nvml.driver_version());
    let mut versions = serde_json::json!({
        "selion": env!("CARGO_PKG_VERSION"),
        "driver": driver.unwrap_or_else(|error| error.to_string()),
    });
    for (name, flag) in PROGRAMS {
        versions[name] = told(name, flag).await.into();
    }
    versions
}

/// The first line of what a program says, which gets nothing of this one's environment.
async fn told(name: &str, flag: &str) -> String {
    let mut command = Command::new(name);
    command.arg(flag).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::null()).kill_on_drop(true);
    match timeout(TELL, command.output()).await {
        Ok(Ok(output)) => {
            let said = String::from_utf8_lossy(if output.stdout.is_empty() { &output.stderr } else { &output.stdout });
            said.lines().next().unwrap_or_default().chars().take(200).collect()
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => "no answer".into(),
    }
}

fn kernel() -> String {
    let fact = |path: &&str| {
        let text = fs::read_to_string(path).unwrap_or_else(|error| format!("({error})"));
        format!("== {path}\n{}\n", text.chars().take(MOST).collect::<String>().trim_end())
    };
    let groups = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let groups = groups.lines().filter(|line| line.contains(" - cgroup")).collect::<Vec<_>>().join("\n");
    FACTS.iter().map(fact).collect::<String>() + "== control groups as they are mounted\n" + &groups + "\n"
}

fn pack(file: fs::File, parts: &[(&str, String)]) -> io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    for (name, text) in parts {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_entry_type(tar::EntryType::Regular);
        archive.append_data(&mut header, name, text.as_bytes())?;
    }
    let mut file = archive.into_inner()?.finish()?;
    file.flush()?;
    file.sync_all()
}
