//! One input in, its effects out.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use selion_api::lease::{LeaseState, Refusal};
use selion_api::{Account, Address, LeaseId, Reason, TimeMs};

use crate::chain::is_stale;
use crate::effect::{Answer, Effect, Outcome, Touched};
use crate::input::{Input, Policy, RULES, Stamp};
use crate::state::State;

/// Most deadlines that fire in one step.
const MAX_DEADLINES: usize = 256;
/// Most forgotten leases, and most forgotten answers, in one step: more than one step can make.
const MAX_FORGOTTEN: usize = 64;

/// What a scheduling pass has to look at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wake {
    /// Nothing that it depends on changed.
    None,
    /// Somebody left the line.
    Order,
    /// Only this lease is new.
    One(LeaseId),
    /// Room or money may have come free.
    All,
}

/// A step in progress.
pub(crate) struct Step<'a> {
    pub state: &'a mut State,
    pub seq: u64,
    pub at: TimeMs,
    pub effects: Vec<Effect>,
    pub touched: Touched,
    pub wake: Wake,
    pub more: bool,
    /// Pairs whose total rose in this step, with the use that it covers.
    pub raised: BTreeMap<(Account, Account), TimeMs>,
}

/// Applies one input. Pure and total: the same state, stamp and input give the same outcome, and whatever is wrong
/// with an input is answered with a [`Refusal`]. The work of one step is bounded; where `more` is set,
/// [`Input::Continue`] goes on.
///
/// First what is due by now happens, then the input, then whoever can be served is served. An input under rules that
/// this release does not know, or of a controller that was replaced, leaves the state as it is.
pub fn step(state: &mut State, stamp: &Stamp, input: &Input) -> Outcome {
    if let Some(reason) = not_ours(state, stamp, input) {
        let refusal = Refusal::plain(reason);
        return Outcome {
            effects: alloc::vec![Effect::Refused(refusal.clone())],
            answer: Answer::Refused(refusal),
            touched: Touched::default(),
            more: state.more,
        };
    }
    state.prepare();
    state.next_seq = stamp.seq.saturating_add(1);
    state.now = state.now.max(stamp.at_ms);
    let mut step = Step {
        seq: stamp.seq,
        at: state.now,
        effects: Vec::new(),
        touched: Touched::default(),
        wake: if state.more { Wake::All } else { Wake::None },
        more: false,
        raised: BTreeMap::new(),
        state,
    };
    let answer = if let Input::Opened { delegate, policy } = input {
        // What fell due while no controller ran is not held against anybody: deadlines restart first.
        let answer = step.opened(stamp, *delegate, policy);
        step.fire_deadlines();
        answer
    } else {
        step.fire_deadlines();
        step.forget();
        step.enter_input(input)
    };
    step.pass();
    step.state.more = step.more;
    Outcome { effects: step.effects, answer, touched: step.touched, more: step.more }
}

fn not_ours(state: &State, stamp: &Stamp, input: &Input) -> Option<Reason> {
    match input {
        Input::Rules { version, .. } if *version != RULES => Some(Reason::UnknownVersion),
        Input::Rules { .. } => None,
        _ if state.rules != RULES => Some(Reason::UnknownVersion),
        _ if is_stale(stamp.fence, state.fence) => Some(Reason::StaleFence),
        _ => None,
    }
}

