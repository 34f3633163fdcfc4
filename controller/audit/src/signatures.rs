//! Who said so: signatures of the authority, of renters and of nodes, and how much nobody signed.

use std::collections::BTreeMap;

use selion_api::Account;
use selion_api::commit::{PoolId, signing_digest};
use selion_contracts::signer::recover_text;
use selion_market::Input;

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
    wrong: Option<Finding>,
}

impl Signatures {
    /// Looks at an entry; at what was signed only if that is to be judged.
    pub(crate) fn take(&mut self, item: &Item, pool: &PoolId, judged: bool) {
        if let Some(signed) = item.head.filter(|_| judged) {
            let who = recover_text(&signed.head.digest_to_sign(pool).0, &signed.signature);
            self.head(signed.head.fence.epoch, who, item.seq);
        }
        let (what, who, signed_by) = match &item.input {
            Input::Request(asked) => {
                self.share.inputs += 1;
                let Some(signature) = &asked.signature else {
                    self.share.unsigned += 1;
                    return;
                };
                let digest = || signing_digest(pool, "lease", &asked.request);
                ("request", asked.request.renter, judged.then(|| recover_text(&digest().0, signature)))
            }
            Input::Report(signed) => {
                self.share.inputs += 1;
                let digest = || signing_digest(pool, "report", &signed.report);
                let who = Account(signed.report.node.0);
                ("report", who, judged.then(|| recover_text(&digest().0, &signed.signature)))
            }
            // The hello's signature is checked at the link; the log has what it said.
            Input::Release { .. } | Input::SetPaused { .. } | Input::Reclaim { .. } | Input::Linked { .. } => {
                self.share.inputs += 1;
                self.share.unsigned += 1;
                return;
            }
            _ => return,
        };
        if let Some(by) = signed_by
            && by != Some(who)
        {
            let by = by.map_or_else(|| "nobody".to_owned(), |by| by.to_string());
            let detail = format!("the {what} of {who} in entry {} is signed by {by}", item.seq);
            self.wrong(Finding::at(item.seq, detail));
        }
    }

    /// What another saw of other entries.
    pub(crate) fn join(&mut self, other: Self) {
        self.share.inputs += other.share.inputs;
        self.share.unsigned += other.share.unsigned;
        for ((epoch, who), entry) in other.heads {
            self.head(epoch, who, entry);
        }
        other.wrong.into_iter().for_each(|wrong| self.wrong(wrong));
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
