//! Where members go, and what a request that cannot be met is told.

use selion_api::agent::MemberEvent;
use selion_api::lease::LeaseState;
use selion_api::slice::{GpuSpec, IsolationClass, Sandbox};
use selion_api::{LeaseRequest, Rate, Reason, SliceWant, Slot};
use selion_market::{Answer, Input, Policy};

use crate::pool::{GIB, HOUR, Pool, TOKEN, a100, ask, gpu_id, mig, node_id, provider, renter, share, spec, want};

#[test]
fn a_dearer_node_wins_when_the_cheap_one_is_full() {
    let mut pool = Pool::new();
    pool.fund(renter(1), 100 * TOKEN);
    for (node, rate) in [(1, 20), (2, 10)] {
        let mut gpu = a100(node, 0);
        gpu.whole = Some(Rate(rate));
        pool.node(spec(node, vec![gpu]));
    }
    let first = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    let second = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    assert_eq!(pool.get(first).members[0].node, node_id(2));
    assert_eq!(pool.get(second).members[0].node, node_id(1));
}

#[test]
fn a_small_instance_goes_where_least_stays_unused() {
    let mut pool = Pool::small();
    let one = pool.lease(ask(renter(1), &[mig("1g.10gb")]));
    let start = |pool: &Pool, id| match &pool.get(id).members[0].slot {
        Slot::Mig { start, .. } => *start,
        other => panic!("{other:?}"),
    };
    // Start 6 would leave slice 7 to nobody; the only 4g and one of two 3g stay possible.
    assert_eq!(start(&pool, one), 4);
    let four = pool.lease(ask(renter(1), &[mig("4g.40gb")]));
    assert_eq!(start(&pool, four), 0);
}

#[test]
fn shares_leave_a_gpu_alone_that_can_do_mig() {
    let mut pool = Pool::new();
    pool.fund(renter(1), 100 * TOKEN);
    let mut plain = a100(1, 1);
    plain.mig = None;
    pool.node(spec(1, vec![a100(1, 0), plain]));
    let id = pool.lease(ask(renter(1), &[share(100, 4)]));
    assert_eq!(pool.get(id).members[0].gpus, [gpu_id(1, 1)]);
}

#[test]
fn a_gpu_is_in_one_mode_at_a_time() {
    let mut pool = Pool::small();
    let part = pool.lease(ask(renter(1), &[share(100, 4)]));
    for other in [SliceWant::Whole, mig("1g.10gb")] {
        let id = pool.lease(ask(renter(1), &[other]));
        assert_eq!(pool.reason_of(id), Some(Reason::PoolFull));
        pool.release(id);
    }
    pool.clear(part);
    let whole = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    assert_eq!(pool.state_of(whole), LeaseState::Held);
}

#[test]
fn a_price_above_the_limit_is_refused_with_the_cheapest_ask() {
    let mut pool = Pool::small();
    let mut cheaper = a100(2, 0);
    cheaper.whole = Some(Rate(900_000));
    pool.node(spec(2, vec![cheaper]));
    let refusal = pool.refusal(LeaseRequest { max_rate: Some(Rate(800_000)), ..ask(renter(1), &[SliceWant::Whole]) });
    assert_eq!(refusal.reason, Reason::PriceAboveMax);
    let nearest = refusal.nearest.unwrap();
    assert_eq!((nearest.node, nearest.gpu), (node_id(2), Some(gpu_id(2, 0))));
    assert_eq!((nearest.need, nearest.have), (900_000, 800_000));
    assert!(pool.state.leases.is_empty(), "a refusal creates no lease");
}

#[test]
fn every_refusal_names_what_stood_nearest() {
    let mut pool = Pool::small();
    let mut cases = Vec::new();
    cases.push((ask(renter(1), &[mig("9g.90gb")]), Reason::NoMatchingSlice));
    cases.push((ask(renter(1), &[share(10, 81)]), Reason::NoMatchingSlice));
    let mut hungry = ask(renter(1), &[SliceWant::Whole]);
    hungry.members[0].cpu_milli = 65_000;
    cases.push((hungry, Reason::NoMatchingSlice));
    let mut picky = ask(renter(1), &[SliceWant::Whole]);
    picky.classes = IsolationClass::Whole.bit();
    cases.push((picky, Reason::NoMatchingSlice));
    for (request, reason) in cases {
        let refusal = pool.refusal(request.clone());
        assert_eq!(refusal.reason, reason, "{request:?}");
        let nearest = refusal.nearest.unwrap();
        assert_eq!(nearest.node, node_id(1));
        assert!(nearest.need > nearest.have || request.classes != 0b11_1111, "{nearest:?}");
    }
    let mut elsewhere = ask(renter(1), &[SliceWant::Whole]);
    elsewhere.members[0].node = Some(node_id(9));
    assert_eq!(pool.refusal(elsewhere).reason, Reason::NoMatchingSlice);
    let mut bad = ask(renter(1), &[]);
    bad.min_nodes = 0;
    assert_eq!(pool.refusal(bad).reason, Reason::BadRequest);
}

