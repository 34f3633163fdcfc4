//! Says on chain that the authority is there, before a standby could think otherwise. An anchor says it too, so this is for
//! pools where nothing happens.

use selion_api::TimeMs;
use selion_contracts::Pool;

use super::outbox::Desk;
use crate::store::outbox::{Kind, Order};

/// Whether a third of the silence that the pool allows has passed since `seen`. 0 seconds: nobody can take over.
#[must_use]
pub fn is_due(seen: TimeMs, take_over_after_s: u32, now: TimeMs) -> bool {
    take_over_after_s > 0 && now.since(seen) > u64::from(take_over_after_s) * 1_000 / 3
}

/// Orders a sign of life unless one, or an anchor, is on its way. Tells whether it did.
///
/// # Errors
///
/// When SQLite fails.
pub async fn pass(due: bool, desk: &Desk, pool: &Pool, now: TimeMs) -> sqlx::Result<bool> {
    if !due || desk.pending(Kind::Renew).await?.is_some() || desk.pending(Kind::Anchor).await?.is_some() {
        return Ok(false);
    }
    let call = pool.renew();
    let order = Order { kind: Kind::Renew, subject: now.0.to_string(), target: call.to, calldata: call.data };
    desk.order(&order, now).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_of_life_is_due_after_a_third_of_the_silence_and_never_where_nobody_can_take_over() {
        let seen = TimeMs(5_000);
        assert!(!is_due(seen, 30, seen.plus(10_000)));
        assert!(is_due(seen, 30, seen.plus(10_001)));
        assert!(!is_due(seen, 0, seen.plus(u64::MAX / 2)));
        assert!(!is_due(seen, 30, TimeMs(0)), "a clock that is behind is no silence");
    }
}
