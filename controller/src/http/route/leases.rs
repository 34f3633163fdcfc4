//! Leases: ask, list, look, give back.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use selion_api::lease::{LeaseState, Refusal};
use selion_api::rest::{Called, Extend, Lease, LeasePage, LeaseRef, NewLease, PlacementView, Quote, Word};
use selion_api::said::extension_key;
use selion_api::{Account, Hash32, LeaseId, LeaseRequest, Reason};
use selion_market::extend::Extends;
use selion_market::{Admission, Answer as Told, Input, RequestLease, Stamp};

use crate::App;
use crate::http::Problem;
use crate::http::caller::Renter;
use crate::http::explain::{self, Explained};
use crate::http::input::{IdempotencyKey, Json, MaybeJson, Path, Query};
use crate::http::page::Page;
use crate::http::promise::promised;
use crate::http::request::prepare;
use crate::http::{named, said, views};
use crate::store::called::{self, Filter};
use crate::store::{output, rows};

/// Stands for the `Idempotency-Key` of a dry run; nothing is kept under it.
const DRY_RUN_KEY: &str = "dry run";

/// Longest time between the commit of a lease and the moment from which requests are judged by it, in milliseconds: far
/// below the day for which the market remembers its key.
const JUST_MADE_MS: u64 = 60_000;

#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct CreateQuery {
    /// True: tells what the request would get and cost, and makes no lease.
    #[serde(default)]
    dry_run: bool,
}

/// Asks for slices for the calling renter. The same `Idempotency-Key` and body give the same lease, for a day. A request
/// that was refused made none, and is judged again.
///
/// With `dry_run=true` it tells what the request would get now, and nothing comes of it: no key is needed, and a
/// signature is not looked at.
#[utoipa::path(post, path = "/v1/leases", operation_id = "create_lease", tag = "leases", request_body = NewLease, security(("bearer" = [])),
    params(CreateQuery, ("Idempotency-Key" = Option<String>, Header,
        description = "1 to 255 visible ASCII characters, fresh for each lease; needed unless it is a dry run")),
    responses((status = 201, description = "The lease, as it was answered first", body = Lease,
        headers(("location" = String, description = "Path of the lease"),
            ("selion-promise" = String, description = "That the request stands in the log: hex of a SignedPromise"))),
        (status = 200, description = "Of a dry run: what the request would get", body = Quote)))]
pub(in crate::http) async fn create(
    State(app): State<App>,
    renter: Renter,
    Query(query): Query<CreateQuery>,
    key: Result<IdempotencyKey, Problem>,
    Json(body): Json<NewLease>,
) -> Result<Response, Problem> {
    if query.dry_run {
        return quote(&app, renter.account, body).await.map(|quote| Answer(quote).into_response());
    }
    let IdempotencyKey(key) = key?;
    let called = body.called();
    let prepared = prepare(&app, renter.account, &key, &body).await?;
    let _turn = app.names.turn(renter.account, &called).await;
    if let Some(known) = admit(&app, &prepared.input).await? {
        // A repeat enters nothing: what was promised is the request that made the lease.
        let answer = created(&app, known, prepared.idem, &called).await;
        return Ok(promised(&app, renter.account, known.seq, answer).await);
    }
    let Input::Request(RequestLease { request, signature }) = prepared.input.clone() else {
        return Err(Problem::Internal("a request was prepared as something else".to_owned()));
    };
    named::is_free(&app, renter.account, &called).await?;
    if signature.is_some() {
        makes_its_first(&app, prepared.idem).await?;
    }
    let step = app.log.submit(prepared.input, Some(prepared.private)).await?;
    // A repeat that met the first request on its way is an entry too; promised is the one that made the lease.
    let (seq, answer) = match step.answer() {
        Told::Created(id) | Told::Repeated(id) => (id.seq, created(&app, *id, prepared.idem, &called).await),
        Told::Refused(refusal) => {
            app.metrics.refused(refusal.reason);
            (step.seq, Err(explained(&app, request, refusal.clone()).await))
        }
        Told::Done => return Err(Problem::Internal("a request was answered with `done`".to_owned())),
    };
    Ok(promised(&app, renter.account, seq, answer).await)
}

