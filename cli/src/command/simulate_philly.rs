//! `selion simulate philly`: the gangs of a trace on a fleet of equal nodes.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use selion_sim::csv::Table;
use selion_sim::from_log::{Change, PolicyChange, policy};
use selion_sim::philly::{ClassReport, GroupReport, Report, Setup, Worst, check, jobs, put_under, quotas, run};
use selion_sim::{Progress, SimError};

use super::simulate::{agreed, checked_line};
use crate::change::{group, permille, rule};
use crate::failure::{Done, Failure, chain};
use crate::output::Output;

const HOUR_MS: u64 = 3_600_000;

/// Runs the gangs of a trace with queueing and fair sharing, as the market does it, and says who waited how long.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The trace: CSV with job_id, user, num_gpu, submit_time and duration (minutes)
    #[arg(long, value_name = "CSV")]
    jobs: PathBuf,
    /// Nodes of the fleet
    #[arg(long, default_value_t = 200, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    nodes: u32,
    /// GPUs of each node
    #[arg(long, default_value_t = 8, value_name = "M", value_parser = clap::value_parser!(u16).range(1..=64))]
    gpus_per_node: u16,
    /// Their model
    #[arg(long, default_value = "V100 32GB", value_name = "NAME")]
    model: String,
    /// Only jobs submitted in the first so many hours of the trace
    #[arg(long, value_name = "H")]
    hours: Option<u64>,
    /// Only the first so many jobs
    #[arg(long, value_name = "N")]
    first: Option<usize>,
    /// A number of the operator's: hold=10s, bookings=false, weight.GROUP=3, quota.GROUP=25%, .. (repeatable)
    #[arg(long, value_name = "NAME=VALUE", value_parser = rule)]
    policy: Vec<Change>,
    /// Puts users in groups named by these columns, the top one first: `user` alone makes a group of each
    #[arg(long, value_name = "COLUMN,..", value_delimiter = ',')]
    group_by: Vec<String>,
    /// Puts top groups under another one: lab=vc_a,vc_b (repeatable)
    #[arg(long, value_name = "ORG=GROUP,..", value_parser = org, requires = "group_by")]
    org: Vec<Org>,
    /// Guarantees each top group its part of so much of the pool, by the GPU time that it asks for; quota.GROUP
    /// overrides it
    #[arg(long, value_name = "PERCENT", value_parser = percent, requires = "group_by")]
    quotas: Option<u16>,
    /// Takes the column job_type as class of priority: `strict` jobs may stop others, `best` ones may be stopped
    #[arg(long)]
    classes: bool,
    /// Work that was cut short begins anew, instead of going on where it stopped
    #[arg(long)]
    no_checkpoints: bool,
    /// Leaves out finish-time fairness, for which each user's jobs are run alone as well
    #[arg(long)]
    no_rho: bool,
    /// Asks a second opinion about every entry: a checker with books of its own (not about the runs for fairness)
    #[arg(long)]
    check: bool,
    /// The same as --output json
    #[arg(long)]
    pub json: bool,
}

/// Runs it and reports.
pub fn main(out: Output, args: Args) -> Done {
    let setup = setup(args).map_err(|error| {
        Failure::usage(
            chain(&error),
            "give a trace such as chronus_philly_MIX1.csv, and --hours or --first that leave some of it",
        )
    })?;
    let bar = Bar::new(out);
    let report = run(&setup, &bar);
    bar.0.finish_and_clear();
    agreed(report.checked.as_ref())?;
    out.show(&report, |report| human(out, report))
}

fn setup(args: Args) -> Result<Setup, SimError> {
    let table = Table::read(&args.jobs)?;
    let mut jobs = jobs(&table, args.classes, &args.group_by)?;
    if let Some(hours) = args.hours {
        jobs.retain(|job| job.submit_ms < hours.saturating_mul(HOUR_MS));
    }
    if let Some(first) = args.first {
        jobs.truncate(first);
    }
    if jobs.is_empty() {
        let what = format!("{}: no job is left by --hours and --first", args.jobs.display());
        return Err(SimError::Nothing { what, next: "raise them" });
    }
    for Org { name, groups } in &args.org {
        put_under(&mut jobs, name, groups)?;
    }
    let promised = args.quotas.map(|permille| quotas(&jobs, permille)).unwrap_or_default();
    let promised = promised.into_iter().map(|(path, permille)| Change::Policy(PolicyChange::Quota(path, permille)));
    let policy = policy(&promised.chain(args.policy).collect::<Vec<_>>());
    check(&jobs, &policy)?;
    Ok(Setup {
        jobs,
        nodes: args.nodes,
        gpus_per_node: args.gpus_per_node,
        model: args.model,
        policy,
        resumes: !args.no_checkpoints,
        rho: !args.no_rho,
        check: args.check,
    })
}

/// `lab=vc_a,vc_b`.
#[derive(Clone, Debug)]
struct Org {
    name: String,
    groups: Vec<String>,
}

