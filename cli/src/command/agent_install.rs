//! `selion agent install`.

use selion_agent::install::{InstallError, Installation, Installed, Scope};

use super::agent::Args;
use crate::exit::Exit;
use crate::failure::{Done, Failure, chain};
use crate::output::Output;

/// What to install.
#[derive(Debug, clap::Args)]
pub struct Install {
    #[command(flatten)]
    args: Args,
    /// User that the agent runs as [default: root for a unit of the machine]
    #[arg(long, value_name = "NAME", conflicts_with = "user_unit")]
    user: Option<String>,
    /// A unit of the machine, in /etc/systemd/system [default, if you are root]
    #[arg(long, conflicts_with = "user_unit")]
    system: bool,
    /// A unit of your own, in ~/.config/systemd/user [default, if you are not root]
    #[arg(long)]
    user_unit: bool,
    /// Prints the unit, and writes nothing
    #[arg(long)]
    print: bool,
    /// Writes over a unit and settings that are there and say something else
    #[arg(long)]
    replace: bool,
}

/// Runs it.
pub fn main(out: Output, install: Install) -> Done {
    let Install { args, user, system, user_unit, print, replace } = install;
    let program = std::env::current_exe().map_err(|error| {
        Failure::new(Exit::Failure, "program", format!("this program's own file: {error}"), "call it by its path")
    })?;
    let of_machine = system || user.is_some() || (!user_unit && nix::unistd::geteuid().is_root());
    let scope = if of_machine { Scope::System } else { Scope::User };
    let installation = Installation { config: args.config()?, program, scope, user, replace };
    if print {
        let planned = installation.plan()?;
        return out.show(&planned, |planned| planned.text.clone());
    }
    let installed = installation.install()?;
    out.show(&installed, told)
}

fn told(installed: &Installed) -> String {
    let next = installed.next.iter().map(|command| format!("  {command}\n")).collect::<String>();
    format!(
        "wrote {}\nwrote {}, which has the settings: change them there\nnow run:\n{next}",
        installed.unit.display(),
        installed.settings.display()
    )
}

impl From<InstallError> for Failure {
    fn from(error: InstallError) -> Self {
        match error {
            InstallError::NoPool
            | InstallError::NoUser { .. }
            | InstallError::Path { .. }
            | InstallError::Closed { .. } => {
                Self::usage(chain(&error), "nothing was written; correct it and run this again")
            }
            InstallError::Exists { .. } => {
                Self::new(Exit::Conflict, "exists", chain(&error), "nothing was written; --print shows what would be")
            }
            _ => Self::new(Exit::Failure, "install", chain(&error), "--print shows the unit and writes nothing"),
        }
    }
}
