//! Reports of one link on their way into the log: one group at a time, so that a group whose commit fails leaves no gap
//! before later ones. What the node has no business to say, or said already, is acknowledged and never enters.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use selion_api::LeaseId;
use selion_api::agent::{MemberEvent, Report, SignedReport};
use selion_market::{Input, State};
use tokio::time::Instant;
use tracing::debug;

use super::core::{Core, read};
use super::counts::Bad;
use crate::sequencer::SubmitError;

/// Reports that wait for the group before them; then the agent has to wait. Of each member one reading of its meter waits
/// at most, so even a long outage of the store does not reach this.
const MAX_WAITING: usize = 4_096;
/// After a commit that failed, a group is tried again this much later. The link stays up meanwhile.
const AGAIN: Duration = Duration::from_secs(1);
/// A reading of one member's meter enters at most this often: the bill takes the last one, and vouchers are due more
/// seldom.
const METER_EVERY: Duration = Duration::from_millis(500);

type Run = (LeaseId, u32, u16);

/// The reports of one link.
pub(super) struct Reports<'a> {
    core: &'a dyn Core,
    /// Number of the newest report that was heard.
    heard: u64,
    /// To be entered with the next group, in order.
    waiting: Vec<SignedReport>,
    /// The group on its way; resolves after its commit to the number up to which everything was dealt with.
    entering: Option<BoxFuture<'a, Result<u64, SubmitError>>>,
    /// What is in that group.
    group: Vec<SignedReport>,
    /// When to try again, after a commit that failed.
    again_at: Option<Instant>,
    /// When the last reading of a member's meter was let through.
    metered: BTreeMap<Run, Instant>,
}

impl<'a> Reports<'a> {
    /// Nothing was heard after the report of this number, which the log has.
    pub(super) fn new(core: &'a dyn Core, last_seq: u64) -> Self {
        Self {
            core,
            heard: last_seq,
            waiting: Vec::new(),
            entering: None,
            group: Vec::new(),
            again_at: None,
            metered: BTreeMap::new(),
        }
    }

    /// Whether another report may come.
    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < MAX_WAITING
    }

    /// Whether the report was heard before.
    pub(super) fn is_old(&self, report: &Report) -> bool {
        report.seq <= self.heard
    }

    /// Takes a report that is newer than all before. Tells why it will not enter the log, if it will not.
    pub(super) fn take(&mut self, signed: SignedReport, now: Instant) -> Option<Bad> {
        self.heard = signed.report.seq;
        let known = read(self.core, |state| worth(state, &signed.report));
        let worth = known.and_then(|()| self.is_due(&signed.report, now));
        match worth {
            Ok(()) => self.wait(signed),
            Err(cause) => return Some(cause),
        }
        self.go_on();
        None
    }

    /// A later reading of a meter says what an earlier one said.
    fn wait(&mut self, signed: SignedReport) {
        let is_reading = |one: &SignedReport| one.report.event == MemberEvent::Metered;
        if is_reading(&signed) {
            let run = run_of(&signed.report);
            self.waiting.retain(|one| !is_reading(one) || run_of(&one.report) != run);
        }
        self.waiting.push(signed);
    }

    fn is_due(&mut self, report: &Report, now: Instant) -> Result<(), Bad> {
        let run = run_of(report);
        match report.event {
            MemberEvent::Metered => {
                if self.metered.get(&run).is_some_and(|last| now.saturating_duration_since(*last) < METER_EVERY) {
                    return Err(Bad::Repeated);
                }
                self.metered.insert(run, now);
            }
            MemberEvent::Exited { .. }
            | MemberEvent::Stopped { .. }
            | MemberEvent::Failed { .. }
            | MemberEvent::Limited { .. } => {
                self.metered.remove(&run);
            }
            MemberEvent::Accepted | MemberEvent::Ready | MemberEvent::Running => {}
        }
        Ok(())
    }

    /// Sends the next group, if none is on its way.
    fn go_on(&mut self) {
        if self.entering.is_some() || self.waiting.is_empty() || self.again_at.is_some() {
            return;
        }
        self.group = std::mem::take(&mut self.waiting);
        let group = self.group.iter().cloned().map(Input::Report).collect();
        let (core, upto) = (self.core, self.heard);
        let entering = async move {
            let steps = core.submit_all(group).await?;
            debug!(entries = steps.len(), upto, "reports entered");
            Ok(upto)
        };
        self.entering = Some(entering.boxed());
    }

    /// The number up to which everything is dealt with, if nothing is on its way.
    pub(super) fn settled(&self) -> Option<u64> {
        (self.entering.is_none() && self.waiting.is_empty()).then_some(self.heard)
    }

    /// Resolves when a group was committed: to the number that the agent may forget up to. Never, while none is on its way.
    /// A store that takes no commit, as on a full disk, is tried again and costs the agent neither its link nor a report.
    ///
    /// # Errors
    ///
    /// [`SubmitError`] if this controller may not decide, or is stopping.
    pub(super) async fn entered(&mut self) -> Result<u64, SubmitError> {
        loop {
            if let Some(entering) = &mut self.entering {
                let entered = entering.await;
                self.entering = None;
                let group = std::mem::take(&mut self.group);
                match entered {
                    Ok(upto) => {
                        self.go_on();
                        return Ok(self.settled().unwrap_or(upto));
                    }
                    Err(SubmitError::Unavailable(_)) => {
                        let after = std::mem::replace(&mut self.waiting, group);
                        after.into_iter().for_each(|one| self.wait(one));
                        self.again_at = Some(Instant::now() + AGAIN);
                    }
                    Err(error) => return Err(error),
                }
            } else if let Some(at) = self.again_at {
                tokio::time::sleep_until(at).await;
                self.again_at = None;
                self.go_on();
            } else {
                return std::future::pending().await;
            }
        }
    }
}

fn run_of(report: &Report) -> Run {
    (report.lease, report.attempt, report.member)
}

/// Whether the committed State would hear the report, and learn something from it.
fn worth(state: &State, report: &Report) -> Result<(), Bad> {
    state.hears(report).map_err(|_| Bad::Unassigned)?;
    if state.knows(report) {
        return Err(Bad::Repeated);
    }
    Ok(())
}
