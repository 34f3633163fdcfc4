//! RFC 9457 problem documents. Branch on `code`; everything else is for people.

use alloc::string::String;
use alloc::vec::Vec;

use crate::blocking::{Blocking, Constraint};
use crate::lease::{NearestMiss, Resource};
use crate::unit::{Amount, TimeMs};

/// Everything that is not success.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Problem {
    /// A URI that names the code: `urn:selion:problem:<code>`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Short sentence, the same for every problem of this code.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// What was wrong this time, with the value.
    pub detail: String,
    /// Stable snake_case code.
    pub code: String,
    /// Faults of single fields.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// True if the same request may succeed later.
    pub retryable: bool,
    /// What to do next.
    pub suggestion: String,
    /// The candidate that came closest, for refusals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nearest: Option<NearestMiss>,
    /// Least set of constraints of a refused request without which it would fit; absent if no such set is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocking: Option<Blocking>,
    /// Names in a refused request that match nothing in the pool.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unmatched: Vec<Unmatched>,
    /// What the account can pay with, where that is what falls short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub means: Option<MeansView>,
    /// Id of the request, as in the response header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
}

/// Names of one kind in a request of which the pool has none.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct Unmatched {
    /// Which constraint.
    pub constraint: Constraint,
    /// What was asked for.
    pub asked: Vec<String>,
    /// What there is: the first of them, in order.
    pub there: Vec<String>,
}

/// What an account can pay with, and what of it falls short.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct MeansView {
    /// What falls short: `deposit`, `grant`, `grant_until_ms` or `free_use`.
    pub short: Resource,
    /// Free deposit.
    pub deposit: Amount,
    /// What the grant of the pool's key may still sign for; nothing without a live grant.
    pub grant: Amount,
    /// When that grant ends; 0 without one.
    pub grant_until_ms: TimeMs,
}

/// A fault of one field.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct FieldError {
    /// JSON pointer.
    pub pointer: String,
    /// Stable code.
    pub code: String,
    /// For people.
    pub detail: String,
}
