//! Members of several GPUs: one process on whole GPUs of one model on one node.

use std::collections::BTreeMap;

use proptest::prelude::*;
use selion_api::agent::MemberEvent;
use selion_api::blocking::{Blocking, Constraint};
use selion_api::chain::ChainEvent;
use selion_api::lease::{LeaseState, Priority, Within};
use selion_api::slice::GpuSpec;
use selion_api::{Amount, GpuId, LeaseId, LeaseRequest, Rate, Reason, SliceWant};
use selion_market::dry_run::Fragmentation;
use selion_market::ledger::Pocket;
use selion_market::{Answer, DryRun, Effect, Input, Policy};

use crate::pool::{HOUR, Pool, TOKEN, a100, ask, gpu_id, kept, mig, node_id, provider, renter, share, spec};
use crate::quote::quote;

/// GPUs of a node with these asks, without MIG.
fn gpus(node: u8, asks: &[u64]) -> Vec<GpuSpec> {
    let gpu = |(rank, ask): (u8, &u64)| GpuSpec { mig: None, whole: Some(Rate(*ask)), ..a100(node, rank) };
    (0..).zip(asks).map(gpu).collect()
}

/// Nodes with such GPUs, and renters with money.
fn pool(nodes: Vec<Vec<GpuSpec>>) -> Pool {
    let mut pool = Pool::new();
    for (id, gpus) in (1..).zip(nodes) {
        pool.node(spec(id, gpus));
    }
    for one in 1..4 {
        pool.fund(renter(one), 10_000 * TOKEN);
    }
    pool
}

/// So many members of so many GPUs.
fn several(of: u8, members: usize, gpus: u16) -> LeaseRequest {
    let mut request = ask(renter(of), &vec![SliceWant::Whole; members]);
    request.members.iter_mut().for_each(|want| want.gpus = gpus);
    request
}

fn places(pool: &Pool, id: LeaseId) -> Vec<(u8, Vec<u8>)> {
    let rank = |id: &GpuId| id.0[15];
    pool.get(id).members.iter().map(|member| (member.node.0[0], member.gpus.iter().map(rank).collect())).collect()
}

/// A refusal's reason, what was needed and what there was.
fn refused(pool: &mut Pool, request: LeaseRequest) -> (Reason, u64, u64) {
    let refusal = pool.refusal(request);
    let nearest = refusal.nearest.unwrap();
    assert_eq!(nearest.reason, refusal.reason);
    (refusal.reason, nearest.need, nearest.have)
}

#[test]
fn a_member_gets_the_gpus_of_the_lowest_asks_and_a_grant_for_each_of_them() {
    let mut pool = pool(vec![gpus(1, &[50, 30, 40, 30])]);
    let id = pool.lease(several(1, 1, 3));
    assert_eq!(places(&pool, id), [(1, vec![1, 2, 3])], "in the order of the spec");
    assert_eq!(pool.get(id).members[0].rate, Rate(100));
    let grants: Vec<_> = pool.grants().into_iter().map(|grant| (grant.member, grant.gpu, grant.rate)).collect();
    let of = |rank, rate| (0, gpu_id(1, rank), Rate(rate));
    assert_eq!(grants, [of(1, 30), of(2, 40), of(3, 30)]);
    assert_eq!(pool.state.ledger.holds(Pocket::Reserved(renter(1))), Amount(kept(100)));
    assert_eq!(pool.state.nodes[&node_id(1)].held.len(), 1, "one process");
}

#[test]
fn a_member_is_freed_and_billed_once_at_the_sum_of_its_asks() {
    // Each ask alone is rounded down to 0 for a minute: only the sum tells.
    let mut pool = pool(vec![gpus(1, &[40, 40])]);
    let id = pool.lease(several(1, 1, 2));
    pool.run_up(id);
    pool.now += HOUR / 60;
    pool.report(id, 0, MemberEvent::Metered, HOUR / 60);
    pool.clear(id);
    let effects = pool.effects();
    let bills: Vec<_> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Billed(line) => Some((line.member, line.rate, line.amount)),
            _ => None,
        })
        .collect();
    assert_eq!(bills, [(0, Rate(80), Amount(1))]);
    assert_eq!(effects.iter().filter(|effect| matches!(effect, Effect::Freed { .. })).count(), 1);
    let again = pool.lease(several(1, 1, 2));
    assert_eq!(pool.state_of(again), LeaseState::Held, "both are free again");
}

