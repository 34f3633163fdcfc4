//! `selion agent doctor`: what works here, what does not, and what to do about it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use selion_api::commit::PoolId;
use selion_api::rest::{NodeView, PoolView};
use selion_api::slice::Sandbox;
use selion_api::{Account, Hash32, NodeId, NodeSpec};
use selion_client::{Client, ClientError, LocalWallet};
use selion_contracts::{BlockTag, Pool, Rpc, Signer};
use serde::Serialize;

use crate::agent::{Node, PROVIDER_KEY, open_gpus};
use crate::config::Config;
use crate::controller;
use crate::error::{AgentError, chain};
use crate::pieces;
use crate::status::{self, Status};

/// Free space under which a check fails, in bytes: room for a few images and datasets.
const MIN_FREE: u64 = 5 << 30;
/// Largest accepted difference between this clock and the chain's or the controller's, in seconds.
const MAX_SKEW_S: u64 = 30;
/// Longest wait for each answer of the controller.
pub(crate) const WAIT: Duration = Duration::from_secs(5);
/// File of the node's key in the state directory.
pub(crate) const NODE_KEY: &str = "node.key";

/// What a node without a box loses.
const NO_SANDBOX: &str =
    "sandbox namespaces and all its features: without it only pools that allow unsandboxed nodes lease here";
/// What a node that does not open loses.
const EVERYTHING: &str = "the whole offer: the agent does not start";

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Stable snake_case name.
    pub name: &'static str,
    /// Whether it is as it should be.
    pub ok: bool,
    /// What was found.
    pub detail: String,
    /// What it takes from the offer, if it is not as it should be: features and isolation classes.
    pub costs: Option<String>,
    /// What to do; absent if all is well.
    pub remedy: Option<String>,
}

impl Check {
    pub(crate) fn good(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, ok: true, detail: detail.into(), costs: None, remedy: None }
    }

    pub(crate) fn bad(name: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, ok: false, detail: detail.into(), costs: None, remedy: Some(remedy.into()) }
    }

    pub(crate) fn costing(self, what: impl Into<String>) -> Self {
        Self { costs: Some(what.into()), ..self }
    }
}

/// Looks at everything once. It changes nothing but for making the state directory and its keys where there are none.
pub async fn doctor(config: &Config) -> Vec<Check> {
    examine(config).await.checks
}

/// What was found.
pub(crate) struct Findings {
    pub(crate) checks: Vec<Check>,
    /// What the node says it is, if that could be made out.
    pub(crate) spec: Option<NodeSpec>,
    /// Of the agent that runs, if one does.
    pub(crate) status: Option<Status>,
}

/// [`doctor`], with what it was made of.
pub(crate) async fn examine(config: &Config) -> Findings {
    let mut checks = pieces::pieces(config);
    checks.push(gpus(config));
    let found = node(config, &mut checks).await;
    checks.push(disk(&config.state_dir));
    checks.push(state_dir(&config.state_dir));
    let seen = found.seen.as_ref();
    let pool = chain_checks(config, seen, &mut checks).await;
    controller_checks(config, pool, seen, &mut checks).await;
    Findings { checks, spec: found.spec, status: found.status }
}

/// The node, as far as it can be seen.
#[derive(Default)]
struct Found {
    seen: Option<Seen>,
    spec: Option<NodeSpec>,
    status: Option<Status>,
}

impl Found {
    fn of(spec: NodeSpec, status: Option<Status>) -> Self {
        Self { seen: Some(Seen::of(&spec)), spec: Some(spec), status }
    }
}

/// The node that was found, and what its offer should be.
struct Seen {
    node: NodeId,
    provider: Account,
    /// Hash of the spec; `None` while an agent runs here that does not say it.
    spec_hash: Option<Hash32>,
}

impl Seen {
    fn of(spec: &NodeSpec) -> Self {
        Self { node: spec.node, provider: spec.provider, spec_hash: Some(spec.hash()) }
    }

    /// From the key files beside a running agent, which holds the directory's lock.
    fn by_keys(config: &Config) -> Option<Self> {
        let key = |name: &str| {
            let path = config.state_dir.join(name);
            path.exists().then(|| Signer::open_or_create(&path).ok()).flatten()
        };
        let node = NodeId(key(NODE_KEY)?.account().0);
        let provider = config.provider.or_else(|| Some(key(PROVIDER_KEY)?.account()))?;
        Some(Self { node, provider, spec_hash: None })
    }
}

