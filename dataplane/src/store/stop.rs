//! Telling long work that nobody waits for it any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::StoreError;

/// A wish to stop, shared by who works and who waits. Work ends within a block.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

/// Stops the work when it is dropped: held by a future, it stops the work of a caller that is gone.
#[derive(Debug)]
pub struct StopOnDrop(Stop);

impl Stop {
    /// Asks the work to stop.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Asks the work to stop once the guard is gone.
    #[must_use]
    pub fn on_drop(&self) -> StopOnDrop {
        StopOnDrop(self.clone())
    }

    /// Fails once the work was asked to stop.
    ///
    /// # Errors
    ///
    /// [`StoreError::Stopped`].
    pub fn check(&self) -> Result<(), StoreError> {
        if self.0.load(Ordering::Relaxed) { Err(StoreError::Stopped) } else { Ok(()) }
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
