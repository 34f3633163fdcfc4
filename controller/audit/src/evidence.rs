//! What shows that somebody contradicted himself, out of logs as they were published: it is for the pool's court. That a log
//! breaks its rules is shown by [`crate::breach`].

use std::collections::BTreeMap;

use selion_api::agent::{SignedHead, SignedPromise, SignedReport};
use selion_api::commit::{PoolId, canonical, signing_digest};
use selion_api::rest::LoggedEntry;
use selion_api::{Hash32, LeaseId, NodeId, Signature};
use selion_contracts::court::Stated;
use selion_contracts::signer::recover_text;
use selion_log::{Entry, inclusion, leaf_hash, root};
use selion_market::Input;
use serde::{Deserialize, Serialize};

/// A leaf under a head that an authority stands by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stands {
    /// The head.
    pub head: Stated,
    /// Leaf of the entry that stands there.
    pub leaf: Hash32,
    /// RFC 9162 §2.1.3: from that leaf to the head's root.
    pub path: Vec<Hash32>,
}

/// A node's signed report, as a file holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportFile {
    /// Its canonical bytes, in hex.
    pub report: String,
    /// By the node's key.
    pub signature: Signature,
}

/// Why a log shows no offence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoEvidence {
    /// The promise is kept.
    #[error("the promise is kept: entry {0} of this log is the promised one")]
    Kept(u64),
    /// No head of the epoch covers the entry.
    #[error(
        "no signed head of epoch {epoch} in this log covers entry {seq}: there is nothing to hold against anybody yet"
    )]
    NotCovered {
        /// Which entry.
        seq: u64,
        /// Which epoch.
        epoch: u32,
    },
    /// The log is not what its heads cover.
    #[error("entry {0} of this log does not belong to its signed heads: get the log again, or `selion audit` it")]
    Damaged(u64),
    /// Two logs are one.
    #[error("the logs are the same as far as both go, {0} entries: there is no fork")]
    NoFork(u64),
    /// Two logs differ where no one signed both.
    #[error(
        "the logs differ from entry {0} on, but no epoch signed heads over that entry in both: nobody contradicts himself"
    )]
    NobodySignedBoth(u64),
    /// No such report.
    #[error("entry {0} of this log is no report of a node")]
    NoReport(u64),
    /// It is no report.
    #[error("these are not the bytes of a report: {0}")]
    NotRead(String),
    /// They can both be an honest node's.
    #[error(
        "the two reports do not contradict each other: of one node, provider, number, lease, run and member only one \
         can be true"
    )]
    NoContradiction,
    /// Two leases never had the same place.
    #[error("{one} and {other} never held the same place without a release between them in this log")]
    NoDoubleLease {
        /// A lease.
        one: LeaseId,
        /// Another.
        other: LeaseId,
    },
    /// The log keeps the rules that an excerpt can show to be broken.
    #[error(
        "no entry of this log of {0} gives a place twice, bills or vouches other than it was used, or promises more than a \
         deposit holds"
    )]
    NoBreach(u64),
    /// Nobody's head shows alone that it was his doing.
    #[error(
        "entry {0} breaks a rule by what was entered under another authority before it: no head shows whose doing it is, \
         `selion audit` tells more"
    )]
    AcrossEpochs(u64),
    /// The log has the report that is held.
    #[error("entry {0} of this log is that very report: there is no contradiction")]
    SameReport(u64),
    /// The log has another report of that number, and both can be true.
    #[error("entry {0} of this log is a report of that node and number about another run or for another provider")]
    OtherSubject(u64),
    /// The log has no report of that number.
    #[error(
        "this log of {entries} entries has no report {number} of node {node}, {}: nothing contradicts the one that you hold, and          its signature alone shows what the node said",
        .last.map_or_else(|| "nor any other of it".to_owned(), |last| format!("the highest of it is {last}"))
    )]
    NoSuchNumber {
        /// Whose.
        node: NodeId,
        /// Its number.
        number: u64,
        /// Entries of the log.
        entries: u64,
        /// The highest number of the node in it.
        last: Option<u64>,
    },
    /// Nobody stands by it.
    #[error("the report that you hold is signed by {by}, not by its node {node}, for this pool")]
    NotTheNodes {
        /// Who did.
        by: String,
        /// Whose it says it is.
        node: NodeId,
    },
}

