//! The name of one run of one member.

use std::fmt;

use selion_api::LeaseId;
use selion_api::agent::{Assignment, Report};
use serde::{Deserialize, Serialize};

/// One member of one attempt of a lease: what an agent starts at most once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct MemberKey {
    /// The lease.
    pub lease: LeaseId,
    /// Which run of it.
    pub attempt: u32,
    /// Rank of the member.
    pub member: u16,
}

impl MemberKey {
    /// Whom `assignment` is about.
    #[must_use]
    pub fn of(assignment: &Assignment) -> Self {
        Self { lease: assignment.lease, attempt: assignment.attempt, member: assignment.member }
    }

    /// What [`Display`](fmt::Display) wrote.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let key = Self {
            lease: parts.next()?.parse().ok()?,
            attempt: parts.next()?.parse().ok()?,
            member: parts.next()?.parse().ok()?,
        };
        parts.next().is_none().then_some(key)
    }

    /// Whom `report` is about.
    #[must_use]
    pub fn of_report(report: &Report) -> Self {
        Self { lease: report.lease, attempt: report.attempt, member: report.member }
    }
}

impl fmt::Display for MemberKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.lease, self.attempt, self.member)
    }
}
