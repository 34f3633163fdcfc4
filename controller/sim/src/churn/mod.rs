//! Work that comes and goes: which part of it is served, and who waits how long, paired against FGD.
//!
//! Poisson arrivals of the list's rows, at a load that is arrived work over capacity; the run starts with what an
//! unlimited cluster would hold, warms up, and is measured over [`tally::WINDOW`] mean lives. The policy and FGD, which
//! learns its mix like the others, get the same nodes, arrivals and lives.

mod booking;
mod future;
mod lives;
mod report;
mod run;
pub mod tally;
mod waiting;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use selion_market::engine::{Fleet, Weighting};

pub use lives::{Drawer, LIFE, Lives, Offer};
pub use report::{List, Load, Measures, Over, Report};
pub use tally::{Class, Measured};

use crate::openb::{FIRST_SEED, intern, shapes};
use crate::random::Random;
use crate::trace::{Cluster, TaskList};
use crate::{Progress, SimError, parallel};

/// What becomes of a task for which there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discipline {
    /// It is lost.
    Loss,
    /// It waits; when room comes free, the oldest that fits starts.
    Queue,
    /// The same, and of the oldest with several GPUs so many hold bookings.
    Bookings(usize),
}

impl Discipline {
    fn bookings(self) -> usize {
        match self {
            Self::Bookings(limit) => limit,
            Self::Loss | Self::Queue => 0,
        }
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The list of GPU nodes.
    pub nodes: PathBuf,
    /// Lists of tasks.
    pub pods: Vec<PathBuf>,
    /// Arrived work over capacity.
    pub loads: Vec<f64>,
    /// Where lives come from.
    pub lives: Lives,
    /// What becomes of a task for which there is no room.
    pub discipline: Discipline,
    /// How placements are scored.
    pub policy: Weighting,
    /// How many seeds, from [`FIRST_SEED`] on.
    pub seeds: u64,
    /// How many runs side by side.
    pub threads: usize,
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct Job {
    list: usize,
    load: f64,
    seed: u64,
    policy: Weighting,
}

/// What one run made.
#[derive(Clone, Debug)]
struct Ran {
    measured: Measured,
    decisions: u64,
    took: Duration,
}

/// Runs every list with every load and seed, under the policy and under FGD.
///
/// # Errors
///
/// A list cannot be read or has nothing to draw from; a load or the number of seeds makes no experiment.
pub fn simulate(settings: &Settings, progress: &dyn Progress) -> Result<Report, SimError> {
    check(settings)?;
    let mut cluster = Cluster::read(&settings.nodes)?;
    let mut lists = Vec::new();
    for path in &settings.pods {
        let list = TaskList::read(path, &mut cluster.models)?;
        let drawer = Drawer::new(&list, path, settings.lives)?;
        lists.push((list, drawer));
    }
    let mut jobs = Vec::new();
    for list in 0..lists.len() {
        for load in &settings.loads {
            for policy in policies(settings.policy) {
                jobs.extend((0..settings.seeds).map(|seed| Job { list, load: *load, seed: FIRST_SEED + seed, policy }));
            }
        }
    }
    progress.begin(jobs.len() as u64);
    let ran = parallel::map(&jobs, settings.threads, |job| {
        let (list, drawer) = &lists[job.list];
        let ran = one(&cluster, list, drawer, settings.discipline, *job);
        let (load, seed, policy) = (job.load, job.seed, job.policy.name());
        let (accepted, allocated) = (ran.measured.accepted, ran.measured.allocated);
        progress.done(&format!(
            "{} load {load} {policy} seed {seed}: {accepted:.2} % started, {allocated:.2} % allocated",
            list.name
        ));
        ran
    });
    let names = lists.into_iter().map(|(list, _)| list.name).collect();
    Ok(report::report(settings, names, &ran))
}

/// The policy, and FGD beside it where that is another.
fn policies(policy: Weighting) -> Vec<Weighting> {
    if policy == Weighting::Fgd { vec![policy] } else { vec![policy, Weighting::Fgd] }
}

fn check(settings: &Settings) -> Result<(), SimError> {
    if settings.seeds == 0 {
        return Err(SimError::Setting { option: "--seeds", value: "0".to_owned(), wanted: "at least 1" });
    }
    if let Some(load) = settings.loads.iter().find(|load| !(**load > 0.0 && **load <= 10.0)) {
        return Err(SimError::Setting { option: "--load", value: load.to_string(), wanted: "above 0 and at most 10" });
    }
    if settings.discipline == Discipline::Bookings(0) {
        return Err(SimError::Setting { option: "--bookings", value: "0".to_owned(), wanted: "at least 1" });
    }
    Ok(())
}

fn one(cluster: &Cluster, list: &TaskList, drawer: &Drawer, discipline: Discipline, job: Job) -> Ran {
    let mut nodes: Vec<usize> = (0..cluster.nodes.len()).collect();
    Random::new(job.seed, 0).shuffle(&mut nodes);
    let capacity = cluster.capacity();
    let rate = drawer.rate(job.load, capacity);
    let offers = drawer.offers(list.tasks.len(), rate, tally::UNTIL, &mut Random::new(job.seed, 2));
    let started = Instant::now();
    let mut fleet = Fleet::new(job.policy, &shapes(cluster, &nodes)).with_seed(job.seed);
    let classes = intern(&mut fleet, &list.tasks);
    let (measured, decisions) = run::run(fleet, &list.tasks, &classes, &offers, discipline);
    Ran { measured, decisions, took: started.elapsed() }
}
