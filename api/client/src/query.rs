//! Query parameters.

use selion_api::Rate;
use serde::Serialize;

/// Which page of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageQuery {
    /// Rows, 1 to 500; 50 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_size: Option<u32>,
    /// `next_page_token` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_token: Option<String>,
}

/// Which leases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LeaseQuery {
    /// Only those that are or were called so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Only those with this label, as `KEY:VALUE`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Rows, 1 to 500; 50 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_size: Option<u32>,
    /// `next_page_token` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_token: Option<String>,
}

/// Which offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OfferQuery {
    /// Only this slice: `whole`, `share`, or a MIG profile name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice: Option<String>,
    /// Only GPUs of this model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Only asks up to this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_rate: Option<Rate>,
    /// Rows, 1 to 500; 50 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_size: Option<u32>,
    /// `next_page_token` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub page_token: Option<String>,
}

/// Which log lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LogQuery {
    /// Of the kept lines only the last so many; all if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail: Option<usize>,
    /// `Some(false)` ends after the kept lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub follow: Option<bool>,
}
