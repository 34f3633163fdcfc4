//! What a party keeps of the log: entries about one lease with their paths to a head that the authority signed. It
//! verifies offline, and a log that does not hold what it shows is not the one that was promised.

use selion_api::agent::SignedHead;
use selion_api::commit::PoolId;
use selion_api::{Account, Hash32, LeaseId};
use selion_contracts::signer::recover_text;
use selion_log::{Entry, inclusion, leaf_hash, verify_inclusion};
use selion_market::Input;

use crate::effects::{Seen, in_words};
use crate::entries::Log;
use crate::finding::Finding;
use crate::spine::Spine;

/// The request of a lease, its grants and its bills, as far as the newest head of a log covers them.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// The pool.
    pub pool: PoolId,
    /// The lease.
    pub lease: LeaseId,
    /// What all paths lead to.
    pub head: SignedHead,
    /// Entries in the order of the log; the first is the request.
    pub entries: Vec<ProvenEntry>,
}

/// An entry and its path.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProvenEntry {
    /// Canonical bytes, in hex.
    pub entry: String,
    /// RFC 9162 §2.1.3: from the leaf to the head's root.
    pub path: Vec<Hash32>,
    /// Of its effects those about the lease.
    pub effects: Vec<ProvenEffect>,
}

/// An effect and its path to the `effects_root` of its entry.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProvenEffect {
    /// Its place among the entry's effects, from 0.
    pub at: u64,
    /// How many there are.
    pub of: u64,
    /// Its leaf, in hex.
    pub leaf: String,
    /// From the leaf to the root.
    pub path: Vec<Hash32>,
}

/// Why there is no proof, or why one does not hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// The log is not well-formed.
    #[error("the log is damaged: {0}; `selion audit` says more")]
    Log(String),
    /// No entry of the log asks for that lease.
    #[error("the log of {entries} entries holds no lease {lease}")]
    NoSuchLease {
        /// Which.
        lease: LeaseId,
        /// Entries in the log.
        entries: u64,
    },
    /// The authority has signed no head over the request yet.
    #[error("no signed head covers entry {0} yet: ask again in a moment")]
    NotCovered(u64),
    /// What is shown is not what was signed.
    #[error("the proof does not hold: {0}")]
    Broken(String),
}

/// What a proof shows.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Proven {
    /// Who signed the head: compare it with the pool's authority.
    pub signed_by: Account,
    /// Entries that the head covers.
    pub size: u64,
    /// Each entry and effect in words, with the number of its entry.
    pub shows: Vec<(u64, String)>,
}

fn is_about(leaf: &[u8], lease: LeaseId) -> bool {
    match Seen::read(leaf) {
        Some(Seen::Grant(grant)) => grant.run.0 == lease,
        Some(Seen::Bill(bill)) => bill.run.0 == lease,
        _ => false,
    }
}

impl Proof {
    /// The proof of a lease in a log.
    ///
    /// # Errors
    ///
    /// [`ProofError`] if the log is damaged, does not hold the lease, or no head covers its request.
    pub fn of(log: &Log, pool: &PoolId, lease: LeaseId) -> Result<Self, ProofError> {
        if let Some(fault) = &log.fault {
            return Err(ProofError::Log(fault.detail.clone()));
        }
        let head = log.items.iter().rev().find_map(|item| item.head).ok_or(ProofError::NotCovered(lease.seq))?;
        let covered = usize::try_from(head.head.size).map_or(log.items.len(), |size| size.min(log.items.len()));
        let asks = |at: usize| log.items.get(at).is_some_and(|item| matches!(item.input, Input::Request(_)));
        let request = usize::try_from(lease.seq).ok().filter(|at| asks(*at));
        let none = ProofError::NoSuchLease { lease, entries: log.items.len() as u64 };
        let Some(request) = request else { return Err(none) };
        if request >= covered {
            return Err(ProofError::NotCovered(lease.seq));
        }
        let items = log.items.get(..covered).unwrap_or_default();
        let leaves: Vec<Hash32> = items.iter().map(|item| item.leaf).collect();
        let mut entries = Vec::new();
        for (at, item) in items.iter().enumerate().skip(request) {
            let hashes: Vec<Hash32> = item.effects.iter().map(|leaf| leaf_hash(leaf)).collect();
            let about = item.effects.iter().enumerate().filter(|(_, leaf)| is_about(leaf, lease));
            let proven = |(at, leaf): (usize, &Vec<u8>)| ProvenEffect {
                at: at as u64,
                of: hashes.len() as u64,
                leaf: hex::encode(leaf),
                path: inclusion(&hashes, at),
            };
            let effects: Vec<ProvenEffect> = about.map(proven).collect();
            if at == request || !effects.is_empty() {
                let entry = hex::encode(item.entry.bytes());
                entries.push(ProvenEntry { entry, path: inclusion(&leaves, at), effects });
            }
        }
        Ok(Self { pool: *pool, lease, head, entries })
    }

