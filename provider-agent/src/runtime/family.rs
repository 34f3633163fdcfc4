//! Who descends from whom, by `/proc`.

use std::collections::BTreeMap;
use std::fs;

/// Every process that descends from `head`, at one look; processes that come and go meanwhile may be missed.
#[must_use]
pub fn descendants(head: i32) -> Vec<i32> {
    let parents = parents();
    parents.keys().copied().filter(|process| descends(*process, head, &parents)).collect()
}

fn descends(process: i32, head: i32, parents: &BTreeMap<i32, i32>) -> bool {
    let mut at = process;
    // Bounded: a table that was read while processes came and went may hold a circle.
    for _ in 0..parents.len() {
        match parents.get(&at) {
            Some(parent) if *parent == head => return true,
            Some(parent) => at = *parent,
            None => return false,
        }
    }
    false
}

/// Each process's parent.
fn parents() -> BTreeMap<i32, i32> {
    let Ok(listed) = fs::read_dir("/proc") else { return BTreeMap::new() };
    let processes = listed.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    processes.filter_map(|process| Some((process, parent(process)?))).collect()
}

fn parent(process: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // After the name, which may hold anything: state, parent.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}