/// The entries under a head that somebody stands by.
pub(crate) struct Under {
    pub head: Stated,
    pub leaves: Vec<Hash32>,
}

impl Under {
    /// Whether the log's first entries are those of the head.
    fn of(published: &[LoggedEntry], head: Stated) -> Result<Option<Self>, NoEvidence> {
        let (_, size, expected, _) = head.says();
        let under = published.iter().take_while(|entry| entry.seq < size);
        let leaves = under.map(leaf).collect::<Result<Vec<_>, _>>()?;
        let fits = leaves.len() as u64 == size && root(&leaves) == expected;
        Ok(fits.then_some(Self { head, leaves }))
    }

    /// The newest signed head of an epoch, which has to cover the entry.
    pub(crate) fn read(published: &[LoggedEntry], seq: u64, epoch: u32) -> Result<Self, NoEvidence> {
        let covers = |head: &SignedHead| head.head.fence.epoch == epoch && head.head.size > seq;
        let head = published.iter().rev().find_map(|entry| entry.head.filter(covers));
        let head = head.ok_or(NoEvidence::NotCovered { seq, epoch })?;
        Self::of(published, Stated::Head(head))?.ok_or(NoEvidence::Damaged(seq))
    }

    fn path(&self, seq: u64) -> Vec<Hash32> {
        inclusion(&self.leaves, usize::try_from(seq).unwrap_or(usize::MAX))
    }

    fn stands(&self, seq: u64) -> Result<Stands, NoEvidence> {
        let leaf = usize::try_from(seq).ok().and_then(|at| self.leaves.get(at)).ok_or(NoEvidence::Damaged(seq))?;
        Ok(Stands { head: self.head, leaf: *leaf, path: self.path(seq) })
    }
}

fn leaf(entry: &LoggedEntry) -> Result<Hash32, NoEvidence> {
    hex::decode(&entry.entry).map(|bytes| leaf_hash(&bytes)).map_err(|_| NoEvidence::Damaged(entry.seq))
}

/// Whether the log's first `size` entries have this root.
#[must_use]
pub fn begins_with(published: &[LoggedEntry], size: u64, expected: Hash32) -> bool {
    let under = published.iter().take_while(|entry| entry.seq < size).map(leaf);
    let leaves = under.collect::<Result<Vec<_>, _>>().unwrap_or_default();
    leaves.len() as u64 == size && root(&leaves) == expected
}

/// What in this log contradicts a promise. `anchors`: the last of each epoch.
///
/// # Errors
///
/// [`NoEvidence`] if nothing does.
pub fn against(published: &[LoggedEntry], anchors: &[Stated], promise: &SignedPromise) -> Result<Stands, NoEvidence> {
    let (seq, epoch) = (promise.promise.seq, promise.promise.fence.epoch);
    let found = match Under::read(published, seq, epoch) {
        Ok(under) => under.stands(seq)?,
        Err(none) => {
            let answers = |anchor: &&Stated| {
                let (of, size, ..) = anchor.says();
                (of == epoch || of.checked_add(1) == Some(epoch)) && size > seq
            };
            let anchored = anchors.iter().filter(answers).map(|anchor| Under::of(published, *anchor));
            anchored.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().next().ok_or(none)?.stands(seq)?
        }
    };
    if found.leaf == promise.promise.leaf { Err(NoEvidence::Kept(seq)) } else { Ok(found) }
}

/// The first entry that was signed or anchored differently in two logs by who answers for both, and how it stands in
/// each: the later epoch second. `anchors`: the last of each epoch.
///
/// # Errors
///
/// [`NoEvidence`] if there is none.
pub fn fork(
    one: &[LoggedEntry],
    other: &[LoggedEntry],
    anchors: &[Stated],
) -> Result<(u64, Stands, Stands), NoEvidence> {
    let differs = one.iter().zip(other).find(|(one, other)| one.entry != other.entry);
    let Some((first, _)) = differs else {
        return Err(NoEvidence::NoFork(one.len().min(other.len()) as u64));
    };
    let seq = first.seq;
    let (ours, theirs) = (covering(one, seq, anchors)?, covering(other, seq, anchors)?);
    for one in &ours {
        for other in &theirs {
            if answer_for_each_other(&one.head, &other.head) {
                return Ok((seq, one.stands(seq)?, other.stands(seq)?));
            }
            if answer_for_each_other(&other.head, &one.head) {
                return Ok((seq, other.stands(seq)?, one.stands(seq)?));
            }
        }
    }
    Err(NoEvidence::NobodySignedBoth(seq))
}