/// Judges a request before it enters the log, by what is committed: the lease that it made before, if it is a repeat;
/// nothing if it is to be entered. What is refused here stands in no log and is promised nothing, so a stranger without
/// money, or an account at its limit, costs the log and the state nothing.
async fn admit(app: &App, input: &Input) -> Result<Option<LeaseId>, Problem> {
    let Input::Request(asked) = input else {
        return Ok(None);
    };
    let now = (app.clock)();
    let judged = app.log.judge(|state| match state.admit(&asked.request, state.now.max(now)) {
        Admission::Enter => Ok(None),
        Admission::Repeated(id) => Ok(Some(id)),
        Admission::Refused(refusal) => Err((explain::means(state, &asked.request, &refusal), refusal)),
    });
    judged.await.map_err(|(means, refusal)| {
        app.metrics.refused(refusal.reason);
        Problem::Explained(Box::new(Explained { means, ..Explained::plain(refusal) }))
    })
}

/// A signed request makes one lease, also where the market has forgotten its key: a log in which it makes two convicts the
/// controller (`said_once`). The rows have the key of every lease that ever was; what was made just now the market knows.
async fn makes_its_first(app: &App, idem: Hash32) -> Result<(), Problem> {
    let now = app.log.read(|state| state.now).max((app.clock)());
    match rows::first_answer(&app.store.readers, idem).await? {
        Some(first) if now.since(first.created_ms) > JUST_MADE_MS => {
            let why = "a lease was made with this Idempotency-Key before, and a signed request makes one: sign anew, for \
                       a new key";
            Err(Problem::field("/signature", "repeated", why))
        }
        _ => Ok(()),
    }
}

/// The lease as it was answered first. A repeat calls it as the first request did.
async fn created(app: &App, id: LeaseId, idem: Hash32, called: &Called) -> Result<Response, Problem> {
    if called::of(&app.store.readers, id).await? != *called {
        return Err(Problem::Refused(Refusal { lease: Some(id), ..Refusal::plain(Reason::IdempotencyMismatch) }));
    }
    let first = rows::first_answer(&app.store.readers, idem).await?;
    let first = first.ok_or_else(|| Problem::Internal(format!("{id} has no first answer")))?;
    let lease = Lease { name: called.name.clone(), labels: called.labels.clone(), ..first };
    Ok((StatusCode::CREATED, [(LOCATION, format!("/v1/leases/{id}"))], Answer(lease)).into_response())
}

/// What `body` would get now.
async fn quote(app: &App, renter: Account, body: NewLease) -> Result<Quote, Problem> {
    let unsigned = NewLease { signature: None, ..body };
    let prepared = prepare(app, renter, DRY_RUN_KEY, &unsigned).await?;
    let Input::Request(asked) = prepared.input else {
        return Err(Problem::Internal("a request was prepared as something else".to_owned()));
    };
    let now = (app.clock)();
    let (datasets, request) = (asked.request.datasets.len(), asked.request.clone());
    let told = on_a_copy(app, move |state| {
        let stamp = Stamp { seq: state.next_seq, at_ms: state.now.max(now), fence: state.fence };
        selion_market::dry_run(state, &stamp, &asked)
    });
    // Not counted among the refused: nothing was asked for.
    match views::quote(told.await?, datasets) {
        Ok(quote) => Ok(quote),
        Err(refusal) => Err(explained(app, request, refusal).await),
    }
}

/// The problem of a refused request with all that can be found out of it, as far as a copy of the state is to be had at
/// once.
async fn explained(app: &App, request: LeaseRequest, refusal: Refusal) -> Problem {
    let means = app.log.read(|state| explain::means(state, &request, &refusal));
    let plain = Explained { means, ..Explained::plain(refusal.clone()) };
    let Some(copy) = app.log.copy_now() else {
        return Problem::Explained(Box::new(plain));
    };
    let found = tokio::task::spawn_blocking(move || explain::explain(&copy, &request, refusal)).await;
    Problem::Explained(Box::new(found.unwrap_or(plain)))
}

#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct LeaseQuery {
    /// Rows of the page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    page_size: Option<u32>,
    /// `next_page_token` of the page before.
    page_token: Option<String>,
    /// Only leases that are or were called so.
    name: Option<String>,
    /// Only leases with this label, as `KEY:VALUE`.
    label: Option<String>,
}

/// The caller's leases.
#[utoipa::path(get, path = "/v1/leases", operation_id = "list_leases", tag = "leases", params(LeaseQuery), security(("bearer" = [])),
    responses((status = 200, description = "A page of leases, newest first", body = LeasePage)))]
