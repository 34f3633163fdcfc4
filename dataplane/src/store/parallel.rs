//! One function over many items on a few threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// Threads for hashing and disk: more only queue at the disk.
const MAX_THREADS: usize = 8;

/// Calls `work` once for each index below `count`, in order of start; stops starting after the first error and
/// returns it.
pub(super) fn each<E: Send>(count: usize, work: impl Fn(usize) -> Result<(), E> + Sync) -> Result<(), E> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS).min(count);
    if threads <= 1 {
        return (0..count).try_for_each(work);
    }
    let next = AtomicUsize::new(0);
    let failed = Mutex::new(None);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return;
                    }
                    if let Err(error) = work(index) {
                        next.store(count, Ordering::Relaxed);
                        let mut failed = failed.lock().unwrap_or_else(|poison| poison.into_inner());
                        failed.get_or_insert(error);
                    }
                }
            });
        }
    });
    match failed.into_inner().unwrap_or_else(|poison| poison.into_inner()) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}
