//! The index against the scan of all nodes, in one run, on the same full fleet: `cargo bench -p selion-sim`.

use divan::{Bencher, black_box};
use selion_sim::Weighting;
use selion_sim::load::{Bench, Settings};

fn main() {
    divan::main();
}

const POLICIES: [Weighting; 4] = [Weighting::Market, Weighting::Fill, Weighting::Fgd, Weighting::BestFit];

/// Of the size of openb, filled.
fn full(policy: Weighting) -> Bench {
    let size = Settings { nodes: 1_213, gpus: 6_212, classes: 91, policy, gang: None, racks: 50, decisions: 1 };
    let mut bench = Bench::new(&size);
    bench.fill(6_212_000);
    bench
}

/// Departures until the next arrival, its choice by the index and its taking.
#[divan::bench(args = POLICIES)]
fn indexed(bencher: Bencher<'_, '_>, policy: Weighting) {
    let mut bench = full(policy);
    bencher.bench_local(|| {
        bench.depart(1);
        black_box(bench.decide())
    });
}

/// The same, chosen by judging every node and device.
#[divan::bench(args = POLICIES)]
fn scanned(bencher: Bencher<'_, '_>, policy: Weighting) {
    let mut bench = full(policy);
    bench.by_scan();
    bencher.bench_local(|| {
        bench.depart(1);
        black_box(bench.decide())
    });
}

/// A gang of four in one rack, every rack scored, and the departures until the next.
#[divan::bench(args = [Weighting::Fgd])]
fn gang_of_four(bencher: Bencher<'_, '_>, policy: Weighting) {
    let mut bench = full(policy);
    bencher.bench_local(|| {
        bench.depart(4);
        black_box(bench.gang(4))
    });
}
