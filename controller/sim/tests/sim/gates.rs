//! What the published table promises, on the lists that are there.

use selion_market::engine::Weighting;
use selion_sim::Silent;
use selion_sim::churn::{self, Discipline, Lives};
use selion_sim::mig::{self, MIXES};
use selion_sim::openb::{Outcome, Settings, simulate};
use selion_sim::trace::Size;

use crate::data;

const LISTS: [&str; 7] = ["default", "cpu100", "gpushare40", "gpushare100", "multigpu20", "multigpu50", "gpuspec33"];

fn outcomes(policy: Weighting, lists: &[&str], seeds: u64) -> Vec<Outcome> {
    let Some(nodes) = data::nodes() else { return Vec::new() };
    let pods: Vec<_> = lists.iter().filter_map(|list| data::pods(list)).collect();
    let report = simulate(&Settings { nodes, pods, policy, seeds, threads: 2 }, &Silent).unwrap();
    report.lists().into_iter().cloned().collect()
}

#[test]
fn fgd_is_within_three_tenths_of_the_published_mean() {
    for outcome in outcomes(Weighting::Fgd, &LISTS, 10) {
        let Some(published) = outcome.published else { continue };
        let (at_100, at_end) = (outcome.unallocated_at_100.unwrap().mean, outcome.unallocated_at_end.mean);
        println!("{}: {at_100:.2} / {at_end:.2}, published {published:?}", outcome.list);
        assert!((at_100 - published.at_100).abs() <= 0.3, "{}: {at_100} at 100 %", outcome.list);
        assert!((at_end - published.at_end).abs() <= 0.3, "{}: {at_end} at the end", outcome.list);
    }
}

#[test]
fn best_fit_is_within_three_tenths_of_the_published_mean() {
    for outcome in outcomes(Weighting::BestFit, &["default", "gpushare100", "multigpu50"], 5) {
        let Some(published) = outcome.published else { continue };
        let (at_100, at_end) = (outcome.unallocated_at_100.unwrap().mean, outcome.unallocated_at_end.mean);
        assert!((at_100 - published.at_100).abs() <= 0.3, "{}: {at_100} at 100 %", outcome.list);
        assert!((at_end - published.at_end).abs() <= 0.3, "{}: {at_end} at the end", outcome.list);
    }
}

#[test]
fn fill_is_below_what_is_published_for_fgd() {
    // One seed: the gap is ten times the deviation between seeds.
    for outcome in outcomes(Weighting::Fill, &LISTS, 1) {
        let Some(published) = outcome.published else { continue };
        let (at_100, at_end) = (outcome.unallocated_at_100.unwrap().mean, outcome.unallocated_at_end.mean);
        println!("{}: {at_100:.2} / {at_end:.2}, published {published:?}", outcome.list);
        assert!(at_100 < published.at_100, "{}: {at_100} at 100 %", outcome.list);
        assert!(at_end < published.at_end, "{}: {at_end} at the end", outcome.list);
    }
}

#[test]
fn market_accepts_more_mig_slices_than_the_gradient_table_in_every_mix_and_load() {
    let settings = mig::Settings {
        gpus: 100,
        arrivals: 30_000,
        loads: vec![1.0, 1.3],
        mixes: MIXES.to_vec(),
        policy: Weighting::Market,
        seeds: 2,
        threads: 2,
    };
    let report = mig::simulate(&settings, &Silent).unwrap();
    for case in &report.cases {
        let line = &case.policies[0];
        println!("{} at {}: {:+.4}", case.mix.name, case.load, line.difference.mean);
        assert!(line.difference.mean > 0.0, "{} at {}: {line:?}", case.mix.name, case.load);
    }
}

#[test]
fn with_bookings_large_tasks_of_the_trace_start_and_every_promise_is_kept() {
    let (Some(nodes), Some(pods)) = (data::nodes(), data::pods("default")) else { return };
    let settings = churn::Settings {
        nodes,
        pods: vec![pods],
        loads: vec![1.0],
        lives: Lives::Exp,
        discipline: Discipline::Bookings(256),
        policy: Weighting::Fgd,
        seeds: 1,
        threads: 1,
    };
    let report = churn::simulate(&settings, &Silent).unwrap();
    let ours = &report.lists[0].loads[0].ours;
    let waiting = ours.waiting.unwrap();
    assert!(waiting.booked > 100.0 && waiting.late == 0.0, "{waiting:?}");
    for class in ours.classes.iter().filter(|class| class.size >= Size::Two) {
        assert_eq!(class.starved, 0.0, "{class:?}");
    }
}
