//! The sweeper: claims signed vouchers for all providers in one transaction, so that an absent provider is paid too.

use std::collections::BTreeMap;

use selion_api::agent::SignedVoucher;
use selion_api::chain::ChainEvent;
use selion_api::commit::sha256_of;
use selion_api::{Account, Amount, TimeMs};
use selion_contracts::Pool;
use selion_market::{Input, Pocket, State};

use super::outbox::Desk;
use crate::sequencer::Step;
use crate::store::outbox::{Kind, Order};
use crate::store::{Store, signed_voucher};

/// Vouchers in one transaction at most: about 8 million gas if every pair is new.
const MOST: u32 = 200;
/// A total that a claim did not bring is tried again only after so many intervals: the contract skips what it does not
/// accept, and gas is burnt for nothing.
const PATIENCE: u64 = 10;

/// What the chain paid of a pair's total and the log has: billed and not owed any more.
#[must_use]
pub fn claimed(state: &State, renter: Account, provider: Account) -> Amount {
    let billed = state.billed.get(&(renter, provider));
    let owed = state.ledger.holds(Pocket::Owed(renter, provider));
    billed.copied().unwrap_or_default().saturating_sub(owed)
}

/// Whether an entry is a reason to claim at once: a renter wants money back.
#[must_use]
pub fn is_urgent(step: &Step) -> bool {
    let Input::Block(block) = &step.input else {
        return false;
    };
    let thaws = |event: &ChainEvent| matches!(event, ChainEvent::Thawed { .. });
    block.events.iter().any(thaws)
}

/// How urgent it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct When {
    /// How long a voucher may wait, in milliseconds.
    pub claim_ms: u64,
    /// Nothing is to wait.
    pub at_once: bool,
    /// The time.
    pub now: TimeMs,
}

/// What a pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Vouchers in the claim that was ordered.
    pub claimed: u32,
    /// True if another claim was on its way.
    pub waits: bool,
}

/// Remembers which totals it claimed.
#[derive(Default)]
pub struct Claims {
    tried: BTreeMap<(Account, Account), (Amount, TimeMs)>,
}

impl Claims {
    /// Orders one claim of everything that is signed, if the oldest waited `claim_ms` or nothing is to wait. One claim is
    /// on its way at a time.
    ///
    /// # Errors
    ///
    /// When SQLite fails.
    pub async fn pass(
        &mut self,
        store: &Store,
        read: impl Fn(&mut dyn FnMut(&State)),
        desk: &Desk,
        pool: &Pool,
        when: When,
    ) -> sqlx::Result<Report> {
        let When { claim_ms, at_once, now } = when;
        for kept in signed_voucher::unclaimed(&store.readers, u32::MAX).await? {
            let (renter, provider) = (kept.voucher.renter, kept.voucher.provider);
            let mut paid = Amount::ZERO;
            read(&mut |state| paid = claimed(state, renter, provider));
            if paid > kept.claimed {
                signed_voucher::mark_claimed(&store.writer, renter, provider, paid).await?;
            }
        }
        if desk.pending(Kind::Claim).await?.is_some() {
            return Ok(Report { claimed: 0, waits: true });
        }
        if let Some(failed) = desk.failed(Kind::Claim).await? {
            if !at_once && now.since(failed.created) < claim_ms {
                return Ok(Report::default());
            }
            self.tried.clear();
        }
        let mut waits = signed_voucher::unclaimed(&store.writer, MOST).await?;
        waits.retain(|kept| {
            let pair = (kept.voucher.renter, kept.voucher.provider);
            let again = claim_ms.saturating_mul(PATIENCE);
            let tried = self.tried.get(&pair);
            at_once || tried.is_none_or(|(total, at)| *total < kept.voucher.cumulative || now.since(*at) >= again)
        });
        let oldest = waits.iter().filter_map(|kept| kept.unclaimed_since).min();
        if !oldest.is_some_and(|since| at_once || now.since(since) >= claim_ms) {
            return Ok(Report::default());
        }
        let vouchers: Vec<SignedVoucher> = waits.into_iter().map(|kept| kept.voucher).collect();
        let call = pool.claim_many(&vouchers);
        let order = Order {
            kind: Kind::Claim,
            subject: sha256_of(&vouchers).to_string(),
            target: call.to,
            calldata: call.data,
        };
        desk.order(&order, now).await?;
        for voucher in &vouchers {
            let pair = (voucher.renter, voucher.provider);
            self.tried.insert(pair, (voucher.cumulative, now));
        }
        Ok(Report { claimed: u32::try_from(vouchers.len()).unwrap_or(u32::MAX), waits: false })
    }
}
