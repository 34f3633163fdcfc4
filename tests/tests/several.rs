//! A member of several GPUs, from the request to the audit: one process that sees all of them.

use anyhow::{Context, Result, ensure};
use selion_api::lease::LeaseState;
use selion_api::rest::NewLease;
use selion_api::slice::SliceWant;
use selion_api::{Amount, Reason};
use selion_audit::{LogSource, Options, audit};
use selion_client::{OfferQuery, PageQuery, fresh_key};
use selion_tests::{PATIENCE, Part, Pool, Renter, kept, until, want};

const DEPOSIT: Amount = Amount(10_000_000_000);
const MODEL: &str = "A100 80GB";
const GPUS: usize = 3;

/// Writes down what it sees, and runs on for a moment.
const PROGRAM: &str = r#"set -eu
echo "$SELION_SLICE of $SELION_GPU, CUDA sees '$CUDA_VISIBLE_DEVICES'" > "$SELION_OUTPUT_DIR/seen"
sleep 1"#;

fn several(gpus: u16) -> NewLease {
    let mut lease = want(SliceWant::Whole, &["sh", "-c", PROGRAM]);
    lease.members[0].gpus = gpus;
    lease
}

/// A pool with one node of that many GPUs, and a renter.
async fn open() -> Result<(Pool, selion_tests::Controller, Part, Renter)> {
    let pool = Pool::open().await?;
    let controller = pool.controller(&pool.path("controller"), "127.0.0.1:0").await?;
    let mut args = pool.agent_args(&controller.url, &pool.path("agent"), MODEL);
    for _ in 1..GPUS {
        args.extend(["--simulate".to_owned(), MODEL.to_owned()]);
    }
    let mut agent = Part::start(pool.home(), "agent", args)?;
    while agent.said("event").await? != "linked" {}
    let renter = Renter::funded(&pool, &controller.url, "ada", DEPOSIT).await?;
    until("an offer", async || Ok(renter.client.offers(&OfferQuery::default()).await?.offers.first().map(drop)))
        .await?;
    Ok((pool, controller, agent, renter))
}

/// Status and code of the answer to a request that is turned away.
async fn refused(renter: &Renter, lease: &NewLease) -> Result<(u16, String)> {
    let http = reqwest::Client::new();
    let (status, body) = renter.post_lease(&http, &fresh_key()?, &serde_json::to_string(lease)?).await?;
    let body: serde_json::Value = serde_json::from_slice(&body)?;
    Ok((status, body["code"].as_str().context("a code")?.to_owned()))
}

#[tokio::test]
async fn one_process_sees_all_gpus_of_its_member_and_is_billed_for_their_sum() -> Result<()> {
    let (pool, controller, _agent, renter) = open().await?;
    let client = &renter.client;
    assert_eq!(refused(&renter, &several(4)).await?, (409, "too_few_gpus".to_owned()));
    let mut share = several(2);
    share.members[0].slice = SliceWant::Share { compute_permille: 500, mem_bytes: 1 << 30 };
    assert_eq!(refused(&renter, &share).await?.0, 422, "shares are not put together");

    let asked = client.create_signed_lease(&renter.wallet, &pool.id(), &fresh_key()?, &mut several(2)).await?;
    client.wait(asked.id, LeaseState::Active, PATIENCE).await?;
    let mut now = several(2);
    now.wait_ms = 0;
    assert_eq!(refused(&renter, &now).await?, (409, "pool_full".to_owned()), "one is left");
    let nodes = client.nodes(&PageQuery { page_size: None, page_token: None }).await?.nodes;
    let slots = nodes.iter().flat_map(|node| &node.gpus).flat_map(|gpu| &gpu.slots);
    assert_eq!(slots.filter(|slot| slot.lease == asked.id && slot.member == 0).count(), 2);

    client.wait(asked.id, LeaseState::Ended, PATIENCE).await?;
    let lease = until("the CID of the outputs", async || {
        let lease = client.lease(asked.id).await?;
        ensure!(lease.reason == Some(Reason::Completed), "{lease:?}");
        Ok((!kept(&lease).is_empty()).then_some(lease))
    })
    .await?;
    let member = lease.members.first().context("a member")?;
    let asks = nodes.iter().flat_map(|node| &node.gpus).filter(|gpu| member.gpus.contains(&gpu.spec.gpu));
    let asks: Vec<u64> = asks.filter_map(|gpu| gpu.spec.whole).map(|rate| rate.0).collect();
    assert_eq!((lease.members.len(), member.gpus.len(), asks.len()), (1, 2, 2));
    assert_eq!(member.rate.0, asks.iter().sum::<u64>());
    assert_eq!(lease.amount, member.rate.bill(member.billable_ms));

    let seen = pool.path("expected");
    std::fs::create_dir(&seen)?;
    let gpus: Vec<String> = member.gpus.iter().map(ToString::to_string).collect();
    std::fs::write(seen.join("seen"), format!("whole of {}, CUDA sees ''\n", gpus.join(",")))?;
    let cid = selion_dataplane::Store::open(pool.path("blocks"))?.add_path(&seen)?.to_string();
    assert_eq!(kept(&lease).get(&0), Some(&cid), "what the process saw");

    let log = LogSource::Url(controller.url.clone());
    let report = audit(&Options::new(pool.rpc.clone(), pool.id().controller, log)).await?;
    let failed: Vec<_> = report.checks.iter().filter(|check| !check.ok).map(|check| &check.detail).collect();
    assert!(failed.is_empty(), "{failed:?}");
    Ok(())
}
