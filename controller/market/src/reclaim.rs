//! Owners take their machines back: a node or one GPU of it takes no lease any more, and what is there is stopped when
//! the notice is over, the whole gang with it.
//!
//! The notice of a lease is the earliest that its places are under, or its money ([`crate::promise`]). It shortens the
//! deadline of whatever state the lease is in, so that there is one deadline a lease, in the one list. Each reclaim stops a lease at most once, and the place
//! takes nobody until its owner resumes: nothing is stopped there a second time.

use alloc::vec::Vec;

use selion_api::lease::Refusal;
use selion_api::{Account, GpuId, LeaseId, NodeId, Reason, TimeMs};

use crate::booking;
use crate::effect::{Answer, Effect};
use crate::lease::is_running;
use crate::state::{Lease, Node, Notice, Progress, State};
use crate::step::{Step, Wake};

impl Node {
    /// When its owner takes a GPU back, by itself or with the node.
    #[must_use]
    pub fn taken_back(&self, gpu: GpuId) -> Option<TimeMs> {
        let by = |what: Option<GpuId>| self.reclaimed.get(&what).copied();
        by(None).into_iter().chain(by(Some(gpu))).min()
    }

    /// When its owner takes the first of these GPUs back.
    #[must_use]
    pub fn first_taken_back(&self, gpus: &[GpuId]) -> Option<TimeMs> {
        gpus.iter().filter_map(|gpu| self.taken_back(*gpu)).min()
    }
}

impl State {
    /// The first time at which an owner takes back what the lease still holds, or from which its money may leave, and why
    /// it is stopped then.
    fn notice_of(&self, lease: &Lease) -> Option<(TimeMs, Reason)> {
        let held = lease.members.iter().filter(|member| member.progress != Progress::Gone);
        let owners = held.filter_map(|member| self.nodes.get(&member.node)?.first_taken_back(&member.gpus));
        let owner = owners.min().map(|by| (by, Reason::OwnerReclaimed));
        let money = self.books.get(&lease.request.renter).and_then(|books| books.paid_until);
        let money = money.map(|by| (by, Reason::PaymentRequired));
        owner.into_iter().chain(money).min_by_key(|(by, _)| *by)
    }

    /// Sets when the state of a lease ends by itself, or before, if it is under a notice for a time before that, or its
    /// repair is given up then. Whoever calls it notes the lease's end.
    pub(crate) fn set_deadline(&mut self, id: LeaseId, ends: Option<TimeMs>) {
        let Some(lease) = self.leases.get_mut(&id) else {
            return;
        };
        if let Some(old) = lease.deadline.take() {
            self.deadlines.remove(&(old, id));
        }
        lease.deadline = ends;
        if let (Some(notice), Some(otherwise)) = (&mut lease.notice, ends) {
            notice.otherwise = otherwise;
            lease.deadline = Some(otherwise.min(notice.by));
        }
        if let (Some(broken), Some(deadline)) = (&lease.broken, &mut lease.deadline) {
            *deadline = broken.by.min(*deadline);
        }
        if let Some(deadline) = lease.deadline {
            self.deadlines.insert((deadline, id));
        }
    }
}

impl Step<'_> {
    /// The owner pauses or resumes a node. Who resumes wants nothing back any more.
    pub(crate) fn set_paused(&mut self, provider: Account, id: NodeId, paused: bool) -> Answer {
        if let Err(reason) = self.is_owner(provider, id) {
            return self.refuse(Refusal::plain(reason));
        }
        self.touch(id);
        let Some(node) = self.state.nodes.get_mut(&id) else {
            return Answer::Done;
        };
        node.paused = paused;
        let again = if paused { Default::default() } else { core::mem::take(&mut node.reclaimed) };
        for gpu in again.keys() {
            self.emit(Effect::Reclaimed { node: id, gpu: *gpu, by: None });
        }
        if !again.is_empty() {
            self.wake_up(Wake::All);
            self.heed_all(id);
        }
        self.reblock(id);
        Answer::Done
    }

    /// The owner takes a node back, or one GPU of it.
    pub(crate) fn reclaim(&mut self, provider: Account, id: NodeId, gpu: Option<GpuId>, notice_ms: u64) -> Answer {
        if let Err(reason) = self.is_owner(provider, id) {
            return self.refuse(Refusal::plain(reason));
        }
        let by = self.at.plus(notice_ms);
        let Some(node) = self.state.nodes.get_mut(&id) else {
            return Answer::Done;
        };
        let has = |gpu| node.spec.iter().flat_map(|spec| &spec.gpus).any(|known| known.gpu == gpu);
        if gpu.is_some_and(|gpu| !has(gpu)) {
            return self.refuse(Refusal::plain(Reason::BadRequest));
        }
        let known = node.reclaimed.get(&gpu).copied();
        if known.is_some_and(|known| known <= by) {
            return Answer::Done;
        }
        node.reclaimed.insert(gpu, by);
        self.touch(id);
        self.wake_up(Wake::All);
        self.emit(Effect::Reclaimed { node: id, gpu, by: Some(by) });
        self.reblock(id);
        self.heed_all(id);
        if notice_ms == 0 {
            self.fire_deadlines();
        }
        Answer::Done
    }

    fn is_owner(&self, provider: Account, node: NodeId) -> Result<(), Reason> {
        match self.state.nodes.get(&node).and_then(|node| node.provider) {
            Some(owner) if owner == provider => Ok(()),
            Some(_) => Err(Reason::NotYours),
            None => Err(Reason::UnknownNode),
        }
    }

    /// What stands on a node is told what its owner takes back.
    fn heed_all(&mut self, node: NodeId) {
        let held = self.state.nodes.get(&node).into_iter().flat_map(|node| node.held.keys());
        let mut leases: Vec<LeaseId> = held.map(|(lease, _)| *lease).collect();
        leases.dedup();
        for id in leases {
            self.heed(id);
        }
    }

    /// Works out again when a running lease is stopped for an owner or for want of money.
    pub(crate) fn heed(&mut self, id: LeaseId) {
        let Some(lease) = self.state.leases.get(&id).filter(|lease| is_running(lease.state)) else {
            return;
        };
        let first = self.state.notice_of(lease);
        if first == lease.notice.map(|notice| (notice.by, notice.reason)) {
            return;
        }
        let otherwise = lease.ends();
        let end_before = booking::end_of(&self.state.policy, lease);
        if let Some(lease) = self.state.leases.get_mut(&id) {
            lease.notice = first.zip(otherwise).map(|((by, reason), otherwise)| Notice { by, reason, otherwise });
        }
        self.state.set_deadline(id, otherwise);
        self.state.note_end(id, end_before);
        self.touched.leases.insert(id);
        self.wake_up(Wake::All);
    }
}
