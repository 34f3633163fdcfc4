//! What stays of a log when its entries have gone by: hashes, blocks, and who had the authority.

use std::collections::BTreeMap;

use selion_api::agent::{Head, SignedHead};
use selion_api::chain::{Block, ChainEvent};
use selion_api::{Account, Hash32};
use selion_log::Tree;
use selion_market::Input;

use crate::entries::Item;
use crate::finding::Finding;

/// The log without its words.
#[derive(Debug)]
pub(crate) struct Spine {
    /// Hash of each entry's leaf.
    pub leaves: Vec<Hash32>,
    /// Roots of the tree by size, from 0 entries on.
    pub roots: Vec<Hash32>,
    /// Chain blocks with the entries that brought them.
    pub blocks: Vec<(u64, Block)>,
    /// Who had the authority in which epoch, by the blocks in the log.
    pub authorities: BTreeMap<u32, Account>,
    /// The newest signed head.
    pub newest: Option<SignedHead>,
    /// The first head that does not fit its entries.
    pub misfit: Option<Finding>,
    /// Signed heads that were looked at.
    pub heads: u64,
    tree: Tree,
    from: u64,
}

impl Spine {
    pub(crate) fn new(from: u64) -> Self {
        let tree = Tree::default();
        Self {
            leaves: Vec::new(),
            roots: vec![tree.root()],
            blocks: Vec::new(),
            authorities: BTreeMap::new(),
            newest: None,
            misfit: None,
            heads: 0,
            tree,
            from,
        }
    }

    pub(crate) fn take(&mut self, item: &Item) {
        self.tree.push(item.leaf);
        let root = self.tree.root();
        self.leaves.push(item.leaf);
        self.roots.push(root);
        if let Input::Block(block) = &item.input {
            self.name_authority(block);
            self.blocks.push((item.seq, block.clone()));
        }
        let Some(signed) = item.head else { return };
        self.newest = Some(signed);
        if item.seq >= self.from {
            self.heads += 1;
            let why = misfit(item, &signed.head, root);
            self.misfit = self.misfit.take().or_else(|| why.map(|why| Finding::at(item.seq, why)));
        }
    }

    fn name_authority(&mut self, block: &Block) {
        for event in &block.events {
            match event {
                ChainEvent::PoolOpened { authority, .. } => self.authorities.insert(1, *authority),
                ChainEvent::AuthorityChanged { epoch, authority, .. } => self.authorities.insert(*epoch, *authority),
                _ => None,
            };
        }
    }
}

fn misfit(item: &Item, head: &Head, root: Hash32) -> Option<String> {
    let size = head.size;
    if size != item.seq + 1 {
        return Some(format!("the head after entry {} covers {size} entries", item.seq));
    }
    if head.root != root {
        return Some(format!("the head over {size} entries has root {}, the entries give {root}", head.root));
    }
    if head.fence != item.entry.fence {
        return Some(format!("the head over {size} entries has another fence than its last entry"));
    }
    None
}