fn gpus(config: &Config) -> Check {
    const NAME: &str = "gpus";
    // UUIDs do not matter here.
    let found = open_gpus(&config.gpus, b"doctor").and_then(|mut gpus| Ok(gpus.list()?));
    match found {
        Ok(found) if !found.is_empty() => {
            let models: Vec<&str> = found.iter().map(|facts| facts.model.as_str()).collect();
            Check::good(NAME, format!("{} to offer: {}", models.len(), models.join(", ")))
        }
        Ok(_) => Check::bad(NAME, "none to offer", AgentError::NoGpus.to_string()).costing(EVERYTHING),
        Err(error) => {
            Check::bad(NAME, chain(&error), "repair the GPUs above, or offer simulated ones").costing(EVERYTHING)
        }
    }
}

/// Opens the node as `run` would.
async fn node(config: &Config, checks: &mut Vec<Check>) -> Found {
    match Node::open(config).await {
        Ok(node) => {
            checks.extend(boxed(&node.spec));
            Found::of(node.spec, None)
        }
        Err(AgentError::Book(crate::book::BookError::InUse { .. })) => running(config, checks).await,
        Err(AgentError::Sandbox { sandbox, why, advice }) => {
            let found = format!("{sandbox} does not work here: {why}");
            checks.push(Check::bad("sandbox", found, advice).costing(NO_SANDBOX));
            Found::default()
        }
        Err(error) => {
            let remedy = "correct what it says; `agent up` would stop there too";
            checks.push(Check::bad("agent", chain(&error), remedy).costing(EVERYTHING));
            Found::default()
        }
    }
}

/// The node whose agent runs: it says what it is.
async fn running(config: &Config, checks: &mut Vec<Check>) -> Found {
    match status::ask(&config.state_dir).await {
        Ok(Some(status)) => {
            checks.push(Check::good("agent", format!("an agent runs on this state directory (pid {})", status.pid)));
            checks.extend(boxed(&status.spec));
            Found::of(status.spec.clone(), Some(status))
        }
        // It is about to begin, or to end.
        Ok(None) => {
            checks.push(Check::good("agent", "an agent runs on this state directory; it has checked the sandbox"));
            Found { seen: Seen::by_keys(config), ..Found::default() }
        }
        Err(error) => {
            checks.push(Check::bad("agent", chain(&error), "restart the agent"));
            Found { seen: Seen::by_keys(config), ..Found::default() }
        }
    }
}

/// What the node's box was found to be.
fn boxed(spec: &NodeSpec) -> Vec<Check> {
    const NAME: &str = "sandbox";
    if spec.sandbox == Sandbox::None {
        let found = "commands run as your own user beside your own programs";
        return vec![Check::bad(NAME, found, "leave --sandbox none away").costing(NO_SANDBOX)];
    }
    let kind = crate::runtime::sandbox_name(spec.sandbox);
    vec![Check::good(NAME, format!("{kind} works")), pieces::limits(spec.features), pieces::network(spec.features)]
}

fn disk(dir: &Path) -> Check {
    const NAME: &str = "disk";
    let there = dir.ancestors().find(|folder| folder.exists()).unwrap_or(Path::new("."));
    match nix::sys::statvfs::statvfs(there) {
        Ok(stat) => {
            let free = stat.blocks_available() * stat.fragment_size();
            let detail = format!("{} GiB free at {}", free >> 30, there.display());
            if free >= MIN_FREE {
                Check::good(NAME, detail)
            } else {
                Check::bad(NAME, detail, format!("free some space, or use a --state-dir with {} GiB", MIN_FREE >> 30))
            }
        }
        Err(errno) => Check::bad(NAME, format!("{}: {errno}", there.display()), "use a --state-dir on a local disk"),
    }
}

