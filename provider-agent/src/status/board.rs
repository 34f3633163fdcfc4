//! What the agent's parts say as it happens.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use selion_api::agent::Assignment;
use selion_api::slice::{BoxFeature, BoxFeatures};
use selion_api::{Account, GpuId, TimeMs};

use super::gauge::{Readings, Sample};
use super::{InForce, LinkStatus, MemberStatus};
use crate::courier::now;
use crate::event::Event;
use crate::gpus::slot_text;
use crate::member_key::MemberKey;
use crate::runtime::spec::Limits;

/// One agent's board.
#[derive(Debug)]
pub(crate) struct Board {
    pub(super) since: TimeMs,
    features: BoxFeatures,
    seen: Mutex<Seen>,
}

#[derive(Debug)]
struct Seen {
    link: LinkStatus,
    members: BTreeMap<MemberKey, Entry>,
}

#[derive(Debug)]
struct Entry {
    renter: Account,
    phase: String,
    since_ms: TimeMs,
    metered_ms: u64,
    gpus: Vec<GpuId>,
    slot: String,
    limits: InForce,
    readings: Option<Readings>,
}

impl Board {
    /// Of an agent whose box holds these.
    pub(crate) fn new(features: BoxFeatures) -> Self {
        let since = now();
        let link = LinkStatus { linked: false, since_ms: since, why: None, refused: None };
        Self { since, features, seen: Mutex::new(Seen { link, members: BTreeMap::new() }) }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A member came, with what it may use.
    pub(crate) fn came(&self, assignment: &Assignment, limits: Limits, disk_bytes: u64) {
        let entry = Entry {
            renter: assignment.renter,
            phase: "assigned".into(),
            since_ms: now(),
            metered_ms: 0,
            gpus: assignment.gpus.clone(),
            slot: slot_text(&assignment.slot),
            limits: self.in_force(limits, disk_bytes, assignment),
            readings: None,
        };
        self.seen().members.insert(MemberKey::of(assignment), entry);
    }

    fn in_force(&self, limits: Limits, disk_bytes: u64, assignment: &Assignment) -> InForce {
        let holds = |feature| self.features.has(feature);
        InForce {
            cpu_milli: holds(BoxFeature::Cpu).then_some(limits.cpu_milli),
            memory_bytes: holds(BoxFeature::Memory).then_some(limits.memory_bytes),
            pids: holds(BoxFeature::Pids).then_some(limits.pids),
            disk_bytes: Some(disk_bytes),
            net_mbps: (holds(BoxFeature::Net) && assignment.net_mbps > 0).then_some(assignment.net_mbps),
            max_run_ms: assignment.max_run_ms,
        }
    }

    /// A reading of what a member uses.
    pub(crate) fn read(&self, member: MemberKey, sample: Sample) {
        if let Some(entry) = self.seen().members.get_mut(&member) {
            entry.readings.get_or_insert_default().take(sample);
        }
    }

    /// Nothing of a member is left.
    pub(crate) fn over(&self, member: MemberKey) {
        self.seen().members.remove(&member);
    }

    /// What the agent told whoever runs it.
    pub(crate) fn hear(&self, event: &Event) {
        let mut seen = self.seen();
        let turn = |link: &mut LinkStatus, linked: bool| {
            if link.linked != linked {
                (link.linked, link.since_ms) = (linked, now());
            }
        };
        match event {
            Event::Linked => {
                turn(&mut seen.link, true);
                (seen.link.why, seen.link.refused) = (None, None);
            }
            Event::LinkLost { why } => {
                turn(&mut seen.link, false);
                seen.link.why = Some(why.clone());
            }
            Event::Refused { reason, .. } => seen.link.refused = Some(*reason),
            Event::Member { member, what, metered_ms } => {
                if let Some(entry) = seen.members.get_mut(member) {
                    // A reading of the meter is no change: it runs.
                    let phase = if *what == "metered" { "running" } else { what };
                    if entry.phase != phase {
                        (entry.phase, entry.since_ms) = (phase.to_owned(), now());
                    }
                    entry.metered_ms = *metered_ms;
                }
            }
            Event::Up { .. } | Event::Cards(_) | Event::Voucher { .. } | Event::Stopping => {}
        }
    }

    pub(super) fn link(&self) -> LinkStatus {
        self.seen().link.clone()
    }

    pub(super) fn members(&self) -> Vec<MemberStatus> {
        let seen = self.seen();
        let one = |(member, entry): (&MemberKey, &Entry)| MemberStatus {
            member: *member,
            renter: entry.renter,
            phase: entry.phase.clone(),
            since_ms: entry.since_ms,
            metered_ms: entry.metered_ms,
            gpus: entry.gpus.clone(),
            slot: entry.slot.clone(),
            limits: entry.limits,
            uses: entry.readings.map(|readings| readings.uses),
        };
        seen.members.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use selion_api::Reason;

    use super::*;
    use crate::testing::assignment;

    const LIMITS: Limits =
        Limits { cpu_milli: 500, memory_bytes: 64 << 20, pids: 20, open_files: 100, shm_bytes: 1 << 20 };

    #[test]
    fn the_link_is_told_as_it_is_with_why_it_is_down() {
        let board = Board::new(BoxFeatures::NONE);
        assert!(!board.link().linked);
        board.hear(&Event::Linked);
        assert!(board.link().linked);
        board.hear(&Event::Refused { reason: Reason::UnknownNode, detail: "who?".into() });
        board.hear(&Event::LinkLost { why: "refused".into() });
        let link = board.link();
        let found = (link.linked, link.why.as_deref(), link.refused);
        assert_eq!(found, (false, Some("refused"), Some(Reason::UnknownNode)));
        board.hear(&Event::Linked);
        assert_eq!((board.link().why, board.link().refused), (None, None));
    }

    #[test]
    fn a_member_has_its_phase_and_only_the_limits_that_the_box_holds_until_it_is_over() {
        let board = Board::new(BoxFeatures::NONE.with(BoxFeature::Memory).with(BoxFeature::Disk));
        let of = assignment(1);
        let key = MemberKey::of(&of);
        board.came(&of, LIMITS, 7);
        for (what, metered_ms) in [("running", 0), ("metered", 20)] {
            board.hear(&Event::Member { member: key, what, metered_ms });
        }
        let found = board.members().remove(0);
        assert_eq!((found.phase.as_str(), found.metered_ms, found.uses), ("running", 20, None));
        let limits = found.limits;
        assert_eq!((limits.memory_bytes, limits.disk_bytes), (Some(64 << 20), Some(7)));
        assert_eq!((limits.cpu_milli, limits.pids, limits.net_mbps), (None, None, None), "nothing holds these here");
        board.over(key);
        assert!(board.members().is_empty());
        // Its last report comes after.
        board.hear(&Event::Member { member: key, what: "exited", metered_ms: 30 });
        assert!(board.members().is_empty());
    }
}
