//! Lies about what was granted, to whom, where and at what price.

use selion_api::chain::ChainEvent;
use selion_api::slice::IsolationClass;
use selion_api::{
    Account, BoxFeature, BoxFeatures, Hash32, LeaseId, LeaseRequest, NodeSpec, Rate, Reason, SliceWant, Slot,
};
use selion_checker::Rule;
use selion_market::{Effect, Grant, Input, Policy};

use crate::pool::{DELEGATE, GIB, HOUR, Pool, TOKEN, a100, ask, gpu_id, mig, node_id, provider, renter, share, spec};
use crate::tape::Tape;

/// Two nodes, of which the first has two GPUs; `change` makes the first one what the test needs.
fn pool(change: impl Fn(&mut NodeSpec)) -> Pool {
    let mut pool = Pool::new();
    let mut first = spec(1, vec![a100(1, 0), a100(1, 1)]);
    change(&mut first);
    pool.node(first);
    pool.node(spec(2, vec![a100(2, 0)]));
    pool.fund(renter(1), 1000 * TOKEN);
    pool.fund(renter(2), 1000 * TOKEN);
    pool
}

/// One lease in a pool.
fn one(request: LeaseRequest) -> (Tape, LeaseId) {
    let mut pool = pool(|_| {});
    let id = pool.lease(request);
    (Tape::of(&pool), id)
}

/// The lease is granted, and the lie about its first member breaks the rule.
#[track_caller]
fn lie(request: LeaseRequest, rule: Rule, change: impl Fn(&mut Grant)) {
    let (mut tape, id) = one(request);
    assert_eq!(tape.findings(), []);
    let (entry, grant) = tape.grant(id, 0);
    change(grant);
    tape.caught(rule, entry);
}

/// Two requests of one member each stand on different GPUs or nodes; the lie puts the second beside the first.
#[track_caller]
fn crowd(change: impl Fn(&mut NodeSpec), first: LeaseRequest, second: LeaseRequest, gpu: u8, rule: Rule) {
    let mut pool = pool(change);
    let (one, two) = (pool.lease(pin(first, 1)), pool.lease(pin(second, 2)));
    let mut tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    unpin(&mut tape, two);
    let rate = tape.grant(one, 0).1.rate;
    let (entry, grant) = tape.grant(two, 0);
    (grant.node, grant.gpu, grant.provider) = (node_id(1), gpu_id(1, gpu), provider(1));
    if grant.slot == Slot::Whole {
        grant.rate = rate;
    }
    tape.caught(rule, entry);
}

fn pin(mut request: LeaseRequest, node: u8) -> LeaseRequest {
    for member in &mut request.members {
        member.node = Some(node_id(node));
    }
    request
}

/// Lets the request in the log ask for any node.
fn unpin(tape: &mut Tape, lease: LeaseId) {
    if let Input::Request(asked) = &mut tape.0[lease.seq as usize].input {
        asked.request.members[0].node = None;
    }
}

fn whole() -> LeaseRequest {
    ask(renter(1), &[SliceWant::Whole])
}

#[test]
fn a_gang_without_one_of_its_members_is_seen() {
    let (mut tape, id) = one(ask(renter(1), &[SliceWant::Whole, SliceWant::Whole]));
    let (entry, at) =
        tape.find(|effect| matches!(effect, Effect::Granted(grant) if grant.lease == id && grant.member == 1));
    tape.0[entry].effects.remove(at);
    tape.caught(Rule::Gang, entry);
}

#[test]
fn a_member_granted_twice_is_seen() {
    let (mut tape, id) = one(whole());
    let (entry, grant) = tape.grant(id, 0);
    let twin = Effect::Granted(Grant { gpu: gpu_id(1, 1), ..grant.clone() });
    let at = tape.find(|effect| matches!(effect, Effect::Granted(_))).1;
    tape.0[entry].effects.insert(at + 1, twin);
    tape.caught(Rule::Gang, entry);
}

#[test]
fn a_grant_of_a_lease_that_is_not_being_held_is_seen() {
    let (mut tape, id) = one(whole());
    let grant = tape.grant(id, 0).1.clone();
    let entry = tape.push(Input::Tick, vec![Effect::Granted(Grant { gpu: gpu_id(1, 1), ..grant })]);
    tape.caught(Rule::Gang, entry);
}

