//! `selion account`: the renter's money.

use std::time::Duration;

use selion_agent::Courier;
use selion_api::{Address, Amount, TimeMs};
use selion_contracts::{BlockTag, Pool, Receipt, Signer};
use selion_controller::wall_clock;

use super::account_keys::{self, OwnKey, Revoke};
use crate::dev;
use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::output::Output;
use crate::session::Session;
use crate::unit;

/// Shows and moves the renter's money. Amounts are tokens, as 12.50.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// What the pool knows of the account
    Show,
    /// Puts tokens in the pool's vault
    Deposit {
        /// How much
        #[arg(value_parser = unit::amount, allow_negative_numbers = true)]
        amount: Amount,
        /// On a development chain: takes free gas and tokens first
        #[arg(long)]
        dev: bool,
        #[command(flatten)]
        wait: Wait,
    },
    /// Lets the pool's controller sign vouchers for what you use, up to a cap
    Grant {
        /// At most this much from now on
        #[arg(value_parser = unit::amount, allow_negative_numbers = true)]
        cap: Amount,
        /// For use within this time from now
        #[arg(long, value_name = "TIME", default_value = "30d", value_parser = unit::duration)]
        until: u64,
        /// Has the pool's controller send it even if the account has gas; without gas it is tried anyway
        #[arg(long)]
        relay: bool,
        #[command(flatten)]
        wait: Wait,
    },
    /// Asks for tokens back; they can be withdrawn after the pool's thaw time
    Thaw {
        /// How much in all; 0 takes the request back
        #[arg(value_parser = unit::amount, allow_negative_numbers = true)]
        amount: Amount,
        /// Has the pool's controller send it even if the account has gas; without gas it is tried anyway
        #[arg(long)]
        relay: bool,
        #[command(flatten)]
        wait: Wait,
    },
    /// Shows which keys may sign vouchers for you, and which could once
    Keys,
    /// Ends a key: the pool's controller's, by which your leases are paid, unless you name another
    Revoke(Revoke),
    /// Registers a session key of your own, changes it, or moves its end out. No lease is paid by it: the controller signs for
    /// leases by its own key. It is for programs that sign vouchers themselves and have the pool countersign them
    OwnKey(OwnKey),
    /// Takes what has thawed
    Withdraw {
        /// Who gets it [default: the account]
        #[arg(long, value_name = "ADDRESS", value_parser = unit::payee::<Address>)]
        to: Option<Address>,
        /// Has the pool's controller send it even if the account has gas; without gas it is tried anyway
        #[arg(long)]
        relay: bool,
    },
}

/// Whether the command ends only when the pool counts what it did.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Wait {
    /// Waits until the block is final and in the pool's log: from then on it counts [default on development chains]
    #[arg(long)]
    wait: bool,
}

/// Between two looks at the pool's log.
const LOOK: Duration = Duration::from_millis(250);

/// Runs the sub-command.
pub async fn main(out: Output, command: Command) -> Done {
    let session = Session::open()?;
    match command {
        Command::Show => show(out, &session).await,
        Command::Deposit { amount, dev, wait } => deposit(out, &session, amount, dev, wait).await,
        Command::Grant { cap, until, relay, wait } => {
            let (signer, pool) = session.money().await?;
            let delegate = session.client.pool().await?.delegate;
            account_keys::may_be_granted(&pool, &signer, delegate).await?;
            let until = wall_clock().plus(until);
            let receipt = courier(&session, &pool, &signer, relay).send(pool.grant(delegate, cap, until)).await?;
            let what =
                format!("{delegate} may sign for {} tokens until {}", unit::show_money(cap.0), unit::show_time(until));
            let counts = counts(out, &session, &pool, &receipt, wait).await?;
            sent(out, &format!("{what}; {counts}"), &receipt)
        }
        Command::Thaw { amount, relay, wait } => {
            let (signer, pool) = session.money().await?;
            let receipt = courier(&session, &pool, &signer, relay).send(pool.thaw(amount)).await?;
            let (amount, ready) = pool.thawing(signer.account(), BlockTag::Latest).await?;
            let what = match amount {
                Amount::ZERO => "nothing thaws any more".to_owned(),
                amount => format!("{} tokens thaw until {}", unit::show_money(amount.0), unit::show_time(ready)),
            };
            let counts = counts(out, &session, &pool, &receipt, wait).await?;
            sent(out, &format!("{what}; {counts}"), &receipt)
        }
        Command::Keys => account_keys::keys(out, &session).await,
        Command::Revoke(args) => account_keys::revoke(out, &session, args).await,
        Command::OwnKey(args) => account_keys::own_key(out, &session, args).await,
        Command::Withdraw { to, relay } => withdraw(out, &session, to, relay).await,
    }
}

