//! An audit from end to end.

use std::path::PathBuf;
use std::time::Duration;

use selion_api::Address;
use selion_api::commit::PoolId;
use selion_api::rest::LoggedEntry;
use selion_contracts::{Pool, PoolError, Rpc, RpcError};
use selion_market::Input;

use crate::chain::{self, Facts};
use crate::entries::Log;
use crate::finding::Check;
use crate::heads::{self, Anchor};
use crate::proof::{self, Proof};
use crate::report::{NOT_PROVED, Report, Unsigned};
use crate::source::{self, SourceError};
use crate::{bills, claims, decisions, grants, replay, signatures};

/// How long a controller may be behind the chain's last final block before that is a finding.
const CATCH_UP: Duration = Duration::from_secs(15);
const ASK_AGAIN: Duration = Duration::from_millis(250);
/// How often chain and log are read again because the chain moved on meanwhile.
const ATTEMPTS: u32 = 8;

/// Where the log is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogSource {
    /// A controller's REST interface.
    Url(String),
    /// A file with one published entry a line, as JSON.
    File(PathBuf),
}

/// What to audit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// JSON-RPC of the chain.
    pub rpc: String,
    /// The pool's Controller contract.
    pub pool: Address,
    /// The log.
    pub log: LogSource,
    /// What parties keep of it.
    pub proofs: Vec<Proof>,
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The chain could not be read.
    #[error(transparent)]
    Chain(#[from] PoolError),
    /// The chain could not be asked.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The log could not be had.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// Audits a pool from the chain and the log alone.
///
/// # Errors
///
/// [`AuditError`] if chain or log cannot be read; what is wrong *in* them is in the report.
pub async fn audit(options: &Options) -> Result<Report, AuditError> {
    let pool = Pool::open(Rpc::new(&options.rpc)?, options.pool).await?;
    let id = PoolId { chain_id: pool.chain_id, controller: options.pool };
    let mut attempt = 1;
    let (log, facts, on_chain) = loop {
        let (log, facts) = gather(&pool, &options.log).await?;
        match chain::check(&pool, &facts, &log).await {
            Ok(checks) => break (log, facts, checks),
            // A node without old state may only be asked about its head, and a block came meanwhile.
            Err(PoolError::Rpc(RpcError::Refused { .. })) if attempt < ATTEMPTS => attempt += 1,
            Err(error) => return Err(error.into()),
        }
    };
    let mut report = check_read(&id, &log, &facts.anchors(), &options.proofs);
    report.checks.extend(on_chain);
    report.ok = report.checks.iter().all(|check| check.ok);
    report.block = Some(facts.last);
    Ok(report)
}

/// The log and the chain. A live log must come to hold what was final when the chain was read.
async fn gather(pool: &Pool, source: &LogSource) -> Result<(Log, Facts), AuditError> {
    match source {
        LogSource::File(path) => {
            let log = Log::read(&source::from_file(path)?);
            let facts = Facts::read(pool, first_block(&log)).await?;
            Ok((log, facts))
        }
        LogSource::Url(url) => live(pool, url).await,
    }
}

async fn live(pool: &Pool, url: &str) -> Result<(Log, Facts), AuditError> {
    let http = reqwest::Client::new();
    let mut published = Vec::new();
    source::extend_from_url(&http, url, &mut published).await?;
    let facts = Facts::read(pool, first_block(&Log::read(&published))).await?;
    let until = tokio::time::Instant::now() + CATCH_UP;
    loop {
        let log = Log::read(&published);
        let behind = log.fault.is_none() && facts.blocks.keys().last() > last_block(&log).as_ref();
        if !behind || tokio::time::Instant::now() >= until {
            return Ok((log, facts));
        }
        tokio::time::sleep(ASK_AGAIN).await;
        source::extend_from_url(&http, url, &mut published).await?;
    }
}

fn blocks(log: &Log) -> impl DoubleEndedIterator<Item = u64> {
    log.items.iter().filter_map(|item| match &item.input {
        Input::Block(block) => Some(block.number),
        _ => None,
    })
}

fn first_block(log: &Log) -> Option<u64> {
    blocks(log).next()
}

fn last_block(log: &Log) -> Option<u64> {
    blocks(log).next_back()
}

/// The checks that need the published entries only. `anchors` are the heads on chain, `proofs` what parties keep, as far
/// as they are at hand.
#[must_use]
pub fn check_log(pool: &PoolId, published: &[LoggedEntry], anchors: &[Anchor], proofs: &[Proof]) -> Report {
    check_read(pool, &Log::read(published), anchors, proofs)
}

fn check_read(pool: &PoolId, log: &Log, anchors: &[Anchor], proofs: &[Proof]) -> Report {
    let roots = heads::roots(log);
    let replayed = replay::replay(log, anchors);
    // What could not be read was not replayed either: the readable part alone is never called identical.
    let replayed_all = replayed.effects.and_then(|said| match &log.fault {
        Some(fault) => Err(fault.clone()),
        None => Ok(said),
    });
    let (signed, share) = signatures::check(log, pool);
    let checks = vec![
        Check::of("entries_canonical", log.form()),
        Check::of("heads_signed", heads::check_heads(log, pool, &roots)),
        Check::of("anchors_match", heads::check_anchors(anchors, &roots)),
        Check::of("proofs_kept", proof::check(log, pool, &roots, proofs)),
        Check::of("replay_identical", replayed_all),
        Check::of("state_digests", replayed.digests),
        Check::of("decisions_checked", decisions::check(log)),
        Check::of("no_slot_twice", grants::check(log)),
        Check::of("bills_recomputed", bills::check(log)),
        Check::of("claims_covered", claims::check(log)),
        Check::of("signatures", signed),
    ];
    let newest = log.items.iter().rev().find_map(|item| item.head);
    Report {
        ok: checks.iter().all(|check| check.ok),
        pool: *pool,
        checks,
        entries: log.items.len() as u64,
        root: roots.last().copied().unwrap_or_default(),
        newest_head: newest.map(|signed| signed.head),
        anchored_size: anchors.iter().map(|anchor| anchor.size).max().unwrap_or(0),
        block: None,
        signatures: share,
        unsigned_share_ppm: Unsigned::ppm(share),
        not_proved: NOT_PROVED.into(),
    }
}
