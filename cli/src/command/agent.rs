//! `selion agent`: offers this machine's GPUs.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use selion_agent::runtime::{Block, sandbox_name};
use selion_agent::{AgentError, Claiming, Config, CourierError, Event, GpuSource, JoinError, Standing};
use selion_api::commit::Network;
use selion_api::slice::Sandbox;
use selion_api::{Account, Address};

use super::agent_doctor::{self, Doctor};
use super::agent_install::{self, Install};
use super::agent_status::{self, Status};
use super::{agent_cards, owner};
use crate::consent::agreed;
use crate::exit::Exit;
use crate::failure::{Done, Failure, chain};
use crate::layers::layered;
use crate::output::{Output, line, printable};
use crate::serving::Flags;
use crate::unit;

/// Offers this machine's GPUs in a pool.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Registers what the chain does not have yet, then serves leases until stopped
    Up(Args),
    /// Looks at everything an agent needs; says what each missing piece costs, and the command that mends it
    Doctor(Doctor),
    /// Shows what the running agent of a state directory is at
    Status(Status),
    /// Writes a systemd unit for these settings
    Install(Install),
    /// Pays the owner's earnings out of the pool's vault, to who is paid in the pool
    CashOut(Args),
    /// Claims the vouchers of the state directory, without the pool's controller
    Claim(Args),
    #[command(flatten)]
    Owner(owner::Command),
}

impl Command {
    /// Whether it was asked for JSON in its own way.
    pub fn json(&self) -> bool {
        matches!(self, Self::Status(status) if status.json)
    }
}

/// Which owner, at which pool.
#[derive(Debug, clap::Args)]
pub struct Place {
    /// TOML file; SELION_AGENT_* and flags win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Base URL of the controller
    #[arg(long, value_name = "URL")]
    controller: Option<String>,
    /// JSON-RPC of the chain [default: http://127.0.0.1:8545]
    #[arg(long, value_name = "URL")]
    chain_rpc: Option<String>,
    /// The pool's Controller contract
    #[arg(long, value_name = "ADDRESS")]
    pool: Option<Address>,
    /// Keys, reports and content; one folder for each agent [default: agent-state]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Has the pool's controller send the owner's calls even if the account has gas; without gas it is tried anyway
    #[arg(long)]
    relay: bool,
}

