//! A log that breaks its rules, shown by a piece of itself: consecutive entries with all their effects, and what stands beside
//! them on the way to a head that the authority signed. Whoever has the file, the pool and the authority's address can
//! check it, with no chain and no other part of the log at hand. No court takes it.

mod before;
mod walks;

use selion_api::agent::SignedHead;
use selion_api::commit::PoolId;
use selion_api::rest::LoggedEntry;
use selion_api::{Account, Hash32, LeaseId};
use selion_contracts::court::Stated;
use selion_contracts::signer::recover_text;
use selion_log::{Entry, beside, leaf_hash, root, root_with};
use selion_market::input::RULES;
use selion_market::{Input, State};
use serde::{Deserialize, Serialize};

use crate::entries::Item;
use crate::evidence::{NoEvidence, Under};
pub use before::Before;
use walks::{DoubleLeases, OverBills, OverPromises, OverVouchers, Walk};

/// What a log may not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Offence {
    /// One place to two leases at once.
    DoubleLease {
        /// Who had it.
        one: LeaseId,
        /// Who was given it as well.
        other: LeaseId,
    },
    /// A bill that is not the ask times the time, of more time than the node signed for or than there was, or a second one.
    OverBill {
        /// The lease.
        lease: LeaseId,
        /// Its run.
        attempt: u32,
        /// Rank of the member.
        member: u16,
    },
    /// A voucher's total that is not what was billed, or a claim on chain above it.
    OverVoucher {
        /// Who pays.
        renter: Account,
        /// Who earns.
        provider: Account,
    },
    /// More of a renter's deposit was kept, owed or free than he had.
    OverPromise {
        /// Whose deposit.
        renter: Account,
    },
}

/// A published entry without its head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cut {
    /// Its canonical bytes, in hex.
    pub entry: String,
    /// Leaves of all its effects, in hex.
    pub effects: Vec<String>,
}

/// An offence and the entries that show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Breach {
    /// The pool.
    pub pool: PoolId,
    /// What the log did.
    pub offence: Offence,
    /// A head over all of the entries.
    pub head: SignedHead,
    /// Number of the first entry.
    pub first: u64,
    /// The entries, without a gap.
    pub entries: Vec<Cut>,
    /// See [`selion_log::beside`].
    pub beside: Vec<Hash32>,
    /// What the authority itself says there was before the first entry, where more than the entries is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Before>,
}

/// Why a file shows no offence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the file shows nothing: {0}")]
pub struct ShowsNothing(String);

/// The first offence of each kind in a log, each with the entries that show it.
///
/// # Errors
///
/// [`NoEvidence::NoBreach`] if there is none; if there is none that can be shown, [`NoEvidence`] says that the log is damaged, or
/// that no head covers what it did.
pub fn breaches(pool: &PoolId, published: &[LoggedEntry]) -> Result<Vec<Breach>, NoEvidence> {
    let kinds: [fn(&Offence) -> bool; 4] = [
        |offence| matches!(offence, Offence::DoubleLease { .. }),
        |offence| matches!(offence, Offence::OverBill { .. }),
        |offence| matches!(offence, Offence::OverVoucher { .. }),
        |offence| matches!(offence, Offence::OverPromise { .. }),
    ];
    let (mut found, mut none) = (Vec::new(), NoEvidence::NoBreach(published.len() as u64));
    for kind in kinds {
        match breach(pool, published, kind) {
            Ok(breach) => found.extend(breach),
            Err(why) => none = why,
        }
    }
    if found.is_empty() { Err(none) } else { Ok(found) }
}

/// The first offence in a log for which `which` is true, with the entries that show it, if there is one.
///
/// # Errors
///
/// [`NoEvidence`] if the log is damaged, or no head covers the offence.
pub fn breach(
    pool: &PoolId,
    published: &[LoggedEntry],
    which: impl Fn(&Offence) -> bool,
) -> Result<Option<Breach>, NoEvidence> {
    let mut walks = all(pool, Some(&State::new()), &which);
    let mut across = None;
    for logged in published {
        let item = item(logged.seq, &logged.entry, &logged.effects).map_err(|_| NoEvidence::Damaged(logged.seq))?;
        let found = walks.iter_mut().flat_map(|walk| walk.take(&item)).filter(|found| which(&found.offence));
        for found in found {
            match cut(pool, published, found.offence, (found.from, &item)) {
                Err(NoEvidence::AcrossEpochs(seq)) => across = across.or(Some(seq)),
                cut => return cut.map(Some),
            }
        }
    }
    across.map_or(Ok(None), |seq| Err(NoEvidence::AcrossEpochs(seq)))
}

/// All that is looked for. `before`: State before the first entry, if it is known. `wanted`: of which double leases are told.
fn all<'a>(pool: &PoolId, before: Option<&State>, wanted: &'a dyn Fn(&Offence) -> bool) -> [Box<dyn Walk + 'a>; 4] {
    let whole = before.is_some_and(|state| state.next_seq == 0);
    [
        Box::new(DoubleLeases::new(wanted)),
        Box::new(OverBills::new(pool, whole)),
        Box::new(OverVouchers::new(whole)),
        Box::new(OverPromises::new(before)),
    ]
}