/// The newest head of each epoch that covers the entry, and the anchors that are of this log.
fn covering(published: &[LoggedEntry], seq: u64, anchors: &[Stated]) -> Result<Vec<Under>, NoEvidence> {
    let heads = published.iter().filter_map(|entry| entry.head).filter(|head| head.head.size > seq);
    let newest: BTreeMap<u32, SignedHead> = heads.map(|head| (head.head.fence.epoch, head)).collect();
    let mut under = Vec::new();
    for head in newest.into_values() {
        under.push(Under::of(published, Stated::Head(head))?.ok_or(NoEvidence::Damaged(seq))?);
    }
    for anchor in anchors.iter().filter(|anchor| anchor.says().1 > seq) {
        under.extend(Under::of(published, *anchor)?);
    }
    Ok(under)
}

/// Whether who speaks in the second head answers for the first, as the court has it.
fn answer_for_each_other(one: &Stated, other: &Stated) -> bool {
    let (first, second) = (one.says().0, other.says().0);
    first == second || matches!(one, Stated::Anchor { .. }) && first.checked_add(1) == Some(second)
}

/// The report that an entry holds.
///
/// # Errors
///
/// [`NoEvidence::NoReport`] if it holds another input, or none.
pub fn report_at(published: &[LoggedEntry], seq: u64) -> Result<SignedReport, NoEvidence> {
    let logged = usize::try_from(seq).ok().and_then(|at| published.get(at)).ok_or(NoEvidence::NoReport(seq))?;
    match borsh::from_slice(&read(logged)?.input) {
        Ok(Input::Report(signed)) => Ok(signed),
        _ => Err(NoEvidence::NoReport(seq)),
    }
}

impl From<&SignedReport> for ReportFile {
    fn from(signed: &SignedReport) -> Self {
        Self { report: hex::encode(canonical(&signed.report)), signature: signed.signature }
    }
}

impl ReportFile {
    /// The report.
    ///
    /// # Errors
    ///
    /// [`NoEvidence::NotRead`] if the bytes are no report.
    pub fn read(&self) -> Result<SignedReport, NoEvidence> {
        let bytes = hex::decode(&self.report).map_err(|error| NoEvidence::NotRead(error.to_string()))?;
        let report = borsh::from_slice(&bytes).map_err(|error| NoEvidence::NotRead(error.to_string()))?;
        Ok(SignedReport { report, signature: self.signature })
    }
}

/// The reports in a text of JSON lines; `None` if a line is none.
#[must_use]
pub fn read_reports(text: &str) -> Option<Vec<SignedReport>> {
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    lines.map(|line| serde_json::from_str::<ReportFile>(line).ok()?.read().ok()).collect()
}

/// The node that signed two reports of which one is not true.
///
/// # Errors
///
/// [`NoEvidence::NoContradiction`] if both can be.
pub fn contradiction(one: &SignedReport, other: &SignedReport) -> Result<NodeId, NoEvidence> {
    let contradict = is_about_the_same(one, other) && !says_the_same(one, other);
    if contradict { Ok(one.report.node) } else { Err(NoEvidence::NoContradiction) }
}

/// Whether only one of two reports can be true, if they differ, as the court has it.
fn is_about_the_same(one: &SignedReport, other: &SignedReport) -> bool {
    let about = |signed: &SignedReport| {
        let report = &signed.report;
        (report.node, report.provider, report.seq, report.lease, report.attempt, report.member)
    };
    about(one) == about(other)
}

/// Whether two reports differ by the fence at most, under which a report may be signed again.
fn says_the_same(one: &SignedReport, other: &SignedReport) -> bool {
    let said = |signed: &SignedReport| {
        let report = &signed.report;
        (report.gpus.clone(), report.slot.clone(), report.event.clone(), report.metered_ms)
    };
    said(one) == said(other)
}

