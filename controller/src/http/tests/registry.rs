//! J4: registration and discovery.

use selion_api::chain::ComponentKind;

use super::*;

/// When the first entry runs out.
const SOON: TimeMs = TimeMs(NOW.0 + 1_000);

fn soon() -> TimeMs {
    SOON
}

fn just_before() -> TimeMs {
    TimeMs(SOON.0 - 1)
}

/// The endpoints that anybody finds, by a clock.
async fn found(pool: &Pool, clock: fn() -> TimeMs) -> Vec<String> {
    let router = router(App { clock, ..pool.app.clone() });
    let answer = router.oneshot(ask(Method::GET, "", "/v1/registry", &[], Body::empty())).await.unwrap();
    let body = to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    let view: Value = serde_json::from_slice(&body).unwrap();
    view["components"].as_array().unwrap().iter().map(|one| text(one, "endpoint").to_owned()).collect()
}

#[tokio::test]
async fn j4_a_registration_is_found_with_its_block_and_gone_when_its_time_is_over() {
    let (_dir, pool) = pool().await;
    assert!(found(&pool, clock).await.is_empty());
    let entry = |kind, endpoint: &str, until| ChainEvent::ComponentRegistered {
        owner: OWNER,
        kind,
        endpoint: endpoint.to_owned(),
        until,
    };
    let events = vec![
        entry(ComponentKind::Gateway, "http://gateway", SOON),
        entry(ComponentKind::Relay, "http://relay", NOW.plus(1 << 40)),
    ];
    let block = |number, events| Block { number, hash: Hash32([1; 32]), parent: Hash32::ZERO, events };
    pool.enter(Input::Block(block(2, events))).await;
    assert_eq!(found(&pool, clock).await, ["http://gateway", "http://relay"]);

    // No block comes: the time alone ends it.
    assert_eq!(found(&pool, just_before).await, ["http://gateway", "http://relay"]);
    assert_eq!(found(&pool, soon).await, ["http://relay"]);

    // Renewed elsewhere before that: the new place is found, the old one never again.
    let renewed = entry(ComponentKind::Gateway, "http://moved", NOW.plus(1 << 40));
    pool.enter(Input::Block(block(3, vec![renewed]))).await;
    assert_eq!(found(&pool, soon).await, ["http://moved", "http://relay"]);
}
