//! `selion authority`: what the holder of a pool's authority, and who may follow him, do on chain.

use selion_api::{Account, Amount, TimeMs};
use selion_contracts::{BlockTag, Pool};
use serde::Serialize;

use super::onchain::{Act, Where};
use crate::failure::Done;
use crate::output::Output;
use crate::unit;

/// The authority of a pool: its bond, and who takes over.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Shows who holds the authority, when it was seen last, and what it has at stake
    Show(Where),
    /// Lets an account take the authority over after the pool's time of silence
    Standby(Standby),
    /// Says that the authority is there; a running controller does so by itself
    Renew(Act),
    /// Takes the authority over, as a standby
    TakeOver(Act),
    /// Puts money at stake: what anyone can take with evidence that the authority lied
    Bond(Money),
    /// Asks for a part of the bond back
    Unbond(Money),
    /// Takes what has unbonded
    Withdraw(Act),
}

/// Who may follow.
#[derive(Debug, clap::Args)]
pub struct Standby {
    /// The account
    #[arg(value_name = "ACCOUNT")]
    standby: Account,
    /// It may not any more
    #[arg(long)]
    drop: bool,
    #[command(flatten)]
    act: Act,
}

/// How much.
#[derive(Debug, clap::Args)]
pub struct Money {
    /// In tokens
    #[arg(value_name = "AMOUNT", value_parser = unit::amount)]
    amount: Amount,
    #[command(flatten)]
    act: Act,
}

/// The authority as it stands on chain.
#[derive(Debug, Serialize)]
struct Standing {
    authority: Account,
    epoch: u32,
    seen_ms: TimeMs,
    take_over_after_s: u32,
    bond: Amount,
    unbonding: Amount,
    accusations: u32,
    penalty: Amount,
}

/// Does it and shows what stands afterwards.
pub async fn main(out: Output, command: Command) -> Done {
    let at = match command {
        Command::Show(at) => at,
        Command::Standby(Standby { standby, drop, act }) => {
            act.send(|pool, _| vec![pool.set_standby(standby, !drop)]).await?;
            act.at
        }
        Command::Renew(act) => {
            act.send(|pool, _| vec![pool.renew()]).await?;
            act.at
        }
        Command::TakeOver(act) => {
            act.send(|pool, _| vec![pool.take_over()]).await?;
            act.at
        }
        Command::Bond(Money { amount, act }) => {
            act.send(|pool, _| vec![pool.approve_court(), pool.put_bond(amount)]).await?;
            act.at
        }
        Command::Unbond(Money { amount, act }) => {
            act.send(|pool, _| vec![pool.unbond_bond(amount)]).await?;
            act.at
        }
        Command::Withdraw(act) => {
            act.send(|pool, signer| vec![pool.withdraw_bond(signer.address())]).await?;
            act.at
        }
    };
    let standing = read(&at.open().await?).await?;
    out.show(&standing, |standing| table(out, standing))
}

async fn read(pool: &Pool) -> Done<Standing> {
    let terms = pool.terms(BlockTag::Latest).await?;
    let (authority, head) = (pool.authority(BlockTag::Latest).await?, pool.head(BlockTag::Latest).await?);
    let bond = pool.bond(authority, BlockTag::Latest).await?;
    Ok(Standing {
        authority,
        epoch: head.epoch,
        seen_ms: head.seen,
        take_over_after_s: terms.take_over_after_s,
        bond: bond.bond,
        unbonding: bond.unbonding,
        accusations: bond.open,
        penalty: terms.penalty,
    })
}

fn table(out: Output, standing: &Standing) -> String {
    let take_over = match standing.take_over_after_s {
        0 => "nobody can".to_owned(),
        seconds => format!("by a standby, {seconds} s after the last sign of life"),
    };
    let rows = vec![
        ["authority".to_owned(), standing.authority.to_string()],
        ["epoch".to_owned(), standing.epoch.to_string()],
        ["seen".to_owned(), unit::show_time(standing.seen_ms)],
        ["take over".to_owned(), take_over],
        ["bond".to_owned(), unit::show_money(standing.bond.0)],
        ["of it unbonding".to_owned(), unit::show_money(standing.unbonding.0)],
        ["an offence costs".to_owned(), unit::show_money(standing.penalty.0)],
        ["open accusations".to_owned(), standing.accusations.to_string()],
    ];
    out.table(["AUTHORITY", ""], rows, "")
}
