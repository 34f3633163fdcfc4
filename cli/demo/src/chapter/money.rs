//! The renters and their deposits.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use selion_api::{Amount, TimeMs};
use selion_contracts::BlockTag;
use serde_json::{Value, json};

use super::chain::Chain;
use crate::fault::{Expecting, Fault, Told, expect, until};
use crate::renter::Renter;
use crate::stage::Stage;

const PATIENCE: Duration = Duration::from_secs(15);
/// What each renter deposits, in token base units: five tokens.
pub(super) const DEPOSIT: u64 = 5_000_000;
/// Gas for each renter, in wei: ten coins of a development chain.
const WEI: u128 = 10_000_000_000_000_000_000;
/// For how long the pool's controller may sign for the renters.
const GRANT: Duration = Duration::from_secs(24 * 3600);

/// Milliseconds since 1970 by this machine's clock, which the controller shares.
pub(super) fn now() -> TimeMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimeMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Three renters with keys of their own.
pub(super) async fn log_in(stage: &Stage, chain: &Chain, url: &str) -> Told<(Value, [Renter; 3])> {
    let ada = Renter::login(stage, "ada", url, chain).await?;
    let ben = Renter::login(stage, "ben", url, chain).await?;
    let cleo = Renter::login(stage, "cleo", url, chain).await?;
    let renters = [ada, ben, cleo];
    let accounts: Vec<Value> =
        renters.iter().map(|renter| json!({ "name": renter.name, "account": renter.account() })).collect();
    Ok((json!({ "renters": accounts }), renters))
}

/// Each deposits and lets the pool's delegate sign vouchers up to the deposit; then the log has it.
pub(super) async fn deposit(chain: &Chain, renters: &[Renter; 3]) -> Told<(Value, ())> {
    let told = futures::future::try_join_all(renters.iter().map(|renter| fund(chain, renter))).await?;
    for renter in renters {
        until(PATIENCE, &format!("{}'s deposit in the log", renter.name), async || {
            let account = renter.client.account().await?;
            let there = account.free == Amount(DEPOSIT) && account.delegated == Amount(DEPOSIT);
            Ok(if there { Ok(()) } else { Err(format!("{} free, {} delegated", account.free, account.delegated)) })
        })
        .await?;
    }
    Ok((json!({ "deposits": told }), ()))
}

async fn fund(chain: &Chain, renter: &Renter) -> Told<Value> {
    let (pool, signer) = (&chain.pool, &renter.signer);
    let delegate = renter.client.pool().await?.delegate;
    pool.rpc
        .give_coins(signer.account(), WEI)
        .await
        .expecting("a chain that gives gas away, as development chains do")?;
    let until = TimeMs(now().0 + u64::try_from(GRANT.as_millis()).unwrap_or(u64::MAX));
    let calls = [
        ("mint", pool.mint(signer.address(), DEPOSIT.into())),
        ("approve", pool.approve_vault()),
        ("deposit", pool.deposit(Amount(DEPOSIT))),
        ("grant", pool.grant(delegate, Amount(DEPOSIT), until)),
    ];
    let mut sent = Vec::new();
    for (what, call) in calls {
        let receipt = pool.send(signer, call).await.map_err(|error| {
            Fault::new(format!("{}'s {what} to be mined", renter.name), crate::fault::chain(&error))
        })?;
        sent.push(json!({
            "call": what, "transaction": receipt.tx, "block_number": receipt.block_number, "block_hash": receipt.block_hash
        }));
    }
    let balance = pool.account(renter.account(), BlockTag::Latest).await?.balance;
    expect(balance == Amount(DEPOSIT), format!("{DEPOSIT} in the vault for {}", renter.name), balance)?;
    let key = pool.key(renter.account(), delegate, BlockTag::Latest).await?.expecting("a delegated key on chain")?;
    expect(key.cap_left == Amount(DEPOSIT) && key.delegated, format!("a cap of {DEPOSIT}"), key.cap_left)?;
    Ok(json!({ "renter": renter.account(), "amount": Amount(DEPOSIT), "delegate": delegate, "transactions": sent }))
}
