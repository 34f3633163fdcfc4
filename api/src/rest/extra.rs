//! Small words of the surface: bills.

use alloc::string::String;
use alloc::vec::Vec;

use super::BillView;

/// Bill lines that the caller pays or earns.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, utoipa::ToSchema)]
pub struct BillPage {
    /// Lines, newest first.
    pub bills: Vec<BillView>,
    /// Pass as `page_token` for the next page.
    pub next_page_token: Option<String>,
}
