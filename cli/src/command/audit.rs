//! `selion audit`: the checks that need to trust nobody.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use indicatif::ProgressBar;
use selion_api::commit::PoolId;
use selion_api::{Account, Address, LeaseId};
use selion_audit::rehearse::{Rehearsal, RehearseError, rehearse, rehearse_nodes};
use selion_audit::{
    AuditError, KeptPromise, Log, LogSource, Options, Progress, Proof, ProofError, Proven, Report, ReportError,
    SignedReport, audit, read_promises, read_reports,
};
use selion_contracts::{Pool, Rpc, Signer};

use super::{by_cid, tiles};
use crate::exit::Exit;
use crate::failure::{Done, Failure, chain};
use crate::logged;
use crate::output::Output;
use crate::profile::Home;
use crate::unit::show_money;

/// The pool of a rehearsal without a log: there is none.
const NO_POOL: PoolId = PoolId { chain_id: 31_337, controller: Address([0xee; 20]) };

/// How long a controller or a node of the chain may be behind the last final block.
const PATIENCE: Duration = Duration::from_secs(15);

/// Checks a pool from the chain and its log alone. Exit code 0 only if every check holds.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    /// What to do instead of an audit.
    #[command(subcommand)]
    part: Option<Part>,
    /// JSON-RPC of the chain; given several times, all have to tell the same
    #[arg(
        long = "rpc",
        value_name = "URL",
        env = "SELION_CHAIN_RPC",
        value_delimiter = ',',
        required_unless_present = "rehearse"
    )]
    rpcs: Vec<String>,
    /// The pool's Controller contract
    #[arg(long, value_name = "ADDRESS", required_unless_present = "rehearse")]
    pool: Option<Address>,
    /// The log: a controller's URL, a folder of `selion audit tiles`, the CID of such a folder, or a file with one
    /// published entry a line
    #[arg(long, value_name = "URL|DIR|CID|FILE", required_unless_present = "rehearse")]
    log: Option<String>,
    #[command(flatten)]
    by_cid: by_cid::Sources,
    /// Reads a URL's static files (`/log/checkpoint` and tiles) and calls no API
    #[arg(long, conflicts_with = "rehearse")]
    tiles: bool,
    /// What the log has to keep: a file of `selion audit inclusion`, of promises, or of nodes' signed reports as `selion
    /// evidence report` prints them; may be given several times
    #[arg(long = "proof", value_name = "FILE", conflicts_with = "rehearse")]
    proofs: Vec<PathBuf>,
    /// Trusts so many entries, as they were audited before: a size that an anchor on chain covers
    #[arg(long, value_name = "SIZE", default_value_t = 0, conflicts_with = "rehearse")]
    from: u64,
    /// Passes a log whose newest entries, so many at most, are covered by no signed head and no anchor; they are not audited
    #[arg(long, value_name = "ENTRIES", default_value_t = 0, conflicts_with = "rehearse")]
    allow_uncovered: u64,
    /// Keeps what is fetched of the log here, pages or blocks, and goes on with what is here
    #[arg(long, value_name = "DIR", conflicts_with = "rehearse")]
    cache: Option<PathBuf>,
    /// Writes the report here, signed
    #[arg(long, value_name = "FILE", conflicts_with = "rehearse")]
    report: Option<PathBuf>,
    /// Writes here, if the log breaks its rules, what shows that to anybody: see `selion evidence verify`
    #[arg(long, value_name = "FILE", conflicts_with = "rehearse")]
    evidence: Option<PathBuf>,
    /// The key that signs it, made if it is not there; without it the profile's, or one made for audits
    #[arg(long, value_name = "FILE", requires = "report")]
    key: Option<PathBuf>,
    /// Plants every known fraud in a copy of the log, or in a log made up if none is named, and shows that it is caught
    #[arg(long)]
    rehearse: bool,
    /// The same as --output json
    #[arg(long)]
    pub json: bool,
}

