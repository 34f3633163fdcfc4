//! What a step decided. Effects are published with their entry; `effects_root` commits to them.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use borsh::{BorshDeserialize, BorshSerialize};
use selion_api::lease::{BillLine, LeaseState, Refusal};
use selion_api::slice::IsolationClass;
use selion_api::{Account, Amount, GpuId, LeaseId, NodeId, Rate, Reason, Slot, TimeMs};

use crate::ledger::Transfer;

/// A slot given to a member of a lease: one for each of its GPUs.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Grant {
    /// The lease.
    pub lease: LeaseId,
    /// Which run of it.
    pub attempt: u32,
    /// Rank of the member.
    pub member: u16,
    /// Who holds it.
    pub renter: Account,
    /// Who earns.
    pub provider: Account,
    /// Where.
    pub node: NodeId,
    /// On which GPU.
    pub gpu: GpuId,
    /// The place on it.
    pub slot: Slot,
    /// How it is kept apart.
    pub class: IsolationClass,
    /// The ask of that GPU, frozen here.
    pub rate: Rate,
}

/// A pair's total rose: a voucher for it is to be signed and delivered.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct VoucherDue {
    /// Who pays.
    pub renter: Account,
    /// Who earns.
    pub provider: Account,
    /// All that was ever billed between them.
    pub cumulative: Amount,
    /// Use up to here is covered.
    pub used_through: TimeMs,
}

/// One effect. Variant numbers are for ever.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Effect {
    /// A lease came to be or changed its state.
    Moved {
        /// Which.
        lease: LeaseId,
        /// The state reached.
        state: LeaseState,
        /// Why, for `waiting`, `ending` and `ended`.
        reason: Option<Reason>,
        /// Which run; 0 before the first grant.
        attempt: u32,
    } = 0,
    /// A slot was given. A member of several GPUs has one on each of them, in the order of the node's spec.
    Granted(Grant) = 1,
    /// All slots of a member came free.
    Freed {
        /// Whose it was.
        lease: LeaseId,
        /// Which run.
        attempt: u32,
        /// Rank.
        member: u16,
    } = 2,
    /// A member's bill for one run is final.
    Billed(BillLine) = 3,
    /// Money moved between pockets.
    Moneyed(Transfer) = 4,
    /// A voucher is due.
    VoucherDue(VoucherDue) = 5,
    /// A node's schedulability changed; `None` means schedulable.
    NodeChanged {
        /// Which.
        node: NodeId,
        /// Why not.
        reason: Option<Reason>,
    } = 6,
    /// The input was turned away.
    Refused(Refusal) = 7,
    /// Room is kept for a waiting lease, or is not any more.
    Booked {
        /// Which.
        lease: LeaseId,
        /// It starts then at the latest; `None` when its booking is gone without a grant.
        at: Option<TimeMs>,
    } = 8,
    /// A run is being stopped for a lease of a higher class.
    Preempted {
        /// Which.
        lease: LeaseId,
        /// Which run of it.
        attempt: u32,
        /// For whom.
        by: LeaseId,
    } = 9,
    /// An owner takes a node back, or one GPU of it, or gives it again.
    Reclaimed {
        /// Which node.
        node: NodeId,
        /// Only this GPU; the whole node if `None`.
        gpu: Option<GpuId>,
        /// What is still there then is stopped; `None` when it is not wanted back any more.
        by: Option<TimeMs>,
    } = 10,
    /// A member of an active lease was lost with its node, and is to get another place while the others run on. Its bill,
    /// if it ran, is final and follows.
    Broken {
        /// Whose it was.
        lease: LeaseId,
        /// Which run of it.
        attempt: u32,
        /// Rank.
        member: u16,
    } = 11,
    /// Members that were lost get other places: their grants follow, all with this attempt.
    Repaired {
        /// Which lease.
        lease: LeaseId,
        /// The run of the repaired members, the highest of the lease.
        attempt: u32,
    } = 12,
    /// A repaired member runs: its bill begins here.
    Joined {
        /// Whose it is.
        lease: LeaseId,
        /// Which run of it.
        attempt: u32,
        /// Rank.
        member: u16,
    } = 13,
    /// A lease was to go to a state that may not follow the one it is in, and did not. No correct release writes this.
    Illegal {
        /// Which.
        lease: LeaseId,
        /// Where it stands.
        from: LeaseState,
        /// Where it was to go.
        to: LeaseState,
    } = 14,
    /// A lease lasts longer than it did. What that costs is reserved next, if it runs.
    Extended {
        /// Which.
        lease: LeaseId,
        /// How long it may be active in all, in milliseconds.
        duration_ms: u64,
    } = 15,
}

