//! What members left: the list of it, and its files.

use axum::Json as Answer;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, RANGE,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use selion_api::rest::{LeaseOutputs, LeaseRef, OutputRef};
use selion_api::{Account, LeaseId};
use selion_dataplane::read::{self, File, ReadError};
use selion_dataplane::{Cid, Limits};
use utoipa::OpenApi;

use super::leases::own;
use crate::App;
use crate::http::Problem;
use crate::http::caller::Renter;
use crate::http::input::{Path, Query};
use crate::http::named::resolve;
use crate::store::output;

/// Content by CID never changes; `private`, because the answer stands behind a token.
const FOR_EVER: &str = "private, max-age=29030400, immutable";

/// What the members of a lease left in their output folders, of every run.
#[utoipa::path(get, path = "/v1/leases/{id}/outputs", operation_id = "list_outputs", tag = "leases", security(("bearer" = [])),
    params(("id" = String, Path, description = "Id or name of the lease")),
    responses((status = 200, description = "Outputs by run and rank", body = LeaseOutputs)))]
pub(in crate::http) async fn list(
    State(app): State<App>,
    renter: Renter,
    Path(id): Path<LeaseRef>,
) -> Result<Answer<LeaseOutputs>, Problem> {
    let id = resolve(&app, renter.account, id).await?;
    let lease = own(&app, renter.account, id).await?;
    Ok(Answer(LeaseOutputs { lease: id, outputs: lease.outputs }))
}

#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct ReadQuery {
    /// Of this run; the newest that left something readable if absent.
    attempt: Option<u32>,
    /// `tar` gives a folder, or a file, as an archive; a file's bytes if absent.
    format: Option<Format>,
}

#[derive(Clone, Copy, PartialEq, Eq, serde::Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
enum Format {
    Tar,
}

/// The operations that are one wildcard route here.
#[derive(OpenApi)]
#[openapi(paths(read_path), components(schemas(Format)))]
pub(in crate::http) struct Described;

/// One file of what a member left, or a folder of it as a tar archive (`format=tar`). A file takes `Range`.
#[utoipa::path(get, path = "/v1/leases/{id}/outputs/{rank}/{path}", operation_id = "read_output", tag = "leases",
    security(("bearer" = [])),
    params(("id" = String, Path, description = "Id or name of the lease"), ("rank" = u16, Path, description = "Rank of the member"),
        ("path" = String, Path, description = "Names with `/` between them; links are followed inside the outputs"),
        ReadQuery, ("Range" = Option<String>, Header, description = "`bytes=FIRST-LAST`, `bytes=FIRST-` or `bytes=-LAST`")),
    responses((status = 200, description = "The file, or the archive", body = Vec<u8>, content_type = "application/octet-stream"),
        (status = 206, description = "A part of the file", body = Vec<u8>, content_type = "application/octet-stream")))]
#[expect(dead_code, reason = "describes an operation that the wildcard route answers")]
fn read_path() {}

/// All that a member left, as a tar archive (`format=tar`).
#[utoipa::path(get, path = "/v1/leases/{id}/outputs/{rank}", operation_id = "read_outputs", tag = "leases", security(("bearer" = [])),
    params(("id" = String, Path, description = "Id or name of the lease"), ("rank" = u16, Path, description = "Rank of the member"),
        ReadQuery),
    responses((status = 200, description = "The archive", body = Vec<u8>, content_type = "application/x-tar")))]
pub(in crate::http) async fn whole(
    State(app): State<App>,
    renter: Renter,
    Path((id, rank)): Path<(LeaseRef, u16)>,
    Query(query): Query<ReadQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = resolve(&app, renter.account, id).await?;
    give(&app, renter.account, (id, rank, ""), query, &headers).await
}

pub(in crate::http) async fn part(
    State(app): State<App>,
    renter: Renter,
    Path((id, rank, path)): Path<(LeaseRef, u16, String)>,
    Query(query): Query<ReadQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let id = resolve(&app, renter.account, id).await?;
    give(&app, renter.account, (id, rank, &path), query, &headers).await
}

async fn give(
    app: &App,
    account: Account,
    (id, rank, path): (LeaseId, u16, &str),
    query: ReadQuery,
    headers: &HeaderMap,
) -> Result<Response, Problem> {
    let meant = OutputRef { lease: id, attempt: query.attempt, rank: Some(rank) };
    let root = root(app, account, &meant).await?;
    if query.format == Some(Format::Tar) {
        let name =
            path.rsplit('/').next().filter(|name| !name.is_empty()).map_or_else(|| rank.to_string(), str::to_owned);
        let archive = read::tar(&app.content, &root, path, &name, Limits::default()).await.map_err(unreadable)?;
        let kind =
            [(CONTENT_TYPE, "application/x-tar"), (CACHE_CONTROL, FOR_EVER), (CONTENT_DISPOSITION, "attachment")];
        return Ok((kind, Body::from_stream(archive)).into_response());
    }
    let file = read::file(&app.content, &root, path).await.map_err(unreadable)?;
    bytes(file, headers)
}

