//! The log of a data directory, read beside a controller that may be running, or after one that is not.

use std::path::Path;

use selion_api::rest::LoggedEntry;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};

use super::{StoreError, entry, remedy};

/// Entries a question.
const PAGE: u32 = 1_000;

/// Every entry in `selion.db` of `dir`, as published. Nothing is written.
///
/// # Errors
///
/// [`StoreError::Open`] if there is no such database or it is of another release, [`StoreError::Sql`] if it cannot be
/// read.
pub async fn published(dir: &Path) -> Result<Vec<LoggedEntry>, StoreError> {
    let path = dir.join("selion.db");
    let options = SqliteConnectOptions::new().filename(&path).read_only(true);
    let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await.map_err(|source| {
        let remedy = remedy(&source);
        StoreError::Open { path: path.display().to_string(), source, remedy }
    })?;
    let mut entries: Vec<LoggedEntry> = Vec::new();
    loop {
        let page = entry::page(&pool, entries.len() as u64, PAGE).await?;
        if page.is_empty() {
            break;
        }
        entries.extend(page);
    }
    pool.close().await;
    Ok(entries)
}
