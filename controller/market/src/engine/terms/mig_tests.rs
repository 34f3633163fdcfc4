use super::*;
use crate::engine::view::Want;

/// 1g, 1g double memory, 2g, 3g, 4g, 7g of an 8-slice device.
fn eight() -> Layout {
    let profiles = [(1, 0x7F), (2, 0x55), (2, 0x15), (4, 0x11), (4, 0x01), (8, 0x01)];
    Layout { slices: 8, profiles: profiles.map(|(size, starts)| Profile { size, starts }).to_vec() }
}

fn mix(counts: &[u64]) -> Mix {
    let want = |profile| Want { shape: Shape::Mig { table: 2, profile }, cpu: 0, ram: 0, models: u64::MAX };
    Mix::oracle(&(0..).zip(counts).map(|(profile, &count)| (want(profile), count)).collect::<Vec<_>>())
}

#[test]
fn instances_start_only_where_their_profile_allows() {
    let layout = eight();
    assert_eq!(layout.taken(0, 6), Some(0x40));
    assert_eq!(layout.taken(0, 7), None, "no single slice at the last start");
    assert_eq!(layout.taken(3, 4), Some(0xF0));
    assert_eq!(layout.taken(4, 4), None);
    assert_eq!(layout.taken(5, 0), Some(0xFF));
    assert_eq!(layout.taken(6, 0), None, "no such profile");
    let odd = Layout { slices: 4, profiles: vec![Profile { size: 200, starts: 0xFF }, Profile { size: 0, starts: 1 }] };
    assert_eq!((odd.taken(0, 100), odd.taken(1, 0), odd.taken(0, 255)), (None, None, None));
}

#[test]
fn what_the_mix_cannot_cover_is_fragmentation() {
    let table = Table::of(&eight(), 2, &mix(&[0, 0, 0, 1, 0, 1])); // 3g and 7g
    assert_eq!(table.frag(0), 0);
    assert_eq!(table.frag(0x01), (3 + 7) * UNIT / 2, "3g covers the upper half; 7g nothing");
    assert_eq!(table.frag(0xFF), 0);
    let other = Table::of(&eight(), 1, &mix(&[0, 0, 0, 1, 0, 1]));
    assert_eq!((other.frag(0x01), other.left(0x01)), (0, 7 * UNIT), "another table's wants are not its own");
}

#[test]
fn the_leftover_is_the_exact_expectation_over_pairs() {
    let table = Table::of(&eight(), 2, &mix(&[0, 0, 0, 0, 1, 1])); // 4g and 7g, half each
    assert_eq!(table.left(0xFF), 0);
    assert_eq!(table.left(0x0F), 4 * UNIT, "neither fits beside the lower half");
    // Of two draws, 7g leaves 0 and 4g leaves 4: only a pair of two 4g's takes 4g.
    assert_eq!(table.left(0), UNIT);
}

#[test]
fn an_instance_goes_where_it_keeps_the_most_room() {
    let table = Table::of(&eight(), 2, &mix(&[4, 0, 2, 2, 1, 1]));
    let best = |profile, mask| {
        table.places(&Weights::MARKET, profile, mask).max_by_key(|place| (place.worth, core::cmp::Reverse(place.start)))
    };
    let three = best(3, 0).map(|place| place.start);
    assert_eq!(three, Some(4), "3g leaves the lower half to 4g");
    assert_eq!(best(0, 0xF1).map(|place| place.start), Some(1), "a single slice completes a broken pair");
    assert_eq!(best(5, 1), None);
}

#[test]
fn a_block_that_stays_busy_longer_is_charged_by_its_size() {
    let table = Table::of(&eight(), 2, &mix(&[1; 6]));
    let ends = [0, 1000, 0, 0, 2000, 0, 0, 0];
    let charge = |profile, start| table.end_charge(&Weights::MARKET, (profile, start), &ends, 1500, 1000);
    let slice = 1000 * MILLI;
    // At 0: the pair half a life of a quarter, the half-device half a life of a half, the device is busy anyway.
    assert_eq!(charge(0, 0), slice / 8 + slice / 4);
    assert_eq!(charge(0, 2), slice / 4 + slice / 4, "an idle pair stays busy a whole life longer");
    assert_eq!(charge(0, 5), 0, "everything around it is busy longer");
    assert_eq!(charge(3, 0), slice / 4, "only the half and the device hold it");
    assert_eq!(charge(0, 7), 0, "no such place");
}

#[test]
fn nothing_learned_and_huge_counts_give_values_without_overflow() {
    let empty = Table::of(&eight(), 2, &Mix::default());
    assert_eq!((empty.frag(1), empty.left(1), empty.worth(&Weights::MARKET, 0, 1)), (0, 7 * UNIT, 700 * MILLI));
    let table = Table::of(&eight(), 2, &mix(&[u64::MAX / 8192; 6]));
    for mask in 0..=u8::MAX {
        assert!(table.left(mask) <= 8 * UNIT && table.frag(mask) <= 8 * UNIT);
    }
    let wide = Layout { slices: 32, profiles: vec![Profile { size: 8, starts: 1 }] };
    assert_eq!(Table::of(&wide, 2, &mix(&[1])).left(0), 0, "more slices than a mask has bits are not looked at");
}
