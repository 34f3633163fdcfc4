//! One at a time, by digest.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};

use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use crate::image::Digest;

#[derive(Debug, Default)]
pub(in crate::image) struct KeyedLocks {
    known: Mutex<HashMap<Digest, Weak<AsyncMutex<()>>>>,
}

impl KeyedLocks {
    /// Waits until nobody else has the lock of `key`.
    pub async fn lock(&self, key: &Digest) -> OwnedMutexGuard<()> {
        let lock = {
            let mut known = self.known.lock().unwrap_or_else(|poison| poison.into_inner());
            known.retain(|_, lock| lock.strong_count() > 0);
            match known.get(key).and_then(Weak::upgrade) {
                Some(lock) => lock,
                None => {
                    let lock = Arc::new(AsyncMutex::new(()));
                    known.insert(*key, Arc::downgrade(&lock));
                    lock
                }
            }
        };
        lock.lock_owned().await
    }
}