/// The root of the outputs that are meant.
async fn root(app: &App, account: Account, meant: &OutputRef) -> Result<Cid, Problem> {
    let lease = own(app, account, meant.lease).await?;
    let chosen = meant.choose(&lease.outputs).map_err(|why| Problem::NotFound("outputs", why))?;
    let told = output::get(&app.store.readers, meant.lease, chosen.attempt, chosen.rank).await?;
    if told.is_some_and(|told| told.let_go) {
        return Err(Problem::NotFound("content of outputs, which is kept for 30 days,", meant.lease.to_string()));
    }
    let root = chosen.cid.as_deref().unwrap_or_default().parse();
    root.map_err(|error| Problem::Internal(format!("outputs of {} have no CID: {error}", meant.lease)))
}

fn bytes(file: File, headers: &HeaderMap) -> Result<Response, Problem> {
    let size = file.size;
    let lasting = [
        (CONTENT_TYPE, "application/octet-stream".to_owned()),
        (CONTENT_DISPOSITION, "attachment".to_owned()),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (ACCEPT_RANGES, "bytes".to_owned()),
        (CACHE_CONTROL, FOR_EVER.to_owned()),
        (ETAG, format!("\"{}\"", file.cid())),
    ];
    let asked = headers.get(RANGE).and_then(|value| range(value.to_str().ok()?, size));
    let Some(asked) = asked else {
        let length = [(CONTENT_LENGTH, size.to_string())];
        return Ok((StatusCode::OK, lasting, length, Body::from_stream(file.stream())).into_response());
    };
    let (start, end) = asked.ok_or(Problem::BadRange(size))?;
    let part = [
        (CONTENT_LENGTH, (end - start).to_string()),
        (CONTENT_RANGE, format!("bytes {start}-{}/{size}", end.saturating_sub(1))),
    ];
    let chunks = file.range(start, end - start).map_err(unreadable)?;
    Ok((StatusCode::PARTIAL_CONTENT, lasting, part, Body::from_stream(chunks)).into_response())
}

/// What `Range` asks of a file of `size` bytes, as start and end: `None` if it is not one range of bytes, and all of it is
/// given (RFC 9110 §14.2); `Some(None)` if it begins behind the end.
fn range(text: &str, size: u64) -> Option<Option<(u64, u64)>> {
    let (first, last) = text.trim().strip_prefix("bytes=")?.split_once('-')?;
    let (start, end) = match (first.trim(), last.trim()) {
        ("", last) => (size.saturating_sub(last.parse().ok()?), size),
        (first, "") => (first.parse().ok()?, size),
        (first, last) => (first.parse().ok()?, last.parse::<u64>().ok()?.checked_add(1)?.min(size)),
    };
    Some((start < end).then_some((start, end)))
}

fn unreadable(error: ReadError) -> Problem {
    match error {
        ReadError::NotThere { path } => Problem::NotFound("file in the outputs", path),
        ReadError::LeadsOut { .. } => Problem::Path(error.to_string()),
        ReadError::OtherKind { path, kind } => {
            Problem::Query(format!("`{path}` is a {kind}: ask with format=tar, or for a file in it"))
        }
        ReadError::BadRange { size } => Problem::BadRange(size),
        ReadError::Store(error) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_as_the_standard_says() {
        let table = [
            ("bytes=0-3", Some(Some((0, 4)))),
            ("bytes=4-", Some(Some((4, 10)))),
            ("bytes=-3", Some(Some((7, 10)))),
            ("bytes=-30", Some(Some((0, 10)))),
            ("bytes=8-100", Some(Some((8, 10)))),
            ("bytes=10-", Some(None)),
            ("bytes=5-4", Some(None)),
            ("bytes=-0", Some(None)),
            ("bytes=0-1,4-5", None),
            ("lines=0-1", None),
            ("bytes=a-b", None),
            ("bytes=18446744073709551615-18446744073709551615", None),
        ];
        for (text, expected) in table {
            assert_eq!(range(text, 10), expected, "{text}");
        }
        assert_eq!(range("bytes=0-", 0), Some(None));
    }
}
