use selion_api::chain::ComponentKind;
use selion_api::{Amount, Hash32, NodeId};
use selion_contracts::write::Call;

use super::*;
use crate::relay::tests::pool;

const NOW: TimeMs = TimeMs(1_800_000_000_000);

fn request(call: Call) -> ForwardRequest {
    let deadline_s = NOW.0 / 1_000 + 600;
    ForwardRequest { from: Account([9; 20]), to: call.to, gas: 200_000, nonce: 3, deadline_s, data: call.data }
}

fn judged(request: &ForwardRequest) -> Result<String, Refusal> {
    form(&pool().at, request, &[4; 65], NOW).map(|call| call.name)
}

#[test]
fn what_owners_and_renters_do_for_themselves_is_relayed() {
    let pool = pool();
    let (node, me, some) = (NodeId([4; 20]), Address([9; 20]), Amount(1));
    let consent = Signature([1; 65]);
    let calls = [
        ("registerProvider", pool.register_provider(me, some)),
        ("unbond", pool.unbond(some)),
        ("withdrawStake", pool.withdraw_stake()),
        ("setPayout", pool.set_payout(Account([4; 20]), me)),
        ("registerNode", pool.register_node(node, &consent)),
        ("retireNode", pool.retire_node(node)),
        ("setOffer", pool.set_offer(node, Hash32([5; 32]), 1, "bafy")),
        ("closeOffer", pool.close_offer(node)),
        ("registerComponent", pool.register_component(ComponentKind::Gateway, "http://g", NOW)),
        ("setLicence", pool.set_licence(Account([4; 20]), Hash32([5; 32]), 3, NOW)),
        ("deposit", pool.deposit(some)),
        ("enter", pool.enter(some, me, NOW)),
        ("grant", pool.grant(me, some, NOW)),
        ("revoke", pool.revoke(me)),
        ("thaw", pool.thaw(some)),
        ("withdraw", pool.withdraw(me)),
        ("cashOut", pool.cash_out(Account([4; 20]))),
    ];
    for (name, call) in calls {
        assert_eq!(judged(&request(call)), Ok(name.to_owned()));
    }
}

#[test]
fn nothing_of_the_authority_is_relayed_whoever_signed_it() {
    let pool = pool();
    let calls = [
        pool.replace_authority(Account([9; 20]), &Signature([1; 65])),
        pool.announce_owner(Account([9; 20])),
        pool.anchor(1, 2, Hash32([1; 32]), Hash32([2; 32])),
        pool.cash_out_fees(1, Address([9; 20])),
        pool.set_standby(Account([9; 20]), true),
        pool.renew(),
        pool.take_over(),
        pool.claim_many(&[]),
    ];
    for call in calls {
        assert!(matches!(judged(&request(call)), Err(Refusal::NotRelayed { .. })));
    }
}

#[test]
fn another_contract_another_function_and_other_arguments_are_no_call_of_the_pool() {
    let pool = pool();
    let elsewhere = Call { to: Address([7; 20]), ..pool.thaw(Amount(1)) };
    assert!(matches!(judged(&request(elsewhere)), Err(Refusal::NotACall(NotACall::Elsewhere { .. }))));
    let unknown = Call { to: pool.at.vault, data: vec![1, 2, 3, 4] };
    assert!(matches!(judged(&request(unknown)), Err(Refusal::NotACall(NotACall::Unknown { .. }))));
    let mut longer = pool.thaw(Amount(1));
    longer.data.push(0);
    assert!(matches!(judged(&request(longer)), Err(Refusal::NotACall(NotACall::Arguments { .. }))));
}