pub(in crate::http) async fn list(
    State(app): State<App>,
    renter: Renter,
    Query(query): Query<LeaseQuery>,
) -> Result<Answer<LeasePage>, Problem> {
    let page = Page::<LeaseId>::read("leases", query.page_size, query.page_token.as_deref())?;
    let label = query.label.as_deref().map(label).transpose()?;
    let filter = Filter { name: query.name, label };
    let mut leases = rows::leases(&app.store.readers, renter.account, page.fetch(), page.after, &filter).await?;
    let next_page_token = page.cut("leases", &mut leases, |lease| lease.id);
    let ids: Vec<LeaseId> = leases.iter().map(|lease| lease.id).collect();
    let mut outputs = output::of_leases(&app.store.readers, &ids).await?;
    let mut called = called::of_all(&app.store.readers, &leases).await?;
    for lease in &mut leases {
        (Called { name: lease.name, labels: lease.labels }) = called.remove(&lease.id.to_string()).unwrap_or_default();
        lease.outputs = views::outputs(&outputs.remove(&lease.id).unwrap_or_default(), (app.clock)());
    }
    Ok(Answer(LeasePage { leases, next_page_token }))
}

/// `KEY:VALUE`.
fn label(text: &str) -> Result<(String, String), Problem> {
    let parts = text.split_once(':').map(|(key, value)| (key.to_owned(), value.to_owned()));
    parts.ok_or_else(|| Problem::Query(format!("label is KEY:VALUE, not `{text}`")))
}

/// One lease of the caller.
#[utoipa::path(get, path = "/v1/leases/{id}", operation_id = "get_lease", tag = "leases", security(("bearer" = [])),
    params(("id" = String, Path, description = "Id or name of the lease")),
    responses((status = 200, description = "The lease", body = Lease)))]
pub(in crate::http) async fn get(
    State(app): State<App>,
    renter: Renter,
    Path(id): Path<LeaseRef>,
) -> Result<Answer<Lease>, Problem> {
    let id = named::resolve(&app, renter.account, id).await?;
    own(&app, renter.account, id).await.map(Answer)
}

/// Gives a lease back. It ends when its agents confirm the stop.
///
/// Signed is the statement (`renter`, `lease`, `said_ms`) of kind `release`.
#[utoipa::path(post, path = "/v1/leases/{id}/release", operation_id = "release_lease", tag = "leases", security(("bearer" = [])),
    params(("id" = String, Path, description = "Id or name of the lease")), request_body = Option<Word>,
    responses((status = 200, description = "The lease, ending or ended", body = Lease,
        headers(("selion-promise" = String, description = "That the release stands in the log")))))]
pub(in crate::http) async fn release(
    State(app): State<App>,
    renter: Renter,
    Path(id): Path<LeaseRef>,
    MaybeJson(word): MaybeJson<Word>,
) -> Result<Response, Problem> {
    let id = named::resolve(&app, renter.account, id).await?;
    let input = Input::Release { renter: renter.account, lease: id, said: said::said(word)? };
    may_release(&app, renter.account, id).await?;
    said::hear(&app, &input)?;
    let step = app.log.submit(input, None).await?;
    let answer = match step.answer() {
        Told::Refused(refusal) => Err(Problem::Refused(refusal.clone())),
        _ => own(&app, renter.account, id).await.map(Answer),
    };
    Ok(promised(&app, renter.account, step.seq, answer).await)
}

/// Makes a lease that waits or runs last longer, by `for_ms`. The same `Idempotency-Key` and body extend it once.
///
/// What it costs is reserved at once, of a lease that waits at its grant. Refused where an owner takes a place of it back,
/// money leaves or another lease is booked before its later end. Signed is the statement (`renter`, `lease`, `for_ms`,
/// `key`, `said_ms`) of kind `extend`, `key` being SHA-256 of the account and the `Idempotency-Key` in Borsh.
#[utoipa::path(post, path = "/v1/leases/{id}/extend", operation_id = "extend_lease", tag = "leases", security(("bearer" = [])),
    params(("id" = String, Path, description = "Id or name of the lease"), ("Idempotency-Key" = String, Header,
        description = "1 to 255 visible ASCII characters, fresh for each extension")), request_body = Extend,
    responses((status = 200, description = "The lease, with its later end", body = Lease,
        headers(("selion-promise" = String, description = "That the extension stands in the log")))))]
