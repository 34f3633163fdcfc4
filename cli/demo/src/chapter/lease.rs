//! A MIG slice with a dataset, a real program, its lines as they come, and its outputs by CID.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use selion_api::agent::LogSource;
use selion_api::lease::LeaseState;
use selion_api::rest::{DatasetMount, Lease, LogLine};
use selion_api::slice::Sandbox;
use selion_api::{IsolationClass, Reason};
use serde_json::{Value, json};

use super::data::Data;
use super::image;
use crate::fault::{Expecting, Told, expect};
use crate::program::{MOUNT, expected_result, hash_everything, shell};
use crate::renter::{PATIENCE, Renter, mig, request, tell};
use crate::stage::Stage;
use crate::tail::Tail;

/// What a command of the caller's own may take.
const OWN_COMMAND: Duration = Duration::from_secs(300);
/// Between two looks for new lines to show.
const BLINK: Duration = Duration::from_millis(30);
const PROFILE: &str = "1g.10gb";

/// Leases, runs, follows, fetches, compares.
pub(super) async fn run_on_data(stage: &Stage, renter: &Renter, data: &Data) -> Told<(Value, ())> {
    let own = !stage.options.command.is_empty();
    let patience = if own { OWN_COMMAND } else { PATIENCE };
    let mut wanted = request(vec![selion_api::MemberWant::of(mig(PROFILE))], stage.options.command.clone());
    let made = if own { None } else { image::build(stage, renter).await? };
    if own {
        // Who brings a program may have a real GPU for it.
        wanted.classes = IsolationClass::ALL.to_vec();
    } else if let Some(made) = &made {
        wanted.image = Some(made.cid.clone());
    } else {
        wanted.command = shell(&hash_everything());
    }
    wanted.datasets = vec![DatasetMount { cid: data.cid.clone(), mount: MOUNT.to_owned() }];
    let asked = renter.ask(wanted).await.expecting("a MIG slice to be leased")?;
    let tail = Tail::follow(&renter.client, asked.id);
    let (ended, live) = tokio::select! {
        both = async {
            let live = is_live(stage, renter, &asked, &tail, patience).await?;
            Told::Ok((end(renter, &asked, patience).await?, live))
        } => both?,
        never = echo(stage, &tail) => match never {},
    };
    let lines = tail.whole(PATIENCE).await?;
    expect(ended.reason == Some(Reason::Completed), "the lease to end as completed", told_at_length(&ended, &lines))?;
    let mounted = if own { None } else { Some(read_only(renter, &ended, &lines).await?) };

    let kept = ended.outputs.iter().find(|one| one.state.is_readable());
    let cid = kept.and_then(|one| one.cid.clone()).expecting("a CID of the outputs")?;
    let result = fetch(stage, renter, &cid, "outputs").await?;
    let compared = if own { Value::Null } else { compare(&result, &data.path)? };
    let active = renter.event(asked.id, LeaseState::Active, 1).await?;
    let place = ended.members.first().expecting("the lease to say where it ran")?;
    let evidence = json!({
        "lease": asked.id,
        "node": place.node,
        "gpus": place.gpus,
        "slot": place.slot,
        "class": place.class,
        "rate": place.rate,
        "active_entry": active.entry,
        "signed_request": ended.signed,
        "log_lines": lines.len(),
        "live": live,
        "mounted": mounted,
        "image": made.map(|made| json!({ "cid": made.cid, "digest": made.digest })),
        "outputs_cid": cid,
        "result": compared,
        "billable_ms": place.billable_ms,
        "amount": ended.amount,
    });
    Ok((evidence, ()))
}

/// A line of the command is here while the lease still runs. A command of the caller's own may say nothing.
async fn is_live(stage: &Stage, renter: &Renter, asked: &Lease, tail: &Tail, patience: Duration) -> Told<Value> {
    let first = |lines: &[LogLine]| lines.iter().find(|heard| heard.source == LogSource::Stdout).cloned();
    if !stage.options.command.is_empty() {
        return Ok(Value::Null);
    }
    let first = tail.find(patience, "a first line of the command", first).await?;
    let then = renter.client.lease(asked.id).await?;
    // The line may be faster than the agent's signed word that the command runs.
    let runs = matches!(then.state, LeaseState::Starting | LeaseState::Active);
    expect(runs, "the lease to run when its first line is here", tell(&then))?;
    Ok(json!({ "first_line": first.text, "state_then": then.state }))
}

/// Shows lines as they come, until it is dropped.
async fn echo(stage: &Stage, tail: &Tail) -> std::convert::Infallible {
    let mut shown = 0;
    loop {
        let lines = tail.lines();
        for line in &lines[shown..] {
            stage.screen.aside(&line.text);
        }
        shown = lines.len();
        tokio::time::sleep(BLINK).await;
    }
}

async fn end(renter: &Renter, asked: &Lease, patience: Duration) -> Told<Lease> {
    let ended = renter.client.wait(asked.id, LeaseState::Ended, patience).await;
    let ended = ended.expecting(&format!("lease {} to end", asked.id))?;
    // The agent's word on the outputs may come right behind the end.
    let with_outputs = crate::fault::until(PATIENCE, "the CID of the outputs", async || {
        let lease = renter.client.lease(ended.id).await?;
        let done = lease.reason != Some(Reason::Completed) || lease.outputs.iter().any(|one| one.state.is_final());
        Ok(if done { Ok(lease) } else { Err("none yet".to_owned()) })
    });
    with_outputs.await
}

fn told_at_length(lease: &Lease, lines: &[LogLine]) -> String {
    let last: Vec<&str> = lines.iter().rev().take(5).map(|heard| heard.text.as_str()).collect();
    let codes: Vec<Option<i32>> = lease.members.iter().map(|member| member.exit_code).collect();
    format!(
        "{}, exit codes {codes:?}, last lines: {}",
        tell(lease),
        last.into_iter().rev().collect::<Vec<_>>().join(" / ")
    )
}

/// What the program found when it tried to write. A bare child has verified copies, made read-only; root may still write
/// to those, and the node's offer says that it has no sandbox.
async fn read_only(renter: &Renter, lease: &Lease, lines: &[LogLine]) -> Told<Value> {
    let said = lines.iter().map(|heard| heard.text.as_str()).find(|text| text.starts_with("the data is "));
    let said = said.expecting("the program to say whether the data is read-only")?;
    let place = lease.members.first().expecting("the lease to say where it ran")?;
    let sandbox = renter.client.node(place.node).await?.sandbox;
    if sandbox != Some(Sandbox::None) {
        expect(said == "the data is read-only", "the data is read-only", said)?;
    }
    Ok(json!({ "said": said, "sandbox": sandbox }))
}

/// `selion data get` verifies every block against the CID.
pub(super) async fn fetch(stage: &Stage, renter: &Renter, cid: &str, name: &str) -> Told<std::path::PathBuf> {
    let dest = stage.path(name);
    let args = ["--output", "json", "data", "get", cid].map(OsString::from);
    let answer = stage.tool(Some(&renter.home), args.into_iter().chain([dest.clone().into_os_string()])).await?;
    answer.json("`selion data get` to fetch and verify the outputs")?;
    Ok(dest)
}

fn compare(outputs: &Path, data: &Path) -> Told<Value> {
    let found = std::fs::read_to_string(outputs.join("result.txt")).expecting("result.txt in the outputs")?;
    let expected = expected_result(data).expecting("the data to be readable here")?;
    expect(found == expected, format!("the hashes of the data:\n{expected}"), &found)?;
    Ok(json!({ "file": "result.txt", "files_hashed": expected.lines().count(), "equal": true }))
}
