//! What the loaders make of the traces, and what they say of bad ones.

use std::path::Path;

use selion_sim::SimError;
use selion_sim::trace::{Cluster, Models, SIZES, TaskList};

use crate::data;

/// The published count of types of gpuspec33 is 330: there `A|B` and `B|A` are two.
/// List, rows, GPU of capacity in thousandths, CPU-only, share, 1, 2, 4, 8, with a model, types.
type Facts = (&'static str, usize, u64, [usize; 6], usize, usize);

const FACTS: [Facts; 7] = [
    ("default", 8152, 980, [1088, 3078, 3911, 16, 15, 44], 0, 91),
    ("cpu100", 7853, 980, [789, 3078, 3911, 16, 15, 44], 0, 91),
    ("gpushare40", 8152, 908, [1088, 4001, 3001, 12, 11, 39], 0, 88),
    ("gpushare100", 8152, 636, [1088, 7064, 0, 0, 0, 0], 0, 49),
    ("multigpu20", 8324, 1141, [1088, 3078, 3911, 54, 52, 141], 0, 91),
    ("multigpu50", 9061, 1829, [1088, 3078, 3911, 222, 206, 556], 0, 91),
    ("gpuspec33", 8152, 980, [1088, 3078, 3911, 16, 15, 44], 2388, 320),
];

#[test]
fn the_cluster_is_the_published_one() {
    let Some(nodes) = data::nodes() else { return };
    let cluster = Cluster::read(&nodes).unwrap();
    assert_eq!(cluster.nodes.len(), 1_213);
    assert_eq!(cluster.capacity(), 6_212_000);
    assert_eq!(cluster.nodes.iter().map(|node| u64::from(node.cpu)).sum::<u64>(), 107_018_000);
    assert_eq!(cluster.nodes.iter().map(|node| u64::from(node.ram)).sum::<u64>(), 503_828_480);
    assert_eq!(cluster.models.count(), 7);
    let of = |model: &str| {
        let mine = cluster.nodes.iter().filter(|node| cluster.models.name(node.model) == model);
        mine.map(|node| u32::from(node.gpus)).sum::<u32>()
    };
    let counts = ["G2", "T4", "G3", "P100", "V100M32", "V100M16", "A10"].map(of);
    assert_eq!(counts, [4392, 842, 312, 265, 204, 195, 2]);
}

#[test]
fn the_lists_are_the_published_ones() {
    for (name, rows, gpu, sizes, spec, types) in FACTS {
        let Some(path) = data::pods(name) else { continue };
        let list = TaskList::read(&path, &mut Models::default()).unwrap();
        assert_eq!(list.name, name);
        assert_eq!(list.tasks.len(), rows, "{name}");
        assert_eq!((list.gpu() + 3_106) / 6_212, gpu, "{name}");
        let found = SIZES.map(|size| list.tasks.iter().filter(|task| task.size() == size).count());
        assert_eq!(found, sizes, "{name}");
        assert_eq!(list.tasks.iter().filter(|task| task.models != u64::MAX).count(), spec, "{name}");
        assert_eq!(list.types().len(), types, "{name}");
    }
}

fn fault(file: &str, text: &str, read: impl Fn(&Path) -> Result<(), SimError>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(file);
    std::fs::write(&path, text).unwrap();
    read(&path).unwrap_err().to_string().replace(&format!("{}/", folder.path().display()), "")
}

#[test]
fn a_bad_list_of_nodes_is_told_with_its_place() {
    let read = |path: &Path| Cluster::read(path).map(drop);
    let head = "sn,cpu_milli,memory_mib,gpu,model\n";
    let table = [
        ("sn,cpu_milli,memory_mib,model\na,1,1,T4\n".to_owned(), "n.csv: no column `gpu`; it has sn, cpu_milli,"),
        (
            format!("{head}a,1,1,8,T4\nb,1.5,1,8,T4\n"),
            "n.csv, row 3: `1.5` in column `cpu_milli`; it must be thousandths",
        ),
        (format!("{head}a,1,1,65,T4\n"), "n.csv, row 2: `65` in column `gpu`; it must be a count of GPUs from 0 to 64"),
        (format!("{head}a,1,1,0,\n"), "n.csv: no node has a GPU"),
        (head.to_owned(), "n.csv: no rows under the header"),
    ];
    for (text, words) in table {
        let found = fault("n.csv", &text, read);
        assert!(found.starts_with(words), "{found}");
    }
    let models = (0..65).map(|model| format!("n{model},1,1,1,m{model}\n")).collect::<String>();
    let found = fault("n.csv", &format!("{head}{models}"), read);
    assert!(found.contains("row 66: `m64` is one GPU model more than the 64"), "{found}");
    assert!(
        Cluster::read(Path::new("/nowhere/n.csv")).unwrap_err().to_string().starts_with("cannot read /nowhere/n.csv")
    );
}

#[test]
fn a_bad_list_of_tasks_is_told_with_its_place() {
    let read = |path: &Path| TaskList::read(path, &mut Models::default()).map(drop);
    let table = [
        ("name,cpu_milli,memory_mib,num_gpu\na,1,1,1\n", "p.csv: no column `gpu_milli`"),
        ("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,1,1001\n", "p.csv, row 2: `1001` in column `gpu_milli`"),
        ("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,2,500\n", "p.csv, row 2: `500` in column `gpu_milli`"),
        ("name,cpu_milli,memory_mib,num_gpu,gpu_milli\na,1,1,-1,0\n", "p.csv, row 2: `-1` in column `num_gpu`"),
    ];
    for (text, words) in table {
        let found = fault("p.csv", text, read);
        assert!(found.starts_with(words), "{found}");
    }
}
