//! `selion simulate openb`: arrivals only.

use std::path::PathBuf;

use selion_sim::Weighting;
use selion_sim::openb::{Outcome, Report, Settings, simulate};

use super::simulate::{Bar, figure};
use crate::failure::Done;
use crate::output::Output;

/// Reads how much GPU is unallocated when 100 % of it has arrived, and at the end, at 130 %.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// List of GPU nodes
    #[arg(long, value_name = "CSV")]
    nodes: PathBuf,
    /// List of tasks; several give the mean too
    #[arg(long, value_name = "CSV", required = true)]
    pods: Vec<PathBuf>,
    /// market, fill, fgd, best-fit or random; fgd alone knows the whole list's mix beforehand, as published
    #[arg(long, default_value_t = Weighting::Market)]
    policy: Weighting,
    /// How many shuffles
    #[arg(long, default_value_t = 10)]
    seeds: u64,
    /// Runs side by side
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// The same as --output json
    #[arg(long)]
    pub json: bool,
}

/// Runs and reports.
pub fn main(out: Output, args: Args) -> Done {
    let Args { nodes, pods, policy, seeds, threads, json: _ } = args;
    let bar = Bar::new(out);
    let report = simulate(&Settings { nodes, pods, policy, seeds, threads }, &bar)?;
    drop(bar);
    out.show(&report, |report| human(out, report, policy, seeds))
}

fn human(out: Output, report: &Report, policy: Weighting, seeds: u64) -> String {
    let mut rows: Vec<[String; 6]> = report.lists().into_iter().map(row).collect();
    if let Report::Several { mean, .. } = report {
        let (at_100, at_end) = (figure(mean.unallocated_at_100), figure(mean.unallocated_at_end));
        rows.push(["mean".to_owned(), at_100, at_end, String::new(), String::new(), String::new()]);
    }
    let theirs = match policy {
        Weighting::BestFit => "BestFit",
        Weighting::Random => "Random",
        Weighting::Fgd | Weighting::Fill | Weighting::Market => "FGD",
    };
    let head = ["LIST", "AT 100 %", "AT THE END", "PUBLISHED AT 100 %", "PUBLISHED AT THE END", "DECISIONS/S"];
    format!(
        "unallocated GPU in % of the cluster, policy {policy}, {seeds} seeds, mean ± deviation; published: {theirs}\n{}",
        out.table(head, rows, "no lists")
    )
}

fn row(outcome: &Outcome) -> [String; 6] {
    let spread = |spread: &selion_sim::stats::Spread| format!("{:.2} ± {:.2}", spread.mean, spread.sd);
    let theirs = |value: fn(&selion_sim::trace::Published) -> f64| {
        outcome.published.as_ref().map_or("-".to_owned(), |published| figure(value(published)))
    };
    [
        outcome.list.clone(),
        outcome.unallocated_at_100.as_ref().map_or("-".to_owned(), spread),
        spread(&outcome.unallocated_at_end),
        theirs(|published| published.at_100),
        theirs(|published| published.at_end),
        outcome.decisions_per_s.to_string(),
    ]
}
