//! `selion simulate load`: how fast the engine decides.

use selion_sim::Weighting;
use selion_sim::load::{Case, CaseReport, Figure, Report, Settings, run_case, simulate};

use super::simulate::Bar;
use crate::failure::Done;
use crate::output::Output;

/// Fills a made fleet, then lets work come and go, all on one thread.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Nodes
    #[arg(long, required_unless_present = "case")]
    nodes: Option<usize>,
    /// GPUs in all
    #[arg(long, required_unless_present = "case")]
    gpus: Option<usize>,
    /// A case of fixed size, with its goals: kai (20 replicas come to 140,000 tasks on 4,000 nodes), million (2,000,000
    /// tasks are placed on 6,100 nodes) or replace (100,000 GPUs are placed from empty)
    #[arg(long, conflicts_with_all = ["nodes", "gpus", "classes", "gang", "racks", "decisions"])]
    case: Option<Case>,
    /// Distinct kinds of request
    #[arg(long, default_value_t = 91)]
    classes: usize,
    /// market, fill, fgd, best-fit or random
    #[arg(long, default_value_t = Weighting::Market)]
    policy: Weighting,
    /// Members of a gang: gangs in one rack each, every rack scored, in place of single tasks
    #[arg(long, value_name = "MEMBERS")]
    gang: Option<u32>,
    /// Racks over which the nodes are spread
    #[arg(long, default_value_t = 50)]
    racks: u32,
    /// Decisions measured once the fleet is full
    #[arg(long, default_value_t = 200_000)]
    decisions: usize,
    /// The same as --output json
    #[arg(long)]
    pub json: bool,
}

/// Runs and reports.
pub fn main(out: Output, args: Args) -> Done {
    let Args { nodes, gpus, case, classes, policy, gang, racks, decisions, json: _ } = args;
    let bar = Bar::new(out);
    if let Some(case) = case {
        let report = run_case(case, policy, &bar)?;
        drop(bar);
        return out.show(&report, |report| figures(out, report));
    }
    // Without a case both are there; the experiment refuses 0.
    let (nodes, gpus) = (nodes.unwrap_or_default(), gpus.unwrap_or_default());
    let report = simulate(&Settings { nodes, gpus, classes, policy, gang, racks, decisions }, &bar)?;
    drop(bar);
    out.show(&report, |report| human(out, report, gang))
}

fn figures(out: Output, report: &CaseReport) -> String {
    let row = |figure: &Figure| {
        [
            figure.name.replace('_', " "),
            format!("{:.3}", figure.value),
            figure.goal.map_or("-".to_owned(), |goal| format!("below {goal}")),
            figure.met.map_or("-", |met| if met { "yes" } else { "no" }).to_owned(),
        ]
    };
    out.table(["FIGURE", "VALUE", "GOAL", "MET"], report.figures.iter().map(row).collect(), "nothing measured")
}

fn human(out: Output, report: &Report, gang: Option<u32>) -> String {
    let row = [
        report.decisions_per_s.to_string(),
        report.decisions_per_cpu_s.map_or("-".to_owned(), |rate| rate.to_string()),
        format!("{:.1}", report.p50_us),
        format!("{:.1}", report.p99_us),
        format!("{:.1}", report.allocated),
        format!("{:.2}", report.fill_s),
        report.fill_decisions.to_string(),
        (report.rss_bytes >> 20).to_string(),
    ];
    let head = [
        if gang.is_some() { "MEMBERS/S" } else { "DECISIONS/S" },
        "PER CPU S",
        "P50 us",
        "P99 us",
        "ALLOCATED %",
        "FILL s",
        "FILL ARRIVALS",
        "PEAK MiB",
    ];
    out.table(head, vec![row], "nothing measured")
}
