//! What a pool's court needs to punish an authority, out of a log as it was published.

use selion_api::Hash32;
use selion_api::agent::{SignedHead, SignedPromise};
use selion_api::rest::LoggedEntry;
use selion_log::{inclusion, leaf_hash, verify_inclusion};

/// A signed head of a log with another entry where one was promised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// Signed by the authority that promised.
    pub head: SignedHead,
    /// Leaf of the entry that stands there.
    pub leaf: Hash32,
    /// RFC 9162 §2.1.3: from that leaf to the head's root.
    pub path: Vec<Hash32>,
}

/// Why a log shows no broken promise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoEvidence {
    /// The promise is kept.
    #[error("the promise is kept: entry {0} of this log is the promised one")]
    Kept(u64),
    /// No head of the promise's epoch covers the entry.
    #[error(
        "no signed head of epoch {epoch} in this log covers entry {seq}: there is nothing to hold against the promise yet"
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
}

/// What in this log contradicts a promise.
///
/// # Errors
///
/// [`NoEvidence`] if nothing does.
pub fn against(published: &[LoggedEntry], promise: &SignedPromise) -> Result<Contradiction, NoEvidence> {
    let (seq, epoch) = (promise.promise.seq, promise.promise.fence.epoch);
    let covers = |head: &SignedHead| head.head.fence.epoch == epoch && head.head.size > seq;
    let head = published.iter().rev().find_map(|entry| entry.head.filter(covers));
    let head = head.ok_or(NoEvidence::NotCovered { seq, epoch })?;
    let mut leaves = Vec::new();
    for entry in published.iter().take_while(|entry| entry.seq < head.head.size) {
        let bytes = hex::decode(&entry.entry).map_err(|_| NoEvidence::Damaged(entry.seq))?;
        leaves.push(leaf_hash(&bytes));
    }
    let at = usize::try_from(seq).unwrap_or(usize::MAX);
    let leaf = *leaves.get(at).ok_or(NoEvidence::Damaged(seq))?;
    let path = inclusion(&leaves, at);
    if !verify_inclusion(&leaf, seq, head.head.size, &path, &head.head.root) {
        return Err(NoEvidence::Damaged(seq));
    }
    if leaf == promise.promise.leaf {
        return Err(NoEvidence::Kept(seq));
    }
    Ok(Contradiction { head, leaf, path })
}

#[cfg(test)]
mod tests {
    use selion_api::agent::{Fence, Head, Promise};
    use selion_api::{Account, Signature};
    use selion_log::root;

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
}
