//! What a run is judged by.

use std::collections::BTreeMap;

use selion_api::{Hash32, Reason};
use serde::Serialize;

use super::fair::DEFINITION;
use super::run::Ran;
use super::tree::{self, GroupReport};
use super::{Job, Setup};
use crate::stats;
use crate::world::{Checked, Fleet, START, Story};

/// Mean, quantiles (nearest rank) and worst of something.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Worst {
    /// Mean.
    pub mean: f64,
    /// Half are at most this.
    pub p50: f64,
    /// 95 of 100 are at most this.
    pub p95: f64,
    /// 99 of 100 are at most this.
    pub p99: f64,
    /// The largest.
    pub max: f64,
}

impl Worst {
    /// Of some values; `None` of none.
    #[must_use]
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        let max = values.iter().copied().max_by(f64::total_cmp)?;
        let mean = stats::mean(&values);
        let [p50, p95, p99] = [50.0, 95.0, 99.0].map(|per_cent| stats::percentile(&mut values, per_cent));
        Some(Self { mean, p50, p95, p99, max })
    }
}

/// Jobs of one size class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClassReport {
    /// `1`, `2-4`, `8`, ... GPUs.
    pub gpus: String,
    /// Submitted and taken.
    pub jobs: u64,
    /// Of these, never started: they gave up after the longest wait that the market allows.
    pub never_started: u64,
    /// Minutes from submission to the first grant, of those that started.
    pub wait_min: Option<Worst>,
    /// Finish-time fairness.
    pub rho: Option<Worst>,
    /// Runs that were cut short and waited again.
    pub preemptions: u64,
}

/// All that a run says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// GPUs of the fleet.
    pub gpus: u64,
    /// Nodes of the fleet.
    pub nodes: u64,
    /// Users of the trace.
    pub users: u64,
    /// Jobs of the trace.
    pub jobs: u64,
    /// GPU time asked for, over the fleet's between first submission and last: above 1 there must be a queue.
    pub load: f64,
    /// Jobs that the market refused at once, by reason.
    pub refused: BTreeMap<Reason, u64>,
    /// Jobs that ran to their end.
    pub completed: u64,
    /// Jobs that never started, of those that were taken.
    pub never_started: u64,
    /// Runs that were cut short and waited again.
    pub preemptions: u64,
    /// Hours from the first submission to the last end.
    pub makespan_h: f64,
    /// GPU time held, over the fleet's in that time.
    pub utilisation: f64,
    /// As [`Self::utilisation`], up to the last submission only: without the tail in which the fleet runs empty.
    pub utilisation_while_arriving: f64,
    /// All jobs, then by size.
    pub classes: Vec<ClassReport>,
    /// What each group got, by path, if the users stand in groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupReport>,
    /// What `rho` means.
    pub rho_is: &'static str,
    /// Entries that the run would have left in a log.
    pub entries: u64,
    /// Digest of the State at the end: equal runs, equal digests.
    pub digest: Hash32,
    /// What a second opinion said, if it was asked; of the shared run and not of those of each user alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checked: Option<Checked>,
}

const SIZES: [(&str, u32, u32); 6] =
    [("all", 0, u32::MAX), ("1", 1, 1), ("2-4", 2, 4), ("5-8", 5, 8), ("9-16", 9, 16), (">16", 17, u32::MAX)];

pub(super) fn of(setup: &Setup, fleet: &Fleet, shared: &Ran, rho: Option<&[Option<f64>]>) -> Report {
    let (first, last) = (setup.jobs.first(), setup.jobs.last());
    let begun = START.plus(first.map_or(0, |job| job.submit_ms));
    let arriving_ms = last.map_or(0, |job| job.submit_ms).saturating_sub(first.map_or(0, |job| job.submit_ms));
    let stories = || (0..setup.jobs.len()).filter_map(|job| shared.story(job));
    let over = stories().filter_map(|story| story.ended).map(|(at, _)| at).max().unwrap_or(begun);
    let asked_ms: u128 = setup.jobs.iter().map(|job| u128::from(job.run_ms) * u128::from(job.gpus)).sum();
    let part = |gpu_ms: u128, ms: u64| gpu_ms as f64 / (fleet.total() as f64 * ms.max(1) as f64);
    let mut refused = BTreeMap::new();
    for reason in shared.leases.iter().filter_map(|lease| lease.err()) {
        *refused.entry(reason).or_default() += 1;
    }
    let classes: Vec<ClassReport> = SIZES.iter().filter_map(|size| class(setup, shared, rho, *size)).collect();
    let all = classes.first();
    Report {
        gpus: fleet.total(),
        nodes: fleet.gpus.len() as u64,
        users: setup.jobs.iter().map(Job::renter).collect::<std::collections::BTreeSet<_>>().len() as u64,
        jobs: setup.jobs.len() as u64,
        load: part(asked_ms, arriving_ms),
        refused,
        completed: stories().filter(|story| story.started.is_some() && story.ended.is_some()).count() as u64,
        never_started: all.map_or(0, |all| all.never_started),
        preemptions: all.map_or(0, |all| all.preemptions),
        makespan_h: over.since(begun) as f64 / 3_600_000.0,
        utilisation: part(shared.world.held_ms(), over.since(begun)),
        utilisation_while_arriving: part(shared.held_while_arriving, arriving_ms),
        classes,
        groups: tree::reports(setup, fleet.total(), shared, rho),
        rho_is: DEFINITION,
        entries: shared.world.state().next_seq,
        digest: shared.world.state().digest(),
        checked: shared.world.checked().cloned(),
    }
}

/// `None` if no job of the trace has that size.
fn class(
    setup: &Setup,
    shared: &Ran,
    rho: Option<&[Option<f64>]>,
    (name, least, most): (&str, u32, u32),
) -> Option<ClassReport> {
    let fits = |(_, job): &(usize, &Job)| (least..=most).contains(&job.gpus);
    let numbers: Vec<usize> = setup.jobs.iter().enumerate().filter(fits).map(|(number, _)| number).collect();
    if numbers.is_empty() {
        return None;
    }
    let stories: Vec<&Story> = numbers.iter().filter_map(|number| shared.story(*number)).collect();
    let waits = stories.iter().filter_map(|story| story.granted.map(|at| at.since(story.asked) as f64 / 60_000.0));
    let fair = rho.map(|rho| numbers.iter().filter_map(|number| rho.get(*number).copied().flatten()).collect());
    Some(ClassReport {
        gpus: name.to_owned(),
        jobs: stories.len() as u64,
        never_started: stories.iter().filter(|story| story.started.is_none()).count() as u64,
        wait_min: Worst::of(waits.collect()),
        rho: fair.and_then(Worst::of),
        preemptions: stories.iter().map(|story| u64::from(story.requeued)).sum(),
    })
}
