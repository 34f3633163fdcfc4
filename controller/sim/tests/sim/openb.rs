//! Arrivals only.

use std::path::{Path, PathBuf};

use selion_market::engine::{Fleet, Weighting};
use selion_sim::openb::tune::arrivals;
use selion_sim::openb::{Report, Settings, intern, run, shapes, simulate};
use selion_sim::random::Random;
use selion_sim::trace::{Cluster, Models, TaskList};
use selion_sim::{Progress, Silent};

use crate::data;
use crate::naive::Naive;

/// Two nodes with two GPUs each, and eight tasks of half a GPU: everything fits until the cluster is full.
fn tiny(folder: &Path) -> Settings {
    let (nodes, pods) = (folder.join("nodes.csv"), folder.join("pods.csv"));
    std::fs::write(&nodes, "sn,cpu_milli,memory_mib,gpu,model\nb,8000,8192,2,T4\na,8000,8192,2,T4\n").unwrap();
    let rows: String = (0..8).map(|task| format!("p{task},1000,1024,1,500\n")).collect();
    std::fs::write(&pods, format!("name,cpu_milli,memory_mib,num_gpu,gpu_milli\n{rows}")).unwrap();
    Settings { nodes, pods: vec![pods], policy: Weighting::Fgd, seeds: 2, threads: 2 }
}

fn json(settings: &Settings) -> String {
    let mut value = serde_json::to_value(simulate(settings, &Silent).unwrap()).unwrap();
    // The only figure that may differ.
    value["decisions_per_s"] = 0.into();
    value.to_string()
}

#[test]
fn a_cluster_of_four_gpus_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    // 8 tasks of 500 fill 4,000; clones follow until 500 more would pass 5,200: two. At 100 % all is allocated.
    for policy in Weighting::ALL {
        let report = simulate(&Settings { policy, ..tiny(folder.path()) }, &Silent).unwrap();
        let Report::One(outcome) = &report else { panic!("one list, one outcome") };
        assert_eq!(outcome.unallocated_at_100.unwrap().mean, 0.0, "{policy}");
        assert_eq!(outcome.unallocated_at_end.mean, 0.0, "{policy}");
    }
}

#[test]
fn what_does_not_fit_is_dropped_and_counts_as_arrived() {
    let folder = tempfile::tempdir().unwrap();
    let settings = tiny(folder.path());
    // Four tasks with all the CPU of a node and one GPU: two fit, half of the GPUs stay unallocated.
    let rows: String = (0..4).map(|task| format!("p{task},8000,1024,1,1000\n")).collect();
    let head = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n";
    std::fs::write(&settings.pods[0], format!("{head}{rows}")).unwrap();
    let report = simulate(&settings, &Silent).unwrap();
    assert_eq!(report.lists()[0].unallocated_at_100.unwrap().mean, 50.0);
    assert_eq!(report.lists()[0].unallocated_at_end.mean, 50.0);
}

#[test]
fn the_json_is_a_contract_and_equal_seeds_give_it_equal() {
    let folder = tempfile::tempdir().unwrap();
    let settings = tiny(folder.path());
    let golden = r#"{"decisions_per_s":0,"policy":"fgd","seeds":2,"unallocated_at_100":{"mean":0.0,"sd":0.0},"unallocated_at_end":{"mean":0.0,"sd":0.0}}"#;
    assert_eq!(json(&settings), golden);
    assert_eq!(json(&Settings { threads: 1, ..settings }), golden);
}

#[test]
fn several_lists_have_names_and_a_mean() {
    let folder = tempfile::tempdir().unwrap();
    let mut settings = tiny(folder.path());
    settings.pods.push(settings.pods[0].clone());
    let value = serde_json::to_value(simulate(&settings, &Silent).unwrap()).unwrap();
    assert_eq!(value["lists"][1]["list"], "pods");
    assert_eq!(value["lists"][1]["policy"], "fgd");
    assert_eq!(value["mean"]["unallocated_at_100"], 0.0);
}

#[test]
fn no_seeds_and_no_gpu_work_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let settings = tiny(folder.path());
    let none = simulate(&Settings { seeds: 0, ..settings.clone() }, &Silent).unwrap_err();
    assert_eq!(none.to_string(), "--seeds is 0; it must be at least 1");
    std::fs::write(&settings.pods[0], "name,cpu_milli,memory_mib,num_gpu,gpu_milli\np,1,1,0,0\n").unwrap();
    assert!(simulate(&settings, &Silent).unwrap_err().to_string().contains("no task asks for a GPU"));
}

#[test]
fn every_run_is_told() {
    struct Count(std::sync::atomic::AtomicU64);
    impl Progress for Count {
        fn begin(&self, runs: u64) {
            assert_eq!(runs, 2);
        }
        fn done(&self, line: &str) {
            assert!(line.starts_with("pods seed 4"), "{line}");
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let count = Count(0.into());
    simulate(&tiny(folder.path()), &count).unwrap();
    assert_eq!(count.0.into_inner(), 2);
}

#[test]
fn the_engine_places_as_the_definition_of_fgd_says() {
    let (Some(nodes), Some(pods)) = (data::nodes(), data::pods("gpuspec33")) else { return };
    let mut cluster = Cluster::read(&nodes).unwrap();
    let list = TaskList::read(&pods, &mut cluster.models).unwrap();
    compare(&cluster, &list, 60, 1_200);
}

/// The first nodes of a shuffle, and as many arrivals: every choice of a node must be the same.
fn compare(cluster: &Cluster, list: &TaskList, nodes: usize, count: usize) {
    let mut order: Vec<usize> = (0..cluster.nodes.len()).collect();
    Random::new(7, 0).shuffle(&mut order);
    order.truncate(nodes);
    let mine: Vec<_> = order.iter().map(|at| cluster.nodes[*at].clone()).collect();
    let mut naive = Naive::new(&mine, &list.tasks);
    let mut fleet = Fleet::new(Weighting::Fgd, &shapes(cluster, &order));
    let classes = intern(&mut fleet, &list.tasks);
    let oracle: Vec<_> = list.types().into_iter().map(|(want, count)| (fleet.intern(want), count)).collect();
    fleet.oracle(&oracle);
    let mut differ = 0;
    let mut order = arrivals(&list.tasks, list.gpu(), &mut Random::new(7, 1));
    order.truncate(count);
    let reading = run(&list.tasks, &order, 1_000_000, |at| {
        let choice = fleet.choose(classes[at], None);
        let naive = naive.place(&list.tasks[at]);
        differ += usize::from(choice.map(|choice| choice.node as usize) != naive);
        choice.is_some_and(|choice| fleet.take(classes[at], &choice, None).is_ok())
    });
    assert!(reading.at_end < 100.0, "nothing was placed");
    assert_eq!(differ, 0, "of {count} choices");
}

#[test]
fn the_lists_of_tasks_may_lie_anywhere() {
    let missing = PathBuf::from("/nowhere/pods.csv");
    let error = TaskList::read(&missing, &mut Models::default()).unwrap_err();
    assert!(error.to_string().starts_with("cannot read /nowhere/pods.csv"), "{error}");
}