/// Proofs to keep.
#[derive(Debug, clap::Subcommand)]
pub enum Part {
    /// Writes what proves, offline and for ever, that a lease's request, grants and bills are in the log
    Inclusion(Inclusion),
    /// Verifies such a file, with nothing else at hand
    Verify(Verify),
    /// Copies the log as static files that anybody can serve: checkpoint, tiles and bundles, each verified
    Tiles(tiles::Tiles),
    /// Verifies a signed report, and says who signed it
    VerifyReport(VerifyReport),
}

/// Which report.
#[derive(Debug, clap::Args)]
pub struct VerifyReport {
    /// A file of `selion audit --report`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Who must have signed it
    #[arg(long, value_name = "ADDRESS")]
    auditor: Option<Account>,
}

/// Of which lease.
#[derive(Debug, clap::Args)]
pub struct Inclusion {
    /// The lease
    #[arg(long, value_name = "LEASE")]
    lease: LeaseId,
    /// The log: a controller's URL, or a file with one published entry a line; the profile's controller without it
    #[arg(long, value_name = "URL|FILE")]
    log: Option<String>,
    /// The pool's Controller contract; the profile's without it
    #[arg(long, value_name = "ADDRESS", requires = "chain_id")]
    pool: Option<Address>,
    /// EIP-155 id of its chain
    #[arg(long, value_name = "ID", requires = "pool")]
    chain_id: Option<u64>,
    /// Where to write it; stdout without it
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Which proof.
#[derive(Debug, clap::Args)]
pub struct Verify {
    /// A file of `selion audit inclusion`
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Who must have signed it: the pool's authority, by the chain
    #[arg(long, value_name = "ADDRESS")]
    authority: Option<Account>,
}

/// Audits and reports.
pub async fn main(out: Output, args: Args) -> Done {
    match args.part {
        Some(Part::Inclusion(which)) => return inclusion(out, which).await,
        Some(Part::Verify(which)) => return verify(out, &which),
        Some(Part::Tiles(which)) => return tiles::main(out, which).await,
        Some(Part::VerifyReport(which)) => return verify_report(out, &which),
        None if args.rehearse => return rehearsal(out, args).await,
        None => {}
    }
    let (Some(pool), Some(log)) = (args.pool, args.log) else {
        return Err(Failure::usage("--rpc, --pool and --log are all needed", "see: selion audit --help"));
    };
    // Before the work: a key that cannot be used is told at once.
    let report_to = args.report.map(|path| Ok::<_, Failure>((path, auditor(args.key)?))).transpose()?;
    let (mut proofs, mut promises, mut reports) = (Vec::new(), Vec::new(), Vec::new());
    for path in &args.proofs {
        match read_kept(path)? {
            Kept::Proof(proof) => proofs.push(*proof),
            Kept::Promises(more) => promises.extend(more.into_iter().filter(|one| one.pool.controller == pool)),
            Kept::Reports(more) => reports.extend(more),
        }
    }
    let fetched = match by_cid::cid_of(&log)? {
        Some(cid) => {
            let scratch = Home::scratch("log");
            Some(by_cid::fetch(out, cid, &args.by_cid, args.cache.as_deref(), scratch).await?)
        }
        None => None,
    };
    let log = fetched.as_ref().map_or_else(|| source(log, args.tiles), |folder| LogSource::Folder(folder.path.clone()));
    let progress = Arc::<Progress>::default();
    let options = Options {
        rpcs: args.rpcs,
        pool,
        log,
        proofs,
        promises,
        reports,
        from: args.from,
        allow_uncovered: args.allow_uncovered,
        cache: args.cache,
        patience: PATIENCE,
        progress: Arc::clone(&progress),
    };
    let report = with_bar(out, &progress, audit(&options)).await?;
    if let Some((path, key)) = report_to {
        let signed = SignedReport::sign(report.clone(), &key)?;
        std::fs::write(&path, signed.text()?).map_err(|error| Failure::file(&path, &error))?;
        out.note(format!("signed by {} and written to {}", signed.auditor, path.display()));
    }
    out.show(&report, |report| human(out, report))?;
    if report.ok {
        return Ok(());
    }
    let failed: Vec<&str> = report.checks.iter().filter(|check| !check.ok).map(|check| check.name.as_str()).collect();
    out.note(format!("the audit FAILED: {}", failed.join(", ")));
    if let Some(path) = &args.evidence {
        out.note(super::evidence::breach::write(&report.pool, &options.log, path).await?);
    }
    Err(Failure::remote(Exit::Failure.code()))
}

fn source(log: String, tiles: bool) -> LogSource {
    let is_url = log.starts_with("http://") || log.starts_with("https://");
    let path = PathBuf::from(&log);
    match (is_url, path.is_dir()) {
        (true, _) if tiles => LogSource::Static(log),
        (true, _) => LogSource::Url(log),
        (false, true) => LogSource::Folder(path),
        (false, false) => LogSource::File(path),
    }
}

/// The key that signs reports: the named one, the account's, or one made for audits.
fn auditor(named: Option<PathBuf>) -> Done<Signer> {
    let path = match named {
        Some(path) => path,
        None => {
            let home = Home::find()?;
            match home.read()?.and_then(|profile| profile.key_file) {
                Some(path) => path,
                None => {
                    home.make()?;
                    home.dir().join("auditor")
                }
            }
        }
    };
    Ok(Signer::open_or_create(&path)?)
}

/// Shows on a terminal how far the work is, until it is done.
async fn with_bar<T>(out: Output, progress: &Progress, work: impl Future<Output = T>) -> T {
    if out.is_json() || !std::io::stderr().is_terminal() {
        return work.await;
    }
    let bar = ProgressBar::new_spinner();
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    tokio::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => {
                bar.finish_and_clear();
                return done;
            }
            _ = tick.tick() => {
                let [read, replayed, judged] = progress.now();
                let [blocks, of_blocks] = progress.blocks();
                bar.set_message(format!(
                    "chain: {blocks} of {of_blocks} blocks; entries: {read} read, {replayed} replayed, {judged} judged"
                ));
                bar.tick();
            }
        }
    }
}

