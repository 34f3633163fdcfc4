//! The natural logarithm in integers.

/// ln 2, times 2^16.
const LN_2: u64 = 45_426;

/// ln(`number`) times 2^16, for a whole number of at least 1 (0 counts as 1), within 4 of it.
#[must_use]
pub fn ln(number: u64) -> i64 {
    let number = number.max(1);
    let whole = number.ilog2();
    // The mantissa in [1, 2), times 2^31; each squaring yields one binary digit of its logarithm.
    let mut mantissa = if whole >= 31 { number >> (whole - 31) } else { number << (31 - whole) };
    let mut log = u64::from(whole);
    for _ in 0..16 {
        mantissa = mantissa.wrapping_mul(mantissa) >> 31; // below 2^64, then below 2^33
        log <<= 1;
        if mantissa >> 32 > 0 {
            mantissa >>= 1;
            log |= 1;
        }
    }
    (log.wrapping_mul(LN_2) >> 16) as i64 // at most 64 x 2^16 x 45,426
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_logarithm_is_within_four_of_its_value() {
        // ln 2, 3, 10, 1000 and 2^63, times 65,536.
        for (number, value) in [(1, 0), (2, 45_426), (3, 71_999), (10, 150_902), (1000, 452_707), (1 << 63, 2_861_840)]
        {
            assert!(ln(number).abs_diff(value) <= 4, "ln {number} = {}", ln(number));
        }
    }

    #[test]
    fn it_never_falls_and_takes_any_number() {
        let mut before = 0;
        for number in (0..200_000).chain([u64::MAX - 1, u64::MAX]) {
            assert!(ln(number) >= before);
            before = ln(number);
        }
    }
}
