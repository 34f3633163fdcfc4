//! Bad renters: some never paid anything, some have a little money.

use anyhow::{Context, Result};
use selion_api::Amount;
use selion_api::lease::LeaseState;
use selion_api::slice::SliceWant;
use selion_client::fresh_key;
use selion_dataplane::Store;
use selion_tests::{Controller, PATIENCE, Pool, Renter, want};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::callers::{BREATH, at};

/// Accounts without a deposit.
const PAUPERS: u8 = 10;
/// Accounts with a deposit that is small.
const POOR: u8 = 2;
const POCKET_MONEY: Amount = Amount(2_000_000_000);
/// Waits that each of the poor keeps open.
const WAITS: usize = 150;

pub async fn set_upon(attackers: &mut JoinSet<()>, pool: &Pool, controller: &Controller) -> Result<()> {
    for number in 0..PAUPERS {
        let renter = Renter::login(pool, &controller.url, &format!("pauper-{number}")).await?;
        let token = renter.client.bearer().await.context("a token")?;
        let (url, http) = (controller.url.clone(), at(100 + number)?);
        match number % 5 {
            0 | 1 => attackers.spawn(asks_for_everything(http, url, token, "/v1/leases", 604_800_000)),
            2 => attackers.spawn(asks_for_everything(http, url, token, "/v1/leases?dry_run=true", 604_800_000)),
            3 => attackers.spawn(asks_for_a_moment(http, url, token)),
            _ => attackers.spawn(fills_the_store(renter, pool.path(&format!("blocks-{number}")))),
        };
    }
    for number in 0..POOR {
        let renter = Renter::funded(pool, &controller.url, &format!("poor-{number}"), POCKET_MONEY).await?;
        // One lease after the other, of what it pays for, that talks as much as it can.
        let slice = || SliceWant::Mig { profile: "1g.10gb".into() };
        let mut loud = want(slice(), &["sh", "-c", "yes no | head -c 4000000"]);
        loud.wait_ms = 1_000;
        let token = renter.client.bearer().await.context("a token")?;
        let lease = renter.client.create_lease(&fresh_key()?, &want(slice(), &["sleep", "60"])).await;
        if let Ok(lease) = lease {
            for _ in 0..WAITS {
                let (url, http, token) = (controller.url.clone(), at(120 + number)?, token.clone());
                let id = lease.id;
                attackers.spawn(async move {
                    let url = format!("{url}/v1/leases/{id}/wait?state=ended&timeout_ms=300000");
                    loop {
                        let _ = http.get(&url).bearer_auth(&token).send().await;
                        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                    }
                });
            }
        }
        attackers.spawn(async move {
            loop {
                if let Ok(key) = fresh_key() {
                    let asked = renter.client.create_lease(&key, &loud).await;
                    if let Ok(lease) = asked {
                        let _ = renter.client.wait(lease.id, LeaseState::Ended, PATIENCE).await;
                    }
                }
                tokio::time::sleep(BREATH).await;
            }
        });
    }
    Ok(())
}

async fn post(http: &reqwest::Client, url: &str, token: &str, body: &Value) {
    let key = fresh_key().unwrap_or_default();
    let _ = http.post(url).bearer_auth(token).header("Idempotency-Key", key).json(body).send().await;
    tokio::time::sleep(BREATH).await;
}

/// 64 members, each with 16 names of models that nobody has, for a price of nothing.
async fn asks_for_everything(http: reqwest::Client, url: String, token: String, path: &'static str, wait_ms: u64) {
    let models: Vec<String> = (0..16).map(|number| format!("x{number:02}{}", "y".repeat(58))).collect();
    let member = json!({ "slice": { "kind": "whole" }, "models": models });
    let members = vec![member; 64];
    let body =
        json!({ "members": members, "min_members": 1, "duration_ms": 1, "wait_ms": wait_ms, "command": ["true"] });
    loop {
        post(&http, &format!("{url}{path}"), &token, &body).await;
    }
}

/// One GPU for a time that costs nothing.
async fn asks_for_a_moment(http: reqwest::Client, url: String, token: String) {
    let member = json!({ "slice": { "kind": "whole" } });
    let body = json!({ "members": [member], "duration_ms": 1, "wait_ms": 60_000, "command": ["sh", "-c", "sleep 3"] });
    loop {
        post(&http, &format!("{url}/v1/leases"), &token, &body).await;
    }
}

/// Uploads blocks that no dataset needs.
async fn fills_the_store(renter: Renter, folder: std::path::PathBuf) {
    let Ok(store) = Store::open(&folder) else { return };
    for number in 0_u64.. {
        let mut bytes = vec![0; 256 << 10];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        let path = folder.join("file");
        if std::fs::write(&path, &bytes).is_err() {
            return;
        }
        if let Ok(cid) = store.add_path(&path) {
            let _ = renter.client.put_block(&cid.to_string(), bytes.into()).await;
        }
        tokio::time::sleep(BREATH).await;
    }
}
