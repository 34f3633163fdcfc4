//! The public log: for whoever wants to check this controller. No token needed.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use selion_api::rest::{EntryPage, HeadView, LoggedEntry};

use crate::App;
use crate::http::Problem;
use crate::http::input::Query;
use crate::http::pieces;
use crate::store::{entry, head};

/// Entries of a page that names no limit, and the most.
const DEFAULT: u32 = 100;
const MAX: u32 = 1000;
/// Stored bytes after which a page ends: 512 KiB, which are 1 MiB in hex.
const PAGE_BYTES: u64 = 512 << 10;

/// The newest signed head, and how far the log is anchored on chain.
#[utoipa::path(get, path = "/v1/log/head", operation_id = "get_log_head", tag = "audit",
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
    /// Number of the first entry.
    #[param(default = 0, maximum = 9_223_372_036_854_775_807_i64)]
    from: Option<u64>,
    /// Most entries.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    limit: Option<u32>,
}

/// Entries as published, with their effects. A page ends early when it is long; `next` says where to go on.
#[utoipa::path(get, path = "/v1/log/entries", operation_id = "list_entries", tag = "audit", params(EntryQuery),
    responses((status = 200, description = "Entries in order", body = EntryPage)))]
pub(in crate::http) async fn entries(
    State(app): State<App>,
    Query(query): Query<EntryQuery>,
) -> Result<Response, Problem> {
    let limit = query.limit.unwrap_or(DEFAULT);
    if !(1..=MAX).contains(&limit) {
        return Err(Problem::Query(format!("limit is 1 to {MAX}, not {limit}")));
    }
    let (db, from) = (app.store.readers.clone(), query.from.unwrap_or(0));
    let mut sizes = entry::sizes(&db, from, limit + 1).await?;
    let shown = pieces::fitting(&sizes, PAGE_BYTES).min(limit as usize);
    let next = (sizes.len() > shown).then_some(from + shown as u64);
    sizes.truncate(shown);
    let tail = match next {
        Some(next) => format!("],\"next\":{next}}}"),
        None => "],\"next\":null}".to_owned(),
    };
    let body = pieces::body(b"{\"entries\":[".to_vec(), pieces::cut(from, &sizes), tail.into(), move |piece| {
        let db = db.clone();
        async move { Ok(json(&entry::page(&db, piece.from, piece.count).await?, piece.from > from)) }
    });
    Ok(([(CONTENT_TYPE, "application/json")], body).into_response())
}

/// Entries as members of a list, which some stand in `already`.
fn json(entries: &[LoggedEntry], already: bool) -> Vec<u8> {
    let mut text = Vec::new();
    for entry in entries {
        if already || !text.is_empty() {
            text.push(b',');
        }
        // Our own structs always serialise.
        text.extend(serde_json::to_vec(entry).unwrap_or_default());
    }
    text
}
