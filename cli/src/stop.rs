//! Ctrl-C and SIGTERM, and a parent that is gone.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::exit::Exit;
use crate::failure::{Done, Failure};

/// Who asks a program to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// Somebody at the terminal: Ctrl-C.
    Interrupt,
    /// A program or the system: SIGTERM.
    Terminate,
}

/// Both signals that ask a program to stop.
pub struct Stops {
    interrupt: Signal,
    terminate: Signal,
}

impl Stops {
    /// From now on the signals no longer end the process by themselves.
    pub fn new() -> Done<Self> {
        let failed = |error| Failure::new(Exit::Failure, "signals", error, "check the limits of this process");
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
        })
    }

    /// The next of either.
    pub async fn next(&mut self) {
        let _ = self.which().await;
    }

    /// The next of either, and which it was.
    pub async fn which(&mut self) -> Stop {
        tokio::select! {
            _ = self.interrupt.recv() => Stop::Interrupt,
            _ = self.terminate.recv() => Stop::Terminate,
        }
    }
}

/// A token that the first signal cancels. A second one ends the process at once.
pub fn token() -> Done<CancellationToken> {
    let mut stops = Stops::new()?;
    let token = CancellationToken::new();
    let cancel = token.clone();
    tokio::spawn(async move {
        stops.next().await;
        cancel.cancel();
        stops.next().await;
        std::process::exit(i32::from(Exit::Interrupted.code()));
    });
    Ok(token)
}

/// Has the kernel stop this process when the one that started it is gone. To be called on the main thread, first
/// thing.
pub fn with_parent(parent: i32) -> Done {
    let failed = |error| Failure::new(Exit::Failure, "parent", error, "start it without --parent");
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM).map_err(failed)?;
    // It may have died before the kernel was told.
    if nix::unistd::getppid().as_raw() == parent {
        return Ok(());
    }
    Err(Failure::new(Exit::Failure, "parent", format!("process {parent} is gone already"), "start `selion up` again"))
}
