//! Heads and anchors: the log is the one that was promised.

use std::collections::BTreeMap;

use selion_api::agent::Head;
use selion_api::chain::ChainEvent;
use selion_api::commit::PoolId;
use selion_api::{Account, Hash32};
use selion_contracts::signer::recover_text;
use selion_log::Tree;
use selion_market::Input;

use crate::entries::Log;
use crate::finding::Finding;

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

/// Roots of the tree by size, from 0 entries on.
pub(crate) fn roots(log: &Log) -> Vec<Hash32> {
    let mut tree = Tree::default();
    let mut roots = vec![tree.root()];
    for item in &log.items {
        tree.push(item.leaf);
        roots.push(tree.root());
    }
    roots
}

/// Who had the authority in which epoch, by the blocks in the log.
pub(crate) fn authorities(log: &Log) -> BTreeMap<u32, Account> {
    let mut authorities = BTreeMap::new();
    for item in &log.items {
        let Input::Block(block) = &item.input else {
            continue;
        };
        for event in &block.events {
            match event {
                ChainEvent::PoolOpened { authority, .. } => authorities.insert(1, *authority),
                ChainEvent::AuthorityChanged { epoch, authority } => authorities.insert(*epoch, *authority),
                _ => None,
            };
        }
    }
    authorities
}

/// Every signed head covers the entries it was published with, matches the tree and is signed by the authority of
/// its epoch.
pub(crate) fn check_heads(log: &Log, pool: &PoolId, roots: &[Hash32]) -> Result<String, Finding> {
    let authorities = authorities(log);
    let mut count = 0_u64;
    for (at, item) in log.items.iter().enumerate() {
        let Some(signed) = &item.head else { continue };
        let Head { size, root, fence, .. } = signed.head;
        let wrong = |detail| Err(Finding::at(item.seq, detail));
        if size != item.seq + 1 {
            let detail = format!("the head after entry {} covers {size} entries", item.seq);
            return wrong(detail);
        }
        if roots.get(at + 1) != Some(&root) {
            let detail = format!(
                "the head over {size} entries has root {root}, the entries give {}",
                roots.get(at + 1).copied().unwrap_or_default()
            );
            return wrong(detail);
        }
        if fence != item.entry.fence {
            return wrong(format!("the head over {size} entries has another fence than its last entry"));
        }
        // The first entries come before the block that names the authority.
        let Some(authority) = authorities.get(&fence.epoch) else {
            return wrong(format!("no block of the log names the authority of epoch {}", fence.epoch));
        };
        let digest = signed.head.digest_to_sign(pool);
        let who = recover_text(&digest.0, &signed.signature);
        if who != Some(*authority) {
            let who = who.map_or_else(|| "nobody".to_owned(), |who| who.to_string());
            return wrong(format!(
                "the head over {size} entries is signed by {who}, the authority of epoch {} is {authority}",
                fence.epoch
            ));
        }
        count += 1;
    }
    Ok(format!("{count} heads match the tree and are signed by the authority"))
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
