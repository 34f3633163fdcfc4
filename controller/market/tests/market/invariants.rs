//! What is true after every step, whatever came in.

use std::collections::{BTreeMap, BTreeSet};

use selion_api::lease::{BESIDE, LeaseState, OnNodeLoss};
use selion_api::slice::{GpuSpec, SliceWant};
use selion_api::{Amount, MemberWant, Reason, Slot};
use selion_market::ledger::Pocket;
use selion_market::state::{Member, Node, Progress};
use selion_market::tally::Tally;
use selion_market::{Lease, State};

pub fn check(state: &State) {
    for node in state.nodes.values() {
        no_slot_is_in_two_leases(node);
    }
    money_is_conserved(state);
    nothing_is_free_that_is_promised_or_thaws(state);
    sums_are_those_of_the_nodes(state);
    for (id, lease) in &state.leases {
        gang_is_whole(state, *id, lease);
        bill_is_bounded(state, lease);
        let ended = lease.state == LeaseState::Ended;
        assert_eq!(lease.deadline.is_none(), ended, "a live state has a deadline: {lease:?}");
        let due = lease.deadline.is_some_and(|due| state.deadlines.contains(&(due, *id)));
        assert_eq!(due, !ended, "the deadline is in the list");
        assert_eq!(state.waiting.contains(id), lease.state == LeaseState::Waiting);
    }
    seats_are_taken_by_those_who_hold_slots(state);
    running_is_what_holds_slots(state);
    broken_leases_are_repaired_in_time(state);
    notices_are_those_of_the_places(state);
    if let Some(booking) = &state.booking {
        let holder = &state.leases[&booking.lease];
        assert_eq!(holder.state, LeaseState::Waiting, "only who waits is booked");
        assert_eq!(usize::from(holder.request.min_members), booking.places.len(), "what it needs, and no more");
        assert!(booking.look <= booking.at);
        assert!(booking.look > state.now || state.more, "a booking ends at its time: {booking:?}");
    }
    let live = state.leases.values().filter(|lease| lease.state != LeaseState::Ended);
    assert_eq!(state.deadlines.len(), live.count(), "no deadline without a live lease");
    assert_eq!(state.repeats.len(), state.answers.len());
}

/// What is kept as it changes is what all nodes add up to.
fn sums_are_those_of_the_nodes(state: &State) {
    let counted = Tally::of(state);
    assert_eq!((&state.tally.totals, &state.tally.held), (&counted.totals, &counted.held));
    let forgetful = state.policy.half_life_ms == 0;
    assert!(!forgetful || state.tally.past.is_empty(), "the past counts only with a half-life");
}

fn seats_are_taken_by_those_who_hold_slots(state: &State) {
    let mut sit = BTreeMap::new();
    for ((id, _), held) in state.nodes.values().flat_map(|node| &node.held) {
        let asked = state.leases.get(id).map_or(held.licence, |lease| lease.request.licence);
        assert_eq!(held.licence, asked, "a slot takes the seat that its lease names");
        if let Some(licence) = held.licence {
            *sit.entry((licence, held.renter)).or_insert(0) += 1;
        }
    }
    let noted = state.licences.iter().filter(|(_, seating)| seating.used > 0);
    assert_eq!(sit, noted.map(|(whose, seating)| (*whose, seating.used)).collect());
}

fn no_slot_is_in_two_leases(node: &Node) {
    let Some(spec) = &node.spec else {
        assert!(node.held.is_empty());
        return;
    };
    if node.blocked == Some(Reason::SpecMismatch) {
        return; // it came back as another machine: it takes nothing new, and what runs was placed on what it was
    }
    let ports: BTreeSet<u16> = node.held.values().map(|held| held.port).collect();
    for (at, has) in spec.beside().into_iter().enumerate() {
        assert!(node.held.values().map(|held| held.beside[at]).sum::<u64>() <= has, "{}", BESIDE[at]);
    }
    assert_eq!(ports.len(), node.held.len(), "no port is given twice");
    for gpu in &spec.gpus {
        let slots: Vec<&Slot> =
            node.held.values().filter(|held| held.gpus.contains(&gpu.gpu)).map(|held| &held.slot).collect();
        one_gpu(gpu, &slots);
    }
}

