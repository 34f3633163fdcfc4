//! Datasets: content that an account brings, by root CID or as one file.

use std::path::{Path as FilePath, PathBuf};

use axum::Json as Answer;
use axum::body::Body;
use axum::extract::{FromRequest, Request, State};
use axum::http::StatusCode;
use futures::StreamExt;
use selion_api::Account;
use selion_api::outputs::Outputs;
use selion_api::rest::{Dataset, DatasetPage, NewDataset};
use selion_dataplane::gateway::Uploader;
use selion_dataplane::{AddRules, Cid, Limits, StoreError};
use tokio::fs::File;
use tokio::io::AsyncWriteExt;

use super::auth::check_name;
use crate::App;
use crate::http::Problem;
use crate::http::caller::{Caller, Renter};
use crate::http::input::{Json, Path, Query, has_type};
use crate::http::page::Page;
use crate::http::request::parse_cid;
use crate::http::secrets::random;
use crate::http::storage;
use crate::store::{dataset, output};

/// Where uploads are gathered, below the data directory.
pub(in crate::http) const UPLOADS: &str = "uploads";

#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct UploadQuery {
    /// A name for people, with `application/octet-stream`.
    name: Option<String>,
}

/// Adds a dataset: the root of blocks that were put to `/ipfs` before (`application/json`), or the bytes of one file
/// (`application/octet-stream`). Adding it again is the same as once.
#[utoipa::path(post, path = "/v1/datasets", operation_id = "add_dataset", tag = "datasets", params(UploadQuery), security(("bearer" = [])),
    request_body(content((NewDataset = "application/json"), (Vec<u8> = "application/octet-stream")),
        description = "The root of a DAG whose blocks are all here, or one file"),
    responses((status = 201, description = "The dataset, verified, complete and kept", body = Dataset)))]
pub(in crate::http) async fn add(
    State(app): State<App>,
    renter: Renter,
    Query(query): Query<UploadQuery>,
    request: Request,
) -> Result<(StatusCode, Answer<Dataset>), Problem> {
    let (cid, name) = if has_type(request.headers(), "application/json") {
        let Json(body) = Json::<NewDataset>::from_request(request, &()).await?;
        let cid = parse_cid(&body.cid, "/cid")?;
        app.ipfs.bring(&cid).await;
        (cid, body.name)
    } else if has_type(request.headers(), "application/octet-stream") {
        let name = query.name.unwrap_or_default();
        check_name(&name)?;
        (upload(&app, renter.account, request.into_body()).await?, name)
    } else {
        return Err(Problem::MediaType("application/json or application/octet-stream"));
    };
    check_name(&name)?;
    let added = keep(&app, renter.account, cid, name).await?;
    app.ipfs.share(cid);
    Ok((StatusCode::CREATED, Answer(added)))
}

/// Verifies that the whole DAG is here, pins it and notes it for the account.
async fn keep(app: &App, account: Account, cid: Cid, name: String) -> Result<Dataset, Problem> {
    let Uploader { owner, allowance } = storage::uploader(app, Caller::Renter(account));
    let stat =
        app.content.work(move |content, stop| content.keep(&owner, &cid, &Limits::default(), allowance, stop)).await?;
    let cid = cid.to_string();
    let added = Dataset {
        tag: app.secrets.dataset_tag(account, &cid),
        name,
        bytes: stat.bytes,
        blocks: stat.blocks,
        added_ms: (app.clock)(),
        cid,
    };
    dataset::add(&app.store.writer, account, &added).await?;
    let kept = dataset::get(&app.store.readers, account, &added.cid).await?;
    Ok(kept.unwrap_or(added))
}

/// Streams `body` to a file and adds that to the content store. The file goes in any case.
async fn upload(app: &App, account: Account, body: Body) -> Result<Cid, Problem> {
    let folder = app.config.data_dir.join(UPLOADS);
    tokio::fs::create_dir_all(&folder).await.map_err(|error| io(&folder, error))?;
    let name = random().map_err(|error| Problem::Internal(error.to_string()))?;
    let draft = Draft(folder.join(hex::encode(&name[..16])));
    let Uploader { owner, allowance } = storage::uploader(app, Caller::Renter(account));
    let content = app.content.clone();
    let used = blocking(move || content.used_by(&owner)).await?;
    let left = allowance.saturating_sub(used);
    match receive(&draft.0, body, app.config.upload_limit_bytes.min(left)).await {
        Err(Problem::TooLarge(limit)) if limit == left => {
            return Err(StoreError::OverAllowance { used, allowance }.into());
        }
        received => received?,
    }
    let content = app.content.clone();
    blocking(move || Ok(content.add(&draft.0, &AddRules::names_and_bytes())?.cid)).await
}

