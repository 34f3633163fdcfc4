//! Whether the pool's vault pays for what a renter runs here next.

use selion_api::{Account, Address, Amount, TimeMs};
use selion_contracts::read::KeyRecord;
use selion_contracts::{BlockTag, Pool, PoolError};

/// Money that may leave within this time is not counted, in milliseconds: a claim must reach the chain before.
const NEAR_MS: u64 = 10 * 60_000;

/// What the vault says of a renter, at the latest block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Means {
    /// Deposited and neither claimed nor withdrawn.
    pub(crate) balance: Amount,
    /// Part of it that the renter asked back.
    pub(crate) thawing: Amount,
    /// When that may leave.
    pub(crate) ready: TimeMs,
    /// The pool's key, if the renter granted it.
    pub(crate) key: Option<KeyRecord>,
    /// What this node's owner has claimed of the renter in all.
    pub(crate) claimed: Amount,
}

/// Why the vault does not pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Uncovered {
    #[error(
        "the renter's deposit is short: {need} base units are owed here or come due next, {have} are left in the vault"
    )]
    Balance { need: Amount, have: Amount },
    #[error(
        "the grant of the pool's key is short: {need} base units are owed here or come due next, {have} are left of it"
    )]
    Cap { need: Amount, have: Amount },
    #[error("the grant of the pool's key ends at {} ms UTC, before the next look at the vault", until.0)]
    KeyEnds { until: TimeMs },
    #[error("the renter revoked the pool's key; what it signs is worth nothing from {} ms UTC on", dead_from.0)]
    Revoked { dead_from: TimeMs },
    #[error("the renter has granted the pool's key nothing")]
    NoKey,
}

/// Asks the vault. What was claimed is read last: a claim between two answers can then make the renter look richer, not
/// poorer.
///
/// # Errors
///
/// [`PoolError`].
pub(crate) async fn ask(
    pool: &Pool,
    renter: Account,
    provider: Account,
    delegate: Address,
) -> Result<Means, PoolError> {
    let at = BlockTag::Latest;
    let balance = pool.account(renter, at).await?.balance;
    let (thawing, ready) = pool.thawing(renter, at).await?;
    let key = pool.key(renter, delegate, at).await?;
    let (claimed, _) = pool.claimed(provider, renter, at).await?;
    Ok(Means { balance, thawing, ready, key, claimed })
}

/// Whether `need` can be claimed for use through `until`.
///
/// # Errors
///
/// [`Uncovered`], the first that holds.
pub(crate) fn judge(means: &Means, need: Amount, until: TimeMs, now: TimeMs) -> Result<(), Uncovered> {
    let key = means.key.ok_or(Uncovered::NoKey)?;
    if let Some(dead_from) = key.dead_from {
        return Err(Uncovered::Revoked { dead_from });
    }
    if key.until < until {
        return Err(Uncovered::KeyEnds { until: key.until });
    }
    // An own key has no cap.
    if key.delegated && key.cap_left < need {
        return Err(Uncovered::Cap { need, have: key.cap_left });
    }
    let leaves = if means.ready <= now.plus(NEAR_MS) { means.thawing } else { Amount::ZERO };
    let have = means.balance.saturating_sub(leaves);
    if have < need { Err(Uncovered::Balance { need, have }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: TimeMs = TimeMs(1_000_000_000);
    const UNTIL: TimeMs = TimeMs(1_000_060_000);

    fn means() -> Means {
        let key = KeyRecord { cap_left: Amount(900), until: UNTIL, dead_from: None, delegated: true };
        Means { balance: Amount(1_000), thawing: Amount::ZERO, ready: TimeMs(0), key: Some(key), claimed: Amount::ZERO }
    }

    fn says(means: Means, need: u64) -> Result<(), Uncovered> {
        judge(&means, Amount(need), UNTIL, NOW)
    }

    #[test]
    fn deposit_cap_and_end_of_the_grant_are_each_needed() {
        let key = |key: KeyRecord| Means { key: Some(key), ..means() };
        let had = means().key.unwrap();
        assert_eq!(says(means(), 900), Ok(()));
        assert_eq!(says(means(), 901), Err(Uncovered::Cap { need: Amount(901), have: Amount(900) }));
        let poor = Means { balance: Amount(899), ..means() };
        assert_eq!(says(poor, 900), Err(Uncovered::Balance { need: Amount(900), have: Amount(899) }));
        let until = TimeMs(UNTIL.0 - 1);
        assert_eq!(says(key(KeyRecord { until, ..had }), 1), Err(Uncovered::KeyEnds { until }));
        let revoked = key(KeyRecord { dead_from: Some(TimeMs(u64::MAX)), ..had });
        assert_eq!(says(revoked, 1), Err(Uncovered::Revoked { dead_from: TimeMs(u64::MAX) }));
        assert_eq!(says(Means { key: None, ..means() }, 0), Err(Uncovered::NoKey));
    }

    #[test]
    fn money_that_thaws_counts_until_it_may_soon_leave() {
        let thaws = |ready| Means { thawing: Amount(600), ready, ..means() };
        assert_eq!(says(thaws(NOW.plus(NEAR_MS + 1)), 900), Ok(()));
        let short = Err(Uncovered::Balance { need: Amount(900), have: Amount(400) });
        assert_eq!(says(thaws(NOW.plus(NEAR_MS)), 900), short);
        assert_eq!(says(thaws(TimeMs(1)), 900), short);
        assert_eq!(says(thaws(TimeMs(1)), 400), Ok(()));
    }
}
