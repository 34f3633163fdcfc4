//! The controller, and the machines with GPUs.

use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use selion_api::chain::ChainEvent;
use selion_api::rest::NodeView;
use selion_api::{Amount, NodeId};
use selion_client::Client;
use selion_contracts::BlockTag;
use serde_json::{Value, json};

use super::chain::{AUTHORITY_KEY, Chain, Deed};
use crate::fault::{Expecting, Told, expect, until};
use crate::process::free_port;
use crate::renter::Renter;
use crate::stage::Stage;

const PATIENCE: Duration = Duration::from_secs(20);
/// Simulated machines: name of the process, and model.
const SIMULATED: [(&str, &str); 3] = [("h100", H100), ("a100", A100), ("rtx4090", RTX)];
pub(super) const H100: &str = "H100 80GB";
pub(super) const A100: &str = "A100 80GB";
pub(super) const RTX: &str = "RTX 4090 24GB";
/// Stake of each provider in token base units: two tokens.
const STAKE: u64 = 2_000_000;
/// Ports given to members: clear of those that systems hand out by themselves, apart for each machine.
const FIRST_PORT: u32 = 12_000;
const PORTS: u32 = 64;
const PORT_ROWS: u32 = 60;

/// A machine and its agent.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    /// Name of the agent's process.
    pub name: String,
    pub model: String,
    pub node: NodeId,
}

/// TOML's quoting; JSON's is part of it.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn of_path(path: &Path) -> Told<String> {
    Ok(quoted(path.to_str().expecting("a path in UTF-8")?))
}

/// Configures and starts the controller, and waits until it answers.
pub(super) async fn controller(stage: &Stage, chain: &Chain) -> Told<(Value, String)> {
    let listen = format!("127.0.0.1:{}", free_port()?);
    // Short intervals, so that a short story shows what takes minutes elsewhere. Claims are not timed at all: a renter
    // who wants money back makes them due.
    let mut toml = format!(
        "listen = {}\nchain_rpc = {}\npool = {}\ndata_dir = {}\nauthority_key = {}\npoll_ms = 100\nanchor_ms = 2000\n\
         requests_per_minute = 60000\n",
        quoted(&listen),
        quoted(&chain.rpc_url),
        quoted(&chain.pool.at.controller.to_string()),
        of_path(&stage.path("controller"))?,
        of_path(&stage.path(AUTHORITY_KEY))?,
    );
    if let Some(kubo) = &stage.options.kubo {
        writeln!(toml, "kubo = {}\nkubo_publish = true", quoted(kubo))?;
    }
    toml.push_str("[policy]\nprepare_ms = 60000\nending_ms = 5000\nvoucher_ms = 2000\n");
    let file = stage.path("controller.toml");
    std::fs::write(&file, toml)?;
    let args: [OsString; 3] = ["controller".into(), "--config".into(), file.into_os_string()];
    let pid = stage.start("controller", args)?;
    let url = format!("http://{listen}");
    let client = Client::new(&url)?;
    until(PATIENCE, &format!("a controller at {url}"), async || {
        expect(stage.crew.obituaries().is_empty(), "the controller to run", "it ended")?;
        Ok(client.ready().await.map_err(|error| error.to_string()))
    })
    .await?;
    let pool = client.pool().await?;
    let ours = (pool.pool.controller, pool.vault) == (chain.pool.at.controller, chain.pool.at.vault);
    expect(ours, format!("pool {}", chain.pool.at.controller), format!("{pool:?}"))?;
    let evidence =
        json!({ "pid": pid, "url": url, "fence": pool.fence, "authority": pool.authority, "delegate": pool.delegate });
    Ok((evidence, url))
}

