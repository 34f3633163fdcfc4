//! The end of all leases: bills, vouchers, claims, and the rest back.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use selion_api::chain::ChainEvent;
use selion_api::lease::LeaseState;
use selion_api::rest::BillView;
use selion_api::{Account, Address, Amount};
use selion_contracts::BlockTag;
use serde_json::{Value, json};

use super::chain::Chain;
use super::money::{DEPOSIT, now};
use crate::fault::{Expecting, Told, expect, until};
use crate::renter::{PATIENCE, Renter};

/// Longest wait for what goes over the chain.
const ON_CHAIN: Duration = Duration::from_secs(20);
const MS_PER_HOUR: u128 = 3_600_000;

/// What was billed, by renter and provider.
pub(super) type Debts = BTreeMap<(Account, Account), Amount>;

/// Releases what still runs, and checks every bill line and every voucher.
pub(super) async fn release(renters: &[Renter; 3]) -> Told<(Value, Debts)> {
    let mut released = Vec::new();
    for renter in renters {
        for lease in renter.leases().await?.into_iter().filter(|lease| lease.state != LeaseState::Ended) {
            renter.client.release(lease.id).await.expecting(&format!("lease {} to be given back", lease.id))?;
            released.push(lease.id);
        }
    }
    let (mut debts, mut lines, mut vouchers) = (Debts::new(), 0, Vec::new());
    for renter in renters {
        for lease in renter.leases().await? {
            renter.reach(lease.id, LeaseState::Ended).await?;
        }
        let bills = renter.bills().await?;
        check_bills(renter, &bills).await?;
        lines += bills.len();
        for bill in &bills {
            let sum = debts.entry((bill.line.renter, bill.line.provider)).or_default();
            *sum = sum.checked_add(bill.line.amount).expecting("a sum of bills in 64 bits")?;
        }
        vouchers.extend(signed(renter, &debts).await?);
    }
    let total: u64 = debts.values().map(|amount| amount.0).sum();
    expect(total > 0, "some use to be billed", total)?;
    let evidence = json!({ "released": released, "bill_lines": lines, "billed": Amount(total), "vouchers": vouchers });
    Ok((evidence, debts))
}

/// Each line is `floor(rate * ms / 3_600_000)`, stands once, and bills no more than the time the run was active.
async fn check_bills(renter: &Renter, bills: &[BillView]) -> Told {
    let mut seen = BTreeSet::new();
    for BillView { line, .. } in bills {
        let once = seen.insert((line.lease, line.attempt, line.member));
        expect(once, "each member of each run billed once", format!("{line:?} again"))?;
        let exact = u128::from(line.rate.0) * u128::from(line.billable_ms) / MS_PER_HOUR;
        expect(
            exact == u128::from(line.amount.0),
            format!("{exact} for {} ms at {}", line.billable_ms, line.rate),
            line.amount,
        )?;
        let history = renter.history(line.lease, |event| event.state == LeaseState::Ended).await?;
        let active = history.iter().find(|event| event.attempt == line.attempt && event.state == LeaseState::Active);
        let active = active.expecting(&format!("run {} of {} to have been active", line.attempt, line.lease))?;
        let over = |state| matches!(state, LeaseState::Ended | LeaseState::Waiting);
        let end = history
            .iter()
            .find(|event| event.entry > active.entry && over(event.state))
            .expecting("the end of that run")?;
        let most = end.at_ms.0.saturating_sub(active.at_ms.0);
        expect(line.billable_ms <= most, format!("at most {most} ms of {} billed", line.lease), line.billable_ms)?;
    }
    Ok(())
}

/// Every pair of this renter has a voucher with both signatures over exactly what was billed.
async fn signed(renter: &Renter, debts: &Debts) -> Told<Vec<Value>> {
    let vouchers = until(PATIENCE, "a voucher with both signatures for every bill", async || {
        let vouchers = renter.client.vouchers().await?.vouchers;
        let wanted = debts.iter().filter(|((of, _), amount)| *of == renter.account() && **amount > Amount::ZERO);
        for ((_, provider), amount) in wanted {
            let found =
                vouchers.iter().find(|voucher| voucher.renter == renter.account() && voucher.provider == *provider);
            let state = found.map(|voucher| (voucher.cumulative, voucher.signed, voucher.delivered));
            if state != Some((*amount, true, true)) {
                return Ok(Err(format!("{state:?} for {amount} to {provider} (total, signed, delivered)")));
            }
        }
        Ok(Ok(vouchers))
    });
    let vouchers = vouchers.await?;
    Ok(vouchers.into_iter().map(|voucher| json!(voucher)).collect())
}

