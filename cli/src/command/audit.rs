//! `selion audit`: the checks that need to trust nobody.

use selion_api::Address;
use selion_audit::{AuditError, LogSource, Options, Report, audit};

use crate::exit::Exit;
use crate::failure::{Done, Failure, chain};
use crate::output::Output;

/// Checks a pool from the chain and its log alone. Exit code 0 only if every check holds.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// JSON-RPC of the chain
    #[arg(long, value_name = "URL", env = "SELION_CHAIN_RPC")]
    rpc: String,
    /// The pool's Controller contract
    #[arg(long, value_name = "ADDRESS")]
    pool: Address,
    /// The log: a controller's URL, or a file with one published entry a line
    #[arg(long, value_name = "URL|FILE")]
    log: String,
    /// The same as --output json
    #[arg(long)]
    pub json: bool,
}

/// Audits and reports.
pub async fn main(out: Output, args: Args) -> Done {
    let is_url = args.log.starts_with("http://") || args.log.starts_with("https://");
    let log = if is_url { LogSource::Url(args.log) } else { LogSource::File(args.log.into()) };
    let report = audit(&Options { rpc: args.rpc, pool: args.pool, log }).await?;
    out.show(&report, |report| human(out, report))?;
    if report.ok {
        return Ok(());
    }
    let failed: Vec<&str> = report.checks.iter().filter(|check| !check.ok).map(|check| check.name.as_str()).collect();
    out.note(format!("the audit FAILED: {}", failed.join(", ")));
    Err(Failure::remote(Exit::Failure.code()))
}

fn human(out: Output, report: &Report) -> String {
    let rows = report.checks.iter().map(|check| {
        let entry = check.entry.map(|entry| entry.to_string()).unwrap_or_default();
        let word = if check.ok { "ok" } else { "FAILED" };
        [word.to_owned(), check.name.clone(), entry, check.detail.clone()]
    });
    let block = report.block.map(|block| format!(", chain up to block {block}")).unwrap_or_default();
    let ppm = report.unsigned_share_ppm;
    format!(
        "pool {} on chain {}: {} entries, root {}{block}\n{}\n{} of {} inputs of parties are unsigned ({}.{:02}%)\n\
         what no audit of this kind proves: {}",
        report.pool.controller,
        report.pool.chain_id,
        report.entries,
        report.root,
        out.table(["", "CHECK", "ENTRY", "FOUND"], rows.collect(), "nothing was checked"),
        report.signatures.unsigned,
        report.signatures.inputs,
        ppm / 10_000,
        ppm % 10_000 / 100,
        report.not_proved,
    )
}

impl From<AuditError> for Failure {
    fn from(error: AuditError) -> Self {
        match error {
            AuditError::Chain(error) => error.into(),
            AuditError::Rpc(error) => error.into(),
            AuditError::Source(error) => {
                let suggestion = "give --log the controller's URL, or a file with one published entry a line";
                Self::new(Exit::Server, "log_unreadable", chain(&error), suggestion)
            }
        }
    }
}