#[test]
fn gpus_of_two_nodes_or_of_two_models_are_never_put_together() {
    let mut mixed = gpus(1, &[1, 1]);
    mixed[1].model = "H100 80GB".into();
    let mut pool = pool(vec![mixed, gpus(2, &[1])]);
    assert_eq!(refused(&mut pool, several(1, 1, 2)), (Reason::TooFewGpus, 2, 1));
    let mut hungry = several(1, 1, 2);
    hungry.members[0].cpu_milli = 65_000;
    assert_eq!(
        refused(&mut pool, hungry),
        (Reason::NoMatchingSlice, 65_000, 64_000),
        "the machine would not do either"
    );
}

#[test]
fn the_cheaper_of_two_models_is_taken() {
    let mut two = gpus(1, &[5, 9, 5, 9, 4]);
    for at in [1, 3] {
        two[at].model = "H100 80GB".into();
    }
    let mut pool = pool(vec![two]);
    let cheap = pool.lease(several(1, 1, 2));
    assert_eq!(places(&pool, cheap), [(1, vec![0, 4])]);
    let rest = pool.lease(several(1, 1, 2));
    assert_eq!(places(&pool, rest), [(1, vec![1, 3])], "one of the first model is left, two of the other");
}

#[test]
fn the_cap_of_the_price_is_on_the_sum() {
    let mut pool = pool(vec![gpus(1, &[50, 30, 40, 30])]);
    let capped = |gpus, max| LeaseRequest { max_rate: Some(Rate(max)), ..several(1, 1, gpus) };
    assert_eq!(refused(&mut pool, capped(2, 59)), (Reason::PriceAboveMax, 60, 59));
    let id = pool.lease(capped(2, 60));
    assert_eq!(places(&pool, id), [(1, vec![1, 3])]);
    let dear = pool.lease(capped(2, 60));
    let nearest = pool.get(dear).nearest.clone().unwrap();
    assert_eq!((nearest.reason, nearest.need, nearest.have), (Reason::PriceAboveMax, 90, 60), "what is left now");
    pool.clear(id);
    assert_eq!(places(&pool, dear), [(1, vec![1, 3])], "and the cheap ones when they come free");
}

#[test]
fn who_waits_is_told_how_many_gpus_are_free_and_starts_when_enough_are() {
    let mut pool = pool(vec![gpus(1, &[1; 4]), gpus(2, &[1; 2])]);
    let other = pool.lease(several(1, 1, 2));
    assert_eq!(places(&pool, other), [(2, vec![0, 1])], "four are kept together where two will do");
    let mut one = several(1, 1, 1);
    one.members[0].node = Some(node_id(1));
    let one = pool.lease(one);
    let waits = pool.lease(several(2, 1, 4));
    let nearest = pool.get(waits).nearest.clone().unwrap();
    assert_eq!((nearest.node, nearest.gpu), (node_id(1), None));
    assert_eq!((nearest.reason, nearest.need, nearest.have), (Reason::PoolFull, 4, 3));
    assert_eq!(pool.state.blocking(waits).unwrap().constraints, [Constraint::Gpus], "with fewer it would fit now");
    assert!(pool.state.estimate(waits).is_some(), "it is booked");
    pool.clear(one);
    assert_eq!(places(&pool, waits), [(1, vec![0, 1, 2, 3])]);
}

