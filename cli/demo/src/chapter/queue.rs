//! Requests that wait, are placed, and are refused.

use selion_api::lease::LeaseState;
use selion_api::rest::{Lease, LogLine};
use selion_api::{LeaseId, Rate, Reason};
use selion_client::ClientError;
use serde_json::{Value, json};

use super::fleet::{H100, RTX};
use crate::fault::{Expecting, Fault, Told, expect, until};
use crate::program::count;
use crate::renter::{PATIENCE, Renter, member, mig, request, share};
use crate::tail::Tail;

/// Who is in the way, and who waits.
pub(super) struct Waits {
    in_the_way: LeaseId,
    waiting: LeaseId,
}

/// A lease that counts, and its lines.
pub(super) struct Counter {
    pub id: LeaseId,
    pub tail: Tail,
}

/// `first` takes half of the small GPU; `second` asks for more than what is left.
pub(super) async fn wait(first: &Renter, second: &Renter) -> Told<(Value, Waits)> {
    let half = request(vec![member(share(500, 8), RTX)], count());
    let in_the_way = first.ask(half).await.expecting("half of a GPU to be leased")?.id;
    first.reach(in_the_way, LeaseState::Active).await?;
    let most = request(vec![member(share(700, 8), RTX)], count());
    let asked = second.ask(most).await.expecting("a request that waits")?;
    let seen = until(PATIENCE, "a request that waits because the GPU is full", async || {
        let lease = second.client.lease(asked.id).await?;
        let full =
            lease.waiting.as_ref().is_some_and(|waiting| waiting.reason == Reason::PoolFull && waiting.position > 0);
        Ok(if full { Ok(lease) } else { Err(format!("{}, waiting: {:?}", crate::renter::tell(&lease), lease.waiting)) })
    });
    let seen = seen.await?;
    let waiting = seen.waiting.expecting("why it waits")?;
    let placement = second.client.placement(asked.id).await?;
    let evidence = json!({
        "lease": asked.id,
        "in_the_way": in_the_way,
        "entry": asked.id.seq,
        "position": waiting.position,
        "reason": waiting.reason,
        "nearest": waiting.nearest,
        "until_ms": waiting.until_ms,
        "candidates": placement.candidates.len(),
    });
    Ok((evidence, Waits { in_the_way, waiting: asked.id }))
}

/// `first` gives its half back, and `second` gets what it asked for.
pub(super) async fn place(first: &Renter, second: &Renter, waits: Waits) -> Told<(Value, Counter)> {
    first.client.release(waits.in_the_way).await.expecting("the half to be given back")?;
    let ended = first.reach(waits.in_the_way, LeaseState::Ended).await?;
    expect(ended.reason == Some(Reason::Released), "the half to end as released", format!("{:?}", ended.reason))?;
    let placed = second.reach(waits.waiting, LeaseState::Active).await?;
    let counter = Counter { id: waits.waiting, tail: Tail::follow(&second.client, waits.waiting) };
    let started = |lines: &[LogLine]| lines.iter().find(|heard| heard.text.starts_with("started pid ")).cloned();
    let started = counter.tail.find(PATIENCE, "the command to say that it started", started).await?;
    let active = second.event(placed.id, LeaseState::Active, placed.attempt).await?;
    let evidence = json!({
        "lease": placed.id,
        "released": waits.in_the_way,
        "active_entry": active.entry,
        "waited_ms": active.at_ms.0.saturating_sub(placed.created_ms.0),
        "started": started.text,
    });
    Ok((evidence, counter))
}

/// A slice that is free, for less than anybody asks.
pub(super) async fn refuse(renter: &Renter) -> Told<(Value, ())> {
    let before = renter.leases().await?.len();
    let mut wanted = request(vec![member(mig("1g.10gb"), H100)], count());
    wanted.max_rate = Some(Rate(1));
    let problem = match renter.ask(wanted).await {
        Err(ClientError::Problem(problem)) => problem,
        Err(error) => return Err(error.into()),
        Ok(lease) => return Err(Fault::new("a refusal", told(&lease))),
    };
    expect(problem.code == Reason::PriceAboveMax.code(), Reason::PriceAboveMax.code(), &problem.code)?;
    let nearest = problem.nearest.as_ref().expecting("the nearest miss")?;
    let after = renter.leases().await?.len();
    expect(before == after, "no lease of a refused request", format!("{after} leases after {before}"))?;
    let evidence = json!({
        "code": problem.code,
        "status": problem.status,
        "nearest": nearest,
        "suggestion": problem.suggestion,
        "trace_id": problem.trace_id,
    });
    Ok((evidence, ()))
}

fn told(lease: &Lease) -> String {
    format!("lease {} {}", lease.id, crate::renter::tell(lease))
}
