//! What a pool's court needs to punish an authority, out of a log as it was published.

use std::collections::BTreeMap;

use selion_api::agent::{Shown, SignedHead, SignedPromise};
use selion_api::rest::LoggedEntry;
use selion_api::slice::WHOLE_PERMILLE;
use selion_api::{Hash32, LeaseId};
use selion_log::{Entry, inclusion, leaf_hash, root, shown};
use selion_market::Effect;

use crate::effects::{GrantSeen, Place, Run, Seen};
use crate::grants::overlap;

/// A leaf under a signed head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stands {
    /// The head.
    pub head: SignedHead,
    /// Leaf of the entry that stands there.
    pub leaf: Hash32,
    /// RFC 9162 §2.1.3: from that leaf to the head's root.
    pub path: Vec<Hash32>,
}

/// Why a log shows no offence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoEvidence {
    /// The promise is kept.
    #[error("the promise is kept: entry {0} of this log is the promised one")]
    Kept(u64),
    /// No head of the epoch covers the entry.
    #[error(
        "no signed head of epoch {epoch} in this log covers entry {seq}: there is nothing to hold against anybody yet"
    )]
    NotCovered {
        /// Which entry.
        seq: u64,
        /// Which epoch.
        epoch: u32,
    },
    /// The log is not what its heads cover.
    #[error("entry {0} of this log does not belong to its signed heads: get the log again, or `selion audit` it")]
    Damaged(u64),
    /// Two logs are one.
    #[error("the logs are the same as far as both go, {0} entries: there is no fork")]
    NoFork(u64),
    /// Two logs differ where no one signed both.
    #[error(
        "the logs differ from entry {0} on, but no epoch signed heads over that entry in both: nobody contradicts himself"
    )]
    NobodySignedBoth(u64),
    /// Two leases never had the same place.
    #[error("{one} and {other} never held the same place without a release between them in this log")]
    NoDoubleLease {
        /// A lease.
        one: LeaseId,
        /// Another.
        other: LeaseId,
    },
}

/// The entries under the newest head of an epoch.
struct Under {
    head: SignedHead,
    leaves: Vec<Hash32>,
}

impl Under {
    fn read(published: &[LoggedEntry], seq: u64, epoch: u32) -> Result<Self, NoEvidence> {
        let covers = |head: &SignedHead| head.head.fence.epoch == epoch && head.head.size > seq;
        let head = published.iter().rev().find_map(|entry| entry.head.filter(covers));
        let head = head.ok_or(NoEvidence::NotCovered { seq, epoch })?;
        let under = published.iter().take_while(|entry| entry.seq < head.head.size);
        let leaves = under.map(leaf).collect::<Result<Vec<_>, _>>()?;
        match root(&leaves) == head.head.root && leaves.len() as u64 == head.head.size {
            true => Ok(Self { head, leaves }),
            false => Err(NoEvidence::Damaged(seq)),
        }
    }

    fn path(&self, seq: u64) -> Vec<Hash32> {
        inclusion(&self.leaves, usize::try_from(seq).unwrap_or(usize::MAX))
    }

    fn stands(&self, seq: u64) -> Result<Stands, NoEvidence> {
        let leaf = usize::try_from(seq).ok().and_then(|at| self.leaves.get(at)).ok_or(NoEvidence::Damaged(seq))?;
        Ok(Stands { head: self.head, leaf: *leaf, path: self.path(seq) })
    }
}

fn leaf(entry: &LoggedEntry) -> Result<Hash32, NoEvidence> {
    hex::decode(&entry.entry).map(|bytes| leaf_hash(&bytes)).map_err(|_| NoEvidence::Damaged(entry.seq))
}

/// What in this log contradicts a promise.
///
/// # Errors
///
/// [`NoEvidence`] if nothing does.
pub fn against(published: &[LoggedEntry], promise: &SignedPromise) -> Result<Stands, NoEvidence> {
    let seq = promise.promise.seq;
    let found = Under::read(published, seq, promise.promise.fence.epoch)?.stands(seq)?;
    if found.leaf == promise.promise.leaf { Err(NoEvidence::Kept(seq)) } else { Ok(found) }
}