fn org(text: &str) -> Result<Org, String> {
    let (name, groups) =
        text.split_once('=').ok_or_else(|| format!("`{text}` names no groups; write lab=vc_a,vc_b"))?;
    let groups = groups.split(',').map(group).collect::<Result<Vec<String>, String>>()?;
    Ok(Org { name: group(name)?, groups })
}

fn percent(text: &str) -> Result<u16, String> {
    permille(text).ok_or_else(|| format!("`{text}` is not a part of the pool; write 80% or 12.5%"))
}

struct Bar(ProgressBar);

impl Bar {
    fn new(out: Output) -> Self {
        let bar = ProgressBar::new(0);
        if out.is_json() || !std::io::stderr().is_terminal() {
            bar.set_draw_target(ProgressDrawTarget::hidden());
        }
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} jobs, {per_sec}, {eta} left") {
            bar.set_style(style);
        }
        bar.enable_steady_tick(Duration::from_millis(200));
        Self(bar)
    }
}

impl Progress for Bar {
    fn begin(&self, jobs: u64) {
        self.0.set_length(jobs);
    }

    fn done(&self, _job: &str) {
        self.0.inc(1);
    }
}

fn human(out: Output, report: &Report) -> String {
    let mut text = format!(
        "{} jobs of {} users on {} nodes with {} GPUs, load {:.2}\n",
        report.jobs, report.users, report.nodes, report.gpus, report.load
    );
    text.push_str(&format!(
        "makespan {:.1} h; GPUs in use {} of that time, {} up to the last submission\n",
        report.makespan_h,
        per_cent(report.utilisation),
        per_cent(report.utilisation_while_arriving)
    ));
    text.push_str(&format!(
        "{} ran to their end, {} never started (the longest wait is 7 days), {} runs were cut short\n",
        report.completed, report.never_started, report.preemptions
    ));
    for (reason, jobs) in &report.refused {
        text.push_str(&format!("{jobs} refused at once: {reason}\n"));
    }
    text.push_str(&out.table(
        ["GPUS", "JOBS", "NEVER", "WAIT MEAN", "P95", "MAX", "RHO P50", "P99", "MAX", "CUT"],
        report.classes.iter().map(row).collect(),
        "no jobs",
    ));
    if !report.groups.is_empty() {
        text.push('\n');
        text.push_str(&out.table(GROUP_HEAD, report.groups.iter().map(group_row).collect(), ""));
    }
    if report.classes.iter().any(|class| class.rho.is_some()) {
        text.push_str(&format!("\n{}", report.rho_is));
    }
    text.push_str(&format!("\n{} entries, State {}", report.entries, report.digest));
    text.push_str(&checked_line(report.checked.as_ref()));
    text
}

fn per_cent(part: f64) -> String {
    format!("{:.1} %", part * 100.0)
}

const GROUP_HEAD: [&str; 13] = [
    "GROUP",
    "WEIGHT",
    "QUOTA",
    "JOBS",
    "NEVER",
    "ASKED",
    "HELD",
    "WANTING",
    "HELD THEN",
    "BELOW QUOTA",
    "WAIT MEAN",
    "P95",
    "RHO P50",
];

fn group_row(group: &GroupReport) -> [String; 13] {
    let minutes = |pick: fn(&Worst) -> f64| group.wait_min.map(|wait| minutes(pick(&wait))).unwrap_or_default();
    let quota = f64::from(group.quota_permille) / 1_000.0;
    [
        group.path.clone(),
        group.weight.to_string(),
        if group.quota_permille > 0 { per_cent(quota) } else { String::new() },
        group.jobs.to_string(),
        group.never_started.to_string(),
        per_cent(group.asked),
        per_cent(group.held),
        format!("{:.1}h", group.wanting_h),
        group.held_wanting.map(per_cent).unwrap_or_default(),
        if group.quota_permille > 0 { format!("{:.1}h", group.below_quota_h) } else { String::new() },
        minutes(|wait| wait.mean),
        minutes(|wait| wait.p95),
        group.rho.map(|rho| format!("{:.2}", rho.p50)).unwrap_or_default(),
    ]
}

fn row(class: &ClassReport) -> [String; 10] {
    let minutes = |pick: fn(&Worst) -> f64| class.wait_min.map(|wait| minutes(pick(&wait))).unwrap_or_default();
    let rho = |pick: fn(&Worst) -> f64| class.rho.map(|rho| format!("{:.2}", pick(&rho))).unwrap_or_default();
    [
        class.gpus.clone(),
        class.jobs.to_string(),
        class.never_started.to_string(),
        minutes(|wait| wait.mean),
        minutes(|wait| wait.p95),
        minutes(|wait| wait.max),
        rho(|rho| rho.p50),
        rho(|rho| rho.p99),
        rho(|rho| rho.max),
        class.preemptions.to_string(),
    ]
}

/// Minutes as `3h20m` or `4.5m`.
fn minutes(minutes: f64) -> String {
    if minutes < 60.0 {
        format!("{minutes:.1}m")
    } else {
        format!("{:.0}h{:02.0}m", (minutes / 60.0).floor(), (minutes % 60.0).floor())
    }
}
