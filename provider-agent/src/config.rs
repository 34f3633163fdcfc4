//! What the owner sets.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use selion_api::commit::Network;
use selion_api::slice::Sandbox;
use selion_api::{Account, Address, Rate};
use serde::{Deserialize, Serialize};

use crate::runtime::Block;

/// Configuration of one agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Base URL of the controller, e.g. `http://127.0.0.1:7070`.
    pub controller: String,
    /// JSON-RPC URL of the chain, e.g. `http://127.0.0.1:8545`.
    pub chain_rpc: String,
    /// The pool's Controller contract.
    pub pool: Option<Address>,
    /// Where keys, reports and content are kept; one for each agent.
    pub state_dir: PathBuf,
    /// Which GPUs are offered.
    pub gpus: GpuSource,
    /// Cards that are offered, by UUID or by index as `nvidia-smi` counts; all there are if none is named.
    pub cards: Vec<String>,
    /// Cards that are not offered, named in the same way.
    pub except: Vec<String>,
    /// Work of models that nobody knows, by model name, in thousandths of an A100 80GB. It beats what is known.
    pub work: std::collections::BTreeMap<String, u32>,
    /// Asks.
    pub prices: Prices,
    /// The owner's account, if its key is kept elsewhere. Otherwise the account of `STATE/provider.key`.
    pub provider: Option<Account>,
    /// Host or IP at which members of a gang reach each other.
    pub address: String,
    /// First port given to members.
    pub port_base: u16,
    /// How many ports may be given.
    pub ports: u16,
    /// CPU on offer in thousandths of a core; all there is if not set.
    pub cpu_milli: Option<u32>,
    /// Memory on offer in bytes; all there is if not set.
    pub ram_bytes: Option<u64>,
    /// Where the machine stands, as the owner states it.
    pub region: String,
    /// Which machines of the region it stands close to, as the owner states it: one switch apart.
    pub rack: String,
    /// Disk on offer in bytes; 0 offers none.
    pub disk_bytes: u64,
    /// Network bandwidth on offer in megabits a second. It is counted, not enforced; 0 offers none.
    pub net_mbps: u32,
    /// Milliseconds between readings of a running member's meter.
    pub meter_ms: u64,
    /// Milliseconds a stopped command may take before it is killed.
    pub stop_grace_ms: u64,
    /// Milliseconds that a command runs on while no agent is there: one that crashed, or is started anew, takes it up.
    pub alone_ms: u64,
    /// How long a member may wait for the secrets of its lease, in milliseconds.
    pub secrets_ms: u64,
    /// Running time of a member, in milliseconds, that may stay without a voucher before the agent ends it.
    pub unsigned_cap_ms: u64,
    /// Between two looks at the vault of a renter whose members run, in milliseconds.
    pub vault_ms: u64,
    /// Whether the agent claims by itself what would be lost otherwise.
    pub claim: Claiming,
    /// What a renter must owe before the agent claims it by itself, in token base units.
    pub claim_min: u64,
    /// How commands are kept apart from the machine. It is never weaker than what is said here: if the sandbox does not
    /// work, the agent does not start.
    pub sandbox: Sandbox,
    /// Folders that every command may read, at the same path, beside the system's programs and libraries.
    pub show: Vec<PathBuf>,
    /// Folders that no command sees, wherever they lie, beside the agent's own state and the owner's home.
    pub hide: Vec<PathBuf>,
    /// Lets leases run among this machine's own programs and libraries, which they can read, where they ask for it.
    pub machine_root: bool,
    /// Most bytes of disk for container images, which are unpacked once and kept for the next lease.
    pub image_bytes: u64,
    /// How registries of images are reached.
    pub registries: Registries,
    /// What leases may reach beside the members of their gang.
    pub network: Network,
    /// Servers that find names for leases. One near the machine is reached at its port 53 and nowhere else.
    pub resolvers: Vec<Ipv4Addr>,
    /// Networks that no lease reaches, beside the machine's own and all that are not public.
    pub deny: Vec<Block>,
    /// Whether leases may send mail.
    pub smtp: bool,
    /// Binary that answers to [`SANDBOX_COMMAND`](crate::SANDBOX_COMMAND); this program if not set.
    pub sandbox_helper: Option<PathBuf>,
    /// Stake that [`join`](crate::join()) registers with, in token base units.
    pub stake: u64,
    /// Sends the owner's calls through the pool's controller even where the account has gas. Without gas it is tried anyway.
    pub relay: bool,
    /// Takes a controller and a chain node without TLS beyond this machine. Whoever is on the way can read tokens, commands
    /// and data then, and name himself the pool's authority.
    pub insecure: bool,
    /// On a development chain: give the provider's account gas and tokens.
    pub dev_fund: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            controller: "http://127.0.0.1:7070".into(),
            chain_rpc: "http://127.0.0.1:8545".into(),
            pool: None,
            state_dir: PathBuf::from("agent-state"),
            gpus: GpuSource::Nvml,
            cards: Vec::new(),
            except: Vec::new(),
            work: std::collections::BTreeMap::new(),
            prices: Prices::default(),
            provider: None,
            address: "127.0.0.1".into(),
            port_base: 20_000,
            ports: 1_000,
            cpu_milli: None,
            ram_bytes: None,
            region: String::new(),
            rack: String::new(),
            disk_bytes: 0,
            net_mbps: 0,
            meter_ms: 10_000,
            stop_grace_ms: 3_000,
            alone_ms: 60_000,
            secrets_ms: 4 * 60_000,
            unsigned_cap_ms: 15 * 60_000,
            vault_ms: 60_000,
            claim: Claiming::Auto,
            claim_min: 1_000_000,
            sandbox: Sandbox::Namespaces,
            show: Vec::new(),
            hide: Vec::new(),
            machine_root: false,
            image_bytes: 64 << 30,
            registries: Registries::default(),
            network: Network::Internet,
            resolvers: vec![Ipv4Addr::new(1, 1, 1, 1), Ipv4Addr::new(9, 9, 9, 9)],
            deny: Vec::new(),
            smtp: false,
            sandbox_helper: None,
            stake: 0,
            relay: false,
            insecure: false,
            dev_fund: false,
        }
    }
}

/// How registries of images are reached: by TLS and at public addresses, but for those that are named here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Registries {
    /// Hosts, with their port where it is not the usual, that are spoken to without TLS.
    pub plain_http: Vec<String>,
    /// Hosts, without a port, that may be on this machine or in a private network.
    pub private: Vec<String>,
}

/// Whether the agent claims by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Claiming {
    /// What would be lost otherwise, if the owner's key is in the state directory and has gas.
    Auto,
    /// Never; `selion agent claim` does it when it is asked to.
    Never,
}

/// Which GPUs are offered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GpuSource {
    /// The real GPUs of this machine.
    Nvml,
    /// Simulated ones, by model name.
    Simulated {
        /// E.g. `["H100 80GB", "RTX 4090 24GB"]`.
        models: Vec<String>,
    },
}

/// Asks of the owner. What is not set follows from [`Prices::per_work`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Prices {
    /// Ask per hour for the work of one A100 80GB: the whole of a GPU costs its work times this.
    pub per_work: Rate,
    /// Ask per hour for a whole GPU, by model name.
    pub whole: std::collections::BTreeMap<String, Rate>,
    /// Ask per hour for a whole GPU in shares, in thousandths of its whole rate.
    pub share_permille: u64,
}

impl Default for Prices {
    fn default() -> Self {
        Self { per_work: Rate(1_000_000), whole: std::collections::BTreeMap::new(), share_permille: 1_000 }
    }
}
