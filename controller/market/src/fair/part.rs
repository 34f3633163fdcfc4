//! Parts of a whole as integers.

/// The whole, in which parts are counted: a part is a number of 2^-60.
pub const ONE: u64 = 1 << FRACTION;

const FRACTION: u32 = 60;

/// Bits that an amount may have so that it can be moved left by [`FRACTION`].
const ROOM: u32 = u128::BITS - FRACTION;

/// `amount / total` in units of 2^-60, rounded down; 0 of a total of 0; at most 16 times the total.
///
/// Equal ratios give equal parts whatever their terms, so that ties are ties; ratios closer than 2^-60 are taken as
/// equal. Amounts of 2^68 and more lose their last bits.
#[must_use]
pub fn part(amount: u128, total: u128) -> u64 {
    if total == 0 {
        return 0;
    }
    let bits = u128::BITS - amount.max(total).leading_zeros();
    let cut = bits.saturating_sub(ROOM);
    let parts = ((amount >> cut) << FRACTION) / (total >> cut).max(1);
    u64::try_from(parts).unwrap_or(u64::MAX)
}

/// `part * to / from`, rounded down, for `to <= from`; `part` itself otherwise.
pub(super) fn scale(part: u64, to: u64, from: u64) -> u64 {
    if to >= from {
        return part;
    }
    let scaled = u128::from(part) * u128::from(to) / u128::from(from);
    u64::try_from(scaled).unwrap_or(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ratios_are_equal_parts_and_nothing_overflows() {
        assert_eq!(part(12, 18), part(6, 9));
        assert_eq!(part(1, 1), ONE);
        assert!(part(1, 3) < part(334, 1000));
        assert_eq!(part(u128::MAX, u128::MAX), ONE);
        assert_eq!(part(u128::MAX, 1), u64::MAX);
        assert_eq!((part(5, 0), part(0, 5), part(1, u128::MAX)), (0, 0, 0));
    }

    #[test]
    fn a_part_is_scaled_down_and_never_up() {
        assert_eq!((scale(ONE, 1, 4), scale(7, 5, 5), scale(7, 9, 5)), (ONE / 4, 7, 7));
        assert_eq!(scale(u64::MAX, u64::MAX - 1, u64::MAX), u64::MAX - 1);
        assert_eq!(scale(3, 0, 0), 3);
    }
}