fn state_dir(dir: &Path) -> Check {
    const NAME: &str = "state_dir";
    match std::fs::metadata(dir) {
        Ok(meta) => {
            let mode = meta.permissions().mode() & 0o777;
            let detail = format!("{} has mode {mode:o}", dir.display());
            if mode & 0o066 == 0 {
                Check::good(NAME, detail)
            } else {
                Check::bad(NAME, detail, format!("run `chmod 700 {}`", dir.display()))
            }
        }
        Err(error) => Check::bad(NAME, format!("{}: {error}", dir.display()), "use a --state-dir that can be made"),
    }
}

/// The controller: whether it speaks for the pool, and what it says of the node.
async fn controller_checks(config: &Config, pool: Option<PoolId>, seen: Option<&Seen>, checks: &mut Vec<Check>) {
    const NAME: &str = "controller";
    let (url, remedy) = (crate::scrub::origin(&config.controller), "start the controller, or correct --controller");
    let Some(ours) = pool else {
        checks.push(Check::bad(NAME, format!("{url} is not asked: there is no pool to ask for"), "see `chain`"));
        return;
    };
    match controller::speaks_for(&config.controller, ours).await {
        Ok(view) => {
            checks.push(Check::good(NAME, format!("{url} speaks for pool {}", ours.controller)));
            checks.push(terms(&view));
        }
        Err(error) => {
            checks.push(Check::bad(NAME, chain(&error), remedy));
            return;
        }
    }
    if let Some(seen) = seen {
        checks.push(link(config, seen).await);
    }
}

/// The terms in words, with what stands out in them.
fn terms(view: &PoolView) -> Check {
    let terms = &view.terms;
    let days = |seconds: u32| format!("{} days", seconds / 86_400);
    let usual = format!(
        "fee {}.{:02} %, least stake {} tokens, back {} after unbonding",
        terms.fee_bps / 100,
        terms.fee_bps % 100,
        crate::join::tokens(terms.min_stake.0.into()),
        days(terms.unbond_s),
    );
    let said = terms.warnings().into_iter().fold(usual, |said, warning| format!("{said}; WARNING: {warning}"));
    Check::good("terms", said)
}

/// What the controller says of the node, by a login with a key of this directory.
async fn link(config: &Config, seen: &Seen) -> Check {
    const NAME: &str = "link";
    let asked = tokio::time::timeout(WAIT, view_of(config, seen.node)).await;
    match asked {
        Ok(Ok(view)) if view.schedulable => Check::good(NAME, "linked; leases can be placed on it"),
        Ok(Ok(view)) if !view.linked => {
            let remedy = "run `selion agent up`; if it runs, its lines say why the link does not hold";
            Check::bad(NAME, "the controller knows the node, and no agent of it is linked", remedy)
        }
        Ok(Ok(view)) => {
            let why = view.reason.map_or_else(String::new, |reason| format!(" ({reason}): {}", reason.text()));
            Check::bad(
                NAME,
                format!("linked, but no lease is placed on it{why}"),
                "see the reasons in docs/provider.md",
            )
        }
        Ok(Err(ClientError::Problem(problem))) if problem.status == 404 => {
            let remedy = "run `selion agent up`; right after a registration wait until its block is final";
            Check::bad(NAME, format!("the controller does not know node {}", seen.node), remedy)
        }
        Ok(Err(error)) => Check::bad(NAME, chain(&error), "the message says what is wrong"),
        Err(_) => Check::bad(NAME, format!("no answer within {} s", WAIT.as_secs()), "ask again; is it overloaded?"),
    }
}

/// The controller's view of a node, by a login that ends again.
pub(crate) async fn view_of(config: &Config, node: NodeId) -> Result<NodeView, ClientError> {
    let client = Client::new(&config.controller)?;
    let wallet = wallet(config).ok_or(ClientError::NoLogin)?;
    let session = client.login(&wallet, "selion agent doctor").await?;
    client.set_session(&session);
    let view = client.node(node).await;
    // Good for minutes only, if this fails.
    let _ = client.logout().await;
    view
}

/// The owner's key, or the node's where the owner's is kept elsewhere: any account may look at nodes.
fn wallet(config: &Config) -> Option<LocalWallet> {
    let texts = [PROVIDER_KEY, NODE_KEY].map(|name| std::fs::read_to_string(config.state_dir.join(name)));
    let text = texts.into_iter().find_map(Result::ok)?;
    let digits = text.trim();
    digits.strip_prefix("0x").unwrap_or(digits).parse().ok()
}

