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

/// Entries that something binds: those under the newest head, if all heads are the authority's, or under the newest anchor
/// that this log leads to.
pub(crate) fn covered(spine: &Spine, heads_hold: bool, anchors: &[Anchor]) -> u64 {
    let by_head = spine.newest.filter(|_| heads_hold).map(|signed| signed.head.size);
    let leads_to = |anchor: &&Anchor| {
        let root = usize::try_from(anchor.size).ok().and_then(|size| spine.roots.get(size));
        root == Some(&anchor.root)
    };
    let by_anchor = anchors.iter().filter(leads_to).map(|anchor| anchor.size).max();
    by_head.max(by_anchor).unwrap_or(0)
}

/// No more than the `allowed` newest entries are bound by nothing: whoever published those may have made them up.
pub(crate) fn check_covered(entries: u64, covered: u64, allowed: u64) -> Result<String, Finding> {
    match entries.saturating_sub(covered) {
        0 => Ok(format!("a signed head or an anchor covers all {entries} entries")),
        free if free <= allowed => Ok(format!(
            "a signed head or an anchor covers {covered} entries; the newest {free}, from entry {covered} on, are NOT \
             AUDITED, which was allowed for {allowed}"
        )),
        free => Err(Finding::at(
            covered,
            format!(
                "no signed head and no anchor covers the newest {free} of {entries} entries, from entry {covered} on: they \
                 are not audited. Ask the controller for its head over them, or allow them with --allow-uncovered {free}"
            ),
        )),
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
