//! Copies of the committed State for long work: few at a time, and one for all who ask at the same entry.

use std::ops::Deref;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use selion_market::State;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Most long works on a copy at a time. Each has a core for itself while it lasts, and a copy is as large as the State.
const AT_ONCE: usize = 2;
/// How long one waits for its turn.
const PATIENCE: Duration = Duration::from_secs(5);

/// A copy of State as of some entry. While it is held, one less may be out.
pub struct StateCopy {
    state: Arc<State>,
    _turn: OwnedSemaphorePermit,
}

impl Deref for StateCopy {
    type Target = State;
    fn deref(&self) -> &State {
        &self.state
    }
}

/// What is out.
#[derive(Clone)]
pub(super) struct Copies {
    turns: Arc<Semaphore>,
    last: Arc<Mutex<Weak<State>>>,
}

impl Copies {
    pub(super) fn new() -> Self {
        Self { turns: Arc::new(Semaphore::new(AT_ONCE)), last: Arc::new(Mutex::new(Weak::new())) }
    }

    /// Waits for a turn; `None` if it does not come soon.
    pub(super) async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(PATIENCE, self.turns.clone().acquire_owned()).await.ok()?.ok()
    }

    /// A turn that is free now.
    pub(super) fn turn_now(&self) -> Option<OwnedSemaphorePermit> {
        self.turns.clone().try_acquire_owned().ok()
    }

    /// The copy that is out if it is as new as `state`, else a new one.
    pub(super) fn of(&self, state: &State, turn: OwnedSemaphorePermit) -> StateCopy {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let known = last.upgrade().filter(|known| known.next_seq == state.next_seq);
        let state = known.unwrap_or_else(|| Arc::new(state.clone()));
        *last = Arc::downgrade(&state);
        StateCopy { state, _turn: turn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn few_copies_are_out_at_a_time_and_those_of_one_entry_are_one() {
        let (copies, state) = (Copies::new(), State::new());
        let first = copies.of(&state, copies.turn_now().unwrap());
        let second = copies.of(&state, copies.turn().await.unwrap());
        assert!(Arc::ptr_eq(&first.state, &second.state));
        assert!(copies.turn_now().is_none(), "all are out");
        drop(first);
        let newer = State { next_seq: 7, ..State::new() };
        let third = copies.of(&newer, copies.turn_now().unwrap());
        assert!(!Arc::ptr_eq(&third.state, &second.state) && third.next_seq == 7);
    }
}