    /// Works every path out again, with nothing but the proof at hand.
    ///
    /// # Errors
    ///
    /// [`ProofError::Broken`] with the first thing that does not fit.
    pub fn verify(&self) -> Result<Proven, ProofError> {
        let broken = |what: String| ProofError::Broken(what);
        let head = &self.head.head;
        let digest = head.digest_to_sign(&self.pool);
        let signed_by = recover_text(&digest.0, &self.head.signature)
            .ok_or_else(|| broken("the head's signature is nobody's".into()))?;
        let mut shows = Vec::new();
        for proven in &self.entries {
            let entry = proven.read().map_err(broken)?;
            let seq = entry.seq;
            if !verify_inclusion(&entry.leaf(), seq, head.size, &proven.path, &head.root) {
                return Err(broken(format!("the path of entry {seq} does not lead to the root of the signed head")));
            }
            if shows.is_empty() {
                shows.push((seq, self.request(&entry).map_err(broken)?));
            }
            for effect in &proven.effects {
                let leaf = hex::decode(&effect.leaf).map_err(|error| broken(format!("entry {seq}: {error}")))?;
                let root = &entry.effects_root;
                if !verify_inclusion(&leaf_hash(&leaf), effect.at, effect.of, &effect.path, root) {
                    return Err(broken(format!("effect {} of entry {seq} is not one that it commits to", effect.at)));
                }
                if !is_about(&leaf, self.lease) {
                    return Err(broken(format!("effect {} of entry {seq} is about another lease", effect.at)));
                }
                shows.push((seq, in_words(&leaf)));
            }
        }
        if shows.is_empty() {
            return Err(broken("it shows no entry".into()));
        }
        Ok(Proven { signed_by, size: head.size, shows })
    }

    /// The first entry has to be the lease's request.
    fn request(&self, entry: &Entry) -> Result<String, String> {
        let lease = self.lease;
        match borsh::from_slice(&entry.input) {
            Ok(Input::Request(asked)) if entry.seq == lease.seq => {
                let signed = if asked.signature.is_some() { "signed" } else { "unsigned" };
                Ok(format!("request of {lease} by {}, {signed}, at {} ms UTC", asked.request.renter, entry.at_ms.0))
            }
            _ => Err(format!("its first entry is not the request of {lease}")),
        }
    }
}

impl ProvenEntry {
    fn read(&self) -> Result<Entry, String> {
        let bytes = hex::decode(&self.entry).map_err(|error| format!("an entry is not hex: {error}"))?;
        Entry::read(&bytes).map_err(|error| format!("an entry does not decode: {error}"))
    }
}

/// The log holds all that its authority proved to parties before.
pub(crate) fn check(spine: &Spine, pool: &PoolId, proofs: &[Proof]) -> Result<String, Finding> {
    let Spine { authorities, roots, leaves, .. } = spine;
    for proof in proofs {
        let lease = proof.lease;
        let shown = proof.verify().map_err(|error| Finding::plain(format!("{lease}: {error}")))?;
        let epoch = proof.head.head.fence.epoch;
        if proof.pool != *pool || authorities.get(&epoch) != Some(&shown.signed_by) {
            let detail = format!(
                "the proof of {lease} is signed by {} for pool {} on chain {}: no authority of this pool in epoch {epoch}",
                shown.signed_by, proof.pool.controller, proof.pool.chain_id
            );
            return Err(Finding::plain(detail));
        }
        let size = proof.head.head.size;
        if usize::try_from(size).ok().and_then(|size| roots.get(size)) == Some(&proof.head.head.root) {
            continue;
        }
        let differs = |proven: &&ProvenEntry| {
            proven.read().is_ok_and(|entry| {
                let here = usize::try_from(entry.seq).ok().and_then(|at| leaves.get(at));
                here != Some(&entry.leaf())
            })
        };
        let first = proof.entries.iter().find(differs).and_then(|proven| proven.read().ok());
        let Some(entry) = first else {
            let detail = format!("{} signed another log of {size} entries: the proof of {lease}", shown.signed_by);
            return Err(Finding::at(size.saturating_sub(1), detail));
        };
        let seq = entry.seq;
        let detail = format!(
            "{} proved with a signed head over {size} entries that entry {seq} is about {lease}: this log has another \
             entry there",
            shown.signed_by
        );
        return Err(Finding::at(seq, detail));
    }
    Ok(format!("{} proofs that parties kept hold in this log", proofs.len()))
}