#[test]
fn who_could_only_fit_on_fewer_gpus_is_told_so() {
    let mut pool = pool(vec![gpus(1, &[1; 4]), gpus(2, &[1; 2])]);
    let full = pool.lease(several(1, 1, 4));
    let waits = pool.lease(several(2, 1, 4));
    pool.block(vec![ChainEvent::NodeRetired { node: node_id(1) }]);
    assert_eq!(pool.state_of(full), LeaseState::Held);
    let expected = Blocking { now: false, constraints: vec![Constraint::Gpus] };
    assert_eq!(pool.state.blocking(waits), Some(expected));
}

#[test]
fn a_gpu_that_is_shared_or_cut_is_not_idle() {
    for part in [share(100, 1), mig("1g.10gb")] {
        let mut pool = pool(vec![vec![a100(1, 0), a100(1, 1)]]);
        let id = pool.lease(ask(renter(1), &[part]));
        let waits = pool.lease(several(2, 1, 2));
        assert_eq!(pool.state_of(waits), LeaseState::Waiting);
        pool.clear(id);
        assert_eq!(pool.state_of(waits), LeaseState::Held);
    }
}

#[test]
fn members_of_several_gpus_stand_beside_each_other_as_a_gang() {
    let pool = pool(vec![gpus(1, &[1; 5]), gpus(2, &[1; 3])]);
    let goes = |members, within, min_nodes| {
        let mut pool = pool.clone();
        match pool.request(LeaseRequest { within, min_nodes, ..several(1, members, 2) }) {
            Answer::Created(id) => Ok(places(&pool, id).into_iter().map(|(node, _)| node).collect::<Vec<u8>>()),
            Answer::Refused(refusal) => Err((refusal.reason, refusal.nearest.map(|miss| (miss.need, miss.have)))),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(goes(2, Within::Node, 1), Ok(vec![1, 1]));
    let mut spread = goes(3, Within::Pool, 2).unwrap();
    spread.sort_unstable();
    assert_eq!(spread, [1, 1, 2]);
    assert_eq!(
        goes(4, Within::Pool, 1),
        Err((Reason::GangIncomplete, Some((4, 3)))),
        "the fifth and the third are left"
    );
}

#[test]
fn a_report_about_other_gpus_than_were_given_is_refused() {
    let mut pool = pool(vec![gpus(1, &[1; 3])]);
    let id = pool.lease(several(1, 1, 2));
    let given = pool.get(id).members[0].gpus.clone();
    let none = Vec::new();
    for gpus in [vec![given[0]], vec![given[1], given[0]], [given.clone(), vec![gpu_id(1, 2)]].concat(), none] {
        let mut report = pool.report_for(id, 0, MemberEvent::Accepted, 0);
        report.gpus = gpus;
        let answer = pool.send(report).answer;
        assert!(matches!(answer, Answer::Refused(refusal) if refusal.reason == Reason::NotAssigned));
    }
    pool.run_up(id);
}

#[test]
fn one_of_its_gpus_taken_back_ends_a_member_in_time() {
    let mut pool = pool(vec![gpus(1, &[1; 3])]);
    let id = pool.lease(several(1, 1, 2));
    pool.run_up(id);
    let back =
        |gpu| Input::Reclaim { provider: provider(1), node: node_id(1), gpu: Some(gpu), notice_ms: 1000, said: None };
    pool.enter(back(gpu_id(1, 2)));
    assert_eq!(pool.get(id).notice, None, "that one is not its own");
    pool.enter(back(gpu_id(1, 1)));
    assert_eq!(pool.get(id).notice.unwrap().by.0, pool.now + 1000);
    assert_eq!(refused(&mut pool, several(2, 1, 2)), (Reason::OwnerReclaimed, 0, 0), "one is not taken back");
    pool.pass_ms(1000);
    assert_eq!(pool.reason_of(id), Some(Reason::OwnerReclaimed));
}

#[test]
fn leases_of_a_lower_class_are_stopped_for_a_member_of_several_gpus_and_no_more_than_it_takes() {
    let mut pool = pool(vec![gpus(1, &[1; 3]), gpus(2, &[1])]);
    let low = |gpus| LeaseRequest { priority: Priority::Interruptible, duration_ms: 20 * HOUR, ..several(1, 1, gpus) };
    let running: Vec<LeaseId> = (0..4).map(|_| pool.lease(low(1))).collect();
    running.iter().for_each(|id| pool.run_up(*id));
    pool.now += Policy::default().min_run_ms;
    let high = pool.lease(LeaseRequest { priority: Priority::Firm, ..several(2, 1, 2) });
    let stopped: Vec<LeaseId> =
        running.into_iter().filter(|id| pool.reason_of(*id) == Some(Reason::Preempted)).collect();
    assert_eq!(stopped.len(), 2);
    stopped.iter().for_each(|id| pool.all(*id, &MemberEvent::Stopped { outputs: None }));
    assert_eq!(pool.get(high).members[0].node, node_id(1));
}

#[test]
fn what_is_booked_on_several_gpus_starts_there_though_cheaper_ones_came_free() {
    let mut pool = pool(vec![gpus(1, &[1, 1, 9, 9])]);
    let lasting = |hours, gpus| LeaseRequest { duration_ms: hours * HOUR, ..several(1, 1, gpus) };
    let (cheap, dear) = (pool.lease(lasting(9, 2)), pool.lease(lasting(1, 2)));
    [cheap, dear].into_iter().for_each(|id| pool.run_up(id));
    let waits = pool.lease(several(2, 2, 2));
    let booked = pool.state.booking.clone().unwrap();
    assert_eq!((booked.lease, booked.places.len()), (waits, 2));
    pool.clear(cheap);
    assert_eq!(pool.state_of(waits), LeaseState::Waiting);
    pool.clear(dear);
    assert_eq!(pool.state_of(waits), LeaseState::Held);
}

#[test]
fn a_quote_names_all_gpus_and_adds_up_what_they_lose() {
    let pool = pool(vec![vec![a100(1, 0), a100(1, 1)]]);
    let DryRun::Starts { price, places } = quote(&pool, &several(1, 1, 2)) else { panic!("it starts") };
    assert_eq!((price.hourly, price.total), (Rate(2 * TOKEN), Amount(2 * TOKEN)));
    assert_eq!(places[0].gpus, [gpu_id(1, 0), gpu_id(1, 1)]);
    let Fragmentation { destroys, of, shadow } = places[0].effect;
    assert_eq!((destroys, shadow), (of, Rate(2 * TOKEN)), "both are lost whole");
    let mut one = pool.clone();
    one.lease(several(1, 1, 1));
    assert_eq!(one.state.candidates(LeaseId { seq: 0, index: 0 }), []);
}

#[test]
fn candidates_are_told_by_model_and_node() {
    let mut pool = pool(vec![gpus(1, &[1; 3]), gpus(2, &[2])]);
    let id = pool.lease(several(1, 1, 2));
    let waits = pool.lease(several(2, 1, 2));
    let list = pool.state.candidates(waits);
    let misses: Vec<_> = list
        .iter()
        .map(|one| {
            (one.gpus.as_slice(), one.verdict.as_ref().map_err(|miss| (miss.reason, miss.need, miss.have)).err())
        })
        .collect();
    let none: &[GpuId] = &[];
    let full = (none, Some((Reason::PoolFull, 2, 1)));
    assert_eq!(misses, [full, (none, Some((Reason::TooFewGpus, 2, 1)))]);
    pool.clear(id);
    pool.clear(waits);
    let list = pool.state.candidates(waits);
    assert_eq!(list[0].gpus, [gpu_id(1, 0), gpu_id(1, 1)]);
    assert_eq!(list[0].verdict.as_ref().unwrap().rate, Rate(2));
}

#[test]
fn several_gpus_are_learned_as_one_want_and_make_slots_dear() {
    let slot = |request: LeaseRequest| {
        let mut pool = pool(vec![gpus(1, &[1, 1]), gpus(2, &[1, 1])]);
        pool.lease(request);
        pool.state.learned.prices.slot(1)
    };
    assert!(slot(several(1, 1, 2)) > 0);
    let apart = slot(several(1, 2, 1));
    assert_eq!(apart, 0);
    let together = |members, gpus| slot(LeaseRequest { within: Within::Node, ..several(1, members, gpus) });
    assert_eq!(together(2, 1), together(1, 2), "the same GPUs of one node");
}

#[test]
fn shares_and_totals_count_every_gpu_and_what_stands_beside_them_once() {
    let mut pool = pool(vec![gpus(1, &[1; 4])]);
    let one = pool.clone().lease(several(1, 1, 1));
    let held = |gpus| {
        let mut pool = pool.clone();
        pool.lease(several(1, 1, gpus));
        pool.state.tally.held[&renter(1)]
    };
    let (of_one, of_three) = (held(1), held(3));
    assert_eq!([of_three[0], of_three[1]], [3 * of_one[0], 3 * of_one[1]]);
    assert_eq!(of_three[2..], of_one[2..]);
    let id = pool.lease(several(1, 1, 3));
    assert_eq!((pool.get(id).size, one), (of_three, id));
}

/// A GPU: which model, its ask, whether it is taken.
type Kind = (u8, u64, bool);

/// The least sum of so many asks on one node and of one model, worked out plainly.
fn least(nodes: &[Vec<Kind>], count: usize, taken_too: bool) -> Option<u64> {
    let sums = nodes.iter().flat_map(|gpus| {
        let mut models: BTreeMap<u8, Vec<u64>> = BTreeMap::new();
        for (model, ask, taken) in gpus {
            if taken_too || !taken {
                models.entry(*model).or_default().push(*ask);
            }
        }
        models.into_values().filter(|asks| asks.len() >= count).map(|mut asks| {
            asks.sort_unstable();
            asks[..count].iter().sum::<u64>()
        })
    });
    sums.min()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_cheapest_gpus_of_one_model_on_one_node_are_given_or_none(
        nodes in prop::collection::vec(prop::collection::vec((0_u8..2, 1_u64..7, any::<bool>()), 1..7), 1..4),
        count in 1_u16..5,
        cap in prop::option::of(1_u64..25),
    ) {
        let of = |(rank, (model, ask, _)): (u8, &Kind), node: u8| GpuSpec {
            model: ["A100 80GB", "H100 80GB"][usize::from(*model)].into(),
            whole: Some(Rate(*ask)),
            mig: None,
            ..a100(node, rank)
        };
        let specs = (1_u8..).zip(&nodes).map(|(node, gpus)| (0_u8..).zip(gpus).map(|gpu| of(gpu, node)).collect());
        let mut pool = pool(specs.collect());
        for (node, gpus) in (1_u8..).zip(&nodes) {
            for (rank, _) in (0_u8..).zip(gpus).filter(|(_, (.., taken))| *taken) {
                let mut one = several(1, 1, 1);
                one.members[0].gpu = Some(gpu_id(node, rank));
                pool.lease(one);
            }
        }
        let fits = |least: Option<u64>| least.filter(|sum| cap.is_none_or(|cap| *sum <= cap));
        let (ever, now) = (least(&nodes, count.into(), true), least(&nodes, count.into(), false));
        match pool.request(LeaseRequest { max_rate: cap.map(Rate), ..several(2, 1, count) }) {
            Answer::Created(id) => {
                prop_assert!(fits(ever).is_some());
                let rate = pool.get(id).members.first().map(|member| member.rate.0);
                prop_assert_eq!(rate, fits(now));
            }
            Answer::Refused(refusal) => {
                prop_assert_eq!(fits(ever), None);
                let reason = if ever.is_some() { Reason::PriceAboveMax } else { Reason::TooFewGpus };
                prop_assert_eq!(refusal.reason, reason);
            }
            other => prop_assert!(false, "{:?}", other),
        }
    }
}
