//! `selion authority`: what the owner of a pool, its authority, and who may follow them, do on chain.

use std::path::{Path, PathBuf};

use selion_api::{Account, Address, Amount, Hash32, Signature, TimeMs};
use selion_audit::evidence::begins_with;
use selion_contracts::court::Stated;
use selion_contracts::{BlockTag, Pool, Signer};
use serde::Serialize;

use super::onchain::{Act, Where};
use crate::dev::{give_gas, is_dev_chain};
use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::logged;
use crate::output::Output;
use crate::unit;

/// So many anchors may be made while a pool changes hands.
const ANCHORS_MEANWHILE: u32 = 5;

/// The owner and the authority of a pool: bond, fees, standbys, and who comes next.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Shows who owns the pool, who decides, when it was seen last, and what is at stake
    Show(Where),
    /// Replaces the authority's key, at once. As the owner
    Replace(Replace),
    /// Lets another account accept the pool after the terms' delay; without ACCOUNT nobody may. As the owner
    Announce(Announce),
    /// Accepts the pool, as the announced owner
    Accept(Accept),
    /// Gives up anchors of a log that is lost, and all of the bond with them. As the owner
    Disown(Disown),
    /// Prints an authority key's consent to be an owner's in the next epoch: what a contract that owns the pool needs
    Consent(Consent),
    /// Lets an account take the authority over after the pool's time of silence. As the owner
    Standby(Standby),
    /// Says that the authority is there; a running controller does so by itself
    Renew(Act),
    /// Takes the authority over, as a standby
    TakeOver(Act),
    /// Puts money at stake: what anyone can take who shows that the authority contradicted itself
    Bond(Money),
    /// Asks for a part of the bond back
    Unbond(Money),
    /// Takes what is leaving of the bond, once its time has come and before it is kept again
    Withdraw(Act),
    /// Takes the fees of an epoch, as its owner
    Fees(Fees),
}

/// A new key for the controller.
#[derive(Debug, clap::Args)]
pub struct Replace {
    /// File with the new authority's key; made if it is not there
    #[arg(long, value_name = "FILE")]
    authority_key: PathBuf,
    #[command(flatten)]
    act: Act,
}

/// Who comes next.
#[derive(Debug, clap::Args)]
pub struct Announce {
    /// The next owner
    #[arg(value_name = "ACCOUNT", value_parser = unit::payee::<Account>)]
    next: Option<Account>,
    #[command(flatten)]
    act: Act,
}

/// What the next owner takes over.
#[derive(Debug, clap::Args)]
pub struct Accept {
    /// File with the key of its authority; made if it is not there
    #[arg(long, value_name = "FILE")]
    authority_key: PathBuf,
    /// The log that it takes over: a controller's URL, a file with one published entry a line, or a data directory. What is
    /// anchored has to be in it
    #[arg(long, value_name = "LOG")]
    log: String,
    #[command(flatten)]
    act: Act,
}

/// What is left.
#[derive(Debug, clap::Args)]
pub struct Disown {
    /// Entries of the log that are still there, at most what is anchored
    #[arg(value_name = "ENTRIES")]
    size: u64,
    /// File with the authority's key of the next epoch; made if it is not there
    #[arg(long, value_name = "FILE")]
    authority_key: PathBuf,
    /// Yes, the whole bond is burnt
    #[arg(long, required = true)]
    burn_the_bond: bool,
    #[command(flatten)]
    act: Act,
}

/// To be whose.
#[derive(Debug, clap::Args)]
pub struct Consent {
    /// The owner
    #[arg(value_name = "ACCOUNT", value_parser = unit::payee::<Account>)]
    owner: Account,
    /// File with the authority's key; made if it is not there
    #[arg(long, value_name = "FILE")]
    authority_key: PathBuf,
    #[command(flatten)]
    at: Where,
}

