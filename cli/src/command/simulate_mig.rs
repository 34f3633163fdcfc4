//! `selion simulate mig`: MIG instances come and go.

use selion_sim::Weighting;
use selion_sim::mig::{Case, MIXES, Mix, Report, Settings, simulate};

use super::simulate::Bar;
use crate::failure::Done;
use crate::output::Output;

/// Runs the policy, first fit, most used and the gradient table on the same arrivals.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// GPUs, of eight memory slices each
    #[arg(long, default_value_t = 100)]
    gpus: usize,
    /// Arrivals of a run; the first fifth is not counted
    #[arg(long, default_value_t = 30_000)]
    arrivals: usize,
    /// Arrived slices over slices; several with commas
    #[arg(long, value_name = "LOAD,..", value_delimiter = ',', default_value = "1.0,1.3")]
    load: Vec<f64>,
    /// uniform, large-heavy or small-heavy; all if absent
    #[arg(long, value_name = "NAME", value_parser = mix)]
    mix: Vec<Mix>,
    /// market, fill, fgd, best-fit or random
    #[arg(long, default_value_t = Weighting::Market)]
    policy: Weighting,
    /// How many runs of each
    #[arg(long, default_value_t = 5)]
    seeds: u64,
    /// Runs side by side
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// The same as --output json
    #[arg(long)]
    pub json: bool,
}

fn mix(name: &str) -> Result<Mix, String> {
    let found = MIXES.into_iter().find(|mix| mix.name == name);
    found.ok_or_else(|| "no such mix: use uniform, large-heavy or small-heavy".to_owned())
}

/// Runs and reports.
pub fn main(out: Output, args: Args) -> Done {
    let Args { gpus, arrivals, load: loads, mix, policy, seeds, threads, json: _ } = args;
    let mixes = if mix.is_empty() { MIXES.to_vec() } else { mix };
    let bar = Bar::new(out);
    let report = simulate(&Settings { gpus, arrivals, loads, mixes, policy, seeds, threads }, &bar)?;
    drop(bar);
    out.show(&report, |report| human(out, report))
}

fn human(out: Output, report: &Report) -> String {
    let rows = report.cases.iter().flat_map(rows).collect();
    let head = ["MIX", "WEIGHTS", "LOAD", "POLICY", "ACCEPTED", "TO THE GRADIENT TABLE", "USED"];
    format!(
        "{} GPUs of 8 slices, {} arrivals, {} seeds; weights of {}\n\
         accepted: slices placed of slices asked; used: slices taken, mean over time\n{}\n\
         {} to the gradient table, mean of the cases: {:+.4}",
        report.gpus,
        report.arrivals,
        report.seeds,
        report.profiles.join(", "),
        out.table(head, rows, "no cases"),
        report.policy,
        report.difference,
    )
}

fn rows(case: &Case) -> Vec<[String; 7]> {
    let weights = case.mix.weights.map(|weight| weight.to_string()).join("/");
    let row = |line: &selion_sim::mig::Line| {
        [
            case.mix.name.to_owned(),
            weights.clone(),
            case.load.to_string(),
            line.policy.to_owned(),
            format!("{:.3}", line.accepted.mean),
            format!("{:+.3} ± {:.3}", line.difference.mean, line.difference.se),
            format!("{:.3}", line.used),
        ]
    };
    case.policies.iter().map(row).collect()
}
