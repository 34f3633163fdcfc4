//! Asking, repeating, listing, waiting.

use ethers_signers::Signer;
use selion_api::Signature;
use selion_api::commit::signing_digest;
use selion_api::rest::NewLease;
use serde_json::json;

use super::*;

#[tokio::test]
async fn equal_posts_at_one_time_make_one_lease_and_equal_answers_also_after_a_restart() {
    let (dir, pool) = pool().await;
    let alice = pool.alice();
    let body = want();
    let headers = [("idempotency-key", "once")];
    let posts = (0..16).map(|_| pool.post(&alice, "/v1/leases", &headers, &body));
    let replies = futures::future::join_all(posts).await;
    assert_eq!(replies[0].status.as_u16(), 201);
    assert!(replies.iter().all(|reply| reply.body == replies[0].body && reply.status == replies[0].status));
    assert_eq!(pool.get(&alice, "/v1/leases").await.json()["leases"].as_array().unwrap().len(), 1);
    assert_eq!(replies[0].header("location"), format!("/v1/leases/{}", id(&replies[0].json())));
    // What became of the lease since does not change the answer.
    let release = format!("/v1/leases/{}/release", id(&replies[0].json()));
    assert_eq!(pool.post(&alice, &release, &[], &json!(null)).await.status.as_u16(), 200);

    pool.close().await;
    let again = Pool::open(dir.path(), 1000).await;
    let late = again.post(&again.alice(), "/v1/leases", &headers, &body).await;
    assert_eq!(late.body, replies[0].body);
}

#[tokio::test]
async fn one_key_with_another_body_is_refused_and_none_is_asked_for() {
    let (_dir, pool) = pool().await;
    let alice = pool.alice();
    pool.lease(&alice, "k").await;
    let mut other = want();
    other["command"] = json!(["false"]);
    let reply = pool.post(&alice, "/v1/leases", &[("idempotency-key", "k")], &other).await;
    assert_eq!(reply.fault(), (422, "idempotency_mismatch".to_owned()));
    let reply = pool.post(&alice, "/v1/leases", &[], &want()).await;
    assert_eq!(reply.fault(), (400, "bad_header".to_owned()));
    for key in ["", "a b", "\"\""] {
        let reply = pool.post(&alice, "/v1/leases", &[("idempotency-key", key)], &want()).await;
        assert_eq!(reply.fault().0, 400, "{key:?}");
    }
    // Another renter's key of the same text is another key.
    pool.lease(&pool.bob(), "k").await;
}