/// The first entry that one epoch signed differently in two logs, and how it stands in each.
///
/// # Errors
///
/// [`NoEvidence`] if there is none.
pub fn fork(one: &[LoggedEntry], other: &[LoggedEntry]) -> Result<(u64, Stands, Stands), NoEvidence> {
    let differs = one.iter().zip(other).find(|(one, other)| one.entry != other.entry);
    let Some((first, _)) = differs else {
        return Err(NoEvidence::NoFork(one.len().min(other.len()) as u64));
    };
    let seq = first.seq;
    let heads = one.iter().rev().filter_map(|entry| entry.head).filter(|head| head.head.size > seq);
    for head in heads {
        let epoch = head.head.fence.epoch;
        match (Under::read(one, seq, epoch), Under::read(other, seq, epoch)) {
            (Ok(one), Ok(other)) => return Ok((seq, one.stands(seq)?, other.stands(seq)?)),
            (Err(damaged @ NoEvidence::Damaged(_)), _) | (_, Err(damaged @ NoEvidence::Damaged(_))) => {
                return Err(damaged);
            }
            _ => {}
        }
    }
    Err(NoEvidence::NobodySignedBoth(seq))
}

/// A grant where it stands in the log.
struct Given {
    seq: u64,
    index: usize,
    grant: GrantSeen,
}

/// Two grants of one place to two leases, the earlier not freed before the later, under one head.
///
/// # Errors
///
/// [`NoEvidence`] if there is no such pair.
pub fn double_lease(
    published: &[LoggedEntry],
    one: LeaseId,
    other: LeaseId,
) -> Result<(SignedHead, Shown, Shown), NoEvidence> {
    let mut live: BTreeMap<Run, Vec<Given>> = BTreeMap::new();
    for logged in published {
        for (index, leaf) in effects(logged)?.iter().enumerate() {
            match Seen::read(leaf) {
                Some(Seen::Grant(grant)) if grant.run.0 == one || grant.run.0 == other => {
                    let clashes = |given: &&Given| given.grant.run.0 != grant.run.0 && clash(&given.grant, &grant);
                    if let Some(earlier) = live.values().flatten().find(clashes) {
                        let entry = read(logged)?;
                        let under = Under::read(published, logged.seq, entry.fence.epoch)?;
                        let first = show(published, &under, earlier.seq, earlier.index)?;
                        return Ok((under.head, first, show(published, &under, logged.seq, index)?));
                    }
                    live.entry(grant.run).or_default().push(Given { seq: logged.seq, index, grant });
                }
                Some(Seen::Other(effect)) => {
                    if let Effect::Freed { lease, attempt, member } = *effect {
                        live.remove(&(lease, attempt, member));
                    }
                }
                _ => {}
            }
        }
    }
    Err(NoEvidence::NoDoubleLease { one, other })
}

/// Whether the court takes two grants for one place: what a share beside a MIG instance means, it cannot tell.
fn clash(one: &GrantSeen, other: &GrantSeen) -> bool {
    let places = match (one.place, other.place) {
        (Place::Share { permille: a, .. }, Place::Share { permille: b, .. }) => a + b > u64::from(WHOLE_PERMILLE),
        (Place::Share { .. }, Place::Mig { .. }) | (Place::Mig { .. }, Place::Share { .. }) => false,
        (a, b) => overlap(a, b),
    };
    places && (one.node, one.gpu) == (other.node, other.gpu)
}

fn read(logged: &LoggedEntry) -> Result<Entry, NoEvidence> {
    let bytes = hex::decode(&logged.entry).ok();
    bytes.and_then(|bytes| Entry::read(&bytes).ok()).ok_or(NoEvidence::Damaged(logged.seq))
}

