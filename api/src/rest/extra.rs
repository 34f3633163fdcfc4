//! Small words of the surface: who calls, his keys, his bills.

use alloc::string::String;
use alloc::vec::Vec;

use super::BillView;
use crate::id::{Account, NodeId};
use crate::unit::TimeMs;

/// `GET /v1/whoami`: whom the token stands for.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Whoami {
    /// An account.
    Renter {
        /// Its address.
        account: Account,
    },
    /// A node's agent.
    Node {
        /// Its id.
        node: NodeId,
    },
}

/// An API key as its owner sees it later: never the key itself.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct ApiKeyView {
    /// Id, for revoking.
    pub id: u64,
    /// Name for people.
    pub name: String,
    /// When it was made.
    pub created_ms: TimeMs,
}

/// The caller's live API keys.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct ApiKeyPage {
    /// Keys in order of id.
    pub api_keys: Vec<ApiKeyView>,
    /// Pass as `page_token` for the next page.
    pub next_page_token: Option<String>,
}

/// Bill lines that the caller pays or earns.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct BillPage {
    /// Lines, newest first.
    pub bills: Vec<BillView>,
    /// Pass as `page_token` for the next page.
    pub next_page_token: Option<String>,
}
