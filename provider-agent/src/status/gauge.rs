//! What a member uses, now and at most: made of readings that follow each other.

use selion_api::TimeMs;
use serde::{Deserialize, Serialize};

use crate::runtime::{GroupUse, Traffic};

/// A figure now, and the most that it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gauge {
    /// At the last reading.
    pub now: u64,
    /// Of all readings.
    pub peak: u64,
}

impl Gauge {
    fn see(now: u64, before: Option<Self>) -> Self {
        Self { now, peak: before.map_or(now, |before| before.peak.max(now)) }
    }
}

/// What a member uses. What nobody counts is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Use {
    /// Processor time between two readings, in thousandths of a core.
    pub cpu_milli: Option<Gauge>,
    /// Processor time in all, in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Memory, in bytes; the peak is the kernel's own where it counts one.
    pub memory_bytes: Option<Gauge>,
    /// Processes and threads.
    pub pids: Option<Gauge>,
    /// Written to disk, in bytes.
    pub disk_bytes: Option<Gauge>,
    /// Sent between two readings, in bytes a second.
    pub sent_rate: Option<Gauge>,
    /// Received, in the same way.
    pub received_rate: Option<Gauge>,
    /// Sent in all, in bytes.
    pub sent_bytes: Option<u64>,
    /// Received in all.
    pub received_bytes: Option<u64>,
}

/// One reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) at: TimeMs,
    pub(crate) group: GroupUse,
    pub(crate) disk_bytes: u64,
    pub(crate) traffic: Option<Traffic>,
}

/// Readings of one member so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Readings {
    last: Option<Sample>,
    pub(super) uses: Use,
}

impl Readings {
    pub(super) fn take(&mut self, sample: Sample) {
        let was = self.uses;
        // Each rate is over the time since the last reading.
        let rate = |count: fn(&Sample) -> Option<u64>, factor: u64| {
            let last = self.last?;
            let ms = sample.at.since(last.at);
            let more = count(&sample)?.saturating_sub(count(&last)?);
            (ms > 0).then(|| more.saturating_mul(factor) / ms)
        };
        let cpu = rate(|sample| sample.group.cpu_ms, 1_000);
        let sent = rate(|sample| sample.traffic.map(|traffic| traffic.sent), 1_000);
        let received = rate(|sample| sample.traffic.map(|traffic| traffic.received), 1_000);
        let memory = sample.group.memory_bytes.map(|now| {
            let seen = Gauge::see(now, was.memory_bytes);
            Gauge { peak: sample.group.memory_peak_bytes.unwrap_or(0).max(seen.peak), ..seen }
        });
        let see = |now: Option<u64>, before: Option<Gauge>| now.map_or(before, |now| Some(Gauge::see(now, before)));
        self.uses = Use {
            cpu_milli: see(cpu, was.cpu_milli),
            cpu_ms: sample.group.cpu_ms.or(was.cpu_ms),
            memory_bytes: memory.or(was.memory_bytes),
            pids: see(sample.group.pids, was.pids),
            disk_bytes: see(Some(sample.disk_bytes), was.disk_bytes),
            sent_rate: see(sent, was.sent_rate),
            received_rate: see(received, was.received_rate),
            sent_bytes: sample.traffic.map(|traffic| traffic.sent).or(was.sent_bytes),
            received_bytes: sample.traffic.map(|traffic| traffic.received).or(was.received_bytes),
        };
        self.last = Some(sample);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(at: u64, cpu_ms: u64, memory: u64, disk: u64, sent: u64) -> Sample {
        let group = GroupUse {
            cpu_ms: Some(cpu_ms),
            memory_bytes: Some(memory),
            memory_peak_bytes: Some(900),
            pids: Some(3),
            ..GroupUse::default()
        };
        let traffic = Some(Traffic { sent, received: 2 * sent });
        Sample { at: TimeMs(at), group, disk_bytes: disk, traffic }
    }

    #[test]
    fn use_has_a_now_a_peak_and_rates_of_the_time_between_two_readings() {
        let mut readings = Readings::default();
        readings.take(sample(0, 0, 500, 70, 0));
        assert_eq!(readings.uses.cpu_milli, None, "one reading is no rate");
        readings.take(sample(500, 1_000, 800, 90, 4_000));
        readings.take(sample(1_500, 1_250, 100, 20, 4_500));
        let uses = readings.uses;
        assert_eq!(uses.cpu_milli, Some(Gauge { now: 250, peak: 2_000 }));
        assert_eq!(uses.memory_bytes, Some(Gauge { now: 100, peak: 900 }), "the kernel's own peak");
        assert_eq!(uses.disk_bytes, Some(Gauge { now: 20, peak: 90 }));
        assert_eq!(uses.sent_rate, Some(Gauge { now: 500, peak: 8_000 }));
        assert_eq!((uses.sent_bytes, uses.received_bytes, uses.cpu_ms), (Some(4_500), Some(9_000), Some(1_250)));
        // A clock that was set back, and a count that nobody has, make no rate.
        readings.take(Sample { traffic: None, ..sample(1_000, 2_000, 100, 20, 0) });
        assert_eq!((readings.uses.sent_rate, readings.uses.sent_bytes), (uses.sent_rate, Some(4_500)));
    }
}
