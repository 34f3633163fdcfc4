//! The tree of accounts that a trace's users stand in, and what each group of it gets.

use std::collections::{BTreeMap, BTreeSet};

use selion_api::{Account, TimeMs};
use selion_market::{Group, Policy, Seat};
use serde::Serialize;

use super::report::Worst;
use super::run::Ran;
use super::{Job, Setup};
use crate::SimError;
use crate::world::{Flow, Story};

/// Puts the top groups of these names under another one, `org`.
///
/// # Errors
///
/// No job is of such a group.
pub fn put_under(jobs: &mut [Job], org: &str, groups: &[String]) -> Result<(), SimError> {
    for group in groups {
        let mut theirs = jobs.iter_mut().filter(|job| job.group.split('/').next() == Some(group)).peekable();
        if theirs.peek().is_none() {
            return Err(no_group(group, jobs));
        }
        theirs.for_each(|job| job.group = format!("{org}/{}", job.group));
    }
    Ok(())
}

/// A group for each group of the jobs that has none above it, guaranteed a part of `permille` of the pool as large as
/// its part of the GPU time that is asked for.
#[must_use]
pub fn quotas(jobs: &[Job], permille: u16) -> Vec<(String, u16)> {
    let mut asked: BTreeMap<&str, u128> = BTreeMap::new();
    for job in jobs.iter().filter(|job| !job.group.is_empty()) {
        let top = job.group.split('/').next().unwrap_or_default();
        *asked.entry(top).or_default() += asked_ms(job);
    }
    let all: u128 = jobs.iter().map(asked_ms).sum();
    let part = |ms: u128| u16::try_from(ms * u128::from(permille) / all.max(1)).unwrap_or(permille);
    asked.into_iter().map(|(path, ms)| (path.to_owned(), part(ms))).collect()
}

/// Whether every group of the policy has jobs.
///
/// # Errors
///
/// One has none.
pub fn check(jobs: &[Job], policy: &Policy) -> Result<(), SimError> {
    let known: BTreeSet<String> = paths(jobs).collect();
    match policy.groups.iter().find(|group| !known.contains(&group.path)) {
        Some(group) => Err(no_group(&group.path, jobs)),
        None => Ok(()),
    }
}

fn no_group(path: &str, jobs: &[Job]) -> SimError {
    let known: Vec<String> = paths(jobs).collect::<BTreeSet<_>>().into_iter().collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    let what = format!("no job is of the group `{path}`; the groups are {known}");
    SimError::Nothing { what, next: "name one of them, or make groups of a column with --group-by" }
}

/// The path of every group of the jobs and of those above it, some of them often.
fn paths(jobs: &[Job]) -> impl Iterator<Item = String> {
    let prefixes = |path: &str| -> Vec<String> {
        let ends = path.match_indices('/').map(|(at, _)| at).chain((!path.is_empty()).then_some(path.len()));
        ends.filter_map(|end| path.get(..end)).map(ToOwned::to_owned).collect()
    };
    jobs.iter().flat_map(move |job| prefixes(&job.group))
}

/// The policy with the trace's groups and everybody's seat in them.
pub(super) fn seated(policy: &Policy, jobs: &[Job], renters: &BTreeMap<(&str, &str), Account>) -> Policy {
    let mut policy = policy.clone();
    for path in paths(jobs) {
        if let Err(at) = policy.groups.binary_search_by(|group| group.path.cmp(&path)) {
            policy.groups.insert(at, Group { path, weight: 1, quota_permille: 0 });
        }
    }
    let in_groups = renters.iter().filter(|((group, _), _)| !group.is_empty());
    policy.accounts = in_groups
        .map(|((group, _), account)| Seat { account: *account, group: (*group).to_owned(), weight: 1 })
        .collect();
    policy.accounts.sort_by_key(|seat| seat.account);
    policy
}

/// What one group got.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupReport {
    /// Its path.
    pub path: String,
    /// Its weight beside its siblings.
    pub weight: u32,
    /// Guaranteed part of the fleet, in permille.
    pub quota_permille: u16,
    /// Users in it and below it.
    pub users: u64,
    /// Their jobs that were taken.
    pub jobs: u64,
    /// Of these, never started.
    pub never_started: u64,
    /// Its part of the GPU time that all jobs ask for.
    pub asked: f64,
    /// Its part of the fleet's GPU time, from the first submission to the last.
    pub held: f64,
    /// Hours in which a job of it waited.
    pub wanting_h: f64,
    /// Its part of the fleet's GPU time in these hours; `None` if there are none.
    pub held_wanting: Option<f64>,
    /// Hours in which a job of it waited while it held less than its quota: until something comes free, or because what
    /// waited is larger than what was left of the quota.
    pub below_quota_h: f64,
    /// Minutes from submission to the first grant, of those that started.
    pub wait_min: Option<Worst>,
    /// Finish-time fairness.
    pub rho: Option<Worst>,
}

