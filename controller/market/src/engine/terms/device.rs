//! The device table: what is expected to stay unused of a lone device.

use alloc::vec;
use alloc::vec::Vec;

use super::mix::Mix;
use crate::engine::view::{Shape, WHOLE};

/// Values are in 2^-8 of a milli.
pub const UNIT: u32 = 1 << 8;

/// w(l) for l = 0..=1000 milli left.
#[derive(Clone, Debug)]
pub struct Device {
    left: Vec<u32>,
}

impl Device {
    /// w(0) = 0; w(l) = the mean, over the single-device wants of at most l, of w(l - milli); w(l) = l where none fits.
    /// Each division rounds down.
    #[must_use]
    pub fn of(mix: &Mix) -> Self {
        let mut counts = vec![0_u64; usize::from(WHOLE) + 1];
        let total = mix.total().max(1);
        for &(want, count) in mix.kinds() {
            let milli = match want.shape {
                Shape::Share(milli) => milli.min(WHOLE),
                Shape::Whole(1) => WHOLE,
                _ => 0,
            };
            if let Some(sum) = counts.get_mut(usize::from(milli)).filter(|_| milli > 0) {
                // At most 2^32 in all, so that a count times a value stays far below 2^64.
                *sum += u64::try_from(u128::from(count) * (1 << 32) / u128::from(total)).unwrap_or(0);
            }
        }
        let sizes: Vec<(usize, u64)> =
            counts.iter().enumerate().filter(|(_, count)| **count > 0).map(|(milli, count)| (milli, *count)).collect();
        let mut left: Vec<u32> = Vec::with_capacity(counts.len());
        for l in 0..counts.len() {
            let (mut sum, mut weight) = (0_u64, 0_u64);
            for &(milli, count) in sizes.iter().take_while(|(milli, _)| *milli <= l) {
                sum += count * u64::from(left.get(l - milli).copied().unwrap_or(0));
                weight += count;
            }
            let alone = u32::try_from(l).unwrap_or(0) * UNIT;
            left.push(sum.checked_div(weight).map_or(alone, |mean| u32::try_from(mean).unwrap_or(alone)));
        }
        Self { left }
    }

    /// w(l), in 2^-8 milli; more than a whole device counts as one.
    #[inline]
    #[must_use]
    pub fn left(&self, l: u16) -> i32 {
        self.left.get(usize::from(l.min(WHOLE))).map_or(0, |&left| left as i32) // at most 256,000
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::view::Want;

    fn mix(kinds: &[(Shape, u64)]) -> Mix {
        let kinds: Vec<(Want, u64)> =
            kinds.iter().map(|&(shape, count)| (Want { shape, cpu: 0, ram: 0, models: u64::MAX }, count)).collect();
        Mix::oracle(&kinds)
    }

    #[test]
    fn the_expected_leftover_follows_the_recursion() {
        let device = Device::of(&mix(&[(Shape::Share(300), 1), (Shape::Share(500), 1), (Shape::Whole(4), 7)]));
        let unit = UNIT as i32;
        assert_eq!(device.left(0), 0);
        assert_eq!(device.left(299), 299 * unit, "nothing fits");
        assert_eq!(device.left(450), 150 * unit, "one fits");
        // 600: half the time 300 and then nothing, half the time 500 and then 100.
        assert_eq!(device.left(600), 50 * unit);
        assert_eq!(device.left(1000), (device.left(700) + device.left(500)) / 2);
    }

    #[test]
    fn whole_devices_leave_nothing_of_a_free_one() {
        let device = Device::of(&mix(&[(Shape::Whole(1), 1)]));
        assert_eq!((device.left(999), device.left(1000)), (999 * UNIT as i32, 0));
    }

    #[test]
    fn an_empty_mix_leaves_everything() {
        let device = Device::of(&Mix::default());
        assert_eq!(device.left(1000), 1000 * UNIT as i32);
        assert_eq!(device.left(u16::MAX), 1000 * UNIT as i32);
    }

    #[test]
    fn huge_counts_do_not_overflow() {
        let device = Device::of(&mix(&[(Shape::Share(1), u64::MAX / 4096), (Shape::Share(999), u64::MAX / 4096)]));
        assert_eq!(device.left(1000), 0);
    }
}
