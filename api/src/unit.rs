//! Units live in types: time in milliseconds UTC, money in token base units. Never a float.

use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use borsh::{BorshDeserialize, BorshSerialize};

use crate::id::{BadId, text_on_the_wire};

/// Milliseconds in an hour: rates are per hour, meters count milliseconds.
pub const MS_PER_HOUR: u64 = 3_600_000;

/// Milliseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema), serde(transparent))]
pub struct TimeMs(pub u64);

impl TimeMs {
    /// This time and `ms` milliseconds; stays at the end of time rather than wrap.
    #[must_use]
    pub fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this time; 0 if it is not earlier.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

macro_rules! money {
    ($(#[$doc:meta])* $name:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
        pub struct $name(pub u64);

        impl $name {
            /// Nothing.
            pub const ZERO: Self = Self(0);

            /// The sum, or `None` where it does not fit.
            #[must_use]
            pub fn checked_add(self, other: Self) -> Option<Self> {
                self.0.checked_add(other.0).map(Self)
            }

            /// The difference, not below zero.
            #[must_use]
            pub fn saturating_sub(self, other: Self) -> Self {
                Self(self.0.saturating_sub(other.0))
            }

            /// The sum, stopping at the largest value.
            #[must_use]
            pub fn saturating_add(self, other: Self) -> Self {
                Self(self.0.saturating_add(other.0))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }

        impl FromStr for $name {
            type Err = BadId;
            fn from_str(text: &str) -> Result<Self, BadId> {
                let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
                digits.then(|| text.parse().ok()).flatten().map(Self).ok_or_else(|| BadId {
                    text: String::from(text),
                    what: $what,
                })
            }
        }

        text_on_the_wire!($name, $what, "^([0-9]{1,19}|1[0-7][0-9]{18}|18446744073709551615)$");
    };
}

money!(
    /// Token base units (millionths of the pool's token).
    Amount, "an amount: whole token base units as a decimal string"
);
money!(
    /// Token base units an hour, of one slice.
    Rate, "a rate: whole token base units per hour as a decimal string"
);

impl Rate {
    /// What `ms` milliseconds at this rate cost: `floor(rate * ms / 3_600_000)`, stopping at the largest amount.
    #[must_use]
    pub fn bill(self, ms: u64) -> Amount {
        let exact = u128::from(self.0) * u128::from(ms) / u128::from(MS_PER_HOUR);
        Amount(u64::try_from(exact).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bill_is_rounded_down_to_a_whole_unit() {
        assert_eq!(Rate(3_600_000).bill(1), Amount(1));
        assert_eq!(Rate(3_599_999).bill(1), Amount(0));
        assert_eq!(Rate(1_000_000).bill(90_000), Amount(25_000));
        assert_eq!(Rate(u64::MAX).bill(u64::MAX), Amount(u64::MAX));
    }

    #[test]
    fn money_is_whole_digits_and_nothing_else() {
        for text in ["-1", "+1", "1.0", "", " 1", "1e3", "18446744073709551616"] {
            assert!(text.parse::<Amount>().is_err(), "{text:?}");
        }
        assert_eq!("18446744073709551615".parse(), Ok(Amount(u64::MAX)));
    }
}
