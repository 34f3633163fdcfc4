//! What is promised to providers, and whether the money for it can leave: `docs/adr/0026-money-that-follows.md`.
//!
//! A promise is what was billed between a renter and a provider and was not claimed. It stays while a voucher for it may be
//! claimed, also when its money left the vault before that. New money fills such promises first. Then it makes good what is
//! to thaw, and only what is left is free.

use alloc::vec::Vec;

use selion_api::{Account, Amount, LeaseId, TimeMs};

use crate::ledger::Pocket;
use crate::state::State;
use crate::step::Step;

/// Promises that the vault cannot pay, all of a renter together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overpromised {
    /// Billed and not claimed.
    pub promised: Amount,
    /// What of the renter's deposit cannot leave before that.
    pub covered: Amount,
}

impl State {
    /// What is promised to each provider of a renter, in order.
    fn promises(&self, renter: Account) -> impl Iterator<Item = (Account, Amount)> {
        let pairs = self.billed.range((renter, Account::ZERO)..=(renter, Account([0xff; 20])));
        pairs.map(|(pair, billed)| {
            let claimed = self.claimed.get(pair).copied().unwrap_or_default();
            (pair.1, billed.saturating_sub(claimed))
        })
    }

    /// What is promised to a provider and does not lie in its pocket.
    fn missing(&self, renter: Account, provider: Account, promise: Amount) -> Amount {
        promise.saturating_sub(self.ledger.holds(Pocket::Owed(renter, provider)))
    }

    /// What a renter is billed for and nobody claimed, over all providers.
    #[must_use]
    pub fn promised(&self, renter: Account) -> Amount {
        self.promises(renter).fold(Amount::ZERO, |sum, (_, promise)| sum.saturating_add(promise))
    }

    /// What of a renter's promises has no money any more, because that left the vault.
    #[must_use]
    pub fn unfunded(&self, renter: Account) -> Amount {
        let missing = self.promises(renter).map(|(provider, promise)| self.missing(renter, provider, promise));
        missing.fold(Amount::ZERO, Amount::saturating_add)
    }

    /// Whether all that is promised of a renter's deposit can be claimed: it fits in what is in the vault, less what thaws
    /// once that may leave. Until then what thaws can be claimed, and what runs on it has stopped in time for that. `now`: the log
    /// may have been quiet since its last entry.
    ///
    /// # Errors
    ///
    /// [`Overpromised`]: no total of this renter may rise until it fits again.
    pub fn may_promise(&self, renter: Account, now: TimeMs) -> Result<(), Overpromised> {
        let books = self.books.get(&renter).copied().unwrap_or_default();
        let balance = books.deposited.saturating_sub(books.claimed).saturating_sub(books.withdrawn);
        let leaving = if self.now.max(now) < books.ready { Amount::ZERO } else { books.thawing };
        let (promised, covered) = (self.promised(renter), balance.saturating_sub(leaving));
        if promised > covered { Err(Overpromised { promised, covered }) } else { Ok(()) }
    }

    /// While more thaws than is free, until when the renter's leases are paid: as long before the money may leave as their
    /// last vouchers take to be claimed.
    fn paid_until(&self, renter: Account) -> Option<TimeMs> {
        let books = self.books.get(&renter)?;
        let short = books.thawing > self.ledger.holds(Pocket::Thawing(renter));
        short.then(|| TimeMs(books.ready.0.saturating_sub(self.policy.claim_margin_ms)))
    }
}

impl Step<'_> {
    /// Puts a renter's free money where it is missing: into promises whose money left, then on its way back, as much as the
    /// chain says is thawing. Tells his leases until when they are paid.
    pub(crate) fn apportion(&mut self, renter: Account) {
        let asked = self.state.books.get(&renter).map_or(Amount::ZERO, |books| books.thawing);
        let (free, ice) = (Pocket::Free(renter), Pocket::Thawing(renter));
        let too_much = self.state.ledger.holds(ice).saturating_sub(asked);
        self.transfer_up_to(ice, free, too_much);
        if self.state.ledger.holds(free) > Amount::ZERO {
            let missing = self.state.promises(renter);
            let missing = missing.map(|(provider, promise)| (provider, self.state.missing(renter, provider, promise)));
            let missing: Vec<_> = missing.filter(|(_, amount)| *amount > Amount::ZERO).collect();
            for (provider, amount) in missing {
                self.transfer_up_to(free, Pocket::Owed(renter, provider), amount);
            }
        }
        let too_little = asked.saturating_sub(self.state.ledger.holds(ice));
        self.transfer_up_to(free, ice, too_little);
        self.heed_money(renter);
    }

    /// Works out again until when a renter's leases are paid.
    pub(crate) fn heed_money(&mut self, renter: Account) {
        let by = self.state.paid_until(renter);
        let Some(books) = self.state.books.get_mut(&renter).filter(|books| books.paid_until != by) else {
            return;
        };
        books.paid_until = by;
        for id in self.leases_of(renter) {
            self.heed(id);
        }
    }

    /// All leases of a renter that State has.
    pub(crate) fn leases_of(&self, renter: Account) -> Vec<LeaseId> {
        let leases = self.state.leases.iter();
        leases.filter(|(_, lease)| lease.request.renter == renter).map(|(id, _)| *id).collect()
    }
}