/// Who may follow.
#[derive(Debug, clap::Args)]
pub struct Standby {
    /// The account
    #[arg(value_name = "ACCOUNT", value_parser = unit::payee::<Account>)]
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

/// Which fees.
#[derive(Debug, clap::Args)]
pub struct Fees {
    /// The epoch in which they were earned [default: the present one]
    #[arg(long, value_name = "EPOCH")]
    epoch: Option<u32>,
    /// Who gets them [default: the account of the key file]
    #[arg(long, value_name = "ADDRESS", value_parser = unit::payee::<Address>)]
    to: Option<Address>,
    #[command(flatten)]
    act: Act,
}

/// Owner and authority as they stand on chain.
#[derive(Debug, Serialize)]
struct Standing {
    owner: Account,
    announced: Option<Account>,
    announced_from_ms: Option<TimeMs>,
    authority: Account,
    epoch: u32,
    seen_ms: TimeMs,
    take_over_after_s: u32,
    bond: Amount,
    leaving: Amount,
    leaving_ready_ms: TimeMs,
    at_stake: Amount,
    convicted: bool,
    fees: Amount,
}

/// An authority key's consent.
#[derive(Debug, Serialize)]
struct Given {
    authority: Account,
    owner: Account,
    epoch: u32,
    signature: Signature,
}

/// Does it and shows what stands afterwards.
pub async fn main(out: Output, command: Command) -> Done {
    let at = match command {
        Command::Show(at) => at,
        Command::Consent(Consent { owner, authority_key, at }) => {
            let authority = Signer::open_or_create(&authority_key)?;
            let given = consent(&at.open().await?, &authority, owner).await?;
            return out.show(&given, |given| {
                format!(
                    "{} will be authority of {} in epoch {}: {}",
                    given.authority, given.owner, given.epoch, given.signature
                )
            });
        }
        Command::Replace(Replace { authority_key, act }) => {
            let owner = act.signer()?.account();
            let authority = Signer::open_or_create(&authority_key)?;
            let given = consent(&act.at.open().await?, &authority, owner).await?;
            act.send(|pool, _| vec![pool.replace_authority(given.authority, &given.signature)]).await?;
            act.at
        }
        Command::Announce(Announce { next, act }) => {
            act.send(|pool, _| vec![pool.announce_owner(next.unwrap_or(Account([0; 20])))]).await?;
            act.at
        }
        Command::Accept(Accept { authority_key, log, act }) => {
            accept(&act, &authority_key, &log).await?;
            act.at
        }
        Command::Disown(Disown { size, authority_key, act, .. }) => {
            let owner = act.signer()?.account();
            let authority = Signer::open_or_create(&authority_key)?;
            let given = consent(&act.at.open().await?, &authority, owner).await?;
            act.send(|pool, _| vec![pool.disown_anchors(size, given.authority, &given.signature)]).await?;
            act.at
        }
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
        Command::Fees(Fees { epoch, to, act }) => {
            let epoch = match epoch {
                Some(epoch) => epoch,
                None => act.at.open().await?.head(BlockTag::Latest).await?.epoch,
            };
            act.send(|pool, signer| vec![pool.cash_out_fees(epoch, to.unwrap_or(signer.address()))]).await?;
            act.at
        }
    };
    let standing = read(&at.open().await?).await?;
    out.show(&standing, |standing| table(out, standing))
}

/// The key's consent to be the owner's authority in the next epoch. On development chains its account is given gas.
async fn consent(pool: &Pool, authority: &Signer, owner: Account) -> Done<Given> {
    if is_dev_chain(pool.chain_id) {
        give_gas(&pool.rpc, authority.account()).await?;
    }
    let epoch = pool.head(BlockTag::Latest).await?.epoch.saturating_add(1);
    let signature = pool.sign_authority_binding(authority, owner, epoch)?;
    Ok(Given { authority: authority.account(), owner, epoch, signature })
}

/// Takes the pool over. An anchor that is made meanwhile voids what was agreed to: it is read and agreed to anew.
async fn accept(act: &Act, authority_key: &Path, log: &str) -> Done {
    let pool = act.at.open().await?;
    let owner = act.signer()?.account();
    let authority = Signer::open_or_create(authority_key)?;
    let given = consent(&pool, &authority, owner).await?;
    let mut left = ANCHORS_MEANWHILE;
    loop {
        let (size, root, digest) = taken_over(&pool, log).await?;
        let call =
            |pool: &Pool, _: &Signer| vec![pool.accept_owner(given.authority, &given.signature, size, root, digest)];
        let Err(failure) = act.send(call).await else { return Ok(()) };
        left -= 1;
        if left == 0 || pool.head(BlockTag::Latest).await?.size == size {
            return Err(failure);
        }
    }
}

/// What is anchored, which has to be in the log that the next owner has.
async fn taken_over(pool: &Pool, log: &str) -> Done<(u64, Hash32, Hash32)> {
    let head = pool.head(BlockTag::Latest).await?;
    if head.commitment == [0; 16] {
        return Ok((head.size, Hash32::ZERO, Hash32::ZERO));
    }
    let differs = |detail: String| {
        let suggestion = "get the whole log; who accepts another one than he has answers for it with the bond";
        Failure::new(Exit::Failure, "other_log", detail, suggestion)
    };
    let anchors = pool.last_anchors().await?;
    let Some(Stated::Anchor { size, root: anchored, digest, .. }) = anchors.last().copied() else {
        return Err(differs("the chain does not tell the last anchor".into()));
    };
    if !begins_with(&logged::published(log).await?, size, anchored) {
        return Err(differs(format!("the first {size} entries of {log} are not those that are anchored")));
    }
    Ok((size, anchored, digest))
}

async fn read(pool: &Pool) -> Done<Standing> {
    let terms = pool.terms(BlockTag::Latest).await?;
    let (owner, head) = (pool.owner(BlockTag::Latest).await?, pool.head(BlockTag::Latest).await?);
    let bond = pool.bond(owner, BlockTag::Latest).await?;
    let announced = pool.announced(BlockTag::Latest).await?;
    Ok(Standing {
        owner,
        announced: announced.map(|(next, _)| next),
        announced_from_ms: announced.map(|(_, ready)| ready),
        authority: pool.authority(BlockTag::Latest).await?,
        epoch: head.epoch,
        seen_ms: head.seen,
        take_over_after_s: terms.take_over_after_s,
        bond: bond.kept.saturating_add(bond.leaving),
        leaving: bond.leaving,
        leaving_ready_ms: bond.ready,
        at_stake: pool.at_stake(head.epoch, BlockTag::Latest).await?,
        convicted: pool.is_convicted(head.epoch, BlockTag::Latest).await?,
        fees: pool.fees_of(head.epoch, BlockTag::Latest).await?,
    })
}

fn table(out: Output, standing: &Standing) -> String {
    let take_over = match standing.take_over_after_s {
        0 => "nobody can".to_owned(),
        seconds => format!("by a standby, {seconds} s after the last sign of life"),
    };
    let leaving = match standing.leaving {
        Amount::ZERO => unit::show_money(0),
        leaving => {
            format!("{}, to be taken from {}", unit::show_money(leaving.0), unit::show_time(standing.leaving_ready_ms))
        }
    };
    let next = match (standing.announced, standing.announced_from_ms) {
        (Some(next), Some(from)) => format!("{next}, from {}", unit::show_time(from)),
        _ => "nobody".to_owned(),
    };
    let convicted = if standing.convicted { ", convicted" } else { "" };
    let row = |name: &str, value: String| [name.to_owned(), value];
    let rows = vec![
        row("owner", standing.owner.to_string()),
        row("may accept the pool", next),
        row("authority", standing.authority.to_string()),
        row("epoch", format!("{}{convicted}", standing.epoch)),
        row("seen", unit::show_time(standing.seen_ms)),
        row("take over", take_over),
        row("bond", unit::show_money(standing.bond.0)),
        row("of it leaving", leaving),
        row("behind this epoch", unit::show_money(standing.at_stake.0)),
        row("fees of this epoch", unit::show_money(standing.fees.0)),
    ];
    out.table(["OWNER AND AUTHORITY", ""], rows, "")
}
