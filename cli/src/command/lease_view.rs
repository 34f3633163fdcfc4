//! Leases for people.

use selion_api::blocking::Shortfall;
use selion_api::rest::{Lease, LeaseEvent, PlacementView, Waiting};
use selion_api::{Rate, Reason};

use super::quote_view::{blocking, staged};
use crate::output::{Output, nearest};
use crate::slice::{show_class, show_gpus, show_member, show_places, show_slot};
use crate::unit::{show_duration, show_elapsed, show_money, show_time};

/// One line a lease.
pub fn list(out: Output, leases: &[Lease]) -> String {
    let rows = leases.iter().map(|lease| {
        let slices = lease.wants.first().map(show_member).unwrap_or_default();
        let slices = match (lease.members.len(), lease.wants.len()) {
            (_, 0 | 1) => slices,
            (has, asked) if has > 0 && has < asked => format!("{has} of {asked} x {slices}"),
            (_, asked) => format!("{asked} x {slices}"),
        };
        let why = match (&lease.waiting, lease.reason) {
            (Some(waiting), _) => format!("{}, position {}", waiting.reason, waiting.position),
            (None, Some(reason)) => reason.to_string(),
            (None, None) => String::new(),
        };
        let made = show_time(lease.created_ms);
        [lease.id.to_string(), lease.state.code().to_owned(), why, slices, show_money(lease.amount.0), made]
    });
    out.table(
        ["LEASE", "STATE", "WHY", "SLICES", "COST", "MADE"],
        rows.collect(),
        "no leases yet; `selion run --slice 1g.10gb -- COMMAND` makes one",
    )
}

/// Everything about one lease.
pub fn detail(out: Output, lease: &Lease) -> String {
    let mut text = format!("{} is {} since {}\n", lease.id, lease.state.code(), show_time(lease.since_ms));
    if let Some(reason) = lease.reason {
        text.push_str(&format!("reason: {reason}: {}\n", reason.text()));
    }
    if let Some(waiting) = &lease.waiting {
        text.push_str(&format!("{}\n", self::waiting(waiting)));
    }
    let limit = lease.max_rate.map(|rate| format!(", at most {} an hour each", show_money(rate.0))).unwrap_or_default();
    let wants: Vec<String> = lease.wants.iter().map(show_member).collect();
    text.push_str(&format!("asked: {} for {}{limit}\n", wants.join(" + "), show_duration(lease.duration_ms)));
    if let Some(licence) = &lease.licence {
        text.push_str(&format!("licence: {licence}, a seat for each process\n"));
    }
    if let Some(deadline) = lease.deadline_ms {
        text.push_str(&format!("this state ends by itself at {}\n", show_time(deadline)));
    }
    let signed = if lease.signed { "" } else { "; not signed by the account" };
    text.push_str(&format!(
        "cost {} tokens, {} reserved{signed}\n",
        show_money(lease.amount.0),
        show_money(lease.reserved.0)
    ));
    let rows = lease.members.iter().map(|member| {
        let exit = member.exit_code.map(|code| code.to_string()).unwrap_or_default();
        let output = lease.outputs.get(&member.rank).cloned().unwrap_or_default();
        [
            member.rank.to_string(),
            format!("{} ({})", show_places(member.gpus.len(), &member.slot), show_class(member.class)),
            show_money(member.rate.0),
            show_elapsed(member.billable_ms),
            show_money(member.amount.0),
            exit,
            staged(member.datasets),
            member.node.to_string(),
            output,
        ]
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        let head = ["MEMBER", "SLICE", "PER HOUR", "BILLED", "COST", "EXIT", "DATA", "NODE", "OUTPUT"];
        text.push_str(&out.table(head, rows, ""));
        text.push('\n');
    }
    for run in &lease.attempts {
        text.push_str(&format!("run {} ended: {}, {} tokens\n", run.attempt, run.reason, show_money(run.amount.0)));
    }
    text
}

/// Why a lease waits.
pub fn waiting(waiting: &Waiting) -> String {
    let near = waiting.nearest.as_ref().map(|near| format!("; nearest: {}", nearest(near))).unwrap_or_default();
    let booked = waiting.booked_ms.map(|at| format!("; starts by {}", show_time(at))).unwrap_or_default();
    format!(
        "waits at position {}: {} ({}){near}{booked}; gives up at {}",
        waiting.position,
        waiting.reason.text().trim_end_matches('.'),
        waiting.reason,
        show_time(waiting.until_ms)
    )
}

/// One change of a lease.
pub fn event(event: &LeaseEvent) -> String {
    let why = event.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("{} {}{why}, entry {}", show_time(event.at_ms), event.state.code(), event.entry)
}

/// How the candidates look.
pub fn placement(out: Output, view: &PlacementView) -> String {
    let rows = view.candidates.iter().map(|candidate| {
        [
            candidate.member.to_string(),
            show_gpus(&candidate.gpus),
            candidate.slot.as_ref().map(show_slot).unwrap_or_default(),
            candidate.rate.map(|Rate(rate)| show_money(rate)).unwrap_or_default(),
            candidate.reason.map_or_else(|| "fits".to_owned(), |reason| reason.to_string()),
        ]
    });
    let table = out.table(["MEMBER", "GPU", "SLOT", "PER HOUR", "VERDICT"], rows.collect(), "the pool has no GPUs");
    let starts = view.starts_ms.map(|at| format!("\nexpected to start by {}", show_time(at))).unwrap_or_default();
    let blocking = view.blocking.as_ref().map(|set| format!("\n{}", blocking(set))).unwrap_or_default();
    let short = view.shortfall.as_ref().map(|short| format!("\n{}", shortfall(short))).unwrap_or_default();
    format!("{table}{starts}{short}{blocking}")
}

/// Why a lease has no places now.
fn shortfall(short: &Shortfall) -> String {
    let sure =
        if short.proved { "there are no places for it now" } else { "no places were found within the search's bound" };
    let near = match &short.nearest {
        Some(near) if near.reason == Reason::GangIncomplete && near.need > near.have => {
            let what = if near.gpu.is_some() { "members that want the same" } else { "nodes" };
            format!(": needs {} {what}, at best there is room for {}, with node {}", near.need, near.have, near.node)
        }
        Some(near) => format!(": nearest: {}", nearest(near)),
        None => String::new(),
    };
    format!("{sure}{near}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use selion_api::lease::NearestMiss;
    use selion_api::{GpuId, NodeId};

    #[test]
    fn what_is_missing_is_told_with_how_sure_it_is() {
        let (node, gpu, reason) = (NodeId([1; 20]), Some(GpuId([1; 16])), Reason::GangIncomplete);
        let near = NearestMiss { node, gpu, reason, need: 4, have: 3 };
        let text = shortfall(&Shortfall { proved: true, nearest: Some(near.clone()) });
        assert!(
            text.contains("no places") && text.contains("needs 4 members") && text.contains("room for 3"),
            "{text}"
        );
        let text = shortfall(&Shortfall { proved: false, nearest: Some(NearestMiss { gpu: None, ..near }) });
        assert!(text.contains("bound") && text.contains("4 nodes"), "{text}");
    }
}
