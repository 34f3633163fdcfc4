//! The same rules over the same inputs: every effect must come out the same, to the byte.

use std::collections::BTreeMap;

use selion_api::Hash32;
use selion_market::{Effect, Stamp, State, step};

use crate::effects::{Seen, in_words};
use crate::entries::{Item, Log};
use crate::finding::Finding;
use crate::heads::Anchor;

/// What a replay found, check by check.
pub(crate) struct Replayed {
    /// Effects are what the rules give.
    pub effects: Result<String, Finding>,
    /// State digests in heads and anchors are those of the replayed State.
    pub digests: Result<String, Finding>,
}

/// Replays the log up to the first difference.
pub(crate) fn replay(log: &Log, anchors: &[Anchor]) -> Replayed {
    let anchored: BTreeMap<u64, Hash32> = anchors.iter().map(|anchor| (anchor.size, anchor.digest)).collect();
    let mut state = State::new();
    let mut digests = 0_u64;
    let mut wrong_digest = None;
    for item in &log.items {
        if let Err(finding) = apply(&mut state, item) {
            return Replayed { effects: Err(finding), digests: settled(wrong_digest, digests) };
        }
        let promised = [
            item.head.map(|signed| ("head", signed.head.digest)),
            anchored.get(&(item.seq + 1)).map(|digest| ("anchor", *digest)),
        ];
        if wrong_digest.is_some() || promised == [None, None] {
            continue;
        }
        let ours = state.digest();
        digests += 1;
        for (what, digest) in promised.into_iter().flatten() {
            if digest != ours {
                wrong_digest = Some(Finding::at(
                    item.seq,
                    format!(
                        "the {what} over {} entries has State digest {digest}, the replay gives {ours}",
                        item.seq + 1
                    ),
                ));
            }
        }
    }
    Replayed {
        effects: Ok(format!("{} entries replay to the same effects", log.items.len())),
        digests: settled(wrong_digest, digests),
    }
}

fn settled(wrong: Option<Finding>, digests: u64) -> Result<String, Finding> {
    match wrong {
        Some(finding) => Err(finding),
        None => Ok(format!("{digests} State digests are those of the replay")),
    }
}

fn apply(state: &mut State, item: &Item) -> Result<(), Finding> {
    let stamp = Stamp { seq: item.seq, at_ms: item.entry.at_ms, fence: item.entry.fence };
    let outcome = step(state, &stamp, &item.input);
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
