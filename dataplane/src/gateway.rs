//! Our side of the trustless gateway: bare blocks by CID, each verified as it leaves and as it enters.
//!
//! For many small blocks: `POST /ipfs/have`, `/ipfs/want` and `/ipfs/blocks`, each up to 1024 CIDs or some 2 MiB at a time.
//! `GET|HEAD /ipfs/{cid}` (with `?format=raw` or `Accept: application/vnd.ipld.raw`) and `PUT /ipfs/{cid}`.
//! No files, folders or CARs: who wants those fetches the blocks and checks them. Who may call is decided by the
//! layers that the caller puts around the router.

use std::collections::HashSet;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Extension, Path, RawQuery, State};
use axum::http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE, ETAG, IF_NONE_MATCH, VARY,
    X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use bytes::Bytes;
use cid::Cid;

use crate::car::{self, CAR, Writer};
use crate::dag::{self, DagError, MAX_BLOCK};
use crate::http::RAW_BLOCK;
use crate::source::blocking;
use crate::store::{Store, StoreError};

/// Bytes of the longest list of CIDs.
const MAX_QUESTION: usize = 256 << 10;
/// A block never changes. `private`, because the answer may stand behind a token, and `public` would let shared
/// caches give it to those without.
const FOR_EVER: &str = "private, max-age=29030400, immutable";

/// Whose bytes an upload is, and how many he may have here, loose and pinned together. The layers around the router put
/// it beside the request; without it, uploads count for nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Uploader {
    /// The owner, as pins are named.
    pub owner: String,
    /// Bytes.
    pub allowance: u64,
}

/// The gateway over `store`, to be merged or nested, and wrapped in the caller's authentication.
pub fn router(store: Store) -> Router {
    Router::new()
        .route("/ipfs/{cid}", get(give).put(take))
        .route("/ipfs/have", post(have))
        .route("/ipfs/want", post(give_many))
        .route("/ipfs/blocks", post(take_many))
        .route("/ipfs/{cid}/{*path}", get(|| async { Problem::Deserialised }))
        .with_state(store)
}

