//! MIG layouts against enumeration. The counts are NVIDIA's published ones where there are any.

use std::collections::BTreeSet;

use selion_market::engine::mig;
use selion_market::engine::terms::mig::Layout;

/// Every set of placements that do not overlap.
fn configurations(layout: &Layout) -> BTreeSet<BTreeSet<(u8, u8)>> {
    let mut all = BTreeSet::from([BTreeSet::new()]);
    let mut edge: Vec<(BTreeSet<(u8, u8)>, u8)> = vec![(BTreeSet::new(), 0)];
    while let Some((placed, mask)) = edge.pop() {
        for profile in 0..u8::try_from(layout.profiles.len()).unwrap() {
            for (start, after) in layout.ways(profile, mask) {
                let mut more = placed.clone();
                more.insert((profile, start));
                if all.insert(more.clone()) {
                    edge.push((more, after));
                }
            }
        }
    }
    all
}

fn mask(layout: &Layout, placed: &BTreeSet<(u8, u8)>) -> u8 {
    placed.iter().map(|(profile, start)| layout.taken(*profile, *start).unwrap()).fold(0, |all, bits| all | bits)
}

/// Reachable masks, configurations, and those to which nothing can be added.
fn counts(layout: &Layout) -> (usize, usize, usize) {
    let all = configurations(layout);
    let masks: BTreeSet<u8> = all.iter().map(|placed| mask(layout, placed)).collect();
    let stuck = |placed: &&BTreeSet<(u8, u8)>| {
        let taken = mask(layout, placed);
        (0..u8::try_from(layout.profiles.len()).unwrap()).all(|profile| layout.ways(profile, taken).next().is_none())
    };
    (masks.len(), all.len(), all.iter().filter(stuck).count())
}

#[test]
fn the_eight_slice_family_has_192_masks_and_78_maximal_of_723_configurations() {
    assert_eq!(counts(&mig::eight()), (192, 723, 78));
    let placements: usize = (0..6).map(|profile| mig::eight().ways(profile, 0).count()).sum();
    assert_eq!(placements, 18);
}

#[test]
fn without_the_double_memory_1g_it_has_the_19_maximal_configurations_that_nvidia_lists() {
    let mut layout = mig::eight();
    layout.profiles.remove(1);
    let (_, all, maximal) = counts(&layout);
    assert_eq!((all, maximal), (298, 19));
}

#[test]
fn the_four_slice_family_reaches_every_mask_and_has_5_maximal_of_26_configurations() {
    assert_eq!(counts(&mig::four()), (16, 26, 5));
}

#[test]
fn an_instance_never_reaches_beyond_the_device_and_an_unknown_profile_has_no_place() {
    for layout in [mig::eight(), mig::four()] {
        for profile in 0..=u8::MAX {
            for start in 0..=u8::MAX {
                let bits = layout.taken(profile, start).unwrap_or(0);
                assert_eq!(u32::from(bits) >> layout.slices, 0, "profile {profile} at {start}");
                assert_eq!(bits != 0, layout.ways(profile, 0).any(|(at, _)| at == start));
            }
        }
    }
}
