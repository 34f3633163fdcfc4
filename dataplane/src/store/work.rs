//! Long work on behalf of callers: few at a time, and over when the caller is gone.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Stop, Store, StoreError};
use crate::source::blocking;

/// Walks at one time: each may keep a core and a disk busy.
pub(super) const AT_ONCE: usize = 2;
/// Callers that wait for one.
const WAITING: usize = 64;

/// Counts one waiting caller.
struct Waits<'a>(&'a AtomicUsize);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Store {
    /// Does long work off the async threads, two at a time. If the future is dropped, the work's [`Stop`] says so.
    ///
    /// # Errors
    ///
    /// [`StoreError::Busy`] if sixty-four callers wait already; those of the work.
    pub async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self, &Stop) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        if self.inner.waiting.fetch_add(1, Ordering::Relaxed) >= WAITING {
            drop(Waits(&self.inner.waiting));
            return Err(StoreError::Busy);
        }
        let waits = Waits(&self.inner.waiting);
        let permit = self.inner.works.clone().acquire_owned().await.map_err(|_| StoreError::Busy)?;
        drop(waits);
        let stop = Stop::default();
        let _gone = stop.on_drop();
        let store = self.clone();
        blocking(move || {
            let _permit = permit;
            work(&store, &stop)
        })
        .await
    }
}