#[test]
fn a_gang_on_fewer_nodes_than_it_asked_for_is_seen() {
    let mut request = ask(renter(1), &[SliceWant::Whole, SliceWant::Whole]);
    request.min_nodes = 2;
    let (mut tape, id) = one(request);
    assert_eq!(tape.findings(), []);
    // Whoever is on the second node is said to be on the first, beside the other.
    let rank = u16::from(tape.grant(id, 1).1.node == node_id(2));
    let beside = tape.grant(id, 1 - rank).1.gpu;
    let gpu = if beside == gpu_id(1, 0) { gpu_id(1, 1) } else { gpu_id(1, 0) };
    let (entry, grant) = tape.grant(id, rank);
    (grant.node, grant.gpu, grant.provider) = (node_id(1), gpu, provider(1));
    tape.caught(Rule::MinNodes, entry);
}

#[test]
fn a_grant_after_the_chain_broke_or_authority_passed_on_is_seen() {
    let (tape, id) = one(whole());
    let broken = Input::ChainBroken { number: 1, had: Hash32::ZERO, has: Hash32([1; 32]) };
    let mut pool = pool(|_| {});
    pool.block(vec![ChainEvent::AuthorityChanged { epoch: 2, authority: renter(9), owner: renter(9) }]);
    let passed_on = pool.log.last().unwrap().1.clone();
    for input in [broken, passed_on] {
        let mut tape = tape.clone();
        let (entry, _) = tape.grant(id, 0);
        // The request's own entry keeps its number, which names the lease: what breaks comes in place of the entry before.
        let before = entry - 1;
        tape.0[before].input = input;
        tape.0[before].effects.clear();
        assert!(tape.findings().iter().any(|f| f.entry == entry as u64 && f.rule == Rule::Halted));
    }
}

#[test]
fn a_grant_on_a_node_that_its_owner_paused_is_seen() {
    let mut pool = pool(|_| {});
    pool.enter(Input::SetPaused { provider: provider(2), node: node_id(2), paused: true, said: None });
    let id = pool.lease(whole());
    let mut tape = Tape::of(&pool);
    let (entry, grant) = tape.grant(id, 0);
    (grant.node, grant.gpu, grant.provider) = (node_id(2), gpu_id(2, 0), provider(2));
    tape.caught(Rule::Schedulable, entry);
}

#[test]
fn a_node_told_open_while_chain_and_link_do_not_agree_is_seen() {
    let mut pool = pool(|_| {});
    pool.enter(Input::Lost { node: node_id(2), last_seq: 0 });
    let mut tape = Tape::of(&pool);
    let last = tape.0.len() - 1;
    tape.0[last].effects = vec![Effect::NodeChanged { node: node_id(2), reason: None }];
    tape.caught(Rule::Schedulable, last);
    tape.0[last].effects.clear();
    tape.caught(Rule::Schedulable, last);
    tape.0[last].effects = vec![Effect::NodeChanged { node: node_id(7), reason: Some(Reason::NodePaused) }];
    tape.caught(Rule::Schedulable, last);
}

#[test]
fn a_grant_in_the_name_of_another_renter_or_provider_is_seen() {
    lie(whole(), Rule::Party, |grant| grant.renter = renter(2));
    lie(whole(), Rule::Party, |grant| grant.provider = Account([9; 20]));
}

#[test]
fn a_member_on_another_node_or_model_than_asked_for_is_seen() {
    lie(pin(whole(), 1), Rule::Pinned, |grant| {
        (grant.node, grant.gpu, grant.provider) = (node_id(2), gpu_id(2, 0), provider(2));
    });
    let mut request = whole();
    request.members[0].models = vec!["A100 80GB".into()];
    let mut pool = pool(|spec| spec.gpus[1].model = "H100 80GB".into());
    let id = pool.lease(pin(request, 1));
    let mut tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    let (entry, grant) = tape.grant(id, 0);
    grant.gpu = gpu_id(1, 1);
    tape.caught(Rule::Pinned, entry);
}

#[test]
fn another_slice_than_was_asked_for_is_seen() {
    let two = Slot::Mig { profile: "2g.20gb".into(), start: 0, size: 2 };
    lie(ask(renter(1), &[mig("1g.10gb")]), Rule::Slot, |grant| grant.slot = two.clone());
    lie(whole(), Rule::Slot, |grant| grant.slot = two.clone());
    let less = Slot::Share { compute_permille: 499, mem_bytes: 10 * GIB };
    lie(ask(renter(1), &[share(500, 10)]), Rule::Slot, |grant| grant.slot = less.clone());
    lie(whole(), Rule::Slot, |grant| grant.gpu = gpu_id(1, 9));
}

