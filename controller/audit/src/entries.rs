//! The published log, decoded as far as it can be.

use selion_api::agent::{Fence, MemberEvent, SignedHead};
use selion_api::rest::LoggedEntry;
use selion_api::{Hash32, TimeMs};
use selion_log::{Entry, leaf_hash};
use selion_market::Input;
use selion_market::input::RULES;

use crate::effects::Run;
use crate::finding::Finding;

/// One entry, decoded.
#[derive(Clone, Debug)]
pub struct Item {
    /// Its number.
    pub seq: u64,
    /// As it stands in the tree.
    pub entry: Entry,
    /// Hash of its leaf.
    pub leaf: Hash32,
    /// What happened.
    pub input: Input,
    /// Leaves of its effects, as published.
    pub effects: Vec<Vec<u8>>,
    /// The head signed after it, if one was.
    pub head: Option<SignedHead>,
}

impl Item {
    /// Its time.
    #[must_use]
    pub fn at(&self) -> TimeMs {
        self.entry.at_ms
    }

    /// True if the entry is that report of that run.
    pub(crate) fn reports(&self, run: Run, event: &MemberEvent) -> bool {
        let Input::Report(signed) = &self.input else {
            return false;
        };
        (signed.report.lease, signed.report.attempt, signed.report.member) == run && signed.report.event == *event
    }
}

/// Entries from 0 on, up to the first that is not as the log's form demands.
#[derive(Clone, Debug)]
pub struct Log {
    /// The readable ones.
    pub items: Vec<Item>,
    /// Why the rest is not.
    pub fault: Option<Finding>,
}

impl Log {
    /// Decodes what was published: canonical bytes, numbers without gaps, time and fence that never fall, rules that
    /// this release knows, effects that their entry commits to.
    #[must_use]
    pub fn read(published: &[LoggedEntry]) -> Self {
        let mut items: Vec<Item> = Vec::with_capacity(published.len());
        let mut last = None;
        for logged in published {
            match next(last, logged) {
                Ok(item) => {
                    last = Some(Last::of(&item));
                    items.push(item);
                }
                Err(fault) => {
                    return Self { items, fault: Some(fault) };
                }
            }
        }
        let fault = items.is_empty().then(|| Finding::plain(EMPTY));
        Self { items, fault }
    }
}

/// What is said of a log without entries.
pub(crate) const EMPTY: &str = "the log has no entries";

/// What the next entry is compared with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Last {
    seq: u64,
    at_ms: TimeMs,
    fence: Fence,
}

impl Last {
    pub(crate) fn of(item: &Item) -> Self {
        Self { seq: item.seq, at_ms: item.entry.at_ms, fence: item.entry.fence }
    }
}

/// Decodes the entry after `last`, or says what is wrong with it.
pub(crate) fn next(last: Option<Last>, logged: &LoggedEntry) -> Result<Item, Finding> {
    let expected = last.map_or(0, |last| last.seq + 1);
    let wrong = |detail: String| Finding::at(expected, detail);
    if logged.seq != expected {
        let why = match logged.seq < expected {
            true => format!("entry {} comes again where entry {expected} should stand", logged.seq),
            false => format!("entry {expected} is missing: entry {} stands in its place", logged.seq),
        };
        return Err(wrong(why));
    }
    let bytes = hex::decode(&logged.entry).map_err(|error| wrong(format!("entry {expected} is not hex: {error}")))?;
    let entry = Entry::read(&bytes).map_err(|error| wrong(format!("entry {expected}: {error}")))?;
    if entry.seq != expected {
        return Err(wrong(format!("entry {expected} calls itself entry {}", entry.seq)));
    }
    check_order(last, &entry).map_err(wrong)?;
    check_rules(last, &entry).map_err(wrong)?;
    let input: Input = borsh::from_slice(&entry.input)
        .map_err(|error| wrong(format!("the input of entry {expected} does not decode: {error}")))?;
    if selion_api::commit::canonical(&input) != entry.input {
        return Err(wrong(format!("the input of entry {expected} is not canonical")));
    }
    check_first(last, &input).map_err(wrong)?;
    let effects = decode_effects(logged).map_err(wrong)?;
    let leaves: Vec<Hash32> = effects.iter().map(|effect| leaf_hash(effect)).collect();
    let root = selion_log::root(&leaves);
    if root != entry.effects_root {
        return Err(wrong(format!(
            "the effects published with entry {expected} have root {root}, the entry says {}",
            entry.effects_root
        )));
    }
    Ok(Item { seq: expected, leaf: leaf_hash(&bytes), entry, input, effects, head: logged.head })
}

fn decode_effects(logged: &LoggedEntry) -> Result<Vec<Vec<u8>>, String> {
    let decoded: Result<_, hex::FromHexError> = logged.effects.iter().map(hex::decode).collect();
    decoded.map_err(|error| format!("an effect of entry {} is not hex: {error}", logged.seq))
}

fn check_order(last: Option<Last>, entry: &Entry) -> Result<(), String> {
    let Some(last) = last else { return Ok(()) };
    let show = |fence: Fence| format!("epoch {} term {}", fence.epoch, fence.term);
    if entry.at_ms < last.at_ms {
        return Err(format!("time falls at entry {}: {} ms after {} ms", entry.seq, entry.at_ms.0, last.at_ms.0));
    }
    if entry.fence < last.fence {
        return Err(format!(
            "the fence falls at entry {}: {} after {}",
            entry.seq,
            show(entry.fence),
            show(last.fence)
        ));
    }
    Ok(())
}

fn check_rules(last: Option<Last>, entry: &Entry) -> Result<(), String> {
    if entry.rules == RULES {
        return Ok(());
    }
    let since = match last {
        None => "from the first entry on".to_owned(),
        Some(_) => format!("from entry {} on", entry.seq),
    };
    Err(format!(
        "{since} the log is under rules {}, this release replays rules {RULES}: audit it with the release that names rules {}",
        entry.rules, entry.rules
    ))
}

fn check_first(last: Option<Last>, input: &Input) -> Result<(), String> {
    match (last, input) {
        (None, Input::Rules { version, .. }) if *version == RULES => Ok(()),
        (_, Input::Rules { version, .. }) if *version != RULES => {
            Err(format!("the log goes over to rules {version}: audit it with the release that names them"))
        }
        (None, _) => Err("the first entry does not say which rules hold".into()),
        _ => Ok(()),
    }
}
