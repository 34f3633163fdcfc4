//! The engine core alone, on one thread: how many decisions a second, and how long the slow ones take.
//!
//! Made nodes and classes ([`mix`]) fill the fleet to about 95 % of its GPU; then each decision is an arrival whose
//! mix is learned, its choice and its taking, while work leaves at its end, at 1.1 times the load that the fleet holds.
//! Departures count in the rate, the repair they cause is paid by the next choice.

mod cases;
mod gang;
mod live;
pub mod mix;

use std::time::Instant;

use selion_market::engine::{ClassId, Fleet, NodeShape, Weighting};
use serde::Serialize;

pub use self::cases::{Case, CaseReport, Figure, Size, UnknownCase, run_case};
use self::live::{Live, Task};
use crate::random::Random;
use crate::stats::percentile;
use crate::{Progress, SimError};

/// What to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Nodes.
    pub nodes: usize,
    /// GPUs in all.
    pub gpus: usize,
    /// Distinct classes.
    pub classes: usize,
    /// How placements are scored.
    pub policy: Weighting,
    /// Members of a gang, all in one rack; every decision is for one task alone if it is absent.
    pub gang: Option<u32>,
    /// Racks over which the nodes are spread.
    pub racks: u32,
    /// Decisions measured after the fleet is full.
    pub decisions: usize,
}

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Decisions a second; of gangs, members placed a second.
    pub decisions_per_s: f64,
    /// The same by the thread's own processor time, for a machine that does other work beside; `None` where the
    /// system does not tell it.
    pub decisions_per_cpu_s: Option<f64>,
    /// Half of the decisions take no longer, in microseconds; of gangs, a whole gang.
    pub p50_us: f64,
    /// 99 of 100 take no longer.
    pub p99_us: f64,
    /// Most memory that the process held.
    pub rss_bytes: u64,
    /// GPU in use while it was measured, in per cent.
    pub allocated: f64,
    /// Seconds to fill the empty fleet, and the arrivals in them.
    pub fill_s: f64,
    /// Arrivals until it was full.
    pub fill_decisions: usize,
}

/// Per cent of GPU to which the fleet is filled.
const LEVEL: u64 = 95;
/// Arrived work over capacity, once it is full: it stays so full.
const LOAD: f64 = 1.1;
/// Ticks of the mean life of made work.
const LIFE: f64 = 1e9;

/// A fleet under load.
pub struct Bench {
    fleet: Fleet,
    /// Class, GPU and, summed up, weight of each made class.
    classes: Vec<(ClassId, u64, f64)>,
    live: Live,
    used: u64,
    random: Random,
    /// In ticks, between two of which several can arrive.
    clock: f64,
    tick: f64,
    scan: bool,
}

/// Fills the fleet and measures.
///
/// # Errors
///
/// A setting makes no experiment.
pub fn simulate(settings: &Settings, progress: &dyn Progress) -> Result<Report, SimError> {
    check(settings)?;
    let capacity = settings.gpus as u64 * 1000;
    let mut bench = Bench::new(settings);
    progress.begin(2);
    let started = Instant::now();
    let fill_decisions = bench.fill(capacity);
    let fill_s = started.elapsed().as_secs_f64();
    progress.done(&format!("filled with {fill_decisions} arrivals in {fill_s:.2} s"));
    let (mut took, mut placed) = (Vec::with_capacity(settings.decisions), 0);
    let mut level = 0.0;
    let (started, cpu_started) = (Instant::now(), cpu_seconds());
    for _ in 0..settings.decisions {
        bench.depart(settings.gang.unwrap_or(1));
        match settings.gang {
            None => took.push(bench.decide()),
            Some(members) => {
                let (time, gang) = bench.gang(members);
                took.push(time);
                placed += gang;
            }
        }
        level += bench.used as f64;
    }
    let seconds = started.elapsed().as_secs_f64();
    let cpu_seconds = cpu_seconds().zip(cpu_started).map(|(now, then)| now - then);
    let count = if settings.gang.is_some() { placed } else { settings.decisions };
    let report = Report {
        decisions_per_s: (count as f64 / seconds.max(1e-9)).round(),
        decisions_per_cpu_s: cpu_seconds.map(|seconds| (count as f64 / seconds.max(1e-9)).round()),
        p50_us: percentile(&mut took, 50.0),
        p99_us: percentile(&mut took, 99.0),
        rss_bytes: peak_memory(),
        allocated: level * 100.0 / (settings.decisions as f64 * capacity as f64),
        fill_s,
        fill_decisions,
    };
    progress.done(&format!("{} decisions a second", report.decisions_per_s));
    Ok(report)
}