/// Counted by hand, slice by slice: not by the code under test.
fn one_gpu(gpu: &GpuSpec, slots: &[&Slot]) {
    let (mut whole, mut mem_slices, mut compute, mut permille, mut bytes, mut shares) = (0, Vec::new(), 0, 0, 0, 0);
    for slot in slots {
        match slot {
            Slot::Whole => whole += 1,
            Slot::Mig { profile, start, size } => {
                let table = gpu.mig.as_ref().unwrap();
                let known = table.profiles.iter().find(|known| known.name == *profile).unwrap();
                assert!(known.starts.contains(start) && known.size == *size, "an allowed placement");
                compute += u32::from(known.compute_slices);
                mem_slices.extend(*start..*start + *size);
                assert!(mem_slices.iter().all(|slice| *slice < table.mem_slices));
                assert!(compute <= u32::from(table.compute_slices));
            }
            Slot::Share { compute_permille, mem_bytes } => {
                permille += u32::from(*compute_permille);
                bytes += mem_bytes;
                shares += 1;
            }
        }
    }
    let modes = [whole, mem_slices.len(), shares].iter().filter(|count| **count > 0).count();
    assert!(modes <= 1 && whole <= 1, "one mode at a time: {slots:?}");
    let distinct: BTreeSet<&u8> = mem_slices.iter().collect();
    assert_eq!(distinct.len(), mem_slices.len(), "no memory slice is in two instances: {slots:?}");
    assert!(permille <= 1000 && bytes <= gpu.mem_bytes, "shares fit: {slots:?}");
}

fn money_is_conserved(state: &State) {
    let pockets: u64 = state.ledger.pockets().map(|(_, amount)| amount.0).sum();
    let inside = state.ledger.holds(Pocket::Outside).0;
    assert_eq!(pockets, inside, "what is in the pockets is what is in the vault");
    let (mut came, mut went) = (0, 0);
    for books in state.books.values() {
        came += books.deposited.0;
        went += books.claimed.0 + books.withdrawn.0;
    }
    assert_eq!(came, went + inside, "paid + refunded + held = deposited");
    for (pocket, amount) in state.ledger.pockets() {
        if let Pocket::Reserved(renter) = pocket {
            let leases = state.leases.values().filter(|lease| lease.request.renter == *renter);
            let kept: u64 = leases.map(|lease| lease.reserved.0).sum();
            assert!(amount.0 <= kept, "a reserve belongs to a lease");
        }
    }
}

/// Free is only what is left when every promise has its money and as much thaws as was asked back.
fn nothing_is_free_that_is_promised_or_thaws(state: &State) {
    for (renter, books) in &state.books {
        let holds = |pocket| state.ledger.holds(pocket).0;
        let (free, thawing) = (holds(Pocket::Free(*renter)), holds(Pocket::Thawing(*renter)));
        let short = books.thawing.0 > thawing;
        let until = books.ready.0.saturating_sub(state.policy.claim_margin_ms);
        assert_eq!(books.paid_until.map(|until| until.0), short.then_some(until));
        let promises = state.billed.iter().filter(|((whose, _), _)| whose == renter);
        for ((_, provider), billed) in promises {
            let claimed = state.claimed.get(&(*renter, *provider)).map_or(0, |claimed| claimed.0);
            let promise = billed.0.saturating_sub(claimed);
            assert!(free == 0 || promise <= holds(Pocket::Owed(*renter, *provider)), "a promise without its money");
        }
        assert!(free == 0 || !short, "free money that was asked back");
    }
}

