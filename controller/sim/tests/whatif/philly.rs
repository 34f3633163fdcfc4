use std::path::Path;

use crate::made::agreed;
use selion_api::lease::Priority;
use selion_market::{Group, Policy};
use selion_sim::Silent;
use selion_sim::csv::Table;
use selion_sim::philly::{GroupReport, Job, Report, Setup, check, jobs, put_under, quotas, run};

const HOUR: u64 = 3_600_000;

fn job(id: &str, user: &str, gpus: u32, submit_h: u64, run_h: u64) -> Job {
    Job {
        id: id.into(),
        user: user.into(),
        group: String::new(),
        gpus,
        submit_ms: submit_h * HOUR,
        run_ms: run_h * HOUR,
        priority: Priority::Standard,
    }
}

fn setup(jobs: Vec<Job>, nodes: u32, gpus_per_node: u16) -> Setup {
    let policy = Policy::default();
    Setup { jobs, nodes, gpus_per_node, model: "V100".into(), policy, resumes: true, rho: true, check: true }
}

/// Runs it, with a second opinion on every entry.
fn go(setup: &Setup) -> Report {
    let report = run(setup, &Silent);
    agreed(report.checked.as_ref());
    assert_eq!(report.checked.as_ref().map(|checked| checked.entries), Some(report.entries));
    report
}

/// 2 GPUs. At 0 h `a` takes one for 4 h; at 1 h `b` wants both for 2 h; at 5 h `c` wants one for 1 h.
/// b waits 3 h for a's end and runs from 4 h to 6 h; c waits 1 h and ends at 7 h.
#[test]
fn three_jobs_wait_as_long_as_by_hand() {
    let jobs = vec![job("a", "u", 1, 0, 4), job("b", "v", 2, 1, 2), job("c", "u", 1, 5, 1)];
    let report = go(&setup(jobs, 1, 2));
    let all = &report.classes[0];
    let wait = all.wait_min.expect("all started");
    assert_eq!((wait.mean, wait.max), (80.0, 180.0));
    assert_eq!((report.completed, report.never_started, report.preemptions), (3, 0, 0));
    assert!((report.makespan_h - 7.0).abs() < 1e-9, "{}", report.makespan_h);
    // 4 + 4 + 1 GPU hours of 14.
    assert!((report.utilisation - 9.0 / 14.0).abs() < 1e-9, "{}", report.utilisation);
    // Alone on 1 of the 2 GPUs: a 4 h, b (two GPUs' work on one) 4 h, c 1 h. Shared: 4, 5 and 2 h.
    let rho = all.rho.expect("all ended");
    assert!((rho.p50 - 1.25).abs() < 1e-9 && (rho.max - 2.0).abs() < 1e-9, "{rho:?}");
    assert_eq!(report.load, 9.0 / 10.0);
}

#[test]
fn equal_runs_end_in_equal_states_and_another_fleet_does_not() {
    let jobs: Vec<Job> = (0..60)
        .map(|n| job(&n.to_string(), &format!("u{}", n % 4), 1 + (n * 7 % 5) as u32, n / 6, 1 + n % 3))
        .collect();
    let once = go(&setup(jobs.clone(), 2, 4));
    assert_eq!(once, go(&setup(jobs.clone(), 2, 4)));
    assert_ne!(once.digest, go(&setup(jobs, 4, 2)).digest);
}

#[test]
fn a_gang_that_no_fleet_of_this_size_can_hold_is_refused_and_counted() {
    let report = go(&setup(vec![job("a", "u", 9, 0, 1), job("b", "u", 65, 0, 1), job("c", "u", 8, 0, 1)], 1, 8));
    let refused: Vec<(String, u64)> = report.refused.iter().map(|(reason, n)| (reason.to_string(), *n)).collect();
    assert_eq!(refused, [("bad_request".to_owned(), 1), ("gang_incomplete".to_owned(), 1)]);
    assert_eq!((report.completed, report.never_started), (1, 0));
}