/// A file that is removed when it is let go of.
struct Draft(PathBuf);

impl Drop for Draft {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.0)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.0.display(), %error, "an upload's file could not be removed");
        }
    }
}

async fn receive(path: &FilePath, body: Body, limit: u64) -> Result<(), Problem> {
    let mut file = File::create(path).await.map_err(|error| io(path, error))?;
    let mut bytes = 0_u64;
    let mut chunks = body.into_data_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| Problem::CutShort)?;
        bytes += chunk.len() as u64;
        if bytes > limit {
            return Err(Problem::TooLarge(limit));
        }
        file.write_all(&chunk).await.map_err(|error| io(path, error))?;
    }
    file.flush().await.map_err(|error| io(path, error))
}

fn io(path: &FilePath, source: std::io::Error) -> Problem {
    let path = path.to_owned();
    match source.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => StoreError::Full { path }.into(),
        _ => StoreError::Io { path, source }.into(),
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, Problem> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(Problem::from),
        Err(error) => Err(Problem::Internal(error.to_string())),
    }
}

#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct DatasetQuery {
    /// Rows of the page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    page_size: Option<u32>,
    /// `next_page_token` of the page before.
    page_token: Option<String>,
}

/// The caller's datasets.
#[utoipa::path(get, path = "/v1/datasets", operation_id = "list_datasets", tag = "datasets", params(DatasetQuery), security(("bearer" = [])),
    responses((status = 200, description = "A page of datasets, newest first", body = DatasetPage)))]
pub(in crate::http) async fn list(
    State(app): State<App>,
    renter: Renter,
    Query(query): Query<DatasetQuery>,
) -> Result<Answer<DatasetPage>, Problem> {
    let page = Page::<String>::read("datasets", query.page_size, query.page_token.as_deref())?;
    let db = &app.store.readers;
    let last = match &page.after {
        None => None,
        Some(cid) => Some(dataset::get(db, renter.account, cid).await?.ok_or_else(|| {
            Problem::Query("page_token was given to another account; leave it out to start again".to_owned())
        })?),
    };
    let after = last.as_ref().map(|last| (last.added_ms, last.cid.as_str()));
    let mut datasets = dataset::of_account(db, renter.account, page.fetch(), after).await?;
    let next_page_token = page.cut("datasets", &mut datasets, |dataset| dataset.cid.clone());
    Ok(Answer(DatasetPage { datasets, next_page_token }))
}

/// One dataset of the caller, or what a lease of the caller left.
#[utoipa::path(get, path = "/v1/datasets/{cid}", operation_id = "get_dataset", tag = "datasets", security(("bearer" = [])),
    params(("cid" = String, Path, description = "Root CID")),
    responses((status = 200, description = "The dataset", body = Dataset)))]
pub(in crate::http) async fn get(
    State(app): State<App>,
    renter: Renter,
    Path(cid): Path<String>,
) -> Result<Answer<Dataset>, Problem> {
    let (db, account) = (&app.store.readers, renter.account);
    if let Some(found) = dataset::get(db, account, &cid).await? {
        return Ok(Answer(found));
    }
    let Some(left) = output::left_by(db, account, &cid).await? else {
        return Err(Problem::NotFound("dataset", cid));
    };
    let Outputs { lease, attempt, member, bytes, .. } = left.outputs;
    Ok(Answer(Dataset {
        tag: app.secrets.dataset_tag(account, &cid),
        name: format!("what rank {member} of {lease} left in run {attempt}"),
        bytes,
        blocks: 0,
        added_ms: left.told_ms,
        cid,
    }))
}

/// Takes a dataset from the caller's account. Leases that have it staged keep it; a lease that is still to stage it may
/// fail. Its bytes no longer count against the account's storage once the pool has collected what nobody else needs.
#[utoipa::path(delete, path = "/v1/datasets/{cid}", operation_id = "remove_dataset", tag = "datasets", security(("bearer" = [])),
    params(("cid" = String, Path, description = "Root CID")),
    responses((status = 204, description = "It is gone from the account")))]
pub(in crate::http) async fn remove(
    State(app): State<App>,
    renter: Renter,
    Path(cid): Path<String>,
) -> Result<StatusCode, Problem> {
    if !dataset::remove(&app.store.writer, renter.account, &cid).await? {
        return Err(Problem::NotFound("dataset", cid));
    }
    let root = parse_cid(&cid, "/cid")?;
    let owner = renter.account.to_string();
    app.content.work(move |content, _| content.unpin(&owner, &root)).await?;
    Ok(StatusCode::NO_CONTENT)
}
