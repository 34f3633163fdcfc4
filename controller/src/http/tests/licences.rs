//! Licences with seats.

use std::collections::BTreeSet;

use selion_api::slice::{BoxFeature, BoxFeatures, IsolationClass, ShareTerms};
use serde_json::json;

use super::*;

const ISSUER: Account = Account([0x15; 20]);

/// Alice gets so many seats of the issuer's `solver`.
async fn seats(pool: &Pool, number: u64, seats: u32) {
    let mut product = Hash32::ZERO;
    product.0[..6].copy_from_slice(b"solver");
    let until = NOW.plus(1 << 40);
    let events = vec![ChainEvent::LicenceSet { issuer: ISSUER, holder: ALICE, product, seats, until }];
    let block = Block { number, hash: Hash32([1; 32]), parent: Hash32::ZERO, events };
    pool.enter(Input::Block(block)).await;
}

/// A node on which many small leases stand beside each other.
async fn roomy(pool: &Pool) -> NodeSpec {
    let mut spec = NodeSpec {
        node: NodeId([0x5e; 20]),
        ports: 400,
        cpu_milli: 200_000,
        features: BoxFeatures::NONE.with(BoxFeature::Gang),
        ..spec()
    };
    spec.gpus[0].gpu = GpuId([8; 16]);
    spec.gpus[0].share =
        Some(ShareTerms { rate: Rate(1_000_000), max_shares: 1_000, class: IsolationClass::Simulated });
    let events = vec![
        ChainEvent::NodeRegistered { node: spec.node, provider: OWNER },
        ChainEvent::OfferSet { node: spec.node, spec_hash: spec.hash(), classes: spec.classes() },
    ];
    pool.enter(Input::Block(Block { number: 2, hash: Hash32([1; 32]), parent: Hash32::ZERO, events })).await;
    pool.enter(Input::modelled_link(spec.clone(), 0)).await;
    spec
}

fn small() -> Value {
    let mut body = want();
    body["members"] = json!([{"slice": {"kind": "share", "compute_permille": 10, "mem_bytes": 1 << 28}}]);
    body["licence"] = json!(format!("{ISSUER}/solver"));
    body
}

#[tokio::test]
async fn j5_the_seat_limit_holds_under_races_and_seats_return_on_a_crash() {
    let (_dir, pool) = pool().await;
    let spec = roomy(&pool).await;
    seats(&pool, 3, 3).await;
    let (alice, body) = (pool.alice(), small());
    let keys: Vec<String> = (0..24).map(|key| format!("key-{key}")).collect();
    let posts = keys.iter().map(|key| {
        let (pool, alice, body) = (&pool, &alice, &body);
        async move { pool.post(alice, "/v1/leases", &[("idempotency-key", key)], body).await }
    });
    let replies = futures::future::join_all(posts).await;
    assert!(replies.iter().all(|reply| reply.status == StatusCode::CREATED), "all wait or sit");
    let state = async |id: &str| pool.get(&alice, &format!("/v1/leases/{id}")).await.json();
    let ids: Vec<String> = replies.iter().map(|reply| id(&reply.json())).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    let mut sitting = Vec::new();
    for one in &ids {
        let lease = state(one).await;
        match lease["state"].as_str().unwrap() {
            "held" => sitting.push(one),
            other => assert_eq!((other, &lease["waiting"]["reason"]), ("waiting", &json!("no_seat"))),
        }
    }
    assert_eq!(sitting.len(), 3, "as many as there are seats");
    let view = pool.get(&alice, "/v1/licences").await.json();
    assert_eq!((&view["licences"][0]["used"], &view["licences"][0]["seats"]), (&json!(3), &json!(3)), "{view}");

    // Their machine dies, and comes back: the three are over, their seats are free, and three others sit.
    pool.enter(Input::Lost { node: spec.node, last_seq: 0 }).await;
    assert_eq!(pool.get(&alice, "/v1/licences").await.json()["licences"][0]["used"], 0);
    for one in &sitting {
        let lease = state(one).await;
        assert_eq!((&lease["state"], &lease["reason"]), (&json!("ended"), &json!("node_lost")));
    }
    pool.enter(Input::modelled_link(spec, 0)).await;
    let mut now = 0;
    for one in &ids {
        now += usize::from(state(one).await["state"] == "held");
    }
    assert_eq!(now, 3);
}

