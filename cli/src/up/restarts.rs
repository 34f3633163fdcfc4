//! How often a part that dies is started again.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// So many restarts of one part within [`WINDOW`]: a part that dies more often will not do otherwise the next time.
pub const MOST: usize = 5;
/// The time in which they count.
pub const WINDOW: Duration = Duration::from_secs(600);
/// Wait before the first restart; it doubles with each. Well below the ten seconds that agents have to link again after a
/// restart of the controller.
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// The restarts of one part.
#[derive(Debug, Default)]
pub struct Restarts(VecDeque<Instant>);

impl Restarts {
    /// Notes a death at `now`. How long to wait before the part is started again; `None` if it has died too often.
    pub fn next(&mut self, now: Instant) -> Option<Duration> {
        self.0.retain(|at| now.duration_since(*at) < WINDOW);
        let before = self.0.len();
        if before >= MOST {
            return None;
        }
        self.0.push_back(now);
        Some(FIRST_WAIT * (1 << before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_started_again_ever_later_and_not_for_ever() {
        let (mut restarts, now) = (Restarts::default(), Instant::now());
        let waits: Vec<_> = (0..=MOST).map(|_| restarts.next(now).map(|wait| wait.as_millis())).collect();
        assert_eq!(waits, [Some(250), Some(500), Some(1_000), Some(2_000), Some(4_000), None]);
        assert_eq!(restarts.next(now + WINDOW), Some(FIRST_WAIT), "what is long ago is forgiven");
    }
}