/// The chain, and what it has of the node. Which pool was found there.
async fn chain_checks(config: &Config, seen: Option<&Seen>, checks: &mut Vec<Check>) -> Option<PoolId> {
    let Some(address) = config.pool else {
        checks.push(Check::bad("chain", "no pool is set", "give --pool ADDRESS"));
        return None;
    };
    let opened = match Rpc::new(&config.chain_rpc) {
        Ok(rpc) => Pool::open(rpc, address).await,
        Err(error) => Err(error.into()),
    };
    let pool = match opened {
        Ok(pool) => pool,
        Err(error) => {
            checks.push(Check::bad("chain", chain(&error), "correct --chain-rpc or --pool"));
            return None;
        }
    };
    checks.push(Check::good("chain", format!("chain {} has the pool {address}", pool.chain_id)));
    checks.push(clock(&pool).await);
    if let Some(seen) = seen {
        checks.push(registered(&pool, seen).await);
        checks.push(staked(&pool, seen).await);
        checks.push(offer(&pool, seen).await);
    }
    Some(PoolId { chain_id: pool.chain_id, controller: address })
}

/// Stake below the pool's least takes the node off the market.
async fn staked(pool: &Pool, seen: &Seen) -> Check {
    const NAME: &str = "stake";
    let asked = futures::future::try_join(pool.provider(seen.provider, BlockTag::Latest), pool.terms(BlockTag::Latest));
    match asked.await {
        Ok((record, terms)) => {
            let have = record.map_or(selion_api::Amount::ZERO, |record| record.stake);
            let said = format!(
                "{} tokens, the pool's least is {}",
                crate::join::tokens(have.0.into()),
                crate::join::tokens(terms.min_stake.0.into())
            );
            if have >= terms.min_stake {
                return Check::good(NAME, said);
            }
            Check::bad(NAME, said, "run `selion agent up`, which adds what is missing; --stake AMOUNT adds up to more")
        }
        Err(error) => Check::bad(NAME, chain(&error), "correct --chain-rpc"),
    }
}

/// The chain may stand still, so only a clock that is behind it is certainly wrong.
async fn clock(pool: &Pool) -> Check {
    const NAME: &str = "clock";
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    match pool.rpc.header(BlockTag::Latest).await {
        Ok(head) if head.time_s > now + MAX_SKEW_S => Check::bad(
            NAME,
            format!("this clock is {} s behind the chain's newest block", head.time_s - now),
            "set the clock (timedatectl set-ntp true)",
        ),
        Ok(_) => Check::good(NAME, "not behind the chain"),
        Err(error) => Check::bad(NAME, chain(&error), "correct --chain-rpc"),
    }
}

async fn registered(pool: &Pool, spec: &Seen) -> Check {
    const NAME: &str = "registered";
    match pool.node(spec.node, BlockTag::Latest).await {
        Ok(record) if record.provider == Some(spec.provider) => {
            Check::good(NAME, format!("node {} belongs to provider {}", spec.node, spec.provider))
        }
        Ok(record) => {
            let owner = record.provider.map_or("nobody".to_owned(), |owner| owner.to_string());
            let detail = format!("node {} belongs to {owner} on chain", spec.node);
            Check::bad(NAME, detail, "run `selion agent up`, which registers it")
        }
        Err(error) => Check::bad(NAME, chain(&error), "correct --chain-rpc"),
    }
}

async fn offer(pool: &Pool, spec: &Seen) -> Check {
    const NAME: &str = "offer";
    match pool.offer(spec.node, BlockTag::Latest).await {
        Ok(Some(_)) if spec.spec_hash.is_none() => Check::good(NAME, "there is one on chain; `link` says if it fits"),
        Ok(Some(offer)) if Some(offer.spec_hash) == spec.spec_hash => {
            Check::good(NAME, "the offer on chain is what this node has")
        }
        Ok(found) => {
            let detail = if found.is_some() {
                "the offer on chain describes other hardware or prices"
            } else {
                "no offer on chain"
            };
            Check::bad(NAME, detail, "run `selion agent up`, which sets it")
        }
        Err(error) => Check::bad(NAME, chain(&error), "correct --chain-rpc"),
    }
}
