//! When the terms are built anew: often at first, then at a period that grows with the fleet.

use borsh::{BorshDeserialize, BorshSerialize};

/// Arrivals between price refreshes.
pub const PRICES: u64 = 64;
/// Arrivals between epochs of a fleet of up to [`NODES`] nodes, at first.
pub const PERIOD: u64 = 512;
/// From here on the period grows with the square of the nodes: an epoch costs as much as there are nodes, and its share
/// of an arrival must fall as decisions become many.
pub const NODES: u64 = 1024;
/// After so many periods the mix is known: from then on only every eighth begins an epoch.
const KNOWN: u64 = 32;
const RARELY: u64 = 8;

/// Counts arrivals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Epochs {
    arrivals: u64,
}

/// What is due after an arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// A new epoch has begun: every score is void.
    pub epoch: bool,
    /// The prices are new: offsets of groups changed, scores did not.
    pub prices: bool,
}

impl Epochs {
    /// Counts one arrival at a fleet of `nodes`. Epochs begin at arrivals 1, 2, 4 .. 64, then at 512, 1,024 and so on
    /// doubling until the fleet's period, then once a period, and after 32 periods once in eight.
    pub fn arrive(&mut self, nodes: usize) -> Tick {
        self.arrivals = self.arrivals.saturating_add(1);
        let (count, period) = (self.arrivals, period(nodes));
        let early = count.is_power_of_two() && (count <= PRICES || (count >= PERIOD && count < period));
        let step = if count > period.saturating_mul(KNOWN) { period.saturating_mul(RARELY) } else { period };
        let epoch = early || count.is_multiple_of(step);
        Tick { epoch, prices: epoch || count.is_multiple_of(PRICES) }
    }
}

/// Arrivals between epochs of a fleet of `nodes`.
#[must_use]
pub fn period(nodes: usize) -> u64 {
    let times = (nodes as u64 / NODES).max(1);
    PERIOD.saturating_mul(times.saturating_mul(times))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn epochs(nodes: usize, arrivals: u64) -> Vec<u64> {
        let mut epochs = Epochs::default();
        (1..=arrivals).filter(|_| epochs.arrive(nodes).epoch).collect()
    }

    #[test]
    fn a_small_fleet_has_an_epoch_every_512_arrivals_after_the_first_64() {
        assert_eq!(epochs(1213, 2048), [1, 2, 4, 8, 16, 32, 64, 512, 1024, 1536, 2048]);
    }

    #[test]
    fn a_large_fleet_has_fewer() {
        assert_eq!(epochs(3 * 1024, 9500), [1, 2, 4, 8, 16, 32, 64, 512, 1024, 2048, 4096, 4608, 9216]);
    }

    #[test]
    fn a_known_mix_is_looked_at_rarely() {
        let late: Vec<u64> = epochs(1, 30_000).into_iter().filter(|&at| at > 15_000).collect();
        assert_eq!(late, [15_360, 15_872, 16_384, 20_480, 24_576, 28_672]);
    }

    #[test]
    fn prices_are_new_every_64_arrivals_and_at_every_epoch() {
        let mut epochs = Epochs::default();
        let due: Vec<u64> = (1..=192).filter(|_| epochs.arrive(1).prices).collect();
        assert_eq!(due, [1, 2, 4, 8, 16, 32, 64, 128, 192]);
    }
}
