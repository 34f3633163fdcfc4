//! `selion agent`: what an owner does on chain with what he has in a pool. Each command looks first, says what follows, and
//! names what stands in its way with the command that removes it; nothing is sent before.

use std::path::PathBuf;

use selion_agent::{Act, Config, Holdings, Owner};
use selion_api::{Account, Address, Amount, Hash32, NodeId};
use selion_contracts::{Receipt, Signer};
use serde::Serialize;

use super::agent::Place;
use super::owner_words::{after, before, left, nothing_to_do, table};
use crate::consent::agreed;
use crate::exit::Exit;
use crate::failure::{Done, Failure};
use crate::output::Output;
use crate::{session, unit};

/// More steps than any way out has: whoever is not out by then has a chain node that does not follow.
const MOST_STEPS: usize = 8;

/// What an owner has in a pool, and what comes out of it again.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Shows what you have in the pool: stake, node, offer, earnings, and who is paid
    Show(OfNode),
    /// Takes the node off offer: no new leases, and those that run go on
    CloseOffer(OfNode),
    /// Unbinds the node from your account, and closes its offer
    Retire(Retire),
    /// Asks for stake back: it comes free after the pool's unbonding time
    Unbond(Unbond),
    /// Takes the stake that has come free, to who is paid
    WithdrawStake(Place),
    /// Names another account to be paid; only the one that is paid now can
    SetPayout(SetPayout),
    /// Takes you out of the pool, step by step; again once the stake has come free, for the rest
    Leave(Leave),
}

/// Which node.
#[derive(Debug, clap::Args)]
pub struct OfNode {
    /// The node [default: that of the state directory]
    #[arg(long, value_name = "NODE")]
    node: Option<NodeId>,
    #[command(flatten)]
    place: Place,
}

/// Which node, for good.
#[derive(Debug, clap::Args)]
pub struct Retire {
    #[command(flatten)]
    of: OfNode,
    /// Without asking
    #[arg(long)]
    yes: bool,
}

/// How much.
#[derive(Debug, clap::Args)]
pub struct Unbond {
    /// In tokens [default: all of the stake]
    #[arg(value_name = "AMOUNT", value_parser = unit::amount, allow_negative_numbers = true)]
    amount: Option<Amount>,
    /// Without asking
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    place: Place,
}

/// Who is paid.
#[derive(Debug, clap::Args)]
pub struct SetPayout {
    /// Who gets earnings and stake from then on, and alone can name another account
    #[arg(value_name = "ADDRESS", value_parser = unit::payee::<Address>)]
    to: Address,
    /// File with the key of who is paid now [default: provider.key of the state directory]
    #[arg(long, value_name = "FILE")]
    key_file: Option<PathBuf>,
    /// The owner's account, if its key is kept elsewhere
    #[arg(long, value_name = "ACCOUNT")]
    provider: Option<Account>,
    /// Without asking
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    place: Place,
}

/// All of it.
#[derive(Debug, clap::Args)]
pub struct Leave {
    /// Without asking
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    place: Place,
}

/// One act, done.
#[derive(Debug, Serialize)]
struct Sent {
    act: &'static str,
    transaction: Hash32,
    block_number: u64,
}

impl Sent {
    fn of(act: Act, receipt: &Receipt) -> Self {
        Self { act: act.code(), transaction: receipt.tx, block_number: receipt.block_number }
    }
}

/// What was done, and what the owner has since.
#[derive(Debug, Serialize)]
struct Did {
    sent: Vec<Sent>,
    holdings: Holdings,
}

/// Runs the sub-command.
pub async fn main(out: Output, command: Command) -> Done {
    match command {
        Command::Show(OfNode { node, place }) => {
            let config = place.config()?;
            let holdings = Owner::open(&config, node).await?.holdings().await?;
            out.show(&holdings, |holdings| table(out, holdings))
        }
        Command::CloseOffer(OfNode { node, place }) => {
            one(out, &place.config()?, node, true, |_| Act::CloseOffer).await
        }
        Command::Retire(Retire { of: OfNode { node, place }, yes }) => {
            one(out, &place.config()?, node, yes, |_| Act::Retire).await
        }
        Command::Unbond(Unbond { amount, yes, place }) => {
            if amount == Some(Amount::ZERO) {
                return Err(Failure::usage("a stake of 0.00", "give an amount above 0, or none for all of the stake"));
            }
            let act = |holdings: &Holdings| Act::Unbond(amount.unwrap_or(holdings.stake));
            one(out, &place.config()?, None, yes, act).await
        }
        Command::WithdrawStake(place) => one(out, &place.config()?, None, true, |_| Act::WithdrawStake).await,
        Command::SetPayout(args) => set_payout(out, args).await,
        Command::Leave(Leave { yes, place }) => leave(out, &place.config()?, yes).await,
    }
}

