//! Money. It moves only by a [`Transfer`] between pockets, so there is no way to write a line that mints it.

use alloc::collections::BTreeMap;

use borsh::{BorshDeserialize, BorshSerialize};
use selion_api::{Account, Amount};

/// Where money can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Pocket {
    /// Outside the vault: deposits come from here, claims and withdrawals go here.
    Outside = 0,
    /// A renter's deposit that nothing is promised from.
    Free(Account) = 1,
    /// Kept for the renter's live leases.
    Reserved(Account) = 2,
    /// Billed to the first account, owed to the second, not claimed yet.
    Owed(Account, Account) = 3,
    /// On its way back to the renter.
    Thawing(Account) = 4,
}

/// The only way money moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Transfer {
    /// Where it leaves.
    pub from: Pocket,
    /// Where it arrives.
    pub to: Pocket,
    /// How much.
    pub amount: Amount,
}

/// A transfer that the pocket does not hold enough for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Short {
    /// What the pocket holds.
    pub have: Amount,
}

/// The pockets. `Outside` is what came in less what went out, so the sum never changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Ledger {
    pockets: BTreeMap<Pocket, Amount>,
    inside: Amount,
}

impl Ledger {
    /// What a pocket holds; for `Outside` what the vault holds, as the log sees it.
    #[must_use]
    pub fn holds(&self, pocket: Pocket) -> Amount {
        match pocket {
            Pocket::Outside => self.inside,
            other => self.pockets.get(&other).copied().unwrap_or_default(),
        }
    }

    /// Moves money, or nothing at all.
    ///
    /// # Errors
    ///
    /// [`Short`] if `from` holds less than the amount, or a total would pass the largest amount.
    pub fn apply(&mut self, transfer: Transfer) -> Result<(), Short> {
        let Transfer { from, to, amount } = transfer;
        if from == to || amount == Amount::ZERO {
            return Ok(());
        }
        let short = Short { have: self.holds(from) };
        let inside = match (from, to) {
            (Pocket::Outside, _) => self.inside.checked_add(amount).ok_or(short)?,
            (_, Pocket::Outside) => Amount(self.inside.0.checked_sub(amount.0).ok_or(short)?),
            _ => self.inside,
        };
        if from != Pocket::Outside {
            let left = self.holds(from).0.checked_sub(amount.0).ok_or(short)?;
            if left == 0 {
                self.pockets.remove(&from);
            } else {
                self.pockets.insert(from, Amount(left));
            }
        }
        if to != Pocket::Outside {
            // Cannot overflow: no pocket holds more than `inside`, which was checked.
            let total = self.holds(to).saturating_add(amount);
            self.pockets.insert(to, total);
        }
        self.inside = inside;
        Ok(())
    }

    /// Every pocket of what is billed to `renter` and not claimed yet, by provider.
    pub fn owed_pockets(&self, renter: Account) -> impl Iterator<Item = Pocket> {
        let first = Pocket::Owed(renter, Account::ZERO);
        let last = Pocket::Owed(renter, Account([0xff; 20]));
        self.pockets.range(first..=last).map(|(pocket, _)| *pocket)
    }

    /// What is billed to `renter` and not claimed yet, over all providers.
    #[must_use]
    pub fn owed_by(&self, renter: Account) -> Amount {
        let owed = self.owed_pockets(renter);
        owed.fold(Amount::ZERO, |sum, pocket| sum.saturating_add(self.holds(pocket)))
    }

    /// Every pocket that holds something, in order.
    pub fn pockets(&self) -> impl Iterator<Item = (&Pocket, &Amount)> {
        self.pockets.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_that_a_pocket_cannot_cover_moves_nothing() {
        let renter = Account([1; 20]);
        let mut ledger = Ledger::default();
        let deposit = Transfer { from: Pocket::Outside, to: Pocket::Free(renter), amount: Amount(5) };
        assert_eq!(ledger.apply(deposit), Ok(()));
        let before = ledger.clone();
        let reserve = Transfer { from: Pocket::Free(renter), to: Pocket::Reserved(renter), amount: Amount(6) };
        assert_eq!(ledger.apply(reserve), Err(Short { have: Amount(5) }));
        assert_eq!(ledger, before);
    }
}