/// What the owner sets.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    place: Place,
    /// Offers a simulated GPU of this model instead of real ones, e.g. "H100 80GB"; may be repeated
    #[arg(long, value_name = "MODEL")]
    simulate: Vec<String>,
    /// Card to offer, by UUID or by index as nvidia-smi counts; may be repeated, and several with commas between
    /// [default: all there are]
    #[arg(long = "gpu", value_name = "CARD", value_delimiter = ',')]
    cards: Vec<String>,
    /// Card not to offer, in the same way. One on which a lease runs is drained, not cut
    #[arg(long, value_name = "CARD", value_delimiter = ',')]
    except: Vec<String>,
    /// Work of a model that is not known, in A100s of 80 GB, e.g. "RTX A4000=0.25"; may be repeated
    #[arg(long, value_name = "MODEL=WORK", value_parser = agent_cards::work)]
    work: Vec<(String, u32)>,
    /// Tokens per hour for the whole of a model, e.g. "RTX A4000=0.30", instead of its work times --price; may be repeated
    #[arg(long = "ask", value_name = "MODEL=RATE", value_parser = agent_cards::ask)]
    asks: Vec<(String, selion_api::Rate)>,
    /// The owner's account, if its key is kept elsewhere
    #[arg(long, value_name = "ACCOUNT")]
    provider: Option<Account>,
    /// Host or IP at which members of a gang reach each other [default: 127.0.0.1]
    #[arg(long, value_name = "HOST")]
    address: Option<String>,
    /// First port given to members [default: 20000]
    #[arg(long, value_name = "PORT")]
    port_base: Option<u16>,
    /// Where the machine stands
    #[arg(long, value_name = "TEXT")]
    region: Option<String>,
    /// Which machines of the region it stands close to: one switch apart
    #[arg(long, value_name = "TEXT")]
    rack: Option<String>,
    /// Disk to lease beside slices, e.g. 500GiB [default: none]
    #[arg(long, value_name = "SIZE", value_parser = unit::memory)]
    disk: Option<u64>,
    /// Network bandwidth to lease beside slices, in megabits a second; counted, not enforced [default: none]
    #[arg(long, value_name = "MBPS")]
    net: Option<u32>,
    /// Tokens per hour for the work of one A100 80GB; other GPUs cost in proportion [default: 1.00]
    #[arg(long, value_name = "RATE", value_parser = unit::rate)]
    price: Option<selion_api::Rate>,
    /// Stake to register with, in tokens
    #[arg(long, value_name = "AMOUNT", value_parser = unit::amount)]
    stake: Option<selion_api::Amount>,
    /// Takes controller and chain node without TLS beyond this machine
    #[arg(long)]
    insecure: bool,
    /// How commands are kept apart from this machine: `namespaces`, or `none`, which runs them as your own user beside your
    /// own programs and is never chosen for you [default: namespaces]
    #[arg(long, value_name = "SANDBOX", value_parser = sandbox)]
    sandbox: Option<Sandbox>,
    /// Folder that every command may read, e.g. /opt/conda; may be repeated. Programs and libraries in /usr are readable
    /// in any case
    #[arg(long, value_name = "DIR")]
    show: Vec<PathBuf>,
    /// Folder that no command sees even where a folder that is shown holds it, beside the state directory and your home;
    /// may be repeated
    #[arg(long, value_name = "DIR")]
    hide: Vec<PathBuf>,
    /// What leases may reach beside the members of their gang: `internet`, never this machine nor what is near it, or
    /// `none` [default: internet]
    #[arg(long, value_name = "WHICH", value_parser = network)]
    network: Option<Network>,
    /// Address of a server that finds names for leases; may be repeated [default: 1.1.1.1, 9.9.9.9]
    #[arg(long = "resolver", value_name = "IP")]
    resolvers: Vec<Ipv4Addr>,
    /// Network that no lease reaches, e.g. 130.60.0.0/16, beside this machine's own and all that are not public; may be
    /// repeated
    #[arg(long = "deny", value_name = "IP/BITS")]
    deny: Vec<Block>,
    /// Lets leases send mail
    #[arg(long)]
    smtp: bool,
    /// Lets leases run among this machine's own programs, which they can read, where they ask for it (--root machine)
    #[arg(long)]
    machine_root: bool,
    /// Running time of a lease that may stay without a voucher before the agent ends it [default: 15m]
    #[arg(long, value_name = "TIME", value_parser = unit::duration)]
    unsigned_cap: Option<u64>,
    /// Whether the agent claims by itself what would be lost otherwise: `auto`, if the owner's key is in the state directory
    /// and has gas, or `never` [default: auto]
    #[arg(long, value_name = "WHEN", value_parser = claiming)]
    claim: Option<Claiming>,
    /// Takes the place of the agent that runs on the state directory, as with a new binary: its leases run on
    #[arg(long)]
    upgrade: bool,
    /// On a development chain: takes free gas and tokens
    #[arg(long)]
    dev_fund: bool,
    /// Stakes without asking
    #[arg(long)]
    yes: bool,
    /// Prints the configuration that the layers make, and ends
    #[arg(long)]
    print_config: bool,
}

impl Place {
    /// The configuration that this place's layers make.
    pub fn config(self) -> Done<Config> {
        let (file, flags) = self.flags()?;
        layered(file.as_deref(), "SELION_AGENT_", &flags)
    }

    /// The file, and what beats it.
    fn flags(self) -> Done<(Option<PathBuf>, Flags)> {
        let mut flags = Flags::default();
        flags
            .set("controller", self.controller)?
            .set("chain_rpc", self.chain_rpc)?
            .set("pool", self.pool)?
            .set("state_dir", self.state_dir)?
            .set("relay", self.relay.then_some(true))?;
        Ok((self.config, flags))
    }
}

impl Args {
    pub fn config(self) -> Done<Config> {
        let (file, mut flags) = self.place.flags()?;
        let simulated = (!self.simulate.is_empty()).then_some(GpuSource::Simulated { models: self.simulate });
        flags
            .set("gpus", simulated)?
            .set("provider", self.provider)?
            .set("address", self.address)?
            .set("port_base", self.port_base)?
            .set("region", self.region)?
            .set("rack", self.rack)?
            .set("disk_bytes", self.disk)?
            .set("net_mbps", self.net)?
            .set("cards", (!self.cards.is_empty()).then_some(self.cards))?
            .set("except", (!self.except.is_empty()).then_some(self.except))?
            .set("work", agent_cards::table(self.work))?
            .set("prices", agent_cards::prices(self.price, self.asks))?
            .set("stake", self.stake.map(|stake| stake.0))?
            .set("sandbox", self.sandbox)?
            .set("show", (!self.show.is_empty()).then_some(self.show))?
            .set("hide", (!self.hide.is_empty()).then_some(self.hide))?
            .set("network", self.network)?
            .set("resolvers", (!self.resolvers.is_empty()).then_some(self.resolvers))?
            .set("deny", (!self.deny.is_empty()).then_some(self.deny))?
            .set("smtp", self.smtp.then_some(true))?
            .set("machine_root", self.machine_root.then_some(true))?
            .set("unsigned_cap_ms", self.unsigned_cap)?
            .set("claim", self.claim)?
            .set("insecure", self.insecure.then_some(true))?
            .set("dev_fund", self.dev_fund.then_some(true))?;
        layered(file.as_deref(), "SELION_AGENT_", &flags)
    }
}

