use std::path::Path;

use selion_api::lease::Priority;
use selion_market::Policy;
use selion_sim::Silent;
use selion_sim::csv::Table;
use selion_sim::philly::{Job, Report, Setup, jobs, run};

const HOUR: u64 = 3_600_000;

fn job(id: &str, user: &str, gpus: u32, submit_h: u64, run_h: u64) -> Job {
    Job {
        id: id.into(),
        user: user.into(),
        gpus,
        submit_ms: submit_h * HOUR,
        run_ms: run_h * HOUR,
        priority: Priority::Standard,
    }
}

fn setup(jobs: Vec<Job>, nodes: u32, gpus_per_node: u16) -> Setup {
    let policy = Policy::default();
    Setup { jobs, nodes, gpus_per_node, model: "V100".into(), policy, resumes: true, rho: true }
}

fn go(setup: &Setup) -> Report {
    run(setup, &Silent)
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

/// The real trace, where it is at hand: `SELION_PHILLY`, or beside the checkout.
#[test]
fn the_first_jobs_of_the_trace_all_end() {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/philly-derived/chronus_philly_MIX1.csv");
    let path = std::env::var("SELION_PHILLY").unwrap_or_else(|_| beside.to_owned());
    if !Path::new(&path).exists() {
        eprintln!("SKIPPED: no trace at {path}; set SELION_PHILLY");
        return;
    }
    let mut jobs = Table::read(Path::new(&path)).and_then(|table| jobs(&table, false)).expect("a trace");
    assert_eq!(jobs.len(), 30_756, "184 jobs without a GPU are left out");
    jobs.truncate(500);
    let report = go(&Setup { rho: false, ..setup(jobs, 8, 8) });
    assert_eq!((report.completed, report.jobs), (500, 500));
    assert!(report.utilisation <= 1.0 && report.utilisation > 0.3, "{}", report.utilisation);
}