#[tokio::test]
async fn holder_and_issuer_see_a_licence_and_nobody_else_does() {
    let (_dir, pool) = pool().await;
    roomy(&pool).await;
    seats(&pool, 3, 1).await;
    assert_eq!(pool.post(&pool.alice(), "/v1/leases", &[("idempotency-key", "k")], &small()).await.status, 201);
    let issuer = pool.token(Caller::Renter(ISSUER));
    for token in [pool.alice(), issuer] {
        let view = pool.get(&token, "/v1/licences").await.json();
        let row = &view["licences"][0];
        assert_eq!((&row["licence"], &row["holder"]), (&json!(format!("{ISSUER}/solver")), &json!(ALICE)), "{view}");
        assert_eq!((&row["seats"], &row["used"], &row["over"]), (&json!(1), &json!(1), &json!(false)));
    }
    let view = pool.get(&pool.bob(), "/v1/licences").await.json();
    assert_eq!(view["licences"], json!([]));
}

#[tokio::test]
async fn pages_of_licences_joined_by_their_tokens_are_the_list() {
    let (_dir, pool) = pool().await;
    let products: Vec<Hash32> = (1..6).map(|number| Hash32([number; 32])).collect();
    let set = |product: &Hash32| ChainEvent::LicenceSet {
        issuer: ISSUER,
        holder: ALICE,
        product: *product,
        seats: 1,
        until: NOW,
    };
    let events = products.iter().map(set).collect();
    pool.enter(Input::Block(Block { number: 2, hash: Hash32([1; 32]), parent: Hash32::ZERO, events })).await;
    let (mut seen, mut path) = (Vec::new(), "/v1/licences?page_size=2".to_owned());
    loop {
        let page = pool.get(&pool.alice(), &path).await.json();
        seen.extend(page["licences"].as_array().unwrap().iter().map(|row| row["licence"].clone()));
        assert!(page["licences"].as_array().unwrap().iter().all(|row| row["over"] == true));
        let Some(token) = page["next_page_token"].as_str() else { break };
        path = format!("/v1/licences?page_size=2&page_token={token}");
    }
    let all: Vec<Value> = products.iter().map(|product| json!(format!("{ISSUER}/{product}"))).collect();
    assert_eq!(seen, all);
}

#[tokio::test]
async fn a_lease_without_a_licence_in_force_is_refused_with_what_there_is_and_a_bad_one_names_its_form() {
    let (_dir, pool) = pool().await;
    roomy(&pool).await;
    seats(&pool, 3, 2).await;
    let alice = pool.alice();
    let mut three = small();
    three["members"] = json!(vec![three["members"][0].clone(); 3]);
    let reply = pool.post(&alice, "/v1/leases", &[("idempotency-key", "a")], &three).await;
    assert_eq!(reply.fault(), (409, "no_licence".to_owned()));
    let problem = reply.json();
    assert_eq!((&problem["nearest"]["need"], &problem["nearest"]["have"]), (&json!(3), &json!(2)), "{problem}");
    let mut hasty = small();
    hasty["members"] = json!(vec![hasty["members"][0].clone(); 2]);
    pool.post(&alice, "/v1/leases", &[("idempotency-key", "b")], &hasty).await;
    hasty["wait_ms"] = json!(0);
    let reply = pool.post(&alice, "/v1/leases", &[("idempotency-key", "c")], &hasty).await;
    assert_eq!(reply.fault(), (409, "no_seat".to_owned()));
    assert_eq!(reply.json()["retryable"], true);
    let reply = pool.post(&alice, "/v1/leases?dry_run=true", &[], &small()).await;
    let quote = reply.json();
    assert_eq!(
        (&quote["reason"], &quote["blocking"]["constraints"]),
        (&json!("no_seat"), &json!(["licence"])),
        "{quote}"
    );
    let mut bad = small();
    bad["licence"] = json!("solver");
    let reply = pool.post(&alice, "/v1/leases", &[("idempotency-key", "d")], &bad).await;
    assert!((400..423).contains(&reply.status.as_u16()) && reply.text().contains("ISSUER/PRODUCT"), "{}", reply.text());
}
