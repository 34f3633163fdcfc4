//! The controller is killed while leases run.

use std::collections::BTreeMap;
use std::time::Duration;

use selion_api::LeaseId;
use selion_api::lease::LeaseState;
use selion_api::rest::{Lease, LogLine};
use selion_client::{Client, ClientError};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::gang::Gang;
use super::queue::Counter;
use crate::fault::{Expecting, Fault, Told, expect, until};
use crate::renter::{PATIENCE, Renter, tell};
use crate::stage::Stage;

/// From the start of the new process until it answers.
const BACK: Duration = Duration::from_secs(15);
/// Ticks that must come after the restart.
const MORE: u64 = 5;

/// Kills it, starts it again, and looks whether anybody noticed.
pub(super) async fn kill(
    stage: &Stage,
    url: &str,
    ganged: &Renter,
    gang: &Gang,
    counting: &Renter,
    counter: &Counter,
) -> Told<(Value, ())> {
    // A client of its own, whose calls do not try again.
    let client = Client::new(url)?;
    let fence = client.pool().await?.fence;
    let size = client.log_head().await?.newest.expecting("a signed head")?.head.size;
    let last = client.log_entries(size - 1, 1).await?.entries.pop().expecting("the last entry")?;
    let before = [live(ganged, gang.id).await?, live(counting, counter.id).await?];
    let ticks_then = ticks(&counter.tail.lines()).last().copied().expecting("the command to count")?;

    let killed = stage.crew.kill("controller")?;
    match client.health().await {
        Err(ClientError::Unreachable { .. }) => {}
        Err(error) => return Err(error.into()),
        Ok(health) => {
            return Err(Fault::new("nobody at the controller's address", format!("it answers {}", health.status)));
        }
    }
    let began = Instant::now();
    let pid = stage.crew.restart("controller")?;
    until(BACK, "the controller to answer again", async || {
        expect(stage.crew.obituaries().is_empty(), "the controller to run", "it ended")?;
        Ok(client.ready().await.map_err(|error| error.to_string()))
    })
    .await?;
    let back_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);

    let now = client.pool().await?.fence;
    expect(
        now.epoch == fence.epoch && now.term > fence.term,
        format!("a higher term than {}", fence.term),
        format!("{now:?}"),
    )?;
    let same = client.log_entries(size - 1, 1).await?.entries.pop().expecting("the last entry from before")?;
    expect((&same.entry, &same.effects) == (&last.entry, &last.effects), "the same last entry", &same.entry)?;
    meters_run(ganged, gang.id).await?;
    meters_run(counting, counter.id).await?;
    let went_on = |lines: &[LogLine]| ticks(lines).last().copied().filter(|tick| *tick >= ticks_then + MORE);
    let ticks_now = counter.tail.find(PATIENCE, &format!("ticks beyond {}", ticks_then + MORE), went_on).await?;
    for (renter, lease) in [(ganged, &before[0]), (counting, &before[1])] {
        let after = live(renter, lease.id).await?;
        let same = (after.attempt, after.members.len(), after.since_ms)
            == (lease.attempt, lease.members.len(), lease.since_ms);
        expect(same, format!("lease {} as it was: {}", lease.id, tell(lease)), tell(&after))?;
    }
    let all = ticks(&counter.tail.lines());
    let unbroken = all.iter().zip(0..).all(|(tick, at)| *tick == at);
    expect(unbroken, "every tick once and in order, through the restart", format!("{all:?}"))?;
    let started = started_once(&counter.tail.lines(), "started pid ", 1, before[1].attempt)?;
    started_once(&gang.tail.lines(), "rank ", before[0].members.len(), before[0].attempt)?;
    let evidence = json!({
        "killed_pid": killed,
        "pid": pid,
        "back_ms": back_ms,
        "fence_before": fence,
        "fence": now,
        "entries_before": size,
        "leases": before.each_ref().map(|lease| lease.id),
        "ticks_before": ticks_then,
        "ticks": ticks_now,
        "started": started,
    });
    Ok((evidence, ()))
}

async fn live(renter: &Renter, id: LeaseId) -> Told<Lease> {
    let lease = renter.client.lease(id).await?;
    expect(lease.state == LeaseState::Active, format!("lease {id} to be active"), tell(&lease))?;
    Ok(lease)
}

/// Every member's meter went on: its agent is linked to the new process and reports. (`linked` alone would not tell: the
/// log keeps a node as linked while its agent has time to come back.)
async fn meters_run(renter: &Renter, id: LeaseId) -> Told {
    // Read anew: a report may have entered the log between the last look and the kill.
    let before = live(renter, id).await?;
    let what = format!("the meters of {id} to go on");
    until(PATIENCE, &what, async || {
        let now = renter.client.lease(id).await?;
        let mut pairs = now.members.iter().zip(&before.members);
        let run = pairs.all(|(now, before)| now.billable_ms > before.billable_ms);
        let metered: Vec<u64> = now.members.iter().map(|member| member.billable_ms).collect();
        Ok(if run { Ok(()) } else { Err(format!("{}, metered {metered:?} ms", tell(&now))) })
    })
    .await
}

fn ticks(lines: &[LogLine]) -> Vec<u64> {
    lines.iter().filter_map(|heard| heard.text.strip_prefix("tick ")?.parse().ok()).collect()
}

/// Every member of the run said its first word once; what they said.
fn started_once(lines: &[LogLine], word: &str, members: usize, attempt: u32) -> Told<Vec<String>> {
    let mut said: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    let first_words = |text: &str| text.starts_with(word) && (word != "rank " || text.contains(", peers "));
    for heard in lines.iter().filter(|heard| heard.attempt == attempt && first_words(&heard.text)) {
        said.entry(heard.member).or_default().push(heard.text.clone());
    }
    let once = said.len() == members && said.values().all(|words| words.len() == 1);
    expect(once, format!("{members} commands, each started once"), format!("{said:?}"))?;
    Ok(said.into_values().flatten().collect())
}
