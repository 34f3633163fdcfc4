//! What must hold of what owners take back.

use selion_api::{GpuId, LeaseId, NodeId, TimeMs};
use selion_market::{Effect, Input};

use super::Entry;
use crate::finding::{Rule, holds};

/// Most deadlines that fire in one entry; the rest wait for the next.
pub(super) const MAX_DEADLINES: usize = 256;

impl Entry<'_> {
    pub(super) fn reclaimed(&mut self, node: NodeId, gpu: Option<GpuId>, by: Option<TimeMs>) {
        let told = self.book.fleet.untold.remove(&(node, gpu));
        self.tell(None, holds(Rule::Reclaim, told == Some(by)));
    }

    /// True if a running lease is to be stopped for an owner now: the time is up on a place that it holds, or the agent of
    /// one of its members says so.
    pub(super) fn is_due(&self, id: LeaseId) -> bool {
        let said = matches!(self.input, Input::Report(signed) if signed.report.lease == id);
        said || self.time_is_up().any(|lease| lease == id)
    }

    /// Leases with a member where an owner's time is up.
    fn time_is_up(&self) -> impl Iterator<Item = LeaseId> {
        let over = self.book.fleet.due_back(self.book.now);
        // What an older run still holds waits for its agent's word.
        let present = |(id, run): &(LeaseId, u32)| {
            self.book.leases.get(id).is_some_and(|lease| lease.attempts().any(|attempt| attempt == *run))
        };
        over.filter(present).map(|(id, _)| id)
    }

    /// What owners took back was told, and nothing goes on running where the time is up.
    pub(super) fn nothing_stays(&mut self, effects: &[Effect]) {
        let untold = core::mem::take(&mut self.book.fleet.untold);
        self.tell(None, holds(Rule::Reclaim, untold.is_empty()));
        let moves = effects.iter().filter(|effect| matches!(effect, Effect::Moved { .. })).count();
        if moves >= MAX_DEADLINES {
            return;
        }
        let stays = self.time_is_up().find(|id| self.book.leases.get(id).is_some_and(|lease| lease.is_running()));
        self.tell(stays, holds(Rule::Reclaim, stays.is_none()));
    }
}
