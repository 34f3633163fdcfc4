//! The simulated device against the published facts of MIG.

use std::collections::BTreeSet;

use selion_api::{GpuId, Slot};

use super::*;
use crate::gpus::{Simulated, models};

fn device(model: &str) -> Device {
    let simulated = Simulated::new(&[model.to_owned()], b"key").unwrap();
    let facts = simulated.facts().next().unwrap().clone();
    Device::new(GpuFacts { gpu: GpuId([1; 16]), ..facts })
}

fn mig(profile: &str, start: u8, size: u8) -> Slot {
    Slot::Mig { profile: profile.into(), start, size }
}

/// Every slot that `profiles` of the device could name.
fn candidates(device: &Device, wanted: impl Fn(&str) -> bool) -> Vec<Slot> {
    let table = device.facts().mig.clone().unwrap();
    let named = table.profiles.into_iter().filter(|profile| wanted(&profile.name));
    named.flat_map(|p| p.starts.clone().into_iter().map(move |start| mig(&p.name, start, p.size))).collect()
}

/// Layouts to which nothing of `slots` can be added, found by trying every order.
fn maximal_layouts(empty: &Device, slots: &[Slot]) -> usize {
    let mut seen = BTreeSet::new();
    let mut maximal = 0;
    let mut todo = vec![(empty.clone(), BTreeSet::new())];
    while let Some((device, layout)) = todo.pop() {
        if !seen.insert(layout.clone()) {
            continue;
        }
        let mut grew = false;
        for slot in slots {
            let mut next = device.clone();
            if next.make(layout.len() as u64, slot).is_ok() {
                grew = true;
                let mut layout = layout.clone();
                layout.insert(slot.clone());
                todo.push((next, layout));
            }
        }
        maximal += usize::from(!grew);
    }
    maximal
}

#[test]
fn the_big_boards_have_19_maximal_layouts_and_78_with_the_double_memory_1g() {
    for (model, double) in [("A100 40GB", "1g.10gb"), ("H100 80GB", "1g.20gb"), ("H200 141GB", "1g.35gb")] {
        let empty = device(model);
        let basic = candidates(&empty, |name| !name.ends_with("+me") && name != double);
        assert_eq!(maximal_layouts(&empty, &basic), 19, "{model}");
        let all = candidates(&empty, |name| !name.ends_with("+me"));
        assert_eq!(maximal_layouts(&empty, &all), 78, "{model}");
    }
}

#[test]
fn the_small_boards_have_5_maximal_layouts() {
    for model in ["A30 24GB", "RTX PRO 6000 Blackwell 96GB"] {
        let empty = device(model);
        let basic = candidates(&empty, |name| !name.contains('+'));
        assert_eq!(maximal_layouts(&empty, &basic), 5, "{model}");
    }
}

#[test]
fn seven_1g_fill_an_a100_and_an_eighth_is_refused() {
    let mut device = device("A100 80GB");
    for start in 0..7 {
        device.make(u64::from(start), &mig("1g.10gb", start, 1)).unwrap();
    }
    let refused = device.make(7, &mig("1g.10gb", 7, 1)).unwrap_err();
    assert!(refused.to_string().contains("may start only at"), "{refused}");
    let refused = device.make(7, &mig("1g.20gb", 6, 2)).unwrap_err();
    assert!(matches!(refused, GpuError::Taken { .. }), "{refused}");
}

#[test]
fn two_3g_leave_no_room_although_one_compute_slice_is_left() {
    let mut device = device("H100 80GB");
    device.make(0, &mig("3g.40gb", 0, 4)).unwrap();
    device.make(1, &mig("3g.40gb", 4, 4)).unwrap();
    for start in 0..7 {
        assert!(device.make(2, &mig("1g.10gb", start, 1)).is_err());
    }
}

#[test]
fn compute_is_a_second_budget() {
    let mut device = device("A100 80GB");
    // 4 + 3 compute slices; the memory is full as well only because 3g takes four memory slices.
    device.make(0, &mig("4g.40gb", 0, 4)).unwrap();
    device.make(1, &mig("1g.20gb", 4, 2)).unwrap();
    device.make(2, &mig("1g.20gb", 6, 2)).unwrap();
    device.free(0).unwrap();
    for start in 0..4 {
        device.make(3 + u64::from(start), &mig("1g.10gb", start, 1)).unwrap();
    }
    assert_eq!(device.held().count(), 6);
}

#[test]
fn a_media_profile_exists_once() {
    let mut device = device("A100 80GB");
    device.make(0, &mig("1g.10gb+me", 0, 1)).unwrap();
    let refused = device.make(1, &mig("1g.10gb+me", 1, 1)).unwrap_err();
    assert!(refused.to_string().contains("all 1 instances"), "{refused}");
    device.make(1, &mig("1g.10gb", 1, 1)).unwrap();
}

#[test]
fn a_slot_of_the_wrong_size_is_refused() {
    let refused = device("A100 80GB").make(0, &mig("2g.20gb", 0, 1)).unwrap_err();
    assert!(refused.to_string().contains("takes 2 memory slices, not 1"), "{refused}");
}

#[test]
fn a_whole_gpu_shares_with_nobody() {
    let mut device = device("A100 80GB");
    device.make(0, &Slot::Whole).unwrap();
    assert!(device.make(1, &mig("1g.10gb", 0, 1)).is_err());
    assert!(device.make(1, &Slot::Whole).is_err());
}

#[test]
fn shares_add_up_to_the_whole_and_no_further() {
    let share = |compute_permille, gib: u64| Slot::Share { compute_permille, mem_bytes: gib << 30 };
    let mut device = device("RTX 4090 24GB");
    device.make(0, &share(600, 10)).unwrap();
    assert!(device.make(1, &share(500, 1)).is_err(), "compute");
    assert!(device.make(1, &share(100, 15)).is_err(), "memory");
    assert!(device.make(1, &share(0, 1)).is_err(), "no compute at all");
    device.make(1, &share(400, 14)).unwrap();
    assert!(device.make(2, &mig("1g.10gb", 0, 1)).is_err(), "it cannot do MIG");
}

#[test]
fn a_slice_in_use_is_not_destroyed() {
    let mut device = device("A100 80GB");
    device.make(5, &Slot::Whole).unwrap();
    device.set_busy(5, true).unwrap();
    assert!(matches!(device.free(5), Err(GpuError::Busy { .. })));
    device.set_busy(5, false).unwrap();
    device.free(5).unwrap();
    assert!(matches!(device.free(5), Err(GpuError::NoSuchSlice { number: 5, .. })));
}

#[test]
fn every_model_of_the_table_can_be_simulated() {
    for model in models() {
        device(&model.model).make(0, &Slot::Whole).unwrap();
    }
}
