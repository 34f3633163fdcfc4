//! What must hold of what parties say: a word that was signed for another time does nothing.

use selion_api::LeaseId;
use selion_market::Input;

use super::Entry;

impl Entry<'_> {
    /// True if the entry is the word of the lease's renter that he gives it back, and that counts now.
    pub(super) fn is_released(&self, id: LeaseId) -> bool {
        let owner = self.book.leases.get(&id).map(|lease| lease.request.renter);
        matches!(self.input, Input::Release { renter, lease, said }
            if *lease == id && Some(*renter) == owner && self.book.counts(said))
    }
}
