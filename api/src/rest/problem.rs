//! RFC 9457 problem documents. Branch on `code`; everything else is for people.

use alloc::string::String;
use alloc::vec::Vec;

use crate::lease::NearestMiss;

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
    /// Id of the request, as in the response header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
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
