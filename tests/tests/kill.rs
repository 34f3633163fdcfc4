//! SIGKILL to a controller while requests come in, again and again: what it acknowledged is there, once.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use selion_api::lease::LeaseState;
use selion_api::rest::Lease;
use selion_api::slice::SliceWant;
use selion_api::{Amount, LeaseId, Reason};
use selion_audit::{LogSource, Options, audit};
use selion_client::{OfferQuery, PageQuery};
use selion_tests::{Controller, PATIENCE, Pool, Renter, until, want};

/// Where the kills fall follows from it.
const SEED: u64 = 20_261_120;
const ROUNDS: u64 = 8;
/// Requests of a round, all at once.
const REQUESTS: u64 = 8;
const EVERYTHING: PageQuery = PageQuery { page_size: Some(500), page_token: None };

/// SplitMix64.
struct Random(u64);

impl Random {
    /// A number below `bound`.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Sends every key at once and kills the controller once `enough` of them are answered. The answers that came.
async fn storm(
    controller: &mut Controller,
    renter: &Renter,
    body: &str,
    keys: &[String],
    enough: u64,
) -> Result<BTreeMap<String, Vec<u8>>> {
    // No connection of an earlier controller is used again.
    let http = reqwest::Client::builder().no_proxy().build()?;
    let mut calls: FuturesUnordered<_> = keys
        .iter()
        .map(|key| {
            let http = &http;
            async move { (key, renter.post_lease(http, key, body).await) }
        })
        .collect();
    let mut answers = BTreeMap::new();
    let mut killed = false;
    loop {
        if !killed && answers.len() as u64 >= enough {
            controller.part.kill().await?;
            killed = true;
        }
        let Some((key, answer)) = calls.next().await else { break };
        // An answer that did not come, or came in part, acknowledges nothing.
        if let Ok((status, bytes)) = answer {
            ensure!(status == 201, "{key}: {status} {}", String::from_utf8_lossy(&bytes));
            answers.insert(key.clone(), bytes);
        }
    }
    ensure!(killed, "{} of {} requests were answered, fewer than {enough}", answers.len(), keys.len());
    Ok(answers)
}

/// Repeats requests; the bytes of each answer.
async fn repeat(renter: &Renter, body: &str, keys: &[String]) -> Result<BTreeMap<String, Vec<u8>>> {
    let http = reqwest::Client::builder().no_proxy().build()?;
    let mut answers = BTreeMap::new();
    for key in keys {
        let (status, bytes) = renter.post_lease(&http, key, body).await?;
        ensure!(status == 201, "{key}: {status} {}", String::from_utf8_lossy(&bytes));
        answers.insert(key.clone(), bytes);
    }
    Ok(answers)
}

fn id_of(answer: &[u8]) -> Result<LeaseId> {
    Ok(serde_json::from_slice::<Lease>(answer)?.id)
}

#[tokio::test]
async fn after_every_kill_what_was_acknowledged_stands_once_and_is_answered_as_before() -> Result<()> {
    let pool = Pool::open().await?;
    let data = pool.path("controller");
    let mut controller = pool.controller(&data, "127.0.0.1:0").await?;
    let _agent = pool.agent(&controller.url, "agent", "H100 80GB").await?;
    let renter = Renter::funded(&pool, &controller.url, "ada", Amount(10_000_000_000)).await?;
    until("an offer", async || Ok(renter.client.offers(&OfferQuery::default()).await?.offers.first().map(drop)))
        .await?;

    let slice = SliceWant::Share { compute_permille: 20, mem_bytes: 1 << 30 };
    let body = serde_json::to_string(&want(slice, &["true"]))?;
    let mut random = Random(SEED);
    let mut answers: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut term = controller.client.pool().await?.fence.term;
    for round in 0..ROUNDS {
        let keys: Vec<String> = (0..REQUESTS).map(|number| format!("round-{round}-{number}")).collect();
        let enough = random.below(REQUESTS + 1);
        let acknowledged = storm(&mut controller, &renter, &body, &keys, enough).await?;
        controller = pool.controller(&data, &controller.address).await?;

        let now = controller.client.pool().await?.fence.term;
        assert_eq!(now, term + 1, "round {round}: each start raises the term by one");
        term = now;
        let repeated = repeat(&renter, &body, &keys).await?;
        for (key, bytes) in &acknowledged {
            assert_eq!(repeated.get(key), Some(bytes), "{key}: the repeat is the first answer, to the byte");
        }
        answers.extend(repeated);
    }

    // Answers of all earlier rounds hold as well, seven kills later.
    let keys: Vec<String> = answers.keys().cloned().collect();
    assert_eq!(repeat(&renter, &body, &keys).await?, answers);
    let ids: BTreeSet<LeaseId> = answers.values().map(|bytes| id_of(bytes)).collect::<Result<_>>()?;
    assert_eq!(ids.len() as u64, ROUNDS * REQUESTS, "one lease for each key");
    for id in &ids {
        let lease = renter.client.wait(*id, LeaseState::Ended, PATIENCE).await.with_context(|| id.to_string())?;
        assert_eq!((lease.reason, lease.attempt), (Some(Reason::Completed), 1), "{id} ran once, to its end: {lease:?}");
    }
    let leases = renter.client.leases(&EVERYTHING).await?.leases;
    assert_eq!(leases.len(), ids.len(), "no lease but those that were asked for");
    let bills = renter.client.bills(&EVERYTHING).await?.bills;
    let billed: BTreeSet<LeaseId> = bills.iter().map(|bill| bill.line.lease).collect();
    assert_eq!((bills.len(), &billed), (ids.len(), &ids), "each is billed once");

    // One more start, on a log at rest: rows and State are those of the log.
    controller.part.kill().await?;
    let controller = pool.controller(&data, &controller.address).await?;
    assert_eq!(renter.client.leases(&EVERYTHING).await?.leases, leases);
    assert_eq!(renter.client.bills(&EVERYTHING).await?.bills, bills);
    let log = LogSource::Url(controller.url.clone());
    let report = audit(&Options::new(pool.rpc.clone(), pool.id().controller, log)).await?;
    for check in &report.checks {
        assert!(check.ok, "{}: {}", check.name, check.detail);
    }
    let head = report.newest_head.context("a signed head")?;
    assert!(head.size <= report.entries && head.fence.term == term + 1, "{head:?} of {} entries", report.entries);
    Ok(())
}
