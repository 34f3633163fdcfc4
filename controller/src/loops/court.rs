//! Answers accusations before the pool's court out of our own log: whoever keeps to the rules has an answer to each, and
//! silence loses the bond.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use selion_api::agent::{Shown, SignedHead};
use selion_api::chain::ChainEvent;
use selion_api::{Account, Amount, Hash32, TimeMs};
use selion_contracts::court::{Run, Standing, double_lease_case, over_bill_case, voucher_due};
use selion_contracts::read::CaseRecord;
use selion_contracts::write::Call;
use selion_contracts::{BlockTag, Pool, PoolError};
use selion_log::{Entry, WIDTH, inclusion_from, shown};
use selion_market::Input;
use sqlx::SqlitePool;

use super::outbox::Desk;
use crate::sequencer::{Sequencer, Step};
use crate::store::outbox::{Kind, Order};
use crate::store::{entry, head, undecodable};

/// Entries a question.
const PAGE: u32 = 1_000;

/// Why a pass ended early.
#[derive(Debug, thiserror::Error)]
pub enum CourtError {
    /// The chain.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The store.
    #[error("database: {0}")]
    Sql(#[from] sqlx::Error),
}

/// Accusations against us, for whoever watches. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Accused(Arc<[AtomicU64; 2]>);

impl Accused {
    pub(super) fn set(&self, report: Report) {
        self.0[0].store(report.open, Ordering::Relaxed);
        self.0[1].store(report.unanswerable, Ordering::Relaxed);
    }

    /// What the last pass found.
    #[must_use]
    pub fn report(&self) -> Report {
        let [open, unanswerable] = self.0.each_ref().map(|count| count.load(Ordering::Relaxed));
        Report { open, unanswerable }
    }
}

/// What a pass found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Open cases against us.
    pub open: u64,
    /// Those of them to which the log holds no answer.
    pub unanswerable: u64,
}

/// Whether an entry tells that a case began or ended.
#[must_use]
pub fn is_news(step: &Step) -> bool {
    use ChainEvent as E;
    let concerns = |event: &E| matches!(event, E::Accused { .. } | E::Acquitted { .. } | E::Slashed { .. });
    matches!(&step.input, Input::Block(block) if block.events.iter().any(concerns))
}

/// What the log says of cases against one authority, as far as it was read.
#[derive(Debug, Default)]
pub struct Cases {
    read: u64,
    open: BTreeMap<Hash32, TimeMs>,
    /// Told once.
    told: BTreeSet<Hash32>,
}

impl Cases {
    /// Orders an answer to each open case that has one, unless it is on its way.
    ///
    /// # Errors
    ///
    /// [`CourtError`]; nothing is ordered then.
    pub async fn pass(
        &mut self,
        (db, log): (&SqlitePool, &Sequencer),
        authority: Account,
        desk: &Desk,
        pool: &Pool,
        now: TimeMs,
    ) -> Result<Report, CourtError> {
        if pool.bond(authority, BlockTag::Latest).await?.open == 0 {
            return Ok(Report::default());
        }
        self.catch_up(db, authority).await?;
        let mut report = Report::default();
        let on_its_way = desk.subjects(Kind::Answer).await?;
        for (&case, &by) in &self.open {
            let record = pool.case(case, BlockTag::Latest).await?;
            if record.standing() != Standing::Open {
                continue; // the log has yet to hear of it
            }
            report.open += 1;
            let Some(head) = head::newest(db).await? else { continue };
            if on_its_way.contains(&case.to_string()) {
                continue;
            }
            match answer((db, log), pool, case, &record, &head).await? {
                Some(call) => {
                    let order =
                        Order { kind: Kind::Answer, subject: case.to_string(), target: call.to, calldata: call.data };
                    desk.order(&order, now).await?;
                    tracing::warn!(%case, accuser = %record.accuser, "accused before the pool's court: the answer is on its way");
                }
                None => {
                    report.unanswerable += 1;
                    if self.told.insert(case) {
                        tracing::error!(
                            %case, accuser = %record.accuser, until_ms = by.0,
                            "accused before the pool's court, and the log holds no answer: the bond is lost when somebody \
                             convicts after that time; `selion audit` shows what happened"
                        );
                    }
                }
            }
        }
        Ok(report)
    }

    /// Reads what the log says of cases from where it was read last.
    async fn catch_up(&mut self, db: &SqlitePool, authority: Account) -> Result<(), CourtError> {
        loop {
            let page = entry::bytes(db, self.read, PAGE).await?;
            if page.is_empty() {
                return Ok(());
            }
            for bytes in &page {
                let entry = Entry::read(bytes).map_err(|error| sqlx::Error::Decode(error.into()))?;
                if let Input::Block(block) = borsh::from_slice(&entry.input).map_err(undecodable)? {
                    block.events.iter().for_each(|event| self.hear(authority, event));
                }
                self.read += 1;
            }
        }
    }