#[test]
fn of_the_token_permits_for_the_pools_own_contracts_are_relayed_and_nothing_else() {
    let pool = pool();
    for call in [pool.mint(Address([9; 20]), 1), pool.approve_vault()] {
        assert!(matches!(judged(&request(call)), Err(Refusal::NotRelayed { contract: Contract::Token, .. })));
    }
    let owner = Account([9; 20]);
    let deadline_s = NOW.0 / 1_000 + 600;
    let signature = Signature([4; 65]);
    let of = |owner, spender, deadline_s| {
        let permit = Permit::endless(owner, spender, 3, deadline_s);
        let request = request(permit.call(pool.at.token, &signature));
        (permit, judged(&request), super::permit(&pool.at, &request, &signature.0), request)
    };
    for spender in [pool.at.controller, pool.at.vault, pool.at.court] {
        let (permit, named, read, _) = of(owner, spender, deadline_s);
        assert_eq!((named, read), (Ok("permit".into()), Ok((permit, signature))));
    }
    for spender in [pool.at.token, Address([9; 20]), Address::ZERO] {
        assert_eq!(of(owner, spender, deadline_s).2, Err(Refusal::Spender { spender, at: Box::new(pool.at) }));
    }
    // Only what is signed counts for the token, so the request may not say anything else.
    let differs = |what| Err(Refusal::Differs { what });
    assert_eq!(of(Account([8; 20]), pool.at.vault, deadline_s).2, differs("the owner"));
    assert_eq!(of(owner, pool.at.vault, deadline_s + 1).2, differs("the deadline"));
    let request = of(owner, pool.at.vault, deadline_s).3;
    assert_eq!(permit(&pool.at, &request, &[5; 65]), differs("the signature"));
}

#[test]
fn gas_length_and_time_have_bounds_that_are_told() {
    let whole = request(pool().thaw(Amount(1)));
    for (gas, taken) in [(0, false), (1, true), (MOST_GAS, true), (MOST_GAS + 1, false)] {
        let judged = judged(&ForwardRequest { gas, ..whole.clone() });
        assert_eq!(judged.is_ok(), taken, "{gas}");
        assert!(taken || judged == Err(Refusal::Gas { gas }));
    }
    let now = NOW.0 / 1_000;
    for (deadline_s, taken) in
        [(now - 1, false), (now, false), (now + 1, true), (now + 3_600, true), (now + 3_601, false)]
    {
        assert_eq!(judged(&ForwardRequest { deadline_s, ..whole.clone() }).is_ok(), taken, "{deadline_s}");
    }
    let late = judged(&ForwardRequest { deadline_s: now, ..whole.clone() });
    assert_eq!(late, Err(Refusal::Lapsed { deadline: NOW.0, now: NOW.0 }));
    let far = judged(&ForwardRequest { deadline_s: u64::MAX, ..whole.clone() });
    assert!(matches!(far, Err(Refusal::TooFar { latest, .. }) if latest == NOW.0 + HOUR_MS));
    let long = ForwardRequest { data: vec![0; MOST_DATA + 1], ..whole.clone() };
    assert!(matches!(judged(&long), Err(Refusal::TooLong { what: "data", .. })));
    let signed = form(&pool().at, &whole, &[0; MOST_SIGNATURE + 1], NOW);
    assert!(matches!(signed, Err(Refusal::TooLong { what: "signature", .. })));
}

#[test]
fn only_the_next_nonce_counts() {
    let request = request(pool().thaw(Amount(1)));
    assert_eq!(nonce(&request, 3), Ok(()));
    for next in [2, 4] {
        assert_eq!(nonce(&request, next), Err(Refusal::Nonce { from: request.from, given: 3, next }));
    }
}

#[test]
fn an_allowance_is_an_accounts_a_peers_and_everybodys_and_comes_back_with_time() {
    let window = |count, ago| Window { count, oldest: TimeMs(NOW.0 - ago) };
    assert_eq!(budget(&Spent::default(), 0, NOW), Err(Refusal::Off));
    assert_eq!(budget(&Spent::default(), 1, NOW), Ok(()));
    let refused = |spent: Spent| match budget(&spent, 100, NOW) {
        Err(Refusal::OverBudget { whose, wait_s, .. }) => (whose, wait_s),
        other => panic!("{other:?}"),
    };
    let spent = |account, peer, all| Spent { account, peer, all };
    let none = Window::default();
    assert_eq!(budget(&spent(window(19, 0), window(59, 0), window(99, 0)), 100, NOW), Ok(()));
    assert_eq!(refused(spent(window(20, HOUR_MS - 1_500), none, none)), ("this account", 2));
    assert_eq!(refused(spent(none, window(60, 0), none)), ("this network address", 3_600));
    assert_eq!(refused(spent(none, none, window(100, DAY_MS - 1))), ("all accounts together", 1));
}
