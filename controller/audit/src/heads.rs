//! Heads and anchors: the log is the one that was promised.

use selion_api::{Account, Hash32};

use crate::finding::Finding;
use crate::signatures::Signatures;
use crate::spine::Spine;

/// A head on chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Block that has it.
    pub block: u64,
    /// Epoch that signed it.
    pub epoch: u32,
    /// Entries covered.
    pub size: u64,
    /// Root over them.
    pub root: Hash32,
    /// Digest of State after the last of them.
    pub digest: Hash32,
}

/// Every signed head covers the entries it was published with, matches the one tree that the anchors match too, and is
/// signed by the authority of its epoch.
pub(crate) fn check_heads(spine: &Spine, signed: &Signatures) -> Result<String, Finding> {
    let wrong = signed.heads.iter().filter_map(|((epoch, who), entry)| {
        let why = wrong_signer(*epoch, *who, spine.authorities.get(epoch).copied())?;
        Some(Finding::at(*entry, format!("the head over {} entries {why}", entry + 1)))
    });
    match wrong.chain(spine.misfit.clone()).min_by_key(|finding| finding.entry) {
        Some(finding) => Err(finding),
        None => Ok(format!("{} heads match the tree and are signed by the authority", spine.heads)),
    }
}

fn wrong_signer(epoch: u32, who: Option<Account>, authority: Option<Account>) -> Option<String> {
    // The first entries come before the block that names the authority.
    let Some(authority) = authority else {
        return Some(format!("is of epoch {epoch}, of which no block of the log names the authority"));
    };
    let by = who.map_or_else(|| "nobody".to_owned(), |who| who.to_string());
    (who != Some(authority)).then(|| format!("is signed by {by}, the authority of epoch {epoch} is {authority}"))
}

/// Every anchor on chain is the root of the log at its size.
pub(crate) fn check_anchors(anchors: &[Anchor], roots: &[Hash32]) -> Result<String, Finding> {
    for anchor in anchors {
        let at = usize::try_from(anchor.size).unwrap_or(usize::MAX);
        let last = anchor.size.saturating_sub(1);
        match roots.get(at) {
            None => {
                return Err(Finding::plain(format!(
                    "block {} anchors {} entries, the log has {}",
                    anchor.block,
                    anchor.size,
                    roots.len().saturating_sub(1)
                )));
            }
            Some(root) if *root != anchor.root => {
                return Err(Finding::at(
                    last,
                    format!(
                        "block {} anchors root {} over {} entries, the log gives {root}",
                        anchor.block, anchor.root, anchor.size
                    ),
                ));
            }
            Some(_) => {}
        }
    }
    Ok(format!("{} anchors match the log", anchors.len()))
}
