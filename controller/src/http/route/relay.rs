//! Calls that accounts sign and the operator pays for.

use axum::Json as Answer;
use axum::extract::State;
use axum::http::StatusCode;
use selion_api::rest::{NewRelay, RelayView};

use crate::App;
use crate::http::Problem;
use crate::http::caller::Peer;
use crate::http::input::{Json, Path};
use crate::relay::view;
use crate::store::{int, relay};

/// Takes a signed call to the pool's contracts and sends it at the operator's cost. The signature is the authority: no
/// token is needed. The same request again gives the same answer.
#[utoipa::path(post, path = "/v1/relay", operation_id = "relay_call", tag = "relay", request_body = NewRelay,
    responses((status = 202, description = "It is kept and will be sent", body = RelayView)))]
pub(in crate::http) async fn take(
    State(app): State<App>,
    Peer(peer): Peer,
    Json(body): Json<NewRelay>,
) -> Result<(StatusCode, Answer<RelayView>), Problem> {
    let view = app.relay.take(&body, peer, (app.clock)()).await?;
    Ok((StatusCode::ACCEPTED, Answer(view)))
}

/// What became of a relayed call.
#[utoipa::path(get, path = "/v1/relay/{id}", operation_id = "get_relayed_call", tag = "relay",
    params(("id" = u64, Path, description = "Id of the relayed call")),
    responses((status = 200, description = "How far it is", body = RelayView)))]
pub(in crate::http) async fn get(State(app): State<App>, Path(id): Path<u64>) -> Result<Answer<RelayView>, Problem> {
    let kept = relay::get(&app.store.readers, int(id)).await?;
    kept.map(|kept| Answer(view(kept))).ok_or_else(|| Problem::NotFound("relayed call", id.to_string()))
}
