//! What members left: told beside the log, and taken only from the node that held the member.
//!
//! A node holds a member until the log has its last report of it, also while the node is lost and after the lease waits
//! again; what it told of until then it may go on telling of, for as long as the upload takes.

use selion_api::agent::Report;
use selion_api::commit::salted;
use selion_api::outputs::Outputs;
use selion_api::{Account, Hash32, LeaseId, NodeId};
use tracing::{error, warn};

use super::core::{Core, CoreError, read};

/// What became of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// It is down.
    Kept,
    /// The node does not hold the member, the word contradicts itself, or the node's own report says otherwise.
    Foreign,
    /// It could not be written, or the content is not all here; the node sends and tells again.
    Again,
}

/// Takes what `node` says.
pub(super) async fn told(core: &dyn Core, node: NodeId, said: &Outputs) -> Heard {
    if let Err(why) = said.check() {
        warn!(%node, lease = %said.lease, why, "a word on outputs is not taken");
        return Heard::Foreign;
    }
    match take(core, node, said).await {
        Ok(heard) => heard,
        Err(error) => {
            error!(lease = %said.lease, %error, "a word on outputs could not be written; the node tells again");
            Heard::Again
        }
    }
}

async fn take(core: &dyn Core, node: NodeId, said: &Outputs) -> Result<Heard, CoreError> {
    let Some(standing) = standing(core, node, said).await? else {
        return Ok(Heard::Foreign);
    };
    if let (Some(reported), Some(cid)) = (standing.reported, &said.cid)
        && !matches(core, standing.work, reported, cid).await?
    {
        return Ok(Heard::Foreign);
    }
    Ok(if core.keep_outputs(node, standing.renter, said).await? { Heard::Kept } else { Heard::Again })
}

/// A report came whose signature was checked. If it commits to another CID than the node told, its outputs are lost.
/// Called before it is entered.
pub(super) async fn reported(core: &dyn Core, report: &Report) -> Option<Heard> {
    let reported = report.event.outputs()?;
    match disown(core, report, reported).await {
        Ok(heard) => heard,
        Err(error) => {
            error!(lease = %report.lease, %error, "outputs could not be held against their report");
            None
        }
    }
}

async fn disown(core: &dyn Core, report: &Report, reported: Hash32) -> Result<Option<Heard>, CoreError> {
    let Some(told) = core.outputs_told(report.lease, report.attempt, report.member).await? else {
        return Ok(None);
    };
    let work = read(core, |state| state.leases.get(&report.lease).map(|lease| lease.request.work));
    let (Some(work), Some(cid), true) = (work, &told.outputs.cid, told.node == report.node) else {
        return Ok(None);
    };
    if matches(core, work, reported, cid).await? {
        return Ok(None);
    }
    core.disown_outputs(report.lease, report.attempt, report.member).await?;
    Ok(Some(Heard::Foreign))
}

/// By what right a node tells of a member.
struct Standing {
    renter: Account,
    work: Hash32,
    /// What its report commits to, if the log has one that does.
    reported: Option<Hash32>,
}

async fn standing(core: &dyn Core, node: NodeId, said: &Outputs) -> Result<Option<Standing>, CoreError> {
    let (lease, attempt, member) = (said.lease, said.attempt, said.member);
    let held = read(core, |state| holds(state, node, lease, attempt, member));
    if held.is_some() {
        return Ok(held);
    }
    // The lease may be forgotten, or elsewhere, by the time that all is sent.
    let told = core.outputs_told(lease, attempt, member).await?.filter(|told| told.node == node);
    Ok(told.map(|told| Standing { renter: told.renter, work: Hash32::ZERO, reported: None }))
}

fn holds(state: &selion_market::State, node: NodeId, id: LeaseId, attempt: u32, rank: u16) -> Option<Standing> {
    let lease = state.leases.get(&id)?;
    let member = lease.members.get(usize::from(rank)).filter(|one| one.node == node && one.attempt == attempt);
    let held = state.nodes.get(&node)?.held.get(&(id, rank)).is_some_and(|held| held.attempt == attempt);
    if member.is_none() && !held {
        return None;
    }
    let reported = member.and_then(|member| member.outputs);
    Some(Standing { renter: lease.request.renter, work: lease.request.work, reported })
}

async fn matches(core: &dyn Core, work: Hash32, reported: Hash32, cid: &str) -> Result<bool, CoreError> {
    let found = core.work(work).await?;
    Ok(found.is_some_and(|(salt, _)| salted(&salt, cid.as_bytes()) == reported))
}
