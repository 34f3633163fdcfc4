//! What every step stands on: the options, the folder, the processes, the screen.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::Options;
use crate::error::DemoError;
use crate::fault::{Expecting, Fault, Told};
use crate::process::{Crew, clean};
use crate::screen::Screen;
use crate::story::{Step, Story};

/// Longest time of a sub-command that ends by itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// The stage.
pub(crate) struct Stage {
    pub options: Options,
    pub crew: Crew,
    pub screen: Screen,
    pub story: Story,
    folder: Option<TempDir>,
    dir: PathBuf,
}

/// The story cannot go on.
#[derive(Debug)]
pub(crate) struct Stopped;

/// What a sub-command that ended answered.
pub(crate) struct Answer {
    /// True if it ended with 0.
    pub ok: bool,
    /// Its standard output.
    pub out: String,
    /// Its standard error.
    pub err: String,
}

impl Stage {
    pub fn new(options: Options) -> Result<Self, DemoError> {
        let unusable = |source| DemoError::Binary { path: options.exe.clone(), source };
        let exe = fs::canonicalize(&options.exe).map_err(unusable)?;
        if let Some(data) = &options.data {
            fs::metadata(data).map_err(|source| DemoError::Data { path: data.clone(), source })?;
        }
        let folder = tempfile::Builder::new().prefix("selion-demo-").tempdir().map_err(DemoError::Folder)?;
        let dir = folder.path().to_owned();
        let logs = dir.join("logs");
        fs::create_dir(&logs).map_err(DemoError::Folder)?;
        let screen = Screen::new(options.json);
        Ok(Self { options, crew: Crew::new(exe, logs), screen, story: Story::new(), folder: Some(folder), dir })
    }

    /// A path in the demo's folder.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.join(name)
    }

    /// Tells one step: `work` gives evidence and what later steps need.
    ///
    /// # Errors
    ///
    /// [`Stopped`] if it does not hold; the story says why.
    pub async fn step<T>(
        &mut self,
        name: &'static str,
        title: &str,
        work: impl AsyncFnOnce(&Self) -> Told<(Value, T)>,
    ) -> Result<T, Stopped> {
        self.screen.begin(title);
        let began = Instant::now();
        let told = work(self).await;
        let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let (evidence, rest) = match told {
            Ok((evidence, rest)) => (evidence, Ok(rest)),
            Err(fault) => (self.confess(title, ms, fault), Err(Stopped)),
        };
        if rest.is_ok() {
            self.screen.held(title, ms);
        }
        self.story.ok &= rest.is_ok();
        self.story.steps.push(Step { name, ok: rest.is_ok(), ms, evidence });
        rest
    }

    fn confess(&self, title: &str, ms: u64, mut fault: Fault) -> Value {
        for said in self.crew.obituaries() {
            fault.found.push_str("; ");
            fault.found.push_str(&said);
        }
        self.screen.failed(title, ms, &fault);
        serde_json::json!({ "expected": fault.expected, "found": fault.found, "logs": self.crew.logs() })
    }

    /// Starts a process of the binary. Unless the pool is to be left, the kernel ends it with us, however we end.
    pub fn start(&self, name: &str, args: impl IntoIterator<Item = OsString>) -> Told<u32> {
        let mut args: Vec<OsString> = args.into_iter().collect();
        if !self.options.keep {
            args.extend(["--parent".into(), std::process::id().to_string().into()]);
        }
        self.crew.start(name, args)
    }

    /// Runs a sub-command of the binary to its end. `home` is the profile that it uses.
    pub async fn tool<S: AsRef<OsStr>>(&self, home: Option<&Path>, args: impl IntoIterator<Item = S>) -> Told<Answer> {
        let mut command = tokio::process::Command::new(self.crew.exe());
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        clean(|key| {
            command.env_remove(key);
        });
        command.env("SELION_HOME", home.unwrap_or(&self.path("no-profile")));
        let ended = tokio::time::timeout(PATIENCE, command.output()).await.expecting("the command to end")??;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Answer { ok: ended.status.success(), out: text(&ended.stdout), err: text(&ended.stderr) })
    }

    /// Keeps the folder: whole, or the logs only.
    pub fn keep_folder(&mut self, whole: bool) {
        let Some(folder) = self.folder.take() else { return };
        let dir = folder.keep();
        if whole {
            return;
        }
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.path() != self.crew.logs() {
                // What cannot be removed is in the system's folder for temporary files.
                let _ = fs::remove_dir_all(entry.path()).or_else(|_| fs::remove_file(entry.path()));
            }
        }
    }
}

impl Answer {
    /// The JSON that it printed.
    ///
    /// # Errors
    ///
    /// A fault with what it said if it failed, or if that is no JSON.
    pub fn json(&self, what: &str) -> Told<Value> {
        if !self.ok {
            return Err(Fault::new(what, self.said()));
        }
        self.any_json(what)
    }

    /// The JSON that it printed, whether it failed or not.
    pub fn any_json(&self, what: &str) -> Told<Value> {
        serde_json::from_str(self.out.trim()).map_err(|error| Fault::new(what, format!("{error}: {}", self.said())))
    }

    fn said(&self) -> String {
        format!("{} {}", self.err.trim(), self.out.trim()).trim().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(exe: &str) -> Options {
        Options { exe: exe.into(), json: true, ..Options::default() }
    }

    #[tokio::test]
    async fn a_step_that_does_not_hold_says_what_was_expected_and_where_the_logs_are() {
        let mut stage = Stage::new(options("/bin/sh")).unwrap();
        stage.crew.start("weak", ["-c", "echo disk full; exit 1"]).unwrap();
        while stage.crew.obituaries().is_empty() {
            tokio::task::yield_now().await;
        }
        let told = stage.step("numbers", "two and two", async |_| Err::<(Value, ()), _>(Fault::new("4", 5))).await;
        assert!(told.is_err() && !stage.story.ok);
        let evidence = &stage.story.steps[0].evidence;
        assert_eq!(evidence["expected"], "4");
        let found = evidence["found"].as_str().unwrap();
        assert!(found.starts_with("5; weak") && found.contains("disk full"), "{found}");
        assert!(evidence["logs"].as_str().unwrap().ends_with("/logs"));
    }

    #[tokio::test]
    async fn a_sub_command_sees_none_of_our_callers_settings() {
        let stage = Stage::new(options("/bin/sh")).unwrap();
        let answer = stage.tool(None, ["-c", "env | grep -c '^SELION_'"]).await.unwrap();
        assert_eq!(answer.out.trim(), "1", "SELION_HOME only");
    }

    #[test]
    fn a_binary_that_is_not_there_is_named() {
        let error = Stage::new(options("/no/such/selion")).err().unwrap().to_string();
        assert!(error.contains("/no/such/selion"), "{error}");
    }

    #[test]
    fn after_a_failure_the_logs_stay_and_the_keys_go() {
        let mut stage = Stage::new(options("/bin/sh")).unwrap();
        fs::write(stage.path("renter.key"), "secret").unwrap();
        fs::create_dir(stage.path("controller")).unwrap();
        let dir = stage.dir.clone();
        stage.keep_folder(false);
        drop(stage);
        let left: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["logs"]);
        fs::remove_dir_all(dir).unwrap();
    }
}