#[test]
fn a_job_that_waits_longer_than_the_market_lets_it_never_starts() {
    let report = go(&setup(vec![job("a", "u", 1, 0, 24 * 8), job("b", "v", 1, 1, 1)], 1, 1));
    assert_eq!((report.completed, report.never_started), (1, 1));
    assert_eq!(report.classes[0].wait_min.map(|wait| wait.max), Some(0.0));
}

fn of(group: &str, job: Job) -> Job {
    Job { group: group.into(), ..job }
}

/// 4 GPUs. The lab holds two for 10 h, the firm one; `rest` holds the last until 2 h and is booked for it until 4 h.
/// From 1 h on the firm and the lab want one more for 2 h each.
fn two_groups() -> Vec<Job> {
    vec![
        of("lab", job("a", "u", 2, 0, 10)),
        of("firm", job("b", "v", 1, 0, 10)),
        of("rest", job("c", "w", 1, 0, 2)),
        of("rest", job("d", "w", 1, 1, 2)),
        of("lab", job("e", "u", 1, 1, 2)),
        of("firm", job("f", "v", 1, 1, 2)),
    ]
}

fn grouped(jobs: Vec<Job>, gpus: u16, groups: &[(&str, u32, u16)]) -> Vec<GroupReport> {
    let group = |(path, weight, quota_permille): &(&str, u32, u16)| Group {
        path: (*path).to_owned(),
        weight: *weight,
        quota_permille: *quota_permille,
    };
    let policy = Policy { groups: groups.iter().map(group).collect(), ..Policy::default() };
    go(&Setup { policy, ..setup(jobs, 1, gpus) }).groups
}

/// The firm, that holds less, comes before the lab: they wait 3 h and 5 h. With three times the weight the lab comes
/// first. Guaranteed three of the four GPUs it does not wait at all: what the rest holds is stopped for it, and starts
/// again when the rest's other job has ended.
#[test]
fn a_quota_and_a_weight_move_the_wait_from_one_group_to_the_other() {
    let waits = |groups: &[(&str, u32, u16)]| -> Vec<(String, f64)> {
        let told = grouped(two_groups(), 4, groups);
        told.into_iter().map(|group| (group.path, group.wait_min.expect("all started").max / 60.0)).collect()
    };
    let told = |firm: f64, lab: f64, rest: f64| {
        [("firm", firm), ("lab", lab), ("rest", rest)].map(|(path, wait)| (path.to_owned(), wait)).to_vec()
    };
    assert_eq!(waits(&[]), told(3.0, 5.0, 1.0));
    assert_eq!(waits(&[("lab", 1, 750)]), told(4.0, 0.0, 2.0));
    assert_eq!(waits(&[("lab", 1, 749)]), told(3.0, 5.0, 1.0), "a third GPU is more than that");
    assert_eq!(waits(&[("lab", 3, 0)]), told(5.0, 3.0, 1.0));
}

#[test]
fn what_a_group_held_and_wanted_is_as_by_hand() {
    // 2 GPUs, 0 h to 4 h of submissions. The lab holds one from 0 to 2 h; the firm both from 2 to 5 h after waiting for
    // 1 h, in which it held none of the half that it is guaranteed; then the lab one from 5 to 6 h after 1 h.
    let jobs = vec![
        of("lab/vision", job("a", "u", 1, 0, 2)),
        of("firm", job("b", "v", 2, 1, 3)),
        of("lab/vision", job("c", "u", 1, 4, 1)),
    ];
    let told = grouped(jobs, 2, &[("firm", 1, 500)]);
    let rows: Vec<_> = told.iter().map(|group| (group.path.as_str(), group.jobs, group.users, group.held)).collect();
    assert_eq!(rows, [("firm", 1, 1, 4.0 / 8.0), ("lab", 2, 1, 2.0 / 8.0), ("lab/vision", 2, 1, 2.0 / 8.0)]);
    let [firm, lab, vision] = told.as_slice() else { panic!("three groups") };
    assert_eq!((firm.wanting_h, firm.below_quota_h, firm.held_wanting), (1.0, 1.0, Some(0.0)));
    assert_eq!((lab.wanting_h, lab.below_quota_h, lab.quota_permille), (1.0, 0.0, 0));
    assert_eq!(lab.wait_min, vision.wait_min);
    assert!((firm.asked - 6.0 / 9.0).abs() < 1e-9 && (lab.asked - 3.0 / 9.0).abs() < 1e-9);
}

