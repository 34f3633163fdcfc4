//! What went wrong on the links, by cause, for metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a message of an agent was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bad {
    /// The signature is empty or recovers to nobody.
    Unsigned,
    /// The signature is another key's.
    ForeignSignature,
    /// A report of another node than the link's.
    WrongNode,
    /// It does not decode, or it is not what is due at this point.
    Malformed,
    /// A hello that was refused.
    Hello,
    /// Log lines of a member that the node does not hold.
    ForeignLogs,
    /// Outputs of a member that the node does not hold, or that do not match its report.
    ForeignOutputs,
    /// A report of a member that the node does not hold, or that cannot be true of it.
    Unassigned,
    /// A report that says what the log has, or a reading of a meter too soon after the last.
    Repeated,
    /// A hello of a node that connects too often.
    TooOften,
}

impl Bad {
    /// Every cause.
    pub const ALL: [Self; 10] = [
        Self::Unsigned,
        Self::ForeignSignature,
        Self::WrongNode,
        Self::Malformed,
        Self::Hello,
        Self::ForeignLogs,
        Self::ForeignOutputs,
        Self::Unassigned,
        Self::Repeated,
        Self::TooOften,
    ];

    /// The metric's label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Unsigned => "unsigned",
            Self::ForeignSignature => "foreign_signature",
            Self::WrongNode => "wrong_node",
            Self::Malformed => "malformed",
            Self::Hello => "hello",
            Self::ForeignLogs => "foreign_logs",
            Self::ForeignOutputs => "foreign_outputs",
            Self::Unassigned => "unassigned",
            Self::Repeated => "repeated",
            Self::TooOften => "too_often",
        }
    }
}

/// Counters since the start of the process.
#[derive(Debug, Default)]
pub struct Counts {
    bad: [AtomicU64; Bad::ALL.len()],
    lost: AtomicU64,
    linked: AtomicU64,
}

impl Counts {
    pub(super) fn bad(&self, cause: Bad) {
        self.bad[cause as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn lost(&self) {
        self.lost.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn linked(&self) {
        self.linked.fetch_add(1, Ordering::Relaxed);
    }

    /// Messages of this cause so far.
    #[must_use]
    pub fn of(&self, cause: Bad) -> u64 {
        self.bad[cause as usize].load(Ordering::Relaxed)
    }

    pub(super) fn live(&self, links: usize) -> Live {
        Live {
            links,
            linked: self.linked.load(Ordering::Relaxed),
            lost: self.lost.load(Ordering::Relaxed),
            bad: Bad::ALL.iter().map(|cause| (cause.label(), self.of(*cause))).collect(),
        }
    }
}

/// The links as they are now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Live {
    /// Open links.
    pub links: usize,
    /// Hellos accepted so far.
    pub linked: u64,
    /// Outages entered so far.
    pub lost: u64,
    /// Messages not taken so far, by cause.
    pub bad: BTreeMap<&'static str, u64>,
}
