//! The books of the checker, and what an input says to them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use selion_api::agent::{Fence, MemberEvent, Report};
use selion_api::lease::LeaseState;
use selion_api::said::{SAID_WITHIN_MS, Said};
use selion_api::{Account, Address, LeaseId, MemberWant, TimeMs};
use selion_market::input::RULES;
use selion_market::{Effect, Input, Policy, Stamp};

use crate::effects::Entry;
use crate::finding::{Finding, Rule, Verdict, within};
use crate::fleet::{Fleet, Run};
use crate::leases::Lease;
use crate::licences::Licences;
use crate::limits::Limits;
use crate::line::Line;
use crate::money::Money;
use crate::uses::Uses;

/// Checks the entries of one log, in order, from the first on.
#[derive(Clone, Default)]
pub struct Checker {
    /// True once the log said that it is under rules that this release knows.
    known: bool,
    fence: Fence,
    pub(crate) delegate: Address,
    block: Option<u64>,
    pub(crate) chain_broken: bool,
    pub(crate) now: TimeMs,
    pub(crate) policy: Policy,
    pub(crate) fleet: Fleet,
    pub(crate) leases: BTreeMap<LeaseId, Lease>,
    /// Active leases with members that were lost.
    pub(crate) broken: BTreeSet<LeaseId>,
    pub(crate) line: Line,
    pub(crate) licences: Licences,
    pub(crate) limits: Limits,
    pub(crate) money: Money,
    pub(crate) uses: Uses,
    /// For whom room is kept, and for when.
    pub(crate) booked: Option<(LeaseId, TimeMs)>,
}

impl Checker {
    /// Before the first entry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Checks one entry: what does not hold of its effects, in their order. Empty if all is well. The books follow the
    /// log also where it is wrong, so that one lie is not told of every later entry.
    pub fn check(&mut self, stamp: &Stamp, input: &Input, effects: &[Effect]) -> Vec<Finding> {
        let refused = effects.iter().any(|effect| matches!(effect, Effect::Refused(_)));
        if !self.may_enter(stamp, input) {
            let honest = refused && effects.len() == 1;
            let have = effects.len() as u64;
            let told = Finding { entry: stamp.seq, effect: None, rule: Rule::Refusal, lease: None, need: 1, have };
            return if honest { Vec::new() } else { alloc::vec![told] };
        }
        self.now = self.now.max(stamp.at_ms);
        self.fleet.now = self.now;
        self.limits.pass_to(self.now);
        self.fold(stamp, input, refused);
        Entry::new(self, stamp.seq, input).check(effects)
    }

    /// What a member of a lease asked for, if the log created such a lease.
    #[must_use]
    pub fn want(&self, lease: LeaseId, member: u16) -> Option<&MemberWant> {
        self.leases.get(&lease)?.request.members.get(usize::from(member))
    }

    /// What is held now: lease, run and rank.
    pub fn held(&self) -> impl Iterator<Item = (LeaseId, u32, u16)> {
        self.fleet.standing.keys().copied()
    }

    fn may_enter(&self, stamp: &Stamp, input: &Input) -> bool {
        match input {
            Input::Rules { version, .. } => *version == RULES,
            _ => self.known && stamp.fence >= self.fence,
        }
    }

    fn fold(&mut self, stamp: &Stamp, input: &Input, refused: bool) {
        if let Input::Report(signed) = input {
            self.fleet.numbered(signed.report.node, signed.report.seq);
        }
        match input {
            Input::Rules { .. } => self.known = true,
            Input::Opened { delegate, policy } => {
                self.fence = stamp.fence;
                self.policy = policy.clone();
                // Agents get their full time again; what is active goes on to its own end.
                for lease in self.leases.values_mut().filter(|lease| lease.state != LeaseState::Active) {
                    lease.until = self.now.plus(lease.lasts_ms(policy));
                }
                if self.delegate != *delegate {
                    self.delegate = *delegate;
                    self.money.forget_keys();
                }
            }
            Input::Block(block) if self.block.is_none_or(|last| block.number > last) => {
                self.block = Some(block.number);
                for event in &block.events {
                    self.fleet.fold(event);
                    self.money.fold(event, self.delegate);
                    self.licences.fold(event);
                }
            }
            Input::ChainBroken { .. } => self.chain_broken = true,
            Input::SetPaused { provider, node, paused, said } if self.counts(said) => {
                self.fleet.paused(*provider, *node, *paused);
            }
            Input::Reclaim { provider, node, gpu, notice_ms, said } if self.counts(said) => {
                self.fleet.reclaim(*provider, *node, *gpu, self.now.plus(*notice_ms));
            }
            // A spec that cannot be reasoned about is refused.
            Input::Linked(signed) if !refused => self.fleet.linked(&signed.hello.spec, signed.hello.last_seq),
            Input::Measured { node, rtt_us } if !refused => self.fleet.measured(*node, *rtt_us),
            Input::Lost { node, .. } => self.fleet.lost(*node),
            Input::Report(signed) if !refused => self.heard(&signed.report),
            _ => {}
        }
    }

    /// Whether a word counts now: one that was signed for another time does not.
    pub(crate) fn counts(&self, said: &Option<Said>) -> bool {
        said.is_none_or(|Said { said_ms, .. }| {
            let (first, last) = (said_ms.0.saturating_sub(SAID_WITHIN_MS), said_ms.0.saturating_add(SAID_WITHIN_MS));
            (first..=last).contains(&self.now.0)
        })
    }

    fn heard(&mut self, report: &Report) {
        let run = run_of(report);
        if self.fleet.standing.get(&run) != Some(&report.node) {
            return;
        }
        let Some(lease) = self.leases.get_mut(&report.lease).filter(|lease| lease.runs(run)) else {
            return;
        };
        if report.event == MemberEvent::Ready {
            self.fleet.staged(report.node, &lease.request.datasets);
        }
        let since = lease.parts.get(usize::from(report.member)).and_then(|part| part.since);
        let most_ms = lease.billable_ms(since, self.now, &self.policy);
        if let Some(part) = lease.parts.get_mut(usize::from(report.member)) {
            part.metered_ms = part.metered_ms.max(report.metered_ms);
            part.used_ms = part.used_ms.max(report.metered_ms.min(most_ms));
        }
    }

    /// True while nothing may be granted.
    pub(crate) fn halted(&self) -> bool {
        let passed_on = self.fleet.terms.as_ref().is_some_and(|terms| terms.epoch != self.fence.epoch);
        self.chain_broken || passed_on
    }

    /// Whether what an account used without a bill is within its deposit.
    pub(crate) fn is_within_free_use(&self, renter: Account) -> Verdict {
        within(Rule::FreeUse, self.uses.of(renter, self.now), self.money.means(renter))
    }

    /// The latest time at which a lease of so long, granted now, can still be running.
    pub(crate) fn latest_end(&self, duration_ms: u64) -> TimeMs {
        let Policy { hold_ms, prepare_ms, start_ms, ending_ms, .. } = self.policy;
        [hold_ms, prepare_ms, start_ms, duration_ms, ending_ms].into_iter().fold(self.now, TimeMs::plus)
    }
}

/// The member that a report is about.
pub(crate) fn run_of(report: &Report) -> Run {
    (report.lease, report.attempt, report.member)
}
