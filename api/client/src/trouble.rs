//! What a client tells while it waits for a controller, or has to do otherwise than it was asked.

use std::future::Future;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// A call without an answer for this long is told of.
const SLOW: Duration = Duration::from_secs(5);

/// Why nothing comes at the moment, or comes otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// A call has no answer yet.
    Slow {
        /// When it fails without one.
        gives_up: Duration,
    },
    /// A stream broke off and is opened again and again.
    Lost {
        /// Why.
        why: String,
        /// It fails when that was in vain for so long.
        gives_up: Duration,
    },
    /// It goes on.
    Back,
    /// A word was said again without a signature: by the controller's clock it was signed for another time.
    Unsigned {
        /// What the controller said, with both times.
        why: String,
    },
}

type Watch = Arc<dyn Fn(&Trouble) + Send + Sync>;

/// Who is told.
pub(crate) struct Watcher {
    watch: RwLock<Option<Watch>>,
    slow: Duration,
}

impl Default for Watcher {
    fn default() -> Self {
        Self { watch: RwLock::default(), slow: SLOW }
    }
}

impl Watcher {
    pub(crate) fn set(&self, watch: Watch) {
        *self.watch.write().unwrap_or_else(PoisonError::into_inner) = Some(watch);
    }

    pub(crate) fn tell(&self, trouble: &Trouble) {
        let watch = self.watch.read().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(watch) = watch {
            watch(trouble);
        }
    }

    /// Waits for a call that fails by itself after `gives_up`.
    pub(crate) async fn over<T>(&self, gives_up: Duration, call: impl Future<Output = T>) -> T {
        tokio::pin!(call);
        match tokio::time::timeout(self.slow, &mut call).await {
            Ok(done) => done,
            Err(_) => {
                self.tell(&Trouble::Slow { gives_up });
                call.await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_call_without_an_answer_is_told_of_once_and_a_quick_one_never() {
        let told = Arc::new(std::sync::Mutex::new(Vec::new()));
        let (watcher, seen) = (Watcher { slow: Duration::from_millis(5), ..Watcher::default() }, Arc::clone(&told));
        watcher.set(Arc::new(move |trouble| seen.lock().unwrap().push(trouble.clone())));
        let gives_up = Duration::from_millis(50);
        assert_eq!(watcher.over(gives_up, async { 7 }).await, 7);
        assert!(told.lock().unwrap().is_empty());
        let frozen = tokio::time::timeout(gives_up, std::future::pending::<()>());
        assert!(watcher.over(gives_up, frozen).await.is_err(), "it ends in the stated time");
        assert_eq!(*told.lock().unwrap(), [Trouble::Slow { gives_up }]);
    }
}
