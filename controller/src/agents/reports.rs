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

/// Reports that wait for the group before them; then the agent has to wait.
const MAX_WAITING: usize = 256;
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
    /// When the last reading of a member's meter was let through.
    metered: BTreeMap<Run, Instant>,
}

impl<'a> Reports<'a> {
    /// Nothing was heard after the report of this number, which the log has.
    pub(super) fn new(core: &'a dyn Core, last_seq: u64) -> Self {
        Self { core, heard: last_seq, waiting: Vec::new(), entering: None, metered: BTreeMap::new() }
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
        let worth = known.unwrap_or(Err(Bad::Unassigned)).and_then(|()| self.is_due(&signed.report, now));
        match worth {
            Ok(()) => self.waiting.push(signed),
            Err(cause) => return Some(cause),
        }
        self.go_on();
        None
    }

    fn is_due(&mut self, report: &Report, now: Instant) -> Result<(), Bad> {
        let run = (report.lease, report.attempt, report.member);
        match report.event {
            MemberEvent::Metered => {
                if self.metered.get(&run).is_some_and(|last| now.saturating_duration_since(*last) < METER_EVERY) {
                    return Err(Bad::Repeated);
                }
                self.metered.insert(run, now);
            }
            MemberEvent::Exited { .. } | MemberEvent::Stopped { .. } | MemberEvent::Failed { .. } => {
                self.metered.remove(&run);
            }
            MemberEvent::Accepted | MemberEvent::Ready | MemberEvent::Running => {}
        }
        Ok(())
    }

    /// Sends the next group, if none is on its way.
    fn go_on(&mut self) {
        if self.entering.is_some() || self.waiting.is_empty() {
            return;
        }
        let group = std::mem::take(&mut self.waiting).into_iter().map(Input::Report).collect();
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
        self.entering.is_none().then_some(self.heard)
    }

    /// Resolves when a group was committed: to the number that the agent may forget up to. Never, while none is on its way.
    pub(super) async fn entered(&mut self) -> Result<u64, SubmitError> {
        let Some(entering) = &mut self.entering else {
            return std::future::pending().await;
        };
        let upto = entering.await?;
        self.entering = None;
        self.go_on();
        Ok(self.settled().unwrap_or(upto))
    }
}

/// Whether the committed State would hear the report, and learn something from it.
fn worth(state: &State, report: &Report) -> Result<(), Bad> {
    state.hears(report).map_err(|_| Bad::Unassigned)?;
    if state.knows(report) {
        return Err(Bad::Repeated);
    }
    Ok(())
}
