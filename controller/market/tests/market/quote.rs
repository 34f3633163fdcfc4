//! Quotes: a dry run is the run, thrown away.

use selion_api::agent::MemberEvent;
use selion_api::blocking::Constraint;
use selion_api::lease::LeaseState;
use selion_api::{Amount, LeaseRequest, Rate, Reason, Signature, SliceWant, TimeMs};
use selion_market::dry_run::{Fragmentation, Place, Price};
use selion_market::geometry::Use;
use selion_market::{Answer, DryRun, RequestLease, Stamp, dry_run};

use crate::pool::{HOUR, Pool, TOKEN, a100, ask, mig, node_id, renter, share, spec};

/// What `request` would get.
pub fn quote(pool: &Pool, request: &LeaseRequest) -> DryRun {
    let stamp = Stamp { seq: pool.state.next_seq, at_ms: TimeMs(pool.now), fence: pool.fence };
    dry_run(&pool.state, &stamp, &RequestLease { request: request.clone(), signature: None })
}

fn starts(pool: &Pool, request: &LeaseRequest) -> (Price, Vec<Place>) {
    match quote(pool, request) {
        DryRun::Starts { price, places } => (price, places),
        other => panic!("it does not start: {other:?}"),
    }
}

#[test]
fn a_quote_is_what_the_lease_then_gets_and_changes_nothing() {
    let mut pool = Pool::small();
    let before = pool.state.clone();
    let request = ask(renter(1), &[mig("3g.40gb"), mig("1g.10gb")]);
    let (price, places) = starts(&pool, &request);
    assert_eq!(pool.state, before);
    let reserve = Amount(300_417 + 100_139); // an hour and five seconds, of each, rounded up
    assert_eq!(price, Price { total: Amount(400_000), reserve, hourly: Rate(400_000), fee: Amount(8_000) });
    let id = pool.lease(request);
    let lease = pool.get(id);
    assert_eq!(lease.reserved, price.reserve);
    assert_eq!(places.len(), 2);
    for (place, member) in places.iter().zip(&lease.members) {
        let told = (place.node, place.provider, &place.gpus, &place.slot, place.class, place.rate);
        assert_eq!(told, (member.node, member.provider, &member.gpus, &member.slot, member.class, member.rate));
    }
}

#[test]
fn a_quote_that_waits_tells_position_reason_start_and_what_stands_in_the_way() {
    let mut pool = Pool::small();
    let first = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.run_up(first);
    pool.fund(renter(2), 1000 * TOKEN);
    pool.lease(ask(renter(2), &[SliceWant::Whole]));
    let DryRun::Waits { least, position, reason, nearest, starts, blocking } =
        quote(&pool, &ask(renter(1), &[SliceWant::Whole]))
    else {
        panic!("it waits");
    };
    assert_eq!((least.total, position), (Amount(TOKEN), 2));
    assert_eq!((reason, nearest.unwrap().node), (Some(Reason::PoolFull), node_id(1)));
    let booked = pool.state.booking.as_ref().unwrap().at;
    assert!(starts.unwrap() >= booked.plus(HOUR), "behind the booked one");
    assert_eq!(blocking.unwrap().constraints, [Constraint::Room]);
    // The lease itself is told the same.
    let id = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    assert_eq!((pool.get(id).position, pool.get(id).reason), (position, reason));
    assert_eq!(pool.state.estimate(id), starts);
}

#[test]
fn a_quote_is_refused_as_the_request_would_be() {
    let mut pool = Pool::small();
    let mut poor = ask(renter(9), &[SliceWant::Whole]);
    let mut dear = ask(renter(1), &[SliceWant::Whole]);
    dear.max_rate = Some(Rate(TOKEN - 1));
    let mut wrong = ask(renter(1), &[SliceWant::Whole]);
    wrong.duration_ms = 0;
    for (request, reason) in
        [(&mut poor, Reason::PaymentRequired), (&mut dear, Reason::PriceAboveMax), (&mut wrong, Reason::BadRequest)]
    {
        let DryRun::Refused(refusal) = quote(&pool, request) else {
            panic!("{reason:?}");
        };
        assert_eq!(refusal.reason, reason);
        assert_eq!(pool.refusal(request.clone()), refusal);
    }
}

