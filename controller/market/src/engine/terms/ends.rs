//! Lease ends: a placement that keeps a device or a node busy longer is charged for it.

use super::grain::{GRAIN_BITS, MILLI};
use super::weights::Weights;
use crate::engine::view::{Shape, Want};

/// The ends that a placement meets, in milliseconds; an idle device or node ends now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// When the new lease ends.
    pub new: u64,
    /// When the last lease on the device ends.
    pub device: u64,
    /// When the last lease on the node ends.
    pub node: u64,
}

/// The charge in grains: the device's weight for each mean life that the device stays busy longer (shares only), and
/// the node's weight for each that the node does, a mean life at most. Work without a GPU keeps no GPU busy.
#[must_use]
pub fn charge(weights: &Weights, want: &Want, ends: Ends, mean_life_ms: u64) -> i64 {
    let device = longer(ends.new, ends.device, mean_life_ms).saturating_mul(weights.end_device.into());
    let node = longer(ends.new, ends.node, mean_life_ms).saturating_mul(weights.end_node.into());
    match want.shape {
        Shape::Share(_) => device.saturating_add(node),
        Shape::Whole(_) => node,
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
        let ends = Ends { new: 1500, device: 1000, node: 1250 };
        assert_eq!(charge(&Weights::MARKET, &WANT, ends, 1000), (200 + 100) * MILLI);
        let whole = Want { shape: Shape::Whole(1), ..WANT };
        assert_eq!(charge(&Weights::MARKET, &whole, ends, 1000), 100 * MILLI, "whole devices: the node alone");
        assert_eq!(charge(&Weights::MARKET, &Want { shape: Shape::None, ..WANT }, ends, 1000), 0);
        assert_eq!(charge(&Weights::FILL, &WANT, ends, 1000), 0);
    }

    #[test]
    fn a_lease_that_ends_before_the_others_is_free_and_none_costs_more_than_the_weight() {
        let free = Ends { new: 900, device: 1000, node: 901 };
        assert_eq!(charge(&Weights::MARKET, &WANT, free, 1000), 0);
        let long = Ends { new: u64::MAX, device: 0, node: 0 };
        assert_eq!(charge(&Weights::MARKET, &WANT, long, 1), 800 * MILLI);
        assert_eq!(charge(&Weights::MARKET, &WANT, long, u64::MAX), 800 * MILLI);
        assert_eq!(charge(&Weights::MARKET, &WANT, Ends { new: 0, device: 0, node: 0 }, 0), 0);
    }
}