fn human(out: Output, report: &Report) -> String {
    let rows = report.checks.iter().map(|check| {
        let entry = check.entry.map(|entry| entry.to_string()).unwrap_or_default();
        let word = if check.ok { "ok" } else { "FAILED" };
        [word.to_owned(), check.name.clone(), entry, check.detail.clone()]
    });
    let block = report.block.map(|block| format!(", chain up to block {block}")).unwrap_or_default();
    let ppm = report.unsigned_share_ppm;
    let trusted = match report.judged_from {
        0 => String::new(),
        from => format!("\njudged from entry {from} on: those before it are trusted, as an anchor covers them"),
    };
    let covered = match report.entries.saturating_sub(report.covered) {
        0 => String::new(),
        free => format!(" over {} of them, the newest {free} are NOT AUDITED", report.covered),
    };
    let convicted: String = report
        .convictions
        .iter()
        .map(|one| {
            let lost = format!("and lost {} by block {}", show_money(one.amount.0), one.block);
            match (one.epoch, one.node) {
                (Some(epoch), _) => format!(
                    "\nCONVICTED: the authority of epoch {epoch} contradicted itself, {lost} of its owner {}: this log may be \
                     one of two, whatever the checks say",
                    one.who
                ),
                (None, Some(node)) => format!(
                    "\nCONVICTED: node {node} contradicted itself, {lost} of its provider {}: what it reported is worth nothing",
                    one.who
                ),
                (None, None) => format!(
                    "\nDISOWNED: owner {} gave up anchors, {lost}: this log is not all that was anchored",
                    one.who
                ),
            }
        })
        .collect();
    format!(
        "pool {} on chain {}: {} entries, root {}{covered}{block}{trusted}{convicted}\n{}\n{} of {} inputs of parties are unsigned ({}.{:02}%)\n\
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

/// Every known fraud, on a copy.
async fn rehearsal(out: Output, args: Args) -> Done {
    let (published, pool) = match (args.log, args.rpcs.first(), args.pool) {
        (None, ..) => (Vec::new(), NO_POOL),
        (Some(log), Some(rpc), Some(controller)) => {
            let pool = Pool::open(Rpc::new(rpc)?, controller).await?;
            (logged::published(&log).await?, PoolId { chain_id: pool.chain_id, controller })
        }
        (Some(_), ..) => {
            let why = "a log's signatures are good for its pool only: --rehearse --log needs --rpc and --pool too";
            return Err(Failure::usage(why, "add them, or rehearse without --log"));
        }
    };
    // Each fraud is an audit of its own: the runtime's other tasks go on meanwhile.
    let mut rehearsal = tokio::task::block_in_place(|| rehearse(&published, pool))?;
    rehearsal.add(rehearse_nodes().await?);
    out.show(&rehearsal, |rehearsal| played(out, rehearsal))?;
    if rehearsal.ok {
        return Ok(());
    }
    out.note("the rehearsal FAILED: do not rely on this audit");
    Err(Failure::remote(Exit::Failure.code()))
}

fn played(out: Output, rehearsal: &Rehearsal) -> String {
    let rows = rehearsal.frauds.iter().map(|fraud| {
        let word = if fraud.caught { "caught" } else { "MISSED" };
        let entry = fraud.entry.map(|entry| entry.to_string()).unwrap_or_default();
        [word.to_owned(), fraud.fraud.clone(), fraud.planted.clone(), fraud.check.clone(), entry]
    });
    let honest = match rehearsal.honest.as_slice() {
        [] => "the honest copy passes".to_owned(),
        findings => format!("the honest copy FAILS: {}", findings.join("; ")),
    };
    let caught = rehearsal.frauds.iter().filter(|fraud| fraud.caught).count();
    let missed: String = rehearsal
        .frauds
        .iter()
        .filter(|fraud| !fraud.caught)
        .map(|fraud| format!("{}: {} said: {}\n", fraud.fraud, fraud.check, fraud.found))
        .collect();
    format!(
        "{} entries of the log and {} of a story played on top, with keys made for this; {honest}\n\
         {caught} of {} frauds are caught by the check that is meant to, at the right entry\n{}\n\
         {missed}not rehearsed: what the contracts answer of accounts, nodes, court and vault",
        rehearsal.copied,
        rehearsal.entries - rehearsal.copied,
        rehearsal.frauds.len(),
        out.table(["", "FRAUD", "PLANTED", "CAUGHT BY", "ENTRY"], rows.collect(), "nothing was planted"),
    )
}

async fn inclusion(out: Output, which: Inclusion) -> Done {
    let profile = || Home::find()?.profile();
    let pool = match (which.chain_id, which.pool) {
        (Some(chain_id), Some(controller)) => PoolId { chain_id, controller },
        _ => profile().map(|profile| PoolId { chain_id: profile.chain_id, controller: profile.pool })?,
    };
    let place = which.log.map_or_else(|| profile().map(|profile| profile.controller), Ok)?;
    let proof = Proof::of(&Log::read(&logged::published(&place).await?), &pool, which.lease)?;
    let Some(path) = which.out else {
        return out.json(&proof);
    };
    let text =
        serde_json::to_string(&proof).map_err(|error| Failure::new(Exit::Failure, "internal", error, "report this"))?;
    std::fs::write(&path, text).map_err(|error| Failure::file(&path, &error))?;
    let shown = proof.verify()?;
    out.show(&shown, |shown| format!("{}\nwritten to {}", told(out, shown), path.display()))
}

fn verify(out: Output, which: &Verify) -> Done {
    let shown = read_proof(&which.file)?.verify()?;
    if let Some(authority) = which.authority.filter(|authority| *authority != shown.signed_by) {
        let detail = format!("{} is signed by {}, not by {authority}", which.file.display(), shown.signed_by);
        return Err(Failure::new(Exit::Failure, "proof_broken", detail, "ask who gave it to you, and the chain"));
    }
    out.show(&shown, |shown| {
        let whose = match which.authority {
            Some(_) => "as it should be",
            None => "compare that with the pool's authority on chain, or name it with --authority",
        };
        format!("{}\n{whose}", told(out, shown))
    })
}

fn verify_report(out: Output, which: &VerifyReport) -> Done {
    let text = std::fs::read_to_string(&which.file).map_err(|error| Failure::file(&which.file, &error))?;
    let signed = SignedReport::read(&text)?;
    if let Some(auditor) = which.auditor.filter(|auditor| *auditor != signed.auditor) {
        let detail = format!("{} is signed by {}, not by {auditor}", which.file.display(), signed.auditor);
        return Err(Failure::new(Exit::Failure, "report_broken", detail, "ask who gave it to you"));
    }
    out.show(&signed, |signed| {
        let verdict = if signed.report.ok { "every check held" } else { "the audit FAILED" };
        format!(
            "{}\nsigned by {}, release {}: {verdict}",
            human(out, &signed.report),
            signed.auditor,
            signed.report.version
        )
    })
}

fn told(out: Output, shown: &Proven) -> String {
    let rows = shown.shows.iter().map(|(entry, words)| [entry.to_string(), words.clone()]);
    format!(
        "{}\nin a log of {} entries or more, by a head that {} signed",
        out.table(["ENTRY", "SHOWS"], rows.collect(), "nothing"),
        shown.size,
        shown.signed_by
    )
}

/// What a party kept of a log.
enum Kept {
    Proof(Box<Proof>),
    Promises(Vec<KeptPromise>),
    Reports(Vec<selion_api::agent::SignedReport>),
}

/// A proof is one object; promises are one a line, and so are reports.
fn read_kept(path: &PathBuf) -> Done<Kept> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::file(path, &error))?;
    if let Ok(promises) = read_promises(&text)
        && !promises.is_empty()
    {
        return Ok(Kept::Promises(promises));
    }
    match read_reports(&text) {
        Some(reports) if !reports.is_empty() => Ok(Kept::Reports(reports)),
        _ => read_proof(path).map(|proof| Kept::Proof(Box::new(proof))),
    }
}

