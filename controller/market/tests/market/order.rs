//! The order of service against published vectors of dominant resource fairness.

use selion_api::agent::MemberEvent;
use selion_api::{Account, LeaseRequest, Rate, Reason, SliceWant};
use selion_market::{Input, Policy, Seat};

use crate::pool::{DELEGATE, Pool, TOKEN, a100, ask, renter, spec};

const A: u8 = 1;
const B: u8 = 2;
const FILLER: u8 = 3;

/// A task of so many thousandths of a core and bytes, with next to no GPU.
fn task(of: u8, cpu_milli: u32, ram_bytes: u64) -> LeaseRequest {
    let slice = SliceWant::Share { compute_permille: 1, mem_bytes: 1 };
    let mut request = ask(renter(of), &[slice]);
    request.members[0].cpu_milli = cpu_milli;
    request.members[0].ram_bytes = ram_bytes;
    request
}

/// Fills a node, lets everybody queue, empties it, and tells who was served in which order.
fn serve(cpu_milli: u32, ram_bytes: u64, weights: &[(Account, u32)], tasks: &[LeaseRequest]) -> Vec<u8> {
    let mut pool = Pool::new();
    let seat = |(account, weight): &(Account, u32)| Seat { account: *account, group: String::new(), weight: *weight };
    let accounts = weights.iter().map(seat).collect();
    pool.enter(Input::Opened { delegate: DELEGATE, policy: Policy { accounts, ..Policy::default() } });
    let mut node = spec(1, vec![a100(1, 0)]);
    node.cpu_milli = cpu_milli;
    node.ram_bytes = ram_bytes;
    pool.node(node);
    for one in [A, B, FILLER] {
        pool.fund(renter(one), 1_000_000 * TOKEN);
    }
    let filler = pool.lease(task(FILLER, cpu_milli, ram_bytes));
    // Whoever comes first is booked and stays the head of the line. Here it leaves before there is room, so that nothing
    // but the order of service decides.
    let head = pool.lease(task(FILLER, cpu_milli, ram_bytes));
    for request in tasks {
        let id = pool.lease(request.clone());
        assert_eq!(pool.reason_of(id), Some(Reason::PoolFull));
    }
    pool.release(head);
    pool.release(filler);
    let before = pool.grants().len();
    pool.report(filler, 0, MemberEvent::Stopped { outputs: None }, 0);
    pool.grants()[before..].iter().map(|grant| grant.renter.0[0]).collect()
}

fn base_case(weights: &[(Account, u32)]) -> Vec<u8> {
    let (a, b) = (task(A, 1000, 4_000_000_000), task(B, 3000, 1_000_000_000));
    let mut tasks = vec![a; 6];
    tasks.extend(vec![b; 6]);
    serve(9000, 18_000_000_000, weights, &tasks)
}

#[test]
fn the_base_case_of_drf_is_served_a_b_a_b_a() {
    assert_eq!(base_case(&[]), [A, B, A, B, A]);
}

#[test]
fn weights_shift_the_order_as_published() {
    assert_eq!(base_case(&[(renter(A), 2)]), [A, B, A, A, A]);
    assert_eq!(base_case(&[(renter(B), 2)]), [A, B, B, A, A]);
}

#[test]
fn equal_weights_of_any_size_are_no_weights() {
    for weight in [0, 1, 7, u32::MAX] {
        assert_eq!(base_case(&[(renter(A), weight), (renter(B), weight)]), [A, B, A, B, A]);
    }
}

#[test]
fn larger_units_give_the_published_counts() {
    let (a, b) = (task(A, 2000, 300_000_000), task(B, 6000, 100_000_000));
    let mut tasks = vec![a; 25];
    tasks.extend(vec![b; 25]);
    let served = serve(100_000, 10_000_000_000, &[], &tasks);
    let count = |of| served.iter().filter(|one| **one == of).count();
    assert_eq!((count(A), count(B)), (20, 10));
}

#[test]
fn among_equal_shares_the_higher_price_goes_first_and_then_age() {
    let mut cheap = task(A, 9000, 1);
    cheap.max_rate = Some(Rate(20_000));
    let mut dear = task(B, 9000, 1);
    dear.max_rate = Some(Rate(30_000));
    assert_eq!(serve(9000, 10, &[], &[cheap.clone(), dear.clone()]), [B]);
    dear.max_rate = cheap.max_rate;
    assert_eq!(serve(9000, 10, &[], &[cheap.clone(), dear]), [A]);
    assert_eq!(serve(9000, 10, &[], &[cheap, task(B, 9000, 1)]), [B], "no limit is the highest");
}

#[test]
fn shares_name_the_dominant_resource_in_order_of_service() {
    let mut pool = Pool::small();
    pool.fund(renter(2), 100 * TOKEN);
    pool.lease(task(A, 32_000, 1));
    pool.lease(task(B, 1, 64 << 30));
    let shares = pool.state.shares();
    let told: Vec<_> = shares.iter().map(|share| (share.renter, share.permille, share.resource)).collect();
    assert_eq!(told, [(renter(2), 250, "ram"), (renter(1), 500, "cpu")]);
}