/// Starts an agent for every machine, and waits until chain and link agree on each.
pub(super) async fn providers(stage: &Stage, chain: &Chain, url: &str, anyone: &Renter) -> Told<(Value, Vec<Machine>)> {
    let mut pids = Vec::new();
    let row = FIRST_PORT + std::process::id() % PORT_ROWS * 4 * PORTS;
    for (at, (name, model)) in (0_u32..).zip(SIMULATED) {
        let gpus = format!("[gpus.simulated]\nmodels = [{}]\n", quoted(model));
        pids.push((name, start_agent(stage, chain, url, name, row + at * PORTS, &gpus)?));
    }
    let real = real_gpus(stage, url, chain).await?;
    if real.is_some() {
        pids.push(("nvidia", start_agent(stage, chain, url, "nvidia", row + 3 * PORTS, "")?));
    }
    let what = format!("{} nodes that can be leased", pids.len());
    let nodes = until(PATIENCE, &what, async || {
        expect(stage.crew.obituaries().is_empty(), "the agents to run", "one ended")?;
        let nodes = anyone.nodes().await?;
        let ready = nodes.iter().filter(|node| node.schedulable && node.linked).count();
        let state = |node: &NodeView| node.reason.map_or("schedulable", selion_api::Reason::code);
        let states: Vec<&str> = nodes.iter().map(state).collect();
        Ok(if ready == pids.len() { Ok(nodes) } else { Err(format!("{} known: {}", nodes.len(), states.join(", "))) })
    });
    let nodes = nodes.await?;
    let deeds = chain.deeds().await?;
    let (mut machines, mut told) = (Vec::new(), Vec::new());
    for (name, pid) in pids {
        let model = SIMULATED.iter().find(|(known, _)| *known == name).map(|(_, model)| *model);
        let is_it = |node: &&NodeView| {
            let gpus: Vec<_> = node.gpus.iter().map(|gpu| (gpu.spec.simulated, gpu.spec.model.as_str())).collect();
            model.map_or(gpus.iter().all(|(simulated, _)| !simulated), |model| gpus == [(true, model)])
        };
        let node = nodes.iter().find(is_it).expecting(&format!("the node of agent {name}"))?;
        let mut evidence = on_chain(chain, node, &deeds).await?;
        evidence["agent"] = name.into();
        evidence["pid"] = pid.into();
        told.push(evidence);
        let models: Vec<String> = node.gpus.iter().map(|gpu| gpu.spec.model.clone()).collect();
        machines.push(Machine { name: name.to_owned(), model: models.join(", "), node: node.node });
    }
    Ok((json!({ "nodes": told, "nvidia": real }), machines))
}

fn start_agent(stage: &Stage, chain: &Chain, url: &str, name: &str, port_base: u32, gpus: &str) -> Told<u32> {
    let toml = format!(
        "controller = {}\nchain_rpc = {}\npool = {}\nstate_dir = {}\nport_base = {port_base}\nports = {PORTS}\n\
         region = \"here\"\nmachine_root = true\nmeter_ms = 500\nstop_grace_ms = 1000\nstake = {STAKE}\ndev_fund = true\n{gpus}",
        quoted(url),
        quoted(&chain.rpc_url),
        quoted(&chain.pool.at.controller.to_string()),
        of_path(&stage.path("agents").join(name))?,
    );
    let file = stage.path(format!("agent-{name}.toml"));
    std::fs::write(&file, toml)?;
    let args: [OsString; 4] = ["agent".into(), "up".into(), "--config".into(), file.into_os_string()];
    stage.start(name, args)
}

/// What `selion agent doctor` says of this machine's own GPUs, if it has any to offer.
async fn real_gpus(stage: &Stage, url: &str, chain: &Chain) -> Told<Option<String>> {
    let dir = stage.path("doctor").into_os_string();
    let pool = chain.pool.at.controller.to_string();
    let args = [
        "--output",
        "json",
        "agent",
        "doctor",
        "--controller",
        url,
        "--chain-rpc",
        &chain.rpc_url,
        "--pool",
        &pool,
        "--state-dir",
    ];
    let answer = stage.tool(None, args.iter().map(OsString::from).chain([dir])).await?;
    let checks = answer.any_json("`selion agent doctor` to list its checks")?;
    let gpus = checks.as_array().into_iter().flatten().find(|check| check["name"] == "gpus" && check["ok"] == true);
    Ok(gpus.and_then(|check| check["detail"].as_str()).map(str::to_owned))
}

/// Owner, stake, node and offer, as the chain has them.
async fn on_chain(chain: &Chain, node: &NodeView, deeds: &[Deed]) -> Told<Value> {
    let pool = &chain.pool;
    let record = pool.node(node.node, BlockTag::Latest).await?;
    let owner = record.provider.expecting(&format!("node {} to have an owner on chain", node.node))?;
    expect(owner == node.provider, format!("node {} of {}", node.node, node.provider), owner)?;
    let provider = pool.provider(owner, BlockTag::Latest).await?.expecting(&format!("provider {owner} on chain"))?;
    expect(provider.stake >= Amount(STAKE), format!("a stake of {STAKE}"), provider.stake)?;
    let offer = pool.offer(node.node, BlockTag::Latest).await?.expecting(&format!("an offer of node {}", node.node))?;
    let concerns = |event: &ChainEvent| match event {
        ChainEvent::ProviderRegistered { provider, .. } => *provider == owner,
        ChainEvent::NodeRegistered { node: of, .. } | ChainEvent::OfferSet { node: of, .. } => *of == node.node,
        _ => false,
    };
    let deeds = deeds.iter().filter(|deed| deed.events.iter().any(concerns));
    let deeds: Vec<Value> = deeds.map(Deed::evidence).collect();
    expect(deeds.len() >= 3, "registration, node and offer in transactions", deeds.len())?;
    Ok(json!({
        "node": node.node,
        "provider": owner,
        "stake": provider.stake,
        "spec_hash": offer.spec_hash,
        "sandbox": node.sandbox,
        "models": node.gpus.iter().map(|gpu| &gpu.spec.model).collect::<Vec<_>>(),
        "transactions": deeds,
    }))
}
