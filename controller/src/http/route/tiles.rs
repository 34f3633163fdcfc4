//! The log as static files (C2SP tlog-tiles) under `/log/`: checkpoint, tiles of hashes, bundles of entries and of
//! effects. Public, and good behind any cache: all but the checkpoint never changes.

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use selion_log::{Kind, Levels, Tile, is_long, long_entry_of, write_entries, write_hashes};
use sqlx::SqlitePool;
use utoipa::OpenApi;

use crate::App;
use crate::http::input::Path;
use crate::http::pieces::{self, Piece};
use crate::http::{IMMUTABLE, Problem};
use crate::store::entry;

/// The checkpoint is old as soon as the next entry is committed.
const NOT_KEPT: &str = "no-store";

pub(in crate::http) fn files() -> Router<App> {
    Router::new().route("/log/checkpoint", get(checkpoint)).route("/log/{*path}", get(file))
}

async fn checkpoint(State(app): State<App>) -> Result<Response, Problem> {
    let head = app.log.position().head.ok_or(Problem::NotReady("no head of the log is signed yet"))?;
    let headers = [(CONTENT_TYPE, "text/plain; charset=utf-8"), (CACHE_CONTROL, NOT_KEPT)];
    Ok((headers, app.pen.checkpoint(head).to_string()).into_response())
}

async fn file(State(app): State<App>, Path(path): Path<String>) -> Result<Response, Problem> {
    let bytes = match long_entry_of(&path) {
        Some(seq) => long(&app, seq).await?.map(Body::from),
        None => tile(&app, &path).await?,
    };
    let headers = [(CONTENT_TYPE, "application/octet-stream"), (CACHE_CONTROL, IMMUTABLE)];
    bytes.map(|bytes| (headers, bytes).into_response()).ok_or_else(|| Problem::NotFound("file of the log", path))
}

async fn tile(app: &App, path: &str) -> sqlx::Result<Option<Body>> {
    let tile = path.parse::<Tile>().ok().filter(|tile| tile.fits(app.log.levels(Levels::size)));
    let Some(tile) = tile else { return Ok(None) };
    let (db, from, count) = (&app.store.readers, tile.first(), tile.width);
    Ok(match tile.kind {
        Kind::Hashes(0) => Some(write_hashes(&entry::leaves(db, from, count.into()).await?).into()),
        Kind::Hashes(level) => {
            app.log.levels(|levels| levels.hashes(level, from, count).map(write_hashes)).map(Body::from)
        }
        // A bundle may have 16 MiB and more: it is made as it is read.
        Kind::Entries => Some(
            bundle(db, from, count, |db, piece| async move {
                Ok(write_entries(entry::bytes(&db, piece.from, piece.count).await?.iter().map(Vec::as_slice)))
            })
            .await?,
        ),
        Kind::Effects => Some(
            bundle(db, from, count, |db, piece| async move {
                Ok(entry::effects(&db, piece.from, piece.count).await?.concat())
            })
            .await?,
        ),
    })
}

/// A body of what `fetch` makes of `count` entries from `from` on.
async fn bundle<R>(
    db: &SqlitePool,
    from: u64,
    count: u16,
    fetch: impl Fn(SqlitePool, Piece) -> R + Send + 'static,
) -> sqlx::Result<Body>
where
    R: Future<Output = sqlx::Result<Vec<u8>>> + Send + 'static,
{
    let db = db.clone();
    let sizes = entry::sizes(&db, from, count.into()).await?;
    Ok(pieces::body(Vec::new(), pieces::cut(from, &sizes), Vec::new(), move |piece| fetch(db.clone(), piece)))
}

/// An entry that its bundle has no room for; every other stands in its bundle only.
async fn long(app: &App, seq: u64) -> sqlx::Result<Option<Vec<u8>>> {
    let mut entries = entry::bytes(&app.store.readers, seq, 1).await?;
    Ok(entries.pop().filter(|entry| is_long(entry.len()) && seq < app.log.levels(Levels::size)))
}

/// The operations under `/log/`. A path's numbers may hold slashes, which a route of OpenAPI cannot say.
#[derive(OpenApi)]
#[openapi(paths(get_checkpoint, get_hashes, get_entries, get_effects, get_long))]
pub(in crate::http) struct Described;

/// The newest head of the log as a C2SP checkpoint: a signed note.
#[utoipa::path(get, path = "/log/checkpoint", operation_id = "get_checkpoint", tag = "audit",
    responses((status = 200, description = "The checkpoint", body = String, content_type = "text/plain")))]
#[expect(dead_code, reason = "describes an operation of a plain route")]
fn get_checkpoint() {}

/// A tile of the log's tree: up to 256 hashes of a level (C2SP tlog-tiles). It never changes.
#[utoipa::path(get, path = "/log/tile/{level}/{index}", operation_id = "get_hash_tile", tag = "audit",
    params(("level" = u8, Path, description = "Level, from 0 for leaves"),
        ("index" = String, Path, description = "Number in groups of three digits, as x001/x234/067, with .p/WIDTH if partial")),
    responses((status = 200, description = "The hashes", body = Vec<u8>, content_type = "application/octet-stream")))]
#[expect(dead_code, reason = "describes an operation of a plain route")]
fn get_hashes() {}

/// Up to 256 entries, each behind its length in two bytes (C2SP tlog-tiles). One too long for that has length 0 here.
#[utoipa::path(get, path = "/log/tile/entries/{index}", operation_id = "get_entry_bundle", tag = "audit",
    params(("index" = String, Path, description = "Number in groups of three digits, with .p/WIDTH if partial")),
    responses((status = 200, description = "The entries", body = Vec<u8>, content_type = "application/octet-stream")))]
#[expect(dead_code, reason = "describes an operation of a plain route")]
fn get_entries() {}

/// The leaves of the effects of up to 256 entries: for each a count, and each leaf behind its length, in four bytes,
/// least first.
#[utoipa::path(get, path = "/log/effects/{index}", operation_id = "get_effect_bundle", tag = "audit",
    params(("index" = String, Path, description = "Number in groups of three digits, with .p/WIDTH if partial")),
    responses((status = 200, description = "The leaves", body = Vec<u8>, content_type = "application/octet-stream")))]
#[expect(dead_code, reason = "describes an operation of a plain route")]
fn get_effects() {}

/// An entry of more than 65535 bytes, for which its bundle has no room.
#[utoipa::path(get, path = "/log/long/{seq}", operation_id = "get_long_entry", tag = "audit",
    params(("seq" = String, Path, description = "Number of the entry in groups of three digits")),
    responses((status = 200, description = "The entry", body = Vec<u8>, content_type = "application/octet-stream")))]
#[expect(dead_code, reason = "describes an operation of a plain route")]
fn get_long() {}
