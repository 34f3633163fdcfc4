//! How long a command has run, by the machine's clock since its start, which no end of an agent stops.

use crate::runtime::keep::clock;

/// Counts from the command's beginning until [`Meter::stop`], whichever agent reads it.
#[derive(Clone, Copy, Debug)]
pub struct Meter {
    since_ms: u64,
    /// It never shows less than was stated before.
    least_ms: u64,
    stopped_ms: Option<u64>,
}

impl Meter {
    /// A meter that runs from now.
    #[must_use]
    pub fn start() -> Self {
        Self::of(0, 0)
    }

    /// The meter of a command that has run for `ran_ms`, of which `least_ms` were stated.
    #[must_use]
    pub fn of(ran_ms: u64, least_ms: u64) -> Self {
        Self { since_ms: clock::now_ms().saturating_sub(ran_ms), least_ms, stopped_ms: None }
    }

    /// Milliseconds so far, rounded down.
    #[must_use]
    pub fn read_ms(&self) -> u64 {
        let now = || clock::now_ms().saturating_sub(self.since_ms).max(self.least_ms);
        self.stopped_ms.unwrap_or_else(now)
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