#[test]
fn another_class_than_is_on_offer_is_seen() {
    lie(whole(), Rule::Class, |grant| grant.class = IsolationClass::Whole);
}

#[test]
fn a_class_that_the_renter_did_not_accept_is_seen() {
    let (mut tape, id) = one(whole());
    if let Input::Request(asked) = &mut tape.0[id.seq as usize].input {
        asked.request.classes = IsolationClass::Whole.bit();
    }
    tape.caught(Rule::Class, id.seq as usize);
}

/// Of two nodes only the dearer one holds memory and shows images; the lie grants on the other.
#[test]
fn a_node_whose_box_does_not_give_or_hold_what_was_asked_is_seen() {
    let needs = BoxFeatures::NONE.with(BoxFeature::Memory).with(BoxFeature::Images);
    let mut pool = pool(|spec| {
        spec.features = needs;
        spec.gpus.iter_mut().for_each(|gpu| gpu.whole = Some(Rate(2 * TOKEN)));
    });
    let id = pool.lease(LeaseRequest { needs: BoxFeatures::NONE.with(BoxFeature::Memory), ..whole() });
    assert_eq!(pool.get(id).members[0].node, node_id(1));
    let tape = Tape::of(&pool);
    assert_eq!(tape.findings(), []);
    let mut other = tape.clone();
    let (entry, grant) = other.grant(id, 0);
    (grant.node, grant.gpu, grant.provider, grant.rate) = (node_id(2), gpu_id(2, 0), provider(2), Rate(TOKEN));
    other.caught(Rule::Needs, entry);
    let mut more = tape;
    if let Input::Request(asked) = &mut more.0[id.seq as usize].input {
        asked.request.needs = needs.with(BoxFeature::Disk);
    }
    more.caught(Rule::Needs, entry);
}

#[test]
fn another_rate_than_is_on_offer_is_seen() {
    lie(whole(), Rule::Rate, |grant| grant.rate.0 += 1);
    lie(ask(renter(1), &[mig("1g.10gb")]), Rule::Rate, |grant| grant.rate.0 -= 1);
    lie(ask(renter(1), &[share(500, 1)]), Rule::Rate, |grant| grant.rate = Rate(1));
}

#[test]
fn a_rate_above_the_renters_highest_is_seen() {
    let (mut tape, id) = one(whole());
    if let Input::Request(asked) = &mut tape.0[id.seq as usize].input {
        asked.request.max_rate = Some(Rate(TOKEN - 1));
    }
    tape.caught(Rule::MaxRate, id.seq as usize);
}

#[test]
fn a_mig_instance_where_none_may_start_is_seen() {
    for start in [1, 6] {
        let slot = Slot::Mig { profile: "2g.20gb".into(), start, size: 2 };
        lie(ask(renter(1), &[mig("2g.20gb")]), Rule::Placement, |grant| grant.slot = slot.clone());
    }
    let wide = Slot::Mig { profile: "2g.20gb".into(), start: 0, size: 1 };
    lie(ask(renter(1), &[mig("2g.20gb")]), Rule::Placement, |grant| grant.slot = wide.clone());
}

#[test]
fn a_slot_leased_twice_is_seen_in_every_mode() {
    crowd(|_| {}, whole(), whole(), 0, Rule::Overlap);
    crowd(|_| {}, ask(renter(1), &[mig("7g.80gb")]), ask(renter(2), &[mig("1g.10gb")]), 0, Rule::Overlap);
    crowd(|_| {}, ask(renter(1), &[mig("1g.10gb")]), ask(renter(2), &[share(10, 1)]), 0, Rule::Overlap);
    crowd(|_| {}, ask(renter(1), &[share(10, 1)]), ask(renter(2), &[mig("1g.10gb")]), 0, Rule::Overlap);
    crowd(|_| {}, ask(renter(1), &[share(10, 1)]), whole(), 0, Rule::Overlap);
}

