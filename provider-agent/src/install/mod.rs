//! `selion agent install`: a systemd unit for the present settings.
//!
//! The settings go to `STATE/agent.toml`, which only the agent's user reads: a chain node's URL may carry a key, and a unit is
//! everybody's to read. The unit names that file and no setting.

mod toml;
mod unit;

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};

use nix::unistd::{User, geteuid};
use serde::Serialize;

use crate::config::{Config, GpuSource};
use unit::Unit;

/// Name of the unit.
pub const UNIT: &str = "selion-agent.service";
/// File of the state directory with the settings.
const SETTINGS: &str = "agent.toml";
/// Where an owner's own units of the whole machine are.
const SYSTEM: &str = "/etc/systemd/system";

/// Whose manager runs the unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// The machine's: the agent runs from its start on.
    System,
    /// A user's own.
    User,
}

/// What is to be installed.
#[derive(Clone, Debug)]
pub struct Installation {
    /// The settings.
    pub config: Config,
    /// This program.
    pub program: PathBuf,
    /// Whose manager.
    pub scope: Scope,
    /// The user that the agent runs as, in a unit of the machine's; root if there is none.
    pub user: Option<String>,
    /// Writes over files that are there and differ.
    pub replace: bool,
}

/// What was or would be written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Installed {
    /// Where the unit is.
    pub unit: PathBuf,
    /// Its text. There is no secret in it.
    pub text: String,
    /// Where the settings are.
    pub settings: PathBuf,
    /// Commands to run next.
    pub next: Vec<String>,
}