fn check(settings: &Settings) -> Result<(), SimError> {
    let fail = |option, value: usize, wanted| Err(SimError::Setting { option, value: value.to_string(), wanted });
    match settings {
        Settings { nodes: 0, .. } => fail("--nodes", 0, "at least 1"),
        Settings { gpus: 0, .. } => fail("--gpus", 0, "at least 1"),
        Settings { gpus, nodes, .. } if *gpus > nodes.saturating_mul(64) => fail("--gpus", *gpus, "at most 64 a node"),
        Settings { gpus, .. } if *gpus > 4_000_000 => fail("--gpus", *gpus, "at most 4000000"),
        Settings { classes: classes @ (0 | 10_001..), .. } => fail("--classes", *classes, "from 1 to 10000"),
        Settings { decisions: 0, .. } => fail("--decisions", 0, "at least 1"),
        Settings { gang: Some(members @ (0 | 1_001..)), .. } => fail("--gang", *members as usize, "from 1 to 1000"),
        Settings { racks: 0, .. } => fail("--racks", 0, "at least 1"),
        _ => Ok(()),
    }
}

impl Bench {
    /// An empty one.
    pub fn new(settings: &Settings) -> Self {
        let nodes = mix::nodes(settings.nodes, settings.gpus, settings.racks);
        Self::of(settings.policy, &nodes, &mix::classes(settings.classes), settings.gpus)
    }

    /// An empty one of those nodes, with so many GPUs, and those classes.
    fn of(policy: Weighting, nodes: &[NodeShape], made: &[mix::Class], gpus: usize) -> Self {
        let mut fleet = Fleet::new(policy, nodes);
        let mut sum = 0.0;
        let mut classes = Vec::new();
        for class in made {
            sum += class.weight;
            classes.push((fleet.intern(class.want), gpu_of(class.want.shape), sum));
        }
        let part = |from: f64, (_, gpu, to): &(ClassId, u64, f64)| ((to - from) / sum * *gpu as f64, *to);
        let mut from = 0.0;
        let mean_gpu: f64 = classes
            .iter()
            .map(|class| {
                let (mean, to) = part(from, class);
                from = to;
                mean
            })
            .sum();
        let tick = LIFE * mean_gpu / (gpus as f64 * 1000.0 * LOAD);
        Self {
            fleet,
            classes,
            live: Live::default(),
            used: 0,
            random: Random::new(1, 0),
            clock: 0.0,
            tick,
            scan: false,
        }
    }

    /// From now on choices judge every node and device, which the index must equal.
    pub fn by_scan(&mut self) {
        self.scan = true;
    }

    /// A class, each as often as its weight says.
    fn draw(&mut self) -> (ClassId, u64) {
        let all = self.classes.last().map_or(0.0, |last| last.2);
        let drawn = self.random.unit() * all;
        let at = self.classes.partition_point(|class| class.2 < drawn).min(self.classes.len() - 1);
        (self.classes[at].0, self.classes[at].1)
    }

    /// A class that asks for a GPU; any, if there is none.
    fn draw_gpu(&mut self) -> (ClassId, u64) {
        let any = self.classes.iter().any(|class| class.1 > 0);
        loop {
            let drawn = self.draw();
            if drawn.1 > 0 || !any {
                return drawn;
            }
        }
    }

    /// An end for work that starts now.
    fn end(&mut self) -> u64 {
        (self.clock + self.random.exponential() * LIFE) as u64
    }

    /// Arrivals until the fleet is at its level, or so full that a whole fleet's worth more does not fit.
    pub fn fill(&mut self, capacity: u64) -> usize {
        let (mut decisions, mut arrived) = (0, 0);
        while self.used * 100 < capacity * LEVEL && arrived < capacity * 2 {
            arrived += self.arrive_one().max(1);
            decisions += 1;
        }
        decisions
    }

    /// A task comes: the GPU that it asks for.
    fn arrive_one(&mut self) -> u64 {
        let (class, gpu) = self.draw();
        let end = self.end();
        self.place(class, gpu, end);
        gpu
    }

