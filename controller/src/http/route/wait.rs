//! `GET /v1/leases/{id}/wait`: answers when the lease reached a state, or cannot reach it any more.

use std::sync::Arc;
use std::time::Duration;

use axum::Json as Answer;
use axum::extract::State;
use selion_api::LeaseId;
use selion_api::lease::LeaseState;
use selion_api::rest::{Lease, LeaseEvent, LeaseRef};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::leases::own;
use crate::App;
use crate::http::Problem;
use crate::http::caller::Renter;
use crate::http::input::{Path, Query};
use crate::http::named::resolve;
use crate::sequencer::Batch;
use crate::store::rows;

/// A wait that names no time, and the longest, in milliseconds.
const DEFAULT_MS: u64 = 30_000;
const MAX_MS: u64 = 300_000;

#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct WaitQuery {
    /// The state to wait for.
    state: LeaseState,
    /// How long, in milliseconds, up to 300000; 30000 if absent.
    timeout_ms: Option<u64>,
}

/// Waits until the lease reached a state in its present run.
#[utoipa::path(get, path = "/v1/leases/{id}/wait", operation_id = "wait_for_lease", tag = "leases", params(("id" = String, Path, description = "Id or name of the lease"), WaitQuery),
    security(("bearer" = [])), responses(
        (status = 200, description = "Reached: the lease as it is now", body = Lease),
        (status = 408, description = "Not reached in time: wait again", body = selion_api::rest::Problem, content_type = "application/problem+json"),
        (status = 409, description = "It can no longer be reached", body = selion_api::rest::Problem, content_type = "application/problem+json")))]
pub(in crate::http) async fn wait(
    State(app): State<App>,
    renter: Renter,
    Path(id): Path<LeaseRef>,
    Query(query): Query<WaitQuery>,
) -> Result<Answer<Lease>, Problem> {
    let id = resolve(&app, renter.account, id).await?;
    let timeout_ms = query.timeout_ms.unwrap_or(DEFAULT_MS);
    if timeout_ms > MAX_MS {
        return Err(Problem::Query(format!("timeout_ms is at most {MAX_MS}, not {timeout_ms}")));
    }
    // Subscribed before the first look, so that no change falls between the two.
    let mut batches = app.log.subscribe();
    let lapses = tokio::time::sleep(Duration::from_millis(timeout_ms));
    tokio::pin!(lapses);
    loop {
        // The lease after its events: it is never older than the state that they say was reached.
        let events = rows::lease_events(&app.store.readers, id, None).await?;
        let lease = own(&app, renter.account, id).await?;
        match judge(&lease, &events, query.state) {
            Standing::Reached => return Ok(Answer(lease)),
            Standing::Unreachable => return Err(Problem::Unreachable(id, lease.state, lease.reason)),
            Standing::Open => {}
        }
        tokio::select! {
            () = &mut lapses => return Err(Problem::WaitTimeout(id, lease.state)),
            open = touched(&mut batches, id) => if !open {
                return Err(Problem::NotReady("the controller is stopping"));
            },
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Standing {
    Reached,
    Unreachable,
    Open,
}

/// A state counts as reached also when the present run passed through it already, however quickly.
fn judge(lease: &Lease, events: &[LeaseEvent], wanted: LeaseState) -> Standing {
    let passed = events.iter().any(|event| event.attempt == lease.attempt && event.state == wanted);
    if lease.state == wanted || passed {
        Standing::Reached
    } else if lease.state == LeaseState::Ended {
        Standing::Unreachable
    } else {
        Standing::Open
    }
}

/// Resolves when a committed batch touched the lease, or when batches were missed; `false` if no more will come.
pub(in crate::http) async fn touched(batches: &mut Receiver<Arc<Batch>>, id: LeaseId) -> bool {
    loop {
        match batches.recv().await {
            Ok(batch) => {
                if batch.steps.iter().any(|step| step.outcome.touched.leases.contains(&id)) {
                    return true;
                }
            }
            Err(RecvError::Lagged(_)) => return true,
            Err(RecvError::Closed) => return false,
        }
    }
}
