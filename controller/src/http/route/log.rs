//! The public log: for whoever wants to check this controller. No token needed.

use axum::Json as Answer;
use axum::extract::State;
use selion_api::rest::{EntryPage, HeadView};

use crate::App;
use crate::http::Problem;
use crate::http::input::Query;
use crate::store::{entry, head};

/// Entries of a page that names no limit, and the most.
const DEFAULT: u32 = 100;
const MAX: u32 = 1000;

/// The newest signed head, and how far the log is anchored on chain.
#[utoipa::path(get, path = "/v1/log/head", tag = "audit",
    responses((status = 200, description = "The heads", body = HeadView)))]
pub(in crate::http) async fn newest_head(State(app): State<App>) -> Result<Answer<HeadView>, Problem> {
    let newest = head::newest(&app.store.readers).await?;
    let anchored_size = app.log.read(|state| state.pool.as_ref().map_or(0, |terms| terms.anchored));
    Ok(Answer(HeadView { newest, anchored_size }))
}

#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct EntryQuery {
    /// Number of the first entry; 0 if absent.
    from: Option<u64>,
    /// Most entries, 1 to 1000; 100 if absent.
    limit: Option<u32>,
}

/// Entries as published, with their effects.
#[utoipa::path(get, path = "/v1/log/entries", tag = "audit", params(EntryQuery),
    responses((status = 200, description = "Entries in order", body = EntryPage)))]
pub(in crate::http) async fn entries(
    State(app): State<App>,
    Query(query): Query<EntryQuery>,
) -> Result<Answer<EntryPage>, Problem> {
    let limit = query.limit.unwrap_or(DEFAULT);
    if !(1..=MAX).contains(&limit) {
        return Err(Problem::Query(format!("limit is 1 to {MAX}, not {limit}")));
    }
    let mut entries = entry::page(&app.store.readers, query.from.unwrap_or(0), limit + 1).await?;
    let next = entries.get(limit as usize).map(|entry| entry.seq);
    entries.truncate(limit as usize);
    Ok(Answer(EntryPage { entries, next }))
}
