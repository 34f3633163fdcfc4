//! One run of the trace.

use std::collections::{BTreeMap, BTreeSet};

use selion_api::lease::{MAX_DURATION_MS, MAX_WAIT_MS, OnNodeLoss};
use selion_api::{Account, Hash32, LeaseId, LeaseRequest, MemberWant, Reason, SliceWant, TimeMs};
use selion_market::Policy;

use super::report::{self, Report};
use super::{Job, fair, tree};
use crate::Progress;
use crate::world::{Fleet, Keep, START, Story, Work, World, account};

/// What to run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The jobs, in order of submission.
    pub jobs: Vec<Job>,
    /// Nodes of the fleet.
    pub nodes: u32,
    /// GPUs of each.
    pub gpus_per_node: u16,
    /// Their model.
    pub model: String,
    /// The operator's numbers.
    pub policy: Policy,
    /// Whether work that was cut short goes on where it stopped, or begins anew.
    pub resumes: bool,
    /// Whether to run each user alone as well, for finish-time fairness.
    pub rho: bool,
    /// Whether to ask a second opinion about every entry.
    pub check: bool,
}

/// What one run of some jobs on some fleet gave.
pub(super) struct Ran {
    pub world: World,
    /// The lease of each job, or why it was refused.
    pub leases: Vec<Result<LeaseId, Reason>>,
    /// GPU milliseconds held up to the last submission.
    pub held_while_arriving: u128,
    /// The first submission.
    pub first: TimeMs,
    /// The last one.
    pub last: TimeMs,
}

impl Ran {
    pub(super) fn story(&self, job: usize) -> Option<&Story> {
        let id = self.leases.get(job)?.as_ref().ok()?;
        self.world.stories().get(id)
    }
}

/// Runs the trace until the last job is over, and each user alone where `rho` asks for it. `progress` hears of every
/// submission.
pub fn run(setup: &Setup, progress: &dyn Progress) -> Report {
    let fleet = Fleet::even(setup.nodes, setup.gpus_per_node, &setup.model);
    progress.begin(setup.jobs.len() as u64 * if setup.rho { 2 } else { 1 });
    let every: Vec<usize> = (0..setup.jobs.len()).collect();
    let shared = run_jobs(setup, &fleet, &every, progress);
    let rho = setup.rho.then(|| fair::rho(setup, &fleet, &shared, progress));
    report::of(setup, &fleet, &shared, rho.as_deref())
}

/// Runs the jobs of these numbers on a fleet.
pub(super) fn run_jobs(setup: &Setup, fleet: &Fleet, which: &[usize], progress: &dyn Progress) -> Ran {
    let renters = renters(&setup.jobs);
    let mut world =
        World::keeping(tree::seated(&setup.policy, &setup.jobs, &renters), Keep { opinion: setup.check, log: false });
    world.add_fleet(fleet);
    world.fund(&renters.values().copied().collect::<BTreeSet<Account>>());
    let mut leases = vec![Err(Reason::NoSuchLease); setup.jobs.len()];
    for number in which {
        let Some(job) = setup.jobs.get(*number) else {
            continue;
        };
        world.run_until(START.plus(job.submit_ms));
        let renter = renters.get(&job.renter()).copied().unwrap_or_default();
        let work = Work { resumes: setup.resumes, ..Work::plain(job.run_ms.min(MAX_DURATION_MS)) };
        let asked = world.request(request(*number, job, renter), work);
        if let Some(lease) = leases.get_mut(*number) {
            *lease = asked.map_err(|refusal| refusal.reason);
        }
        progress.done(&job.id);
    }
    let held_while_arriving = world.held_ms();
    world.run_out(TimeMs(u64::MAX));
    let times = which.iter().filter_map(|number| setup.jobs.get(*number)).map(|job| START.plus(job.submit_ms));
    let (first, last) = (times.clone().min().unwrap_or(START), times.max().unwrap_or(START));
    Ran { world, leases, held_while_arriving, first, last }
}

/// Accounts of the users, by group and name.
fn renters(jobs: &[Job]) -> BTreeMap<(&str, &str), Account> {
    let names: BTreeSet<(&str, &str)> = jobs.iter().map(Job::renter).collect();
    names.into_iter().zip((1..).map(account)).collect()
}

fn request(number: usize, job: &Job, renter: Account) -> LeaseRequest {
    let mut idem = Hash32::ZERO;
    idem.0[..8].copy_from_slice(&(number as u64 + 1).to_be_bytes());
    let want = MemberWant { cpu_milli: 1_000, ram_bytes: 1 << 30, ..MemberWant::of(SliceWant::Whole) };
    LeaseRequest {
        renter,
        idem,
        members: (0..job.gpus).map(|_| want.clone()).collect(),
        min_members: u16::try_from(job.gpus).unwrap_or(u16::MAX),
        min_nodes: 1,
        within: selion_api::lease::Within::Pool,
        max_latency_us: None,
        regions: Vec::new(),
        max_rate: None,
        classes: 0b11_1111,
        needs: selion_api::BoxFeatures::NONE,
        duration_ms: job.run_ms.clamp(1, MAX_DURATION_MS),
        wait_ms: MAX_WAIT_MS,
        on_node_loss: OnNodeLoss::Requeue,
        work: Hash32::ZERO,
        datasets: Vec::new(),
        near_data: false,
        priority: job.priority,
        licence: None,
    }
}
