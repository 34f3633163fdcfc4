//! The terms of a pool, which never change, and which of them should make an owner think twice.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::unit::Amount;

/// Above this a fee is worth a warning, in ten-thousandths: a fifth of what an owner earns.
const MUCH_FEE_BPS: u16 = 2_000;
/// Stake that comes back later than this is worth a warning, in seconds: 30 days.
const LONG_UNBOND_S: u32 = 30 * 86_400;
/// Renters who can withdraw sooner than this may be gone before a voucher is claimed, in seconds: an hour.
const SHORT_THAW_S: u32 = 3_600;
/// An authority that passes on leaves less than this to claim its vouchers, in seconds: an hour.
const SHORT_GRACE_S: u32 = 3_600;

/// What the pool's contracts were made with.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Terms {
    /// Operator's fee in ten-thousandths of every claim.
    pub fee_bps: u16,
    /// Least stake of a provider.
    pub min_stake: Amount,
    /// Seconds between a provider's unbonding and the return of stake.
    pub unbond_s: u32,
    /// Seconds between a renter's thaw and the withdrawal, and for which a revoked key stays claimable.
    pub thaw_s: u32,
    /// Seconds for which an old authority's vouchers stay claimable.
    pub grace_s: u32,
    /// Blocks on top that make a block final; absent: the chain's own `finalized` tag decides.
    pub finality_depth: Option<u32>,
    /// What the owner must keep at stake for what its authority signs.
    pub min_bond: Amount,
    /// Seconds between announcing another owner and its acceptance.
    pub hand_over_s: u32,
    /// Seconds of silence after which a standby may take the authority over; 0: nobody can.
    pub take_over_after_s: u32,
    /// Whether simulated GPUs may be leased.
    pub allow_simulated: bool,
    /// Whether nodes without a sandbox may be leased.
    pub allow_unsandboxed: bool,
}

impl Terms {
    /// What an owner should know before staking, a sentence each; empty where nothing stands out.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let mut all = Vec::new();
        if self.fee_bps >= 10_000 {
            all.push(String::from("the operator takes all that you earn: the fee is 100 % of every claim"));
        } else if self.fee_bps > MUCH_FEE_BPS {
            let (whole, part) = (self.fee_bps / 100, self.fee_bps % 100);
            all.push(format!("the operator takes {whole}.{part:02} % of all that you earn"));
        }
        if self.unbond_s > LONG_UNBOND_S {
            all.push(format!("your stake comes back {} after you ask for it", span(self.unbond_s)));
        }
        if self.thaw_s < SHORT_THAW_S {
            all.push(format!(
                "a renter's deposit can be gone {} after the renter asks for it: what is not claimed by then may not be paid",
                span(self.thaw_s)
            ));
        }
        if self.grace_s < SHORT_GRACE_S {
            all.push(format!(
                "when the authority changes, vouchers of the old one can be claimed for {} only",
                span(self.grace_s)
            ));
        }
        all
    }
}

/// A time in seconds as people say it: whole days, hours or minutes where it is some.
fn span(seconds: u32) -> String {
    for (unit, length) in [("day", 86_400), ("hour", 3_600), ("minute", 60)] {
        if seconds >= length && seconds.is_multiple_of(length) {
            return counted(seconds / length, unit);
        }
    }
    counted(seconds, "second")
}

fn counted(number: u32, unit: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {unit}{plural}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usual() -> Terms {
        Terms {
            fee_bps: 200,
            min_stake: Amount(1_000_000),
            unbond_s: 259_200,
            thaw_s: 259_200,
            grace_s: 259_200,
            finality_depth: None,
            min_bond: Amount(100_000_000),
            hand_over_s: 259_200,
            take_over_after_s: 86_400,
            allow_simulated: false,
            allow_unsandboxed: false,
        }
    }

    #[test]
    fn absurd_terms_are_warned_of_in_words_and_usual_ones_are_not() {
        assert!(usual().warnings().is_empty());
        let absurd =
            Terms { fee_bps: 10_000, unbond_s: 30_000 * 86_400, thaw_s: 30_000 * 86_400, grace_s: 0, ..usual() };
        assert_eq!(
            absurd.warnings(),
            [
                "the operator takes all that you earn: the fee is 100 % of every claim",
                "your stake comes back 30000 days after you ask for it",
                "when the authority changes, vouchers of the old one can be claimed for 0 seconds only",
            ]
        );
        let dear = Terms { fee_bps: 2_525, thaw_s: 1, ..usual() }.warnings();
        assert!(dear[0].contains("25.25 %") && dear[1].contains("gone 1 second after"), "{dear:?}");
    }
}
