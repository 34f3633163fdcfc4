//! Modelled agents and renters: what a lease will do once it is granted, and the reports that say so.

use selion_api::agent::{MemberEvent, Report, SignedReport};
use selion_api::lease::LeaseState;
use selion_api::{LeaseId, Signature, TimeMs};
use selion_market::state::Progress;
use selion_market::{Input, Lease};

use super::World;

/// How a run comes to its end by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// The command of every member ends with this code.
    Exits(i32),
    /// The renter gives the lease back.
    Released,
}

/// What a lease will do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// From the grant until every member is ready, in milliseconds.
    pub prepare_ms: u64,
    /// How long the command runs in all, in milliseconds; [`Work::ALL`]: until its time is up.
    pub run_ms: u64,
    /// From the order to stop until the slices are free, in milliseconds.
    pub stop_ms: u64,
    /// How it ends.
    pub ends: Ends,
    /// Whether a run that was cut short is gone on with (from a checkpoint) or begun anew.
    pub resumes: bool,
}

impl Work {
    /// Runs for all the time that the lease asked for.
    pub const ALL: u64 = u64::MAX;

    /// Ready at once, runs for `run_ms`, exits with 0, stops at once, goes on after an interruption.
    #[must_use]
    pub fn plain(run_ms: u64) -> Self {
        Self { prepare_ms: 0, run_ms, stop_ms: 0, ends: Ends::Exits(0), resumes: true }
    }
}

/// A lease's work, and how much of it is done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    work: Work,
    done_ms: u64,
    active_since: Option<TimeMs>,
    /// The last state and attempt that the agents acted on.
    seen: Option<(LeaseState, u32)>,
}

impl Run {
    /// Notes that the lease moved to `to`.
    pub(super) fn note(&mut self, to: LeaseState, now: TimeMs) {
        if to == LeaseState::Active {
            self.active_since = Some(now);
        } else if let Some(since) = self.active_since.take().filter(|_| self.work.resumes) {
            self.done_ms = self.done_ms.saturating_add(now.since(since));
        }
    }
}

/// Something planned.
#[derive(Clone, Copy, Debug)]
pub(super) struct Due {
    lease: LeaseId,
    attempt: u32,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    /// Every member is ready.
    Ready,
    /// The work is done.
    End,
    /// Members that were told to stop have stopped.
    Stopped,
}

impl World {
    /// Says what a lease will do from where it stands now. Its agents act on it at once.
    pub fn adopt(&mut self, id: LeaseId, work: Work) {
        let Some(lease) = self.state.leases.get(&id) else {
            return;
        };
        let (state, attempt, active_since) = (lease.state, lease.attempt, lease.active_since);
        let since = active_since.unwrap_or(lease.since);
        let mut run = Run { work, done_ms: 0, active_since, seen: None };
        match state {
            // What began before is not begun again.
            LeaseState::Preparing => self.plan(since.plus(work.prepare_ms), id, attempt, What::Ready),
            LeaseState::Active => self.plan_end(since, work.run_ms, id, attempt),
            _ => self.moved.push_back(id),
        }
        if matches!(state, LeaseState::Preparing | LeaseState::Active) {
            run.seen = Some((state, attempt));
        }
        self.runs.insert(id, run);
    }

    /// Plans the end after so much more work; the lease's own deadline ends what runs for all its time.
    fn plan_end(&mut self, since: TimeMs, left_ms: u64, id: LeaseId, attempt: u32) {
        if left_ms != Work::ALL {
            self.plan(since.plus(left_ms), id, attempt, What::End);
        }
    }

    fn plan(&mut self, at: TimeMs, lease: LeaseId, attempt: u32, what: What) {
        self.planned += 1;
        self.agenda.insert((at.max(self.now), self.planned), Due { lease, attempt, what });
    }

