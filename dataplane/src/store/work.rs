//! Work on behalf of callers: a few pieces at a time, and over when the caller is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::Semaphore;

use super::{Stop, Store, StoreError};
use crate::source::blocking;

/// Walks at one time: each may keep a core and a disk busy for long.
const WALKS: usize = 2;
/// Questions about many blocks at one time, each of which may have two gigabytes hashed.
const QUESTIONS: usize = 4;
/// Callers that wait at one gate.
const WAITING: usize = 64;

/// Lets a few through at a time.
#[derive(Debug)]
pub(super) struct Gate {
    room: Arc<Semaphore>,
    waiting: AtomicUsize,
}

impl Gate {
    pub fn for_walks() -> Self {
        Self { room: Arc::new(Semaphore::new(WALKS)), waiting: AtomicUsize::new(0) }
    }

    pub fn for_questions() -> Self {
        Self { room: Arc::new(Semaphore::new(QUESTIONS)), waiting: AtomicUsize::new(0) }
    }
}

/// Counts one waiting caller.
struct Waits<'a>(&'a AtomicUsize);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Store {
    /// Does long work, such as a walk, off the async threads, two at a time. If the future is dropped, the work's
    /// [`Stop`] says so.
    ///
    /// # Errors
    ///
    /// [`StoreError::Busy`] if sixty-four callers wait already; those of the work.
    pub async fn work<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self, &Stop) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.through(&self.inner.walks, work).await
    }

    /// [`work`](Self::work) of some seconds at most, which does not wait behind walks: four at a time.
    pub(crate) async fn question<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self, &Stop) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.through(&self.inner.questions, work).await
    }

    async fn through<T: Send + 'static>(
        &self,
        gate: &Gate,
        work: impl FnOnce(&Self, &Stop) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let before = gate.waiting.fetch_add(1, Ordering::Relaxed);
        let waits = Waits(&gate.waiting);
        if before >= WAITING {
            return Err(StoreError::Busy);
        }
        let permit = gate.room.clone().acquire_owned().await.map_err(|_| StoreError::Busy)?;
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
