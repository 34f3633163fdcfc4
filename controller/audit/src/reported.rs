//! Reports of nodes that somebody holds, against those in the log: a node that signed one number twice, and differently, is
//! found here. The court takes both reports.

use std::collections::BTreeMap;

use selion_api::NodeId;
use selion_api::agent::SignedReport;
use selion_api::commit::PoolId;
use selion_market::Input;

use crate::entries::Item;
use crate::evidence::{contradiction, stranger};
use crate::finding::Finding;
use crate::pass::Watch;

/// No report in the log contradicts one that is held.
pub(crate) struct Reported {
    pool: PoolId,
    held: BTreeMap<(NodeId, u64), Vec<SignedReport>>,
    /// A held report that is not its node's.
    stranger: Option<Finding>,
    reports: usize,
    found: usize,
}

impl Reported {
    pub(crate) fn new(pool: &PoolId, held: &[SignedReport]) -> Self {
        let (held_by, reports) = (BTreeMap::new(), held.len());
        let mut books = Self { pool: *pool, held: held_by, stranger: None, reports, found: 0 };
        for signed in held {
            let why = stranger(pool, signed).map(|why| Finding::plain(why.to_string()));
            books.stranger = books.stranger.take().or(why);
            books.held.entry((signed.report.node, signed.report.seq)).or_default().push(signed.clone());
        }
        books
    }
}

impl Watch for Reported {
    fn take(&mut self, item: &Item) -> Result<(), Finding> {
        if let Some(finding) = self.stranger.take() {
            return Err(finding);
        }
        let Input::Report(logged) = &item.input else { return Ok(()) };
        for held in self.held.get(&(logged.report.node, logged.report.seq)).into_iter().flatten() {
            self.found += usize::from(held.report == logged.report);
            // One that its node did not sign says nothing of the node: that is for `signatures` to tell.
            if contradiction(held, logged).is_ok() && stranger(&self.pool, logged).is_none() {
                let (node, number) = (logged.report.node, logged.report.seq);
                let say =
                    |signed: &SignedReport| format!("{:?} at {} ms", signed.report.event, signed.report.metered_ms);
                let why = format!(
                    "node {node} signed report {number} twice: {} in the log, {} in the one that is held; `selion evidence \
                     report --held` takes the first out of the log",
                    say(logged),
                    say(held)
                );
                return Err(Finding::at(item.seq, why));
            }
        }
        Ok(())
    }

    fn said(&self) -> String {
        let (reports, found) = (self.reports, self.found);
        format!("{reports} reports of nodes that parties kept, none of them contradicted: {found} stand in this log")
    }
}
