//! The audit, on the pool and on a copy that lies.

use std::time::Duration;

use selion_api::rest::LoggedEntry;
use serde_json::{Value, json};

use super::chain::Chain;
use crate::fault::{Expecting, Fault, Told, expect, until};
use crate::renter::Renter;
use crate::stage::{Answer, Stage};

/// Longest wait for an anchor; they come every two seconds.
const ANCHOR: Duration = Duration::from_secs(15);
/// Entries asked for at once.
const PAGE: u32 = 1_000;

/// `selion audit`, from outside, with nothing but the chain's URL, the pool's address and where the log is.
pub(super) async fn audit(stage: &Stage, chain: &Chain, url: &str, anyone: &Renter) -> Told<(Value, Value)> {
    let anchored = until(ANCHOR, "an anchored head", async || {
        let head = anyone.client.log_head().await?;
        Ok(if head.anchored_size > 0 { Ok(head.anchored_size) } else { Err("none yet".to_owned()) })
    });
    let anchored = anchored.await?;
    let report = ask(stage, chain, url).await?.any_json("`selion audit` to report")?;
    expect(report["ok"] == true, "an audit without a finding", findings(&report))?;
    expect(report["unsigned_share_ppm"] == 0, "all that parties said to be signed", &report["signatures"])?;
    let evidence = json!({
        "entries": report["entries"],
        "root": report["root"],
        "anchored_size": anchored,
        "block": report["block"],
        "checks": report["checks"].as_array().map_or(0, Vec::len),
        "unsigned_share_ppm": report["unsigned_share_ppm"],
    });
    Ok((evidence, report))
}

async fn ask(stage: &Stage, chain: &Chain, log: &str) -> Told<Answer> {
    let pool = chain.pool.at.controller.to_string();
    stage.tool(None, ["--output", "json", "audit", "--rpc", &chain.rpc_url, "--pool", &pool, "--log", log]).await
}

fn findings(report: &Value) -> String {
    let bad = report["checks"].as_array().into_iter().flatten().filter(|check| check["ok"] != true);
    let told: Vec<String> = bad.map(|check| format!("{}: {}", check["name"], check["detail"])).collect();
    told.join("; ")
}

/// Copies the log, changes the last byte of one entry in the middle, and audits the copy.
pub(super) async fn alter(stage: &Stage, chain: &Chain, anyone: &Renter) -> Told<(Value, ())> {
    let copy = stage.path("copy.jsonl");
    let name = copy.to_str().expecting("a path in UTF-8")?;
    // Anchors go on: a copy is behind the chain by the time it is audited if one was mined in between.
    let log = until(ANCHOR, "a copy that passes before it is altered", async || {
        let log = whole_log(anyone).await?;
        write(&copy, &log)?;
        let report = ask(stage, chain, name).await?.any_json("`selion audit` to report on the copy")?;
        Ok(if report["ok"] == true { Ok(log) } else { Err(findings(&report)) })
    });
    let mut log = log.await?;

    let at = log.len() / 2;
    let victim = log.get_mut(at).expecting("an entry in the middle")?;
    let before = victim.entry.clone();
    let last = if victim.entry.pop() == Some('0') { '1' } else { '0' };
    victim.entry.push(last);
    let (seq, after) = (victim.seq, victim.entry.clone());
    write(&copy, &log)?;
    let answer = ask(stage, chain, name).await?;
    let bad = answer.any_json("`selion audit` to report on the altered copy")?;
    if answer.ok || bad["ok"] != false {
        return Err(Fault::new("the audit of an altered copy to fail", "it passed"));
    }
    let checks = bad["checks"].as_array().into_iter().flatten();
    let named = checks.filter(|check| check["ok"] == false).find(|check| check["entry"] == seq);
    let named = named
        .expecting(&format!("a finding that names entry {seq}"))
        .map_err(|fault| Fault::new(fault.expected, findings(&bad)))?;
    let evidence = json!({
        "entry": seq,
        "last_byte_before": tail_of(&before),
        "last_byte_after": tail_of(&after),
        "check": named["name"],
        "detail": named["detail"],
    });
    Ok((evidence, ()))
}

async fn whole_log(anyone: &Renter) -> Told<Vec<LoggedEntry>> {
    let mut log = Vec::new();
    loop {
        let page = anyone.client.log_entries(u64::try_from(log.len())?, PAGE).await?;
        log.extend(page.entries);
        if page.next.is_none() {
            return Ok(log);
        }
    }
}

fn tail_of(entry: &str) -> &str {
    entry.get(entry.len().saturating_sub(2)..).unwrap_or(entry)
}

fn write(path: &std::path::Path, log: &[LoggedEntry]) -> Told {
    let mut text = String::new();
    for entry in log {
        text.push_str(&serde_json::to_string(entry)?);
        text.push('\n');
    }
    Ok(std::fs::write(path, text)?)
}
