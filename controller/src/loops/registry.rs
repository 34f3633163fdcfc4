//! Keeps the controller's own entry in the registry on chain: where its REST endpoint and its log are.

use selion_api::TimeMs;
use selion_api::chain::ComponentKind;
use selion_contracts::Pool;

use super::outbox::Desk;
use crate::store::outbox::{Kind, Order};

const DAY_MS: u64 = 86_400_000;
/// For how long an entry is made.
const TERM_MS: u64 = 30 * DAY_MS;
/// It is renewed when less than this is left.
const RENEW_MS: u64 = 10 * DAY_MS;

/// Whether what is on chain names `endpoint`, with time to spare.
#[must_use]
pub fn is_current(on_chain: Option<&(String, TimeMs)>, endpoint: &str, now: TimeMs) -> bool {
    on_chain.is_some_and(|(at, until)| at == endpoint && until.since(now) > RENEW_MS)
}

/// Orders a registration unless one is on its way. Tells whether it did.
///
/// # Errors
///
/// When SQLite fails.
pub async fn pass(current: bool, endpoint: &str, desk: &Desk, pool: &Pool, now: TimeMs) -> sqlx::Result<bool> {
    if current || desk.pending(Kind::Register).await?.is_some() {
        return Ok(false);
    }
    let until = now.plus(TERM_MS);
    let call = pool.register_component(ComponentKind::Controller, endpoint, until);
    let order = Order { kind: Kind::Register, subject: endpoint.to_owned(), target: call.to, calldata: call.data };
    desk.order(&order, now).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_renewed_when_it_moves_or_runs_out() {
        let now = TimeMs(1_000);
        let entry = ("http://here".to_owned(), now.plus(RENEW_MS + 1));
        assert!(is_current(Some(&entry), "http://here", now));
        assert!(!is_current(Some(&entry), "http://there", now));
        assert!(!is_current(Some(&entry), "http://here", now.plus(1)));
        assert!(!is_current(None, "http://here", now));
    }
}
