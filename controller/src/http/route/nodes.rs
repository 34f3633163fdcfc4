//! Nodes: what they are, and how their owners pause them and take them back.

use axum::Json as Answer;
use axum::extract::State;
use axum::response::Response;
use selion_api::NodeId;
use selion_api::rest::{NodePage, NodeView, Reclaim, Word};
use selion_market::{Answer as Told, Input};

use crate::App;
use crate::http::Problem;
use crate::http::caller::{Caller, Renter};
use crate::http::input::{Json, MaybeJson, Path, Query};
use crate::http::page::Page;
use crate::http::promise::promised;
use crate::http::said;
use crate::store::rows;

#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct NodeQuery {
    /// Rows of the page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    page_size: Option<u32>,
    /// `next_page_token` of the page before.
    page_token: Option<String>,
}

/// Nodes of the pool, with what is on their GPUs.
#[utoipa::path(get, path = "/v1/nodes", operation_id = "list_nodes", tag = "nodes", params(NodeQuery), security(("bearer" = [])),
    responses((status = 200, description = "A page of nodes in order of id", body = NodePage)))]
pub(in crate::http) async fn list(
    State(app): State<App>,
    _: Caller,
    Query(query): Query<NodeQuery>,
) -> Result<Answer<NodePage>, Problem> {
    let page = Page::<NodeId>::read("nodes", query.page_size, query.page_token.as_deref())?;
    let mut nodes = rows::nodes(&app.store.readers, page.fetch(), page.after).await?;
    let next_page_token = page.cut("nodes", &mut nodes, |node| node.node);
    Ok(Answer(NodePage { nodes, next_page_token }))
}

/// One node.
#[utoipa::path(get, path = "/v1/nodes/{id}", operation_id = "get_node", tag = "nodes", security(("bearer" = [])),
    params(("id" = NodeId, Path, description = "Id of the node")),
    responses((status = 200, description = "The node", body = NodeView)))]
pub(in crate::http) async fn get(
    State(app): State<App>,
    _: Caller,
    Path(id): Path<NodeId>,
) -> Result<Answer<NodeView>, Problem> {
    read(&app, id).await.map(Answer)
}

/// The owner pauses his node: running leases go on, no new ones come.
///
/// Signed is the statement (`provider`, `node`, `paused`, `said_ms`) of kind `set_paused`.
#[utoipa::path(post, path = "/v1/nodes/{id}/pause", operation_id = "pause_node", tag = "nodes", security(("bearer" = [])),
    params(("id" = NodeId, Path, description = "Id of the node")), request_body = Option<Word>,
    responses((status = 200, description = "The node, paused", body = NodeView,
        headers(("selion-promise" = String, description = "That the input stands in the log")))))]
pub(in crate::http) async fn pause(
    State(app): State<App>,
    renter: Renter,
    Path(id): Path<NodeId>,
    MaybeJson(word): MaybeJson<Word>,
) -> Result<Response, Problem> {
    set_paused(&app, renter, id, true, word).await
}

/// The owner resumes his node: the pause is over, and he wants nothing back any more.
///
/// Signed is the statement (`provider`, `node`, `paused`, `said_ms`) of kind `set_paused`.
#[utoipa::path(post, path = "/v1/nodes/{id}/resume", operation_id = "resume_node", tag = "nodes", security(("bearer" = [])),
    params(("id" = NodeId, Path, description = "Id of the node")), request_body = Option<Word>,
    responses((status = 200, description = "The node, open for leases again", body = NodeView,
        headers(("selion-promise" = String, description = "That the input stands in the log")))))]
pub(in crate::http) async fn resume(
    State(app): State<App>,
    renter: Renter,
    Path(id): Path<NodeId>,
    MaybeJson(word): MaybeJson<Word>,
) -> Result<Response, Problem> {
    set_paused(&app, renter, id, false, word).await
}

/// The owner takes his node back, or one GPU of it, with notice.
///
/// It takes no new leases. What still runs there after the notice is stopped, its whole gang with it, and paid for.
/// Resuming undoes it. Asked again, the earlier time holds. Signed is the statement (`provider`, `node`, `gpu`,
/// `notice_ms`, `said_ms`) of kind `reclaim`.
#[utoipa::path(post, path = "/v1/nodes/{id}/reclaim", operation_id = "reclaim_node", tag = "nodes", security(("bearer" = [])),
    params(("id" = NodeId, Path, description = "Id of the node")), request_body = Reclaim,
    responses((status = 200, description = "The node, with what is taken back", body = NodeView,
        headers(("selion-promise" = String, description = "That the input stands in the log")))))]
pub(in crate::http) async fn reclaim(
    State(app): State<App>,
    renter: Renter,
    Path(id): Path<NodeId>,
    Json(Reclaim { gpu, notice_ms, said_ms, signature }): Json<Reclaim>,
) -> Result<Response, Problem> {
    let said = said::said(Word { said_ms, signature })?;
    let view = own(&app, &renter, id).await?;
    if let Some(gpu) = gpu.filter(|gpu| view.gpus.iter().all(|known| known.spec.gpu != *gpu)) {
        return Err(Problem::NotFound("gpu", gpu.to_string()));
    }
    submit(&app, renter, id, Input::Reclaim { provider: renter.account, node: id, gpu, notice_ms, said }).await
}

async fn set_paused(app: &App, renter: Renter, node: NodeId, paused: bool, word: Word) -> Result<Response, Problem> {
    let said = said::said(word)?;
    own(app, &renter, node).await?;
    submit(app, renter, node, Input::SetPaused { provider: renter.account, node, paused, said }).await
}

async fn own(app: &App, renter: &Renter, node: NodeId) -> Result<NodeView, Problem> {
    let view = read(app, node).await?;
    if view.provider == renter.account { Ok(view) } else { Err(Problem::NotYours("node", node.to_string())) }
}

async fn submit(app: &App, renter: Renter, node: NodeId, input: Input) -> Result<Response, Problem> {
    said::hear(app, &input)?;
    let step = app.log.submit(input, None).await?;
    let answer = match step.answer() {
        Told::Refused(refusal) => Err(Problem::Refused(refusal.clone())),
        _ => read(app, node).await.map(Answer),
    };
    Ok(promised(app, renter.account, step.seq, answer).await)
}

async fn read(app: &App, id: NodeId) -> Result<NodeView, Problem> {
    rows::node(&app.store.readers, id).await?.ok_or_else(|| Problem::NotFound("node", id.to_string()))
}