#[test]
fn groups_stand_under_others_and_quotas_follow_what_is_asked_for() {
    let mut jobs = two_groups();
    // Of 38 GPU hours 22 are the lab's and 12 the firm's.
    let told: Vec<(String, u16)> = [("firm", 284), ("lab", 521), ("rest", 94)].map(|(a, b)| (a.to_owned(), b)).into();
    assert_eq!(quotas(&jobs, 900), told);
    put_under(&mut jobs, "org", &["lab".to_owned()]).expect("there is a lab");
    assert_eq!(jobs[0].group, "org/lab");
    let policy = |path: &str| Policy {
        groups: vec![Group { path: path.to_owned(), weight: 1, quota_permille: 5 }],
        ..Policy::default()
    };
    assert!(check(&jobs, &policy("org")).is_ok() && check(&jobs, &policy("org/lab")).is_ok());
    let error = check(&jobs, &policy("lab")).expect_err("it has moved").to_string();
    assert!(
        error.starts_with("no job is of the group `lab`; the groups are firm, org, org/lab, rest; name"),
        "{error}"
    );
    let error = put_under(&mut jobs, "org", &["lab".to_owned()]).expect_err("it has moved").to_string();
    assert!(error.contains("no job is of the group `lab`"), "{error}");
}

#[test]
fn users_without_groups_are_told_of_as_before() {
    let report = go(&setup(vec![job("a", "u", 1, 0, 4)], 1, 2));
    assert!(report.groups.is_empty());
    let told = serde_json::to_value(&report).expect("JSON");
    assert!(told.get("groups").is_none(), "no new field");
}

/// The real trace, where it is at hand: `SELION_PHILLY`, or beside the checkout.
#[test]
fn the_first_jobs_of_the_trace_all_end() {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/philly-derived/chronus_philly_MIX1.csv");
    let path = std::env::var("SELION_PHILLY").unwrap_or_else(|_| beside.to_owned());
    if !Path::new(&path).exists() {
        eprintln!("SKIPPED: no trace at {path}; set SELION_PHILLY");
        return;
    }
    let table = Table::read(Path::new(&path)).expect("a trace");
    let mut plain = jobs(&table, false, &[]).expect("jobs");
    assert_eq!(plain.len(), 30_756, "184 jobs without a GPU are left out");
    plain.truncate(500);
    let report = go(&Setup { rho: false, ..setup(plain, 8, 8) });
    assert_eq!((report.completed, report.jobs), (500, 500));
    assert!(report.utilisation <= 1.0 && report.utilisation > 0.3, "{}", report.utilisation);

    // With classes, groups and quotas: stops, bookings and the order of the tree, under the eyes of the checker.
    let mut grouped = jobs(&table, true, &["user".to_owned()]).expect("jobs");
    grouped.truncate(400);
    put_under(&mut grouped, "lab", &["vc_6214e9".to_owned(), "vc_ed69ec".to_owned()]).expect("they have jobs");
    let group = |(path, quota_permille)| Group { path, weight: 1, quota_permille };
    let policy = Policy { groups: quotas(&grouped, 600).into_iter().map(group).collect(), ..Policy::default() };
    let report = go(&Setup { rho: false, policy, ..setup(grouped, 4, 8) });
    assert!(report.groups.len() == 12 && report.preemptions > 0, "{} cut short", report.preemptions);
}
