//! Seals a changed log again, as a controller that lies and holds the authority's key would: every hash and every head
//! fits what stands before it.

use anyhow::{Context, Result};
use selion_api::agent::SignedHead;
use selion_api::commit::PoolId;
use selion_api::rest::LoggedEntry;
use selion_contracts::Signer;
use selion_log::{Entry, Tree, leaf_hash, root};

/// One published entry, open for changes.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The entry; number and effects root are set by [`seal`].
    pub entry: Entry,
    /// Leaves of its effects.
    pub effects: Vec<Vec<u8>>,
    /// The head after it, if one was signed; size, root and signature are set by [`seal`].
    pub head: Option<SignedHead>,
}

/// Opens a published log.
///
/// # Errors
///
/// It is not well-formed.
pub fn open(log: &[LoggedEntry]) -> Result<Vec<Draft>> {
    let one = |logged: &LoggedEntry| {
        let entry = Entry::read(&hex::decode(&logged.entry)?)?;
        let effects = logged.effects.iter().map(hex::decode).collect::<Result<_, _>>()?;
        Ok(Draft { entry, effects, head: logged.head })
    };
    log.iter().map(one).collect()
}

/// Publishes the drafts: numbered as they stand, hashed, and signed with `authority`.
///
/// # Errors
///
/// The key does not sign.
pub fn seal(drafts: &[Draft], pool: &PoolId, authority: &Signer) -> Result<Vec<LoggedEntry>> {
    let mut tree = Tree::default();
    let mut log = Vec::with_capacity(drafts.len());
    for (seq, draft) in (0_u64..).zip(drafts) {
        let hashes: Vec<_> = draft.effects.iter().map(|leaf| leaf_hash(leaf)).collect();
        let entry = Entry { seq, effects_root: root(&hashes), ..draft.entry.clone() };
        tree.push(entry.leaf());
        let head = match draft.head {
            Some(mut signed) => {
                signed.head.size = seq + 1;
                signed.head.root = tree.root();
                signed.signature = authority.sign_text(&signed.head.digest_to_sign(pool).0).context("a signature")?;
                Some(signed)
            }
            None => None,
        };
        log.push(LoggedEntry {
            seq,
            entry: hex::encode(entry.bytes()),
            effects: draft.effects.iter().map(hex::encode).collect(),
            head,
        });
    }
    Ok(log)
}
