//! State before a piece of a log, as the authority signed its digest. With it a piece can be judged that is short.

use selion_api::Account;
use selion_api::agent::SignedHead;
use selion_api::rest::LoggedEntry;
use selion_log::root_before;
use selion_market::State;
use serde::{Deserialize, Serialize};

use super::{Breach, is_signed, item};
use crate::entries::Item;
use crate::evidence::NoEvidence;
use crate::replay::apply;

/// State of the market after the entries of a head.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Before {
    /// A head over all entries before the first.
    pub head: SignedHead,
    /// Canonical bytes of State, in hex. Their SHA-256 is the head's digest.
    pub state: String,
}

impl Before {
    /// State at the newest head of the epoch of `last` before it up to which the log keeps the rules; `None` if that head does
    /// not have the digest of that State, or if there is no such head.
    pub(super) fn of(published: &[LoggedEntry], last: &Item) -> Result<Option<Self>, NoEvidence> {
        let (_, kept) = replayed(published, last.seq)?;
        let fits =
            |head: &SignedHead| head.head.fence.epoch == last.entry.fence.epoch && (1..=kept).contains(&head.head.size);
        let newest = published.iter().filter_map(|logged| logged.head).filter(fits).max_by_key(|head| head.head.size);
        let Some(head) = newest else { return Ok(None) };
        let (state, _) = replayed(published, head.head.size)?;
        let bytes = borsh::to_vec(&state).unwrap_or_default();
        Ok((state.digest() == head.head.digest).then(|| Self { head, state: hex::encode(bytes) }))
    }

    /// The State, if it is the one before the first entry of that file in the log that the authority signed.
    pub(super) fn read(&self, file: &Breach, authority: Account) -> Result<State, String> {
        let head = &self.head.head;
        is_signed(&file.pool, &self.head, authority)?;
        if head.size != file.first || root_before(file.first, &file.beside) != Some(head.root) {
            return Err(format!("its head of {} entries is not over those before entry {}", head.size, file.first));
        }
        let bytes = hex::decode(&self.state).map_err(|error| format!("its State is not hex: {error}"))?;
        let state: State = borsh::from_slice(&bytes).map_err(|error| format!("its State does not decode: {error}"))?;
        if state.digest() != head.digest || state.next_seq != file.first {
            return Err(format!("its State is not the one under the head of {} entries", head.size));
        }
        Ok(state)
    }
}

/// State after so many entries, and how many of them are as the rules give them; it ends at the first that is not.
fn replayed(published: &[LoggedEntry], entries: u64) -> Result<(State, u64), NoEvidence> {
    let mut state = State::new();
    for logged in published.iter().take_while(|logged| logged.seq < entries) {
        let item = item(logged.seq, &logged.entry, &logged.effects).map_err(|_| NoEvidence::Damaged(logged.seq))?;
        if apply(&mut state, &item, true).is_err() {
            return Ok((state, item.seq));
        }
    }
    Ok((state, entries))
}
