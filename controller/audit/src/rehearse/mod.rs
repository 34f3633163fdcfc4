//! A rehearsal: every fraud that is known is planted in a copy of a log, sealed as an authority that lies would seal it,
//! and shown to the same checks as any log. Who runs it sees what the audit catches before he trusts it.
//!
//! The copy's authority is a key made for the rehearsal, so nothing that it signs counts anywhere.

pub mod book;
mod chain;
mod files;
mod frauds;
mod nodes;
mod promised;
mod words;

use selion_api::commit::PoolId;
use selion_api::rest::LoggedEntry;

use crate::chain::Facts;
use crate::entries::Log;
use crate::heads::Anchor;
use crate::promise::KeptPromise;
use crate::proof::Proof;
use crate::report::Report;
use crate::run::{check_kept, check_told};
pub use book::{Book, Cast, Draft, RehearseError};
pub use nodes::rehearse_nodes;

/// One fraud, and whether it was seen.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Planted {
    /// Stable name, snake_case.
    pub fraud: String,
    /// What was done.
    pub planted: String,
    /// The check that has to see it.
    pub check: String,
    /// The first entry that shows it, if one does.
    pub entry: Option<u64>,
    /// True if that check failed, and named that entry.
    pub caught: bool,
    /// What the check said.
    pub found: String,
}

/// What a rehearsal showed.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Rehearsal {
    /// True if the honest copy passes and every fraud was caught.
    pub ok: bool,
    /// Entries of the log that was copied; 0 without one.
    pub copied: u64,
    /// Entries of the copy with the story that frauds are planted in.
    pub entries: u64,
    /// What the audit says against the honest copy; empty if it passes.
    pub honest: Vec<String>,
    /// Every fraud.
    pub frauds: Vec<Planted>,
}

/// A lie, ready to be looked at.
pub(crate) struct Lie {
    fraud: &'static str,
    planted: String,
    check: &'static str,
    entry: Option<usize>,
    log: Vec<LoggedEntry>,
    anchors: Vec<Anchor>,
    proofs: Vec<Proof>,
    promises: Vec<KeptPromise>,
    /// What the chain says, if that is part of the story.
    chain: Option<Facts>,
}

/// Rehearses on a copy of a published log of `pool`, or on a log of its own if that is empty.
///
/// # Errors
///
/// [`RehearseError`] if the log is not an honest one, or its pool takes no leases.
pub fn rehearse(published: &[LoggedEntry], pool: PoolId) -> Result<Rehearsal, RehearseError> {
    let cast = Cast::random()?;
    let mut book = match published {
        [] => Book::open(pool, cast),
        some => Book::copy(&Log::read(some), pool, cast)?,
    };
    let leases = book.story()?;
    let sealed = book.seal()?;
    let honest = check_told(&pool, &sealed, &chain::told(&book));
    let mut lies = frauds::all(&book, &sealed, &pool, leases)?;
    lies.extend(words::all(&book, &pool)?);
    lies.extend(chain::all(&book, leases)?);
    lies.push(promised::over_promise(&book, leases[1])?);
    let shown = files::shown(&lies, &sealed, &pool, &book);
    let mut frauds: Vec<Planted> = lies.into_iter().map(|lie| lie.look(&pool)).collect();
    frauds.extend(shown);
    let honest: Vec<String> = failed(&honest).map(|(name, detail)| format!("{name}: {detail}")).collect();
    Ok(Rehearsal {
        ok: honest.is_empty() && frauds.iter().all(|fraud| fraud.caught),
        copied: published.len() as u64,
        entries: sealed.len() as u64,
        honest,
        frauds,
    })
}

impl Rehearsal {
    /// Counts more frauds in.
    pub fn add(&mut self, more: Vec<Planted>) {
        self.ok &= more.iter().all(|fraud| fraud.caught);
        self.frauds.extend(more);
    }
}

fn failed(report: &Report) -> impl Iterator<Item = (&str, &str)> {
    report.checks.iter().filter(|check| !check.ok).map(|check| (check.name.as_str(), check.detail.as_str()))
}

impl Lie {
    fn look(self, pool: &PoolId) -> Planted {
        let report = match &self.chain {
            Some(chain) => check_told(pool, &self.log, chain),
            None => check_kept(pool, &self.log, &self.anchors, &self.proofs, &self.promises),
        };
        let entry = self.entry.map(|entry| entry as u64);
        let check = report.checks.iter().find(|check| check.name == self.check);
        let caught = !report.ok && check.is_some_and(|check| !check.ok && check.entry == entry);
        let found = check.map_or_else(|| "there is no such check".to_owned(), |check| check.detail.clone());
        Planted { fraud: self.fraud.into(), planted: self.planted, check: self.check.into(), entry, caught, found }
    }
}
