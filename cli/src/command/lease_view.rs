//! Leases for people.

use selion_api::blocking::Shortfall;
use selion_api::lease::{LeaseState, Resource};
use selion_api::outputs::OutputState;
use selion_api::rest::{Lease, LeaseEvent, LeaseOutput, PlacementView, Waiting};
use selion_api::{Rate, Reason, TimeMs};

use super::quote_view::{blocking, staged};
use crate::output::{Output, nearest};
use crate::slice::{show_class, show_gpus, show_member, show_places, show_slot};
use crate::unit::{show_duration, show_elapsed, show_money, show_size, show_time, show_when};

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
        let id = lease.name.as_ref().map_or_else(|| lease.id.to_string(), |name| format!("{} {name}", lease.id));
        [id, lease.state.code().to_owned(), why, slices, show_money(lease.amount.0), made]
    });
    out.table(
        ["LEASE", "STATE", "WHY", "SLICES", "COST", "MADE"],
        rows.collect(),
        "no leases yet; `selion run --slice 1g.10gb -- COMMAND` makes one",
    )
}

/// Everything about one lease, at `now`.
pub fn detail(out: Output, lease: &Lease, now: TimeMs) -> String {
    let mut text = format!("{} is {} since {}\n", lease.id, lease.state.code(), show_when(lease.since_ms, now));
    if let Some(name) = &lease.name {
        text.push_str(&format!("name: {name}\n"));
    }
    if !lease.labels.is_empty() {
        let labels: Vec<String> = lease.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        text.push_str(&format!("labels: {}\n", labels.join(", ")));
    }
    text.push_str(&asked_for(lease, now));
    match (&lease.waiting, lease.reason) {
        (Some(waiting), _) => text.push_str(&format!("{}\n", self::waiting(waiting, now))),
        (None, Some(reason)) => text.push_str(&format!("reason: {reason}: {}\n", reason.text())),
        (None, None) => {}
    }
    if let Some(licence) = &lease.licence {
        text.push_str(&format!("licence: {licence}, a seat for each process\n"));
    }
    // Who waits was told when it gives up.
    if let Some(deadline) = lease.deadline_ms.filter(|_| lease.waiting.is_none()) {
        text.push_str(&format!("this state ends by itself at {}\n", show_when(deadline, now)));
    }
    if let Some(by) = lease.taken_back_ms {
        let by = show_when(by, now);
        text.push_str(&format!("an owner takes the GPU back: what still runs at {by} is stopped\n"));
    }
    if let Some(until) = lease.paid_until_ms {
        let until = show_when(until, now);
        text.push_str(&format!(
            "more of your deposit thaws than is free: it is paid until {until} and stopped then; `selion account thaw 0` or a \
             deposit lets it run on\n"
        ));
    }
    let signed = if lease.signed { "" } else { "; not signed by the account" };
    text.push_str(&format!(
        "cost {} tokens, {} reserved{signed}\n",
        show_money(lease.amount.0),
        show_money(lease.reserved.0)
    ));
    if lease.state == LeaseState::Active {
        let so_far = show_money(estimate(lease, now));
        text.push_str(&format!("about {so_far} tokens so far, by the clock; the bill goes by what the nodes report\n"));
    }
    let rows = lease.members.iter().map(|member| {
        let exit = member.exit_code.map(|code| code.to_string()).unwrap_or_default();
        [
            member.rank.to_string(),
            format!("{} ({})", show_places(member.gpus.len(), &member.slot), show_class(member.class)),
            show_money(member.rate.0),
            show_elapsed(member.billable_ms),
            show_money(member.amount.0),
            exit,
            staged(member.datasets),
            member.node.to_string(),
        ]
    });
    let rows: Vec<_> = rows.collect();
    if !rows.is_empty() {
        let head = ["MEMBER", "SLICE", "PER HOUR", "BILLED", "COST", "EXIT", "DATA", "NODE"];
        text.push_str(&out.table(head, rows, ""));
        text.push('\n');
    }
    for run in &lease.attempts {
        text.push_str(&format!("run {} ended: {}, {} tokens\n", run.attempt, run.reason, show_money(run.amount.0)));
    }
    if !lease.outputs.is_empty() {
        text.push_str(&outputs(out, &lease.outputs));
        text.push('\n');
    }
    text
}

/// What each member uses, as its node last told.
pub fn top(out: Output, lease: &Lease) -> String {
    let size = |bytes: Option<u64>| bytes.map(show_size).unwrap_or_default();
    let told = lease.members.iter().filter_map(|member| member.usage.map(|used| (member.rank, used)));
    let rows = told.map(|(rank, used)| {
        [
            rank.to_string(),
            used.cpu_ms.map(show_elapsed).unwrap_or_default(),
            size(used.memory_bytes),
            size(used.memory_peak_bytes),
            used.pids.map(|pids| pids.to_string()).unwrap_or_default(),
            size(used.disk_bytes),
        ]
    });
    let head = ["MEMBER", "CPU TIME", "MEMORY", "PEAK", "PROCESSES", "DISK"];
    out.table(head, rows.collect(), "no node has told what a member of it uses; one that runs tells every few seconds")
}

