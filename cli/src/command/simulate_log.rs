//! `selion simulate log`: a real pool's log, run again with something changed.

use selion_sim::from_log::{Change, Comparison, Fate, Line, compare};

use super::simulate::{agreed, checked_line};
use crate::change::change;
use crate::failure::{Done, Failure};
use crate::logged;
use crate::output::Output;
use crate::unit::{show_elapsed, show_money};

/// Runs a real pool's log again with something changed, and shows what becomes of each lease.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The log: a controller's URL, a file with one published entry a line, or a data directory [default: the
    /// profile's controller]
    #[arg(long, value_name = "URL|FILE|DIR")]
    from_log: Option<String>,
    /// What is otherwise: price=+10%, price.MODEL=-20%, weight.ACCOUNT=3, quota.GROUP=25%, hold=10s, .. (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = change, required = true)]
    change: Vec<Change>,
    /// Shows also leases to which the change makes no difference
    #[arg(long)]
    all: bool,
    /// Asks a second opinion about every entry of both runs: a checker with books of its own
    #[arg(long)]
    check: bool,
    /// The same as --output json
    #[arg(long)]
    pub json: bool,
}

/// Runs it twice and shows the difference.
pub async fn main(out: Output, args: Args) -> Done {
    let history = logged::history(args.from_log.as_deref()).await?;
    let told = tokio::task::block_in_place(|| compare(&history, &args.change, args.check));
    let told = told.map_err(|error| Failure::usage(error, "name something that is in the log"))?;
    agreed(told.checked.as_ref())?;
    out.show(&told, |told| human(out, told, args.all))
}

fn human(out: Output, told: &Comparison, all: bool) -> String {
    let shown = told.lines.iter().filter(|line| all || line.differs());
    let mut text = out.table(
        ["LEASE", "WAITED", "THEN", "STARTED", "THEN", "NODES", "THEN", "COST", "THEN", "END", "THEN"],
        shown.map(row).collect(),
        "the change makes no difference to any lease",
    );
    let (before, after) = (&told.before, &told.after);
    text.push_str(&format!(
        "\n{} of {} requests differ; started {} then {}, mean wait {} then {}, paid {} then {}",
        told.lines.iter().filter(|line| line.differs()).count(),
        told.lines.len(),
        before.started,
        after.started,
        show_elapsed(before.mean_wait_ms),
        show_elapsed(after.mean_wait_ms),
        show_money(before.cost.0),
        show_money(after.cost.0)
    ));
    for node in before.income.keys().chain(after.income.keys()).collect::<std::collections::BTreeSet<_>>() {
        let earned = |income: &std::collections::BTreeMap<_, selion_api::Amount>| {
            show_money(income.get(node).copied().unwrap_or_default().0)
        };
        text.push_str(&format!("\nnode {node} earned {} then {}", earned(&before.income), earned(&after.income)));
    }
    text.push_str(&format!(
        "\nthe model without the change starts {} of the log's {} started leases on the same nodes within a second",
        told.reproduced, told.started_in_log
    ));
    text.push_str(&checked_line(told.checked.as_ref()));
    for note in told.notes {
        text.push_str(&format!("\nnote: {note}"));
    }
    text
}

fn row(line: &Line) -> [String; 11] {
    let name = line.lease.map_or_else(|| format!("entry {}", line.entry), |lease| lease.to_string());
    let (before, after) = (&line.before, &line.after);
    [
        name,
        show_elapsed(before.waited_ms),
        show_elapsed(after.waited_ms),
        started(before),
        started(after),
        nodes(before),
        nodes(after),
        show_money(before.cost.0),
        show_money(after.cost.0),
        end(before),
        end(after),
    ]
}

fn started(fate: &Fate) -> String {
    fate.started.map_or_else(|| "never".to_owned(), crate::unit::show_time).replace(' ', "T")
}

fn end(fate: &Fate) -> String {
    fate.reason.map(|reason| reason.to_string()).unwrap_or_default()
}

/// The nodes, short, each once.
fn nodes(fate: &Fate) -> String {
    let mut names: Vec<String> = fate.nodes.iter().map(|node| short(&node.to_string())).collect();
    names.dedup();
    names.join(",")
}

fn short(id: &str) -> String {
    match (id.get(..6), id.get(id.len().saturating_sub(4)..)) {
        (Some(head), Some(tail)) if id.len() > 12 => format!("{head}..{tail}"),
        _ => id.to_owned(),
    }
}
