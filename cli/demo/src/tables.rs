//! The end of the story for people: leases, money, checks.

use std::collections::BTreeMap;

use comfy_table::{Table, presets};
use selion_api::LeaseId;
use selion_api::slice::SliceWant;
use serde_json::Value;

use crate::process::Crew;
use crate::screen::{money, seconds};
use crate::story::{Left, Story};

/// Everything after the last step.
pub(crate) fn end(story: &Story, crew: &Crew) -> String {
    let mut parts = Vec::new();
    if !story.leases.is_empty() {
        parts.push(leases(story));
        parts.push(bills(story));
    }
    parts.extend(checks(&story.audit));
    if let Some(left) = &story.pool {
        parts.push(how_to_reach(left));
    }
    let held = story.steps.iter().filter(|step| step.ok).count();
    let ms = story.steps.iter().map(|step| step.ms).sum();
    parts.push(if story.ok {
        format!("all {held} steps held, in {}", seconds(ms))
    } else {
        format!("{held} steps held, then one did not; logs: {}", crew.logs().display())
    });
    parts.join("\n\n")
}

fn table(title: &str, head: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(head.to_vec());
    table.add_rows(rows);
    format!("{title}\n{table}")
}

fn slice(want: &SliceWant) -> String {
    match want {
        SliceWant::Whole => "whole".to_owned(),
        SliceWant::Mig { profile } => profile.clone(),
        SliceWant::Share { compute_permille, mem_bytes } => format!("{compute_permille}‰, {} GiB", mem_bytes >> 30),
    }
}

fn leases(story: &Story) -> String {
    let row = |lease: &selion_api::rest::Lease| {
        let slices: Vec<String> = lease.wants.iter().map(|want| slice(&want.slice)).collect();
        let runs: Vec<&str> = lease.attempts.iter().map(|run| run.reason.code()).collect();
        let reason = lease.reason.map_or("", selion_api::Reason::code);
        vec![
            lease.id.to_string(),
            slices.join(" + "),
            lease.state.code().to_owned(),
            reason.to_owned(),
            if runs.len() > 1 { runs.join(", ") } else { runs.len().to_string() },
            money(lease.amount.0),
        ]
    };
    let rows = story.leases.iter().map(row).collect();
    table("Leases", &["LEASE", "SLICES", "STATE", "REASON", "RUNS", "COST"], rows)
}

fn bills(story: &Story) -> String {
    let mut by_lease: BTreeMap<(LeaseId, u32), (u64, u64, usize)> = BTreeMap::new();
    for bill in &story.bills {
        let sum = by_lease.entry((bill.line.lease, bill.line.attempt)).or_default();
        sum.0 = sum.0.max(bill.line.billable_ms);
        sum.1 += bill.line.amount.0;
        sum.2 += 1;
    }
    let total: u64 = story.bills.iter().map(|bill| bill.line.amount.0).sum();
    let mut rows: Vec<Vec<String>> = by_lease
        .into_iter()
        .map(|((lease, run), (ms, amount, lines))| {
            vec![lease.to_string(), run.to_string(), lines.to_string(), seconds(ms), money(amount)]
        })
        .collect();
    rows.push(vec!["in all".into(), String::new(), story.bills.len().to_string(), String::new(), money(total)]);
    table("Money", &["LEASE", "RUN", "LINES", "TIME", "AMOUNT"], rows)
}

fn checks(audit: &Value) -> Option<String> {
    let text = |check: &Value, name: &str| check[name].as_str().unwrap_or_default().to_owned();
    let rows = audit["checks"].as_array()?.iter().map(|check| {
        let word = if check["ok"] == true { "ok" } else { "FAILED" };
        vec![word.to_owned(), text(check, "name"), text(check, "detail")]
    });
    let rows = rows.collect();
    Some(table("Checks, from the chain and the log alone", &["", "CHECK", "WHAT IT SAYS"], rows))
}

fn how_to_reach(left: &Left) -> String {
    let pids: Vec<String> = left.pids.iter().map(|(name, pid)| format!("{name} {pid}")).collect();
    let numbers: Vec<String> = left.pids.values().map(u32::to_string).collect();
    let mut lines = vec![
        "The pool is left running:".to_owned(),
        format!("  controller  {}", left.controller),
        format!("  chain       {} (chain {})", left.chain_rpc, left.chain_id),
        format!("  pool        {}", left.pool),
        format!("  processes   {}", pids.join(", ")),
        format!("  folder      {}", left.dir.display()),
    ];
    for (name, key) in &left.keys {
        lines.push(format!("  key of {name:<4} {}", key.display()));
    }
    if let Some(home) = left.keys.values().next().and_then(|key| key.parent()) {
        let selion = format!("SELION_HOME={} {}", home.display(), left.exe.display());
        lines.push(format!("try:  {selion} offers"));
        lines.push(format!("      {selion} account deposit 5 --dev && {selion} account grant 5"));
        lines.push(format!("      {selion} run --slice 1g.10gb -- nproc"));
    }
    lines.push(format!("stop: kill {}", numbers.join(" ")));
    lines.join("\n")
}
