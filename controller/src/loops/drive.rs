//! The one way a loop runs: a pass at an interval, at a nudge, and later if it failed.

use std::fmt::{Debug, Display};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Longest pause after failures in a row.
const SLOWEST: Duration = Duration::from_secs(60);

/// Runs `pass` now, then every `interval` and at every `nudge`, until `stop`. A pass takes no hint about what changed,
/// so it may be repeated, skipped or cut short. After failures in a row the pause doubles up to a minute (never below
/// `interval`); the first failure and the recovery are logged, repeats only in detail.
pub async fn drive<R, E, F>(
    name: &'static str,
    interval: Duration,
    nudge: Arc<Notify>,
    stop: CancellationToken,
    mut pass: impl FnMut() -> F,
) where
    R: Debug,
    E: Display,
    F: Future<Output = Result<R, E>>,
{
    let mut failures = 0_u32;
    loop {
        // A pass is never dropped half-way by a nudge, only by the end of the process.
        match pass().await {
            Ok(report) => {
                if failures > 0 {
                    tracing::info!(name, failures, "pass done again");
                }
                failures = 0;
                tracing::debug!(name, ?report, "pass done");
            }
            Err(error) => {
                if failures == 0 {
                    tracing::warn!(name, %error, "pass failed; it is tried again by itself");
                } else {
                    tracing::debug!(name, %error, failures, "pass failed again");
                }
                failures = failures.saturating_add(1);
            }
        }
        let pause = match failures {
            0 => interval,
            n => (interval * 2_u32.saturating_pow(n.min(8))).min(SLOWEST.max(interval)),
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
            () = nudge.notified() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn a_nudge_starts_a_pass_also_after_a_failure_and_stop_ends_the_loop() {
        let (told, mut passes) = mpsc::unbounded_channel();
        let (nudge, stop) = (Arc::new(Notify::new()), CancellationToken::new());
        let mut count = 0_u32;
        let day = Duration::from_secs(86_400);
        let task = tokio::spawn(drive("test", day, nudge.clone(), stop.clone(), move || {
            count += 1;
            let outcome = if count == 1 { Err("first") } else { Ok(count) };
            told.send(count).unwrap();
            async move { outcome }
        }));
        assert_eq!(passes.recv().await, Some(1));
        nudge.notify_one();
        assert_eq!(passes.recv().await, Some(2));
        stop.cancel();
        task.await.unwrap();
    }
}
