//! What a member uses of its node. Told beside the log, unsigned: a view for its renter, which nothing is billed by.

use borsh::{BorshDeserialize, BorshSerialize};

use crate::id::LeaseId;

/// The last reading of one member. What its node cannot read is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize, utoipa::ToSchema))]
pub struct Used {
    /// Processor time so far, of all its processes together, in milliseconds.
    pub cpu_ms: Option<u64>,
    /// Memory now, in bytes, with what the kernel caches of its files and what lies in its `/dev/shm` and `/tmp`.
    pub memory_bytes: Option<u64>,
    /// The most that it ever was.
    pub memory_peak_bytes: Option<u64>,
    /// Processes and threads now, with the two of the box itself.
    pub pids: Option<u64>,
    /// What it has written to disk and not removed, in bytes.
    pub disk_bytes: Option<u64>,
}

/// A reading, and of whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Usage {
    /// The lease.
    pub lease: LeaseId,
    /// Which run of it.
    pub attempt: u32,
    /// Rank of the member.
    pub member: u16,
    /// What it uses.
    pub used: Used,
}
