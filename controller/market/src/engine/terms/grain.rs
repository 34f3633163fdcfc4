//! The one unit of every term: a *grain* is 2^-20 of a milli (a thousandth of a GPU).
//!
//! It is fine enough that weights in sixteenths, means over 16 sequences and type weights of 2^-16 all stay whole
//! numbers: nothing is rounded before the score is cut into buckets.

/// Binary places of a grain.
pub const GRAIN_BITS: u32 = 20;

/// Grains in one milli.
pub const MILLI: i64 = 1 << GRAIN_BITS;

/// The bucket of `grains`: floor of grains over a bucket of `milli`. A bucket of zero milli counts as one.
#[must_use]
pub fn floor(grains: i64, milli: u32) -> i32 {
    narrow(grains.div_euclid(width(milli)))
}

/// The nearest number of buckets of `milli`; halves go up.
#[must_use]
pub fn round(grains: i64, milli: u32) -> i32 {
    let width = width(milli);
    narrow(grains.saturating_add(width / 2).div_euclid(width))
}

fn width(milli: u32) -> i64 {
    i64::from(milli.max(1)) << GRAIN_BITS
}

fn narrow(buckets: i64) -> i32 {
    i32::try_from(buckets).unwrap_or(if buckets < 0 { i32::MIN } else { i32::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_lower_edge_and_not_its_upper_one() {
        assert_eq!(floor(0, 80), 0);
        assert_eq!(floor(80 * MILLI - 1, 80), 0);
        assert_eq!(floor(80 * MILLI, 80), 1);
        assert_eq!(floor(-1, 80), -1);
    }

    #[test]
    fn a_price_is_rounded_to_the_nearest_bucket_and_halves_go_up() {
        assert_eq!(round(40 * MILLI - 1, 80), 0);
        assert_eq!(round(40 * MILLI, 80), 1);
        assert_eq!(round(119 * MILLI, 80), 1);
    }

    #[test]
    fn the_extremes_do_not_overflow() {
        assert_eq!(floor(i64::MAX, 0), i32::MAX);
        assert_eq!(floor(i64::MIN, 0), i32::MIN);
        assert_eq!(round(i64::MAX, u32::MAX), 2048);
    }
}
