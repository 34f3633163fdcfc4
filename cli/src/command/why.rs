//! `selion why`: what held a lease up, and what would have happened had something been otherwise.

use selion_api::{LeaseId, TimeMs};
use selion_sim::why::{Answer, If, WhatIf, WhyError, what_if, why};
use serde::Serialize;

use crate::change::if_asked;
use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::logged;
use crate::output::{Output, nearest};
use crate::unit::{show_elapsed, show_money, show_time, time};

/// Says why a lease waited, by replay of the pool's log; with --if, what would have happened otherwise.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The lease
    #[arg(value_name = "LEASE")]
    lease: LeaseId,
    /// The time in question, UTC [default: the end of its last wait]
    #[arg(long, value_name = "TIME", value_parser = time)]
    at: Option<TimeMs>,
    /// What could have been otherwise: max_rate=+10%, wait=2h, model=any, .. in its request; price.MODEL=-20%,
    /// policy.bookings=false, quota.GROUP=25%, .. in the pool (repeatable)
    #[arg(long = "if", value_name = "NAME=VALUE", value_parser = if_asked)]
    otherwise: Vec<If>,
    /// The log: a controller's URL, a file with one published entry a line, or a data directory [default: the
    /// profile's controller]
    #[arg(long, value_name = "URL|FILE|DIR")]
    log: Option<String>,
    /// The same as --output json
    #[arg(long)]
    pub json: bool,
}

#[derive(Debug, Serialize)]
struct Told {
    #[serde(flatten)]
    answer: Answer,
    #[serde(skip_serializing_if = "Option::is_none")]
    what_if: Option<WhatIf>,
}

/// Answers.
pub async fn main(out: Output, args: Args) -> Done {
    let history = logged::history(args.log.as_deref()).await?;
    let told = tokio::task::block_in_place(|| {
        let answer = why(&history, args.lease, args.at)?;
        let what_if = match args.otherwise.is_empty() {
            true => None,
            false => Some(what_if(&history, args.lease, &args.otherwise)?),
        };
        Ok(Told { answer, what_if })
    });
    let told = told.map_err(failure)?;
    out.show(&told, |told| {
        let mut text = human(out, &told.answer);
        if let Some(what_if) = &told.what_if {
            text.push_str(&otherwise(what_if));
        }
        text
    })
}

fn failure(error: WhyError) -> Failure {
    match error {
        WhyError::NoSuchLease { .. } => {
            Failure::new(Exit::NotFound, "no_such_lease", error, "`selion lease list` names yours")
        }
        WhyError::BeforeIt { asked_ms, .. } => {
            let from = show_time(TimeMs(asked_ms));
            Failure::usage(error, format!("ask for a time from {from} on, or leave --at out"))
        }
        WhyError::OutsideLog { from_ms, until_ms, .. } => {
            let (from, until) = (show_time(TimeMs(from_ms)), show_time(TimeMs(until_ms)));
            Failure::usage(error, format!("ask for a time from {from} to {until}, or leave --at out"))
        }
        WhyError::Forgotten { .. } => Failure::usage(error, "ask for an earlier time, or leave --at out"),
        WhyError::NoMaxRate { .. } => Failure::usage(error, "write a rate, as in --if max_rate=0.80"),
        WhyError::NoSuch(_) => Failure::usage(error, "name something that is in the log"),
    }
}

fn human(out: Output, told: &Answer) -> String {
    let mut text = format!("{} at {} (entry {}): {}", told.lease, show_time(told.at), told.entry, told.state.code());
    if told.position > 0 {
        text.push_str(&format!(", position {} of {}", told.position, told.waiting));
    }
    if let Some(reason) = told.reason {
        text.push_str(&format!("\nreason: {reason}: {}", reason.text()));
    }
    if let Some(near) = &told.nearest {
        text.push_str(&format!("\nnearest: {}", nearest(near)));
    }
    if let Some(at) = told.estimate {
        text.push_str(&format!("\nexpected then to start by {}", show_time(at)));
    }
    if !told.candidates.is_empty() {
        let rows = told.candidates.iter().map(|group| {
            let holders: Vec<String> = group.held_by.iter().map(ToString::to_string).collect();
            let says = group.reason.map_or_else(|| "fits".to_owned(), |reason| reason.to_string());
            let ask = group.cheapest.map(|rate| show_money(rate.0)).unwrap_or_default();
            [group.gpus.to_string(), says, ask, group.node.to_string(), holders.join(", ")]
        });
        text.push('\n');
        text.push_str(&out.table(["GPUS", "SAY", "ASK FROM", "FOR EXAMPLE", "HELD BY"], rows.collect(), ""));
    }
    let rows = told.phases.iter().map(|phase| {
        let reason = phase.reason.map(|reason| reason.to_string()).unwrap_or_default();
        let position = if phase.position > 0 { phase.position.to_string() } else { String::new() };
        [show_time(phase.from), phase.entry.to_string(), phase.state.code().to_owned(), reason, position]
    });
    text.push('\n');
    text.push_str(&out.table(["FROM", "ENTRY", "STATE", "REASON", "POSITION"], rows.collect(), ""));
    let end = if told.fate.started.is_some() { "before it started" } else { "and has not started in this log" };
    text.push_str(&format!("\nit waited {} {end}", show_elapsed(told.fate.waited_ms)));
    text
}

fn otherwise(told: &WhatIf) -> String {
    let fate = |fate: &selion_sim::from_log::Fate| match (fate.started, fate.reason) {
        (Some(at), _) => format!("starts at {} after {} of waiting", show_time(at), show_elapsed(fate.waited_ms)),
        (None, Some(reason)) => format!("does not start: {reason}: {}", reason.text()),
        (None, None) => format!("still waits when the log ends, at {}", show_time(told.until)),
    };
    let mut text = format!("\nin the log it {}", fate(&told.real));
    text.push_str(&format!("\nthe model without a change: {}", fate(&told.before)));
    let had = if told.from == 0 { "had it been so:            " } else { "had it asked so:           " };
    text.push_str(&format!("\n{had} {}", fate(&told.after)));
    if let Some(rate) = told.rate_after {
        text.push_str(&format!(", for {} an hour", show_money(rate.0)));
    }
    if told.from == 0 {
        text.push_str(
            "\nnote: the pool was so from the first entry on, for everybody: both runs are the model's from there",
        );
    }
    for note in told.notes {
        text.push_str(&format!("\nnote: {note}"));
    }
    text
}
