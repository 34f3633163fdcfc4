//! What to do next, from what should be held and what is: pure, so that a table can test it.

use std::collections::BTreeMap;

use selion_api::agent::{Assignment, Phase};
use selion_api::{GpuId, Slot};

use crate::gpus::collide;
use crate::member_key::MemberKey;

/// How far a member was told to go. It never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// Make the slice, stage the data.
    Prepare,
    /// Run the command.
    Start,
    /// End, free everything, report.
    Stop,
}

/// What the agent knows of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// How far it was told to go.
    pub order: Order,
    /// True once its last report is made; its slice is free then.
    pub ended: bool,
    /// The GPUs.
    pub gpus: Vec<GpuId>,
    /// The place on each of them.
    pub slot: Slot,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Stop a member that is no longer desired.
    Stop(MemberKey),
    /// Forget a member that has ended and is no longer desired.
    Forget(MemberKey),
    /// Prepare a new member.
    Prepare(Box<Assignment>),
    /// Let a prepared member run.
    Start(MemberKey),
    /// Report that a member cannot be run: it should run already, and this agent knows nothing of it. Running it now
    /// might run it twice.
    Refuse(Box<Assignment>),
}

/// What is to be done so that the node comes to hold `desired`. Strays are stopped first, and nothing is prepared
/// where one of them still is: it comes when that member has ended and this is asked again.
#[must_use]
pub fn reconcile(desired: &[Assignment], held: &BTreeMap<MemberKey, Held>) -> Vec<Action> {
    let wanted: BTreeMap<MemberKey, &Assignment> =
        desired.iter().map(|assignment| (MemberKey::of(assignment), assignment)).collect();
    let mut actions = Vec::new();
    for (key, member) in held {
        if wanted.contains_key(key) {
            continue;
        }
        if member.ended {
            actions.push(Action::Forget(*key));
        } else if member.order < Order::Stop {
            actions.push(Action::Stop(*key));
        }
    }
    for (key, assignment) in &wanted {
        match held.get(key) {
            Some(member) if !member.ended && member.order == Order::Prepare && assignment.phase == Phase::Start => {
                actions.push(Action::Start(*key));
            }
            Some(_) => {}
            None if assignment.phase == Phase::Start => actions.push(Action::Refuse(Box::new((*assignment).clone()))),
            None if held.iter().any(|(other, member)| is_in_the_way(assignment, other, member, &wanted)) => {}
            None => actions.push(Action::Prepare(Box::new((*assignment).clone()))),
        }
    }
    actions
}

