//! `selion demo`: the whole story of a pool in one run, told by a client.
//!
//! The demo starts a chain, a controller and agents as processes of the one binary, and from then on does what any
//! renter, owner or auditor could do: REST calls, chain RPC, and signals to pids. It links neither store nor market
//! nor controller; its `Cargo.toml` says so. Every step carries the evidence by which others can check it.

mod chapter;
mod error;
mod fault;
mod map;
mod process;
mod program;
mod renter;
mod screen;
mod stage;
mod story;
mod tables;
mod tail;

use std::io::Write;
use std::path::PathBuf;

use tokio::signal::unix::{SignalKind, signal};

pub use error::DemoError;
pub use story::{Left, Step, Story, Transaction};

use stage::{Stage, Stopped};

/// What the caller sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The `selion` binary that every process is started from.
    pub exe: PathBuf,
    /// A file or folder to lease with; some made files if absent.
    pub data: Option<PathBuf>,
    /// Program and arguments of the first lease; one that reads all data if empty.
    pub command: Vec<String>,
    /// Print one JSON object on stdout instead of lines.
    pub json: bool,
    /// Leave the pool running, and say how to reach it.
    pub keep: bool,
    /// JSON-RPC of a development chain that runs already (Anvil, `geth --dev`); otherwise one is started.
    pub chain_rpc: Option<String>,
    /// RPC of a Kubo on this machine, through which the data goes.
    pub kubo: Option<String>,
}

/// Tells the story and prints it: lines as it goes, or one JSON object on stdout at its end. `story.ok` says whether
/// every step held. Whatever was started is stopped again, also on Ctrl-C, unless `keep` is set and all held.
///
/// # Errors
///
/// [`DemoError`] if there is no story: the binary does not run, there is no room, or it was interrupted.
pub async fn run(options: Options) -> Result<Story, DemoError> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(DemoError::Signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(DemoError::Signals)?;
    let mut stage = Stage::new(options)?;
    let told = tokio::select! {
        told = chapter::tell(&mut stage) => Some(told),
        _ = interrupt.recv() => None,
        _ = terminate.recv() => None,
    };
    let Some(told) = told else {
        stage.screen.end();
        stage.crew.stop().await;
        return Err(DemoError::Interrupted);
    };
    let held = told.is_ok();
    if held && stage.options.keep {
        stage.crew.leave();
        stage.keep_folder(true);
    } else {
        stage.story.pool = None;
        stage.crew.stop().await;
        if let Err(Stopped) = told {
            stage.keep_folder(false);
        }
    }
    print(&stage)?;
    Ok(stage.story)
}

fn print(stage: &Stage) -> Result<(), DemoError> {
    if !stage.options.json {
        stage.screen.show(&tables::end(&stage.story, &stage.crew));
        return Ok(());
    }
    let text = serde_json::to_string(&stage.story).map_err(|error| DemoError::Print(error.into()))?;
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{text}").and_then(|()| stdout.flush()).map_err(DemoError::Print)
}
