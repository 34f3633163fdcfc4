//! Where the pool charges for fragmentation: the surcharge is the same number in the quote, in the grant, in the
//! reserve and in the bill, whatever the others do, and the renter's highest rate binds the sum.

use selion_api::agent::MemberEvent;
use selion_api::lease::LeaseState;
use selion_api::{Amount, GpuId, LeaseId, LeaseRequest, Rate, Reason, SliceWant};
use selion_market::dry_run::Place;
use selion_market::{DryRun, Input, Policy, RequestLease, Stamp, dry_run};

use crate::pool::{DELEGATE, HOUR, Pool, TOKEN, a100, ask, gpu_id, mig, provider, renter, share, spec};

/// One node with so many A100, in a pool that charges that part of the shadow price.
fn pool(gpus: u8, permille: u16) -> Pool {
    let mut pool = Pool::new();
    pool.node(spec(1, (0..gpus).map(|rank| a100(1, rank)).collect()));
    for number in 1..4 {
        pool.fund(renter(number), 100 * TOKEN);
    }
    let policy = Policy { shadow_permille: permille, ..Policy::default() };
    pool.enter(Input::Opened { delegate: DELEGATE, policy });
    pool
}

fn places(pool: &Pool, request: &LeaseRequest) -> (Amount, Vec<Place>) {
    let mut request = request.clone();
    request.idem.0 = [0xdd; 32];
    let stamp = Stamp { seq: pool.state.next_seq, at_ms: selion_api::TimeMs(pool.now), fence: pool.fence };
    match dry_run(&pool.state, &stamp, &RequestLease { request, signature: None }) {
        DryRun::Starts { price, places } => (price.reserve, places),
        other => panic!("{other:?}"),
    }
}

fn rates(pool: &Pool, id: LeaseId) -> Vec<u64> {
    pool.get(id).members.iter().map(|member| member.rate.0).collect()
}

fn capped(slice: SliceWant, max: u64) -> LeaseRequest {
    LeaseRequest { max_rate: Some(Rate(max)), ..ask(renter(2), &[slice]) }
}

#[test]
fn nothing_is_charged_unless_the_pool_says_so() {
    let (mut free, mut half) = (pool(1, 0), pool(1, 500));
    let request = ask(renter(1), &[mig("3g.40gb")]);
    let (asked, charged) = (places(&free, &request).1.remove(0), places(&half, &request).1.remove(0));
    assert_eq!((asked.surcharge, asked.effect), (Rate::ZERO, charged.effect));
    assert_eq!(charged.surcharge.0, charged.effect.shadow.0 / 2);
    assert!(charged.surcharge > Rate::ZERO);
    assert_eq!(charged.rate.0, asked.rate.0 + charged.surcharge.0);
    let (free_id, half_id) = (free.lease(request.clone()), half.lease(request));
    assert_eq!(rates(&free, free_id), [asked.rate.0]);
    assert_eq!(rates(&half, half_id), [charged.rate.0]);
}

/// The rate is frozen: what comes and goes beside it, and another policy, change nothing.
#[test]
fn quote_grant_reserve_and_bill_are_of_one_rate_and_the_owner_gets_it_all() {
    let mut pool = pool(1, 1_000);
    pool.lease(ask(renter(2), &[mig("1g.10gb")]));
    let request = ask(renter(1), &[mig("2g.20gb")]);
    let (reserve, quoted) = places(&pool, &request);
    let id = pool.lease(request);
    assert_eq!(rates(&pool, id), [quoted[0].rate.0]);
    assert_eq!(pool.get(id).reserved, reserve);
    let Policy { grace_ms, .. } = Policy::default();
    assert_eq!(reserve, quoted[0].rate.reserve(pool.get(id).request.duration_ms + grace_ms));
    pool.run_up(id);
    pool.lease(ask(renter(2), &[mig("1g.10gb")]));
    pool.enter(Input::Opened { delegate: DELEGATE, policy: Policy::default() });
    pool.pass_ms(HOUR / 2);
    pool.report(id, 0, MemberEvent::Metered, HOUR / 2);
    pool.release(id);
    pool.report(id, 0, MemberEvent::Stopped { outputs: None }, HOUR / 2);
    assert_eq!(pool.state_of(id), LeaseState::Ended);
    let owed = pool.state.billed[&(renter(1), provider(1))];
    assert_eq!(owed, quoted[0].rate.bill(HOUR / 2));
}