/// One act of the owner's.
async fn one(
    out: Output,
    config: &Config,
    node: Option<NodeId>,
    yes: bool,
    choose: impl FnOnce(&Holdings) -> Act,
) -> Done {
    let owner = Owner::open(config, node).await?;
    let key = owner.key()?;
    let had = owner.holdings().await?;
    let act = choose(&had);
    had.allows(act, key.account(), owner.now().await?)?;
    let leased = if matches!(act, Act::CloseOffer | Act::Retire) { owner.leased().await } else { None };
    out.note(before(act, &had, leased));
    do_it(out, &owner, key, act, &had, yes).await
}

async fn set_payout(out: Output, args: SetPayout) -> Done {
    let SetPayout { to, key_file, provider, yes, place } = args;
    let mut config = place.config()?;
    config.provider = provider.or(config.provider);
    let owner = Owner::open(&config, None).await?;
    let other = key_file.as_deref().map(session::signer).transpose()?;
    let key = match &other {
        Some(key) => key,
        None => owner.key()?,
    };
    let (had, act) = (owner.holdings().await?, Act::SetPayout(to));
    had.allows(act, key.account(), owner.now().await?)?;
    out.note(before(act, &had, None));
    do_it(out, &owner, key, act, &had, yes).await
}

async fn do_it(out: Output, owner: &Owner<'_>, key: &Signer, act: Act, had: &Holdings, yes: bool) -> Done {
    agreed(out, yes, "do it?")?;
    let receipt = owner.send(act, key).await?;
    let did = Did { sent: vec![Sent::of(act, &receipt)], holdings: owner.holdings().await? };
    out.show(&did, |did| format!("{}\ntransaction {}", after(act, had, &did.holdings), receipt.tx))
}

/// Step by step, as far as it goes now.
async fn leave(out: Output, config: &Config, yes: bool) -> Done {
    let owner = Owner::open(config, None).await?;
    let mut has = owner.holdings().await?;
    let plan = has.way_out(owner.now().await?);
    let dir = config.state_dir.display().to_string();
    if plan.contains(&Act::Retire) && owner.agent_runs()? {
        return Err(agent_runs(&dir, has.node.map(|held| held.node)));
    }
    if plan.is_empty() {
        let did = Did { sent: Vec::new(), holdings: has };
        return out.show(&did, |did| nothing_to_do(&did.holdings, &dir));
    }
    let leased = if plan.contains(&Act::Retire) { owner.leased().await } else { None };
    for act in &plan {
        out.note(before(*act, &has, leased));
    }
    if plan.contains(&Act::Retire) && owner.unsent_outputs() > 0 {
        out.note(format!(
            "results of {} ended members wait in {dir} for the pool, and never get there once the node is retired: if their \
             renters are to have them, start the agent again and wait",
            owner.unsent_outputs()
        ));
    }
    let key = owner.key()?;
    agreed(out, yes, "go?")?;
    let mut sent = Vec::new();
    for _ in 0..MOST_STEPS {
        let Some(act) = has.way_out(owner.now().await?).first().copied() else { break };
        let receipt = owner.send(act, key).await?;
        let had = std::mem::replace(&mut has, owner.holdings().await?);
        out.note(format!("done: {}; transaction {}", after(act, &had, &has), receipt.tx));
        sent.push(Sent::of(act, &receipt));
    }
    let did = Did { sent, holdings: has };
    out.show(&did, |did| left(&did.holdings, &dir))
}

fn agent_runs(dir: &str, node: Option<NodeId>) -> Failure {
    let node = node.map_or_else(|| "NODE".to_owned(), |node| node.to_string());
    Failure::new(
        Exit::Conflict,
        "agent_runs",
        format!("an agent runs on {dir}: what it runs would end with it"),
        format!(
            "run `selion node pause {node}`, wait until `selion node show {node}` shows nothing leased, stop the agent, then \
             run this again"
        ),
    )
}
