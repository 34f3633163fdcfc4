//! MIG under churn: a fleet of GPUs of eight memory slices, Poisson arrivals, exponential lives, no queue.
//!
//! The policy runs on the engine; first fit, most used and the gradient table run beside it on the same arrivals.

mod run;
mod table;

use std::time::Instant;

use selion_market::engine::{Choice, ClassId, Fleet, NodeShape, Shape, Want, Weighting};
use serde::Serialize;

pub use run::{Arrival, Counted, Placer, arrivals, run};
pub use table::{Baseline, Gpus, Instance, PROFILES, Profile, SLICES};

use crate::openb::FIRST_SEED;
use crate::stats::{Difference, Spread, difference, mean, pairs, spread};
use crate::{Progress, SimError, parallel};

/// A mix of profiles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Mix {
    /// Its name.
    pub name: &'static str,
    /// Weight of each profile, in the order of [`PROFILES`].
    pub weights: [u32; PROFILES.len()],
}

/// The mixes by name.
pub const MIXES: [Mix; 3] = [
    Mix { name: "uniform", weights: [1; PROFILES.len()] },
    Mix { name: "large-heavy", weights: [10, 5, 15, 30, 20, 20] },
    Mix { name: "small-heavy", weights: [40, 10, 25, 15, 5, 5] },
];

/// What to run.
#[derive(Clone, Debug)]
pub struct Settings {
    /// GPUs, of eight slices each.
    pub gpus: usize,
    /// Arrivals of a run; the first fifth is not counted.
    pub arrivals: usize,
    /// Arrived slices over slices.
    pub loads: Vec<f64>,
    /// Which mixes.
    pub mixes: Vec<Mix>,
    /// How the engine scores.
    pub policy: Weighting,
    /// How many seeds, from [`FIRST_SEED`] on.
    pub seeds: u64,
    /// How many runs side by side.
    pub threads: usize,
}

/// What came out. Shares are from 0 to 1.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the engine's policy.
    pub policy: &'static str,
    /// Seeds run.
    pub seeds: u64,
    /// GPUs.
    pub gpus: usize,
    /// Arrivals of a run.
    pub arrivals: usize,
    /// Names of the profiles, in the order of the weights.
    pub profiles: [&'static str; PROFILES.len()],
    /// Each mix at each load.
    pub cases: Vec<Case>,
    /// Mean over all cases of slices accepted under the policy, minus that of the gradient table.
    pub difference: f64,
    /// Decisions a second of one thread under the policy, releases included.
    pub decisions_per_s: f64,
}

/// One mix at one load.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    /// Which mix, with its weights.
    pub mix: Mix,
    /// Arrived slices over slices.
    pub load: f64,
    /// The policy first, then the baselines.
    pub policies: Vec<Line>,
}

/// One policy in one case.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Its name.
    pub policy: &'static str,
    /// Slices placed of slices asked.
    pub accepted: Spread,
    /// Slices taken of all, mean over time.
    pub used: f64,
    /// Accepted, minus that of the gradient table on the same arrivals.
    pub difference: Difference,
}

/// GPUs under the engine: one a node, so that nothing but slices binds.
struct Engine {
    fleet: Fleet,
    classes: Vec<ClassId>,
}

impl Engine {
    fn new(policy: Weighting, gpus: usize, seed: u64) -> Self {
        let shape = NodeShape { table: Some(0), ..NodeShape::new(0, 1_000, 1_024, 1) };
        let mut fleet = Fleet::new(policy, &vec![shape; gpus]).with_seed(seed);
        let want = |profile| Want { shape: Shape::Mig { table: 0, profile }, cpu: 0, ram: 0, models: u64::MAX };
        let classes = (0..PROFILES.len() as u8).map(|profile| fleet.intern(want(profile))).collect();
        Self { fleet, classes }
    }
}

impl Placer for Engine {
    type Held = (ClassId, Choice, u64);

    fn place(&mut self, arrival: &Arrival) -> Option<Self::Held> {
        let class = self.classes[arrival.profile];
        self.fleet.at(arrival.at);
        self.fleet.arrive(class);
        let choice = self.fleet.choose(class, Some(arrival.end))?;
        self.fleet.take(class, &choice, Some(arrival.end)).ok()?;
        Some((class, choice, arrival.end))
    }

    fn release(&mut self, (class, choice, end): Self::Held, now: u64) {
        self.fleet.at(now);
        // It was taken as it is given back, so it is there.
        let _ = self.fleet.release(class, &choice, Some(end));
    }
}

