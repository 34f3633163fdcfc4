//! Lease ends: a placement that keeps a node busy longer is charged for it. Charging for the device of a share too cost
//! more than it gained: see docs/market-figures.md.

use super::grain::{GRAIN_BITS, MILLI};
use super::weights::Weights;
use crate::engine::view::{Shape, Want};

/// The charge in grains for a placement that ends at `new` on a node that is idle from `node` on (now, if it is idle):
/// the weight for each mean life that the node stays busy longer, a mean life at most. Times in milliseconds. Work
/// without a GPU keeps no GPU busy.
#[must_use]
pub fn charge(weights: &Weights, want: &Want, (new, node): (u64, u64), mean_life_ms: u64) -> i64 {
    match want.shape {
        Shape::Share(_) | Shape::Whole(_) => longer(new, node, mean_life_ms).saturating_mul(weights.end.into()),
        Shape::None | Shape::Mig { .. } => 0,
    }
}

/// min(1, how much `new` is after `last` in mean lives), times [`MILLI`]. Without a mean life any extension is one.
#[must_use]
pub fn longer(new: u64, last: u64, mean_life_ms: u64) -> i64 {
    let extension = new.saturating_sub(last);
    if extension >= mean_life_ms {
        return if extension == 0 { 0 } else { MILLI };
    }
    if extension < 1 << 40 {
        // The short way, for all extensions of up to 34 years.
        return i64::try_from((extension << GRAIN_BITS) / mean_life_ms.max(1)).unwrap_or(MILLI);
    }
    let lives = u128::from(extension) * MILLI as u128 / u128::from(mean_life_ms.max(1));
    i64::try_from(lives).unwrap_or(MILLI)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANT: Want = Want { shape: Shape::Share(5), cpu: 0, ram: 0, models: 0 };

    #[test]
    fn half_a_mean_life_longer_costs_half_the_weight() {
        let whole = Want { shape: Shape::Whole(1), ..WANT };
        assert_eq!(charge(&Weights::MARKET, &WANT, (1500, 1000), 1000), 200 * MILLI);
        assert_eq!(charge(&Weights::MARKET, &whole, (1500, 1250), 1000), 100 * MILLI);
        assert_eq!(charge(&Weights::MARKET, &Want { shape: Shape::None, ..WANT }, (1500, 1000), 1000), 0);
        assert_eq!(charge(&Weights::FILL, &WANT, (1500, 1000), 1000), 0);
    }

    #[test]
    fn a_lease_that_ends_before_the_others_is_free_and_none_costs_more_than_the_weight() {
        assert_eq!(charge(&Weights::MARKET, &WANT, (900, 901), 1000), 0);
        assert_eq!(charge(&Weights::MARKET, &WANT, (u64::MAX, 0), 1), 400 * MILLI);
        assert_eq!(charge(&Weights::MARKET, &WANT, (u64::MAX, 0), u64::MAX), 400 * MILLI);
        assert_eq!(charge(&Weights::MARKET, &WANT, (0, 0), 0), 0);
    }
}
