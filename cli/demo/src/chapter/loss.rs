//! A node that is lost, and what it takes with it.

use std::time::Duration;

use selion_api::lease::LeaseState;
use selion_api::{LeaseId, NodeId, Reason};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::fleet::{A100, Machine};
use super::gang::{Gang, met};
use super::money::now;
use crate::fault::{Expecting, Told, expect, until};
use crate::program::count;
use crate::renter::{PATIENCE, Renter, member, mig, request, tell};
use crate::stage::Stage;

/// A node must be seen lost within this.
const SEEN: Duration = Duration::from_secs(7);

/// The agent that was killed.
pub(super) struct Lost {
    machine: Machine,
}

/// Kills the agent under one member of the gang and under a lease of its own.
pub(super) async fn kill(
    stage: &Stage,
    single: &Renter,
    ganged: &Renter,
    gang: Gang,
    machines: &[Machine],
) -> Told<(Value, (Gang, Lost))> {
    let machine = machines.iter().find(|machine| machine.model == A100).expecting("an A100")?.clone();
    let asked =
        single.ask(request(vec![member(mig("1g.10gb"), A100)], count())).await.expecting("a slice to be leased")?;
    single.reach(asked.id, LeaseState::Active).await?;
    let active = single.event(asked.id, LeaseState::Active, 1).await?;
    // A bill of nothing would be right for the wrong reason.
    until(PATIENCE, "some use on the meter", async || {
        let lease = single.client.lease(asked.id).await?;
        let metered = lease.members.first().map_or(0, |member| member.billable_ms);
        Ok(if metered > 0 { Ok(()) } else { Err("nothing metered yet".to_owned()) })
    })
    .await?;

    let pid = stage.crew.kill(&machine.name)?;
    let (killed, killed_ms) = (Instant::now(), now());
    until(SEEN, &format!("node {} to be seen lost", machine.node), async || {
        let node = single.client.node(machine.node).await?;
        Ok(if node.linked { Err("it counts as linked".to_owned()) } else { Ok(()) })
    })
    .await?;
    let seen_ms = u64::try_from(killed.elapsed().as_millis()).unwrap_or(u64::MAX);

    let ended = single.reach(asked.id, LeaseState::Ended).await?;
    expect(ended.reason == Some(Reason::NodeLost), "the lease to end as node_lost", tell(&ended))?;
    let bill = single.bills().await?.into_iter().find(|bill| bill.line.lease == asked.id);
    let bill = bill.expecting(&format!("a bill of lease {}", asked.id))?;
    let ran_ms = killed_ms.0.saturating_sub(active.at_ms.0);
    expect(
        bill.line.billable_ms <= ran_ms,
        format!("at most {ran_ms} ms billed, from active to the kill"),
        bill.line.billable_ms,
    )?;

    let stopped = whole(ganged, gang.id, machine.node).await?;
    let evidence = json!({
        "agent": machine.name,
        "pid": pid,
        "node": machine.node,
        "seen_lost_ms": seen_ms,
        "lease": asked.id,
        "reason": ended.reason,
        "bill": { "entry": bill.entry, "billable_ms": bill.line.billable_ms, "ran_ms": ran_ms, "amount": bill.line.amount },
        "gang": stopped,
    });
    Ok((evidence, (gang, Lost { machine })))
}

/// The gang ended as a whole and waits again.
async fn whole(renter: &Renter, gang: LeaseId, lost: NodeId) -> Told<Value> {
    let waits = until(PATIENCE, "the gang to wait again", async || {
        let lease = renter.client.lease(gang).await?;
        Ok(if lease.state == LeaseState::Waiting { Ok(lease) } else { Err(tell(&lease)) })
    });
    let waits = waits.await?;
    let over = waits.attempts.last().expecting("a run that is over")?;
    expect(over.reason == Reason::NodeLost && over.attempt == 1, "run 1 over as node_lost", format!("{over:?}"))?;
    let nodes = renter.nodes().await?;
    let slots = nodes.iter().flat_map(|node| &node.gpus).flat_map(|gpu| &gpu.slots);
    let held = slots.filter(|slot| slot.lease == gang).count();
    expect(held == 0, "no slot of the gang on any node", held)?;
    let ranks: Vec<u16> =
        renter.bills().await?.iter().filter(|bill| bill.line.lease == gang).map(|bill| bill.line.member).collect();
    expect(ranks.len() == waits.wants.len(), "a bill line of each member", format!("{ranks:?}"))?;
    let event = renter.history(gang, |event| event.state == LeaseState::Waiting && event.attempt > 0).await?;
    let waiting = waits.waiting.expecting("why it waits")?;
    Ok(json!({
        "lease": gang,
        "lost_node": lost,
        "state": waits.state,
        "attempt_over": over,
        "waits_because": waiting.reason,
        "position": waiting.position,
        "entry": event.last().map(|event| event.entry),
    }))
}

/// Starts the agent again; the gang runs again, all of it.
pub(super) async fn back(stage: &Stage, renter: &Renter, (gang, lost): (Gang, Lost)) -> Told<(Value, Gang)> {
    let pid = stage.crew.restart(&lost.machine.name)?;
    until(PATIENCE, &format!("node {} to be linked again", lost.machine.node), async || {
        expect(stage.crew.obituaries().is_empty(), "the agent to run", "it ended")?;
        let node = renter.client.node(lost.machine.node).await?;
        Ok(if node.linked { Ok(()) } else { Err("it is not linked".to_owned()) })
    })
    .await?;
    let again = met(renter, &gang, 2).await?;
    Ok((json!({ "agent": lost.machine.name, "pid": pid, "node": lost.machine.node, "gang": again }), gang))
}
