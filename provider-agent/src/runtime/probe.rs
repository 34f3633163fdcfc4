//! Which sandbox works here: found out by running it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use selion_api::slice::Sandbox;
use tokio::time::timeout;

use super::{Launch, ProcessRuntime, Rooms, Runtime, RuntimeError, sandbox_name};

/// Longest time for one try.
const TRY: Duration = Duration::from_secs(20);
/// What is run: it must see its data, write its output, and neither write its data nor see the agent's secret.
const SCRIPT: &str = "test \"$(cat \"$SELION_DATA_DIR/seen\")\" = yes || exit 3\n\
    echo yes > \"$SELION_OUTPUT_DIR/written\" || exit 4\n\
    if (echo no > \"$SELION_DATA_DIR/new\") 2>/dev/null; then exit 5; fi\n\
    if cat \"$PROBE_SECRET\" >/dev/null 2>&1; then exit 6; fi\n\
    exit 0";

/// The result of the search.
#[derive(Debug)]
pub struct Probe {
    /// The best sandbox that works.
    pub sandbox: Sandbox,
    /// Better ones, and why they do not work.
    pub refused: Vec<(Sandbox, String)>,
}

/// Tries bubblewrap, then namespaces, with a real command under `folder` (the agent's state); `Sandbox::None` if
/// neither works. `exe` is the binary that has the helper.
pub async fn probe(folder: &Path, exe: &Path) -> Probe {
    let mut refused = Vec::new();
    for sandbox in [Sandbox::Bubblewrap, Sandbox::Namespaces] {
        match attempt(sandbox, folder, exe).await {
            Ok(()) => return Probe { sandbox, refused },
            Err(why) => refused.push((sandbox, why)),
        }
    }
    Probe { sandbox: Sandbox::None, refused }
}

async fn attempt(sandbox: Sandbox, folder: &Path, exe: &Path) -> Result<(), String> {
    let base = folder.join(format!("probe-{}", sandbox_name(sandbox)));
    let rooms = Rooms::make(&base).map_err(|error| format!("{}: {error}", base.display()))?;
    let secret = base.join("secret");
    let tried = match fs::write(&secret, "secret").and_then(|()| fs::write(rooms.data.join("seen"), "yes\n")) {
        Ok(()) => run(sandbox, folder, exe, &rooms, &secret).await,
        Err(error) => Err(format!("{}: {error}", base.display())),
    };
    // The rooms of a probe are in nobody's way.
    let _ = rooms.remove();
    tried
}

async fn run(sandbox: Sandbox, folder: &Path, exe: &Path, rooms: &Rooms, secret: &Path) -> Result<(), String> {
    let words = |error: RuntimeError| match std::error::Error::source(&error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    };
    let runtime = ProcessRuntime::new(sandbox, exe, Duration::from_secs(1)).map_err(words)?;
    let text = |path: &PathBuf| path.display().to_string();
    let launch = Launch {
        command: ["/bin/sh", "-c", SCRIPT].map(String::from).to_vec(),
        env: vec![
            ("PATH".into(), super::env::PATH.into()),
            ("SELION_DATA_DIR".into(), text(&rooms.data)),
            ("SELION_OUTPUT_DIR".into(), text(&rooms.output)),
            ("PROBE_SECRET".into(), secret.display().to_string()),
        ],
        rooms: rooms.clone(),
        hidden: vec![folder.to_owned()],
        devices: Vec::new(),
    };
    let mut running =
        timeout(TRY, runtime.launch(launch)).await.map_err(|_| "it did not start in time")?.map_err(words)?;
    let exit =
        timeout(TRY, running.wait()).await.map_err(|_| "it did not end in time")?.map_err(|error| error.to_string())?;
    let written = fs::read_to_string(rooms.output.join("written")).unwrap_or_default();
    match exit.code {
        0 if written == "yes\n" => Ok(()),
        0 => Err("what it wrote is not in the output folder".into()),
        3 => Err("it did not see its data".into()),
        4 => Err("it could not write its output".into()),
        5 => Err("it could write its data".into()),
        6 => Err("it could read the agent's state".into()),
        code => Err(format!("the trial command ended with {code}")),
    }
}
