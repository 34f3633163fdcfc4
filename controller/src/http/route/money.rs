//! The caller's money: account, bills, vouchers.

use axum::Json as Answer;
use axum::extract::State;
use selion_api::rest::{AccountView, BillPage, VoucherPage, VoucherView};
use selion_api::{Account, Amount};

use crate::App;
use crate::http::Problem;
use crate::http::caller::Renter;
use crate::http::input::Query;
use crate::http::page::{MAX_BYTES, Page, fitting, token};
use crate::store::{rows, signed_voucher};

/// The caller's money as the log has it. An account that never deposited has nothing.
#[utoipa::path(get, path = "/v1/account", operation_id = "get_account", tag = "money", security(("bearer" = [])),
    responses((status = 200, description = "The account", body = AccountView)))]
pub(in crate::http) async fn account(State(app): State<App>, renter: Renter) -> Result<Answer<AccountView>, Problem> {
    let view = rows::account(&app.store.readers, renter.account).await?;
    Ok(Answer(view.unwrap_or(AccountView {
        account: renter.account,
        deposited: Amount::ZERO,
        withdrawn: Amount::ZERO,
        thawing: Amount::ZERO,
        claimed: Amount::ZERO,
        promised: Amount::ZERO,
        reserved: Amount::ZERO,
        free: Amount::ZERO,
        delegated: Amount::ZERO,
    })))
}

#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct BillQuery {
    /// Rows of the page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    page_size: Option<u32>,
    /// `next_page_token` of the page before.
    page_token: Option<String>,
}

/// One entry may fix many lines, so a page may end within one: the entry, and how many of its lines were shown.
struct Shown {
    entry: u64,
    lines: u32,
}

impl std::str::FromStr for Shown {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (entry, lines) = text.split_once('.').ok_or(())?;
        Ok(Self { entry: entry.parse().map_err(|_| ())?, lines: lines.parse().map_err(|_| ())? })
    }
}

/// Bill lines that the caller pays or earns, newest first.
#[utoipa::path(get, path = "/v1/bills", operation_id = "list_bills", tag = "money", params(BillQuery), security(("bearer" = [])),
    responses((status = 200, description = "A page of bill lines", body = BillPage)))]
pub(in crate::http) async fn bills(
    State(app): State<App>,
    renter: Renter,
    Query(query): Query<BillQuery>,
) -> Result<Answer<BillPage>, Problem> {
    let page = Page::<Shown>::read("bills", query.page_size, query.page_token.as_deref())?;
    let (before, skip) = match &page.after {
        Some(shown) => (Some(shown.entry.saturating_add(1)), shown.lines),
        None => (None, 0),
    };
    let fetch = page.fetch().saturating_add(skip);
    let mut bills = rows::bills(&app.store.readers, renter.account, fetch, before).await?;
    let shown = bills.get(skip as usize..).map_or(0, |rest| fitting(rest, MAX_BYTES).min(page.size as usize));
    let more = bills.len() > skip as usize + shown;
    bills.truncate(skip as usize + shown);
    let next_page_token = bills.last().filter(|_| more).map(|last| {
        let lines = bills.iter().rev().take_while(|line| line.entry == last.entry).count();
        token("bills", format_args!("{}.{lines}", last.entry))
    });
    bills.drain(..bills.len().min(skip as usize));
    Ok(Answer(BillPage { bills, next_page_token }))
}

#[derive(serde::Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(in crate::http) struct VoucherQuery {
    /// Rows of the page.
    #[param(minimum = 1, maximum = 500, default = 50)]
    page_size: Option<u32>,
    /// `next_page_token` of the page before.
    page_token: Option<String>,
}

/// The pair after which a page begins.
#[derive(Clone, Copy)]
struct Pair(Account, Account);

impl std::str::FromStr for Pair {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (renter, provider) = text.split_once(' ').ok_or(())?;
        Ok(Self(renter.parse().map_err(|_| ())?, provider.parse().map_err(|_| ())?))
    }
}

/// The newest voucher of each pair that the caller pays or earns.
#[utoipa::path(get, path = "/v1/vouchers", operation_id = "list_vouchers", tag = "money", params(VoucherQuery), security(("bearer" = [])),
    responses((status = 200, description = "A page of vouchers in order of renter and provider", body = VoucherPage)))]
pub(in crate::http) async fn vouchers(
    State(app): State<App>,
    renter: Renter,
    Query(query): Query<VoucherQuery>,
) -> Result<Answer<VoucherPage>, Problem> {
    let page = Page::<Pair>::read("vouchers", query.page_size, query.page_token.as_deref())?;
    let after = page.after.map(|Pair(renter, provider)| (renter, provider));
    let mine = signed_voucher::of_account(&app.store.readers, renter.account, page.fetch(), after).await?;
    let mut vouchers: Vec<_> = mine
        .into_iter()
        .map(|kept| VoucherView {
            renter: kept.voucher.renter,
            provider: kept.voucher.provider,
            cumulative: kept.voucher.cumulative,
            used_through_ms: kept.voucher.used_through,
            epoch: kept.voucher.epoch,
            log_size: kept.voucher.log_size,
            // Only vouchers with both signatures are kept.
            signed: true,
            delivered: kept.delivered >= kept.voucher.cumulative,
            claimed: kept.claimed,
        })
        .collect();
    let next_page_token = page.cut("vouchers", &mut vouchers, |row| format!("{} {}", row.renter, row.provider));
    Ok(Answer(VoucherPage { vouchers, next_page_token }))
}
