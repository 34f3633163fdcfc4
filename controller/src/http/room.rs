//! Room for what is open at a time: requests, or bytes on their way. It is bounded in all and for each caller, and a
//! part is kept free for those who have something in the pool, so that strangers together cannot take everything.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body::Body as _;
use selion_api::Account;
use selion_market::Pocket;

use super::Problem;
use super::caller::{Caller, Subject};
use crate::App;
use crate::held::Held;

/// Answers up to so many bytes are not counted: they fit what a connection may buffer anyway.
const SMALL: usize = 64 << 10;

/// How much may be taken at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caps {
    /// By all together.
    pub all: usize,
    /// By all strangers together.
    pub strangers: usize,
    /// By one caller that is known.
    pub one: usize,
    /// By one stranger.
    pub one_stranger: usize,
}

/// Why nothing could be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// The caller has its part.
    Caller,
    /// All together have theirs.
    All,
}

/// What is taken of something that is bounded.
pub(super) struct Room {
    caps: Caps,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    strangers: usize,
    each: HashMap<Subject, usize>,
}

impl Room {
    pub fn new(caps: Caps) -> Arc<Self> {
        Arc::new(Self { caps, taken: Mutex::default() })
    }

    /// Takes `amount` for `subject`, until the place is dropped.
    pub fn take(self: &Arc<Self>, subject: Subject, known: bool, amount: usize) -> Result<Place, Full> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let Caps { all, strangers, one, one_stranger } = self.caps;
        let own = taken.each.get(&subject).copied().unwrap_or_default();
        // Somebody without anything may still take one thing that is larger than its part.
        if own > 0 && own.saturating_add(amount) > if known { one } else { one_stranger } {
            return Err(Full::Caller);
        }
        let crowded = !known && taken.strangers > 0 && taken.strangers.saturating_add(amount) > strangers;
        if crowded || taken.all > 0 && taken.all.saturating_add(amount) > all {
            return Err(Full::All);
        }
        taken.all += amount;
        taken.strangers += if known { 0 } else { amount };
        *taken.each.entry(subject).or_default() += amount;
        Ok(Place { room: self.clone(), subject, known, amount })
    }
}

/// What a caller took; given back when it is dropped.
pub(super) struct Place {
    room: Arc<Room>,
    subject: Subject,
    known: bool,
    amount: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.room.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.all -= self.amount;
        taken.strangers -= if self.known { 0 } else { self.amount };
        if let Some(own) = taken.each.get_mut(&self.subject) {
            *own -= self.amount;
            if *own == 0 {
                taken.each.remove(&self.subject);
            }
        }
    }
}

/// The rooms of some routes.
#[derive(Clone)]
pub(super) struct Rooms {
    pub app: App,
    /// Requests that are open: an answer counts until it was sent.
    pub requests: Arc<Room>,
    /// Bytes of answers that were made and not sent yet.
    pub bytes: Arc<Room>,
}

/// Middleware: lets a request in while there is room, and holds its place until the answer was sent. Goes inside
/// `identify`.
pub(super) async fn enter(State(rooms): State<Rooms>, request: Request, next: Next) -> Response {
    let subject = request.extensions().get::<Subject>().copied().unwrap_or(Subject::Peer(None));
    let known = is_known(&rooms.app, subject);
    let place = match rooms.requests.take(subject, known, 1) {
        Ok(place) => place,
        Err(full) => return Problem::from(full).into_response(),
    };
    let response = next.run(request).await;
    // What is streamed has no size: it is made as it is sent.
    let bytes = response.body().size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    match bytes.filter(|bytes| *bytes > SMALL).map(|bytes| rooms.bytes.take(subject, known, bytes)).transpose() {
        Ok(bytes) => response.map(|body| Held::body(body, (place, bytes))),
        Err(full) => Problem::from(full).into_response(),
    }
}

/// Whether the caller has something to lose here: a deposit, a stake, or the pool itself.
fn is_known(app: &App, subject: Subject) -> bool {
    match subject {
        Subject::Renter(account) => app.is_operator(account) || app.log.read(|state| has_money(state, account)),
        Subject::Node(_) => true,
        Subject::Peer(_) => false,
    }
}

fn has_money(state: &selion_market::State, account: Account) -> bool {
    let holds = |pocket| state.ledger.holds(pocket).0 > 0;
    state.providers.contains_key(&account) || holds(Pocket::Free(account)) || holds(Pocket::Reserved(account))
}

impl From<Full> for Problem {
    fn from(full: Full) -> Self {
        match full {
            Full::Caller => Self::TooManyOpen,
            Full::All => Self::Overloaded,
        }
    }
}

/// Callers as [`Subject`]s see them.
impl From<Caller> for Subject {
    fn from(caller: Caller) -> Self {
        match caller {
            Caller::Renter(account) => Self::Renter(account),
            Caller::Node(node) => Self::Node(node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPS: Caps = Caps { all: 10, strangers: 5, one: 4, one_stranger: 2 };

    fn renter(number: u8) -> Subject {
        Subject::Renter(Account([number; 20]))
    }

    #[test]
    fn nobody_takes_more_than_his_part_and_strangers_leave_room_for_those_with_a_deposit() {
        let room = Room::new(CAPS);
        let take = |number, known| room.take(renter(number), known, 1);
        let mut held: Vec<Place> = Vec::new();
        for number in [1, 1, 2, 2, 3] {
            held.push(take(number, false).unwrap());
        }
        assert_eq!(take(1, false).err(), Some(Full::Caller));
        assert_eq!(take(3, false).err(), Some(Full::All), "strangers have their part");
        for _ in 0..4 {
            held.push(take(9, true).unwrap());
        }
        assert_eq!(take(9, true).err(), Some(Full::Caller));
        held.push(take(8, true).unwrap());
        assert_eq!(take(8, true).err(), Some(Full::All));
        held.clear();
        assert!(take(1, false).is_ok() && room.taken.lock().unwrap().each.is_empty(), "all was given back");
    }

    #[test]
    fn one_thing_larger_than_the_part_still_passes_alone() {
        let room = Room::new(CAPS);
        let large = room.take(renter(1), false, 20).unwrap();
        assert_eq!(room.take(renter(1), false, 1).err(), Some(Full::Caller));
        drop(large);
        assert!(room.take(renter(1), false, 1).is_ok());
    }
}