async fn show(out: Output, session: &Session) -> Done {
    let view = session.client.account().await?;
    out.show(&view, |view| {
        let row =
            |name: &str, amount: Amount, what: &str| [name.to_owned(), unit::show_money(amount.0), what.to_owned()];
        let rows = vec![
            row("deposited", view.deposited, "in all, final on chain"),
            row("withdrawn", view.withdrawn, "in all"),
            row("claimed", view.claimed, "by providers, in all"),
            row("promised", view.promised, "in vouchers, not claimed yet"),
            row("thawing", view.thawing, "on its way out"),
            row("reserved", view.reserved, "for leases that are live"),
            row("free", view.free, "for new leases"),
            row("delegated", view.delegated, "what the pool's controller may still sign for"),
        ];
        format!("account {}\n{}", view.account, out.table(["", "TOKENS", ""], rows, ""))
    })
}

async fn deposit(out: Output, session: &Session, amount: Amount, free: bool, wait: Wait) -> Done {
    if amount == Amount::ZERO {
        return Err(Failure::usage("a deposit of 0.00", "give an amount above 0"));
    }
    let (signer, pool) = session.money().await?;
    if free {
        dev::give_tokens(&pool, &signer, amount).await?;
    }
    let has = pool.token_balance(signer.address(), BlockTag::Latest).await?;
    if has < u128::from(amount.0) {
        let has = unit::show_money(u64::try_from(has).unwrap_or(u64::MAX));
        let wanted = unit::show_money(amount.0);
        let detail = format!("account {} has {has} of token {}, not {wanted}", signer.account(), pool.at.token);
        let free = if dev::is_dev_chain(pool.chain_id) { ", or add --dev: this is a development chain" } else { "" };
        return Err(Failure::new(Exit::Conflict, "no_tokens", detail, format!("send it the rest{free}")));
    }
    let courier = courier(session, &pool, &signer, false);
    courier.allow(pool.at.vault, amount, pool.approve_vault()).await?;
    let receipt = courier.send(pool.deposit(amount)).await?;
    let counts = counts(out, session, &pool, &receipt, wait).await?;
    sent(out, &format!("{} tokens deposited; {counts}", unit::show_money(amount.0)), &receipt)
}

/// Says when the pool counts a transaction, and waits for that where it was asked for.
pub async fn counts(out: Output, session: &Session, pool: &Pool, receipt: &Receipt, wait: Wait) -> Done<String> {
    let block = receipt.block_number;
    if !wait.wait && !dev::is_dev_chain(pool.chain_id) {
        return Ok(format!("it counts once block {block} is final (--wait waits for that)"));
    }
    let mut told = false;
    while session.client.registry().await?.block_number < block {
        if !told {
            out.note(format!("waiting until block {block} is final; Ctrl-C stops the waiting, not the transaction"));
            told = true;
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok("it counts now".to_owned())
}

async fn withdraw(out: Output, session: &Session, to: Option<Address>, relay: bool) -> Done {
    let (signer, pool) = session.money().await?;
    let (amount, ready) = pool.thawing(signer.account(), BlockTag::Latest).await?;
    if amount == Amount::ZERO {
        return Err(Failure::new(
            Exit::Conflict,
            "nothing_thaws",
            "nothing is thawing",
            "run: selion account thaw AMOUNT",
        ));
    }
    let chain_now = TimeMs(pool.rpc.header(BlockTag::Latest).await?.time_s.saturating_mul(1_000));
    if ready > chain_now.max(wall_clock()) {
        let detail = format!("{} tokens thaw until {}", unit::show_money(amount.0), unit::show_time(ready));
        return Err(Failure::new(Exit::Conflict, "still_thawing", detail, "withdraw after that"));
    }
    let call = pool.withdraw(to.unwrap_or(signer.address()));
    let receipt = courier(session, &pool, &signer, relay).send(call).await?;
    sent(out, &format!("{} tokens withdrawn", unit::show_money(amount.0)), &receipt)
}

/// Who brings the account's calls to the chain.
pub fn courier<'a>(session: &'a Session, pool: &'a Pool, signer: &'a Signer, always_relay: bool) -> Courier<'a> {
    Courier { pool, signer, controller: &session.profile.controller, always_relay }
}

fn sent(out: Output, what: &str, receipt: &Receipt) -> Done {
    let result = serde_json::json!({
        "transaction": receipt.tx,
        "block_number": receipt.block_number,
        "gas_used": receipt.gas_used,
    });
    out.show(&result, |_| format!("{what}\ntransaction {} in block {}", receipt.tx, receipt.block_number))
}
