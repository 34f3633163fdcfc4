//! How long a command has run, by this machine's monotonic clock.

use tokio::time::Instant;

/// Counts from its making until [`Meter::stop`]. It does not outlive the agent, and neither does the command.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    since: Instant,
    stopped_ms: Option<u64>,
}

impl Meter {
    /// A meter that runs from now.
    #[must_use]
    pub fn start() -> Self {
        Self { since: Instant::now(), stopped_ms: None }
    }

    /// Milliseconds so far, rounded down.
    #[must_use]
    pub fn read_ms(&self) -> u64 {
        self.stopped_ms.unwrap_or_else(|| u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// Stops it for good and tells what it shows.
    pub fn stop(&mut self) -> u64 {
        let shown = self.read_ms();
        self.stopped_ms = Some(shown);
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_meter_stands_still() {
        let spin = |meter: &Meter, until: u64| while meter.read_ms() < until {};
        let mut meter = Meter::start();
        spin(&meter, 2);
        let shown = meter.stop();
        assert!(shown >= 2);
        spin(&Meter::start(), 3);
        assert_eq!((meter.read_ms(), meter.stop()), (shown, shown));
    }
}