#[test]
fn more_compute_or_memory_than_a_gpu_has_is_seen() {
    let (big, wide) = (ask(renter(1), &[share(600, 1)]), ask(renter(2), &[share(10, 50)]));
    crowd(|_| {}, big.clone(), big, 0, Rule::Compute);
    crowd(|_| {}, wide.clone(), wide, 0, Rule::Memory);
    let few = |spec: &mut NodeSpec| {
        for gpu in &mut spec.gpus {
            gpu.mig.as_mut().unwrap().compute_slices = 1;
        }
    };
    let low = |slot: &Slot| matches!(slot, Slot::Mig { start: 0, .. });
    let mut pool = pool(few);
    let one = pool.lease(pin(ask(renter(1), &[mig("1g.10gb")]), 1));
    let two = pool.lease(pin(ask(renter(2), &[mig("1g.10gb")]), 1));
    let mut tape = Tape::of(&pool);
    let first = tape.grant(one, 0).1.clone();
    let (entry, grant) = tape.grant(two, 0);
    grant.gpu = first.gpu;
    let start = if low(&first.slot) { 1 } else { 0 };
    grant.slot = Slot::Mig { profile: "1g.10gb".into(), start, size: 1 };
    tape.caught(Rule::Compute, entry);
}

#[test]
fn more_slices_of_a_kind_than_a_gpu_may_have_are_seen() {
    let single = |spec: &mut NodeSpec| {
        for gpu in &mut spec.gpus {
            gpu.share.as_mut().unwrap().max_shares = 1;
        }
    };
    crowd(single, ask(renter(1), &[share(10, 1)]), ask(renter(2), &[share(10, 1)]), 0, Rule::Count);
}

#[test]
fn more_cpu_memory_or_ports_than_a_node_has_are_seen() {
    let (small, tight) = (|spec: &mut NodeSpec| spec.cpu_milli = 700, |spec: &mut NodeSpec| spec.ram_bytes = GIB);
    crowd(small, whole(), whole(), 1, Rule::Cpu);
    crowd(tight, whole(), whole(), 1, Rule::Ram);
    crowd(|spec| spec.ports = 1, whole(), whole(), 1, Rule::Ports);
}

#[test]
fn an_honest_log_of_all_modes_is_not_found_fault_with() {
    let mut pool = pool(|_| {});
    for slices in [vec![mig("3g.40gb"), mig("4g.40gb")], vec![share(300, 10), share(700, 20)], vec![SliceWant::Whole]] {
        let id = pool.lease(ask(renter(1), &slices));
        pool.run_up(id);
        pool.now += HOUR / 2;
        pool.clear(id);
    }
    assert_eq!(Tape::of(&pool).findings(), []);
    assert_eq!(pool.checker.held().count(), 0, "nothing is left");
}

/// Where the pool charges for fragmentation, a rate is exactly the ask and the surcharge, and both are bounded.
#[test]
fn a_surcharge_that_is_none_or_a_unit_too_high_or_above_the_highest_rate_is_seen() {
    let charged = |slice: SliceWant, max_rate: Option<Rate>| {
        let mut pool = pool(|_| {});
        let policy = Policy { shadow_permille: 500, ..Policy::default() };
        pool.enter(Input::Opened { delegate: DELEGATE, policy });
        pool.lease(ask(renter(1), &[mig("1g.10gb")]));
        let id = pool.lease(LeaseRequest { max_rate, ..ask(renter(2), &[slice]) });
        (pool.get(id).members[0].rate, Tape::of(&pool), id)
    };
    for slice in [mig("2g.20gb"), share(300, 1), SliceWant::Whole] {
        let (rate, tape, _) = charged(slice.clone(), None);
        assert_eq!(tape.findings(), []);
        for wrong in [rate.0 + 1, rate.0 - 1] {
            let (_, mut tape, id) = charged(slice.clone(), None);
            let (entry, grant) = tape.grant(id, 0);
            grant.rate = Rate(wrong);
            tape.caught(Rule::Rate, entry);
        }
        let (_, mut tape, id) = charged(slice, Some(rate));
        let entry = tape.grant(id, 0).0;
        let request = tape.0.iter_mut().filter_map(|leaf| match &mut leaf.input {
            Input::Request(asked) => Some(&mut asked.request),
            _ => None,
        });
        request.last().unwrap().max_rate = Some(Rate(rate.0 - 1));
        tape.caught(Rule::MaxRate, entry);
    }
}
