//! What can be leased: geometry of GPUs, slices as asked for, and slots as given.

use alloc::string::String;
use alloc::vec::Vec;

use borsh::{BorshDeserialize, BorshSerialize};

use crate::id::{Account, GpuId, Hash32, NodeId};
use crate::unit::Rate;

/// Permille of a whole GPU.
pub const WHOLE_PERMILLE: u16 = 1000;

/// How a slice is kept apart from its neighbours: stated in every offer, and priced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
#[cfg_attr(
    feature = "wire",
    derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema),
    serde(rename_all = "snake_case")
)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum IsolationClass {
    /// A MIG instance: memory and compute apart in hardware.
    Mig = 0,
    /// A share whose memory and compute are capped by the driver shim.
    Capped = 1,
    /// A share under MPS limits.
    Mps = 2,
    /// A time-shared GPU without caps.
    Shared = 3,
    /// A whole GPU.
    Whole = 4,
    /// No GPU at all: for trying the pool out.
    Simulated = 5,
}

impl IsolationClass {
    /// Every class, in order of number.
    pub const ALL: [Self; 6] = [Self::Mig, Self::Capped, Self::Mps, Self::Shared, Self::Whole, Self::Simulated];

    /// The class as one bit of a set.
    #[must_use]
    pub fn bit(self) -> u8 {
        1 << (self as u8)
    }

    /// The code on the wire.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Mig => "mig",
            Self::Capped => "capped",
            Self::Mps => "mps",
            Self::Shared => "shared",
            Self::Whole => "whole",
            Self::Simulated => "simulated",
        }
    }
}

/// A MIG profile of a GPU as NVML lists it. Source: `nvmlDeviceGetGpuInstanceProfileInfo`,
/// `nvmlDeviceGetGpuInstancePossiblePlacements`.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
pub struct MigProfile {
    /// NVIDIA's name, e.g. `1g.10gb`.
    pub name: String,
    /// Memory slices at which an instance may start.
    pub starts: Vec<u8>,
    /// Memory slices an instance takes from its start.
    pub size: u8,
    /// Compute slices an instance takes.
    pub compute_slices: u8,
    /// Most instances of this profile on one GPU.
    pub max_instances: u8,
    /// Memory of an instance in bytes.
    pub mem_bytes: u64,
    /// Ask for one instance.
    pub rate: Rate,
}

/// What MIG can make of one GPU.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
pub struct MigTable {
    /// Memory slices of the GPU (8, or 4 on small boards).
    pub mem_slices: u8,
    /// Compute slices of the GPU (7, or 4).
    pub compute_slices: u8,
    /// The profiles on offer.
    pub profiles: Vec<MigProfile>,
}

/// Shares of one GPU: compute in permille, memory in bytes.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
pub struct ShareTerms {
    /// Ask for the whole GPU in shares; a share pays its larger part of compute and memory, rounded up.
    pub rate: Rate,
    /// Most shares at one time.
    pub max_shares: u16,
    /// How a share is kept apart.
    pub class: IsolationClass,
}

/// One GPU as its owner offers it. A mode that is `None` is not offered.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
pub struct GpuSpec {
    /// The device.
    pub gpu: GpuId,
    /// Model name, e.g. `H100 80GB`.
    pub model: String,
    /// Memory in bytes.
    pub mem_bytes: u64,
    /// Work that the whole GPU does, in thousandths of an A100 80GB: what shares of different models are compared by.
    pub work_milli: u32,
    /// True if there is no such device: every slice of it is of class `simulated`.
    pub simulated: bool,
    /// Ask for the whole GPU.
    pub whole: Option<Rate>,
    /// MIG geometry and asks.
    pub mig: Option<MigTable>,
    /// Share terms.
    pub share: Option<ShareTerms>,
}

/// How the agent keeps a renter's process away from the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, BorshSerialize, BorshDeserialize)]
#[cfg_attr(
    feature = "wire",
    derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema),
    serde(rename_all = "snake_case")
)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Sandbox {
    /// User, mount, pid, ipc, uts and net namespaces, and a view of the files by a list of what is allowed.
    Namespaces = 0,
    /// A child process beside the owner's own. Schedulable only in a pool created with that allowed.
    None = 1,
}

