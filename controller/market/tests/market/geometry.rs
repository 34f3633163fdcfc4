//! MIG by exact tables: the published counts, and what may stand beside what.

use std::collections::BTreeSet;

use selion_api::Rate;
use selion_api::slice::MigTable;
use selion_market::geometry::{MigUse, placements, possible, room_for, share_rate};

use crate::pool::{GIB, a100_table};

/// Every set of instances that can stand together, as sorted (profile, start) lists.
fn configurations(table: &MigTable) -> BTreeSet<Vec<(usize, u8)>> {
    let mut all = BTreeSet::from([Vec::new()]);
    let mut new: Vec<Vec<(usize, u8)>> = vec![Vec::new()];
    while let Some(set) = new.pop() {
        let used = used(table, &set);
        for (at, profile) in table.profiles.iter().enumerate() {
            for start in &profile.starts {
                if possible(table, &used, profile, *start) {
                    let mut more = set.clone();
                    more.push((at, *start));
                    more.sort_unstable();
                    if all.insert(more.clone()) {
                        new.push(more);
                    }
                }
            }
        }
    }
    all
}

fn used<'a>(table: &'a MigTable, set: &[(usize, u8)]) -> MigUse<'a> {
    let mut used = MigUse::default();
    for (at, start) in set {
        let profile = &table.profiles[*at];
        for slice in *start..*start + profile.size {
            used.mask |= 1 << slice;
        }
        used.compute += u32::from(profile.compute_slices);
        used.instances.push(&profile.name);
    }
    used
}

fn maximal(table: &MigTable, all: &BTreeSet<Vec<(usize, u8)>>) -> usize {
    all.iter()
        .filter(|set| {
            let used = used(table, set);
            placements(table).all(|(profile, start)| !possible(table, &used, profile, start))
        })
        .count()
}

#[test]
fn an_a100_has_18_placements_192_masks_and_723_configurations_of_which_78_are_full() {
    let table = a100_table();
    assert_eq!(placements(&table).count(), 18);
    let all = configurations(&table);
    let masks: BTreeSet<u32> = all.iter().map(|set| used(&table, set).mask).collect();
    assert_eq!(masks.len(), 192);
    assert_eq!((all.len(), maximal(&table, &all)), (723, 78));
}

#[test]
fn without_the_double_memory_profile_the_19_published_full_configurations_remain() {
    let mut table = a100_table();
    table.profiles.retain(|profile| profile.name != "1g.20gb");
    let all = configurations(&table);
    assert_eq!((all.len(), maximal(&table, &all)), (298, 19));
}

#[test]
fn media_engines_are_given_once_whatever_the_profile_is_called() {
    let mut table = a100_table();
    let mut media = table.profiles[0].clone();
    media.name = "1g.10gb+me".into();
    media.max_instances = 1;
    table.profiles.push(media.clone());
    let mut used = MigUse::default();
    assert!(possible(&table, &used, &media, 0));
    used.mask = 1;
    used.compute = 1;
    used.instances.push("1g.10gb+me");
    assert!(!possible(&table, &used, &media, 1));
    assert!(possible(&table, &used, &table.profiles[0], 1));
}

#[test]
fn room_is_counted_by_placements_and_not_by_slices() {
    let table = a100_table();
    let mut used = MigUse::default();
    let fits = |used: &MigUse<'_>, name: &str| {
        let profile = table.profiles.iter().find(|profile| profile.name == name).unwrap();
        room_for(&table, used, profile)
    };
    assert_eq!((fits(&used, "1g.10gb"), fits(&used, "3g.40gb"), fits(&used, "4g.40gb")), (7, 2, 1));
    // One 1g at start 0: six of eight memory slices would do for a 4g, but it starts at 0 only.
    used.mask = 1;
    used.compute = 1;
    used.instances.push("1g.10gb");
    assert_eq!((fits(&used, "4g.40gb"), fits(&used, "3g.40gb"), fits(&used, "1g.10gb")), (0, 1, 6));
}

#[test]
fn a_share_pays_its_larger_part_rounded_up() {
    let all = Rate(1_000_000);
    assert_eq!(share_rate(all, 250, 10 * GIB, 80 * GIB), Rate(250_000));
    assert_eq!(share_rate(all, 100, 40 * GIB, 80 * GIB), Rate(500_000));
    assert_eq!(share_rate(Rate(1), 1, 1, 80 * GIB), Rate(1));
    assert_eq!(share_rate(Rate(u64::MAX), 1000, 1, 0), Rate(u64::MAX));
}