/// Who signed the report, if it is not its node.
pub(crate) fn stranger(pool: &PoolId, signed: &SignedReport) -> Option<NoEvidence> {
    let digest = signing_digest(pool, "report", &signed.report);
    let by = recover_text(&digest.0, &signed.signature);
    let node = signed.report.node;
    let named = by.map_or_else(|| "nobody".to_owned(), |by| by.to_string());
    by.is_none_or(|by| by.0 != node.0).then_some(NoEvidence::NotTheNodes { by: named, node })
}

/// The report in a log that contradicts one that somebody holds, and its entry.
///
/// # Errors
///
/// [`NoEvidence`] if the log has none of that number, the same one, or one that can be true beside it; or if the node did
/// not sign the one that is held.
pub fn contradicting(
    pool: &PoolId,
    published: &[LoggedEntry],
    held: &SignedReport,
) -> Result<(u64, SignedReport), NoEvidence> {
    if let Some(stranger) = stranger(pool, held) {
        return Err(stranger);
    }
    let (node, number) = (held.report.node, held.report.seq);
    let (mut other, mut last) = (None, None);
    for logged in published {
        let Ok(Input::Report(found)) = borsh::from_slice(&read(logged)?.input) else { continue };
        if found.report.node == node {
            last = last.max(Some(found.report.seq));
        }
        // What its node did not sign shows nothing of the node: `signatures` of an audit finds it.
        if (found.report.node, found.report.seq) != (node, number) || stranger(pool, &found).is_some() {
            continue;
        }
        match (is_about_the_same(&found, held), says_the_same(&found, held)) {
            (true, false) => return Ok((logged.seq, found)),
            (true, true) => other = Some(NoEvidence::SameReport(logged.seq)),
            (false, _) => other = Some(NoEvidence::OtherSubject(logged.seq)),
        }
    }
    let entries = published.len() as u64;
    Err(other.unwrap_or(NoEvidence::NoSuchNumber { node, number, entries, last }))
}

fn read(logged: &LoggedEntry) -> Result<Entry, NoEvidence> {
    let bytes = hex::decode(&logged.entry).ok();
    bytes.and_then(|bytes| Entry::read(&bytes).ok()).ok_or(NoEvidence::Damaged(logged.seq))
}

#[cfg(test)]
mod tests {
    use selion_api::agent::{Fence, Head, MemberEvent, Promise, Report};
    use selion_api::{Account, GpuId, Slot};
    use selion_log::verify_inclusion;

    use super::*;

    const FENCE: Fence = Fence { epoch: 1, term: 1 };

    fn log(entries: [u8; 3]) -> Vec<LoggedEntry> {
        let leaves = entries.map(|byte| leaf_hash(&[byte]));
        let head =
            |size: usize| Head { size: size as u64, root: root(&leaves[..size]), digest: Hash32::ZERO, fence: FENCE };
        let logged = |(at, byte): (usize, u8)| LoggedEntry {
            seq: at as u64,
            entry: hex::encode([byte]),
            effects: Vec::new(),
            head: Some(SignedHead { head: head(at + 1), signature: Signature([0; 65]) }),
        };
        entries.into_iter().enumerate().map(logged).collect()
    }

    fn promise(seq: u64, byte: u8) -> SignedPromise {
        let promise = Promise { account: Account([1; 20]), seq, leaf: leaf_hash(&[byte]), fence: FENCE };
        SignedPromise { promise, signature: Signature([0; 65]) }
    }

    #[test]
    fn another_entry_at_a_promised_place_is_evidence_with_its_path_to_the_newest_head() {
        let found = against(&log([10, 11, 12]), &[], &promise(1, 99)).unwrap();
        let (_, size, root, _) = found.head.says();
        assert_eq!((size, found.leaf), (3, leaf_hash(&[11])));
        assert!(verify_inclusion(&found.leaf, 1, 3, &found.path, &root));
    }

    #[test]
    fn a_promise_that_is_kept_or_not_covered_is_none_and_so_is_a_damaged_copy() {
        assert_eq!(against(&log([10, 11, 12]), &[], &promise(1, 11)), Err(NoEvidence::Kept(1)));
        assert_eq!(against(&log([10, 11, 12]), &[], &promise(3, 11)), Err(NoEvidence::NotCovered { seq: 3, epoch: 1 }));
        let mut copy = log([10, 11, 12]);
        copy[0].entry = hex::encode([77]);
        assert_eq!(against(&copy, &[], &promise(1, 99)), Err(NoEvidence::Damaged(1)));
    }