/// A gang pays as if its members came one after the other by rank: together no more than the GPU's ask.
#[test]
fn the_members_of_a_gang_bear_the_ask_of_a_gpu_between_them() {
    let mut alone = pool(1, 1_000);
    let slices = ["1g.10gb", "3g.40gb", "2g.20gb"].map(mig);
    let request = ask(renter(1), &slices);
    let (_, quoted) = places(&alone, &request);
    let gang = alone.lease(request);
    let charged: u64 = quoted.iter().map(|place| place.surcharge.0).sum();
    assert!(charged > 0 && charged <= TOKEN, "{charged}");
    assert_eq!(rates(&alone, gang), quoted.iter().map(|place| place.rate.0).collect::<Vec<_>>());
    let gpu: Vec<GpuId> = quoted.iter().flat_map(|place| place.gpus.clone()).collect();
    assert_eq!(gpu, [gpu_id(1, 0); 3]);
}

#[test]
fn the_highest_rate_binds_the_sum() {
    let mut pool = pool(1, 500);
    // The first share of an idle GPU takes all MIG placements: half the ask of the GPU beside its own tenth.
    let first = capped(share(100, 8), TOKEN / 2 + TOKEN / 10);
    let id = pool.lease(LeaseRequest { max_rate: Some(Rate(TOKEN / 2)), ..first.clone() });
    assert_eq!((pool.state_of(id), pool.reason_of(id)), (LeaseState::Waiting, Some(Reason::PriceAboveMax)));
    let near = pool.get(id).nearest.clone().unwrap();
    assert_eq!((near.need, near.have), (TOKEN / 2 + TOKEN / 10, TOKEN / 2));
    // Beside another the same share destroys nothing more, so it is served in the same step as that one.
    let other = pool.lease(LeaseRequest { renter: renter(3), ..first });
    assert_eq!(rates(&pool, other), [TOKEN / 2 + TOKEN / 10]);
    assert_eq!(rates(&pool, id), [TOKEN / 10]);
}

/// A whole GPU is always alone on it: what it costs in an empty fleet is what it costs.
#[test]
fn a_whole_gpu_above_the_highest_rate_is_refused_at_once() {
    let mut pool = pool(1, 100);
    let refusal = pool.refusal(capped(SliceWant::Whole, TOKEN));
    assert_eq!(refusal.reason, Reason::PriceAboveMax);
    let whole = capped(SliceWant::Whole, TOKEN + TOKEN / 10);
    let id = pool.lease(whole);
    assert_eq!(rates(&pool, id), [TOKEN + TOKEN / 10]);
}

/// The renter pays the sum, so the sum orders places: the GPU without MIG asks more and is cheaper.
#[test]
fn the_lowest_sum_comes_first() {
    let mut pool = Pool::new();
    let plain = selion_api::GpuSpec { mig: None, whole: Some(Rate(TOKEN + 1)), ..a100(1, 1) };
    pool.node(spec(1, vec![a100(1, 0), plain]));
    pool.fund(renter(1), 100 * TOKEN);
    let first = places(&pool, &ask(renter(1), &[SliceWant::Whole])).1;
    assert_eq!(first[0].gpus, [gpu_id(1, 0)]);
    let policy = Policy { shadow_permille: 1, ..Policy::default() };
    pool.enter(Input::Opened { delegate: DELEGATE, policy });
    let then = places(&pool, &ask(renter(1), &[SliceWant::Whole])).1;
    assert_eq!((then[0].gpus[0], then[0].rate, then[0].surcharge), (gpu_id(1, 1), Rate(TOKEN + 1), Rate::ZERO));
}
