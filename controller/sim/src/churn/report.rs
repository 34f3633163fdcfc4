//! What came out, per list and load, with what FGD made of the same arrivals.

use std::time::Duration;

use serde::Serialize;

use super::{Class, Discipline, Lives, Measured, Ran, Settings, policies};
use crate::stats::{Difference, Spread, difference, mean, pairs, spread};

/// Everything. Shares are in per cent, waits in mean lives.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Name of the policy.
    pub policy: &'static str,
    /// `exp` or `trace`.
    pub lives: &'static str,
    /// `loss` or `queue`.
    pub discipline: &'static str,
    /// How many bookings there may be at a time.
    pub bookings: usize,
    /// Seeds run.
    pub seeds: u64,
    /// Decisions a second of one thread under the policy, all runs together; queue and statistics included.
    pub decisions_per_s: f64,
    /// One each, as given.
    pub lists: Vec<List>,
    /// Over the lists, one for each load; told where there are several lists.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mean: Vec<Over>,
}

/// What came out for one list.
#[derive(Clone, Debug, Serialize)]
pub struct List {
    /// Its name.
    pub list: String,
    /// One for each load, as given.
    pub loads: Vec<Load>,
}

/// What came out for one list and load.
#[derive(Clone, Debug, Serialize)]
pub struct Load {
    /// Arrived work over capacity.
    pub load: f64,
    /// Under the policy.
    pub ours: Measures,
    /// Under FGD.
    pub fgd: Measures,
    /// Ours minus FGD's of the same arrivals.
    pub difference: Differences,
    /// For the mean over lists: the differences of each seed.
    #[serde(skip)]
    pairs: Pairs,
}

/// The mean over lists, one load.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Over {
    /// Arrived work over capacity.
    pub load: f64,
    /// Ours minus FGD's.
    pub difference: Differences,
}

/// Paired differences.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Differences {
    /// Of the GPU placed of GPU offered.
    pub accepted: Difference,
    /// Of the GPU in use.
    pub allocated: Difference,
    /// Of the mean wait.
    pub wait: Difference,
}

/// Ours minus FGD's, seed by seed.
#[derive(Clone, Debug)]
struct Pairs {
    accepted: Vec<f64>,
    allocated: Vec<f64>,
    wait: Vec<f64>,
}

/// Means over the seeds.
#[derive(Clone, Debug, Serialize)]
pub struct Measures {
    /// GPU placed of GPU offered.
    pub accepted: Spread,
    /// GPU in use of the cluster's, mean over time.
    pub allocated: Spread,
    /// The same over the time in which GPU work waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allocated_while_waiting: Option<Spread>,
    /// How long tasks wait; only with a queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waits>,
    /// By size class.
    pub classes: Vec<Class>,
}

/// Waits, of those that never start until the end of the run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Waits {
    /// Mean of all arrivals.
    pub mean: f64,
    /// Not passed by 95 %.
    pub p95: f64,
    /// Tasks that wait, mean over time.
    pub queue: f64,
    /// Bookings made in a run, the warm-up's too.
    pub booked: f64,
    /// Of these, started later than promised.
    pub late: f64,
}

/// `ran` in the order of lists, loads, policies and seeds.
pub(super) fn report(settings: &Settings, names: Vec<String>, ran: &[Ran]) -> Report {
    let seeds = settings.seeds as usize;
    let policies = policies(settings.policy).len();
    let mut groups = ran.chunks(seeds * policies);
    let mut lists = Vec::new();
    let queue = settings.discipline != Discipline::Loss;
    for list in names {
        let one = |(load, runs): (&f64, &[Ran])| load_of(*load, &runs[..seeds], &runs[seeds * (policies - 1)..], queue);
        lists.push(List { list, loads: settings.loads.iter().zip(&mut groups).map(one).collect() });
    }
    let ours = ran.chunks(seeds).step_by(policies).flatten();
    let (decisions, took) =
        ours.fold((0, Duration::ZERO), |(decisions, took), run| (decisions + run.decisions, took + run.took));
    Report {
        policy: settings.policy.name(),
        lives: if settings.lives == Lives::Exp { "exp" } else { "trace" },
        discipline: if queue { "queue" } else { "loss" },
        bookings: settings.discipline.bookings(),
        seeds: settings.seeds,
        decisions_per_s: (decisions as f64 / took.as_secs_f64().max(1e-9)).round(),
        mean: if lists.len() > 1 { over(&settings.loads, &lists) } else { Vec::new() },
        lists,
    }
}