/// The renters ask for all that is free; that makes claims of their vouchers due at once, each transaction for one provider.
pub(super) async fn claim(chain: &Chain, renters: &[Renter; 3], debts: &Debts) -> Told<(Value, ())> {
    let mut thaws = Vec::new();
    for renter in renters {
        let free = renter.client.account().await?.free;
        let receipt = chain.pool.send(&renter.signer, chain.pool.thaw(free)).await?;
        thaws.push(json!({ "renter": renter.account(), "amount": free, "transaction": receipt.tx, "block_number": receipt.block_number }));
    }
    let owed: Debts =
        debts.iter().filter(|(_, amount)| **amount > Amount::ZERO).map(|(pair, amount)| (*pair, *amount)).collect();
    until(ON_CHAIN, "all vouchers claimed on chain", async || {
        for ((renter, provider), amount) in &owed {
            let (claimed, _) = chain.pool.claimed(*provider, *renter, BlockTag::Latest).await?;
            expect(claimed <= *amount, format!("at most {amount} claimed by {provider}"), claimed)?;
            if claimed < *amount {
                return Ok(Err(format!("{claimed} of {amount} claimed by {provider}")));
            }
        }
        Ok(Ok(()))
    })
    .await?;
    let deeds = chain.deeds().await?;
    let claims: Vec<_> = deeds
        .iter()
        .filter(|deed| deed.events.iter().any(|event| matches!(event, ChainEvent::Claimed { .. })))
        .collect();
    let (mut paid, mut gas) = (Debts::new(), 0);
    for claim in &claims {
        let mut earners = BTreeSet::new();
        for event in &claim.events {
            if let ChainEvent::Claimed { provider, renter, paid: amount, .. } = event {
                earners.insert(*provider);
                let sum = paid.entry((*renter, *provider)).or_default();
                *sum = sum.saturating_add(*amount);
            }
        }
        expect(earners.len() == 1, "claims of one provider in each transaction", format!("{earners:?}"))?;
        gas += chain.pool.rpc.receipt(claim.tx).await?.map_or(0, |receipt| receipt.gas_used);
    }
    expect(paid == owed, format!("claims that equal the bills, {owed:?}"), format!("{paid:?}"))?;
    let claims: Vec<_> = claims.iter().map(|claim| claim.evidence()).collect();
    Ok((json!({ "thaws": thaws, "claims": claims, "vouchers": paid.len(), "gas_used": gas }), ()))
}

/// Every renter withdraws the rest; nothing is left over, nothing is missing.
pub(super) async fn refund(chain: &Chain, renters: &[Renter; 3], debts: &Debts) -> Told<(Value, ())> {
    let pool = &chain.pool;
    let mut told = Vec::new();
    for renter in renters {
        let (asked, ready) = pool.thawing(renter.account(), BlockTag::Latest).await?;
        // The chain's clock is what counts; it is behind ours by less than a second.
        let wait = ready.0.saturating_sub(now().0) + 1_000;
        let receipt = withdraw(chain, renter, Duration::from_millis(wait) + ON_CHAIN).await?;
        let back = pool.token_balance(Address(renter.account().0), BlockTag::Latest).await?;
        let paid: u64 = debts.iter().filter(|((of, _), _)| *of == renter.account()).map(|(_, amount)| amount.0).sum();
        let left = pool.account(renter.account(), BlockTag::Latest).await?.balance;
        let sum = u128::from(paid) + back;
        expect(sum == u128::from(DEPOSIT), format!("paid {paid} + refunded {back} = deposited {DEPOSIT}"), sum)?;
        expect(left == Amount::ZERO, "nothing left in the vault", left)?;
        until(ON_CHAIN, &format!("the same books of {} in the log", renter.name), async || {
            let account = renter.client.account().await?;
            let same = (account.deposited.0, account.claimed.0, account.withdrawn.0) == (DEPOSIT, paid, DEPOSIT - paid);
            Ok(if same { Ok(()) } else { Err(format!("{account:?}")) })
        })
        .await?;
        told.push(json!({
            "renter": renter.account(), "deposited": Amount(DEPOSIT), "paid": Amount(paid), "refunded": back.to_string(),
            "thawed": asked, "withdrawal": receipt
        }));
    }
    let providers: BTreeSet<Account> = debts.keys().map(|(_, provider)| *provider).collect();
    let mut held = 0;
    for provider in providers {
        let totals = pool.totals(provider, BlockTag::Latest).await?;
        held += totals.earned.0 + totals.fee.0 - totals.paid_out.0 - totals.fee_out.0;
    }
    let vault = pool.token_balance(pool.at.vault, BlockTag::Latest).await?;
    expect(vault == u128::from(held), format!("{held} in the vault: what providers and operator earned"), vault)?;
    Ok((json!({ "renters": told, "vault_holds": vault.to_string() }), ()))
}

async fn withdraw(chain: &Chain, renter: &Renter, patience: Duration) -> Told<Value> {
    until(patience, &format!("{} to withdraw", renter.name), async || {
        let sent = chain.pool.send(&renter.signer, chain.pool.withdraw(renter.signer.address())).await;
        let receipt = sent.map_err(|error| crate::fault::chain(&error));
        Ok(receipt.map(|receipt| json!({ "transaction": receipt.tx, "block_number": receipt.block_number, "block_hash": receipt.block_hash })))
    })
    .await
}