    #[test]
    fn two_logs_of_one_signer_are_a_fork_where_they_part_and_none_where_they_do_not() {
        let (index, one, other) = fork(&log([10, 11, 12]), &log([10, 99, 12]), &[]).unwrap();
        assert_eq!((index, one.leaf, other.leaf), (1, leaf_hash(&[11]), leaf_hash(&[99])));
        for stands in [&one, &other] {
            assert!(verify_inclusion(&stands.leaf, 1, 3, &stands.path, &stands.head.says().2));
        }
        assert_eq!(fork(&log([10, 11, 12]), &log([10, 11, 12])[..2], &[]), Err(NoEvidence::NoFork(2)));
        assert_eq!(fork(&log([10, 11, 12]), &later(2), &[]), Err(NoEvidence::NobodySignedBoth(1)));
    }

    /// A log of another epoch.
    fn later(epoch: u32) -> Vec<LoggedEntry> {
        let mut later = log([10, 99, 12]);
        for entry in &mut later {
            entry.head.as_mut().unwrap().head.fence.epoch = epoch;
        }
        later
    }

    #[test]
    fn what_an_epoch_anchored_is_held_against_the_next_one_and_no_other() {
        let ours = log([10, 11, 12]);
        let anchored = ours[2].head.unwrap().head;
        let anchor = Stated::Anchor { epoch: 1, size: 3, root: anchored.root, digest: anchored.digest };
        for logs in [(ours.clone(), later(2)), (later(2), ours.clone())] {
            let (index, one, other) = fork(&logs.0, &logs.1, &[anchor]).unwrap();
            assert_eq!((index, one.head, other.head.says().0), (1, anchor, 2), "the later epoch stands second");
        }
        assert_eq!(fork(&ours, &later(3), &[anchor]), Err(NoEvidence::NobodySignedBoth(1)));
        // A promise of the next epoch is held against it too.
        let mut promised = promise(1, 99);
        promised.promise.fence.epoch = 2;
        assert_eq!(against(&ours, &[anchor], &promised).unwrap().head, anchor);
        assert_eq!(against(&ours, &[], &promised), Err(NoEvidence::NotCovered { seq: 1, epoch: 2 }));
    }

    fn report(seq: u64, metered_ms: u64) -> SignedReport {
        let report = Report {
            node: NodeId([1; 20]),
            provider: Account([2; 20]),
            seq,
            fence: FENCE,
            lease: LeaseId { seq: 5, index: 0 },
            attempt: 1,
            member: 0,
            gpus: vec![GpuId([3; 16])],
            slot: Slot::Whole,
            event: MemberEvent::Metered,
            metered_ms,
        };
        SignedReport { report, signature: Signature([9; 65]) }
    }

    #[test]
    fn two_reports_of_one_number_contradict_each_other_unless_they_are_one() {
        assert_eq!(contradiction(&report(7, 1), &report(7, 2)), Ok(NodeId([1; 20])));
        assert_eq!(contradiction(&report(7, 1), &report(8, 2)), Err(NoEvidence::NoContradiction));
        let mut again = report(7, 1);
        again.report.fence.term = 9;
        assert_eq!(contradiction(&report(7, 1), &again), Err(NoEvidence::NoContradiction), "said once, under a fence");
        let file = ReportFile::from(&report(7, 1));
        assert_eq!(file.read(), Ok(report(7, 1)));
        assert!(ReportFile { report: "00".into(), ..file }.read().is_err());
    }

    #[test]
    fn a_report_begins_with_what_the_court_reads_of_it() {
        let bytes = canonical(&report(7, 1).report);
        let head = [&[1; 20][..], &[2; 20], &7_u64.to_le_bytes()].concat();
        assert_eq!(bytes[..48], head);
        let about = [&5_u64.to_le_bytes()[..], &0_u32.to_le_bytes(), &1_u32.to_le_bytes(), &0_u16.to_le_bytes()];
        assert_eq!(bytes[60..78], about.concat());
    }
}