#[test]
fn a_paused_node_is_named_as_the_reason_and_comes_back() {
    let mut pool = Pool::small();
    let pause = |paused| Input::SetPaused { provider: provider(1), node: node_id(1), paused, said: None };
    let running = pool.lease(ask(renter(1), &[mig("1g.10gb")]));
    assert_eq!(pool.enter(pause(true)).answer, Answer::Done);
    assert_eq!(pool.refusal(ask(renter(1), &[mig("1g.10gb")])).reason, Reason::NodePaused);
    pool.run_up(running); // what runs goes on
    pool.enter(pause(false));
    pool.lease(ask(renter(1), &[mig("1g.10gb")]));
    let stranger = Input::SetPaused { provider: provider(2), node: node_id(1), paused: true, said: None };
    assert!(matches!(pool.enter(stranger).answer, Answer::Refused(refusal) if refusal.reason == Reason::NotYours));
}

#[test]
fn a_pool_without_simulated_gpus_or_bare_nodes_leases_neither() {
    let mut pool = Pool::with_terms(false, false);
    pool.fund(renter(1), TOKEN * 10);
    pool.node(spec(1, vec![a100(1, 0)]));
    assert_eq!(pool.refusal(ask(renter(1), &[SliceWant::Whole])).reason, Reason::ClassNotAllowed);
    let mut real = a100(2, 0);
    real.simulated = false;
    let mut bare = spec(2, vec![real]);
    bare.sandbox = Sandbox::None;
    pool.node(bare);
    assert_eq!(pool.state.nodes[&node_id(2)].blocked, Some(Reason::SandboxNotAllowed));
}

#[test]
fn a_node_that_is_not_what_its_offer_says_is_not_schedulable() {
    let mut pool = Pool::small();
    let mut more = spec(1, vec![a100(1, 0), a100(1, 1)]);
    pool.enter(Input::modelled_link(more.clone(), 0));
    assert_eq!(pool.state.nodes[&node_id(1)].blocked, Some(Reason::SpecMismatch));
    more.gpus[1] = more.gpus[0].clone();
    let twice = pool.enter(Input::modelled_link(more, 0));
    assert!(matches!(twice.answer, Answer::Refused(refusal) if refusal.reason == Reason::SpecMismatch));
}

#[test]
fn a_gang_is_placed_on_as_many_nodes_as_it_asks_for() {
    let mut pool = Pool::small();
    pool.node(spec(2, vec![a100(2, 0)]));
    let mut request = ask(renter(1), &[mig("3g.40gb"), mig("1g.10gb"), mig("1g.10gb")]);
    request.min_nodes = 2;
    let id = pool.lease(request.clone());
    assert_eq!(pool.state_of(id), LeaseState::Held);
    let ranks: Vec<u16> = pool.grants().iter().map(|grant| grant.member).collect();
    assert_eq!(ranks, [0, 1, 2]);
    request.min_nodes = 3;
    let refusal = pool.refusal(request);
    assert_eq!(refusal.reason, Reason::GangIncomplete);
    let nearest = refusal.nearest.unwrap();
    assert_eq!((nearest.need, nearest.have), (3, 2));
}

#[test]
fn a_gang_that_does_not_fit_whole_takes_nothing_at_all() {
    let mut pool = Pool::small();
    pool.node(spec(2, vec![a100(2, 0)]));
    let blocker = pool.lease(ask(renter(1), &[mig("3g.40gb")]));
    let before = pool.state.clone();
    let gang = [SliceWant::Whole, SliceWant::Whole];
    let id = pool.lease(ask(renter(1), &gang));
    assert_eq!(pool.reason_of(id), Some(Reason::GangIncomplete));
    assert!(pool.get(id).nearest.is_some());
    pool.release(id);
    // Nothing is different but that the lease is remembered.
    assert_eq!(pool.state.nodes, before.nodes);
    assert_eq!(pool.state.ledger, before.ledger);
    let mut now = ask(renter(1), &gang);
    now.wait_ms = 0;
    assert_eq!(pool.refusal(now).reason, Reason::GangIncomplete);
    pool.clear(blocker);
    let id = pool.lease(ask(renter(1), &gang));
    assert_eq!(pool.state_of(id), LeaseState::Held);
}

