//! A fraud with a deposit: more is kept of it than there is.

use selion_api::{Amount, LeaseId};
use selion_market::{Effect, Pocket, Transfer};

use super::frauds::missing;
use super::{Book, Lie, RehearseError};

/// One deposit is promised twice: what is kept for the lease is a unit more than the renter ever paid in.
pub(super) fn over_promise(book: &Book, lease: LeaseId) -> Result<Lie, RehearseError> {
    let mut book = book.clone();
    let granted = |effect: &Effect| matches!(effect, Effect::Granted(grant) if grant.lease == lease);
    let (entry, _) = book.find(granted).ok_or_else(|| missing("grant"))?;
    let effects = book.drafts.get_mut(entry).map(|draft| &mut draft.effects).ok_or_else(|| missing("grant"))?;
    let kept = effects.iter_mut().find_map(|effect| match effect {
        Effect::Moneyed(Transfer { to: Pocket::Reserved(renter), amount, .. }) => Some((*renter, amount)),
        _ => None,
    });
    let (renter, kept) = kept.ok_or_else(|| missing("money that is kept for a lease"))?;
    let deposited = book.state.books.get(&renter).map_or(Amount::ZERO, |books| books.deposited);
    *kept = deposited.saturating_add(Amount(1));
    let planted = format!("{kept} is kept for {lease}, of a deposit of {deposited}");
    let (log, check, fraud) = (book.seal()?, "decisions_checked", "over_promise");
    let (anchors, proofs, promises) = (Vec::new(), Vec::new(), Vec::new());
    Ok(Lie { fraud, planted, check, entry: Some(entry), log, anchors, proofs, promises, chain: None })
}
