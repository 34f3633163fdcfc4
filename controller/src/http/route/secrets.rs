//! Secrets of a lease: to which keys to seal, and what was sealed.

use axum::Json as Answer;
use axum::extract::State;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use selion_api::agent::Phase;
use selion_api::commit::Expected;
use selion_api::lease::LeaseState;
use selion_api::rest::{GiveSecrets, KeptSecret, LeaseRef, SealedMember, SecretsMember, SecretsView};
use selion_api::seal::{MAX_SEALED, Secret};
use selion_api::{LeaseId, Reason};
use zeroize::Zeroizing;

use super::leases::own;
use crate::App;
use crate::http::caller::Renter;
use crate::http::input::{Json, Path};
use crate::http::{Problem, named};
use crate::store::secret::{self, Run};
use crate::store::work;

/// Which secrets a lease waits for, and to which key of which node they are to be sealed. Keys are there once places are held.
#[utoipa::path(get, path = "/v1/leases/{id}/secrets", operation_id = "get_secrets", tag = "leases", security(("bearer" = [])),
    params(("id" = String, Path, description = "Id or name of the lease")),
    responses((status = 200, description = "What is to be sealed, and to whom", body = SecretsView)))]
pub(in crate::http) async fn get(
    State(app): State<App>,
    renter: Renter,
    Path(id): Path<LeaseRef>,
) -> Result<Answer<SecretsView>, Problem> {
    let id = named::resolve(&app, renter.account, id).await?;
    own(&app, renter.account, id).await?;
    let expected = expected(&app, id).await?;
    view(&app, id, expected).await.map(Answer)
}

/// Gives what was sealed to members that are being prepared. It is passed on as it is; here it opens for nobody. Or gives the
/// secrets themselves, if the request said that the pool may keep them.
#[utoipa::path(put, path = "/v1/leases/{id}/secrets", operation_id = "give_secrets", tag = "leases", security(("bearer" = [])),
    params(("id" = String, Path, description = "Id or name of the lease")), request_body = GiveSecrets,
    responses((status = 200, description = "What is there now, and what is still to be sealed", body = SecretsView)))]
pub(in crate::http) async fn give(
    State(app): State<App>,
    renter: Renter,
    Path(id): Path<LeaseRef>,
    Json(GiveSecrets { sealed, kept }): Json<GiveSecrets>,
) -> Result<Answer<SecretsView>, Problem> {
    let id = named::resolve(&app, renter.account, id).await?;
    if own(&app, renter.account, id).await?.state == LeaseState::Ended {
        return Err(Problem::refused(Reason::NotLive));
    }
    let expected = expected(&app, id).await?;
    if expected.names.is_empty() {
        return Err(Problem::field(
            "/sealed",
            "bad_value",
            "the request of this lease named no secrets, and it takes none",
        ));
    }
    let runs = prepared(&app, id);
    let sealed =
        sealed.into_iter().enumerate().map(|(at, one)| judge(at, one, &runs)).collect::<Result<Vec<_>, _>>()?;
    if !kept.is_empty() {
        let secrets = to_keep(kept, &expected)?;
        secret::keep(&app.store, id, &secrets).await?;
    }
    for (run, sealed) in &sealed {
        secret::put(&app.store.writer, run, &sealed.clone().sealed()).await?;
    }
    app.hub.secrets_came(id);
    view(&app, id, expected).await.map(Answer)
}

/// The runs of a lease's members that are being prepared.
fn prepared(app: &App, id: LeaseId) -> Vec<Run> {
    app.log.read(|state| {
        let members = state.leases.get(&id).map(|lease| &lease.members[..]).unwrap_or_default();
        let nodes: std::collections::BTreeSet<_> = members.iter().map(|member| member.node).collect();
        let of = |node| {
            let mine = state.desired(node).into_iter().filter(|one| one.lease == id && one.phase == Phase::Prepare);
            mine.map(move |one| Run { lease: id, attempt: one.attempt, member: one.member, node })
        };
        let mut runs: Vec<Run> = nodes.into_iter().flat_map(of).collect();
        runs.sort_unstable_by_key(|run| run.member);
        runs
    })
}

fn judge(at: usize, one: SealedMember, runs: &[Run]) -> Result<(Run, SealedMember), Problem> {
    let bytes = one.ciphertext.0.len();
    if bytes > MAX_SEALED {
        let why = format!("what is sealed has {bytes} bytes; at most {MAX_SEALED}");
        return Err(Problem::field(format!("/sealed/{at}/ciphertext"), "too_large", why));
    }
    let run = runs.iter().find(|run| (run.member, run.attempt) == (one.rank, one.attempt));
    let run = run.ok_or_else(|| {
        let why = format!(
            "run {} of rank {} is not being prepared: GET the secrets of the lease, and seal for those that are",
            one.attempt, one.rank
        );
        Problem::field(format!("/sealed/{at}/attempt"), "bad_value", why)
    })?;
    Ok((*run, one))
}

/// The secrets themselves. No fault repeats one.
fn to_keep(kept: Vec<KeptSecret>, expected: &Expected) -> Result<Vec<Secret>, Problem> {
    let bad = |pointer: String, why: &str| Problem::field(pointer, "bad_value", why);
    if !expected.pool_may_keep {
        let why = "the request did not say pool_may_keep_secrets: seal them to the nodes of the members";
        return Err(bad("/kept".into(), why));
    }
    let mut secrets = Vec::with_capacity(kept.len());
    for (at, KeptSecret { name, value }) in kept.into_iter().enumerate() {
        let value = Zeroizing::new(value);
        let bytes = STANDARD.decode(value.as_bytes());
        let value =
            bytes.map_err(|_| bad(format!("/kept/{at}/value"), "this is no Base64 of RFC 4648 with padding"))?;
        secrets.push(Secret { name, value });
    }
    Secret::check(&secrets).map_err(|error| Problem::field("/kept", "bad_value", error.to_string()))?;
    secrets.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    if secrets.iter().map(|secret| &secret.name).ne(&expected.names) {
        let why = format!("the lease needs exactly these secrets: {}", expected.names.join(", "));
        return Err(bad("/kept".into(), &why));
    }
    Ok(secrets)
}

async fn expected(app: &App, id: LeaseId) -> Result<Expected, Problem> {
    // A lease of an earlier day has no request in the state; it waits for nothing.
    let Some(commitment) = app.log.read(|state| state.leases.get(&id).map(|lease| lease.request.work)) else {
        return Ok(Expected::default());
    };
    let work = work::get(&app.store, &commitment).await?;
    Ok(work.map(|(_, work)| work.secrets).unwrap_or_default())
}

async fn view(app: &App, id: LeaseId, expected: Expected) -> Result<SecretsView, Problem> {
    let mut members = Vec::new();
    let runs = if expected.names.is_empty() { Vec::new() } else { prepared(app, id) };
    for run in runs {
        let sealed = secret::get(&app.store.readers, &run).await?;
        members.push(SecretsMember {
            rank: run.member,
            attempt: run.attempt,
            node: run.node,
            key: app.hub.seal_key(run.node).map(Into::into),
            sealed_to: sealed.map(|sealed| sealed.to),
        });
    }
    let kept = expected.pool_may_keep && secret::kept(&app.store, id).await?.is_some();
    Ok(SecretsView { names: expected.names, pool_may_keep: expected.pool_may_keep, kept, members })
}
