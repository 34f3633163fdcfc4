//! The named weightings: which terms the score has.

use core::fmt;
use core::str::FromStr;

use borsh::{BorshDeserialize, BorshSerialize};

use super::terms::Weights;

/// How a placement is scored. Variant numbers are for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Weighting {
    /// For work that departs: fill-out value and fragmentation gradient, packing, slot and model price, lease ends.
    #[default]
    Market = 0,
    /// For work that only arrives: fill-out value, slot and model price.
    Fill = 1,
    /// Fragmentation gradient alone, as published (Weng et al., USENIX ATC 2023).
    Fgd = 2,
    /// The node with the least CPU and GPU left after it, as published with FGD.
    BestFit = 3,
    /// Any node and device on which it fits, all alike.
    Random = 4,
}

impl Weighting {
    /// Every weighting, the default first.
    pub const ALL: [Self; 5] = [Self::Market, Self::Fill, Self::Fgd, Self::BestFit, Self::Random];

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Market => "market",
            Self::Fill => "fill",
            Self::Fgd => "fgd",
            Self::BestFit => "best-fit",
            Self::Random => "random",
        }
    }

    /// The weights of its terms, of its prices and charges: all 0 where it is no sum of terms.
    #[must_use]
    pub const fn weights(self) -> Weights {
        match self {
            Self::Market => Weights::MARKET,
            Self::Fill => Weights::FILL,
            Self::Fgd | Self::BestFit | Self::Random => Weights::NONE,
        }
    }
}

impl fmt::Display for Weighting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// There is no weighting of that name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownWeighting;

impl fmt::Display for UnknownWeighting {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("no such weighting: use market, fill, fgd, best-fit or random")
    }
}

impl core::error::Error for UnknownWeighting {}

impl FromStr for Weighting {
    type Err = UnknownWeighting;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|weighting| weighting.name() == name).ok_or(UnknownWeighting)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_weighting_is_found_by_its_name_and_the_refusal_names_them_all() {
        use alloc::string::ToString;
        for weighting in Weighting::ALL {
            assert_eq!(weighting.name().parse(), Ok(weighting));
            assert!(UnknownWeighting.to_string().contains(weighting.name()), "{weighting}");
        }
        assert_eq!("Market".parse::<Weighting>(), Err(UnknownWeighting));
    }
}