/// What the box of a node gives and holds, beside keeping apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "wire",
    derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema),
    serde(rename_all = "snake_case")
)]
#[repr(u8)]
pub enum BoxFeature {
    /// Processor time is held to what was leased.
    Cpu = 0,
    /// So is memory, without swap.
    Memory = 1,
    /// So are processes and threads.
    Pids = 2,
    /// So is what is written to disk.
    Disk = 3,
    /// So is the rate of the network.
    Net = 4,
    /// A network of the lease's own that reaches the internet, and nothing of the node or near it.
    Internet = 5,
    /// A network of the lease's own in which members of a gang reach each other.
    Gang = 6,
    /// Container images.
    Images = 7,
    /// The machine's own programs as a command's root, where a lease asks for it.
    MachineRoot = 8,
    /// Secrets in memory, for the command alone.
    Secrets = 9,
}

impl BoxFeature {
    /// Every feature, in order of number.
    pub const ALL: [Self; 10] = [
        Self::Cpu,
        Self::Memory,
        Self::Pids,
        Self::Disk,
        Self::Net,
        Self::Internet,
        Self::Gang,
        Self::Images,
        Self::MachineRoot,
        Self::Secrets,
    ];

    /// The code on the wire.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Disk => "disk",
            Self::Net => "net",
            Self::Internet => "internet",
            Self::Gang => "gang",
            Self::Images => "images",
            Self::MachineRoot => "machine_root",
            Self::Secrets => "secrets",
        }
    }
}

/// A set of [`BoxFeature`]s, one bit each. On the wire it is a list of their codes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
#[cfg_attr(
    feature = "wire",
    derive(serde::Serialize, serde::Deserialize),
    serde(from = "Vec<BoxFeature>", into = "Vec<BoxFeature>")
)]
pub struct BoxFeatures(pub u16);

impl BoxFeatures {
    /// None of them.
    pub const NONE: Self = Self(0);

    /// The set with one more.
    #[must_use]
    pub const fn with(self, feature: BoxFeature) -> Self {
        Self(self.0 | 1 << feature as u8)
    }

    /// Whether it is in the set.
    #[must_use]
    pub const fn has(self, feature: BoxFeature) -> bool {
        self.0 & 1 << feature as u8 != 0
    }

    /// Whether all of `needed` are in the set.
    #[must_use]
    pub const fn covers(self, needed: Self) -> bool {
        self.0 & needed.0 == needed.0
    }

    /// Whether it names nothing but what there is.
    #[must_use]
    pub const fn is_known(self) -> bool {
        self.0 < 1 << BoxFeature::ALL.len()
    }

    /// Its features, in order of number.
    pub fn iter(self) -> impl Iterator<Item = BoxFeature> {
        BoxFeature::ALL.into_iter().filter(move |feature| self.has(*feature))
    }
}

impl FromIterator<BoxFeature> for BoxFeatures {
    fn from_iter<I: IntoIterator<Item = BoxFeature>>(features: I) -> Self {
        features.into_iter().fold(Self::NONE, Self::with)
    }
}

impl From<Vec<BoxFeature>> for BoxFeatures {
    fn from(features: Vec<BoxFeature>) -> Self {
        features.into_iter().collect()
    }
}

impl From<BoxFeatures> for Vec<BoxFeature> {
    fn from(set: BoxFeatures) -> Self {
        set.iter().collect()
    }
}