impl Effect {
    /// The leaf of this effect in its entry's `effects_root`. Grants and bill lines have a fixed ABI width, so that
    /// a contract can parse one in a dispute; see [`crate::effect::abi`]. The others are canonical bytes.
    #[must_use]
    pub fn leaf(&self) -> Vec<u8> {
        match self {
            Self::Granted(grant) => abi::grant(grant),
            Self::Billed(line) => abi::bill(line),
            other => selion_api::commit::canonical(other),
        }
    }
}

/// Grants and bill lines as 32-byte big-endian words, the first of which is the variant's number.
pub mod abi {
    use super::{BillLine, Grant, Slot, Vec};

    fn word(to: &mut Vec<u8>, bytes: &[u8]) {
        to.extend(core::iter::repeat_n(0, 32_usize.saturating_sub(bytes.len())));
        to.extend_from_slice(bytes);
    }

    fn number(to: &mut Vec<u8>, value: u64) {
        word(to, &value.to_be_bytes());
    }

    /// 14 words: 1, lease seq, lease index, attempt, member, renter, provider, node, gpu, slot kind, slot a, slot b,
    /// class, rate. Slot a and b: whole 0, 0; MIG start, size; share permille, bytes.
    #[must_use]
    pub fn grant(grant: &Grant) -> Vec<u8> {
        let (kind, a, b) = match &grant.slot {
            Slot::Whole => (0, 0, 0),
            Slot::Mig { start, size, .. } => (1, u64::from(*start), u64::from(*size)),
            Slot::Share { compute_permille, mem_bytes } => (2, u64::from(*compute_permille), *mem_bytes),
        };
        let mut words = Vec::with_capacity(14 * 32);
        number(&mut words, 1);
        number(&mut words, grant.lease.seq);
        number(&mut words, u64::from(grant.lease.index));
        number(&mut words, u64::from(grant.attempt));
        number(&mut words, u64::from(grant.member));
        word(&mut words, &grant.renter.0);
        word(&mut words, &grant.provider.0);
        word(&mut words, &grant.node.0);
        word(&mut words, &grant.gpu.0);
        number(&mut words, kind);
        number(&mut words, a);
        number(&mut words, b);
        number(&mut words, grant.class as u64);
        number(&mut words, grant.rate.0);
        words
    }

    /// 10 words: 3, lease seq, lease index, attempt, member, renter, provider, rate, billable ms, amount.
    #[must_use]
    pub fn bill(line: &BillLine) -> Vec<u8> {
        let mut words = Vec::with_capacity(10 * 32);
        number(&mut words, 3);
        number(&mut words, line.lease.seq);
        number(&mut words, u64::from(line.lease.index));
        number(&mut words, u64::from(line.attempt));
        number(&mut words, u64::from(line.member));
        word(&mut words, &line.renter.0);
        word(&mut words, &line.provider.0);
        number(&mut words, line.rate.0);
        number(&mut words, line.billable_ms);
        number(&mut words, line.amount.0);
        words
    }
}

/// What the one who entered the input is told.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[borsh(use_discriminant = true)]
#[repr(u8)]
pub enum Answer {
    /// It was done.
    Done = 0,
    /// A lease was created.
    Created(LeaseId) = 1,
    /// The same request came before and created this lease.
    Repeated(LeaseId) = 2,
    /// It was turned away; nothing but the refusal happened.
    Refused(Refusal) = 3,
}

/// Whose rows changed. Rows are a function of State; a reader writes those named here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Touched {
    /// Leases.
    pub leases: BTreeSet<LeaseId>,
    /// Nodes, also when what they hold changed.
    pub nodes: BTreeSet<NodeId>,
    /// Nodes whose desired state changed.
    pub desired: BTreeSet<NodeId>,
    /// Accounts whose money changed.
    pub accounts: BTreeSet<Account>,
    /// True if providers, components or pool terms changed.
    pub registry: bool,
}

/// All that a step did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// In order; published.
    pub effects: Vec<Effect>,
    /// For the one who asked.
    pub answer: Answer,
    /// For the rows.
    pub touched: Touched,
    /// True if the bound of work was reached: enter [`Input::Continue`](crate::Input::Continue) next.
    pub more: bool,
}