fn effects(logged: &LoggedEntry) -> Result<Vec<Vec<u8>>, NoEvidence> {
    let leaves: Result<Vec<_>, _> = logged.effects.iter().map(hex::decode).collect();
    leaves.map_err(|_| NoEvidence::Damaged(logged.seq))
}

fn show(published: &[LoggedEntry], under: &Under, seq: u64, index: usize) -> Result<Shown, NoEvidence> {
    let logged = usize::try_from(seq).ok().and_then(|at| published.get(at)).ok_or(NoEvidence::Damaged(seq))?;
    let effects = effects(logged)?;
    shown(read(logged)?.bytes(), under.path(seq), &effects, index).ok_or(NoEvidence::Damaged(seq))
}

#[cfg(test)]
mod tests {
    use selion_api::agent::{Fence, Head, Promise};
    use selion_api::{Account, Signature};
    use selion_log::{root, verify_inclusion};

    use super::*;

    const FENCE: Fence = Fence { epoch: 1, term: 1 };

    fn log(entries: [u8; 3]) -> Vec<LoggedEntry> {
        let leaves = entries.map(|byte| leaf_hash(&[byte]));
        let head =
            |size: usize| Head { size: size as u64, root: root(&leaves[..size]), digest: Hash32::ZERO, fence: FENCE };
        let logged = |(at, byte): (usize, u8)| LoggedEntry {
            seq: at as u64,
            entry: hex::encode([byte]),
            effects: Vec::new(),
            head: Some(SignedHead { head: head(at + 1), signature: Signature([0; 65]) }),
        };
        entries.into_iter().enumerate().map(logged).collect()
    }

    fn promise(seq: u64, byte: u8) -> SignedPromise {
        let promise = Promise { account: Account([1; 20]), seq, leaf: leaf_hash(&[byte]), fence: FENCE };
        SignedPromise { promise, signature: Signature([0; 65]) }
    }

    #[test]
    fn another_entry_at_a_promised_place_is_evidence_with_its_path_to_the_newest_head() {
        let found = against(&log([10, 11, 12]), &promise(1, 99)).unwrap();
        assert_eq!((found.head.head.size, found.leaf), (3, leaf_hash(&[11])));
        assert!(verify_inclusion(&found.leaf, 1, 3, &found.path, &found.head.head.root));
    }

    #[test]
    fn a_promise_that_is_kept_or_not_covered_is_none_and_so_is_a_damaged_copy() {
        assert_eq!(against(&log([10, 11, 12]), &promise(1, 11)), Err(NoEvidence::Kept(1)));
        assert_eq!(against(&log([10, 11, 12]), &promise(3, 11)), Err(NoEvidence::NotCovered { seq: 3, epoch: 1 }));
        let mut copy = log([10, 11, 12]);
        copy[0].entry = hex::encode([77]);
        assert_eq!(against(&copy, &promise(1, 99)), Err(NoEvidence::Damaged(1)));
    }

    #[test]
    fn two_logs_of_one_signer_are_a_fork_where_they_part_and_none_where_they_do_not() {
        let (index, one, other) = fork(&log([10, 11, 12]), &log([10, 99, 12])).unwrap();
        assert_eq!((index, one.leaf, other.leaf), (1, leaf_hash(&[11]), leaf_hash(&[99])));
        for stands in [&one, &other] {
            assert!(verify_inclusion(&stands.leaf, 1, 3, &stands.path, &stands.head.head.root));
        }
        assert_eq!(fork(&log([10, 11, 12]), &log([10, 11, 12])[..2]), Err(NoEvidence::NoFork(2)));
        let mut later = log([10, 99, 12]);
        for entry in &mut later {
            entry.head.as_mut().unwrap().head.fence.epoch = 2;
        }
        assert_eq!(fork(&log([10, 11, 12]), &later), Err(NoEvidence::NobodySignedBoth(1)));
    }
}
