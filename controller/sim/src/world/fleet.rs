//! Machines and money for a pool in memory.

use selion_api::chain::ChainEvent;
use selion_api::slice::{GpuSpec, NodeSpec, Sandbox};
use selion_api::{Account, Address, Amount, GpuId, NodeId, Rate, TimeMs};

use super::DELEGATE;

/// An hour in milliseconds.
pub const HOUR: u64 = selion_api::unit::MS_PER_HOUR;
/// When simulated pools open: a round number, so that times read as time since then.
pub const START: TimeMs = TimeMs(1_000_000_000_000);
const GIB: u64 = 1 << 30;

/// Equal machines with whole GPUs on offer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// GPUs of each node; a node may have fewer than the others.
    pub gpus: Vec<u16>,
    /// Model of every GPU.
    pub model: String,
    /// Asks for a whole GPU, node by node; the last one holds for all further nodes.
    pub rates: Vec<Rate>,
}

impl Fleet {
    /// `nodes` machines with `gpus_per_node` each.
    #[must_use]
    pub fn even(nodes: u32, gpus_per_node: u16, model: &str) -> Self {
        let gpus = (0..nodes).map(|_| gpus_per_node).collect();
        Self { gpus, model: model.to_owned(), rates: vec![Rate(1_000_000)] }
    }

    /// So many GPUs on machines of `gpus_per_node`; the last one may have fewer.
    #[must_use]
    pub fn of_gpus(gpus: u64, gpus_per_node: u16, model: &str) -> Self {
        let size = u64::from(gpus_per_node.max(1));
        let full = gpus / size;
        let rest = u16::try_from(gpus % size).unwrap_or(u16::MAX);
        let sizes = (0..full).map(|_| gpus_per_node).chain((rest > 0).then_some(rest));
        Self { gpus: sizes.collect(), ..Self::even(0, gpus_per_node, model) }
    }

    /// GPUs in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.gpus.iter().map(|gpus| u64::from(*gpus)).sum()
    }

    /// Its nodes, numbered from 1.
    #[must_use]
    pub fn specs(&self) -> Vec<NodeSpec> {
        let last = self.rates.last().copied().unwrap_or_default();
        let rates = self.rates.iter().copied().chain(std::iter::repeat(last));
        (1_u32..).zip(&self.gpus).zip(rates).map(|((number, gpus), rate)| self.spec(number, *gpus, rate)).collect()
    }

    fn spec(&self, number: u32, gpus: u16, rate: Rate) -> NodeSpec {
        let gpu = |rank: u16| {
            let mut id = [0; 16];
            id[..4].copy_from_slice(&number.to_be_bytes());
            id[14..].copy_from_slice(&rank.to_be_bytes());
            GpuSpec {
                gpu: GpuId(id),
                model: self.model.clone(),
                mem_bytes: 80 * GIB,
                work_milli: 1_000,
                simulated: false,
                whole: Some(rate),
                mig: None,
                share: None,
            }
        };
        NodeSpec {
            node: node_id(number),
            provider: provider(),
            gpus: (0..gpus).map(gpu).collect(),
            cpu_milli: u32::from(gpus) * 8_000,
            ram_bytes: u64::from(gpus) * 64 * GIB,
            address: format!("node-{number}"),
            port_base: 20_000,
            ports: 1_000,
            sandbox: Sandbox::Namespaces,
            features: selion_api::BoxFeatures::NONE,
            region: String::new(),
            rack: String::new(),
            disk_bytes: 0,
            net_mbps: 0,
        }
    }
}

/// The node of that number; simulated nodes count from 1.
#[must_use]
pub fn node_id(number: u32) -> NodeId {
    let mut id = [0; 20];
    id[16..].copy_from_slice(&number.to_be_bytes());
    NodeId(id)
}

/// The renter of that number.
#[must_use]
pub fn account(number: u32) -> Account {
    let mut id = [0; 20];
    id[0] = 0xaa;
    id[16..].copy_from_slice(&number.to_be_bytes());
    Account(id)
}

fn provider() -> Account {
    Account([0x41; 20])
}

pub(super) fn pool_opened() -> ChainEvent {
    ChainEvent::PoolOpened {
        token: Address([1; 20]),
        vault: Address([2; 20]),
        owner: Account([4; 20]),
        authority: Account([3; 20]),
        fee_bps: 0,
        allow_simulated: true,
        allow_unsandboxed: false,
        finality_depth: 0,
        min_stake: Amount(0),
    }
}

pub(super) fn registered(spec: &NodeSpec) -> [ChainEvent; 3] {
    [
        ChainEvent::ProviderRegistered { provider: spec.provider, payout: Address([9; 20]), stake: Amount(1) },
        ChainEvent::NodeRegistered { node: spec.node, provider: spec.provider },
        ChainEvent::OfferSet { node: spec.node, spec_hash: spec.hash(), classes: spec.classes() },
    ]
}

pub(super) fn funded(renter: Account, amount: u64) -> [ChainEvent; 2] {
    [
        ChainEvent::Deposited { renter, amount: Amount(amount) },
        ChainEvent::KeyGranted { renter, key: DELEGATE, cap: Amount(amount), until: TimeMs(u64::MAX) },
    ]
}
