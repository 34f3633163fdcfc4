//! Finish-time fairness: what sharing cost each job against having 1/N of the fleet to itself.

use std::collections::BTreeSet;

use super::run::{Ran, run_jobs};
use super::{Job, Setup};
use crate::world::{Fleet, HOUR, START};
use crate::{Progress, parallel};

/// What `rho` means; printed with it.
pub const DEFINITION: &str = "rho = T_shared / T_ideal: from submission to end on the shared fleet, over the same in a \
     run of the user's own jobs alone on 1/N of the GPUs (N users; the same market and policy; a gang larger than \
     that part counts as if it ran there on what there is, for longer). 1 or less: sharing cost nothing.";

/// `rho` of every job that ended in both runs, in order of the jobs; `None` where it did not.
pub(super) fn rho(setup: &Setup, fleet: &Fleet, shared: &Ran, progress: &dyn Progress) -> Vec<Option<f64>> {
    let users: BTreeSet<(&str, &str)> = setup.jobs.iter().map(Job::renter).collect();
    let part = (fleet.total() / (users.len() as u64).max(1)).max(1);
    let alone = Fleet::of_gpus(part, setup.gpus_per_node, &setup.model);
    let shrunk = shrink(setup, part);
    let of_user = |user: &(&str, &str)| -> Vec<usize> {
        (0..setup.jobs.len())
            .filter(|number| setup.jobs.get(*number).is_some_and(|job| job.renter() == *user))
            .collect()
    };
    let theirs: Vec<Vec<usize>> = users.iter().map(of_user).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut list = vec![None; setup.jobs.len()];
    let found = parallel::map(&theirs, threads, |theirs| {
        let ideal = run_jobs(&shrunk, &alone, theirs, progress);
        theirs.iter().map(|number| (*number, one(setup, *number, shared, &ideal))).collect::<Vec<_>>()
    });
    for (number, rho) in found.into_iter().flatten() {
        if let Some(slot) = list.get_mut(number) {
            *slot = rho;
        }
    }
    list
}

/// Gangs that do not fit on `part` GPUs, as if their work were spread over longer.
fn shrink(setup: &Setup, part: u64) -> Setup {
    let mut setup = Setup { check: false, ..setup.clone() };
    for job in setup.jobs.iter_mut().filter(|job| u64::from(job.gpus) > part) {
        job.run_ms = job.run_ms.saturating_mul(u64::from(job.gpus)) / part;
        job.gpus = u32::try_from(part).unwrap_or(u32::MAX);
    }
    setup
}

fn one(setup: &Setup, number: usize, shared: &Ran, ideal: &Ran) -> Option<f64> {
    let submitted = START.plus(setup.jobs.get(number)?.submit_ms);
    let took = |ran: &Ran| {
        let story = ran.story(number).filter(|story| story.started.is_some())?;
        story.ended.map(|(at, _)| at.since(submitted).max(1) as f64 / HOUR as f64)
    };
    Some(took(shared)? / took(ideal)?)
}
