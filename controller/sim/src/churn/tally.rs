//! What is counted in a run: only in the window, after the warm-up.

use serde::Serialize;

use super::lives::LIFE;
use crate::stats::percentile;
use crate::trace::{SIZES, Size, Task};

/// Mean lives before anything is counted.
pub const WARM: f64 = 1.5;
/// Mean lives that are counted.
pub const WINDOW: f64 = 3.0;

/// What one run measured. Shares are in per cent, waits in mean lives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// GPU placed of GPU offered.
    pub accepted: f64,
    /// GPU in use of the cluster's, mean over time.
    pub allocated: f64,
    /// The same over the time in which GPU work waits; `None` if none ever waits.
    pub allocated_waiting: Option<f64>,
    /// Tasks that wait, mean over time.
    pub queue: f64,
    /// Wait of all arrivals; of one that never starts, until the end of the run.
    pub wait: f64,
    /// The wait that 95 % do not pass.
    pub wait_p95: f64,
    /// Bookings made, the warm-up's too.
    pub booked: u64,
    /// Of these, started later than promised.
    pub late: u64,
    /// By size class.
    pub classes: Vec<Class>,
}

/// What one run measured of one size class, in the same units.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Class {
    /// Which.
    pub size: Size,
    /// Tasks offered, in the mean of the runs.
    pub offered: f64,
    /// Of these, placed: by GPU; CPU-only by count.
    pub accepted: f64,
    /// The longest wait.
    pub worst_wait: f64,
    /// Offered and not started at the end of the run.
    pub never_started: f64,
    /// The same of those alone that were offered at least one mean life before the end.
    pub starved: f64,
}

#[derive(Clone, Debug, Default)]
struct Sums {
    offered: u64,
    started: u64,
    offered_gpu: u64,
    started_gpu: u64,
    early: u64,
    starved: u64,
    waits: Vec<f64>,
}

/// Counts a run while it runs.
#[derive(Clone, Debug)]
pub struct Tally {
    capacity: u64,
    from: u64,
    until: u64,
    clock: u64,
    allocated: u64,
    area: u128,
    area_waiting: u128,
    time_waiting: u64,
    area_queue: u128,
    sums: Vec<Sums>,
}

fn ticks(lives: f64) -> u64 {
    (lives * LIFE as f64) as u64
}

fn lives(ticks: u64) -> f64 {
    ticks as f64 / LIFE as f64
}

/// The end of every run, in mean lives.
pub const UNTIL: f64 = WARM + WINDOW;

impl Tally {
    /// Of a cluster with so many thousandths of a GPU.
    pub fn new(capacity: u64) -> Self {
        Self {
            capacity,
            from: ticks(WARM),
            until: ticks(UNTIL),
            clock: 0,
            allocated: 0,
            area: 0,
            area_waiting: 0,
            time_waiting: 0,
            area_queue: 0,
            sums: vec![Sums::default(); SIZES.len()],
        }
    }

    /// Time goes on to `now`; until then `queue` tasks waited, `gpu_waits` of which for a GPU.
    pub fn advance(&mut self, now: u64, queue: usize, gpu_waits: usize) {
        let span = now.min(self.until).saturating_sub(self.clock.max(self.from));
        let area = u128::from(span) * u128::from(self.allocated);
        self.area += area;
        self.area_queue += u128::from(span) * queue as u128;
        if gpu_waits > 0 {
            self.area_waiting += area;
            self.time_waiting += span;
        }
        self.clock = self.clock.max(now);
    }

    /// A task that came at `at` has started at `now`.
    pub fn started(&mut self, task: &Task, at: u64, now: u64) {
        self.allocated += task.gpu();
        if let Some(sums) = self.counted(task, at) {
            sums.started += 1;
            sums.started_gpu += task.gpu();
            sums.waits.push(lives(now - at));
        }
    }

    /// It has ended.
    pub fn ended(&mut self, task: &Task) {
        self.allocated -= task.gpu();
    }

    /// A task has come at `at`.
    pub fn offered(&mut self, task: &Task, at: u64) {
        let early = at + LIFE <= self.until;
        if let Some(sums) = self.counted(task, at) {
            sums.offered += 1;
            sums.offered_gpu += task.gpu();
            sums.early += u64::from(early);
        }
    }