/// What each group of the trace got, by path; none if it has no groups.
pub(super) fn reports(setup: &Setup, gpus: u64, shared: &Ran, rho: Option<&[Option<f64>]>) -> Vec<GroupReport> {
    let policy = &shared.world.state().policy;
    policy.groups.iter().map(|group| report(setup, gpus, shared, rho, group)).collect()
}

fn report(setup: &Setup, gpus: u64, shared: &Ran, rho: Option<&[Option<f64>]>, group: &Group) -> GroupReport {
    let below = |path: &str| {
        path.strip_prefix(group.path.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let theirs: Vec<(usize, &Job)> = setup.jobs.iter().enumerate().filter(|(_, job)| below(&job.group)).collect();
    let stories: Vec<&Story> = theirs.iter().filter_map(|(number, _)| shared.story(*number)).collect();
    let asked: u128 = theirs.iter().map(|(_, job)| asked_ms(job)).sum();
    let all: u128 = setup.jobs.iter().map(asked_ms).sum();
    let seats = &shared.world.state().policy.accounts;
    let renters: BTreeSet<Account> = seats.iter().filter(|seat| below(&seat.group)).map(|seat| seat.account).collect();
    let quota = u128::from(gpus) * u128::from(group.quota_permille);
    let flow = shared.world.flow().iter().filter(|flow| renters.contains(&flow.renter));
    let time = Time::of(flow, quota, shared.first, shared.last);
    let part = |held: u128, ms: u64| held as f64 / (gpus as f64 * ms.max(1) as f64);
    let waits = stories.iter().filter_map(|story| story.granted.map(|at| at.since(story.asked) as f64 / 60_000.0));
    let fair = rho.map(|rho| theirs.iter().filter_map(|(number, _)| rho.get(*number).copied().flatten()).collect());
    let hours = |ms: u64| ms as f64 / 3_600_000.0;
    GroupReport {
        path: group.path.clone(),
        weight: group.weight.max(1),
        quota_permille: group.quota_permille,
        users: renters.len() as u64,
        jobs: stories.len() as u64,
        never_started: stories.iter().filter(|story| story.started.is_none()).count() as u64,
        asked: asked as f64 / all.max(1) as f64,
        held: part(time.held_arriving, shared.last.since(shared.first)),
        wanting_h: hours(time.wanting_ms),
        held_wanting: (time.wanting_ms > 0).then(|| part(time.held_wanting, time.wanting_ms)),
        below_quota_h: hours(time.below_quota_ms),
        wait_min: Worst::of(waits.collect()),
        rho: fair.and_then(Worst::of),
    }
}

fn asked_ms(job: &Job) -> u128 {
    u128::from(job.run_ms) * u128::from(job.gpus)
}

/// What a group held, and when it wanted more.
#[derive(Default)]
struct Time {
    /// GPU milliseconds held from the first submission to the last.
    held_arriving: u128,
    wanting_ms: u64,
    /// GPU milliseconds held while something waited.
    held_wanting: u128,
    below_quota_ms: u64,
}

impl Time {
    /// `quota` in thousandths of a GPU.
    fn of<'a>(flow: impl Iterator<Item = &'a Flow>, quota: u128, first: TimeMs, last: TimeMs) -> Self {
        let mut time = Self::default();
        let (mut held, mut waiting, mut since) = (0_i64, 0_i64, first);
        // Every run is over in the end, so nothing is left to count after the last change.
        for flow in flow {
            let (ms, gpus) = (flow.at.since(since), u128::try_from(held).unwrap_or(0));
            let arriving_ms = flow.at.min(last).since(since);
            time.held_arriving += gpus * u128::from(arriving_ms);
            if waiting > 0 {
                time.wanting_ms += ms;
                time.held_wanting += gpus * u128::from(ms);
                time.below_quota_ms += if gpus * 1_000 < quota { ms } else { 0 };
            }
            since = since.max(flow.at);
            (held, waiting) = (held + flow.members, waiting + flow.waiting);
        }
        time
    }
}