/// A machine as its agent describes it; the offer on chain carries its [`hash`](NodeSpec::hash).
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
pub struct NodeSpec {
    /// The machine.
    pub node: NodeId,
    /// Its owner.
    pub provider: Account,
    /// Its GPUs, at most 64, in NVML index order.
    pub gpus: Vec<GpuSpec>,
    /// CPU that may be leased, in thousandths of a core.
    pub cpu_milli: u32,
    /// Memory that may be leased, in bytes.
    pub ram_bytes: u64,
    /// Host name or IP at which members of a gang reach each other.
    pub address: String,
    /// First port given to members.
    pub port_base: u16,
    /// How many ports may be given.
    pub ports: u16,
    /// How processes are kept apart from the machine.
    pub sandbox: Sandbox,
    /// What its box gives and holds.
    #[cfg_attr(feature = "wire", schema(value_type = Vec<BoxFeature>))]
    pub features: BoxFeatures,
    /// Where it stands, as the owner states it; empty if not stated.
    pub region: String,
    /// Which nodes of the region it stands close to, as the owner states it: one switch apart. Empty if not stated.
    pub rack: String,
    /// Disk that may be leased, in bytes.
    pub disk_bytes: u64,
    /// Network bandwidth that may be leased, in megabits a second.
    pub net_mbps: u32,
}

impl NodeSpec {
    /// SHA-256 of the canonical bytes: what the offer on chain commits to.
    #[must_use]
    pub fn hash(&self) -> Hash32 {
        crate::commit::sha256_of(self)
    }

    /// What it has beside its GPUs.
    #[must_use]
    pub fn beside(&self) -> crate::lease::Beside {
        [self.cpu_milli.into(), self.ram_bytes, self.disk_bytes, self.net_mbps.into()]
    }

    /// The set of isolation classes offered, one bit each.
    #[must_use]
    pub fn classes(&self) -> u8 {
        self.gpus.iter().fold(0, |set, gpu| set | gpu.classes())
    }
}

impl GpuSpec {
    /// The class in which a slot of this GPU is sold; `None` if the mode is not offered.
    #[must_use]
    pub fn class_of(&self, want: &SliceWant) -> Option<IsolationClass> {
        let class = match want {
            SliceWant::Whole => self.whole.map(|_| IsolationClass::Whole),
            SliceWant::Mig { .. } => self.mig.as_ref().map(|_| IsolationClass::Mig),
            SliceWant::Share { .. } => self.share.as_ref().map(|share| share.class),
        };
        class.map(|class| if self.simulated { IsolationClass::Simulated } else { class })
    }

    /// The set of isolation classes offered, one bit each.
    #[must_use]
    pub fn classes(&self) -> u8 {
        let modes = [
            SliceWant::Whole,
            SliceWant::Mig { profile: String::new() },
            SliceWant::Share { compute_permille: 0, mem_bytes: 0 },
        ];
        modes.iter().filter_map(|mode| self.class_of(mode)).fold(0, |set, class| set | class.bit())
    }
}

/// A slice as a renter asks for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, BorshSerialize, BorshDeserialize)]
#[cfg_attr(
    feature = "wire",
    derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema),
    serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)
)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum SliceWant {
    /// A whole GPU.
    Whole = 0,
    /// A MIG instance of this profile, at any legal placement.
    Mig {
        /// NVIDIA's profile name, e.g. `1g.10gb`.
        profile: String,
    } = 1,
    /// A share.
    Share {
        /// Compute in permille of the GPU, 1 to 1000.
        #[cfg_attr(feature = "wire", schema(minimum = 1, maximum = 1000))]
        compute_permille: u16,
        /// Memory in bytes.
        #[cfg_attr(feature = "wire", schema(minimum = 1, maximum = 9_223_372_036_854_775_807_i64))]
        mem_bytes: u64,
    } = 2,
}

/// The place on a GPU that a lease holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, BorshSerialize, BorshDeserialize)]
#[cfg_attr(
    feature = "wire",
    derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema),
    serde(tag = "kind", rename_all = "snake_case")
)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Slot {
    /// The whole GPU.
    Whole = 0,
    /// A MIG instance: memory slices `start..start + size`.
    Mig {
        /// Profile name.
        profile: String,
        /// First memory slice.
        start: u8,
        /// Memory slices taken.
        size: u8,
    } = 1,
    /// A share.
    Share {
        /// Compute in permille of the GPU.
        compute_permille: u16,
        /// Memory in bytes.
        mem_bytes: u64,
    } = 2,
}
