//! A pool whose agents do all that they are told, each a little later than told, and what it promised on the way.

use std::collections::BTreeMap;

use selion_api::agent::MemberEvent;
use selion_api::lease::LeaseState;
use selion_api::{LeaseId, LeaseRequest, Reason, TimeMs};
use selion_market::{Input, State};

use crate::pool::{Pool, TOKEN, a100, renter, spec};

/// Money for everything.
const RICH: u64 = 1_000_000_000 * TOKEN;

pub struct Honest {
    pub pool: Pool,
    /// How long agents take for a step, as a part of what they may take, in permille; drawn anew for each step.
    slowness: u64,
    /// How much of its duration a command leaves unused at most, in permille; drawn anew for each lease.
    haste: u64,
    classes: bool,
    /// The booked time that a waiting lease was told last, and when it was first booked.
    pub promised: BTreeMap<LeaseId, (TimeMs, TimeMs)>,
    /// When each lease first became held.
    pub held_at: BTreeMap<LeaseId, TimeMs>,
}

/// A number below `below`, the same for the same question.
fn draw(id: LeaseId, salt: u64, below: u64) -> u64 {
    let mut mixed = id.seq.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt.wrapping_mul(0xd1b5_4a32_d192_ed03);
    mixed ^= mixed >> 29;
    mixed = mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^= mixed >> 32;
    mixed % below.max(1)
}

impl Honest {
    /// Nodes with so many A100 each, and three rich renters. Agents answer at once and commands run their full time.
    pub fn fleet(gpus: &[u8]) -> Self {
        let mut pool = Pool::new();
        for (node, gpus) in (1..).zip(gpus) {
            pool.node(spec(node, (0..*gpus).map(|rank| a100(node, rank)).collect()));
        }
        for one in 1..4 {
            pool.fund(renter(one), RICH);
        }
        Self { pool, slowness: 0, haste: 0, classes: false, promised: BTreeMap::new(), held_at: BTreeMap::new() }
    }

    /// Leases of different classes come: a higher one may take a booking over, which then promises nothing.
    pub fn classes(mut self) -> Self {
        self.classes = true;
        self
    }

    pub fn slow(mut self, slowness: u64, haste: u64) -> Self {
        (self.slowness, self.haste) = (slowness, haste);
        self
    }

    pub fn lease(&mut self, request: LeaseRequest) -> LeaseId {
        let id = self.pool.lease(request);
        self.note();
        self.after(0);
        id
    }

    pub fn state(&self) -> &State {
        &self.pool.state
    }

    /// What an agent says next of a member, and when.
    fn next_word(&self) -> Option<(TimeMs, LeaseId, u16)> {
        let policy = &self.state().policy;
        let mut words = Vec::new();
        for (id, lease) in &self.state().leases {
            let most = match lease.state {
                LeaseState::Held => policy.hold_ms,
                LeaseState::Preparing => policy.prepare_ms,
                LeaseState::Starting => policy.start_ms,
                LeaseState::Ending => policy.ending_ms,
                LeaseState::Active => lease.request.duration_ms,
                LeaseState::Waiting | LeaseState::Ended => continue,
            };
            let step = lease.state as u64 * 100 + u64::from(lease.attempt);
            for (rank, member) in (0..).zip(&lease.members) {
                let after = if lease.state == LeaseState::Active {
                    most * (1000 - draw(*id, 7, self.haste + 1)) / 1000
                } else {
                    // Always before the deadline.
                    (most * draw(*id, step * 64 + u64::from(rank), self.slowness) / 1000).min(most.saturating_sub(1))
                };
                let due = match lease.state {
                    LeaseState::Held => 1,
                    LeaseState::Preparing => 2,
                    LeaseState::Starting => 3,
                    _ => 4,
                };
                if (member.progress as u8) < due && (lease.state != LeaseState::Active || after < most) {
                    words.push((lease.since.plus(after), *id, rank));
                }
            }
        }
        words.into_iter().min()
    }

    fn say(&mut self, id: LeaseId, rank: u16) {
        let event = match self.pool.state_of(id) {
            LeaseState::Held => MemberEvent::Accepted,
            LeaseState::Preparing => MemberEvent::Ready,
            LeaseState::Starting => MemberEvent::Running,
            LeaseState::Active => MemberEvent::Exited { code: 0, outputs: None },
            _ => MemberEvent::Stopped { outputs: None },
        };
        self.pool.report(id, rank, event, 0);
        self.note();
    }

    /// Lets time pass up to `end`: whatever is due happens at its time.
    pub fn until(&mut self, end: TimeMs) {
        loop {
            let word = self.next_word().filter(|(at, ..)| *at <= end);
            let tick = self.state().next_deadline().filter(|at| *at <= end);
            match (word, tick) {
                (Some((at, id, rank)), tick) if tick.is_none_or(|tick| at < tick) => {
                    self.pool.now = self.pool.now.max(at.0);
                    self.say(id, rank);
                }
                (_, Some(at)) => {
                    self.pool.now = self.pool.now.max(at.0);
                    let more = self.pool.enter(Input::Tick).more;
                    let next = self.state().next_deadline();
                    assert!(more || next.is_none_or(|next| next.0 > self.pool.now), "a tick is for something");
                    self.note();
                }
                _ => break,
            }
        }
        self.pool.now = self.pool.now.max(end.0);
    }

    pub fn after(&mut self, ms: u64) {
        self.until(TimeMs(self.pool.now).plus(ms));
    }

    /// Until nothing is due any more.
    pub fn finish(&mut self) {
        self.until(TimeMs(u64::MAX / 4));
    }

    /// Looks at what was promised: a booked time only comes nearer, and who was booked starts by then.
    fn note(&mut self) {
        let state = &self.pool.state;
        if self.classes {
            let started = state.leases.iter().filter(|(_, lease)| lease.attempt > 0);
            for (id, lease) in started {
                self.held_at.entry(*id).or_insert(lease.since);
            }
            return;
        }
        if let Some(booking) = &state.booking {
            let (told, since) = self.promised.get(&booking.lease).copied().unwrap_or((booking.at, state.now));
            assert!(booking.at <= told, "a booked time was put off: {told:?}, then {booking:?}");
            self.promised.insert(booking.lease, (booking.at, since));
        }
        for (id, lease) in &state.leases {
            if lease.attempt > 0 && !self.held_at.contains_key(id) {
                self.held_at.insert(*id, lease.since);
                if let Some((told, _)) = self.promised.get(id) {
                    assert!(lease.since <= *told, "{id} was booked for {told:?} and started at {:?}", lease.since);
                }
            }
            let late =
                lease.state == LeaseState::Waiting && self.promised.get(id).is_some_and(|(at, _)| *at < state.now);
            assert!(!late, "{id} waits past its booked time");
            assert!(lease.reason != Some(Reason::PrepareTimeout), "honest agents are in time");
        }
    }
}
