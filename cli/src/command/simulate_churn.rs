//! `selion simulate churn`: tasks come and go.

use std::path::PathBuf;

use selion_sim::Weighting;
use selion_sim::churn::{Discipline, Lives, Load, Measures, Over, Report, Settings, simulate};

use super::simulate::{Bar, figure, signed};
use crate::failure::{Done, Failure};
use crate::output::Output;

/// Runs the policy and FGD on the same nodes, arrivals and lives.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// List of GPU nodes
    #[arg(long, value_name = "CSV")]
    nodes: PathBuf,
    /// List of tasks; several give the mean too
    #[arg(long, value_name = "CSV", required = true)]
    pods: Vec<PathBuf>,
    /// Arrived work over capacity; several with commas
    #[arg(long, value_name = "LOAD,..", value_delimiter = ',', default_value = "0.9,1.0,1.1,1.3")]
    load: Vec<f64>,
    /// How long tasks run: exponential, or as in the list
    #[arg(long, value_enum, default_value_t = LivesArg::Exp)]
    lives: LivesArg,
    /// Whether a task without room is lost, or waits
    #[arg(long, value_enum, default_value_t = DisciplineArg::Loss)]
    discipline: DisciplineArg,
    /// With a queue: nodes are booked for so many of the oldest waiting tasks of several GPUs
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "256")]
    bookings: Option<usize>,
    /// market, fill, fgd, best-fit or random
    #[arg(long, default_value_t = Weighting::Market)]
    policy: Weighting,
    /// How many runs of each
    #[arg(long, default_value_t = 3)]
    seeds: u64,
    /// Runs side by side
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// The same as --output json
    #[arg(long)]
    pub json: bool,
}

/// Where lives come from.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum LivesArg {
    /// Exponential
    Exp,
    /// The list's own
    Trace,
}

/// What becomes of a task without room.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum DisciplineArg {
    /// It is lost
    Loss,
    /// It waits
    Queue,
}

/// Runs and reports.
pub fn main(out: Output, args: Args) -> Done {
    let Args { nodes, pods, load: loads, policy, seeds, threads, .. } = args;
    let discipline = match (args.discipline, args.bookings) {
        (DisciplineArg::Loss, None) => Discipline::Loss,
        (DisciplineArg::Queue, None) => Discipline::Queue,
        (DisciplineArg::Queue, Some(limit)) => Discipline::Bookings(limit),
        (DisciplineArg::Loss, Some(_)) => {
            return Err(Failure::usage("--bookings without a queue", "add --discipline queue, or leave it out"));
        }
    };
    let lives = match args.lives {
        LivesArg::Exp => Lives::Exp,
        LivesArg::Trace => Lives::Trace,
    };
    let bar = Bar::new(out);
    let report = simulate(&Settings { nodes, pods, loads, lives, discipline, policy, seeds, threads }, &bar)?;
    drop(bar);
    out.show(&report, |report| human(out, report))
}

fn human(out: Output, report: &Report) -> String {
    let each = || report.lists.iter().flat_map(|list| list.loads.iter().map(move |load| (list.list.as_str(), load)));
    let mut rows: Vec<[String; 8]> = each().map(|(list, load)| row(list, load)).collect();
    rows.extend(report.mean.iter().map(mean));
    let bookings = if report.bookings > 0 { format!(" with {} bookings", report.bookings) } else { String::new() };
    let head = ["LIST", "LOAD", "STARTED %", "FGD", "DIFFERENCE", "ALLOCATED %", "FGD", "DIFFERENCE"];
    let text = format!(
        "policy {} against FGD that learns, {} lives, {}{bookings}, {} seeds, difference ± standard error\n\
         started: GPU started of GPU offered; allocated: GPU in use, mean over time\n{}",
        report.policy,
        report.lives,
        report.discipline,
        report.seeds,
        out.table(head, rows, "no lists")
    );
    let waits: Vec<[String; 9]> = each().flat_map(|(list, load)| waits(list, load)).collect();
    if report.discipline == "loss" {
        return text;
    }
    let head = ["LIST", "LOAD", "POLICY", "MEAN", "P95", "CLASS", "WORST", "NEVER %", "STARVED %"];
    format!(
        "{text}\n\nwaits in mean lives; never: not started when the run ends; starved: of those that came a mean life \
         before that\n{}",
        out.table(head, waits, "nobody waited")
    )
}

fn row(list: &str, load: &Load) -> [String; 8] {
    let difference = &load.difference;
    [
        list.to_owned(),
        load.load.to_string(),
        figure(load.ours.accepted.mean),
        figure(load.fgd.accepted.mean),
        signed(&difference.accepted),
        figure(load.ours.allocated.mean),
        figure(load.fgd.allocated.mean),
        signed(&difference.allocated),
    ]
}

fn mean(over: &Over) -> [String; 8] {
    let none = String::new;
    let (accepted, allocated) = (signed(&over.difference.accepted), signed(&over.difference.allocated));
    ["mean".to_owned(), over.load.to_string(), none(), none(), accepted, none(), none(), allocated]
}

fn waits(list: &str, load: &Load) -> Vec<[String; 9]> {
    let of = |name: &str, measures: &Measures| {
        let Some(waiting) = measures.waiting else { return Vec::new() };
        let row = |class: &selion_sim::churn::Class| {
            [
                list.to_owned(),
                load.load.to_string(),
                name.to_owned(),
                figure(waiting.mean),
                figure(waiting.p95),
                class.size.words().to_owned(),
                figure(class.worst_wait),
                figure(class.never_started),
                figure(class.starved),
            ]
        };
        measures.classes.iter().map(row).collect::<Vec<_>>()
    };
    [of("ours", &load.ours), of("fgd", &load.fgd)].concat()
}
