//! Work that comes and goes.

use std::path::Path;

use selion_market::engine::Weighting;
use selion_sim::Silent;
use selion_sim::churn::{Discipline, Lives, Settings, simulate};
use selion_sim::trace::Size;

/// Twenty nodes of eight GPUs; mostly tasks of one GPU, and some of eight.
fn small(folder: &Path) -> Settings {
    let (nodes, pods) = (folder.join("nodes.csv"), folder.join("pods.csv"));
    let rows: String = (0..20).map(|node| format!("n{node},96000,393216,8,G2\n")).collect();
    std::fs::write(&nodes, format!("sn,cpu_milli,memory_mib,gpu,model\n{rows}")).unwrap();
    let ones: String = (0..39).map(|task| format!("p{task},4000,8192,1,1000,0,{}\n", 50 + task)).collect();
    let eights: String = (39..40).map(|task| format!("p{task},32000,8192,8,1000,0,60\n")).collect();
    let head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,creation_time,deletion_time\n";
    std::fs::write(&pods, format!("{head}{ones}{eights}")).unwrap();
    Settings {
        nodes,
        pods: vec![pods],
        loads: vec![1.2],
        lives: Lives::Exp,
        discipline: Discipline::Loss,
        policy: Weighting::BestFit,
        seeds: 6,
        threads: 2,
    }
}

fn eights(settings: &Settings) -> (f64, f64) {
    let report = simulate(settings, &Silent).unwrap();
    let classes = &report.lists[0].loads[0].ours.classes;
    let eight = classes.iter().find(|class| class.size == Size::Eight).unwrap();
    (eight.starved, eight.worst_wait)
}

#[test]
fn with_bookings_large_work_starts_that_would_starve_without_them() {
    let folder = tempfile::tempdir().unwrap();
    let without = eights(&Settings { discipline: Discipline::Queue, ..small(folder.path()) });
    let with = eights(&Settings { discipline: Discipline::Bookings(256), ..small(folder.path()) });
    assert!(without.0 > 20.0, "without: {without:?}");
    assert!(with.0 == 0.0 && with.1 < without.1, "with: {with:?}, without: {without:?}");
}

#[test]
fn every_booking_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    for (limit, lives) in [(1, Lives::Exp), (256, Lives::Exp), (256, Lives::Trace)] {
        let settings = Settings { discipline: Discipline::Bookings(limit), lives, ..small(folder.path()) };
        let report = simulate(&settings, &Silent).unwrap();
        let waiting = report.lists[0].loads[0].ours.waiting.unwrap();
        assert!(waiting.booked > 5.0, "{limit}: {waiting:?}");
        assert_eq!(waiting.late, 0.0, "{limit}: {waiting:?}");
    }
}

#[test]
fn equal_seeds_give_equal_figures_on_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    for discipline in [Discipline::Loss, Discipline::Queue, Discipline::Bookings(3)] {
        for lives in [Lives::Exp, Lives::Trace] {
            let settings = Settings { discipline, lives, seeds: 2, ..small(folder.path()) };
            let json = |threads| {
                let report = simulate(&Settings { threads, ..settings.clone() }, &Silent).unwrap();
                let mut value = serde_json::to_value(report).unwrap();
                value["decisions_per_s"] = 0.into();
                value.to_string()
            };
            assert_eq!(json(1), json(2));
        }
    }
}

#[test]
fn fgd_against_itself_differs_by_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let report = simulate(&Settings { policy: Weighting::Fgd, ..small(folder.path()) }, &Silent).unwrap();
    let load = &report.lists[0].loads[0];
    assert_eq!((load.difference.accepted.mean, load.difference.allocated.mean), (0.0, 0.0));
    assert!(load.ours.accepted.mean > 50.0 && load.ours.accepted.mean <= 100.0);
}

#[test]
fn at_a_low_load_everything_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let settings = Settings { loads: vec![0.2], discipline: Discipline::Queue, ..small(folder.path()) };
    let report = simulate(&settings, &Silent).unwrap();
    assert!(report.lists[0].loads[0].ours.accepted.mean > 99.0);
}

#[test]
fn a_load_of_nothing_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for load in [0.0, -1.0, f64::NAN, 11.0] {
        let error = simulate(&Settings { loads: vec![load], ..small(folder.path()) }, &Silent).unwrap_err();
        assert!(error.to_string().contains("it must be above 0 and at most 10"), "{error}");
    }
}
