//! Leases: ask, list, look, give back.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use selion_api::rest::{Lease, LeasePage, NewLease, PlacementView};
use selion_api::{Account, LeaseId, Reason};
use selion_market::{Answer as Told, Input};

use crate::App;
use crate::http::Problem;
use crate::http::caller::Renter;
use crate::http::input::{IdempotencyKey, Json, Path, Query};
use crate::http::page::Page;
use crate::http::request::prepare;
use crate::http::views;
use crate::store::{output, rows};

/// Asks for slices for the calling renter. The same `Idempotency-Key` and body give the same answer, always.
#[utoipa::path(post, path = "/v1/leases", tag = "leases", request_body = NewLease, security(("bearer" = [])),
    params(("Idempotency-Key" = String, Header, description = "1 to 255 visible ASCII characters, fresh for each lease")),
    responses((status = 201, description = "The lease, as it was answered first", body = Lease,
        headers(("location" = String, description = "Path of the lease")))))]
pub(in crate::http) async fn create(
    State(app): State<App>,
    renter: Renter,
    IdempotencyKey(key): IdempotencyKey,
    Json(body): Json<NewLease>,
) -> Result<Response, Problem> {
    let prepared = prepare(&app, renter.account, &key, &body).await?;
    let step = app.log.submit(prepared.input, Some(prepared.private)).await?;
    let id = match step.answer() {
        Told::Created(id) | Told::Repeated(id) => *id,
        Told::Refused(refusal) => {
            app.metrics.refused(refusal.reason);
            return Err(Problem::Refused(refusal.clone()));
        }
        Told::Done => return Err(Problem::Internal("a request was answered with `done`".to_owned())),
    };
    let first = rows::first_answer(&app.store.readers, prepared.idem).await?;
    let lease = first.ok_or_else(|| Problem::Internal(format!("{id} has no first answer")))?;
    Ok((StatusCode::CREATED, [(LOCATION, format!("/v1/leases/{id}"))], Answer(lease)).into_response())
}

#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct LeaseQuery {
    /// Rows of the page, 1 to 500; 50 if absent.
    page_size: Option<u32>,
    /// `next_page_token` of the page before.
    page_token: Option<String>,
}

/// The caller's leases.
#[utoipa::path(get, path = "/v1/leases", tag = "leases", params(LeaseQuery), security(("bearer" = [])),
    responses((status = 200, description = "A page of leases, newest first", body = LeasePage)))]
pub(in crate::http) async fn list(
    State(app): State<App>,
    renter: Renter,
    Query(query): Query<LeaseQuery>,
) -> Result<Answer<LeasePage>, Problem> {
    let page = Page::<LeaseId>::read("leases", query.page_size, query.page_token.as_deref())?;
    let mut leases = rows::leases(&app.store.readers, renter.account, page.fetch(), page.after).await?;
    let next_page_token = page.cut("leases", &mut leases, |lease| lease.id);
    for lease in &mut leases {
        lease.outputs = output::of_lease(&app.store.readers, lease.id).await?;
    }
    Ok(Answer(LeasePage { leases, next_page_token }))
}

/// One lease of the caller.
#[utoipa::path(get, path = "/v1/leases/{id}", tag = "leases", security(("bearer" = [])),
    params(("id" = LeaseId, Path, description = "Id of the lease")),
    responses((status = 200, description = "The lease", body = Lease)))]
pub(in crate::http) async fn get(
    State(app): State<App>,
    renter: Renter,
    Path(id): Path<LeaseId>,
) -> Result<Answer<Lease>, Problem> {
    own(&app, renter.account, id).await.map(Answer)
}

/// Gives a lease back. It ends when its agents confirm the stop.
#[utoipa::path(post, path = "/v1/leases/{id}/release", tag = "leases", security(("bearer" = [])),
    params(("id" = LeaseId, Path, description = "Id of the lease")),
    responses((status = 200, description = "The lease, ending or ended", body = Lease)))]
pub(in crate::http) async fn release(
    State(app): State<App>,
    renter: Renter,
    Path(id): Path<LeaseId>,
) -> Result<Answer<Lease>, Problem> {
    let step = app.log.submit(Input::Release { renter: renter.account, lease: id }, None).await?;
    match step.answer() {
        Told::Refused(refusal) => Err(Problem::Refused(refusal.clone())),
        _ => own(&app, renter.account, id).await.map(Answer),
    }
}

/// How every GPU of the pool looks to the lease now: where it could go, or why not.
#[utoipa::path(get, path = "/v1/leases/{id}/placement", tag = "leases", security(("bearer" = [])),
    params(("id" = LeaseId, Path, description = "Id of the lease")),
    responses((status = 200, description = "The candidates", body = PlacementView)))]
pub(in crate::http) async fn placement(
    State(app): State<App>,
    renter: Renter,
    Path(id): Path<LeaseId>,
) -> Result<Answer<PlacementView>, Problem> {
    own(&app, renter.account, id).await?;
    let (candidates, starts_ms) = app.log.read(|state| (views::candidates(state, id), state.estimate(id)));
    // State forgets a lease a day after its end; its row stays.
    let candidates = candidates.ok_or(Problem::refused(Reason::NotLive))?;
    Ok(Answer(PlacementView { lease: id, starts_ms, candidates }))
}

/// The lease `id` of `account`, with its outputs.
pub(in crate::http) async fn own(app: &App, account: Account, id: LeaseId) -> Result<Lease, Problem> {
    let db = &app.store.readers;
    let lease = rows::lease(db, id).await?.ok_or_else(|| Problem::NotFound("lease", id.to_string()))?;
    if lease.renter != account {
        return Err(Problem::NotYours("lease", id.to_string()));
    }
    Ok(Lease { outputs: output::of_lease(db, id).await?, ..lease })
}
