//! A hostile hour in a minute: dozens of bad renters, callers and agents against one pool, while an honest renter works
//! and measures. Each attack keeps on as fast as the pool lets it. `SELION_HOSTILE_SECONDS` makes it longer.
//!
//! Everybody is on loopback, each attacker at an address of its own (127.0.0.0/8), as strangers of a network would be.

mod agents;
mod callers;
mod honest;
mod renters;

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use honest::Honest;
use selion_api::Amount;
use selion_audit::{LogSource, Options, audit};
use selion_tests::{Pool, Renter, until};
use tokio::task::JoinSet;

/// How long the attack lasts unless `SELION_HOSTILE_SECONDS` says otherwise.
const SECONDS: u64 = 30;
/// What the honest renter deposits; a rehearsal and the attack cost a small part of it.
const DEPOSIT: Amount = Amount(1_000_000_000_000);
/// Laps before the attack, for comparison.
const REHEARSAL: usize = 25;
/// An honest lap may take so many times its 99th percentile in quiet, or [`PATIENT`] if that is longer.
const FACTOR: u32 = 25;
/// See [`FACTOR`]: on a machine of two cores the attackers themselves take most of the time.
const PATIENT: Duration = Duration::from_secs(20);
/// Most memory of the controller at any time, in bytes.
const MEMORY: u64 = 768 << 20;
/// Most entries that the attackers may cause in the log, for each second of the attack.
const ENTRIES_A_SECOND: u64 = 60;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_honest_renter_is_served_while_dozens_of_bad_ones_do_their_worst() -> Result<()> {
    agents::raise_file_limit()?;
    let pool = Pool::open().await?;
    let controller = pool.controller_limited(&pool.path("controller")).await?;
    let pid = controller.part.pid().context("the controller runs")?;
    let _honest_agents = [
        pool.agent(&controller.url, "bert", "H100 80GB").await?,
        pool.agent(&controller.url, "carla", "H100 80GB").await?,
    ];
    let renter = Renter::funded(&pool, &controller.url, "ada", DEPOSIT).await?;
    let node = agents::Mallory::register(&pool, &controller.url, &renter.client).await?;
    until("offers", async || Ok((renter.client.offers(&Default::default()).await?.offers.len() >= 2).then_some(())))
        .await?;

    let mut quiet = Honest::new(&renter, pool.id());
    for _ in 0..REHEARSAL {
        quiet.lap().await?;
    }

    let before = size(&renter).await?;
    let mut attackers = JoinSet::new();
    renters::set_upon(&mut attackers, &pool, &controller).await?;
    callers::set_upon(&mut attackers, &controller.address)?;
    node.set_upon(&mut attackers, controller.address.clone(), pool.id());
    let seconds = std::env::var("SELION_HOSTILE_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SECONDS);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut busy = Honest::new(&renter, pool.id());
    let mut memory = 0;
    while Instant::now() < end {
        busy.lap().await.context("an honest lease under attack")?;
        memory = memory.max(resident(pid)?);
    }
    let attackers_at_work = attackers.len();
    attackers.abort_all();
    while attackers.join_next().await.is_some() {}

    let grown = size(&renter).await? - before;
    let own = busy.laps() * honest::ENTRIES_A_LAP;
    println!(
        "hostile: {attackers_at_work} attackers for {seconds} s; honest laps {} (quiet {}): p50 {} ms (quiet {}), \
         p99 {} ms (quiet {}), {} asked again; controller {} MiB at most; {grown} entries, about {own} of them honest",
        busy.laps(),
        quiet.laps(),
        busy.percentile(50).as_millis(),
        quiet.percentile(50).as_millis(),
        busy.percentile(99).as_millis(),
        quiet.percentile(99).as_millis(),
        busy.again,
        memory >> 20,
    );
    let bound = (quiet.percentile(99) * FACTOR).max(PATIENT);
    ensure!(busy.percentile(99) <= bound, "his p99 is above {bound:?}");
    ensure!(memory <= MEMORY, "the controller took {} MiB, above {}", memory >> 20, MEMORY >> 20);
    ensure!(grown <= own + ENTRIES_A_SECOND * seconds, "strangers wrote the log full: {grown} entries, {own} honest");

    until("a ready controller", async || Ok(controller.client.ready().await.ok())).await?;
    let report =
        audit(&Options::new(pool.rpc.clone(), pool.id().controller, LogSource::Url(controller.url.clone()))).await?;
    let failed: Vec<_> = report.checks.iter().filter(|check| !check.ok).map(|check| &check.detail).collect();
    ensure!(failed.is_empty(), "{failed:?}");
    Ok(())
}

/// Entries in the log.
async fn size(renter: &Renter) -> Result<u64> {
    Ok(renter.client.log_head().await?.newest.context("a head")?.head.size)
}

/// Memory of the process that is in RAM, in bytes. Source: proc(5), `VmRSS`.
fn resident(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("VmRSS")?;
    let kib: u64 = line.split_whitespace().nth(1).context("a number")?.parse()?;
    Ok(kib << 10)
}