/// Why nothing was installed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// The settings do not say which pool.
    #[error("no pool is set; give --pool ADDRESS (the pool's Controller contract)")]
    NoPool,
    /// A unit of the machine's is root's to write.
    #[error("{SYSTEM} is root's: run this by sudo, or give --user-unit for a unit of your own; --print only shows it")]
    NotRoot,
    /// No such user.
    #[error("there is no user `{name}` here; make one with `useradd --system --create-home {name}`")]
    NoUser {
        /// As asked.
        name: String,
    },
    /// The state directory is another user's.
    #[error("{} belongs to user {owner}, and the agent is to run as {user}: run `chown -R {user} {}`", dir.display(), dir.display())]
    NotTheirs {
        /// The state directory.
        dir: PathBuf,
        /// Number of its owner.
        owner: u32,
        /// Who is to use it.
        user: String,
    },
    /// The user cannot come to the program.
    #[error("{user} may not run {}: {} is closed to others; copy the program to /usr/local/bin and call it there", program.display(), closed.display())]
    Closed {
        /// Who is to run it.
        user: String,
        /// This program.
        program: PathBuf,
        /// The file or folder on the way to it.
        closed: PathBuf,
    },
    /// Something else is there.
    #[error("{} is there already and says something else; look at it, then give --replace", path.display())]
    Exists {
        /// Which file.
        path: PathBuf,
    },
    /// A path cannot stand in a unit.
    #[error("{path:?} cannot stand in a unit: {why}")]
    Path {
        /// Which.
        path: PathBuf,
        /// Why not.
        why: &'static str,
    },
    /// A setting has no form in a file.
    #[error("the settings cannot be written: {0}")]
    Settings(String),
    /// The system's.
    #[error("{}", path.display())]
    Io {
        /// File or folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Installation {
    /// What would be written, and nothing is.
    ///
    /// # Errors
    ///
    /// [`InstallError`].
    pub fn plan(&self) -> Result<Installed, InstallError> {
        let config = self.absolute()?;
        if config.pool.is_none() {
            return Err(InstallError::NoPool);
        }
        let user = self.person()?;
        if let Some(user) = user.as_ref().filter(|user| !user.uid.is_root()) {
            self.may_run(user)?;
        }
        let settings = config.state_dir.join(SETTINGS);
        let unit = Unit {
            program: &self.program,
            settings: &settings,
            state: &config.state_dir,
            needed: [&self.program]
                .into_iter()
                .chain(&config.show)
                .chain(&config.sandbox_helper)
                .map(PathBuf::as_path)
                .collect(),
            scope: self.scope,
            user: user.as_ref().map(|user| user.name.as_str()),
            real_gpus: config.gpus == GpuSource::Nvml,
        };
        Ok(Installed { unit: self.folder()?.join(UNIT), text: unit.text()?, settings, next: self.next() })
    }

    /// Writes the settings and the unit.
    ///
    /// # Errors
    ///
    /// [`InstallError`]; a file that is there and says something else stays as it is.
    pub fn install(&self) -> Result<Installed, InstallError> {
        if self.scope == Scope::System && !geteuid().is_root() {
            return Err(InstallError::NotRoot);
        }
        let installed = self.plan()?;
        let config = self.absolute()?;
        let settings = toml::differing(&config, &Config::default()).map_err(InstallError::Settings)?;
        let (user, dir) = (self.person()?, &config.state_dir);
        let theirs = |path: &Path| match &user {
            Some(user) => chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())),
            None => Ok(()),
        };
        // Before anything is written: all of it or nothing.
        for (path, text) in [(&installed.settings, &settings), (&installed.unit, &installed.text)] {
            self.may_write(path, text)?;
        }
        if !dir.exists() {
            make(dir, 0o700).and_then(|()| theirs(dir)).map_err(at(dir))?;
        }
        if let Some(user) = &user {
            let owner = fs::metadata(dir).map_err(at(dir))?.uid();
            if owner != user.uid.as_raw() {
                return Err(InstallError::NotTheirs { dir: dir.clone(), owner, user: user.name.clone() });
            }
        }
        write(&installed.settings, &settings, 0o600, theirs).map_err(at(&installed.settings))?;
        let folder = self.folder()?;
        make(&folder, 0o755).map_err(at(&folder))?;
        write(&installed.unit, &installed.text, 0o644, |_| Ok(())).map_err(at(&installed.unit))?;
        Ok(installed)
    }

    /// Refuses a program that only its owner can come to, unless that is the user.
    fn may_run(&self, user: &User) -> Result<(), InstallError> {
        let is_closed = |path: &&Path| {
            fs::metadata(path).is_ok_and(|meta| meta.uid() != user.uid.as_raw() && meta.mode() & 0o001 == 0)
        };
        match self.program.ancestors().find(is_closed) {
            None => Ok(()),
            Some(closed) => Err(InstallError::Closed {
                user: user.name.clone(),
                program: self.program.clone(),
                closed: closed.to_owned(),
            }),
        }
    }

    fn may_write(&self, path: &Path, text: &str) -> Result<(), InstallError> {
        match fs::read(path) {
            Ok(there) if there == text.as_bytes() || self.replace => Ok(()),
            Ok(_) => Err(InstallError::Exists { path: path.to_owned() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(at(path)(error)),
        }
    }

    /// The settings with every path from the root on: a unit starts in no folder of its owner's.
    fn absolute(&self) -> Result<Config, InstallError> {
        let whole = |path: &Path| std::path::absolute(path).map_err(at(path));
        let mut config = self.config.clone();
        config.state_dir = whole(&config.state_dir)?;
        for path in config.show.iter_mut().chain(&mut config.hide).chain(&mut config.sandbox_helper) {
            *path = whole(path)?;
        }
        if let Some(file) = config.chain_rpc.strip_prefix('@') {
            config.chain_rpc = format!("@{}", whole(Path::new(file))?.display());
        }
        Ok(config)
    }

    fn person(&self) -> Result<Option<User>, InstallError> {
        let Some(name) = &self.user else { return Ok(None) };
        match User::from_name(name) {
            Ok(Some(user)) => Ok(Some(user)),
            _ => Err(InstallError::NoUser { name: name.clone() }),
        }
    }

    fn folder(&self) -> Result<PathBuf, InstallError> {
        if self.scope == Scope::System {
            return Ok(SYSTEM.into());
        }
        let set = std::env::var_os("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
        let home = || std::env::home_dir().map(|home| home.join(".config"));
        let folder = set.or_else(home).ok_or(InstallError::NoUser { name: "(no home)".into() })?;
        Ok(folder.join("systemd/user"))
    }

    fn next(&self) -> Vec<String> {
        match self.scope {
            Scope::System => vec!["systemctl daemon-reload".into(), format!("systemctl enable --now {UNIT}")],
            Scope::User => vec![
                "systemctl --user daemon-reload".into(),
                format!("systemctl --user enable --now {UNIT}"),
                // Else it ends with its user's last session.
                "loginctl enable-linger".into(),
            ],
        }
    }
}

fn at(path: &Path) -> impl FnOnce(io::Error) -> InstallError {
    let path = path.to_owned();
    |source| InstallError::Io { path, source }
}

/// Makes a folder and those above it; only the last has the mode for certain.
fn make(folder: &Path, mode: u32) -> io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    fs::set_permissions(folder, Permissions::from_mode(mode))
}

/// Writes a file whole or not at all.
fn write(path: &Path, text: &str, mode: u32, give: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    let beside = path.with_extension("new");
    // Debris of an earlier try; a link there leads nowhere, as the file is made anew.
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    give(&beside)?;
    fs::rename(&beside, path)?;
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

#[cfg(test)]
#[path = "install_tests.rs"]
mod tests;
