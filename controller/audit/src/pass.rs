//! One pass over a log of any length. The entries are read once, in pieces; every check sees each of them in order, on
//! a thread of its own. What stays in memory is the pieces under way, the books of the checks, and 64 bytes an entry; of
//! what is said once another 40.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{ScopedJoinHandle, available_parallelism, scope};

use selion_api::agent::SignedReport;
use selion_api::commit::PoolId;
use selion_api::rest::LoggedEntry;

use crate::bills::Bills;
use crate::claims::Claims;
use crate::decisions::Decisions;
use crate::entries::{self, Item, Last};
use crate::finding::{Check, Finding};
use crate::grants::Grants;
use crate::heads::{self, Anchor};
use crate::progress::Progress;
use crate::promise::{self, KeptPromise};
use crate::proof::{self, Proof};
use crate::replay::Replay;
use crate::report::{NOT_PROVED, Report, Unsigned, VERSION};
use crate::reported::Reported;
use crate::signatures::Signatures;
use crate::spine::Spine;

/// Entries a piece.
pub(crate) const PIECE: usize = 1_024;
/// Pieces that wait for a check at most.
const WAITING: usize = 4;

/// What a pass is about, beside the log.
#[derive(Clone, Debug)]
pub(crate) struct Brief {
    pub pool: PoolId,
    pub anchors: Vec<Anchor>,
    pub proofs: Vec<Proof>,
    pub promises: Vec<KeptPromise>,
    /// Reports of nodes that parties hold.
    pub reports: Vec<SignedReport>,
    /// Entries before this one were judged before, and are trusted.
    pub from: u64,
    /// The newest entries that no head and no anchor need cover, at most.
    pub allow_uncovered: u64,
    pub progress: Arc<Progress>,
}

/// A check that keeps books: it takes each entry once, in order.
pub(crate) trait Watch {
    /// What is wrong with the entry.
    fn take(&mut self, item: &Item) -> Result<(), Finding>;
    /// What was checked, if nothing was wrong.
    fn said(&self) -> String;
}

/// What a pass gives.
pub(crate) struct Passed {
    pub report: Report,
    pub spine: Spine,
}

/// A check and the first thing that it found.
struct Watched<W> {
    watch: W,
    from: u64,
    found: Option<Finding>,
}

impl<W: Watch> Watched<W> {
    fn new(watch: W, from: u64) -> Self {
        Self { watch, from, found: None }
    }

    fn take(&mut self, item: &Item) {
        if self.found.is_none()
            && let Err(finding) = self.watch.take(item)
            && item.seq >= self.from
        {
            self.found = Some(finding);
        }
    }

    fn result(self) -> Result<String, Finding> {
        self.found.map_or_else(|| Ok(self.watch.said()), Err)
    }
}

type Pieces = Receiver<Arc<Vec<Item>>>;
type Told = Result<String, Finding>;

/// Runs every check that needs the published entries only.
///
/// # Errors
///
/// The first error of `pieces`: a log that cannot be read to its end has no report.
pub(crate) fn examine<E>(
    pieces: impl Iterator<Item = Result<Vec<LoggedEntry>, E>>,
    brief: &Brief,
) -> Result<Passed, E> {
    let signers = available_parallelism().map_or(1, usize::from);
    scope(|scope| {
        let (to_replay, items) = sync_channel(WAITING);
        let replay = scope.spawn(move || replay(&items, brief));
        let (to_judge, items) = sync_channel(WAITING);
        let judge = scope.spawn(move || judge(&items, brief));
        let (to_books, items) = sync_channel(WAITING);
        let books = scope.spawn(move || books(&items, brief));
        let mut to_signers = Vec::with_capacity(signers);
        let mut who: Vec<ScopedJoinHandle<'_, Signatures>> = Vec::with_capacity(signers);
        for _ in 0..signers {
            let (to_signer, items) = sync_channel(WAITING);
            to_signers.push(to_signer);
            who.push(scope.spawn(move || signatures(&items, brief)));
        }
        let read = Reader { to_all: [to_replay, to_judge, to_books], to_signers }.read(pieces, brief);
        let (replayed, digests) = joined(replay);
        let decided = joined(judge);
        let [granted, billed, claimed, reported] = joined(books);
        let mut signed = Signatures::default();
        who.into_iter().for_each(|one| signed.join(joined(one)));
        let (spine, fault) = read?;
        let found = Found { replayed, digests, decided, granted, billed, claimed, reported, signed };
        Ok(Passed { report: found.report(brief, &spine, fault), spine })
    })
}

fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Decodes pieces and hands them to the checks.
struct Reader {
    to_all: [SyncSender<Arc<Vec<Item>>>; 3],
    to_signers: Vec<SyncSender<Arc<Vec<Item>>>>,
}