impl Placer for Gpus {
    type Held = Instance;

    fn place(&mut self, arrival: &Arrival) -> Option<Instance> {
        Self::place(self, arrival.profile)
    }

    fn release(&mut self, held: Instance, _now: u64) {
        Self::release(self, held);
    }
}

/// One run of all policies: the engine's first, then the baselines, and the engine's seconds.
struct Ran {
    counted: Vec<Counted>,
    seconds: f64,
}

/// Runs every mix at every load with every seed.
///
/// # Errors
///
/// A setting makes no experiment.
pub fn simulate(settings: &Settings, progress: &dyn Progress) -> Result<Report, SimError> {
    check(settings)?;
    let mut jobs = Vec::new();
    for mix in &settings.mixes {
        for load in &settings.loads {
            jobs.extend((0..settings.seeds).map(|seed| (*mix, *load, FIRST_SEED + seed)));
        }
    }
    progress.begin(jobs.len() as u64);
    let ran = parallel::map(&jobs, settings.threads, |(mix, load, seed)| {
        let ran = one(settings, *mix, *load, *seed);
        progress.done(&format!("{} load {load} seed {seed}: {:.3} accepted", mix.name, ran.counted[0].accepted));
        ran
    });
    let seeds = settings.seeds as usize;
    let cases: Vec<Case> = jobs
        .chunks(seeds)
        .zip(ran.chunks(seeds))
        .map(|(jobs, runs)| Case { mix: jobs[0].0, load: jobs[0].1, policies: lines(settings.policy, runs) })
        .collect();
    let differences: Vec<f64> = cases.iter().map(|case| case.policies[0].difference.mean).collect();
    let seconds: f64 = ran.iter().map(|run| run.seconds).sum();
    Ok(Report {
        policy: settings.policy.name(),
        seeds: settings.seeds,
        gpus: settings.gpus,
        arrivals: settings.arrivals,
        profiles: PROFILES.map(|profile| profile.name),
        difference: mean(&differences),
        decisions_per_s: ((settings.arrivals * ran.len()) as f64 / seconds.max(1e-9)).round(),
        cases,
    })
}

fn check(settings: &Settings) -> Result<(), SimError> {
    let at_least_1 = |option, value: String| SimError::Setting { option, value, wanted: "at least 1" };
    if settings.seeds == 0 {
        return Err(at_least_1("--seeds", "0".to_owned()));
    }
    if settings.gpus == 0 {
        return Err(at_least_1("--gpus", "0".to_owned()));
    }
    if settings.arrivals < 10 {
        let value = settings.arrivals.to_string();
        return Err(SimError::Setting { option: "--arrivals", value, wanted: "at least 10" });
    }
    let bad = settings.loads.iter().find(|load| !(**load > 0.0 && **load <= 10.0));
    if let Some(load) = bad {
        return Err(SimError::Setting { option: "--load", value: load.to_string(), wanted: "above 0 and at most 10" });
    }
    Ok(())
}

fn one(settings: &Settings, mix: Mix, load: f64, seed: u64) -> Ran {
    let slices = settings.gpus as u64 * u64::from(SLICES);
    let arrivals = arrivals(settings.arrivals, &mix.weights, load, slices, seed);
    let started = Instant::now();
    let mut counted = vec![run(&arrivals, slices, &mut Engine::new(settings.policy, settings.gpus, seed))];
    let seconds = started.elapsed().as_secs_f64();
    counted.extend(Baseline::ALL.map(|policy| run(&arrivals, slices, &mut Gpus::new(policy, settings.gpus))));
    Ran { counted, seconds }
}

fn lines(policy: Weighting, runs: &[Ran]) -> Vec<Line> {
    let names = [policy.name()].into_iter().chain(Baseline::ALL.map(Baseline::name));
    let accepted = |at: usize| runs.iter().map(|run| run.counted[at].accepted).collect::<Vec<_>>();
    // The gradient table is the last of the baselines.
    let gradient = accepted(Baseline::ALL.len());
    let line = |(at, policy)| Line {
        policy,
        accepted: spread(&accepted(at)),
        used: mean(&runs.iter().map(|run| run.counted[at].used).collect::<Vec<_>>()),
        difference: difference(&pairs(&accepted(at), &gradient)),
    };
    names.enumerate().map(line).collect()
}