fn gang_is_whole(state: &State, id: selion_api::LeaseId, lease: &Lease) {
    let (needs, wants) = (usize::from(lease.request.min_members), lease.request.members.len());
    match lease.state {
        LeaseState::Waiting => {
            assert!(lease.members.is_empty() && lease.reserved == Amount::ZERO && lease.active_since.is_none());
        }
        LeaseState::Ended => assert_eq!(lease.reserved, Amount::ZERO),
        _ => assert!((needs..=wants).contains(&lease.members.len()), "all that it needs, and no more than it wants"),
    }
    if matches!(lease.state, LeaseState::Waiting | LeaseState::Ended) {
        return;
    }
    let mut nodes = BTreeSet::new();
    for (rank, member) in lease.members.iter().enumerate() {
        nodes.insert(member.node);
        let held = state.nodes[&member.node].held.get(&(id, rank as u16));
        if member.progress == Progress::Gone {
            assert!(held.is_none(), "what is over holds nothing");
        } else {
            let held = held.expect("a member holds its slot");
            assert_eq!((&held.gpus, &held.slot, held.attempt), (&member.gpus, &member.slot, member.attempt));
        }
        let fits = match (&lease.request.members[rank].slice, &member.slot) {
            (SliceWant::Mig { profile: asked }, Slot::Mig { profile, .. }) => asked == profile,
            (SliceWant::Whole, Slot::Whole) | (SliceWant::Share { .. }, Slot::Share { .. }) => true,
            _ => false,
        };
        assert!(fits, "what was asked is what was given");
        assert!(lease.request.max_rate.is_none_or(|max| member.rate <= max));
    }
    assert!(nodes.len() >= usize::from(lease.request.min_nodes));
    for (want, member) in lease.request.members.iter().zip(&lease.members) {
        gpus_are_those_asked_for(&state.nodes[&member.node], want, member);
    }
}

/// As many as were asked for, different ones of one model, in the order of the node's spec, for the sum of their asks at
/// least. What the policy at the grant charged beside that is the second checker's affair, to a unit.
fn gpus_are_those_asked_for(node: &Node, want: &MemberWant, member: &Member) {
    assert_eq!(member.gpus.len(), usize::from(want.gpus));
    if node.blocked == Some(Reason::SpecMismatch) {
        return;
    }
    let all = &node.spec.as_ref().unwrap().gpus;
    let ranks: Vec<usize> =
        member.gpus.iter().map(|id| all.iter().position(|gpu| gpu.gpu == *id).expect("it is on that node")).collect();
    assert!(ranks.is_sorted_by(|one, next| one < next), "none twice: {ranks:?}");
    assert!(ranks.iter().all(|rank| all[*rank].model == all[ranks[0]].model), "one model");
    if member.slot == Slot::Whole {
        let asks = ranks.iter().map(|rank| all[*rank].whole.unwrap().0);
        let asks = asks.fold(0, u64::saturating_add);
        assert!(member.rate.0 >= asks, "{} for {asks}", member.rate);
    }
}

fn bill_is_bounded(state: &State, lease: &Lease) {
    for member in &lease.members {
        let interval = lease.active_since.map_or(0, |since| state.now.since(since));
        let most_ms = lease.request.duration_ms.saturating_add(state.policy.grace_ms);
        assert!(member.billable_ms <= interval && member.billable_ms <= most_ms);
        let own = member.since.map_or(u64::MAX, |since| state.now.since(since));
        assert!(member.billable_ms <= own, "nobody is billed for the time before it ran");
        assert!(member.since >= lease.active_since || member.since.is_none());
        assert!(member.attempt <= lease.attempt);
        assert!(member.vouched <= member.rate.bill(member.billable_ms), "no voucher above the bill");
    }
}