    /// The task that ends next leaves before its time.
    fn end_one(&mut self) {
        if let Some((end, task)) = self.live.pop() {
            self.leave(end, task);
        }
    }

    fn leave(&mut self, end: u64, (class, gpu, choice): Task) {
        // It was taken as it is given back, so it is there.
        if self.fleet.release(class, &choice, Some(end)).is_ok() {
            self.used -= gpu;
        }
    }

    fn place(&mut self, class: ClassId, gpu: u64, end: u64) {
        self.fleet.at(self.clock as u64);
        self.fleet.arrive(class);
        let choice = if self.scan { self.fleet.scan(class, Some(end)) } else { self.fleet.choose(class, Some(end)) };
        if let Some(choice) = choice.filter(|choice| self.fleet.take(class, choice, Some(end)).is_ok()) {
            self.used += gpu;
            self.live.push(end, (class, gpu, choice));
        }
    }

    /// One decision, in microseconds.
    pub fn decide(&mut self) -> f64 {
        let (class, gpu) = self.draw();
        let end = self.end();
        let started = Instant::now();
        self.place(class, gpu, end);
        started.elapsed().as_nanos() as f64 / 1000.0
    }

    /// The time of the next arrival of so many comes, and what ends before it leaves.
    pub fn depart(&mut self, members: u32) {
        self.clock += self.random.exponential() * self.tick * f64::from(members);
        while let Some((end, task)) = self.live.pop_until(self.clock as u64) {
            self.leave(end, task);
        }
    }
}

fn gpu_of(shape: selion_market::engine::Shape) -> u64 {
    use selion_market::engine::Shape;
    match shape {
        Shape::None | Shape::Mig { .. } => 0,
        Shape::Share(milli) => milli.into(),
        Shape::Whole(count) => u64::from(count) * 1000,
    }
}

/// Processor time of this thread.
fn cpu_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(stat.split_whitespace().next()?.parse::<u64>().ok()? as f64 / 1e9)
}

/// Most memory that this process held, in bytes; 0 where the system does not tell.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")).and_then(|kib| kib.trim().parse::<u64>().ok());
    kib.unwrap_or_default() * 1024
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;

    fn settings() -> Settings {
        Settings {
            nodes: 40,
            gpus: 200,
            classes: 20,
            policy: Weighting::BestFit,
            gang: None,
            racks: 4,
            decisions: 2_000,
        }
    }

    #[test]
    fn the_fleet_stays_about_as_full_as_it_was_filled() {
        let report = simulate(&settings(), &Silent).unwrap();
        assert!((75.0..100.0).contains(&report.allocated), "{report:?}");
        assert!(report.decisions_per_s > 0.0 && report.p50_us <= report.p99_us, "{report:?}");
        assert!(report.fill_decisions > 100);
    }

    #[test]
    fn gangs_are_placed_whole() {
        let mut bench = Bench::new(&settings());
        for _ in 0..200 {
            bench.depart(4);
            let (_, placed) = bench.gang(4);
            assert!(placed == 0 || placed == 4, "{placed}");
        }
        assert!(bench.used > 0);
        let held: u64 = bench.live.all().map(|(_, (_, gpu, _))| *gpu).sum();
        assert_eq!(bench.used, held);
        assert_eq!(bench.fleet.nodes().capacity_milli() - bench.fleet.nodes().free_milli(), held);
    }

    #[test]
    fn settings_that_make_no_experiment_are_refused() {
        let table: [(Settings, &str); 6] = [
            (Settings { nodes: 0, ..settings() }, "--nodes is 0; it must be at least 1"),
            (Settings { gpus: 0, ..settings() }, "--gpus is 0; it must be at least 1"),
            (Settings { gpus: 40 * 64 + 1, ..settings() }, "--gpus is 2561; it must be at most 64 a node"),
            (Settings { classes: 0, ..settings() }, "--classes is 0; it must be from 1 to 10000"),
            (Settings { gang: Some(0), ..settings() }, "--gang is 0; it must be from 1 to 1000"),
            (Settings { decisions: 0, ..settings() }, "--decisions is 0; it must be at least 1"),
        ];
        for (settings, words) in table {
            assert_eq!(simulate(&settings, &Silent).unwrap_err().to_string(), words);
        }
    }
}
