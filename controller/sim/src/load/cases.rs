//! Cases that others publish figures or complaints about, each with the goal that was set for it.

use std::fmt;
use std::str::FromStr;
use std::time::Instant;

use selion_market::engine::{Fleet, Weighting};
use serde::Serialize;

use super::live::Live;
use super::{Bench, Settings, cpu_seconds, mix, peak_memory};
use crate::stats::percentile;
use crate::{Progress, SimError};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Case {
    /// KAI-Scheduler's issue 315: 140,000 tasks run on 4,000 nodes and 20 more come.
    Kai,
    /// Nomad's two million containers on 6,100 nodes.
    Million,
    /// 100,000 GPUs placed anew, from empty.
    Replace,
}

impl Case {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Kai, Self::Million, Self::Replace];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Kai => "kai",
            Self::Million => "million",
            Self::Replace => "replace",
        }
    }

    /// Its size, as it was published.
    #[must_use]
    pub const fn size(self) -> Size {
        match self {
            Self::Kai => Size { nodes: 4_000, gpus: 32_000, tasks: Some(140_000) },
            Self::Million => Size { nodes: 6_100, gpus: 48_800, tasks: Some(2_000_000) },
            Self::Replace => Size { nodes: 19_408, gpus: 99_392, tasks: None },
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// There is no case of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no such case: use kai, million or replace")]
pub struct UnknownCase;

impl FromStr for Case {
    type Err = UnknownCase;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|case| case.name() == name).ok_or(UnknownCase)
    }
}

/// How large a case is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Size {
    /// Nodes.
    pub nodes: usize,
    /// GPUs in all, in equal parts.
    pub gpus: usize,
    /// Tasks that run at once; without a number, as many as fill 95 % of the GPUs.
    pub tasks: Option<usize>,
}

/// One figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What was measured.
    pub name: &'static str,
    /// How much.
    pub value: f64,
    /// It should be below this; absent where nothing is asked.
    pub goal: Option<f64>,
    /// Whether it is.
    pub met: Option<bool>,
}

impl Figure {
    fn new(name: &'static str, value: f64) -> Self {
        Self { name, value, goal: None, met: None }
    }

    fn below(self, goal: f64) -> Self {
        Self { goal: Some(goal), met: Some(self.value < goal), ..self }
    }
}

/// What was measured of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseReport {
    /// Which case.
    pub case: &'static str,
    /// How placements were scored.
    pub policy: &'static str,
    /// How large it was.
    pub size: Size,
    /// The figures.
    pub figures: Vec<Figure>,
}

/// Runs a case in its published size, on one thread.
///
/// # Errors
///
/// The made tasks did not fit; that is a fault of the case.
pub fn run_case(case: Case, policy: Weighting, progress: &dyn Progress) -> Result<CaseReport, SimError> {
    run_sized(case, case.size(), policy, progress)
}

fn run_sized(case: Case, size: Size, policy: Weighting, progress: &dyn Progress) -> Result<CaseReport, SimError> {
    progress.begin(1);
    let figures = match case {
        Case::Kai => kai(size, policy)?,
        Case::Million => million(size, policy)?,
        Case::Replace => replace(size, policy),
    };
    progress.done(&format!("{case} is done"));
    Ok(CaseReport { case: case.name(), policy: policy.name(), size, figures })
}

/// Tasks that come together.
const BATCH: usize = 20;
/// Batches after the first.
const BATCHES: usize = 200;
/// Distinct kinds of request in every case.
const CLASSES: usize = 91;

/// A fleet with all tasks of the case on it, and how long their decisions took, in seconds and processor seconds.
fn filled(size: Size, policy: Weighting) -> Result<(Bench, f64, Option<f64>), SimError> {
    // Up to 4/3 of what there is for each task, half of that in the mean: the fleet gets two thirds full.
    let tasks = size.tasks.unwrap_or(size.gpus);
    let most = (size.gpus * 1000 * 4 / 3 / tasks.max(1)).clamp(4, 900) as u16;
    let mut bench = Bench::of(policy, &mix::nodes(size.nodes, size.gpus, 50), &mix::shares(CLASSES, most), size.gpus);
    let (started, cpu_started) = (Instant::now(), cpu_seconds());
    for _ in 0..tasks.saturating_mul(2) {
        if bench.live.len() >= tasks {
            break;
        }
        bench.arrive_one();
    }
    let seconds = started.elapsed().as_secs_f64();
    let cpu_seconds = cpu_seconds().zip(cpu_started).map(|(now, then)| now - then);
    if bench.live.len() < tasks {
        let value = bench.live.len().to_string();
        return Err(SimError::Setting { option: "tasks that fit", value, wanted: "as many as the case has" });
    }
    Ok((bench, seconds, cpu_seconds))
}

