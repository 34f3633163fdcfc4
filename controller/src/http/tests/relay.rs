//! The routes of relaying: who may call them, and what each refusal looks like.

use async_trait::async_trait;
use selion_api::Hash32;
use selion_contracts::write::Call;
use selion_contracts::{ForwardRequest, Permit, PoolAddresses, Rpc, Signer};

use super::*;
use crate::relay::Rules;
use crate::relay::ground::Ground;
use crate::relay::judge::Refusal;

const FORWARDER: Address = Address([7; 20]);
/// The token's, for its permits.
const DOMAIN: Hash32 = Hash32([8; 32]);

/// A chain where nobody relayed anything yet, and every call works.
struct Fresh;

#[async_trait]
impl Ground for Fresh {
    async fn next_nonce(&self, _: Address, _: Account) -> Result<u64, Refusal> {
        Ok(0)
    }

    async fn permit_domain(&self) -> Result<Option<Hash32>, Refusal> {
        Ok(Some(DOMAIN))
    }

    async fn try_call(&self, _: &Call) -> Result<(), Refusal> {
        Ok(())
    }

    async fn accepts(&self, _: Account, _: Hash32, _: &[u8]) -> Result<bool, Refusal> {
        Ok(false)
    }

    async fn try_out(&self, _: &ForwardRequest, _: &[u8]) -> Result<(), Refusal> {
        Ok(())
    }
}

fn contracts() -> selion_contracts::Pool {
    let at = PoolAddresses {
        factory: Address::ZERO,
        controller: POOL.controller,
        vault: Address([4; 20]),
        court: Address([6; 20]),
        token: Address([3; 20]),
    };
    selion_contracts::Pool { rpc: Rpc::new("http://127.0.0.1:1").unwrap(), chain_id: POOL.chain_id, at }
}

async fn relaying(per_day: u32) -> (TempDir, Pool) {
    let (dir, mut pool) = pool().await;
    let rules = Rules {
        at: contracts().at,
        chain_id: POOL.chain_id,
        forwarder: FORWARDER,
        payer: Address(pool.app.authority.0),
        per_day,
    };
    pool.app.relay = Relay::new(rules, pool.app.store.clone(), Arc::new(Fresh), Arc::default());
    pool.router = router(pool.app.clone());
    (dir, pool)
}

fn body(key: u8, nonce: u64, call: Call) -> Value {
    let signer = Signer::from_bytes(&[key; 32]).unwrap();
    let deadline_s = NOW.0 / 1_000 + 60;
    let request =
        ForwardRequest { from: signer.account(), to: call.to, gas: 200_000, nonce, deadline_s, data: call.data };
    let signature = request.sign(&signer, POOL.chain_id, FORWARDER).unwrap();
    json!({
        "from": request.from, "to": request.to, "gas": request.gas, "nonce": nonce,
        "deadline_ms": deadline_s * 1_000, "data": format!("0x{}", hex::encode(&request.data)),
        "signature": signature,
    })
}

fn permit(spender: Address) -> Value {
    let (signer, deadline_s) = (Signer::from_bytes(&[9; 32]).unwrap(), NOW.0 / 1_000 + 60);
    let permit = Permit::endless(signer.account(), spender, 0, deadline_s);
    let signature = permit.sign(&signer, DOMAIN).unwrap();
    let mut body = body(9, 0, permit.call(contracts().at.token, &signature));
    body["signature"] = json!(signature);
    body
}

fn thaw() -> Call {
    contracts().thaw(Amount(1))
}

fn with_of(mut body: Value, name: &str, value: Value) -> Value {
    body[name] = value;
    body
}

#[tokio::test]
async fn a_permit_for_the_pools_contracts_is_taken_as_a_call_is() {
    let (_dir, pool) = relaying(9).await;
    let taken = pool.post("", "/v1/relay", &[], &permit(contracts().at.court)).await;
    assert_eq!(taken.status, StatusCode::ACCEPTED, "{}", taken.text());
    assert_eq!(taken.json()["call"], json!("permit"));
}

#[tokio::test]
async fn a_signed_call_needs_no_token_and_tells_how_far_it_is() {
    let (_dir, pool) = relaying(9).await;
    let taken = pool.post("", "/v1/relay", &[], &body(9, 0, thaw())).await;
    assert_eq!(taken.status, StatusCode::ACCEPTED, "{}", taken.text());
    let taken = taken.json();
    assert_eq!((&taken["state"], &taken["call"]), (&json!("waiting"), &json!("thaw")));
    let again = pool.post("", "/v1/relay", &[], &body(9, 0, thaw())).await;
    assert_eq!((again.status, again.json()), (StatusCode::ACCEPTED, taken.clone()));
    assert_eq!(pool.get("", &format!("/v1/relay/{}", taken["id"])).await.json(), taken);
    assert_eq!(pool.get("", "/v1/relay/999").await.fault(), (404, "not_found".to_owned()));
}

#[tokio::test]
async fn each_refusal_has_a_status_and_a_code_of_its_own() {
    let (_dir, open) = relaying(1).await;
    let with = |name: &str, value: Value| with_of(body(9, 0, thaw()), name, value);
    let late = with("deadline_ms", json!(NOW.0));
    let cases = [
        (with("nonce", json!(1)), 422, "bad_signature"),
        (with("gas", json!(1_000_000)), 422, "relay_gas"),
        (late, 422, "relay_lapsed"),
        (with("deadline_ms", json!(NOW.0 + 7_200_000)), 422, "relay_too_far"),
        (with("data", json!("0x01020304")), 422, "relay_no_call"),
        (with("signature", json!(format!("0x{}", "00".repeat(5_000)))), 422, "relay_too_long"),
        (with("to", json!(Address([9; 20]))), 422, "relay_no_call"),
        (with("value", json!(1)), 422, "bad_fields"),
        (with("data", json!("thaw")), 422, "bad_fields"),
        (body(9, 1, thaw()), 409, "relay_nonce"),
        (body(9, 0, contracts().announce_owner(ALICE)), 403, "relay_not_allowed"),
        (body(9, 0, contracts().approve_vault()), 403, "relay_not_allowed"),
        (permit(Address([9; 20])), 403, "relay_spender"),
        (with_of(permit(POOL.controller), "from", json!(ALICE)), 422, "relay_permit"),
        (with_of(permit(POOL.controller), "nonce", json!(1)), 422, "bad_signature"),
    ];
    for (body, status, code) in cases {
        assert_eq!(open.post("", "/v1/relay", &[], &body).await.fault(), (status, code.to_owned()), "{body}");
    }
    assert_eq!(open.post("", "/v1/relay", &[], &body(9, 0, thaw())).await.status, StatusCode::ACCEPTED);
    let other = open.post("", "/v1/relay", &[], &body(9, 0, contracts().thaw(Amount(2)))).await;
    assert_eq!(other.fault().0, 429, "the day's allowance comes before the nonce's owner");
    let over = open.post("", "/v1/relay", &[], &body(8, 0, thaw())).await;
    assert_eq!(over.fault(), (429, "relay_budget".to_owned()));
    assert_eq!(over.header("retry-after"), "86400");
}

#[tokio::test]
async fn a_controller_that_pays_for_nobody_says_what_to_do() {
    let (_dir, pool) = pool().await;
    let refused = pool.post("", "/v1/relay", &[], &body(9, 0, thaw())).await;
    assert_eq!(refused.fault(), (409, "relay_off".to_owned()));
    assert!(refused.text().contains("--relay-per-day"), "{}", refused.text());
}