pub(in crate::http) async fn extend(
    State(app): State<App>,
    renter: Renter,
    Path(id): Path<LeaseRef>,
    IdempotencyKey(key): IdempotencyKey,
    Json(Extend { for_ms, said_ms, signature }): Json<Extend>,
) -> Result<Response, Problem> {
    let id = named::resolve(&app, renter.account, id).await?;
    let (account, said) = (renter.account, said::said(Word { said_ms, signature })?);
    let key = extension_key(account, &key);
    let judged = app.log.judge(|state| state.may_extend(account, id, for_ms, key)).await;
    // A repeat enters nothing, and what would be refused costs the log nothing.
    if let Extends::Already(entry) = judged.map_err(Problem::refused)? {
        let answer = own(&app, account, id).await.map(Answer);
        return Ok(promised(&app, account, entry, answer).await);
    }
    let input = Input::Extend { renter: account, lease: id, for_ms, key, said };
    said::hear(&app, &input)?;
    let step = app.log.submit(input, None).await?;
    let answer = match step.answer() {
        Told::Refused(refusal) => Err(not_extended(&app, id, refusal.clone())),
        _ => own(&app, account, id).await.map(Answer),
    };
    Ok(promised(&app, account, step.seq, answer).await)
}

/// A refused extension, with what its account can pay if that is why.
fn not_extended(app: &App, id: LeaseId, refusal: Refusal) -> Problem {
    app.metrics.refused(refusal.reason);
    let means = app.log.read(|state| {
        let request = state.leases.get(&id).map(|lease| &lease.request)?;
        explain::means(state, request, &refusal)
    });
    Problem::Explained(Box::new(Explained { means, ..Explained::plain(refusal) }))
}

/// Judges a release by what is committed, before it is remembered or entered: what there is to give back is nothing, or
/// another's, costs memory and log nothing. Accounts are free.
async fn may_release(app: &App, account: Account, id: LeaseId) -> Result<(), Problem> {
    let judged = app.log.judge(|state| match state.leases.get(&id) {
        None => Err(Reason::NoSuchLease),
        Some(lease) if lease.request.renter != account => Err(Reason::NotYours),
        Some(lease) if lease.state == LeaseState::Ended => Err(Reason::NotLive),
        Some(_) => Ok(()),
    });
    judged.await.map_err(Problem::refused)
}

/// How every GPU of the pool looks to the lease now: where it could go, or why not.
#[utoipa::path(get, path = "/v1/leases/{id}/placement", operation_id = "get_placement", tag = "leases", security(("bearer" = [])),
    params(("id" = String, Path, description = "Id or name of the lease")),
    responses((status = 200, description = "The candidates", body = PlacementView)))]
pub(in crate::http) async fn placement(
    State(app): State<App>,
    renter: Renter,
    Path(id): Path<LeaseRef>,
) -> Result<Answer<PlacementView>, Problem> {
    let id = named::resolve(&app, renter.account, id).await?;
    own(&app, renter.account, id).await?;
    let told = on_a_copy(&app, move |state| {
        (views::candidates(state, id), state.estimate(id), state.blocking(id), state.shortfall(id))
    });
    let (candidates, starts_ms, blocking, shortfall) = told.await?;
    // Where a lease that is over could go is no question.
    let candidates = candidates.ok_or(Problem::refused(Reason::NotLive))?;
    Ok(Answer(PlacementView { lease: id, starts_ms, blocking, shortfall, candidates }))
}

/// Does long work on a copy of the committed state, so that it holds up nobody. Few copies are out at a time.
async fn on_a_copy<R: Send + 'static>(
    app: &App,
    work: impl FnOnce(&selion_market::State) -> R + Send + 'static,
) -> Result<R, Problem> {
    let copy = app.log.copy().await.ok_or(Problem::Overloaded)?;
    let done = tokio::task::spawn_blocking(move || work(&copy));
    done.await.map_err(|error| Problem::Internal(format!("work on a copy of the state broke off: {error}")))
}

/// The lease `id` of `account`, with its outputs and what its members use.
pub(in crate::http) async fn own(app: &App, account: Account, id: LeaseId) -> Result<Lease, Problem> {
    let db = &app.store.readers;
    let lease = rows::lease(db, id).await?.ok_or_else(|| Problem::NotFound("lease", id.to_string()))?;
    if lease.renter != account {
        return Err(Problem::NotYours("lease", id.to_string()));
    }
    let outputs = views::outputs(&output::of_lease(db, id).await?, (app.clock)());
    let Called { name, labels } = called::of(db, id).await?;
    let mut lease = Lease { outputs, name, labels, ..lease };
    if lease.state != LeaseState::Ended {
        for member in &mut lease.members {
            member.usage = app.hub.usage(id, member.attempt, member.rank);
        }
    }
    Ok(lease)
}