#[test]
fn a_quote_under_the_key_of_an_old_request_is_of_a_new_one() {
    let mut pool = Pool::small();
    let mut request = ask(renter(1), &[mig("1g.10gb")]);
    request.idem.0[0] = 9;
    let id = pool.lease(request.clone());
    let (_, places) = starts(&pool, &request);
    assert_ne!(places[0].slot, pool.get(id).members[0].slot, "beside the first");
    assert_eq!(pool.request(request), Answer::Repeated(id));
}

#[test]
fn a_quote_counts_what_falls_due_meanwhile() {
    let mut pool = Pool::small();
    let first = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    pool.run_up(first);
    pool.pass_ms(HOUR);
    pool.all(first, &MemberEvent::Stopped { outputs: None });
    let second = pool.lease(ask(renter(1), &[SliceWant::Whole]));
    assert_eq!(pool.state_of(second), LeaseState::Held);
    // Its agent stays silent past the hold; no tick has come yet.
    let hold = pool.state.policy.hold_ms;
    pool.now += hold;
    assert!(matches!(quote(&pool, &ask(renter(1), &[SliceWant::Whole])), DryRun::Waits { .. }), "it is still stopping");
    pool.pass_ms(0);
    pool.all(second, &MemberEvent::Stopped { outputs: None });
    starts(&pool, &ask(renter(1), &[SliceWant::Whole]));
}

#[test]
fn those_who_fill_a_gpu_bear_its_ask_between_them() {
    let ask_whole = TOKEN;
    for order in [["3g.40gb", "3g.40gb", "1g.10gb"], ["1g.10gb", "3g.40gb", "3g.40gb"], ["7g.80gb", "", ""]] {
        let mut pool = Pool::small();
        let (mut shadow, mut destroyed, mut of) = (0, 0, 0);
        let mut count = 0;
        let mut fill = |pool: &mut Pool, slice: SliceWant| {
            let request = ask(renter(1), &[slice]);
            let DryRun::Starts { places, .. } = quote(pool, &request) else {
                return false;
            };
            let effect = places[0].effect;
            assert!(effect.destroys > 0, "at least its own place");
            assert_eq!(effect.shadow.0, u64::from(effect.destroys) * ask_whole / u64::from(effect.of));
            (shadow, destroyed, of, count) =
                (shadow + effect.shadow.0, destroyed + effect.destroys, effect.of, count + 1);
            pool.lease(request);
            true
        };
        for profile in order.into_iter().filter(|profile| !profile.is_empty()) {
            fill(&mut pool, mig(profile));
        }
        while ["1g.20gb", "1g.10gb"].into_iter().any(|rest| fill(&mut pool, mig(rest))) {}
        assert_eq!(destroyed, of, "{order:?}: nothing fits any more");
        assert!(shadow <= ask_whole && shadow + count > ask_whole, "{order:?}: {shadow}, but for rounding");
    }
}

#[test]
fn the_first_share_of_an_idle_gpu_bears_it_all_and_a_gpu_without_mig_nothing() {
    let gpu = a100(1, 0);
    let want = share(100, 8);
    let slot = selion_api::Slot::Share { compute_permille: 100, mem_bytes: 8 << 30 };
    let first = dry_run::effect(&gpu, &Use::Idle, &want, &slot).unwrap();
    assert_eq!((first.destroys, first.shadow), (first.of, Rate(TOKEN)));
    let mut used = Use::Idle;
    used.take(&gpu, &slot);
    let second = dry_run::effect(&gpu, &used, &want, &slot).unwrap();
    assert_eq!((second.destroys, second.shadow), (0, Rate(0)));
    let plain = selion_api::GpuSpec { mig: None, ..gpu };
    let none = dry_run::effect(&plain, &Use::Idle, &want, &slot);
    assert_eq!(none, Some(Fragmentation::default()));
    assert_eq!(dry_run::effect(&plain, &Use::Whole, &want, &slot), None, "no way to place it");
}

#[test]
fn a_signature_changes_no_quote() {
    let mut pool = Pool::new();
    pool.node(spec(1, vec![a100(1, 0)]));
    pool.fund(renter(1), 10 * TOKEN);
    let request = ask(renter(1), &[mig("2g.20gb")]);
    let stamp = Stamp { seq: pool.state.next_seq, at_ms: TimeMs(pool.now), fence: pool.fence };
    let signed = RequestLease { request: request.clone(), signature: Some(Signature::ZERO) };
    assert_eq!(dry_run(&pool.state, &stamp, &signed), quote(&pool, &request));
}
