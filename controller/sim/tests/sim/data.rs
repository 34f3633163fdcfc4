//! Where the openb traces are: in the folder that `SELION_OPENB` names, or beside the checkout.

use std::path::PathBuf;

/// The folder of the traces; `None`, and a line that says so, where it is absent.
pub fn openb() -> Option<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/openb");
    let folder = PathBuf::from(std::env::var_os("SELION_OPENB").unwrap_or_else(|| beside.into()));
    if folder.join("openb_node_list_gpu_node.csv").exists() {
        return Some(folder);
    }
    println!("SKIPPED: no openb traces in {}; name their folder in SELION_OPENB", folder.display());
    None
}

/// The list of nodes.
pub fn nodes() -> Option<PathBuf> {
    openb().map(|folder| folder.join("openb_node_list_gpu_node.csv"))
}

/// A list of tasks by its short name, if it is there.
pub fn pods(list: &str) -> Option<PathBuf> {
    openb().map(|folder| folder.join(format!("openb_pod_list_{list}.csv"))).filter(|path| path.exists())
}