#[test]
fn the_hardest_member_of_a_gang_goes_first() {
    // Rank 0 fits on both nodes, rank 1 on the first one only: taken in order of rank they would collide there.
    let mut pool = Pool::new();
    pool.fund(renter(1), 100 * TOKEN);
    let mut small = a100(2, 0);
    small.whole = Some(Rate(2 * TOKEN));
    small.model = "other".into();
    pool.node(spec(1, vec![a100(1, 0)]));
    pool.node(spec(2, vec![small]));
    let mut request = ask(renter(1), &[SliceWant::Whole, SliceWant::Whole]);
    request.members[1].models = vec!["A100 80GB".into()];
    let id = pool.lease(request);
    let nodes: Vec<_> = pool.get(id).members.iter().map(|member| member.node).collect();
    assert_eq!(nodes, [node_id(2), node_id(1)]);
}

#[test]
fn a_member_stands_where_every_one_of_its_words_allows_it() {
    // Three machines, odd ones in the region eu.
    let mut pool = Pool::new();
    pool.fund(renter(1), 100 * TOKEN);
    for node in 1..=3 {
        let other = GpuSpec { model: "H100 80GB".into(), ..a100(node, 1) };
        pool.node(spec(node, vec![a100(node, 0), other]));
    }
    let where_to = |change: fn(&mut LeaseRequest)| {
        let mut request = ask(renter(1), &[share(100, 1)]);
        change(&mut request);
        let mut pool = pool.clone();
        let id = pool.lease(request);
        let member = &pool.get(id).members[0];
        (member.node, member.gpus[0])
    };
    let of = |node, rank| (node_id(node), gpu_id(node, rank));
    assert_eq!(where_to(|_| ()), of(1, 0));
    assert_eq!(where_to(|request| request.regions = vec!["us".into()]), of(2, 0));
    assert_eq!(where_to(|request| request.regions = vec!["asia".into(), "us".into()]), of(2, 0));
    assert_eq!(where_to(|request| request.members[0].gpu = Some(gpu_id(3, 1))), of(3, 1));
    assert_eq!(where_to(|request| request.members[0].models = vec!["B200".into(), "H100 80GB".into()]), of(1, 1));
    let nowhere = |change: fn(&mut LeaseRequest)| {
        let mut request = ask(renter(1), &[share(100, 1)]);
        change(&mut request);
        pool.clone().refusal(request).reason
    };
    assert_eq!(nowhere(|request| request.regions = vec!["asia".into()]), Reason::NoMatchingSlice);
    assert_eq!(nowhere(|request| request.members[0].gpu = Some(gpu_id(9, 0))), Reason::NoMatchingSlice);
    assert_eq!(nowhere(|request| request.members[0].disk_bytes = 1_025 * GIB), Reason::NoMatchingSlice);
    assert_eq!(nowhere(|request| request.members[0].net_mbps = 10_001), Reason::NoMatchingSlice);
}

#[test]
fn disk_and_bandwidth_of_a_node_are_shared_like_its_cpu() {
    for (disk_bytes, net_mbps) in [(600 * GIB, 0), (0, 6_000)] {
        let mut pool = Pool::small();
        let mut request = ask(renter(1), &[share(100, 1)]);
        (request.members[0].disk_bytes, request.members[0].net_mbps) = (disk_bytes, net_mbps);
        let first = pool.lease(request.clone());
        let second = pool.lease(request);
        assert_eq!(pool.state_of(first), LeaseState::Held);
        assert_eq!(pool.reason_of(second), Some(Reason::PoolFull));
        let miss = pool.get(second).nearest.clone().unwrap();
        let (need, have) = if net_mbps > 0 { (6_000, 4_000) } else { (600 * GIB, 424 * GIB) };
        assert_eq!((miss.need, miss.have), (need, have));
        let share = pool.state.shares().into_iter().find(|share| share.renter == renter(1)).unwrap();
        assert_eq!(share.resource, if net_mbps > 0 { "net" } else { "disk" });
    }
}

#[test]
fn who_waits_is_told_why_and_is_placed_when_room_comes_free() {
    let mut pool = Pool::small();
    let first = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    let second = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    let third = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    assert_eq!(pool.reason_of(second), Some(Reason::PoolFull));
    assert_eq!((pool.get(second).position, pool.get(third).position), (1, 2));
    assert_eq!(pool.get(second).nearest.as_ref().unwrap().gpu, Some(gpu_id(1, 0)));
    pool.run_up(first);
    pool.release(first);
    assert_eq!(pool.reason_of(second), Some(Reason::PoolFull));
    pool.report(first, 0, MemberEvent::Stopped { outputs: None }, 0);
    assert_eq!(pool.state_of(second), LeaseState::Held);
    assert_eq!(pool.get(third).position, 1);
    let mut now = ask(renter(1), &[SliceWant::Whole]);
    now.wait_ms = 0;
    let refusal = pool.refusal(now);
    assert_eq!(refusal.reason, Reason::PoolFull);
    assert!(refusal.nearest.is_some());
}

