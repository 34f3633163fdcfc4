//! A node and a want, as the terms see them.

use borsh::{BorshDeserialize, BorshSerialize};

/// Thousandths of a GPU.
pub const WHOLE: u16 = 1000;

/// A node as the terms see it: what is left on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View<'a> {
    /// Interned GPU model of the node, below 64.
    pub model: u8,
    /// CPU left, in thousandths of a core.
    pub cpu: u32,
    /// Memory left, in MiB.
    pub ram: u32,
    /// Thousandths left on each device, in device order; a device in MIG mode has 0 here and is judged by its own table.
    pub left: &'a [u16],
}

/// What one member asks of one node, as the terms see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
pub struct Want {
    /// What it asks of the node's GPUs.
    pub shape: Shape,
    /// CPU, in thousandths of a core.
    pub cpu: u32,
    /// Memory, in MiB.
    pub ram: u32,
    /// Models allowed, one bit each; `u64::MAX`: any.
    pub models: u64,
}

/// What a member asks of a node's GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, BorshSerialize, BorshDeserialize)]
pub enum Shape {
    /// CPU and memory only.
    None,
    /// A part of one device, 1..=999.
    Share(u16),
    /// So many whole devices of one node.
    Whole(u8),
    /// A MIG instance: table and profile by number.
    Mig {
        /// Which table.
        table: u8,
        /// Which profile of it.
        profile: u8,
    },
}