    /// A task that came at `at` still waits when the run ends.
    pub fn waits_still(&mut self, task: &Task, at: u64) {
        let until = self.until;
        if let Some(sums) = self.counted(task, at) {
            sums.waits.push(lives(until - at));
            sums.starved += u64::from(at + LIFE <= until);
        }
    }

    fn counted(&mut self, task: &Task, at: u64) -> Option<&mut Sums> {
        let in_window = (self.from..self.until).contains(&at);
        self.sums.get_mut(task.size() as usize).filter(|_| in_window)
    }

    /// What was measured.
    pub fn measured(mut self) -> Measured {
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 };
        let span = self.until - self.from;
        let level = |area: u128, time: u64| area as f64 * 100.0 / (time.max(1) as f64 * self.capacity as f64);
        let (offered, started) = self
            .sums
            .iter()
            .fold((0, 0), |(offered, started), sums| (offered + sums.offered_gpu, started + sums.started_gpu));
        let mut waits: Vec<f64> = self.sums.iter().flat_map(|sums| sums.waits.iter().copied()).collect();
        let classes = SIZES.iter().zip(&mut self.sums).filter(|(_, sums)| sums.offered > 0).map(|(size, sums)| {
            let by_gpu = share(sums.started_gpu, sums.offered_gpu);
            Class {
                size: *size,
                offered: sums.offered as f64,
                accepted: if *size == Size::CpuOnly { share(sums.started, sums.offered) } else { by_gpu },
                worst_wait: percentile(&mut sums.waits, 100.0),
                never_started: share(sums.offered - sums.started, sums.offered),
                starved: share(sums.starved, sums.early),
            }
        });
        Measured {
            classes: classes.collect(),
            accepted: share(started, offered),
            allocated: level(self.area, span),
            allocated_waiting: (self.time_waiting > 0).then(|| level(self.area_waiting, self.time_waiting)),
            queue: self.area_queue as f64 / span as f64,
            wait: crate::stats::mean(&waits),
            wait_p95: percentile(&mut waits, 95.0),
            booked: 0,
            late: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(gpus: u8) -> Task {
        Task { name: String::new(), cpu: 0, ram: 0, gpus, milli: 1000, models: u64::MAX, life: None }
    }

    #[test]
    fn only_the_window_counts() {
        let mut tally = Tally::new(4_000);
        let (one, two) = (task(1), task(2));
        // Before the window: runs on into it, and is no arrival of it.
        tally.offered(&two, LIFE);
        tally.started(&two, LIFE, LIFE);
        // In it, one starts at once and one waits half a life, one is refused.
        let from = ticks(WARM);
        tally.advance(from, 0, 0);
        for _ in 0..3 {
            tally.offered(&one, from);
        }
        tally.started(&one, from, from);
        tally.advance(from + LIFE / 2, 1, 1);
        tally.started(&one, from, from + LIFE / 2);
        tally.ended(&two);
        tally.advance(ticks(UNTIL) + LIFE, 0, 0);
        let measured = tally.measured();
        assert!((measured.accepted - 200.0 / 3.0).abs() < 1e-9);
        // Half a life of 3 GPUs, two and a half of 2, of 4 GPUs in three lives.
        assert!((measured.allocated - (1.5 + 5.0) / 12.0 * 100.0).abs() < 1e-9, "{measured:?}");
        assert_eq!(measured.allocated_waiting, Some(75.0));
        assert!((measured.queue - 0.5 / 3.0).abs() < 1e-9);
        assert_eq!((measured.wait, measured.wait_p95), (0.25, 0.5));
    }

    #[test]
    fn who_came_just_before_the_end_has_not_starved() {
        let mut tally = Tally::new(1_000);
        let (early, late) = (ticks(UNTIL) - LIFE, ticks(UNTIL) - LIFE + 1);
        for at in [early, late, late, late] {
            tally.offered(&task(8), at);
            tally.waits_still(&task(8), at);
        }
        let class = tally.measured().classes[0];
        assert_eq!(
            (class.size, class.never_started, class.starved, class.worst_wait),
            (Size::Eight, 100.0, 100.0, 1.0)
        );
    }
}
