//! Licences with seats, as the log knows them from the chain.

use axum::Json as Answer;
use axum::extract::State;
use selion_api::Licence;
use selion_api::rest::{LicencePage, LicenceView};

use crate::App;
use crate::http::Problem;
use crate::http::caller::Renter;
use crate::http::input::Query;
use crate::http::page::Page;
use crate::project;

#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct LicenceQuery {
    /// Rows of the page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    page_size: Option<u32>,
    /// `next_page_token` of the page before.
    page_token: Option<String>,
}

/// The row after which a page begins: holder and licence.
struct Row(selion_api::Account, Licence);

impl Row {
    fn of(view: &LicenceView) -> String {
        format!("{} {}", view.holder, view.licence)
    }
}

impl std::str::FromStr for Row {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (holder, licence) = text.split_once(' ').ok_or(())?;
        Ok(Self(holder.parse().map_err(|_| ())?, licence.parse().map_err(|_| ())?))
    }
}

/// Licences that the caller holds or issued, and how many of their seats are taken.
#[utoipa::path(get, path = "/v1/licences", operation_id = "list_licences", tag = "licences", params(LicenceQuery), security(("bearer" = [])),
    responses((status = 200, description = "A page of licences in order of issuer, product and holder",
        body = LicencePage)))]
pub(in crate::http) async fn list(
    State(app): State<App>,
    caller: Renter,
    Query(query): Query<LicenceQuery>,
) -> Result<Answer<LicencePage>, Problem> {
    let page = Page::<Row>::read("licences", query.page_size, query.page_token.as_deref())?;
    let after = page.after.as_ref().map(|Row(holder, licence)| (*licence, *holder));
    let mut licences = app.log.read(|state| {
        let rows = project::licences(state, caller.account);
        let rest = rows.filter(|row| after.is_none_or(|after| (row.licence, row.holder) > after));
        rest.take(page.fetch() as usize).collect::<Vec<_>>()
    });
    let next_page_token = page.cut("licences", &mut licences, Row::of);
    Ok(Answer(LicencePage { licences, next_page_token }))
}