    fn hear(&mut self, us: Account, event: &ChainEvent) {
        match event {
            ChainEvent::Accused { authority, case, by } if *authority == us => {
                self.open.insert(*case, *by);
            }
            ChainEvent::Acquitted { case } | ChainEvent::Slashed { case, .. } => {
                self.open.remove(case);
            }
            _ => {}
        }
    }
}

/// What answers a case; `None` if nothing that the head covers does.
async fn answer(
    (db, log): (&SqlitePool, &Sequencer),
    pool: &Pool,
    case: Hash32,
    record: &CaseRecord,
    head: &SignedHead,
) -> Result<Option<Call>, CourtError> {
    let authority = record.authority;
    let size = head.head.size;
    if record.between() == (0, 0) {
        let (renter, least) = (record.harmed, Amount(record.at_risk));
        let fits = |leaf: &[u8]| {
            voucher_due(leaf).is_some_and(|(who, provider, total)| {
                who == renter && total >= least && over_bill_case(authority, renter, provider, least) == case
            })
        };
        let found = find(db, 0, size, fits).await?;
        return Ok(match found {
            Some((seq, index)) => Some(pool.answer_over_bill(least, head, &show((db, log), seq, index, size).await?)),
            None => None,
        });
    }
    let (from, to) = record.between();
    let (Some(before), Some(after)) = (grants(db, from).await?, grants(db, to).await?) else { return Ok(None) };
    let pairs = before.iter().flat_map(|(at, one)| after.iter().map(move |(till, other)| (at, one, till, other)));
    let pair = pairs.into_iter().find(|(_, one, _, other)| double_lease_case(authority, one, other) == case);
    let Some((&at, earlier, &till, later)) = pair else { return Ok(None) };
    let freed = earlier.freed_leaf();
    let mut next = from;
    while let Some((seq, index)) = find(db, next, size.min(to.saturating_add(1)), |leaf| leaf == freed).await? {
        if (from, at) < (seq, index) && (seq, index) < (to, till) {
            return Ok(Some(pool.answer_double_lease(later, head, &show((db, log), seq, index, size).await?)));
        }
        next = seq.saturating_add(1);
    }
    Ok(None)
}

/// The first effect that `fits`, in entries from `from` to below `size`: its entry and its place there.
async fn find(
    db: &SqlitePool,
    mut from: u64,
    size: u64,
    fits: impl Fn(&[u8]) -> bool,
) -> sqlx::Result<Option<(u64, usize)>> {
    while from < size {
        let page = entry::effects(db, from, PAGE).await?;
        if page.is_empty() {
            return Ok(None);
        }
        for list in page {
            let effects: Vec<Vec<u8>> = borsh::from_slice(&list).map_err(undecodable)?;
            match effects.iter().position(|leaf| fits(leaf)) {
                Some(index) if from < size => return Ok(Some((from, index))),
                _ => from += 1,
            }
        }
    }
    Ok(None)
}

/// The grants of an entry with their places; `None` if there is no such entry.
async fn grants(db: &SqlitePool, seq: u64) -> sqlx::Result<Option<Vec<(usize, Run)>>> {
    let Some(list) = entry::effects(db, seq, 1).await?.pop() else { return Ok(None) };
    let effects: Vec<Vec<u8>> = borsh::from_slice(&list).map_err(undecodable)?;
    let runs = effects.iter().enumerate().filter_map(|(at, leaf)| Some((at, Run::of_grant(leaf)?)));
    Ok(Some(runs.collect()))
}

/// The effect with its paths, for a head of `size` entries.
async fn show((db, log): (&SqlitePool, &Sequencer), seq: u64, index: usize, size: u64) -> sqlx::Result<Shown> {
    let (bytes, list) = (entry::bytes(db, seq, 1).await?.pop(), entry::effects(db, seq, 1).await?.pop());
    let effects: Vec<Vec<u8>> = borsh::from_slice(&list.unwrap_or_default()).map_err(undecodable)?;
    let path = path((db, log), seq, size).await?;
    shown(bytes.unwrap_or_default(), path, &effects, index).ok_or(sqlx::Error::RowNotFound)
}

/// The path of an entry's leaf: the leaves of its own tile and of the last one, the rest out of the upper levels.
async fn path((db, log): (&SqlitePool, &Sequencer), seq: u64, size: u64) -> sqlx::Result<Vec<Hash32>> {
    let width = u64::from(WIDTH);
    let mut leaves = BTreeMap::new();
    for tile in [seq / width, size / width] {
        let of_tile = entry::leaves(db, tile * width, u32::from(WIDTH)).await?;
        leaves.extend((tile * width..).zip(of_tile));
    }
    let path = inclusion_from(seq, size, |level, from, count| match level {
        0 => (from..from + u64::from(count)).map(|at| leaves.get(&at).copied()).collect::<Option<Vec<_>>>().ok_or(()),
        _ => log.levels(|levels| levels.hashes(level, from, count).map(<[_]>::to_vec)).ok_or(()),
    });
    path.map_err(|()| sqlx::Error::RowNotFound) // a signed head covers entries that are not there
}
