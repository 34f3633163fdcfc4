//! What a party says to the pool beside its requests and reports: that it gives a lease back or makes it longer, pauses a node, takes one
//! back. Whoever has the account's key signs it. Each statement carries the time at which it was said, so that none is
//! meant for another time, and none is said twice.

use borsh::{BorshDeserialize, BorshSerialize};

use crate::commit::{PoolId, signing_digest};
use crate::id::{Account, GpuId, Hash32, LeaseId, NodeId, Signature};
use crate::unit::TimeMs;

/// A signed statement counts for so long before and after the time at which it was said, in milliseconds.
pub const SAID_WITHIN_MS: u64 = 300_000;

/// That a party said it: when, by its own clock, and its signature over the statement with that time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Said {
    /// When. The same statement at the same time is the same word, and is said once.
    pub said_ms: TimeMs,
    /// By the account's key, over the statement's [`digest`](Statement::digest).
    pub signature: Signature,
}

impl Said {
    /// Whether it still counts, or counts yet, at `now`.
    #[must_use]
    pub fn is_near(&self, now: TimeMs) -> bool {
        now.since(self.said_ms).max(self.said_ms.since(now)) <= SAID_WITHIN_MS
    }
}

/// What is signed.
pub trait Statement: BorshSerialize {
    /// Tells it from every other kind of statement.
    const KIND: &'static str;

    /// The 32 bytes that the account signs (EIP-191).
    fn digest(&self, pool: &PoolId) -> Hash32
    where
        Self: Sized,
    {
        signing_digest(pool, Self::KIND, self)
    }
}

/// A renter gives a lease back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Release {
    /// Who says so.
    pub renter: Account,
    /// Which.
    pub lease: LeaseId,
    /// When.
    pub said_ms: TimeMs,
}

/// A renter makes a lease last longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Extend {
    /// Who says so.
    pub renter: Account,
    /// Which.
    pub lease: LeaseId,
    /// By so much, in milliseconds.
    pub for_ms: u64,
    /// Tells this extension of the lease from every other: [`extension_key`].
    pub key: Hash32,
    /// When.
    pub said_ms: TimeMs,
}

/// What an `Idempotency-Key` is in the log.
#[must_use]
pub fn extension_key(renter: Account, idempotency_key: &str) -> Hash32 {
    crate::commit::sha256_of(&(renter, idempotency_key))
}

/// An owner pauses a node, or resumes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct SetPaused {
    /// Who says so.
    pub provider: Account,
    /// Which.
    pub node: NodeId,
    /// The new value.
    pub paused: bool,
    /// When.
    pub said_ms: TimeMs,
}

/// An owner takes a node back, or one GPU of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Reclaim {
    /// Who says so.
    pub provider: Account,
    /// Which node.
    pub node: NodeId,
    /// Only this GPU; the whole node if `None`.
    pub gpu: Option<GpuId>,
    /// What is there may stay for so long, in milliseconds.
    pub notice_ms: u64,
    /// When.
    pub said_ms: TimeMs,
}

impl Statement for Release {
    const KIND: &'static str = "release";
}

impl Statement for Extend {
    const KIND: &'static str = "extend";
}

impl Statement for SetPaused {
    const KIND: &'static str = "set_paused";
}

impl Statement for Reclaim {
    const KIND: &'static str = "reclaim";
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Address;

    #[test]
    fn a_word_counts_within_five_minutes_of_its_time_and_no_longer() {
        let said = Said { said_ms: TimeMs(1_000_000), signature: Signature::ZERO };
        for (now, counts) in
            [(699_999, false), (700_000, true), (1_000_000, true), (1_300_000, true), (1_300_001, false)]
        {
            assert_eq!(said.is_near(TimeMs(now)), counts, "{now}");
        }
    }

    #[test]
    fn a_statement_changes_with_every_part_and_with_the_pool() {
        let pool = PoolId { chain_id: 1, controller: Address([1; 20]) };
        let pause = SetPaused { provider: Account([1; 20]), node: NodeId([2; 20]), paused: true, said_ms: TimeMs(3) };
        let others = [
            SetPaused { provider: Account([9; 20]), ..pause },
            SetPaused { node: NodeId([9; 20]), ..pause },
            SetPaused { paused: false, ..pause },
            SetPaused { said_ms: TimeMs(4), ..pause },
        ];
        for other in others {
            assert_ne!(pause.digest(&pool), other.digest(&pool));
        }
        assert_ne!(pause.digest(&pool), pause.digest(&PoolId { chain_id: 2, ..pool }));
    }
}
