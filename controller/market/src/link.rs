//! What nodes say: that they are there, what became of a member; and what is said of them.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use selion_api::agent::{MemberEvent, Report};
use selion_api::lease::{LeaseState, Refusal};
use selion_api::{Account, LeaseId, NodeId, NodeSpec, Reason};

use crate::effect::{Answer, Effect};
use crate::fleet;
use crate::lease::is_running;
use crate::staged::Staged;
use crate::state::{Held, Member, Node, Progress, State};
use crate::step::{Step, Wake};

/// A command that ran for less than this when its agent ended has failed; one that ran longer is lost with the agent, and runs
/// again where that was asked for. An agent that lies so wins no more runs in a time than one that comes and goes.
pub const INTERRUPTED_MS: u64 = 10_000;

/// Whether the member was told to start its command.
fn has_begun(state: LeaseState, member: &Member) -> bool {
    let ready = state != LeaseState::Active || member.progress >= Progress::Ready;
    ready && matches!(state, LeaseState::Starting | LeaseState::Active | LeaseState::Ending)
}

impl State {
    /// True if the present run of a live lease has this member, and it is not over.
    fn is_expected(&self, lease: LeaseId, rank: u16, held: &Held) -> bool {
        self.leases.get(&lease).is_some_and(|lease| {
            lease.runs(rank, held.attempt) && (is_running(lease.state) || lease.state == LeaseState::Ending)
        })
    }

    /// Whether a report, its number aside, is one about what the node holds, and can be true of it.
    ///
    /// # Errors
    ///
    /// The reason with which the report would be refused.
    pub fn hears(&self, report: &Report) -> Result<(), Reason> {
        if report.fence > self.fence {
            return Err(Reason::StaleFence);
        }
        if report.fence.epoch != self.fence.epoch {
            return Err(Reason::StaleReport);
        }
        let (id, rank) = (report.lease, report.member);
        let lease = self.leases.get(&id);
        let member = lease.and_then(|lease| lease.members.get(usize::from(rank)));
        // Whose stake answers for the word: the owner's, or of a node that changed hands meanwhile, the one's who was asked.
        let owner = self.nodes.get(&report.node).and_then(|node| node.provider);
        let answers = |provider: Account| provider == report.provider;
        if !owner.is_none_or(answers) && !member.is_some_and(|member| answers(member.provider)) {
            return Err(Reason::NotAssigned);
        }
        let Some(held) = self.nodes.get(&report.node).and_then(|node| node.held.get(&(id, rank))) else {
            let was_here = member.is_some_and(|member| member.node == report.node);
            let older = lease.is_some_and(|lease| report.attempt < lease.attempt);
            return Err(if was_here || older { Reason::StaleReport } else { Reason::NotAssigned });
        };
        if held.attempt != report.attempt {
            return Err(Reason::StaleReport);
        }
        if held.gpus != report.gpus || held.slot != report.slot {
            return Err(Reason::NotAssigned);
        }
        let is_last = report.event.is_last();
        match (lease, member) {
            (Some(lease), Some(member)) if self.is_expected(id, rank, held) => {
                let told = has_begun(lease.state, member);
                if report.event == MemberEvent::Running && !told { Err(Reason::NotAssigned) } else { Ok(()) }
            }
            _ if is_last => Ok(()),
            _ => Err(Reason::StaleReport),
        }
    }

    /// Whether State has what the report says of a member's progress. A reading of the meter, or an end, is always news.
    #[must_use]
    pub fn knows(&self, report: &Report) -> bool {
        let lease = self.leases.get(&report.lease);
        let member = lease.and_then(|lease| lease.members.get(usize::from(report.member)));
        let least = match report.event {
            MemberEvent::Accepted => Progress::Accepted,
            MemberEvent::Ready => Progress::Ready,
            MemberEvent::Running => Progress::Running,
            _ => return false,
        };
        member.is_some_and(|member| member.attempt == report.attempt && member.progress >= least)
    }

    /// Whether State has the node's link as up with just this spec, and a new link of it would change nothing.
    #[must_use]
    pub fn has_link(&self, spec: &NodeSpec, last_seq: u64) -> bool {
        self.nodes.get(&spec.node).is_some_and(|node| {
            node.linked
                && node.spec.as_ref() == Some(spec)
                && last_seq >= node.last_seq
                && node.held.iter().all(|((lease, rank), held)| self.is_expected(*lease, *rank, held))
        })
    }
}