/// What was asked for, when, and how long it took to start.
fn asked_for(lease: &Lease, now: TimeMs) -> String {
    let limit = lease.max_rate.map(|rate| format!(", at most {} an hour each", show_money(rate.0))).unwrap_or_default();
    let wants: Vec<String> = lease.wants.iter().map(show_member).collect();
    let wants: Vec<String> = wants
        .chunk_by(|one, next| one == next)
        .map(|equal| match equal {
            [one] => one.clone(),
            _ => format!("{} x {}", equal.len(), equal.first().map_or("", String::as_str)),
        })
        .collect();
    let took = match lease.state {
        LeaseState::Active => format!(", active {} later", show_elapsed(lease.since_ms.since(lease.created_ms))),
        _ => String::new(),
    };
    format!(
        "asked: {} for {}{limit}, on {}{took}\n",
        wants.join(" + "),
        show_duration(lease.duration_ms),
        show_when(lease.created_ms, now)
    )
}

/// What an active lease costs up to `now` at its rates, in base units.
fn estimate(lease: &Lease, now: TimeMs) -> u64 {
    let ms = u128::from(now.since(lease.since_ms));
    let rate: u128 = lease.members.iter().map(|member| u128::from(member.rate.0)).sum();
    u64::try_from(rate * ms / 3_600_000)
        .unwrap_or(u64::MAX)
        .max(lease.amount.0)
        .min(lease.reserved.0.max(lease.amount.0))
}

/// What the members left, run by run.
pub fn outputs(out: Output, outputs: &[LeaseOutput]) -> String {
    let rows = outputs.iter().map(|one| {
        [
            one.attempt.to_string(),
            one.rank.to_string(),
            one.state.code().to_owned(),
            one.files.to_string(),
            show_size(one.bytes),
            one.skipped.to_string(),
            one.cid.clone().or_else(|| one.why.clone()).unwrap_or_default(),
        ]
    });
    let head = ["RUN", "MEMBER", "OUTPUTS", "FILES", "SIZE", "SKIPPED", "CID"];
    let mut text = out.table(head, rows.collect(), "no outputs: nothing was left in $SELION_OUTPUT_DIR");
    for one in outputs {
        for entry in &one.skipped_first {
            text.push_str(&format!("\nrun {} member {}: {} skipped: {}", one.attempt, one.rank, entry.path, entry.why));
        }
    }
    text
}

/// Of what `run` left: a line each on what there is and how to have it.
pub fn told(lease: &Lease) -> Vec<String> {
    let of_last = lease.outputs.iter().filter(|one| is_of_last_run(lease, one));
    of_last.map(|one| output_line(lease, one)).collect()
}

/// Whether it is of the run in which its member was last.
pub fn is_of_last_run(lease: &Lease, one: &LeaseOutput) -> bool {
    lease.members.iter().any(|member| member.rank == one.rank && member.attempt == one.attempt)
}

fn output_line(lease: &Lease, one: &LeaseOutput) -> String {
    let who = format!("output of member {}", one.rank);
    let get = one.cid.as_ref().map(|cid| format!("selion data get {cid} DEST")).unwrap_or_default();
    match one.state {
        OutputState::Kept => format!("{who}: {get}"),
        OutputState::Partial => {
            let named: Vec<&str> = one.skipped_first.iter().take(3).map(|entry| entry.path.as_str()).collect();
            format!("{who} is not whole, {} skipped ({} ...): {get}", one.skipped, named.join(", "))
        }
        OutputState::Uploading => {
            format!("{who} is still being sent; `selion lease outputs {}` shows how far it is", lease.id)
        }
        OutputState::Lost => format!("{who} is lost: {}", one.why.as_deref().unwrap_or("the node did not say why")),
    }
}

/// Why a lease waits, at `now`.
pub fn waiting(waiting: &Waiting, now: TimeMs) -> String {
    let near = waiting.nearest.as_ref().map(|near| format!("; nearest: {}", nearest(near))).unwrap_or_default();
    let booked = waiting.booked_ms.map(|at| format!("; starts by {}", show_when(at, now))).unwrap_or_default();
    format!(
        "waits at position {}: {} ({}){near}{booked}; gives up at {}",
        waiting.position,
        waiting.reason.text().trim_end_matches('.'),
        waiting.reason,
        show_when(waiting.until_ms, now)
    )
}

/// One change of a lease.
pub fn event(event: &LeaseEvent) -> String {
    let why = event.reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("{} {}{why}, entry {}", show_time(event.at_ms), event.state.code(), event.entry)
}

