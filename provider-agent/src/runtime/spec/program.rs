//! What runs in a box: an image's own words, and what a lease says instead.

use std::path::{Path, PathBuf};

use super::SpecError;
use crate::runtime::env;

/// What an image says about how it is run. All of it is the image's word: nothing of it is a right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Defaults {
    /// The program and its first arguments.
    pub entrypoint: Vec<String>,
    /// Arguments after the entrypoint, or the whole command where there is none.
    pub cmd: Vec<String>,
    /// Names and values.
    pub env: Vec<(String, String)>,
    /// Where it starts; empty for `/`.
    pub cwd: PathBuf,
}

/// What a lease says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Instead of the image's entrypoint, whose `cmd` then goes too; `Some` of nothing runs the command alone.
    pub entrypoint: Option<Vec<String>>,
    /// Instead of the image's `cmd`; empty leaves it.
    pub command: Vec<String>,
    /// Over the image's variables.
    pub env: Vec<(String, String)>,
    /// Where it starts.
    pub cwd: Option<PathBuf>,
}

/// What runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// Program and arguments.
    pub args: Vec<String>,
    /// The whole environment, a name once.
    pub env: Vec<(String, String)>,
    /// Where it starts, inside.
    pub cwd: PathBuf,
}

impl Program {
    /// A lease's request over an image's defaults, with the agent's own variables over both. Variables that reach no
    /// command are left out; without a `PATH` there is the usual one.
    ///
    /// # Errors
    ///
    /// [`SpecError::NoProgram`]; [`SpecError::BadWord`] for what no process can be given.
    pub fn of(image: &Defaults, request: &Request, own: &[(String, String)]) -> Result<Self, SpecError> {
        let entrypoint = request.entrypoint.as_ref().unwrap_or(&image.entrypoint);
        let rest = match (&request.entrypoint, request.command.as_slice()) {
            (None, []) => image.cmd.as_slice(),
            (_, command) => command,
        };
        let args = [entrypoint.as_slice(), rest].concat();
        if args.first().is_none_or(String::is_empty) {
            return Err(SpecError::NoProgram);
        }
        if let Some(bad) = args.iter().find(|word| word.contains('\0')) {
            return Err(SpecError::BadWord { what: "the argument", value: bad.clone() });
        }
        let usual = [("PATH".to_owned(), env::PATH.to_owned())];
        let mut variables: Vec<(String, String)> = Vec::new();
        for (name, value) in usual.iter().chain(&image.env).chain(&request.env).chain(own) {
            if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
                return Err(SpecError::BadWord { what: "the variable", value: name.clone() });
            }
            variables.retain(|(known, _)| known != name);
            variables.push((name.clone(), value.clone()));
        }
        env::strip(&mut variables);
        let said = request.cwd.as_deref().unwrap_or(&image.cwd);
        let cwd = if said.as_os_str().is_empty() { Path::new("/") } else { said };
        Ok(Self { args, env: variables, cwd: cwd.to_owned() })
    }
}
