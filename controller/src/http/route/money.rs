//! The caller's money: account, bills, vouchers.

use axum::Json as Answer;
use axum::extract::State;
use selion_api::Amount;
use selion_api::rest::{AccountView, BillPage, VoucherPage, VoucherView};

use crate::App;
use crate::http::Problem;
use crate::http::caller::Renter;
use crate::http::input::Query;
use crate::http::page::{Page, token};
use crate::store::{rows, signed_voucher};

/// The caller's money as the log has it. An account that never deposited has nothing.
#[utoipa::path(get, path = "/v1/account", tag = "money", security(("bearer" = [])),
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
    /// Rows of the page, 1 to 500; 50 if absent.
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
#[utoipa::path(get, path = "/v1/bills", tag = "money", params(BillQuery), security(("bearer" = [])),
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
    let more = bills.len() > skip as usize + page.size as usize;
    bills.truncate(skip as usize + page.size as usize);
    let next_page_token = bills.last().filter(|_| more).map(|last| {
        let lines = bills.iter().rev().take_while(|line| line.entry == last.entry).count();
        token("bills", format_args!("{}.{lines}", last.entry))
    });
    bills.drain(..bills.len().min(skip as usize));
    Ok(Answer(BillPage { bills, next_page_token }))
}

/// The newest voucher of each pair that the caller pays or earns.
#[utoipa::path(get, path = "/v1/vouchers", tag = "money", security(("bearer" = [])),
    responses((status = 200, description = "The vouchers", body = VoucherPage)))]
pub(in crate::http) async fn vouchers(State(app): State<App>, renter: Renter) -> Result<Answer<VoucherPage>, Problem> {
    let me = renter.account;
    let every = signed_voucher::every(&app.store.readers).await?;
    let mine = every.into_iter().filter(|kept| kept.voucher.renter == me || kept.voucher.provider == me);
    let vouchers = mine
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
    Ok(Answer(VoucherPage { vouchers }))
}