/// What the table of candidates is about, where the lease does not wait.
pub fn judged(state: LeaseState) -> &'static str {
    match state {
        LeaseState::Waiting => "",
        LeaseState::Ended => "it is over; the table judges the same request, if it were made now\n",
        _ => "it has its places; the table judges a second lease like it, beside this one\n",
    }
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
            let what = if near.resource == Some(Resource::Members) { "members that want the same" } else { "nodes" };
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

    use crate::output::Format;

    /// A gang of seven that is active, at 1 token an hour each.
    fn lease() -> Lease {
        let zero = format!("0x{}", "01".repeat(20));
        let member = serde_json::json!({
            "rank": 0, "node": zero, "provider": zero, "gpus": [], "slot": { "kind": "whole" }, "class": "whole",
            "rate": "1000000", "operator_rate": "0", "port": 1, "address": "", "billable_ms": 0, "amount": "0",
            "exit_code": null, "datasets": { "staged": 0, "of": 0 }, "attempt": 1, "surcharge": "0",
        });
        serde_json::from_value(serde_json::json!({
            "id": "lease-5-0", "renter": zero, "state": "active", "reason": null, "party": null, "waiting": null,
            "attempt": 1, "members": vec![member; 7], "attempts": [],
            "wants": vec![serde_json::json!({ "slice": { "kind": "mig", "profile": "1g.10gb" } }); 7],
            "duration_ms": 3_600_000, "max_rate": null, "created_ms": 1_000_000, "since_ms": 1_012_000,
            "deadline_ms": 4_612_000, "reserved": "7000000", "amount": "0", "signed": true, "actions": [],
        }))
        .unwrap()
    }

    #[test]
    fn a_lease_is_told_once_with_how_far_its_times_are_and_what_it_costs_so_far() {
        let text = detail(Output::new(Format::Table), &lease(), TimeMs(1_132_000));
        assert!(text.contains("asked: 7 x 1g.10gb for 1h, on"), "{text}");
        assert!(text.contains("(2m12s ago), active 12.0s later"), "{text}");
        assert!(text.contains("(in 58m00s)") && text.contains("about 0.233333 tokens so far"), "{text}");
        let late = detail(Output::new(Format::Table), &lease(), TimeMs(u64::MAX));
        assert!(late.contains("about 7.00 tokens so far"), "never above what is reserved: {late}");
    }

    #[test]
    fn an_owner_who_takes_the_gpu_back_is_told_before_it_happens() {
        let told =
            |taken_back_ms| detail(Output::new(Format::Table), &Lease { taken_back_ms, ..lease() }, TimeMs(1_132_000));
        assert!(!told(None).contains("takes the GPU back"));
        let text = told(Some(TimeMs(1_732_000)));
        assert!(
            text.contains("an owner takes the GPU back: what still runs at") && text.contains("(in 10m00s)"),
            "{text}"
        );
    }

    #[test]
    fn until_when_a_lease_is_paid_is_told_with_what_lets_it_run_on() {
        let told =
            |paid_until_ms| detail(Output::new(Format::Table), &Lease { paid_until_ms, ..lease() }, TimeMs(1_132_000));
        assert!(!told(None).contains("thaw"));
        let text = told(Some(TimeMs(1_732_000)));
        assert!(text.contains("it is paid until") && text.contains("(in 10m00s)"), "{text}");
    }

    #[test]
    fn why_a_lease_waits_and_when_it_gives_up_are_told_once() {
        let waiting = serde_json::json!({
            "reason": "pool_full", "position": 1, "nearest": null, "booked_ms": null, "until_ms": 1_600_000,
        });
        let waiting = serde_json::from_value(waiting).unwrap();
        let (reason, deadline_ms) = (Some(Reason::PoolFull), Some(TimeMs(1_600_000)));
        let lease = Lease { state: LeaseState::Waiting, waiting: Some(waiting), reason, deadline_ms, ..lease() };
        let text = detail(Output::new(Format::Table), &lease, TimeMs(1_132_000));
        assert_eq!((text.matches("pool_full").count(), text.matches("(in 7m48s)").count()), (1, 1), "{text}");
    }

    #[test]
    fn what_is_missing_is_told_with_how_sure_it_is() {
        let (node, gpu, reason) = (NodeId([1; 20]), Some(GpuId([1; 16])), Reason::GangIncomplete);
        let near = NearestMiss { node, gpu, reason, resource: Some(Resource::Members), need: 4, have: 3 };
        let text = shortfall(&Shortfall { proved: true, nearest: Some(near.clone()) });
        assert!(
            text.contains("no places") && text.contains("needs 4 members") && text.contains("room for 3"),
            "{text}"
        );
        let text = shortfall(&Shortfall {
            proved: false,
            nearest: Some(NearestMiss { resource: Some(Resource::Nodes), gpu: None, ..near }),
        });
        assert!(text.contains("bound") && text.contains("4 nodes"), "{text}");
    }
}
