//! What the pool is, what it offers, who gets what share of it.

use axum::Json as Answer;
use axum::extract::State;
use selion_api::Rate;
use selion_api::rest::{Offer, OfferPage, PoolView, RegistryView, SharesView};

use crate::App;
use crate::http::Problem;
use crate::http::caller::Caller;
use crate::http::input::Query;
use crate::http::page::Page;
use crate::http::{offers, views};
use crate::store::rows;

/// Which pool this is and on what terms.
#[utoipa::path(get, path = "/v1/pool", operation_id = "get_pool", tag = "pool",
    responses((status = 200, description = "The pool", body = PoolView)))]
pub(in crate::http) async fn pool(State(app): State<App>) -> Result<Answer<PoolView>, Problem> {
    let view = app.log.read(|state| {
        let terms = state.pool.as_ref()?;
        Some(PoolView {
            pool: app.pool,
            vault: terms.vault,
            token: terms.token,
            authority: terms.authority,
            delegate: state.delegate,
            fee_bps: terms.fee_bps,
            fence: state.fence,
            allow_simulated: terms.allow_simulated,
            allow_unsandboxed: terms.allow_unsandboxed,
        })
    });
    view.map(Answer).ok_or_else(|| Problem::NotReady("the pool's first block is not final yet"))
}

#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct OfferQuery {
    /// Only this slice: `whole`, `share`, or a MIG profile name.
    slice: Option<String>,
    /// Only GPUs of this model.
    model: Option<String>,
    /// Only asks up to this many token base units per hour.
    max_rate: Option<Rate>,
    /// Rows of the page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    page_size: Option<u32>,
    /// `next_page_token` of the page before.
    page_token: Option<String>,
}

impl OfferQuery {
    fn wants(&self, offer: &Offer) -> bool {
        self.slice.as_ref().is_none_or(|slice| *slice == offer.slice)
            && self.model.as_ref().is_none_or(|model| *model == offer.model)
            && self.max_rate.is_none_or(|most| offer.rate <= most)
    }
}

/// What can be leased now, and what it asks.
#[utoipa::path(get, path = "/v1/offers", operation_id = "list_offers", tag = "pool", params(OfferQuery), security(("bearer" = [])),
    responses((status = 200, description = "A page of offers in order of node, GPU and slice", body = OfferPage)))]
pub(in crate::http) async fn list_offers(
    State(app): State<App>,
    _: Caller,
    Query(query): Query<OfferQuery>,
) -> Result<Answer<OfferPage>, Problem> {
    let page = Page::<offers::Place>::read("offers", query.page_size, query.page_token.as_deref())?;
    let mut offers = app.log.read(|state| {
        let after = page.after.as_ref();
        offers::after(state, after).filter(|offer| query.wants(offer)).take(page.fetch() as usize).collect::<Vec<_>>()
    });
    let next_page_token = page.cut("offers", &mut offers, offers::Place::of);
    Ok(Answer(OfferPage { offers, next_page_token }))
}

/// Accounts with leases and their shares, in the order of service.
#[utoipa::path(get, path = "/v1/shares", operation_id = "get_shares", tag = "pool", security(("bearer" = [])),
    responses((status = 200, description = "The shares", body = SharesView)))]
pub(in crate::http) async fn shares(State(app): State<App>, _: Caller) -> Answer<SharesView> {
    Answer(app.log.read(views::shares))
}

/// What the log knows of the chain. Public: anyone may compare it with the chain.
#[utoipa::path(get, path = "/v1/registry", operation_id = "get_registry", tag = "audit",
    responses((status = 200, description = "The registry", body = RegistryView)))]
pub(in crate::http) async fn registry(State(app): State<App>) -> Result<Answer<RegistryView>, Problem> {
    let mut view = rows::registry(&app.store.readers)
        .await?
        .ok_or(Problem::NotReady("the pool's first block is not final yet"))?;
    let now = (app.clock)();
    view.components.retain(|component| component.until_ms > now);
    let seen = app.mirror.status().seen;
    view.unconfirmed_block = (seen > view.block_number).then_some(seen);
    Ok(Answer(view))
}