impl Step<'_> {
    /// A node changed, or is about to.
    pub(crate) fn touch(&mut self, id: NodeId) {
        self.touched.nodes.insert(id);
        self.state.finder.mark(id);
    }

    /// The node, made if chain and link had not named it yet.
    pub(crate) fn node_entry(&mut self, id: NodeId) -> &mut Node {
        let since = self.at;
        self.touch(id);
        self.state.nodes.entry(id).or_insert_with(|| Node {
            provider: None,
            offer: None,
            spec: None,
            linked: false,
            rtt_us: None,
            since,
            paused: false,
            reclaimed: BTreeMap::new(),
            last_seq: 0,
            blocked: None,
            held: BTreeMap::new(),
            staged: Staged::default(),
        })
    }

    /// Works out again whether a node takes leases.
    pub(crate) fn reblock(&mut self, id: NodeId) {
        let Some(node) = self.state.nodes.get(&id) else {
            return;
        };
        let blocked = fleet::blocked(self.state, node);
        let same = blocked == node.blocked;
        if blocked.is_none() {
            self.state.meet(id);
        }
        if same {
            return;
        }
        if let Some(node) = self.state.nodes.get_mut(&id) {
            node.blocked = blocked;
        }
        self.touch(id);
        self.wake_up(Wake::All);
        self.emit(Effect::NodeChanged { node: id, reason: blocked });
    }

    /// A node's link is up. It applies its desired state before it prepares anything, so what it still held for
    /// runs that are over is free. An agent that made fewer reports than the log has lost its state directory, and the
    /// content store with it.
    pub(crate) fn linked(&mut self, spec: &NodeSpec, last_seq: u64) -> Answer {
        if !fleet::sound(spec) {
            return self.refuse(Refusal::plain(Reason::SpecMismatch));
        }
        let (id, at) = (spec.node, self.at);
        let node = self.node_entry(id);
        node.rtt_us = None; // it was that of another link
        if !node.linked {
            node.linked = true;
            node.since = at;
        }
        if last_seq < node.last_seq {
            self.state.unstage(id);
        }
        self.state.change_node(id, None, |node| node.spec = Some(spec.clone()));
        let over: Vec<(LeaseId, u16, u32)> = self
            .held_on(id)
            .filter(|((lease, rank), held)| !self.state.is_expected(*lease, *rank, held))
            .map(|((lease, rank), held)| (*lease, *rank, held.attempt))
            .collect();
        for (lease, rank, attempt) in over {
            self.free_slot(id, lease, rank, attempt);
        }
        self.touched.desired.insert(id);
        self.wake_up(Wake::All);
        self.reblock(id);
        Answer::Done
    }

    fn held_on(&self, node: NodeId) -> impl Iterator<Item = (&(LeaseId, u16), &Held)> {
        self.state.nodes.get(&node).into_iter().flat_map(|node| &node.held)
    }

    /// A node's link fell silent: what it held is over, billed to the last report in the log.
    pub(crate) fn lost(&mut self, id: NodeId) -> Answer {
        let at = self.at;
        let Some(node) = self.state.nodes.get_mut(&id) else {
            return self.refuse(Refusal::plain(Reason::UnknownNode));
        };
        if !node.linked {
            return Answer::Done;
        }
        node.linked = false;
        node.rtt_us = None;
        node.since = at;
        self.touch(id);
        let held: Vec<(LeaseId, u16, u32)> =
            self.held_on(id).map(|((lease, rank), held)| (*lease, *rank, held.attempt)).collect();
        let mut lost: BTreeMap<LeaseId, BTreeSet<u16>> = BTreeMap::new();
        for (lease, rank, attempt) in held {
            if self.state.leases.get(&lease).is_some_and(|lease| lease.runs(rank, attempt)) {
                lost.entry(lease).or_default().insert(rank);
                self.gone(lease, rank);
            }
            self.free_slot(id, lease, rank, attempt);
        }
        for (lease, ranks) in lost {
            self.lose(lease, &ranks);
        }
        self.reblock(id);
        Answer::Done
    }

    /// The controller measured its link to a node.
    pub(crate) fn measured(&mut self, id: NodeId, rtt_us: u32) -> Answer {
        let Some(node) = self.state.nodes.get_mut(&id) else {
            return self.refuse(Refusal::plain(Reason::UnknownNode));
        };
        if !node.linked {
            return self.refuse(Refusal::plain(Reason::NodeNotSchedulable));
        }
        let before = node.rtt_us.replace(rtt_us);
        self.touched.nodes.insert(id);
        let mut waiting = self.state.waiting.iter().filter_map(|id| self.state.leases.get(id));
        let nearer = before.is_none_or(|before| rtt_us < before);
        if nearer && waiting.any(|lease| lease.request.max_latency_us.is_some()) {
            self.wake_up(Wake::All);
        }
        Answer::Done
    }

    /// A node's statement about a member. A refused one changes nothing, but that one with the next
    /// number is heard.
    pub(crate) fn report(&mut self, report: &Report) -> Answer {
        let refusal = |reason| Refusal { lease: Some(report.lease), ..Refusal::plain(reason) };
        let Some(node) = self.state.nodes.get_mut(&report.node) else {
            return self.refuse(refusal(Reason::UnknownNode));
        };
        // Numbers rise. One that is left out concerned nothing that the node holds: the controller did not enter it.
        if report.seq <= node.last_seq {
            return self.refuse(refusal(Reason::StaleReport));
        }
        node.last_seq = report.seq;
        self.touched.nodes.insert(report.node);
        match self.heard(report) {
            Ok(()) => Answer::Done,
            Err(reason) => self.refuse(refusal(reason)),
        }
    }

    fn heard(&mut self, report: &Report) -> Result<(), Reason> {
        self.state.hears(report)?;
        let (id, rank) = (report.lease, report.member);
        let held = self.state.nodes.get(&report.node).and_then(|node| node.held.get(&(id, rank)));
        if held.is_some_and(|held| !self.state.is_expected(id, rank, held)) {
            // The run ended without this node's word: its slot waited for just this.
            self.free_slot(report.node, id, rank, report.attempt);
            return Ok(());
        }
        self.member_event(report)
    }

    fn member_event(&mut self, report: &Report) -> Result<(), Reason> {
        let (id, rank, at) = (report.lease, report.member, self.at);
        let Some(lease) = self.state.leases.get_mut(&id) else {
            return Err(Reason::StaleReport);
        };
        let (state, repaired) = (lease.state, lease.is_broken_at(rank));
        let Some(member) = lease.members.get(usize::from(rank)) else {
            return Err(Reason::NotAssigned);
        };
        let (cap_ms, time_ms) = (lease.billable_cap_ms(member, at, &self.state.policy), lease.time_of_ms(member));
        let begun = has_begun(state, member);
        let ran = member.since.is_some_and(|since| at.since(since) >= INTERRUPTED_MS);
        let Some(member) = lease.members.get_mut(usize::from(rank)) else {
            return Err(Reason::NotAssigned);
        };
        self.touched.leases.insert(id);
        member.billable_ms = member.billable_ms.max(report.metered_ms.min(cap_ms));
        match &report.event {
            MemberEvent::Accepted => member.progress = member.progress.max(Progress::Accepted),
            MemberEvent::Ready => {
                member.progress = member.progress.max(Progress::Ready);
                self.has_staged(report.node, id);
                if repaired {
                    self.touched.desired.insert(report.node);
                }
            }
            MemberEvent::Running => {
                member.progress = member.progress.max(Progress::Running);
                if repaired {
                    self.joined(id, rank);
                }
            }
            MemberEvent::Metered => {
                let due = at.since(member.vouched_at) >= self.state.policy.voucher_ms;
                if due && state == LeaseState::Active {
                    let paid = self.owe(id, rank);
                    self.vouch();
                    if !paid {
                        self.end(id, Reason::PaymentRequired, false);
                    }
                }
            }
            MemberEvent::Exited { code, outputs } => {
                member.exit_code = Some(*code);
                member.outputs = *outputs;
                self.gone(id, rank);
                if repaired {
                    self.end_lost(id);
                } else if !begun {
                    self.end(id, Reason::RuntimeFailed, false);
                } else if *code != 0 {
                    self.end(id, Reason::CommandFailed, false);
                }
            }
            MemberEvent::Limited { reason, outputs } => {
                member.outputs = *outputs;
                self.gone(id, rank);
                if repaired {
                    self.end_lost(id);
                } else if !begun {
                    self.end(id, Reason::RuntimeFailed, false);
                } else {
                    self.end(id, if reason.is_limit() { *reason } else { Reason::CommandFailed }, false);
                }
            }
            MemberEvent::Stopped { outputs } => {
                member.outputs = *outputs;
                // A place that takes nobody cannot be given to it again, only to be stopped again.
                let node = self.state.nodes.get(&report.node);
                let taken_back = node.is_some_and(|node| node.first_taken_back(&report.gpus).is_some());
                let again = taken_back && self.waits_again(id);
                self.gone(id, rank);
                let time_was_up = state == LeaseState::Active && report.metered_ms >= time_ms;
                if repaired {
                    self.end_lost(id);
                } else if time_was_up {
                    self.end(id, Reason::Expired, false);
                } else {
                    self.end(id, Reason::OwnerReclaimed, again);
                }
            }
            MemberEvent::Failed { reason } => {
                let reason = match reason {
                    Reason::StagingFailed
                    | Reason::SecretsMissing
                    | Reason::SliceFailed
                    | Reason::OwnerReclaimed
                    | Reason::PaymentRequired => *reason,
                    _ => Reason::RuntimeFailed,
                };
                self.gone(id, rank);
                if repaired {
                    self.end_lost(id);
                } else if ran && reason == Reason::RuntimeFailed {
                    // Its agent ended under the command, and was back before the node counted as lost.
                    self.lose(id, &BTreeSet::from([rank]));
                } else {
                    self.end(id, reason, false);
                }
            }
        }
        self.advance(id);
        self.finish_if_gone(id);
        Ok(())
    }
}