#[test]
fn candidates_say_for_every_gpu_what_it_offers_or_misses() {
    let mut pool = Pool::small();
    pool.node(spec(2, vec![a100(2, 0), a100(2, 1)]));
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole, SliceWant::Whole]));
    let list = pool.state.candidates(id);
    let verdicts: Vec<_> = list.iter().map(|one| (one.gpus.as_slice(), one.verdict.is_ok())).collect();
    // Equal wants are judged once; where it stands itself it fits.
    let of = |node, rank| [gpu_id(node, rank)];
    assert_eq!(verdicts, [(&of(1, 0)[..], true), (&of(2, 0)[..], true), (&of(2, 1)[..], true)]);
    let other = pool.lease(ask(renter(1), &vec![SliceWant::Whole; 3]));
    let list = pool.state.candidates(other);
    assert_eq!(list.iter().filter(|one| one.verdict.is_ok()).count(), 1, "what others hold is taken");
}

#[test]
fn what_is_free_on_a_gpu_follows_its_mode() {
    let mut pool = Pool::small();
    let free = |pool: &Pool| pool.state.free(node_id(1), gpu_id(1, 0)).unwrap();
    assert!(free(&pool).idle);
    assert_eq!(free(&pool).mig[0], ("1g.10gb".into(), 7));
    let id = pool.lease(ask(renter(1), &[share(400, 30)]));
    let now = free(&pool);
    assert_eq!((now.idle, now.compute_permille, now.mem_bytes, now.shares), (false, 600, 50 * GIB, 999));
    assert!(now.mig.iter().all(|(_, count)| *count == 0));
    pool.clear(id);
    pool.lease(ask(renter(1), &[mig("3g.40gb")]));
    let now = free(&pool);
    assert_eq!(now.compute_permille, 0);
    assert!(now.mig.contains(&("3g.40gb".into(), 1)));
    assert!(pool.state.free(node_id(1), gpu_id(1, 9)).is_none());
}

#[test]
fn one_step_places_at_most_256_members_and_the_next_goes_on() {
    let mut pool = Pool::small();
    pool.fund(renter(2), 1000 * TOKEN);
    let blocker = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    let mut one = ask(renter(2), &[share(1, 0)]);
    one.members[0].slice = SliceWant::Share { compute_permille: 1, mem_bytes: 1 };
    one.members[0].cpu_milli = 1;
    one.members[0].ram_bytes = 1;
    let ids: Vec<_> = (0..300).map(|_| pool.lease(one.clone())).collect();
    pool.release(blocker);
    let freed = pool.report(blocker, 0, MemberEvent::Failed { reason: Reason::SliceFailed }, 0);
    let held = |pool: &Pool| ids.iter().filter(|id| pool.state_of(**id) == LeaseState::Held).count();
    assert!(freed.more && pool.state.more);
    assert_eq!(held(&pool), 256);
    assert_eq!(pool.reason_of(*ids.last().unwrap()), Some(Reason::Queued));
    assert!(!pool.enter(Input::Continue).more);
    assert_eq!(held(&pool), 300);
}

#[test]
fn a_broken_chain_grants_nothing_more_and_lets_everybody_out() {
    let mut pool = Pool::small();
    let id = pool.lease(ask(renter(1), &[mig("1g.10gb")]));
    pool.run_up(id);
    let waits = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.enter(Input::ChainBroken { number: 1, had: selion_api::Hash32([1; 32]), has: selion_api::Hash32([2; 32]) });
    pool.now += 1000;
    pool.clear(id);
    assert_eq!(pool.reason_of(waits), Some(Reason::ChainBroken));
    assert_eq!(pool.refusal(ask(renter(1), &[mig("1g.10gb")])).reason, Reason::ChainBroken);
    assert_eq!(pool.release(waits), Answer::Done);
}

#[test]
fn a_pinned_member_goes_to_its_node_only() {
    let mut pool = Pool::small();
    pool.node(spec(2, vec![a100(2, 0)]));
    let mut request = ask(renter(1), &[mig("1g.10gb")]);
    request.members = vec![want(mig("1g.10gb"))];
    request.members[0].node = Some(node_id(2));
    let id = pool.lease(request);
    assert_eq!(pool.get(id).members[0].node, node_id(2));
    assert_eq!(pool.get(id).deadline.unwrap().0, pool.now + Policy::default().hold_ms);
    assert!(pool.get(id).request.duration_ms == HOUR);
}