/// A running lease is under the earliest notice of its places and its money, and ends no later; what runs nowhere is under
/// none.
fn notices_are_those_of_the_places(state: &State) {
    use LeaseState::{Active, Held, Preparing, Starting};
    for (id, lease) in &state.leases {
        let held = state.nodes.values().flat_map(|node| node.held.iter().map(move |(key, held)| (node, key, held)));
        let runs = |rank: u16, attempt| lease.members.get(usize::from(rank)).is_some_and(|it| it.attempt == attempt);
        let present = held.filter(|(_, (lease_id, rank), held)| lease_id == id && runs(*rank, held.attempt));
        let by = present.filter_map(|(node, _, held)| {
            let what = node.reclaimed.iter().filter(|(gpu, _)| gpu.is_none_or(|gpu| held.gpus.contains(&gpu)));
            what.map(|(_, by)| *by).min()
        });
        let runs = matches!(lease.state, Held | Preparing | Starting | Active);
        let owner = by.min().map(|by| (by, Reason::OwnerReclaimed));
        let money = state.books.get(&lease.request.renter).and_then(|books| books.paid_until);
        let money = money.map(|by| (by, Reason::PaymentRequired));
        let first = owner.into_iter().chain(money).min_by_key(|(by, _)| *by).filter(|_| runs);
        assert_eq!(lease.notice.map(|notice| (notice.by, notice.reason)), first, "{lease:?}");
        if let Some(notice) = lease.notice {
            let given_up = lease.broken.as_ref().map_or(notice.by, |broken| broken.by);
            assert_eq!(lease.deadline, Some(notice.by.min(notice.otherwise).min(given_up)));
        }
    }
}

/// Only an active lease that asked for it is repaired, it keeps the members that it needs, and the repair has an end.
fn broken_leases_are_repaired_in_time(state: &State) {
    let noted = state.leases.iter().filter(|(_, lease)| lease.broken.is_some()).map(|(id, _)| *id);
    assert_eq!(noted.collect::<BTreeSet<_>>(), state.broken);
    for id in &state.broken {
        let lease = &state.leases[id];
        let broken = lease.broken.as_ref().unwrap();
        assert_eq!((lease.state, lease.request.on_node_loss), (LeaseState::Active, OnNodeLoss::Repair));
        assert!(!broken.ranks.is_empty() && lease.deadline.unwrap() <= broken.by);
        assert!(lease.members.len() - broken.ranks.len() >= usize::from(lease.request.min_members));
        for rank in &broken.ranks {
            let member = &lease.members[usize::from(*rank)];
            assert!(member.since.is_none() && member.progress != Progress::Running);
        }
    }
    let whole = state.leases.values().filter(|lease| lease.state == LeaseState::Active && lease.broken.is_none());
    for lease in whole {
        assert!(lease.members.iter().all(|member| member.since.is_some()), "all are billed: {lease:?}");
        assert_eq!(lease.ends(), lease.expires());
    }
}

fn running_is_what_holds_slots(state: &State) {
    use LeaseState::{Active, Ending, Held, Preparing, Starting};
    let runs = |lease: &Lease| matches!(lease.state, Held | Preparing | Starting | Active | Ending);
    let noted: BTreeSet<_> = state.running.values().flatten().map(|(_, id)| *id).collect();
    let live: BTreeSet<_> = state.leases.iter().filter(|(_, lease)| runs(lease)).map(|(id, _)| *id).collect();
    assert_eq!(noted, live);
    for (end, id) in state.running.values().flatten() {
        let lease = &state.leases[id];
        let active = lease.state == Active;
        let taken_back = lease.notice.map_or(u64::MAX, |notice| notice.by.0);
        let ends = if lease.broken.is_some() { lease.expires() } else { lease.deadline };
        assert!(!active || end.0 == ends.unwrap().0.min(taken_back).saturating_add(state.policy.ending_ms));
        assert!(state.running[&lease.request.priority].contains(&(*end, *id)) && Some(*end) >= lease.deadline);
    }
}
