//! `selion agent doctor`: what works here, what does not, and what to do about it.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use selion_api::NodeSpec;
use selion_api::slice::Sandbox;
use selion_contracts::{BlockTag, Pool, Rpc};
use serde::Serialize;

use crate::agent::{Node, open_gpus};
use crate::config::{Config, GpuSource};
use crate::error::{AgentError, chain};
use crate::gpus::NvmlGpus;

/// Free space under which a check fails, in bytes: room for a few images and datasets.
const MIN_FREE: u64 = 5 << 30;
/// Largest accepted difference between this clock and the chain's or the controller's, in seconds.
const MAX_SKEW_S: u64 = 30;
/// Longest wait for the controller.
const WAIT: Duration = Duration::from_secs(5);

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Stable snake_case name.
    pub name: &'static str,
    /// Whether it is as it should be.
    pub ok: bool,
    /// What was found.
    pub detail: String,
    /// What to do; absent if all is well.
    pub remedy: Option<String>,
}

impl Check {
    fn good(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, ok: true, detail: detail.into(), remedy: None }
    }

    fn bad(name: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, ok: false, detail: detail.into(), remedy: Some(remedy.into()) }
    }
}

/// Looks at everything once. It changes nothing but for making the state directory and its keys where there are none.
pub async fn doctor(config: &Config) -> Vec<Check> {
    let mut checks = vec![driver(config), gpus(config)];
    let spec = node(config, &mut checks).await;
    checks.push(disk(&config.state_dir));
    checks.push(state_dir(&config.state_dir));
    checks.push(controller(&config.controller).await);
    chain_checks(config, spec.as_ref(), &mut checks).await;
    checks
}

fn driver(config: &Config) -> Check {
    const NAME: &str = "driver";
    match NvmlGpus::open().and_then(|nvml| nvml.driver_version()) {
        Ok(version) => Check::good(NAME, format!("NVIDIA driver {version}")),
        // Simulated GPUs need none.
        Err(error) if config.gpus != GpuSource::Nvml => {
            Check::good(NAME, format!("not needed for simulated GPUs: {error}"))
        }
        Err(error) => Check::bad(NAME, error.to_string(), "install the NVIDIA driver, or offer simulated GPUs"),
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
        Ok(_) => Check::bad(NAME, "none to offer", AgentError::NoGpus.to_string()),
        Err(error) => Check::bad(NAME, chain(&error), "repair the GPUs above, or offer simulated ones"),
    }
}

/// Opens the node as `run` would.
async fn node(config: &Config, checks: &mut Vec<Check>) -> Option<NodeSpec> {
    const NAME: &str = "sandbox";
    match Node::open(config).await {
        Ok(node) => {
            let spec = node.spec;
            checks.push(match spec.sandbox {
                Sandbox::None => Check::bad(
                    NAME,
                    "commands would run as bare child processes; most pools do not allow that",
                    "install bubblewrap, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1)",
                ),
                kind => Check::good(NAME, format!("{} works", crate::runtime::sandbox_name(kind))),
            });
            Some(spec)
        }
        Err(AgentError::Book(crate::book::BookError::InUse { .. })) => {
            checks
                .push(Check::good("agent", "an agent runs on this state directory; sandbox and offer are not checked"));
            None
        }
        Err(error) => {
            checks.push(Check::bad("agent", chain(&error), "correct what it says; `agent up` would stop there too"));
            None
        }
    }
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

async fn controller(url: &str) -> Check {
    const NAME: &str = "controller";
    let remedy = "start the controller, or correct --controller";
    let client = match reqwest::Client::builder().timeout(WAIT).build() {
        Ok(client) => client,
        Err(error) => return Check::bad(NAME, chain(&error), "this is a fault of the build"),
    };
    let asked = client.get(format!("{}/v1/pool", url.trim_end_matches('/'))).send().await;
    match asked {
        Ok(answer) if answer.status().is_success() => Check::good(NAME, format!("{url} answers")),
        Ok(answer) => Check::bad(NAME, format!("{url} answers {}", answer.status()), remedy),
        Err(error) => Check::bad(NAME, chain(&error), remedy),
    }
}

async fn chain_checks(config: &Config, spec: Option<&NodeSpec>, checks: &mut Vec<Check>) {
    let Some(address) = config.pool else {
        checks.push(Check::bad("chain", "no pool is set", "give --pool ADDRESS"));
        return;
    };
    let opened = match Rpc::new(&config.chain_rpc) {
        Ok(rpc) => Pool::open(rpc, address).await,
        Err(error) => Err(error.into()),
    };
    let pool = match opened {
        Ok(pool) => pool,
        Err(error) => {
            checks.push(Check::bad("chain", chain(&error), "correct --chain-rpc or --pool"));
            return;
        }
    };
    checks.push(Check::good("chain", format!("chain {} has the pool {address}", pool.chain_id)));
    checks.push(clock(&pool).await);
    if let Some(spec) = spec {
        checks.push(registered(&pool, spec).await);
        checks.push(offer(&pool, spec).await);
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

async fn registered(pool: &Pool, spec: &NodeSpec) -> Check {
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

async fn offer(pool: &Pool, spec: &NodeSpec) -> Check {
    const NAME: &str = "offer";
    match pool.offer(spec.node, BlockTag::Latest).await {
        Ok(Some(offer)) if offer.spec_hash == spec.hash() => {
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