/// The entries from `from` to the last one, under the newest head of the epoch in which all of them were written.
fn cut(
    pool: &PoolId,
    published: &[LoggedEntry],
    offence: Offence,
    (from, last): (u64, &Item),
) -> Result<Breach, NoEvidence> {
    let damaged = NoEvidence::Damaged(last.seq);
    let Under { head: Stated::Head(head), leaves } = Under::read(published, last.seq, last.entry.fence.epoch)? else {
        return Err(damaged);
    };
    let before = match offence {
        Offence::OverPromise { .. } => Before::of(published, last)?,
        _ => None,
    };
    let from = before.as_ref().map_or(from, |before| before.head.head.size);
    let range = usize::try_from(from).ok().zip(usize::try_from(last.seq + 1).ok()).map(|(from, to)| from..to);
    let Some((range, entries)) = range.and_then(|range| Some((range.clone(), published.get(range)?))) else {
        return Err(damaged);
    };
    let first = entries.first().and_then(|first| item(first.seq, &first.entry, &first.effects).ok());
    if first.ok_or(damaged)?.entry.fence.epoch != last.entry.fence.epoch {
        return Err(NoEvidence::AcrossEpochs(last.seq));
    }
    let beside = beside(&leaves, range.start, range.end);
    let entries = entries.iter().map(|one| Cut { entry: one.entry.clone(), effects: one.effects.clone() }).collect();
    Ok(Breach { pool: *pool, offence, head, first: from, entries, beside, before })
}

/// An entry with its effects, which have to be the entry's.
fn item(seq: u64, entry: &str, effects: &[String]) -> Result<Item, String> {
    let bytes = hex::decode(entry).map_err(|error| format!("entry {seq} is not hex: {error}"))?;
    let read = Entry::read(&bytes).map_err(|error| format!("entry {seq}: {error}"))?;
    if read.seq != seq {
        return Err(format!("entry {seq} calls itself entry {}", read.seq));
    }
    if read.rules != RULES {
        return Err(format!(
            "entry {seq} is under rules {}, this release judges rules {RULES}: use the release that names them",
            read.rules
        ));
    }
    let input: Input =
        borsh::from_slice(&read.input).map_err(|error| format!("the input of entry {seq} does not decode: {error}"))?;
    let effects: Result<Vec<Vec<u8>>, _> = effects.iter().map(hex::decode).collect();
    let effects = effects.map_err(|error| format!("an effect of entry {seq} is not hex: {error}"))?;
    let leaves: Vec<Hash32> = effects.iter().map(|effect| leaf_hash(effect)).collect();
    if root(&leaves) != read.effects_root {
        return Err(format!("the effects of entry {seq} are not those that it commits to"));
    }
    Ok(Item { seq, leaf: leaf_hash(&bytes), entry: read, input, effects, head: None })
}

/// That the authority signed the head, or who did.
fn is_signed(pool: &PoolId, head: &SignedHead, authority: Account) -> Result<(), String> {
    let by = recover_text(&head.head.digest_to_sign(pool).0, &head.signature);
    if by == Some(authority) {
        return Ok(());
    }
    let by = by.map_or_else(|| "nobody".to_owned(), |by| by.to_string());
    Err(format!("its head of {} entries is signed by {by}, not by {authority}", head.head.size))
}

impl Breach {
    /// What the authority's log did, in words, if it did: all entries are in a log that `authority` signed for the pool, and
    /// they show the offence by themselves. What the offence needs was entered in the head's epoch: who signs for what others
    /// entered before him did none of it.
    ///
    /// # Errors
    ///
    /// [`ShowsNothing`] with the first thing that does not fit.
    pub fn verify(&self, authority: Account) -> Result<String, ShowsNothing> {
        let head = &self.head.head;
        is_signed(&self.pool, &self.head, authority).map_err(ShowsNothing)?;
        let Some(to) = self.first.checked_add(self.entries.len() as u64) else {
            return Err(ShowsNothing(format!(
                "no log has {} entries from number {} on",
                self.entries.len(),
                self.first
            )));
        };
        let numbered = (self.first..to).zip(&self.entries);
        let items = numbered.map(|(seq, cut)| item(seq, &cut.entry, &cut.effects));
        let items = items.collect::<Result<Vec<_>, _>>().map_err(ShowsNothing)?;
        let leaves: Vec<Hash32> = items.iter().map(|item| item.leaf).collect();
        if root_with(&leaves, self.first, head.size, &self.beside) != Some(head.root) {
            return Err(ShowsNothing(format!("its entries are not those under the head of {} entries", head.size)));
        }
        let before = match &self.before {
            Some(before) => Some(before.read(self, authority).map_err(ShowsNothing)?),
            None => (self.first == 0).then(State::new),
        };
        let wanted = |offence: &Offence| *offence == self.offence;
        let mut walks = all(&self.pool, before.as_ref(), &wanted);
        let found = items.iter().flat_map(|item| {
            let found = walks.iter_mut().flat_map(|walk| walk.take(item)).filter(|found| wanted(&found.offence));
            found.map(|found| (item.seq, found)).collect::<Vec<_>>()
        });
        let mut why = "its entries break no rule in that way".to_owned();
        for (seq, found) in found {
            if [found.from, seq].iter().all(|seq| epoch_of(&items, self.first, *seq) == Some(head.fence.epoch)) {
                return Ok(found.why);
            }
            why = format!(
                "not all that breaks the rule was entered in epoch {}, whose authority signed it",
                head.fence.epoch
            );
        }
        Err(ShowsNothing(why))
    }
}

/// The epoch in which an entry was written.
fn epoch_of(items: &[Item], first: u64, seq: u64) -> Option<u32> {
    let at = usize::try_from(seq.checked_sub(first)?).ok()?;
    items.get(at).map(|item| item.entry.fence.epoch)
}

#[cfg(test)]
mod tests;