#[tokio::test]
async fn a_refusal_names_its_reason_the_nearest_miss_and_is_counted() {
    let (_dir, pool) = pool().await;
    let mut dear = want();
    dear["max_rate"] = json!("999999");
    dear["wait_ms"] = json!(0);
    let reply = pool.post(&pool.alice(), "/v1/leases", &[("idempotency-key", "k")], &dear).await;
    assert_eq!(reply.fault(), (409, "price_above_max".to_owned()));
    let nearest = &reply.json()["nearest"];
    assert_eq!((&nearest["node"], &nearest["reason"]), (&json!(NODE), &json!("price_above_max")), "{nearest}");
    let metrics = pool.get(&pool.token(Caller::Renter(OPERATOR)), "/metrics").await.text();
    assert!(metrics.contains(r#"selion_refusals_total{reason="price_above_max"} 1"#), "{metrics}");
    assert!(metrics.contains(r#"selion_http_requests_total{route="/v1/leases",status="409"} 1"#), "{metrics}");
    assert!(metrics.contains("selion_nodes_linked 1"), "{metrics}");
}

#[tokio::test]
async fn what_a_lease_runs_is_kept_and_what_a_refused_request_would_have_run_is_not() {
    let (_dir, pool) = pool().await;
    let works = async || {
        let count = sqlx::query_scalar::<_, i64>("select count(*) from work");
        count.fetch_one(&pool.app.store.readers).await.unwrap()
    };
    let mut dear = want();
    dear["max_rate"] = json!("1");
    let reply = pool.post(&pool.alice(), "/v1/leases", &[("idempotency-key", "a")], &dear).await;
    assert_eq!(reply.fault(), (409, "price_above_max".to_owned()));
    assert_eq!(works().await, 0);
    pool.lease(&pool.alice(), "b").await;
    assert_eq!(works().await, 1);
}

#[tokio::test]
async fn pages_of_leases_joined_by_their_tokens_are_the_list() {
    let (_dir, pool) = pool().await;
    let alice = pool.alice();
    let mut made = Vec::new();
    for key in ["a", "b", "c", "d", "e"] {
        made.push(id(&pool.lease(&alice, key).await));
    }
    made.reverse();
    let (mut seen, mut path) = (Vec::new(), "/v1/leases?page_size=2".to_owned());
    loop {
        let page = pool.get(&alice, &path).await.json();
        seen.extend(page["leases"].as_array().unwrap().iter().map(id));
        let Some(token) = page["next_page_token"].as_str() else { break };
        path = format!("/v1/leases?page_size=2&page_token={token}");
    }
    assert_eq!(seen, made);
    // A token of one list is none of another.
    let token = pool.get(&alice, "/v1/leases?page_size=2").await.json()["next_page_token"].clone();
    let other = format!("/v1/nodes?page_token={}", token.as_str().unwrap());
    assert_eq!(pool.get(&alice, &other).await.fault(), (422, "bad_query".to_owned()));
}

#[tokio::test]
async fn a_wait_ends_when_the_state_is_there_when_it_cannot_come_and_when_time_is_up() {
    let (_dir, pool) = pool().await;
    let alice = pool.alice();
    let first = id(&pool.lease(&alice, "a").await);
    let second = id(&pool.lease(&alice, "b").await);
    let wait = |id: &str, state: &str, ms: u32| format!("/v1/leases/{id}/wait?state={state}&timeout_ms={ms}");

    let held = pool.get(&alice, &wait(&first, "held", 1000)).await;
    assert_eq!((held.status.as_u16(), held.json()["id"].clone()), (200, json!(first)));
    let late = pool.get(&alice, &wait(&second, "active", 1)).await;
    assert_eq!(late.fault(), (408, "wait_timeout".to_owned()));

    // Woken by the change, not by a poll.
    let path = wait(&second, "active", 60_000);
    let waiting = pool.get(&alice, &path);
    let release = format!("/v1/leases/{second}/release");
    let (waited, released) = tokio::join!(waiting, pool.post(&alice, &release, &[], &Value::Null));
    assert_eq!(released.status.as_u16(), 200);
    assert_eq!(waited.fault(), (409, "state_unreachable".to_owned()));
    assert_eq!(pool.get(&alice, &wait(&second, "ended", 1)).await.status.as_u16(), 200);
    let again = pool.post(&alice, &release, &[], &Value::Null).await;
    assert_eq!(again.fault(), (409, "not_live".to_owned()));
}

#[tokio::test]
async fn a_waiting_lease_shows_its_position_and_how_every_gpu_looks_to_it() {
    let (_dir, pool) = pool().await;
    pool.lease(&pool.alice(), "a").await;
    let bob = pool.bob();
    let lease = pool.lease(&bob, "b").await;
    assert_eq!(lease["state"], json!("waiting"));
    assert_eq!(lease["waiting"]["position"], json!(1));
    let view = pool.get(&bob, &format!("/v1/leases/{}/placement", id(&lease))).await.json();
    let candidate = &view["candidates"][0];
    assert_eq!((&candidate["node"], &candidate["slot"]), (&json!(NODE), &Value::Null), "{view}");
    assert!(candidate["reason"].is_string(), "{view}");
    let shares = pool.get(&bob, "/v1/shares").await.json();
    let of = |account: Account| {
        shares["shares"].as_array().unwrap().iter().find(|share| share["account"] == json!(account)).unwrap().clone()
    };
    assert_eq!((&of(BOB)["waiting"], &of(ALICE)["live"]), (&json!(1), &json!(1)), "{shares}");
    assert_eq!(shares["shares"][0]["account"], json!(BOB), "lowest share first");
}

#[tokio::test]
async fn a_signature_is_checked_and_shown_and_no_signature_is_marked() {
    let (_dir, pool) = pool().await;
    let me = pool.token(Caller::Renter(wallet_account()));
    assert_eq!(pool.lease(&me, "plain").await["signed"], json!(false));

    let salt = Hash32([4; 32]);
    let mut body: NewLease = serde_json::from_value(want()).unwrap();
    let digest = signing_digest(&POOL, "lease", &body.request(wallet_account(), "signed", &salt, Vec::new()));
    let signature = Signature(wallet().sign_message(digest.0).await.unwrap().into());
    (body.salt, body.signature) = (Some(salt), Some(signature));
    let good = serde_json::to_value(&body).unwrap();
    let reply = pool.post(&me, "/v1/leases", &[("idempotency-key", "signed")], &good).await;
    assert_eq!((reply.status.as_u16(), &reply.json()["signed"]), (201, &json!(true)), "{}", reply.text());

    // The same signature for another key of idempotency, another renter, another salt.
    let wrong_key = pool.post(&me, "/v1/leases", &[("idempotency-key", "other")], &good).await;
    assert_eq!(wrong_key.fault(), (422, "bad_signature".to_owned()));
    let stolen = pool.post(&pool.bob(), "/v1/leases", &[("idempotency-key", "signed")], &good).await;
    assert_eq!(stolen.fault(), (422, "bad_signature".to_owned()));
    let mut no_salt = good;
    no_salt["salt"] = Value::Null;
    let reply = pool.post(&me, "/v1/leases", &[("idempotency-key", "signed")], &no_salt).await;
    assert_eq!(reply.json()["errors"][0]["pointer"], json!("/salt"));
}

#[tokio::test]
async fn a_signed_request_makes_one_lease_also_after_its_key_is_forgotten() {
    let (dir, pool) = pool().await;
    let me = pool.token(Caller::Renter(wallet_account()));
    let salt = Hash32([4; 32]);
    let mut body: NewLease = serde_json::from_value(want()).unwrap();
    let digest = signing_digest(&POOL, "lease", &body.request(wallet_account(), "signed", &salt, Vec::new()));
    let signature = Signature(wallet().sign_message(digest.0).await.unwrap().into());
    (body.salt, body.signature) = (Some(salt), Some(signature));
    let signed = serde_json::to_value(&body).unwrap();
    let asked = [("idempotency-key", "signed")];
    let first = pool.post(&me, "/v1/leases", &asked, &signed).await;
    let again = pool.post(&me, "/v1/leases", &asked, &signed).await;
    assert_eq!((again.status.as_u16(), again.body), (201, first.body), "for a day it is answered with its lease");
    LATER.set(25 * 3_600_000);
    let (me, before) = (pool.token(Caller::Renter(wallet_account())), pool.app.log.position().entry);
    let late = pool.post(&me, "/v1/leases", &asked, &signed).await;
    assert_eq!((late.status.as_u16(), &late.json()["errors"][0]["code"]), (422, &json!("repeated")), "{}", late.text());
    assert_eq!(pool.app.log.position().entry, before, "nothing of it is entered");
    // So it is after a restart with a copy of nothing but the log.
    let mut rows = pool.app.store.writer.acquire().await.unwrap();
    crate::store::rows::clear(&mut rows).await.unwrap();
    drop(rows);
    pool.close().await;
    let pool = Pool::open(dir.path(), 1000).await;
    let late = pool.post(&me, "/v1/leases", &asked, &signed).await;
    assert_eq!((late.status.as_u16(), &late.json()["errors"][0]["code"]), (422, &json!("repeated")), "{}", late.text());
    // Who signs nothing may use a key again, as before.
    assert_eq!(pool.post(&me, "/v1/leases", &asked, &want()).await.status.as_u16(), 201);
}

#[tokio::test]
async fn money_is_shown_as_decimal_strings_and_a_stranger_has_none() {
    let (_dir, pool) = pool().await;
    pool.lease(&pool.alice(), "a").await;
    let account = pool.get(&pool.alice(), "/v1/account").await.json();
    assert_eq!(account["deposited"], json!("50000000"));
    assert_ne!(account["reserved"], json!("0"));
    let stranger = pool.token(Caller::Renter(Account([9; 20])));
    assert_eq!(pool.get(&stranger, "/v1/account").await.json()["deposited"], json!("0"));
    assert_eq!(pool.get(&stranger, "/v1/bills").await.json()["bills"], json!([]));
    assert_eq!(pool.get(&stranger, "/v1/vouchers").await.json()["vouchers"], json!([]));
}

#[tokio::test]
async fn the_log_is_public_and_complete() {
    let (_dir, pool) = pool().await;
    pool.lease(&pool.alice(), "a").await;
    let head = pool.get("", "/v1/log/head").await.json();
    let size = head["newest"]["head"]["size"].as_u64().unwrap();
    let (mut from, mut seen) = (Some(0), Vec::new());
    while let Some(next) = from {
        let page = pool.get("", &format!("/v1/log/entries?from={next}&limit=2")).await.json();
        seen.extend(page["entries"].as_array().unwrap().iter().map(|entry| entry["seq"].as_u64().unwrap()));
        from = page["next"].as_u64();
    }
    assert_eq!(seen, (0..size).collect::<Vec<_>>());
    assert_eq!(pool.get("", "/v1/log/entries?limit=1001").await.fault().0, 422);
    let registry = pool.get("", "/v1/registry").await.json();
    assert_eq!(registry["block_number"], json!(1));
    let terms = pool.get("", "/v1/pool").await.json();
    assert_eq!(terms["fee_bps"], json!(200));
    for (name, want) in [("unbond_s", json!(259_200)), ("thaw_s", json!(3_600)), ("grace_s", json!(7_200))] {
        assert_eq!(terms[name], want, "{name}");
    }
    assert_eq!((&terms["min_stake"], &terms["finality_depth"]), (&json!("1000000"), &json!(0)));
}

#[tokio::test]
async fn a_dry_run_tells_place_and_price_needs_no_key_and_enters_nothing() {
    let (_dir, pool) = pool().await;
    let (alice, entry) = (pool.alice(), pool.app.log.position().entry);
    let path = "/v1/leases?dry_run=true";
    let reply = pool.post(&alice, path, &[], &want()).await;
    assert_eq!(reply.status.as_u16(), 200, "{}", reply.text());
    let quote = reply.json();
    // A minute at a token an hour, rounded down; two percent of it are the operator's; and five seconds to stop it, rounded
    // up, are reserved.
    let price = json!({"total": "16666", "reserve": "18056", "hourly": "1000000", "operator_fee": "333"});
    assert_eq!((&quote["would"], &quote["price"]), (&json!("start"), &price), "{quote}");
    let place = &quote["places"][0];
    assert_eq!(
        (&place["node"], &place["class"], &place["rate"]),
        (&json!(NODE), &json!("simulated"), &json!("1000000"))
    );
    let effect = json!({"destroys": 0, "of": 0, "shadow_rate": "0", "charged": false});
    assert_eq!(place["fragmentation"], effect, "no MIG, nothing destroyed");
    assert_eq!(reply.header("selion-entry"), entry.to_string());

    pool.lease(&alice, "a").await;
    let bob = pool.bob();
    let quote = pool.post(&bob, path, &[], &want()).await.json();
    assert_eq!((&quote["would"], &quote["position"]), (&json!("wait"), &json!(1)), "{quote}");
    assert_eq!((&quote["reason"], &quote["price"]), (&json!("pool_full"), &price));
    assert_eq!(quote["blocking"], json!({"now": true, "constraints": ["room"]}));
    // What was quoted is what the lease is told, and only that made a lease.
    let leases = pool.get(&bob, "/v1/leases").await.json();
    assert_eq!(leases["leases"], json!([]));
    let lease = pool.lease(&bob, "b").await;
    assert_eq!(lease["waiting"]["reason"], quote["reason"]);
    let view = pool.get(&bob, &format!("/v1/leases/{}/placement", id(&lease))).await.json();
    assert_eq!((&view["starts_ms"], &view["blocking"]), (&quote["starts_ms"], &quote["blocking"]), "{view}");
}

#[tokio::test]
async fn a_dry_run_is_refused_with_the_problem_of_the_request() {
    let (_dir, pool) = pool().await;
    let alice = pool.alice();
    let mut dear = want();
    dear["max_rate"] = json!("999999");
    let quoted = pool.post(&alice, "/v1/leases?dry_run=true", &[], &dear).await;
    assert_eq!(quoted.fault(), (409, "price_above_max".to_owned()));
    let asked = pool.post(&alice, "/v1/leases", &[("idempotency-key", "k")], &dear).await;
    let problem = |reply: &Reply| {
        let mut problem = reply.json();
        assert!(problem["trace_id"].take().is_string(), "each answer has its own");
        problem
    };
    assert_eq!(problem(&asked), problem(&quoted));
    let mut empty = want();
    empty["command"] = json!([]);
    let reply = pool.post(&alice, "/v1/leases?dry_run=true", &[], &empty).await;
    assert_eq!(reply.json()["errors"][0]["pointer"], json!("/command"));
    // Whoever is not logged in, asks without a key for the real thing, or misspells it, is told so.
    assert_eq!(pool.post("", "/v1/leases?dry_run=true", &[], &want()).await.fault().0, 401);
    let reply = pool.post(&alice, "/v1/leases?dry_run=false", &[], &want()).await;
    assert_eq!(reply.fault(), (400, "bad_header".to_owned()));
    assert_eq!(pool.post(&alice, "/v1/leases?dryrun=true", &[], &want()).await.fault().0, 422);
}

#[tokio::test]
async fn a_stranger_without_money_is_refused_with_what_is_short_and_nothing_of_it_enters_the_log() {
    let (_dir, pool) = pool().await;
    let stranger = pool.token(Caller::Renter(Account([9; 20])));
    let bytes = |pool: &Pool| pool.app.log.read(|state| borsh::to_vec(state).unwrap().len());
    let (entry, size) = (pool.app.log.position().entry, bytes(&pool));
    for at in 0..50 {
        let mut brief = want();
        brief["duration_ms"] = json!(1 + at % 9);
        brief["wait_ms"] = json!(604_800_000_u64);
        let key = format!("k{at}");
        let reply = pool.post(&stranger, "/v1/leases", &[("idempotency-key", &key)], &brief).await;
        assert_eq!(reply.fault(), (409, "payment_required".to_owned()));
        assert_eq!(reply.header(selion_api::rest::PROMISE_HEADER), "");
        let means = json!({"short": "deposit", "deposit": "0", "grant": "0", "grant_until_ms": 0});
        assert_eq!(reply.json()["means"], means);
    }
    assert_eq!((pool.app.log.position().entry, bytes(&pool)), (entry, size));
    // A quote tells the price all the same.
    let reply = pool.post(&stranger, "/v1/leases?dry_run=true", &[], &want()).await;
    assert_eq!(reply.fault(), (409, "payment_required".to_owned()));
    assert_eq!(reply.json()["nearest"]["need"], json!(18_056));
}

#[tokio::test]
async fn an_account_at_its_limit_is_told_so_before_anything_enters_and_a_repeat_enters_nothing() {
    let (_dir, pool) = pool().await;
    let policy = Policy { max_waiting: 1, ..Policy::default() };
    pool.enter(Input::Opened { delegate: Address([2; 20]), policy }).await;
    let alice = pool.alice();
    pool.lease(&alice, "a").await;
    let waits = pool.lease(&alice, "b").await;
    let entry = pool.app.log.position().entry;
    let reply = pool.post(&alice, "/v1/leases", &[("idempotency-key", "c")], &want()).await;
    assert_eq!(reply.fault(), (429, "too_many_leases".to_owned()));
    assert_eq!(id(&pool.lease(&alice, "b").await), id(&waits));
    assert_eq!(pool.app.log.position().entry, entry);
    pool.lease(&pool.bob(), "a").await;
}

#[tokio::test]
async fn a_refusal_names_the_filter_that_matches_nothing_and_what_there_is() {
    let (_dir, pool) = pool().await;
    let alice = pool.alice();
    let refused = async |field: &str, value: Value| {
        let mut body = want();
        match field {
            "regions" | "enforced" => body[field] = value,
            _ => body["members"][0][field] = value,
        }
        let quoted = pool.post(&alice, "/v1/leases?dry_run=true", &[], &body).await;
        assert_eq!(quoted.status.as_u16(), 409, "{}", quoted.text());
        quoted.json()
    };
    let mars = refused("regions", json!(["mars"])).await;
    assert_eq!(mars["unmatched"], json!([{"constraint": "regions", "asked": ["mars"], "there": ["eu"]}]));
    assert_eq!(
        mars["blocking"],
        json!({"now": false, "constraints": ["regions"]}),
        "it fits nowhere, were the fleet empty"
    );
    assert!(text(&mars, "detail").contains("no region mars; there are: eu"), "{mars}");
    let model = refused("models", json!(["H100"])).await;
    assert_eq!(model["unmatched"][0]["there"], json!(["H100 80GB"]));
    let cpu = refused("cpu_milli", json!(64_000)).await;
    assert_eq!(cpu["blocking"]["constraints"], json!(["cpu"]));
    let near = &cpu["nearest"];
    assert_eq!(
        (&near["resource"], &near["need"], &near["have"]),
        (&json!("cpu_milli"), &json!(64_000), &json!(16_000))
    );
    assert_eq!(cpu["unmatched"], Value::Null);
    let weak = refused("enforced", json!(["memory", "cpu"])).await;
    assert_eq!((&weak["code"], &weak["blocking"]["constraints"]), (&json!("box_too_weak"), &json!(["needs"])));
    assert_eq!(weak["unmatched"], json!([{"constraint": "needs", "asked": ["cpu", "memory"], "there": []}]));
    assert!(text(&weak, "detail").contains("no box with the feature cpu or memory; there are none"), "{weak}");
    let node = &pool.get(&alice, "/v1/nodes").await.json()["nodes"][0];
    assert_eq!(node["features"], json!([]));
}

#[tokio::test]
async fn where_a_running_lease_stands_it_fits_and_of_one_that_is_over_nothing_is_told() {
    let (_dir, pool) = pool().await;
    let alice = pool.alice();
    let lease = id(&pool.lease(&alice, "a").await);
    let path = format!("/v1/leases/{lease}/placement");
    let view = pool.get(&alice, &path).await.json();
    assert_eq!(view["candidates"][0]["reason"], Value::Null, "{view}");
    let waits = id(&pool.lease(&alice, "b").await);
    pool.post(&alice, &format!("/v1/leases/{waits}/release"), &[], &Value::Null).await;
    let over = pool.get(&alice, &format!("/v1/leases/{waits}/placement")).await;
    assert_eq!(over.fault(), (409, "not_live".to_owned()));
}