/// Reads whether the agent claims by itself.
fn claiming(text: &str) -> Result<Claiming, String> {
    match text {
        "auto" => Ok(Claiming::Auto),
        "never" => Ok(Claiming::Never),
        _ => Err("is auto or never".to_owned()),
    }
}

/// Reads what leases may reach.
fn network(text: &str) -> Result<Network, String> {
    match text {
        "none" => Ok(Network::None),
        "internet" => Ok(Network::Internet),
        _ => Err("is none or internet".to_owned()),
    }
}

/// Reads the name of a sandbox.
pub fn sandbox(text: &str) -> Result<Sandbox, String> {
    [Sandbox::Namespaces, Sandbox::None]
        .into_iter()
        .find(|sandbox| sandbox_name(*sandbox) == text)
        .ok_or_else(|| "is namespaces or none".to_owned())
}

/// What an owner reads of it.
fn sandbox_sentence(sandbox: Sandbox) -> &'static str {
    match sandbox {
        Sandbox::Namespaces => "sandbox namespaces: commands see /usr and their own folders",
        Sandbox::None => "NO SANDBOX: commands run as your own user and can read and change all that you can",
    }
}

/// Runs the sub-command.
pub async fn main(out: Output, command: Command) -> Done {
    match command {
        Command::Up(args) if args.print_config => out.json(&args.config()?),
        Command::Up(args) => {
            let (asks, upgrade) = (!args.yes && !args.dev_fund, args.upgrade);
            let config = args.config()?;
            if upgrade {
                succeed(out, &config).await?;
            }
            up(out, config, asks).await
        }
        Command::Doctor(args) => agent_doctor::main(out, args).await,
        Command::Status(args) => agent_status::main(out, args).await,
        Command::Install(args) => agent_install::main(out, args),
        Command::Claim(args) => claim(out, &args.config()?).await,
        Command::CashOut(args) => cash_out(out, &args.config()?).await,
        Command::Owner(command) => owner::main(out, command).await,
    }
}

/// Ends the agent that runs; what it started is taken up.
async fn succeed(out: Output, config: &Config) -> Done {
    let pid = selion_agent::succeed(&config.state_dir).await.map_err(|error| {
        let next = "`selion agent status` shows what runs; see `docs/provider.md`, Commands outlive the agent";
        Failure::new(Exit::Conflict, "upgrade", chain(&error), next)
    })?;
    if out.is_json() {
        return out.json(&serde_json::json!({ "event": "succeeds", "pid": pid }));
    }
    line(&format!("takes the place of the agent that was process {pid}"))
}

async fn up(out: Output, config: Config, asks: bool) -> Done {
    // What is made for leases is read by the ids that they run under; what is private says so itself.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    if selion_agent::may_run(&config) {
        // A pool waits for some seconds; a chain may take longer than that to answer.
        if out.is_json() {
            out.json(&serde_json::json!({ "event": "taking_up" }))?;
        } else {
            line("commands of an earlier start are taken up first; what the chain has of this node is not looked at")?;
        }
        selion_agent::run(config, crate::stop::token()?, move |event| tell(out, &event)).await?;
        return Ok(());
    }
    let prospect = selion_agent::look(&config).await?;
    agree(out, &prospect.standing, asks)?;
    // Only now: until here Ctrl-C ends the program, also while it asks.
    let stop = crate::stop::token()?;
    let joined = tokio::select! {
        joined = prospect.join() => joined?,
        () = stop.cancelled() => return Ok(()),
    };
    if !out.is_json() {
        let sent = joined.transactions.len();
        line(&format!("node {} of provider {}: {sent} transactions sent", joined.node, joined.provider))?;
    } else {
        out.json(&serde_json::json!({ "event": "joined", "joined": joined }))?;
    }
    selion_agent::run(config, stop, move |event| tell(out, &event)).await?;
    Ok(())
}

/// Shows the pool's terms and, where stake will be locked and somebody sits there, asks.
fn agree(out: Output, standing: &Standing, asks: bool) -> Done {
    if out.is_json() {
        return out.json(&serde_json::json!({ "event": "terms", "standing": standing }));
    }
    line(&format!("pool {} on chain {}", standing.pool.controller, standing.pool.chain_id))?;
    line(&super::pool::terms(out, &standing.authority.to_string(), &standing.terms))?;
    if standing.to_stake == selion_api::Amount::ZERO {
        return Ok(());
    }
    let stake = unit::show_money(standing.to_stake.0);
    let back = unit::show_duration(u64::from(standing.terms.unbond_s) * 1_000);
    line(&format!("joining locks {stake} tokens of {}; they come back {back} after unbonding", standing.provider))?;
    agreed(out, !asks, "lock them?")
}

