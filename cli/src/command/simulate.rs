//! `selion simulate`: what if, with the market's own engine on a virtual clock.

use std::io::IsTerminal;
use std::sync::OnceLock;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use selion_sim::world::Checked;
use selion_sim::{Progress, SimError};

use super::{simulate_churn, simulate_load, simulate_log, simulate_mig, simulate_openb, simulate_philly};
use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::output::Output;

/// Experiments. All are seeded: equal seeds give equal figures, apart from speeds.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Fills a cluster from a list of tasks, nothing departs: the published FGD experiment
    Openb(simulate_openb::Args),
    /// Lets tasks of a list come and go, and compares with FGD on the same arrivals
    Churn(simulate_churn::Args),
    /// Lets MIG instances come and go on a fleet of GPUs, and compares with simple policies
    Mig(simulate_mig::Args),
    /// Measures how fast the engine decides, on one thread
    Load(simulate_load::Args),
    /// Runs the gangs of a trace with queueing, fair sharing, backfill and stops
    Philly(simulate_philly::Args),
    /// Runs a real pool's log again with something changed
    Log(simulate_log::Args),
}

impl Command {
    /// Whether `--json` was given.
    pub fn json(&self) -> bool {
        match self {
            Self::Openb(args) => args.json,
            Self::Churn(args) => args.json,
            Self::Mig(args) => args.json,
            Self::Load(args) => args.json,
            Self::Philly(args) => args.json,
            Self::Log(args) => args.json,
        }
    }
}

/// Runs the experiment.
pub async fn main(out: Output, command: Command) -> Done {
    match command {
        Command::Openb(args) => simulate_openb::main(out, args),
        Command::Churn(args) => simulate_churn::main(out, args),
        Command::Mig(args) => simulate_mig::main(out, args),
        Command::Load(args) => simulate_load::main(out, args),
        Command::Philly(args) => simulate_philly::main(out, args),
        Command::Log(args) => simulate_log::main(out, args).await,
    }
}

/// How far an experiment is, on stderr: a bar on a terminal, a line for each run elsewhere, nothing for programs.
pub struct Bar {
    out: Output,
    bar: OnceLock<ProgressBar>,
}

impl Bar {
    /// A bar that begins with the experiment.
    pub fn new(out: Output) -> Self {
        Self { out, bar: OnceLock::new() }
    }
}

impl Progress for Bar {
    fn begin(&self, runs: u64) {
        if self.out.is_json() || !std::io::stderr().is_terminal() {
            return;
        }
        let bar = self.bar.get_or_init(|| ProgressBar::new(runs));
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {elapsed} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(200));
    }

    fn done(&self, line: &str) {
        match self.bar.get() {
            Some(bar) => {
                bar.set_message(line.to_owned());
                bar.inc(1);
            }
            None => self.out.note(line),
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }
}

impl From<SimError> for Failure {
    fn from(error: SimError) -> Self {
        match &error {
            SimError::File { path, source } => Self::file(path, source),
            SimError::NoColumn { .. } => Self::usage(&error, "give a list with the columns of the openb traces"),
            SimError::Ragged { .. } | SimError::Cell { .. } => Self::usage(&error, "correct the row, or leave it out"),
            SimError::Empty { .. } | SimError::Models { .. } => Self::usage(&error, "give a list that is whole"),
            SimError::Setting { .. } => Self::usage(&error, "see `selion simulate --help`"),
            SimError::Nothing { what, next } => Self::new(Exit::Usage, "usage", what, next),
        }
    }
}

/// Fails if a second opinion was asked and did not agree with every entry.
pub fn agreed(checked: Option<&Checked>) -> Done {
    let Some(checked) = checked.filter(|checked| checked.faults > 0) else {
        return Ok(());
    };
    let Checked { entries, faults, findings } = checked;
    let said = format!("the checker finds {faults} faults in {entries} entries; the first: {}", findings.join("; "));
    Err(Failure::new(Exit::Failure, "checker_disagrees", said, "a fault of this release: report it with these words"))
}

/// The line that says that it was asked.
pub fn checked_line(checked: Option<&Checked>) -> String {
    checked.map(|checked| format!("\nchecked: {} entries", checked.entries)).unwrap_or_default()
}

/// A figure with two decimals.
pub fn figure(value: f64) -> String {
    format!("{value:.2}")
}

/// A paired difference with its standard error.
pub fn signed(difference: &selion_sim::stats::Difference) -> String {
    format!("{:+.2} ± {:.2}", difference.mean, difference.se)
}