impl Reader {
    /// Up to the first entry that is not as the log's form demands. Dropping the senders ends the checks.
    fn read<E>(
        self,
        pieces: impl Iterator<Item = Result<Vec<LoggedEntry>, E>>,
        brief: &Brief,
    ) -> Result<(Spine, Option<Finding>), E> {
        let mut spine = Spine::new(brief.from);
        let mut last = None;
        let mut signer = self.to_signers.iter().cycle();
        for piece in pieces {
            let (items, fault) = decode(&mut last, &piece?);
            items.iter().for_each(|item| spine.take(item));
            brief.progress.read(items.len());
            let items = Arc::new(items);
            // A check that is gone panicked, which is told when its thread is joined.
            for to in self.to_all.iter().chain(signer.next()) {
                let _ = to.send(Arc::clone(&items));
            }
            if fault.is_some() {
                return Ok((spine, fault));
            }
        }
        let empty = last.is_none().then(|| Finding::plain(entries::EMPTY));
        Ok((spine, empty))
    }
}

fn decode(last: &mut Option<Last>, piece: &[LoggedEntry]) -> (Vec<Item>, Option<Finding>) {
    let mut items = Vec::with_capacity(piece.len());
    for logged in piece {
        match entries::next(*last, logged) {
            Ok(item) => {
                *last = Some(Last::of(&item));
                items.push(item);
            }
            Err(fault) => return (items, Some(fault)),
        }
    }
    (items, None)
}

fn replay(pieces: &Pieces, brief: &Brief) -> (Told, Told) {
    let mut replay = Replay::new(&brief.anchors, brief.from);
    // One piece ahead, to know which head is the newest.
    let mut next = pieces.recv();
    while let Ok(items) = next {
        next = pieces.recv();
        replay.take(&items, next.is_err());
        brief.progress.replayed(items.len());
    }
    replay.told()
}

fn judge(pieces: &Pieces, brief: &Brief) -> Told {
    let mut decisions = Watched::new(Decisions::default(), brief.from);
    for items in pieces {
        items.iter().for_each(|item| decisions.take(item));
        brief.progress.judged(items.len());
    }
    decisions.result()
}

fn books(pieces: &Pieces, brief: &Brief) -> [Told; 4] {
    let mut grants = Watched::new(Grants::default(), brief.from);
    let mut bills = Watched::new(Bills::default(), brief.from);
    let mut claims = Watched::new(Claims::default(), brief.from);
    // What somebody holds is new, whatever was judged before.
    let mut reported = Watched::new(Reported::new(&brief.pool, &brief.reports), 0);
    for items in pieces {
        for item in items.iter() {
            grants.take(item);
            bills.take(item);
            claims.take(item);
            reported.take(item);
        }
    }
    [grants.result(), bills.result(), claims.result(), reported.result()]
}

fn signatures(pieces: &Pieces, brief: &Brief) -> Signatures {
    let mut signatures = Signatures::default();
    for items in pieces {
        items.iter().for_each(|item| signatures.take(item, &brief.pool, item.seq >= brief.from));
    }
    signatures
}

/// What the threads found.
struct Found {
    replayed: Told,
    digests: Told,
    decided: Told,
    granted: Told,
    billed: Told,
    claimed: Told,
    reported: Told,
    signed: Signatures,
}

impl Found {
    fn report(mut self, brief: &Brief, spine: &Spine, fault: Option<Finding>) -> Report {
        let Brief { pool, anchors, proofs, promises, from, allow_uncovered, .. } = brief;
        let entries = spine.leaves.len() as u64;
        let form = match &fault {
            Some(fault) => Err(fault.clone()),
            None => Ok(format!("{entries} entries in canonical form, without gaps; time and fence never fall")),
        };
        // What could not be read was not replayed either: the readable part alone is never called identical.
        let replayed = self.replayed.and_then(|said| fault.map_or(Ok(said), Err));
        let share = self.signed.share;
        let signed = heads::check_heads(spine, &self.signed);
        let covered = heads::covered(spine, signed.is_ok(), anchors);
        let said_once = self.signed.said_once(*from);
        let checks = vec![
            Check::of("entries_canonical", form),
            Check::of("heads_signed", signed),
            Check::of("covered_by_heads", heads::check_covered(entries, covered, *allow_uncovered)),
            Check::of("anchors_match", heads::check_anchors(anchors, &spine.roots)),
            Check::of("proofs_kept", proof::check(spine, pool, proofs)),
            Check::of("promises_kept", promise::check(pool, &spine.leaves, &spine.authorities, promises)),
            Check::of("reports_kept", self.reported),
            Check::of("replay_identical", replayed),
            Check::of("state_digests", self.digests),
            Check::of("decisions_checked", self.decided),
            Check::of("no_slot_twice", self.granted),
            Check::of("bills_recomputed", self.billed),
            Check::of("claims_covered", self.claimed),
            Check::of("signatures", self.signed.told()),
            Check::of("said_once", said_once),
        ];
        Report {
            ok: checks.iter().all(|check| check.ok),
            pool: *pool,
            version: VERSION.into(),
            checks,
            entries,
            judged_from: *from,
            covered,
            root: usize::try_from(covered).ok().and_then(|size| spine.roots.get(size)).copied().unwrap_or_default(),
            newest_head: spine.newest.map(|signed| signed.head),
            anchored_size: anchors.iter().map(|anchor| anchor.size).max().unwrap_or(0),
            convictions: Vec::new(),
            block: None,
            block_hash: None,
            rpcs: Vec::new(),
            signatures: share,
            unsigned_share_ppm: Unsigned::ppm(share),
            not_proved: NOT_PROVED.into(),
        }
    }
}