fn read_proof(path: &PathBuf) -> Done<Proof> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::file(path, &error))?;
    serde_json::from_str(&text).map_err(|error| {
        let detail = format!("{} is no proof: {error}", path.display());
        Failure::usage(detail, "make one: selion audit inclusion --lease LEASE --out FILE")
    })
}

impl From<RehearseError> for Failure {
    fn from(error: RehearseError) -> Self {
        Self::new(Exit::Failure, "no_rehearsal", chain(&error), "run `selion audit` on that log first")
    }
}

impl From<ReportError> for Failure {
    fn from(error: ReportError) -> Self {
        match error {
            ReportError::Signer(error) => error.into(),
            _ => Self::new(
                Exit::Failure,
                "report_broken",
                chain(&error),
                "ask who gave it to you for the file as it was",
            ),
        }
    }
}

impl From<ProofError> for Failure {
    fn from(error: ProofError) -> Self {
        let (exit, code) = match &error {
            ProofError::NoSuchLease { .. } => (Exit::NotFound, "no_such_lease"),
            ProofError::NotCovered(_) => (Exit::Conflict, "not_covered"),
            ProofError::Log(_) => (Exit::Failure, "log_damaged"),
            ProofError::Broken(_) => (Exit::Failure, "proof_broken"),
        };
        Self::new(exit, code, error, "a proof is made by: selion audit inclusion --lease LEASE --out FILE")
    }
}

impl From<AuditError> for Failure {
    fn from(error: AuditError) -> Self {
        match error {
            AuditError::Chain(error) => error.into(),
            AuditError::Rpc(error) => error.into(),
            AuditError::NoRpc => Self::usage(error, "name one: --rpc URL"),
            AuditError::NoAnchor { .. } => {
                Self::usage(error, "name a size that an anchor covers with --from, or leave it out")
            }
            AuditError::Stopped(_) => Self::new(Exit::Failure, "internal", chain(&error), "report this"),
            AuditError::Source(error) => {
                let suggestion = "give --log the controller's URL, or a file with one published entry a line";
                Self::new(Exit::Server, "log_unreadable", chain(&error), suggestion)
            }
        }
    }
}
