//! Who said so: signatures of the authority, of renters, of owners and of nodes, how much nobody signed, and what was
//! entered twice of what was said once.

use std::collections::BTreeMap;

use selion_api::commit::PoolId;
use selion_api::{Account, Hash32};
use selion_contracts::signer::recover_text;
use selion_market::{Effect, Input, RequestLease};

use crate::effects::Seen;
use crate::entries::Item;
use crate::finding::Finding;
use crate::report::Unsigned;

/// What the signatures of some entries say. Entries may be taken in any order.
#[derive(Debug, Default)]
pub(crate) struct Signatures {
    /// Inputs of parties, and those without a signature.
    pub share: Unsigned,
    /// Who signed heads of which epoch, with the first entry after which he did.
    pub heads: BTreeMap<(u32, Option<Account>), u64>,
    /// Digests of words that are said once, and the entries that have them.
    once: Vec<Once>,
    wrong: Option<Finding>,
}

/// A word that is said once: sorted, the same word stands side by side, in order of entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Once {
    digest: Hash32,
    entry: u64,
}

/// Whether the entry is a signed request that made a lease. It makes one for ever: a market forgets its key after a day, a
/// controller does not.
fn makes_a_lease(item: &Item) -> bool {
    let Input::Request(RequestLease { signature: Some(_), .. }) = &item.input else { return false };
    item.effects.iter().any(|leaf| match Seen::read(leaf) {
        Some(Seen::Other(effect)) => matches!(*effect, Effect::Moved { lease, .. } if lease.seq == item.seq),
        _ => false,
    })
}

impl Signatures {
    /// Looks at an entry; at what was signed only if that is to be judged.
    pub(crate) fn take(&mut self, item: &Item, pool: &PoolId, judged: bool) {
        if let Some(signed) = item.head.filter(|_| judged) {
            let who = recover_text(&signed.head.digest_to_sign(pool).0, &signed.signature);
            self.head(signed.head.fence.epoch, who, item.seq);
        }
        let Some(word) = item.input.word() else { return };
        self.share.inputs += 1;
        let Some(signature) = word.signature else {
            self.share.unsigned += 1;
            return;
        };
        // Of entries that were judged before it counts still what was said in them.
        let is_once = word.is_once() || makes_a_lease(item);
        let Some(digest) = (judged || is_once).then(|| word.digest(pool)).flatten() else { return };
        if is_once {
            self.once.push(Once { digest, entry: item.seq });
        }
        let by = judged.then(|| recover_text(&digest.0, signature));
        if let Some(by) = by.filter(|by| *by != Some(word.who)) {
            let by = by.map_or_else(|| "nobody".to_owned(), |by| by.to_string());
            let detail = format!("the {} of {} in entry {} is signed by {by}", word.what, word.who, item.seq);
            self.wrong(Finding::at(item.seq, detail));
        }
    }

    /// What another saw of other entries.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.share.inputs += other.share.inputs;
        self.share.unsigned += other.share.unsigned;
        for ((epoch, who), entry) in other.heads {
            self.head(epoch, who, entry);
        }
        self.once.append(&mut other.once);
        other.wrong.into_iter().for_each(|wrong| self.wrong(wrong));
    }

    /// The check that nothing which is said once was entered again, at an entry from `from` on.
    pub(crate) fn said_once(&mut self, from: u64) -> Result<String, Finding> {
        self.once.sort_unstable();
        let pairs = self.once.iter().zip(self.once.iter().skip(1));
        let again = pairs.filter(|(one, other)| one.digest == other.digest && other.entry >= from);
        match again.min_by_key(|(_, other)| other.entry) {
            None => Ok(format!(
                "{} signed releases, extensions, owners' words, hellos and requests that made a lease, none of them twice",
                self.once.len()
            )),
            Some((first, again)) => {
                let detail = format!("entry {} says again what was signed in entry {}", again.entry, first.entry);
                Err(Finding::at(again.entry, detail))
            }
        }
    }

    /// The check of parties' signatures.
    pub(crate) fn told(self) -> Result<String, Finding> {
        let said = format!("{} inputs of parties, {} without a signature", self.share.inputs, self.share.unsigned);
        self.wrong.map_or(Ok(said), Err)
    }

    fn head(&mut self, epoch: u32, who: Option<Account>, entry: u64) {
        self.heads.entry((epoch, who)).and_modify(|first| *first = entry.min(*first)).or_insert(entry);
    }

    fn wrong(&mut self, finding: Finding) {
        let first = self.wrong.take().filter(|first| first.entry <= finding.entry);
        self.wrong = first.or(Some(finding));
    }
}
