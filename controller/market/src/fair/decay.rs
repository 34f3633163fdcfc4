//! What was used in the past, fading.

/// 2^(-1/2), 2^(-1/4), .. 2^(-1/65536) in units of 2^-32, rounded down.
const ROOTS: [u64; 16] = [
    3_037_000_499,
    3_611_622_602,
    3_938_502_375,
    4_112_874_773,
    4_202_935_003,
    4_248_701_964,
    4_271_771_996,
    4_283_353_945,
    4_289_156_690,
    4_292_061_009,
    4_293_513_906,
    4_294_240_539,
    4_294_603_902,
    4_294_785_595,
    4_294_876_444,
    4_294_921_870,
];

/// What is left of `amount` after `elapsed_ms` if half is left after `half_life_ms`, rounded down; nothing if the half
/// life is 0. The time between two halvings is taken in 65,536 steps.
#[must_use]
pub fn decay(amount: u128, elapsed_ms: u64, half_life_ms: u64) -> u128 {
    let (Some(halvings), Some(rest)) = (elapsed_ms.checked_div(half_life_ms), elapsed_ms.checked_rem(half_life_ms))
    else {
        return 0;
    };
    let steps = (u128::from(rest) << ROOTS.len()) / u128::from(half_life_ms);
    let mut factor: u128 = 1 << 32;
    for (at, root) in ROOTS.iter().enumerate() {
        if (steps >> (ROOTS.len() - 1 - at)) & 1 == 1 {
            factor = (factor * u128::from(*root)) >> 32;
        }
    }
    let (high, low) = (amount >> 32, amount & u128::from(u32::MAX));
    let now = high * factor + ((low * factor) >> 32);
    u32::try_from(halvings).ok().and_then(|halvings| now.checked_shr(halvings)).unwrap_or(0)
}

/// The mean of what was held, recent times counting more: after `elapsed_ms` of holding `held`, the old mean has faded
/// by [`decay`] and `held` has taken its place. Who holds the same for long has it as the mean.
#[must_use]
pub fn mean(old: u128, held: u128, elapsed_ms: u64, half_life_ms: u64) -> u128 {
    if old >= held {
        held.saturating_add(decay(old - held, elapsed_ms, half_life_ms))
    } else {
        held.saturating_sub(decay(held - old, elapsed_ms, half_life_ms))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn half_is_left_after_each_half_life() {
        assert_eq!(decay(1 << 40, 1000, 1000), 1 << 39);
        assert_eq!(decay(1 << 40, 10_000, 1000), 1 << 30);
        assert_eq!(decay(u128::MAX, 0, 1000), u128::MAX);
        assert_eq!(decay(1_000_000_000, 500, 1000), 707_106_780);
        assert_eq!((decay(u128::MAX, u64::MAX, 1), decay(9, 9, 0)), (0, 0));
    }

    #[test]
    fn time_never_brings_anything_back() {
        let left: Vec<u128> = (0..5000).map(|ms| decay(1 << 50, ms, 777)).collect();
        assert!(left.windows(2).all(|pair| pair[0] >= pair[1]));
    }

    #[test]
    fn the_mean_goes_to_what_is_held() {
        assert_eq!(mean(0, 1000, 60_000, 60_000), 500);
        assert_eq!(mean(1000, 0, 60_000, 60_000), 500);
        assert_eq!(mean(0, 1000, 6_000_000, 60_000), 1000);
        assert_eq!(mean(u128::MAX, 3, u64::MAX, 5), 3);
    }
}