/// All tasks are put where they run, as a scheduler that starts finds them; then 20 replicas of a task come, again and
/// again, while 20 others leave.
fn kai(size: Size, policy: Weighting) -> Result<Vec<Figure>, SimError> {
    let (mut bench, _, _) = filled(size, policy)?;
    let mut fleet = Fleet::new(policy, &mix::nodes(size.nodes, size.gpus, 50));
    for class in bench.classes.iter().filter_map(|(class, _, _)| bench.fleet.want(*class)) {
        fleet.intern(*class);
    }
    let mut live = Live::default();
    for (end, task @ (class, _, choice)) in bench.live.all() {
        fleet.arrive(*class);
        // It ran there on an equal fleet, so there is room.
        if fleet.take(*class, choice, Some(end)).is_ok() {
            live.push(end, *task);
        }
    }
    (bench.fleet, bench.live) = (fleet, live);
    let first = batch(&mut bench);
    let mut took: Vec<f64> = (0..BATCHES)
        .map(|_| {
            for _ in 0..BATCH {
                bench.end_one();
            }
            batch(&mut bench)
        })
        .collect();
    Ok(vec![
        Figure::new("ms_for_20_at_first", first).below(5.0),
        Figure::new("ms_for_20_p50", percentile(&mut took, 50.0)).below(5.0),
        Figure::new("ms_for_20_p99", percentile(&mut took, 99.0)).below(5.0),
        Figure::new("running", bench.live.len() as f64),
    ])
}

/// Decides for new replicas of one task, in milliseconds.
fn batch(bench: &mut Bench) -> f64 {
    let (class, gpu) = bench.draw();
    let started = Instant::now();
    for _ in 0..BATCH {
        let end = bench.end();
        bench.place(class, gpu, end);
    }
    started.elapsed().as_secs_f64() * 1000.0
}

fn million(size: Size, policy: Weighting) -> Result<Vec<Figure>, SimError> {
    let (bench, seconds, cpu) = filled(size, policy)?;
    let mut figures = vec![
        Figure::new("seconds", seconds).below(20.0),
        Figure::new("placements_per_s", (bench.live.len() as f64 / seconds.max(1e-9)).round()),
        Figure::new("peak_gib", peak_memory() as f64 / f64::from(1 << 30)).below(2.0),
        Figure::new("placed", bench.live.len() as f64),
    ];
    figures.extend(cpu.map(|cpu| Figure::new("cpu_seconds", cpu).below(20.0)));
    Ok(figures)
}

fn replace(size: Size, policy: Weighting) -> Vec<Figure> {
    let Size { nodes, gpus, .. } = size;
    let mut bench =
        Bench::new(&Settings { nodes, gpus, classes: CLASSES, policy, gang: None, racks: 50, decisions: 1 });
    let (started, cpu_started) = (Instant::now(), cpu_seconds());
    let arrivals = bench.fill(gpus as u64 * 1000);
    let seconds = started.elapsed().as_secs_f64();
    let cpu = cpu_seconds().zip(cpu_started).map(|(now, then)| now - then);
    let mut figures = vec![
        Figure::new("seconds", seconds).below(2.0),
        Figure::new("arrivals", arrivals as f64),
        Figure::new("allocated_percent", bench.used as f64 / (gpus as f64 * 10.0)),
    ];
    figures.extend(cpu.map(|cpu| Figure::new("cpu_seconds", cpu).below(2.0)));
    figures
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;

    fn figure(report: &CaseReport, name: &str) -> f64 {
        report.figures.iter().find(|figure| figure.name == name).map_or(f64::NAN, |figure| figure.value)
    }

    #[test]
    fn every_case_is_found_by_its_name_and_the_refusal_names_them_all() {
        for case in Case::ALL {
            assert_eq!(case.name().parse(), Ok(case));
            assert!(UnknownCase.to_string().contains(case.name()), "{case}");
        }
        assert_eq!("Kai".parse::<Case>(), Err(UnknownCase));
    }

    #[test]
    fn every_task_of_a_small_case_runs_when_it_is_measured() {
        for policy in [Weighting::Market, Weighting::Fgd] {
            let size = Size { nodes: 20, gpus: 160, tasks: Some(700) };
            let kai = run_sized(Case::Kai, size, policy, &Silent).unwrap();
            assert!((690.0..=720.0).contains(&figure(&kai, "running")), "{kai:?}");
            assert!(figure(&kai, "ms_for_20_p50") <= figure(&kai, "ms_for_20_p99"), "{kai:?}");
            let million = run_sized(Case::Million, Size { tasks: Some(6_000), ..size }, policy, &Silent).unwrap();
            assert_eq!(figure(&million, "placed"), 6_000.0);
            let replace = run_sized(Case::Replace, Size { tasks: None, ..size }, policy, &Silent).unwrap();
            // So small a fleet is full before: large tasks no longer fit.
            assert!((80.0..=96.0).contains(&figure(&replace, "allocated_percent")), "{replace:?}");
        }
    }

    #[test]
    fn a_goal_is_met_below_it_only() {
        let figure = |value| Figure::new("x", value).below(5.0);
        assert_eq!((figure(4.9).met, figure(5.0).met, Figure::new("x", 1.0).met), (Some(true), Some(false), None));
    }
}
