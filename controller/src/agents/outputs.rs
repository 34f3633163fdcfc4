//! CIDs of outputs: told beside the log, kept only where they match the commitment in the node's own report.

use std::collections::BTreeMap;

use selion_api::agent::{MemberEvent, Outputs, Report};
use selion_api::commit::salted;
use selion_api::{Hash32, LeaseId, NodeId};
use tracing::error;

use super::core::{Core, read};

/// Most CIDs that wait for their report, per link.
const MAX_WAITING: usize = 256;
/// Longest CID text.
const MAX_CID: usize = 128;

type Run = (LeaseId, u32, u16);

/// What became of a CID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kept {
    /// It matches and is stored.
    Yes,
    /// Its report has not come.
    Waits,
    /// The node does not hold the member, or the report says otherwise.
    Foreign,
}

/// CIDs that came before their report.
#[derive(Default)]
pub(super) struct Pending(BTreeMap<Run, String>);

impl Pending {
    /// A CID came.
    pub(super) async fn told(&mut self, core: &dyn Core, node: NodeId, said: Outputs) -> Kept {
        let run = (said.lease, said.attempt, said.member);
        let Some((work, reported)) = member_of(core, node, run) else {
            return Kept::Foreign;
        };
        if said.cid.len() > MAX_CID {
            return Kept::Foreign;
        }
        if let Some(reported) = reported {
            return keep(core, run, work, reported, &said.cid).await;
        }
        if self.0.len() >= MAX_WAITING {
            self.0.pop_first();
        }
        self.0.insert(run, said.cid);
        Kept::Waits
    }

    /// A report came whose signature was checked. Called before it is entered, so that the CID is stored before the
    /// agent is told that it may forget it.
    pub(super) async fn reported(&mut self, core: &dyn Core, report: &Report) -> Option<Kept> {
        let (MemberEvent::Exited { outputs, .. } | MemberEvent::Stopped { outputs }) = &report.event else {
            return None;
        };
        let run = (report.lease, report.attempt, report.member);
        let cid = self.0.remove(&run)?;
        let Some((work, _)) = member_of(core, report.node, run) else {
            return Some(Kept::Foreign);
        };
        match outputs {
            Some(reported) => Some(keep(core, run, work, *reported, &cid).await),
            None => Some(Kept::Foreign),
        }
    }
}

/// The work's commitment and the outputs reported, if `node` holds that member in that run.
fn member_of(core: &dyn Core, node: NodeId, run: Run) -> Option<(Hash32, Option<Hash32>)> {
    read(core, |state| {
        let lease = state.leases.get(&run.0)?;
        let member = lease.members.get(usize::from(run.2)).filter(|member| member.attempt == run.1)?;
        (member.node == node).then_some((lease.request.work, member.outputs))
    })
}

async fn keep(core: &dyn Core, run: Run, work: Hash32, reported: Hash32, cid: &str) -> Kept {
    let found = match core.work(work).await {
        Ok(found) => found,
        Err(error) => {
            error!(lease = %run.0, %error, "outputs could not be matched");
            return Kept::Waits;
        }
    };
    match found {
        Some((salt, _)) if salted(&salt, cid.as_bytes()) == reported => {}
        _ => return Kept::Foreign,
    }
    match core.keep_outputs(run.0, run.1, run.2, cid).await {
        Ok(()) => Kept::Yes,
        Err(error) => {
            error!(lease = %run.0, %error, "outputs could not be stored");
            Kept::Waits
        }
    }
}