impl Step<'_> {
    pub(crate) fn emit(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(crate) fn refuse(&mut self, refusal: Refusal) -> Answer {
        self.emit(Effect::Refused(refusal.clone()));
        Answer::Refused(refusal)
    }

    /// Asks for a pass at the end of the step. Two different new leases are as good as all.
    pub(crate) fn wake_up(&mut self, wake: Wake) {
        self.wake = match (self.wake, wake) {
            (Wake::One(a), Wake::One(b)) if a != b => Wake::All,
            (old, new) => old.max(new),
        };
    }

    fn enter_input(&mut self, input: &Input) -> Answer {
        // Who signed is for the controller's door and the audit. For when it counts is a rule.
        if input.said().is_some_and(|said| !said.is_near(self.at)) {
            return self.refuse(Refusal::plain(Reason::StaleWord));
        }
        match input {
            Input::Rules { version, .. } => {
                self.state.rules = *version;
                Answer::Done
            }
            Input::Opened { .. } | Input::Tick => Answer::Done,
            Input::Continue => {
                self.wake_up(Wake::All);
                Answer::Done
            }
            Input::Block(block) => self.block(block),
            Input::ChainBroken { .. } => self.chain_broken(),
            Input::Request(asked) => self.request(asked),
            Input::Release { renter, lease, .. } => self.release(*renter, *lease),
            Input::Extend { renter, lease, for_ms, key, .. } => self.extend(*renter, *lease, *for_ms, *key),
            Input::SetPaused { provider, node, paused, .. } => self.set_paused(*provider, *node, *paused),
            Input::Reclaim { provider, node, gpu, notice_ms, .. } => self.reclaim(*provider, *node, *gpu, *notice_ms),
            Input::Linked(hello) => self.linked(&hello.hello.spec, hello.hello.last_seq),
            Input::Lost { node, .. } => self.lost(*node),
            Input::Report(signed) => self.report(&signed.report),
            Input::Measured { node, rtt_us } => self.measured(*node, *rtt_us),
        }
    }

    /// A controller started or took over. Leases that wait for agents get their full time again; what is active
    /// goes on to its own end.
    fn opened(&mut self, stamp: &Stamp, delegate: Address, policy: &Policy) -> Answer {
        self.state.fence = stamp.fence;
        if self.state.delegate != delegate {
            // Grants name a key: those of another one mean nothing now.
            let accounts = core::mem::take(&mut self.state.grants).into_keys();
            self.touched.accounts.extend(accounts);
            self.state.delegate = delegate;
        }
        self.state.tally.set_half_life(self.at, self.state.policy.half_life_ms, policy.half_life_ms);
        let before = core::mem::replace(&mut self.state.policy, policy.clone());
        if before.weighting != policy.weighting {
            self.state.reweigh();
        }
        if before.shadow_permille != policy.shadow_permille {
            self.state.finder.forget();
        }
        let pending: Vec<(LeaseId, u64)> = self
            .state
            .deadlines
            .iter()
            .filter_map(|(_, id)| {
                let lasts_ms = match self.state.leases.get(id)?.state {
                    LeaseState::Held => policy.hold_ms,
                    LeaseState::Preparing => policy.prepare_ms,
                    LeaseState::Starting => policy.start_ms,
                    LeaseState::Ending => policy.ending_ms,
                    LeaseState::Waiting | LeaseState::Active | LeaseState::Ended => return None,
                };
                Some((*id, lasts_ms))
            })
            .collect();
        for (id, lasts_ms) in pending {
            self.state.set_deadline(id, Some(self.at.plus(lasts_ms)));
            self.touched.leases.insert(id);
        }
        let broken: Vec<LeaseId> = self.state.broken.iter().copied().collect();
        for id in broken {
            self.await_repair(id);
        }
        self.state.running.clear();
        let ids: Vec<LeaseId> = self.state.leases.keys().copied().collect();
        for id in ids {
            self.state.note_end(id, None);
        }
        let renters: Vec<Account> = self.state.books.keys().copied().collect();
        for renter in renters {
            self.heed_money(renter);
        }
        self.touched.registry = true;
        self.wake_up(Wake::All);
        Answer::Done
    }

    /// What is due by now happens, in order of time and id.
    pub(crate) fn fire_deadlines(&mut self) {
        for _ in 0..MAX_DEADLINES {
            match self.state.deadlines.first().copied() {
                Some((due, id)) if due <= self.at => {
                    // Whatever becomes of the lease, this deadline is over.
                    self.state.deadlines.remove(&(due, id));
                    self.deadline(id);
                }
                _ => break,
            }
        }
        if self.state.booking.as_ref().is_some_and(|booking| booking.look <= self.at) {
            self.wake_up(Wake::All);
        }
        if self.state.look_again.is_some_and(|look| look <= self.at) {
            self.state.look_again = None;
            self.wake_up(Wake::All);
        }
        self.more |= self.state.deadlines.first().is_some_and(|(due, _)| *due <= self.at);
    }

    fn forget(&mut self) {
        for _ in 0..MAX_FORGOTTEN {
            let Some((due, id)) = self.state.forget.first().copied().filter(|(due, _)| *due <= self.at) else {
                break;
            };
            self.state.forget.remove(&(due, id));
            if let Some(lease) = self.state.leases.remove(&id) {
                self.state.load_of(lease.request.renter, |load| load.leases = load.leases.saturating_sub(1));
            }
        }
        for _ in 0..MAX_FORGOTTEN {
            let Some((due, idem)) = self.state.repeats.first().copied().filter(|(due, _)| *due <= self.at) else {
                break;
            };
            self.state.repeats.remove(&(due, idem));
            self.state.answers.remove(&idem);
        }
    }
}
