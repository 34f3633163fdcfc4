//! The published FGD experiment, exactly: arrivals only, tuned to 130 % of the cluster's GPU.
//!
//! Nodes are sorted by name and shuffled, tasks sorted by name, shuffled and tuned ([`tune`]). `fgd` knows the whole
//! list's mix beforehand, as published; every other policy learns it from arrivals.

mod run;
pub mod tune;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use selion_market::engine::{ClassId, Fleet, NodeShape, Weighting};
use serde::Serialize;

pub use run::{Reading, run};

use crate::random::Random;
use crate::stats::{Spread, mean, spread};
use crate::trace::{Cluster, Models, Published, Task, TaskList, published};
use crate::{Progress, SimError, parallel};

/// First seed of the published experiment; ours draw differently, and are as many.
pub const FIRST_SEED: u64 = 42;

/// Per cent of the cluster's GPU that arrives.
const TARGET: u64 = 130;

/// What to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The list of GPU nodes.
    pub nodes: PathBuf,
    /// Lists of tasks.
    pub pods: Vec<PathBuf>,
    /// How placements are scored.
    pub policy: Weighting,
    /// How many seeds, from [`FIRST_SEED`] on.
    pub seeds: u64,
    /// How many runs side by side.
    pub threads: usize,
}

/// What came out for one list, in per cent of the cluster's GPU.
#[derive(Clone, Debug, Serialize)]
pub struct Outcome {
    /// Name of the list; in JSON only where there are several.
    #[serde(skip)]
    pub list: String,
    /// Name of the policy.
    pub policy: &'static str,
    /// Seeds run.
    pub seeds: u64,
    /// Unallocated GPU when the arrived load rounds to 100 %; `None` if the list does not come so far.
    pub unallocated_at_100: Option<Spread>,
    /// Unallocated GPU after the last arrival.
    pub unallocated_at_end: Spread,
    /// Decisions a second of one thread, over all runs.
    pub decisions_per_s: f64,
    /// What the authors of FGD published for the list and policy, where their table lies beside the list.
    #[serde(skip)]
    pub published: Option<Published>,
}

/// One list of several.
#[derive(Clone, Debug, Serialize)]
pub struct Named {
    /// Its name.
    pub list: String,
    /// What came out.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// What is published for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub published: Option<Published>,
}

/// The mean over lists.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mean {
    /// Unallocated GPU when the arrived load rounds to 100 %.
    pub unallocated_at_100: f64,
    /// Unallocated GPU after the last arrival.
    pub unallocated_at_end: f64,
}

/// What came out: one list as it is, several with their mean.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum Report {
    /// Of one list.
    One(Outcome),
    /// Of several.
    Several {
        /// One each, as given.
        lists: Vec<Named>,
        /// Over them.
        mean: Mean,
    },
}

impl Report {
    /// The outcome of each list.
    pub fn lists(&self) -> Vec<&Outcome> {
        match self {
            Self::One(outcome) => vec![outcome],
            Self::Several { lists, .. } => lists.iter().map(|named| &named.outcome).collect(),
        }
    }
}

struct List {
    tasks: TaskList,
    types: Vec<(selion_market::engine::Want, u64)>,
    published: Option<Published>,
}

struct Ran {
    reading: Reading,
    decisions: usize,
    took: Duration,
}

/// Runs every list with every seed.
///
/// # Errors
///
/// A list cannot be read or holds no GPU work; there are no seeds.
pub fn simulate(settings: &Settings, progress: &dyn Progress) -> Result<Report, SimError> {
    if settings.seeds == 0 {
        return Err(SimError::Setting { option: "--seeds", value: "0".to_owned(), wanted: "at least 1" });
    }
    let mut cluster = Cluster::read(&settings.nodes)?;
    let mut lists = Vec::new();
    for path in &settings.pods {
        lists.push(List::read(path, &mut cluster.models, settings.policy)?);
    }
    let jobs: Vec<(usize, u64)> =
        (0..lists.len()).flat_map(|at| (0..settings.seeds).map(move |seed| (at, FIRST_SEED + seed))).collect();
    progress.begin(jobs.len() as u64);
    let ran = parallel::map(&jobs, settings.threads, |(at, seed)| {
        let ran = one(&cluster, &lists[*at], settings.policy, *seed);
        let at_100 = ran.reading.at_100.map_or("-".to_owned(), |value| format!("{value:.2}"));
        let name = &lists[*at].tasks.name;
        progress.done(&format!("{name} seed {seed}: {at_100} / {:.2} % unallocated", ran.reading.at_end));
        ran
    });
    let runs = ran.chunks(settings.seeds as usize);
    Ok(report(lists.into_iter().zip(runs).map(|(list, runs)| outcome(list, runs, settings)).collect()))
}

