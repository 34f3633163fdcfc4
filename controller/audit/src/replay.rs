//! The same rules over the same inputs: every effect must come out the same, to the byte.

use std::collections::BTreeMap;

use selion_api::Hash32;
use selion_market::{Effect, Stamp, State, step};

use crate::effects::{Seen, in_words};
use crate::entries::Item;
use crate::finding::Finding;
use crate::heads::Anchor;

/// State is read whole for a digest of it, which after each of a million heads would take hours. So much of it is read
/// in all, in leases, nodes and answers: of a short log every head, of a long one heads at growing distances.
const WORK_AT_ONCE: u64 = 500_000;
/// And so much more for each entry.
const WORK_AN_ENTRY: u64 = 2;

/// The market, run again.
pub(crate) struct Replay {
    state: State,
    anchored: BTreeMap<u64, Hash32>,
    from: u64,
    entries: u64,
    differs: Option<Finding>,
    digests: Digests,
}

/// What was compared of State.
#[derive(Default)]
struct Digests {
    work: u64,
    anchors: u64,
    heads: u64,
    of_heads: u64,
    wrong: Option<Finding>,
}

impl Replay {
    /// A replay from nothing on; what comes before entry `from` is trusted.
    pub(crate) fn new(anchors: &[Anchor], from: u64) -> Self {
        let anchored = anchors.iter().map(|anchor| (anchor.size, anchor.digest)).collect();
        Self { state: State::new(), anchored, from, entries: 0, differs: None, digests: Digests::default() }
    }

    /// Goes on with these entries. `last`: no others follow.
    pub(crate) fn take(&mut self, items: &[Item], last: bool) {
        let newest = items.iter().rposition(|item| item.head.is_some()).filter(|_| last);
        for (at, item) in items.iter().enumerate() {
            if self.differs.is_some() {
                return;
            }
            match apply(&mut self.state, item, item.seq >= self.from) {
                Ok(()) => self.entries += 1,
                Err(finding) => self.differs = Some(finding),
            }
            if self.differs.is_none() && self.digests.wrong.is_none() {
                self.compare(item, newest == Some(at));
            }
        }
    }

    fn compare(&mut self, item: &Item, newest: bool) {
        let size = item.seq + 1;
        let anchor = self.anchored.get(&size).filter(|_| size >= self.from);
        let head = item.head.filter(|_| item.seq >= self.from);
        self.digests.of_heads += u64::from(head.is_some());
        let work = (self.state.leases.len() + self.state.nodes.len() + self.state.answers.len()) as u64 + 1;
        let most = WORK_AT_ONCE.saturating_add(size.saturating_mul(WORK_AN_ENTRY));
        let head = head.filter(|_| newest || anchor.is_some() || self.digests.work.saturating_add(work) <= most);
        if anchor.is_none() && head.is_none() {
            return;
        }
        let ours = self.state.digest();
        self.digests.work = self.digests.work.saturating_add(work);
        self.digests.anchors += u64::from(anchor.is_some());
        self.digests.heads += u64::from(head.is_some());
        let promised = [head.map(|head| ("head", head.head.digest)), anchor.map(|digest| ("anchor", *digest))];
        let wrong = promised.into_iter().flatten().find(|(_, digest)| *digest != ours);
        self.digests.wrong = wrong.map(|(what, digest)| {
            let detail = format!("the {what} over {size} entries has State digest {digest}, the replay gives {ours}");
            Finding::at(item.seq, detail)
        });
    }

    /// That effects are what the rules give, and that State digests in heads and anchors are those of the replay.
    pub(crate) fn told(self) -> (Result<String, Finding>, Result<String, Finding>) {
        let Digests { anchors, heads, of_heads, wrong, .. } = self.digests;
        let said = format!(
            "the State digests of {anchors} anchors and of {heads} of {of_heads} heads, the newest among them, are those \
             of the replay"
        );
        let judged = match self.from.min(self.entries) {
            0 => String::new(),
            trusted => format!("; the {trusted} before entry {trusted} were trusted"),
        };
        let effects =
            format!("{} entries replay to the same effects{judged}", self.entries - self.from.min(self.entries));
        (self.differs.map_or(Ok(effects), Err), wrong.map_or(Ok(said), Err))
    }
}

/// Applies an entry. If it is judged, its effects have to be those of the rules.
pub(crate) fn apply(state: &mut State, item: &Item, judged: bool) -> Result<(), Finding> {
    let stamp = Stamp { seq: item.seq, at_ms: item.entry.at_ms, fence: item.entry.fence };
    let outcome = step(state, &stamp, &item.input);
    if !judged {
        return Ok(());
    }
    let ours: Vec<Vec<u8>> = outcome.effects.iter().map(Effect::leaf).collect();
    if ours != item.effects {
        return Err(difference(item, &ours));
    }
    if state.rules != item.entry.rules {
        let detail =
            format!("entry {} says rules {}, its place in the log says {}", item.seq, item.entry.rules, state.rules);
        return Err(Finding::at(item.seq, detail));
    }
    if state.next_seq != item.seq + 1 {
        let detail = format!("entry {} does not advance the log", item.seq);
        return Err(Finding::at(item.seq, detail));
    }
    Ok(())
}

/// The first difference, in words.
fn difference(item: &Item, ours: &[Vec<u8>]) -> Finding {
    let longest = ours.len().max(item.effects.len());
    let differs = |at: &usize| item.effects.get(*at) != ours.get(*at);
    let at = (0..longest).find(differs).unwrap_or_default();
    let tell = |leaf: Option<&Vec<u8>>| leaf.map_or_else(|| "nothing".to_owned(), |leaf| in_words(leaf));
    let kind = [item.effects.get(at), ours.get(at)].into_iter().flatten().find_map(|leaf| match Seen::read(leaf)? {
        Seen::Grant(_) => Some("grant"),
        Seen::Bill(_) => Some("bill"),
        Seen::Other(_) => None,
    });
    Finding::at(
        item.seq,
        format!(
            "{} differs at entry {}, effect {at}: the log says {}, the rules give {}",
            kind.unwrap_or("effect"),
            item.seq,
            tell(item.effects.get(at)),
            tell(ours.get(at))
        ),
    )
}