async fn cash_out(out: Output, config: &Config) -> Done {
    let done = selion_agent::cash_out(config).await?;
    out.show(&done, |done| {
        let paid = match done.transaction {
            Some(tx) => {
                let amount = unit::show_money(done.amount.0);
                format!("{amount} tokens of provider {} paid to {}\ntransaction {tx}", done.provider, done.payee)
            }
            None => format!("provider {} has no unpaid earnings", done.provider),
        };
        if done.unclaimed == selion_api::Amount::ZERO {
            return paid;
        }
        let open = unit::show_money(done.unclaimed.0);
        format!(
            "{paid}\n{open} tokens, before the operator's fee, are in vouchers that are not claimed yet: the controller \
             claims them by itself, or you do (docs/provider.md, Money)"
        )
    })
}

async fn claim(out: Output, config: &Config) -> Done {
    let done = selion_agent::claim(config).await?;
    out.show(&done, |done| {
        if done.vouchers == 0 {
            return "every voucher of this state directory is claimed".to_owned();
        }
        let (claimed, left) = (unit::show_money(done.claimed.0), unit::show_money(done.left.0));
        let sent = done.transactions.iter().map(|tx| format!("transaction {tx}\n")).collect::<String>();
        let paid = format!("{sent}{claimed} tokens of {} vouchers claimed, the operator's fee included", done.vouchers);
        if done.left == selion_api::Amount::ZERO {
            return paid;
        }
        format!("{paid}\n{left} tokens were not paid: a renter's deposit is short, or a key or an epoch is over")
    })
}

/// Nobody may be listening any more; that is no reason to stop.
fn tell(out: Output, event: &Event) {
    let now = unit::show_time(selion_controller::wall_clock());
    let _ = if out.is_json() { out.json(event) } else { line(&format!("{now} {}", sentence(event))) };
}

/// What a controller said of it may be anything.
fn sentence(event: &Event) -> String {
    match event {
        Event::Up { gpus, sandbox, .. } => {
            format!("{gpus} GPUs to offer; {}; Ctrl-C stops the agent", sandbox_sentence(*sandbox))
        }
        Event::Cards(cards) => agent_cards::sentence(cards),
        Event::Linked => "linked: the controller knows this node".to_owned(),
        Event::LinkLost { why } => format!("link lost ({}); connecting again", printable(why)),
        Event::Refused { reason, detail } => format!("refused: {reason}: {}", printable(detail)),
        Event::Member { member, what, metered_ms } => {
            format!("{} member {} {what}, metered {}", member.lease, member.member, unit::show_elapsed(*metered_ms))
        }
        Event::Voucher { renter, cumulative } => {
            format!("voucher of {renter}: {} tokens in all", unit::show_money(cumulative.0))
        }
        Event::Stopping => "stopping".to_owned(),
    }
}

impl From<AgentError> for Failure {
    fn from(error: AgentError) -> Self {
        Self::new(Exit::Failure, "agent", chain(&error), "`selion agent doctor` looks at everything an agent needs")
    }
}

impl From<CourierError> for Failure {
    fn from(error: CourierError) -> Self {
        match error {
            CourierError::Pool(error) => error.into(),
            CourierError::Controller(error) => error.into(),
            other => Self::new(Exit::Failure, "relay", chain(&other), "the message says what is missing"),
        }
    }
}

impl From<JoinError> for Failure {
    fn from(error: JoinError) -> Self {
        match error {
            JoinError::Agent(error) => error.into(),
            JoinError::Pool(error) => error.into(),
            JoinError::Sign(error) => error.into(),
            JoinError::Courier(error) => error.into(),
            JoinError::NoPool => {
                Self::usage(error, "ask the pool's operator, or run `selion up` for a pool of your own")
            }
            other => Self::new(Exit::Failure, "join", chain(&other), "`selion agent doctor` shows what the chain has"),
        }
    }
}

#[cfg(test)]
mod tests {
    use selion_api::Reason;

    use super::*;

    #[test]
    fn what_a_controller_says_to_an_agent_cannot_move_the_cursor() {
        let evil = || "no\u{1b}[2J\n2026-11-24 voucher of nobody".to_owned();
        let events = [Event::LinkLost { why: evil() }, Event::Refused { reason: Reason::BadRequest, detail: evil() }];
        for event in events {
            let told = sentence(&event);
            assert!(!told.contains(['\u{1b}', '\n']) && told.contains("voucher of nobody"), "{told:?}");
        }
    }
}