    /// Does what was planned, if it still means something.
    pub(super) fn act(&mut self, key: (TimeMs, u64)) {
        let Some(Due { lease: id, attempt, what }) = self.agenda.remove(&key) else {
            return;
        };
        let Some(lease) = self.state.leases.get(&id).filter(|lease| lease.attempt == attempt) else {
            return;
        };
        match (what, lease.state) {
            (What::Ready, LeaseState::Preparing) => self.all(id, Progress::Ready, &MemberEvent::Ready),
            (What::End, LeaseState::Active) => self.end(id),
            (What::Stopped, LeaseState::Ending) => {
                self.all(id, Progress::Gone, &MemberEvent::Stopped { outputs: None });
            }
            _ => {}
        }
    }

    /// The work is done.
    fn end(&mut self, id: LeaseId) {
        let Some(run) = self.runs.get(&id).copied() else {
            return;
        };
        match run.work.ends {
            Ends::Exits(code) => self.all(id, Progress::Gone, &MemberEvent::Exited { code, outputs: None }),
            Ends::Released => {
                if let Some(renter) = self.state.leases.get(&id).map(|lease| lease.request.renter) {
                    self.enter(Input::Release { renter, lease: id, said: None });
                }
            }
        }
    }

    /// Agents act on the state that a lease has reached.
    pub(super) fn react(&mut self, id: LeaseId) {
        let Some(lease) = self.state.leases.get(&id) else {
            self.runs.remove(&id);
            return;
        };
        let (state, attempt) = (lease.state, lease.attempt);
        let Some(run) = self.runs.get_mut(&id).filter(|run| run.seen != Some((state, attempt))) else {
            return;
        };
        run.seen = Some((state, attempt));
        let run = *run;
        match state {
            LeaseState::Held => self.all(id, Progress::Accepted, &MemberEvent::Accepted),
            LeaseState::Preparing if run.work.prepare_ms == 0 => self.all(id, Progress::Ready, &MemberEvent::Ready),
            LeaseState::Preparing => self.plan(self.now.plus(run.work.prepare_ms), id, attempt, What::Ready),
            LeaseState::Starting => self.all(id, Progress::Running, &MemberEvent::Running),
            LeaseState::Active => {
                let left_ms = match run.work.run_ms {
                    Work::ALL => Work::ALL,
                    run_ms => run_ms.saturating_sub(run.done_ms),
                };
                self.plan_end(self.now, left_ms, id, attempt);
            }
            LeaseState::Ending => {
                if run.work.stop_ms == 0 {
                    self.all(id, Progress::Gone, &MemberEvent::Stopped { outputs: None });
                } else {
                    self.plan(self.now.plus(run.work.stop_ms), id, attempt, What::Stopped);
                }
            }
            LeaseState::Waiting => {}
            LeaseState::Ended => {
                self.runs.remove(&id);
            }
        }
    }

    /// Every member that is not as far as `to` says so.
    fn all(&mut self, id: LeaseId, to: Progress, event: &MemberEvent) {
        let ranks = self.state.leases.get(&id).map_or(0, |lease| lease.members.len());
        for rank in 0..u16::try_from(ranks).unwrap_or(u16::MAX) {
            let Some(report) = self.state.leases.get(&id).and_then(|lease| self.report(id, lease, rank, to, event))
            else {
                continue;
            };
            self.enter(Input::Report(SignedReport { report, signature: Signature::ZERO }));
        }
    }

    fn report(&self, id: LeaseId, lease: &Lease, rank: u16, to: Progress, event: &MemberEvent) -> Option<Report> {
        let member = lease.members.get(usize::from(rank)).filter(|member| member.progress < to)?;
        let node = self.state.nodes.get(&member.node).filter(|node| node.linked)?;
        let ran_ms = lease.active_since.map_or(0, |since| self.now.since(since));
        Some(Report {
            node: member.node,
            provider: member.provider,
            seq: node.last_seq.saturating_add(1),
            fence: self.state.fence,
            lease: id,
            attempt: member.attempt,
            member: rank,
            gpus: member.gpus.clone(),
            slot: member.slot.clone(),
            event: event.clone(),
            metered_ms: ran_ms.max(member.billable_ms),
        })
    }
}