async fn give(
    State(store): State<Store>,
    Path(cid): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let cid = parse(&cid)?;
    if !wants_raw(query.as_deref().unwrap_or_default(), &headers) {
        return Err(Problem::Deserialised);
    }
    let etag = format!("\"{cid}.raw\"");
    let bytes = match blocking(move || store.get(&cid)).await {
        // The gateway never fetches, so what is not here is absent; the probe has its own status by the specification.
        Err(StoreError::Missing { .. }) if has_token(&headers, CACHE_CONTROL.as_str(), "only-if-cached") => {
            return Err(Problem::NotCached(cid));
        }
        other => other?,
    };
    let lasting = [(ETAG, etag.clone()), (CACHE_CONTROL, FOR_EVER.to_owned()), (VARY, ACCEPT.to_string())];
    if has_token(&headers, IF_NONE_MATCH.as_str(), &etag) {
        return Ok((StatusCode::NOT_MODIFIED, lasting).into_response());
    }
    let content = [
        (CONTENT_TYPE, RAW_BLOCK.to_owned()),
        (CONTENT_DISPOSITION, format!("attachment; filename=\"{cid}.bin\"")),
        (X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    Ok((StatusCode::OK, lasting, content, bytes).into_response())
}

/// `201` for a block that is new here, `200` for one that was here already.
async fn take(
    State(store): State<Store>,
    Path(cid): Path<String>,
    uploader: Option<Extension<Uploader>>,
    headers: HeaderMap,
    body: Body,
) -> Result<StatusCode, Problem> {
    let cid = parse(&cid)?;
    let announced = headers.get(CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > MAX_BLOCK as u64) {
        return Err(Problem::TooLarge);
    }
    let bytes = body_within(body, MAX_BLOCK).await?;
    let put = blocking(move || match uploader {
        Some(Extension(Uploader { owner, allowance })) => store.put_for(&owner, allowance, &cid, &bytes),
        None => store.put(&cid, &bytes),
    });
    match put.await? {
        true => Ok(StatusCode::CREATED),
        false => Ok(StatusCode::OK),
    }
}

/// `{"cids": [..]}` in, `{"absent": [..]}` out: those of which no good copy is here.
async fn have(State(store): State<Store>, body: Body) -> Result<Response, Problem> {
    let cids = asked(body).await?;
    let absent = store.question(move |store, stop| {
        let mut absent = Vec::new();
        for cid in cids {
            stop.check()?;
            if store.get(&cid).is_err() {
                absent.push(cid.to_string());
            }
        }
        Ok(absent)
    });
    let answer = serde_json::json!({ "absent": absent.await? }).to_string();
    Ok(([(CONTENT_TYPE, "application/json")], answer).into_response())
}

/// `{"cids": [..]}` in, a CAR of those that are here out, in order, until it is full: who misses some asks again.
async fn give_many(State(store): State<Store>, body: Body) -> Result<Response, Problem> {
    let cids = asked(body).await?;
    let car = store.question(move |store, stop| {
        let mut car = Writer::new();
        for cid in &cids {
            stop.check()?;
            match store.get(cid) {
                Ok(bytes) => car.add(cid, &bytes),
                Err(StoreError::Missing { .. } | StoreError::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
            if car.is_full() {
                break;
            }
        }
        Ok(car.finish())
    });
    Ok(([(CONTENT_TYPE, CAR), (CACHE_CONTROL, "no-store")], car.await?).into_response())
}

/// A CAR in; the first block that is not taken ends it, those before it stay.
async fn take_many(
    State(store): State<Store>,
    uploader: Option<Extension<Uploader>>,
    body: Body,
) -> Result<StatusCode, Problem> {
    let blocks = car::read(body_within(body, car::LONGEST).await?).ok_or(Problem::NotCar)?;
    blocking(move || {
        for (cid, bytes) in blocks {
            match &uploader {
                Some(Extension(Uploader { owner, allowance })) => store.put_for(owner, *allowance, &cid, &bytes)?,
                None => store.put(&cid, &bytes)?,
            };
        }
        Ok::<_, StoreError>(())
    })
    .await?;
    Ok(StatusCode::CREATED)
}

#[derive(serde::Deserialize)]
struct Asked {
    cids: Vec<String>,
}

async fn asked(body: Body) -> Result<Vec<Cid>, Problem> {
    let bytes = body_within(body, MAX_QUESTION).await?;
    let asked: Asked = serde_json::from_slice(&bytes).map_err(|_| Problem::BadQuestion)?;
    if asked.cids.len() > car::MOST {
        return Err(Problem::BadQuestion);
    }
    // Each once: a question is paid for by what it asks about.
    let mut seen = HashSet::new();
    asked.cids.iter().filter(|cid| seen.insert(cid.as_str())).map(|cid| parse(cid)).collect()
}

async fn body_within(body: Body, limit: usize) -> Result<Bytes, Problem> {
    to_bytes(body, limit).await.map_err(|error| {
        let mut cause: Option<&dyn std::error::Error> = Some(&error);
        while let Some(now) = cause {
            if now.to_string().contains("length limit exceeded") {
                return Problem::TooLarge;
            }
            cause = now.source();
        }
        Problem::CutShort
    })
}

fn parse(text: &str) -> Result<Cid, Problem> {
    let cid = text.parse::<Cid>().map_err(|error| Problem::BadCid(error.to_string()))?;
    dag::check_cid(&cid).map_err(|error| Problem::BadCid(error.to_string()))?;
    Ok(cid)
}

/// `format` in the query decides; without it, the `Accept` header.
fn wants_raw(query: &str, headers: &HeaderMap) -> bool {
    match query.split('&').find_map(|pair| pair.strip_prefix("format=")) {
        Some(format) => format == "raw",
        None => has_token(headers, ACCEPT.as_str(), RAW_BLOCK),
    }
}

/// Whether a comma separated header has `token`, whatever its parameters.
fn has_token(headers: &HeaderMap, name: &str, token: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    let mut tokens = values.flat_map(|value| value.split(','));
    tokens.any(|one| one.split(';').next().is_some_and(|one| one.trim().eq_ignore_ascii_case(token)))
}

/// Everything the gateway answers instead of a block, as `application/problem+json`.
enum Problem {
    BadCid(String),
    Deserialised,
    NotCar,
    BadQuestion,
    NotCached(Cid),
    TooLarge,
    CutShort,
    Store(StoreError),
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Problem {
    /// Status, code, detail, what to do, and whether the same request may succeed later.
    fn parts(&self) -> (StatusCode, &'static str, String, &'static str, bool) {
        match self {
            Self::BadCid(why) => (StatusCode::BAD_REQUEST, "bad_cid", why.clone(), "check the CID", false),
            Self::Deserialised => (
                StatusCode::NOT_ACCEPTABLE,
                "only_raw_blocks",
                "this gateway gives single raw blocks, so that nobody has to trust it".to_owned(),
                "ask for ?format=raw or Accept: application/vnd.ipld.raw, and verify each block",
                false,
            ),
            Self::NotCar => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "not_car",
                "the body is no CAR of version 1 with at most 1024 blocks".to_owned(),
                "send fewer blocks, or each by itself with PUT /ipfs/{cid}",
                false,
            ),
            Self::BadQuestion => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "bad_cids",
                "the body is not {\"cids\": [..]} with at most 1024 CIDs".to_owned(),
                "ask for fewer at a time",
                false,
            ),
            Self::NotCached(cid) => (
                StatusCode::PRECONDITION_FAILED,
                "block_absent",
                format!("block {cid} is not here"),
                "ask another source",
                true,
            ),
            Self::TooLarge => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "block_too_large",
                format!("a block has at most {MAX_BLOCK} bytes"),
                "add the data again with chunks of 1 MiB",
                false,
            ),
            Self::CutShort => (
                StatusCode::BAD_REQUEST,
                "body_cut_short",
                "the body ended before its announced length".to_owned(),
                "send the block again",
                true,
            ),
            Self::Store(StoreError::Missing { cid }) => (
                StatusCode::NOT_FOUND,
                "block_absent",
                format!("block {cid} is not here"),
                "ask another source, or put it here",
                true,
            ),
            Self::Store(StoreError::Dag(error @ DagError::HashMismatch { .. })) => (
                StatusCode::UNPROCESSABLE_ENTITY,
                "hash_mismatch",
                error.to_string(),
                "send the bytes that the CID names",
                false,
            ),
            Self::Store(StoreError::Busy) => (
                StatusCode::TOO_MANY_REQUESTS,
                "store_busy",
                "too many blocks are being looked for".to_owned(),
                "send it again in a few seconds",
                true,
            ),
            Self::Store(error @ StoreError::OverAllowance { .. }) => (
                StatusCode::PAYLOAD_TOO_LARGE,
                "storage_allowance",
                error.to_string(),
                "remove a dataset (DELETE /v1/datasets/{cid}), deposit if the account never did, or wait a day until unused blocks are collected",
                false,
            ),
            Self::Store(StoreError::Full { .. }) => (
                StatusCode::INSUFFICIENT_STORAGE,
                "store_full",
                "no room left in the store".to_owned(),
                "try again when space was freed",
                true,
            ),
            Self::Store(StoreError::Corrupt { cid, .. }) => (
                StatusCode::INTERNAL_SERVER_ERROR,
                "block_corrupt",
                format!("the copy of block {cid} here is damaged and is not served"),
                "put the block again to repair it, or ask another source",
                false,
            ),
            // Paths and causes are for the log, not for the caller.
            Self::Store(_) => {
                (StatusCode::INTERNAL_SERVER_ERROR, "internal", "the store failed".to_owned(), "try again later", true)
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        if let Self::Store(error @ (StoreError::Io { .. } | StoreError::Corrupt { .. } | StoreError::Full { .. })) =
            &self
        {
            tracing::error!(error = error as &dyn std::error::Error, "the store failed behind the gateway");
        }
        let (status, code, detail, suggestion, retryable) = self.parts();
        let body = serde_json::json!({
            "type": format!("urn:selion:problem:{code}"),
            "title": status.canonical_reason(),
            "status": status.as_u16(),
            "code": code,
            "detail": detail,
            "suggestion": suggestion,
            "retryable": retryable,
        });
        let headers = [(CONTENT_TYPE, "application/problem+json"), (CACHE_CONTROL, "no-store")];
        (status, headers, body.to_string()).into_response()
    }
}
