//! Who said so: signatures of renters and nodes, and how much nobody signed.

use selion_api::Account;
use selion_api::commit::{PoolId, signing_digest};
use selion_contracts::signer::recover_text;
use selion_market::Input;

use crate::entries::Log;
use crate::finding::Finding;
use crate::report::Unsigned;

/// Every signature in the log is its party's. Also counts inputs without one.
pub(crate) fn check(log: &Log, pool: &PoolId) -> (Result<String, Finding>, Unsigned) {
    let mut share = Unsigned::default();
    let mut wrong = None;
    for item in &log.items {
        let (what, who, signed_by) = match &item.input {
            Input::Request(asked) => {
                share.inputs += 1;
                let Some(signature) = &asked.signature else {
                    share.unsigned += 1;
                    continue;
                };
                let digest = signing_digest(pool, "lease", &asked.request);
                let by = recover_text(&digest.0, signature);
                ("request", asked.request.renter, by)
            }
            Input::Report(signed) => {
                share.inputs += 1;
                let digest = signing_digest(pool, "report", &signed.report);
                let by = recover_text(&digest.0, &signed.signature);
                ("report", Account(signed.report.node.0), by)
            }
            // The hello's signature is checked at the link; the log has what it said.
            Input::Release { .. } | Input::SetPaused { .. } | Input::Reclaim { .. } | Input::Linked { .. } => {
                share.inputs += 1;
                share.unsigned += 1;
                continue;
            }
            _ => continue,
        };
        if signed_by != Some(who) && wrong.is_none() {
            let by = signed_by.map_or_else(|| "nobody".to_owned(), |by| by.to_string());
            wrong = Some(Finding::at(item.seq, format!("the {what} of {who} in entry {} is signed by {by}", item.seq)));
        }
    }
    let said = format!("{} inputs of parties, {} without a signature", share.inputs, share.unsigned);
    (wrong.map_or(Ok(said), Err), share)
}