/// Whether a stray member keeps `assignment` waiting. A collision with a member that is itself desired is no reason
/// to wait: it is a wrong decision, which the GPU refuses.
fn is_in_the_way(
    assignment: &Assignment,
    key: &MemberKey,
    member: &Held,
    wanted: &BTreeMap<MemberKey, &Assignment>,
) -> bool {
    if member.ended || wanted.contains_key(key) {
        return false;
    }
    let earlier_run = key.lease == assignment.lease && key.member == assignment.member;
    // Shares do not collide by place, but the one that leaves may be what makes room.
    let shares = matches!((&member.slot, &assignment.slot), (Slot::Share { .. }, Slot::Share { .. }));
    let met = member.gpus.iter().any(|gpu| assignment.gpus.contains(gpu));
    earlier_run || (met && (shares || collide(&member.slot, &assignment.slot)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assignment;

    fn mig(start: u8, size: u8) -> Slot {
        Slot::Mig { profile: "x".into(), start, size }
    }

    fn want(seq: u64, phase: Phase, slot: Slot) -> Assignment {
        Assignment { phase, slot, ..assignment(seq) }
    }

    fn have(seq: u64, order: Order, ended: bool, slot: Slot) -> (MemberKey, Held) {
        let assignment = assignment(seq);
        let held = Held { order, ended, gpus: assignment.gpus.clone(), slot };
        (MemberKey::of(&assignment), held)
    }

    fn key(seq: u64) -> MemberKey {
        MemberKey::of(&assignment(seq))
    }

    /// A sentence, what is desired, what is held, what is to be done.
    type Row = (&'static str, Vec<Assignment>, Vec<(MemberKey, Held)>, Vec<Action>);

    #[test]
    fn the_table_holds() {
        use Action::{Forget, Prepare, Refuse, Start, Stop};
        let prepare = |a: &Assignment| Prepare(Box::new(a.clone()));
        let p1 = want(1, Phase::Prepare, mig(0, 1));
        let s1 = want(1, Phase::Start, mig(0, 1));
        let p2 = want(2, Phase::Prepare, mig(0, 1));
        let far = want(2, Phase::Prepare, mig(4, 1));
        let table: Vec<Row> = vec![
            ("nothing is wanted or held", vec![], vec![], vec![]),
            ("a new member is prepared", vec![p1.clone()], vec![], vec![prepare(&p1)]),
            (
                "a member being prepared is left alone",
                vec![p1.clone()],
                vec![have(1, Order::Prepare, false, mig(0, 1))],
                vec![],
            ),
            (
                "a prepared member is started once",
                vec![s1.clone()],
                vec![have(1, Order::Prepare, false, mig(0, 1))],
                vec![Start(key(1))],
            ),
            ("a running member is left alone", vec![s1.clone()], vec![have(1, Order::Start, false, mig(0, 1))], vec![]),
            (
                "an old word does not call a running member back",
                vec![p1.clone()],
                vec![have(1, Order::Start, false, mig(0, 1))],
                vec![],
            ),
            (
                "a member that ended is not run again",
                vec![s1.clone()],
                vec![have(1, Order::Start, true, mig(0, 1))],
                vec![],
            ),
            ("a stray is stopped", vec![], vec![have(1, Order::Start, false, mig(0, 1))], vec![Stop(key(1))]),
            ("a stray is told once", vec![], vec![have(1, Order::Stop, false, mig(0, 1))], vec![]),
            ("an ended stray is forgotten", vec![], vec![have(1, Order::Stop, true, mig(0, 1))], vec![Forget(key(1))]),
            (
                "its place is not given away before it has left",
                vec![p2.clone()],
                vec![have(1, Order::Start, false, mig(0, 1))],
                vec![Stop(key(1))],
            ),
            ("nor while it is leaving", vec![p2.clone()], vec![have(1, Order::Stop, false, mig(0, 1))], vec![]),
            (
                "but then it is",
                vec![p2.clone()],
                vec![have(1, Order::Stop, true, mig(0, 1))],
                vec![Forget(key(1)), prepare(&p2)],
            ),
            (
                "another place need not wait",
                vec![far.clone()],
                vec![have(1, Order::Stop, false, mig(0, 1))],
                vec![prepare(&far)],
            ),
            ("what should run and is unknown is refused", vec![s1.clone()], vec![], vec![Refuse(Box::new(s1.clone()))]),
            (
                "two wanted on one place are both tried",
                vec![p1.clone(), p2.clone()],
                vec![have(1, Order::Prepare, false, mig(0, 1))],
                vec![prepare(&p2)],
            ),
        ];
        for (sentence, desired, held, actions) in table {
            assert_eq!(reconcile(&desired, &held.into_iter().collect()), actions, "{sentence}");
        }
    }

    #[test]
    fn a_new_attempt_waits_for_the_old_one_wherever_it_is() {
        let next = Assignment { attempt: 1, gpus: vec![GpuId([8; 16])], ..want(1, Phase::Prepare, mig(0, 1)) };
        let held = [have(1, Order::Start, false, mig(0, 1))].into();
        assert_eq!(reconcile(&[next], &held), [Action::Stop(key(1))]);
    }

    #[test]
    fn a_member_of_several_gpus_waits_for_whatever_still_stands_on_any_of_them() {
        let (mine, other) = (GpuId([1; 16]), GpuId([2; 16]));
        let whole = |seq, gpus: &[GpuId]| Assignment { gpus: gpus.to_vec(), ..want(seq, Phase::Prepare, Slot::Whole) };
        let held: BTreeMap<_, _> = [have(1, Order::Stop, false, Slot::Whole)].into();
        assert_eq!(reconcile(&[whole(2, &[other, mine])], &held), []);
        let apart = whole(2, &[other, GpuId([3; 16])]);
        assert_eq!(reconcile(std::slice::from_ref(&apart), &held), [Action::Prepare(Box::new(apart))]);
    }

    #[test]
    fn a_share_waits_for_a_share_that_leaves() {
        let share = Slot::Share { compute_permille: 500, mem_bytes: 1 };
        let next = want(2, Phase::Prepare, share.clone());
        let held = [have(1, Order::Stop, false, share)].into();
        assert_eq!(reconcile(&[next], &held), []);
    }

    #[test]
    fn doing_what_it_says_ends_in_nothing_more_to_do() {
        // Any order of passes converges: apply actions until none is left.
        let desired = vec![want(1, Phase::Prepare, mig(0, 2)), want(2, Phase::Prepare, mig(2, 2))];
        let mut held: BTreeMap<_, _> =
            [have(7, Order::Start, false, mig(0, 1)), have(8, Order::Prepare, false, mig(3, 1))].into();
        for _ in 0..10 {
            let actions = reconcile(&desired, &held);
            if actions.is_empty() {
                let keys: Vec<_> = held.keys().copied().collect();
                assert_eq!(keys, [key(1), key(2)]);
                return;
            }
            for action in actions {
                match action {
                    Action::Stop(key) => held.get_mut(&key).unwrap().ended = true,
                    Action::Forget(key) => drop(held.remove(&key)),
                    Action::Prepare(a) => {
                        let taken = |h: &Held| !h.ended && collide(&h.slot, &a.slot);
                        assert!(!held.values().any(taken), "prepared on a place in use");
                        let member =
                            Held { order: Order::Prepare, ended: false, gpus: a.gpus.clone(), slot: a.slot.clone() };
                        held.insert(MemberKey::of(&a), member);
                    }
                    Action::Start(_) | Action::Refuse(_) => panic!("nothing is to be started"),
                }
            }
        }
        panic!("it did not converge");
    }
}