fn load_of(load: f64, ours: &[Ran], fgd: &[Ran], queue: bool) -> Load {
    let of =
        |runs: &[Ran], value: fn(&Measured) -> f64| runs.iter().map(|run| value(&run.measured)).collect::<Vec<_>>();
    let pair = |value: fn(&Measured) -> f64| pairs(&of(ours, value), &of(fgd, value));
    let seeds = Pairs {
        accepted: pair(|measured| measured.accepted),
        allocated: pair(|measured| measured.allocated),
        wait: pair(|measured| measured.wait),
    };
    Load {
        load,
        ours: measures(ours, queue),
        fgd: measures(fgd, queue),
        difference: Differences {
            accepted: difference(&seeds.accepted),
            allocated: difference(&seeds.allocated),
            wait: difference(&seeds.wait),
        },
        pairs: seeds,
    }
}

fn measures(runs: &[Ran], queue: bool) -> Measures {
    let of = |value: fn(&Measured) -> f64| runs.iter().map(|run| value(&run.measured)).collect::<Vec<_>>();
    let while_waiting: Vec<f64> = runs.iter().filter_map(|run| run.measured.allocated_waiting).collect();
    let waits = Waits {
        mean: mean(&of(|measured| measured.wait)),
        p95: mean(&of(|measured| measured.wait_p95)),
        queue: mean(&of(|measured| measured.queue)),
        booked: mean(&of(|measured| measured.booked as f64)),
        late: mean(&of(|measured| measured.late as f64)),
    };
    Measures {
        accepted: spread(&of(|measured| measured.accepted)),
        allocated: spread(&of(|measured| measured.allocated)),
        allocated_while_waiting: (queue && !while_waiting.is_empty()).then(|| spread(&while_waiting)),
        waiting: queue.then_some(waits),
        classes: classes(runs),
    }
}

/// Every class that any run met, in the mean of the runs that met it.
fn classes(runs: &[Ran]) -> Vec<Class> {
    let mut means = Vec::new();
    for size in crate::trace::SIZES {
        let met: Vec<&Class> =
            runs.iter().filter_map(|run| run.measured.classes.iter().find(|class| class.size == size)).collect();
        let of = |value: fn(&Class) -> f64| mean(&met.iter().map(|class| value(class)).collect::<Vec<_>>());
        if !met.is_empty() {
            means.push(Class {
                size,
                offered: of(|class| class.offered),
                accepted: of(|class| class.accepted),
                worst_wait: of(|class| class.worst_wait),
                never_started: of(|class| class.never_started),
                starved: of(|class| class.starved),
            });
        }
    }
    means
}

/// The lists' mean of each seed, then its error over the seeds.
fn over(loads: &[f64], lists: &[List]) -> Vec<Over> {
    let one = |(at, load): (usize, &f64)| {
        let pairs: Vec<&Pairs> = lists.iter().map(|list| &list.loads[at].pairs).collect();
        let over = |of: fn(&Pairs) -> &Vec<f64>| {
            let seeds = pairs.first().map_or(0, |pairs| of(pairs).len());
            let seed = |seed: usize| mean(&pairs.iter().map(|pairs| of(pairs)[seed]).collect::<Vec<_>>());
            difference(&(0..seeds).map(seed).collect::<Vec<_>>())
        };
        Over {
            load: *load,
            difference: Differences {
                accepted: over(|pairs| &pairs.accepted),
                allocated: over(|pairs| &pairs.allocated),
                wait: over(|pairs| &pairs.wait),
            },
        }
    };
    loads.iter().enumerate().map(one).collect()
}
