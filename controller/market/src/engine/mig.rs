//! The built-in families of MIG devices. Compute slices never bind beyond the memory mask on them.

use super::terms::mig::{Layout, Profile};

const fn profile(size: u8, starts: u8) -> Profile {
    Profile { size, starts }
}

/// A100, H100, H200: 1g, 1g with double memory, 2g, 3g, 4g, 7g. Source: NVIDIA's placements, as NVML lists them.
#[must_use]
pub fn eight() -> Layout {
    let profiles = alloc::vec![
        profile(1, 0b0111_1111),
        profile(2, 0b0101_0101),
        profile(2, 0b0001_0101),
        profile(4, 0b0001_0001),
        profile(4, 0b0000_0001),
        profile(8, 0b0000_0001),
    ];
    Layout { slices: 8, profiles }
}

/// A30: 1g, 2g, 4g.
#[must_use]
pub fn four() -> Layout {
    Layout { slices: 4, profiles: alloc::vec![profile(1, 0b1111), profile(2, 0b0101), profile(4, 0b0001)] }
}