fn report(mut outcomes: Vec<Outcome>) -> Report {
    if outcomes.len() == 1
        && let Some(outcome) = outcomes.pop()
    {
        return Report::One(outcome);
    }
    let at_100: Vec<f64> = outcomes.iter().filter_map(|one| one.unallocated_at_100).map(|spread| spread.mean).collect();
    let at_end: Vec<f64> = outcomes.iter().map(|one| one.unallocated_at_end.mean).collect();
    let mean = Mean { unallocated_at_100: mean(&at_100), unallocated_at_end: mean(&at_end) };
    let name = |outcome: Outcome| Named { list: outcome.list.clone(), published: outcome.published, outcome };
    Report::Several { lists: outcomes.into_iter().map(name).collect(), mean }
}

fn outcome(list: List, runs: &[Ran], settings: &Settings) -> Outcome {
    let at_100: Vec<f64> = runs.iter().filter_map(|run| run.reading.at_100).collect();
    let at_end: Vec<f64> = runs.iter().map(|run| run.reading.at_end).collect();
    let took: Duration = runs.iter().map(|run| run.took).sum();
    let decisions: usize = runs.iter().map(|run| run.decisions).sum();
    Outcome {
        policy: settings.policy.name(),
        seeds: settings.seeds,
        unallocated_at_100: (!at_100.is_empty()).then(|| spread(&at_100)),
        unallocated_at_end: spread(&at_end),
        decisions_per_s: (decisions as f64 / took.as_secs_f64().max(1e-9)).round(),
        published: list.published,
        list: list.tasks.name,
    }
}

impl List {
    fn read(path: &std::path::Path, models: &mut Models, policy: Weighting) -> Result<Self, SimError> {
        let tasks = TaskList::read(path, models)?;
        if tasks.gpu() == 0 {
            let what = format!("{}: no task asks for a GPU", path.display());
            return Err(SimError::Nothing { what, next: "a load is GPU work; give a list that has some" });
        }
        let theirs = match policy {
            Weighting::BestFit => "BestFit",
            Weighting::Random => "Random",
            // What there is to beat, for those that are not in their table.
            Weighting::Fgd | Weighting::Fill | Weighting::Market => "FGD",
        };
        let published = published(path, &tasks.name, theirs)?;
        Ok(Self { types: tasks.types(), published, tasks })
    }
}

/// One seed of one list.
fn one(cluster: &Cluster, list: &List, policy: Weighting, seed: u64) -> Ran {
    let mut nodes: Vec<usize> = (0..cluster.nodes.len()).collect();
    Random::new(seed, 0).shuffle(&mut nodes);
    let capacity = cluster.capacity();
    let order = tune::arrivals(&list.tasks.tasks, capacity * TARGET / 100, &mut Random::new(seed, 1));
    let started = Instant::now();
    let mut fleet = Fleet::new(policy, &shapes(cluster, &nodes));
    let classes = intern(&mut fleet, &list.tasks.tasks);
    if policy == Weighting::Fgd {
        let oracle: Vec<(ClassId, u64)> =
            list.types.iter().map(|(want, count)| (fleet.intern(*want), *count)).collect();
        fleet.oracle(&oracle);
    }
    let reading = run(&list.tasks.tasks, &order, capacity, |at| {
        let class = classes[at];
        fleet.arrive(class);
        fleet.choose(class, None).is_some_and(|choice| fleet.take(class, &choice, None).is_ok())
    });
    Ran { reading, decisions: order.len(), took: started.elapsed() }
}

/// The nodes in that order, for the engine.
pub fn shapes(cluster: &Cluster, order: &[usize]) -> Vec<NodeShape> {
    order
        .iter()
        .map(|at| &cluster.nodes[*at])
        .map(|node| NodeShape::new(node.model, node.cpu, node.ram, node.gpus))
        .collect()
}

/// The engine's class of each task.
pub fn intern(fleet: &mut Fleet, tasks: &[Task]) -> Vec<ClassId> {
    tasks.iter().map(|task| fleet.intern(task.want())).collect()
}
