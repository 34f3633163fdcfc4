//! Table `signed_voucher`: the newest voucher of each pair with both signatures. Only the voucher and claim loops
//! write totals here; whoever delivers marks what the provider's agent stored.

use selion_api::agent::SignedVoucher;
use selion_api::{Account, Amount, Signature, TimeMs};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqlitePool};

use super::{count, count_if_any, fixed, int};

/// A voucher and how far it went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The voucher.
    pub voucher: SignedVoucher,
    /// Highest total that the provider's agent stored.
    pub delivered: Amount,
    /// Highest total that is claimed on chain and final.
    pub claimed: Amount,
    /// Since when some of the total is signed and not claimed; `None` if all is claimed.
    pub unclaimed_since: Option<TimeMs>,
}

fn amount(row: &SqliteRow, column: &str) -> sqlx::Result<Amount> {
    Ok(Amount(u64::from_be_bytes(fixed(row.try_get(column)?)?)))
}

fn bytes(amount: Amount) -> Vec<u8> {
    amount.0.to_be_bytes().to_vec()
}

fn kept(row: &SqliteRow) -> sqlx::Result<Kept> {
    Ok(Kept {
        voucher: SignedVoucher {
            renter: Account(fixed(row.try_get("renter")?)?),
            provider: Account(fixed(row.try_get("provider")?)?),
            cumulative: amount(row, "cumulative")?,
            used_through: TimeMs(count(row, "signed_voucher", "used_through")?),
            epoch: u32::try_from(count(row, "signed_voucher", "epoch")?)
                .map_err(|_| sqlx::Error::Decode("signed_voucher.epoch is above 4294967295".into()))?,
            log_size: count(row, "signed_voucher", "log_size")?,
            renter_signature: Signature(fixed(row.try_get("renter_signature")?)?),
            authority_signature: Signature(fixed(row.try_get("authority_signature")?)?),
        },
        delivered: amount(row, "delivered")?,
        claimed: amount(row, "claimed")?,
        unclaimed_since: count_if_any(row, "signed_voucher", "unclaimed_since")?.map(TimeMs),
    })
}

fn all(rows: &[SqliteRow]) -> sqlx::Result<Vec<Kept>> {
    rows.iter().map(kept).collect()
}

/// The newest voucher of every pair.
///
/// # Errors
///
/// When SQLite fails.
pub async fn every(db: &SqlitePool) -> sqlx::Result<Vec<Kept>> {
    all(&sqlx::query("select * from signed_voucher order by renter, provider").fetch_all(db).await?)
}

/// The newest voucher of every renter for this provider.
///
/// # Errors
///
/// When SQLite fails.
pub async fn for_provider(db: &SqlitePool, provider: Account) -> sqlx::Result<Vec<Kept>> {
    all(&sqlx::query("select * from signed_voucher where provider = ?1 order by renter")
        .bind(&provider.0[..])
        .fetch_all(db)
        .await?)
}

/// The newest voucher of each pair that `account` pays or earns behind the pair `after`, by renter and provider.
///
/// # Errors
///
/// When SQLite fails.
pub async fn of_account(
    db: &SqlitePool,
    account: Account,
    limit: u32,
    after: Option<(Account, Account)>,
) -> sqlx::Result<Vec<Kept>> {
    // No bytes come before all others.
    let (renter, provider): (&[u8], &[u8]) = after.as_ref().map_or((&[], &[]), |(one, other)| (&one.0, &other.0));
    all(&sqlx::query(
        "select * from signed_voucher where (renter = ?1 or provider = ?1) and (renter, provider) > (?2, ?3) \
         order by renter, provider limit ?4",
    )
    .bind(&account.0[..])
    .bind(renter)
    .bind(provider)
    .bind(limit)
    .fetch_all(db)
    .await?)
}

/// Vouchers with something signed that is not claimed, those that wait longest first.
///
/// # Errors
///
/// When SQLite fails.
pub async fn unclaimed(db: &SqlitePool) -> sqlx::Result<Vec<Kept>> {
    all(&sqlx::query(
        "select * from signed_voucher where unclaimed_since is not null order by unclaimed_since, provider, renter",
    )
    .fetch_all(db)
    .await?)
}

/// Keeps a voucher that was just signed. `false` if one of that total and epoch, or a higher one, is there already.
///
/// # Errors
///
/// When SQLite fails.
pub async fn put(db: &SqlitePool, voucher: &SignedVoucher, now: TimeMs) -> sqlx::Result<bool> {
    let done = sqlx::query(
        "insert into signed_voucher (renter, provider, cumulative, used_through, epoch, log_size, \
             renter_signature, authority_signature, unclaimed_since) \
         values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) \
         on conflict (renter, provider) do update set cumulative = excluded.cumulative, \
             used_through = excluded.used_through, epoch = excluded.epoch, log_size = excluded.log_size, \
             renter_signature = excluded.renter_signature, authority_signature = excluded.authority_signature, \
             unclaimed_since = coalesce(signed_voucher.unclaimed_since, \
                 case when excluded.cumulative > signed_voucher.claimed then excluded.unclaimed_since end), \
             delivered = case when excluded.epoch > signed_voucher.epoch then zeroblob(8) else delivered end \
         where (excluded.cumulative > signed_voucher.cumulative and excluded.epoch >= signed_voucher.epoch) \
            or (excluded.cumulative = signed_voucher.cumulative and excluded.epoch > signed_voucher.epoch)",
    )
    .bind(&voucher.renter.0[..])
    .bind(&voucher.provider.0[..])
    .bind(bytes(voucher.cumulative))
    .bind(int(voucher.used_through.0))
    .bind(voucher.epoch)
    .bind(int(voucher.log_size))
    .bind(&voucher.renter_signature.0[..])
    .bind(&voucher.authority_signature.0[..])
    .bind(int(now.0))
    .execute(db)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Removes the pair's voucher, as one that was altered.
///
/// # Errors
///
/// When SQLite fails.
pub async fn remove(db: &SqlitePool, renter: Account, provider: Account) -> sqlx::Result<()> {
    sqlx::query("delete from signed_voucher where renter = ?1 and provider = ?2")
        .bind(&renter.0[..])
        .bind(&provider.0[..])
        .execute(db)
        .await?;
    Ok(())
}

/// The provider's agent stored the renter's voucher up to `cumulative`.
///
/// # Errors
///
/// When SQLite fails.
pub async fn mark_delivered(
    db: &SqlitePool,
    renter: Account,
    provider: Account,
    cumulative: Amount,
) -> sqlx::Result<()> {
    sqlx::query(
        "update signed_voucher set delivered = ?3 \
         where renter = ?1 and provider = ?2 and delivered < ?3 and cumulative >= ?3",
    )
    .bind(&renter.0[..])
    .bind(&provider.0[..])
    .bind(bytes(cumulative))
    .execute(db)
    .await?;
    Ok(())
}

/// The pair's claims on chain reached `claimed`, and that is final. What is left was signed while the claim was on its way:
/// it waits since `now`, or the claim of a lease that runs on would be due again at once, for dust.
///
/// # Errors
///
/// When SQLite fails.
pub async fn mark_claimed(
    db: &SqlitePool,
    renter: Account,
    provider: Account,
    claimed: Amount,
    now: TimeMs,
) -> sqlx::Result<()> {
    sqlx::query(
        "update signed_voucher set claimed = ?3, \
             unclaimed_since = case when ?3 >= cumulative then null else ?4 end \
         where renter = ?1 and provider = ?2 and claimed < ?3",
    )
    .bind(&renter.0[..])
    .bind(&provider.0[..])
    .bind(bytes(claimed))
    .bind(int(now.0))
    .execute(db)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    fn voucher(cumulative: u64, epoch: u32) -> SignedVoucher {
        SignedVoucher {
            renter: Account([1; 20]),
            provider: Account([2; 20]),
            cumulative: Amount(cumulative),
            used_through: TimeMs(4),
            epoch,
            log_size: 9,
            renter_signature: Signature([3; 65]),
            authority_signature: Signature([4; 65]),
        }
    }

    async fn store() -> (tempfile::TempDir, Store) {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        (dir, store)
    }

    #[tokio::test]
    async fn a_pairs_total_rises_and_never_falls() {
        let (_dir, store) = store().await;
        let db = &store.writer;
        assert!(put(db, &voucher(u64::MAX - 1, 1), TimeMs(5)).await.unwrap());
        assert!(!put(db, &voucher(7, 1), TimeMs(6)).await.unwrap());
        assert!(put(db, &voucher(u64::MAX, 1), TimeMs(7)).await.unwrap());
        let kept = for_provider(db, Account([2; 20])).await.unwrap();
        assert_eq!(kept[0].voucher, voucher(u64::MAX, 1));
        assert_eq!(kept[0].unclaimed_since, Some(TimeMs(5)));
        let lower = sqlx::query("update signed_voucher set cumulative = zeroblob(8)").execute(db).await;
        assert!(lower.is_err());
    }

    #[tokio::test]
    async fn what_is_claimed_leaves_the_list_until_more_is_signed() {
        let (_dir, store) = store().await;
        let db = &store.writer;
        let (renter, provider) = (Account([1; 20]), Account([2; 20]));
        put(db, &voucher(10, 1), TimeMs(5)).await.unwrap();
        mark_claimed(db, renter, provider, Amount(4), TimeMs(6)).await.unwrap();
        assert_eq!(unclaimed(db).await.unwrap()[0].unclaimed_since, Some(TimeMs(6)), "what is left is not older");
        mark_claimed(db, renter, provider, Amount(10), TimeMs(7)).await.unwrap();
        assert!(unclaimed(db).await.unwrap().is_empty());
        put(db, &voucher(11, 1), TimeMs(8)).await.unwrap();
        let kept = unclaimed(db).await.unwrap();
        assert_eq!(kept[0].unclaimed_since, Some(TimeMs(8)));
    }

    #[tokio::test]
    async fn a_new_epoch_signs_the_same_total_again_and_delivers_it_again() {
        let (_dir, store) = store().await;
        let db = &store.writer;
        let (renter, provider) = (Account([1; 20]), Account([2; 20]));
        put(db, &voucher(10, 1), TimeMs(5)).await.unwrap();
        mark_delivered(db, renter, provider, Amount(11)).await.unwrap();
        assert_eq!(every(db).await.unwrap()[0].delivered, Amount(0));
        mark_delivered(db, renter, provider, Amount(10)).await.unwrap();
        assert_eq!(every(db).await.unwrap()[0].delivered, Amount(10));
        assert!(put(db, &voucher(10, 2), TimeMs(6)).await.unwrap());
        assert_eq!(every(db).await.unwrap()[0].delivered, Amount(0));
    }

    #[tokio::test]
    async fn an_accounts_vouchers_are_read_page_by_page_and_nobody_elses() {
        let (_dir, store) = store().await;
        let db = &store.writer;
        let of = |renter: u8, provider: u8| SignedVoucher {
            renter: Account([renter; 20]),
            provider: Account([provider; 20]),
            ..voucher(10, 1)
        };
        let pairs = [(1, 2), (1, 3), (3, 1), (4, 5), (5, 4), (9, 1)];
        for (renter, provider) in pairs {
            put(db, &of(renter, provider), TimeMs(5)).await.unwrap();
        }
        let mut read = Vec::new();
        let mut after = None;
        loop {
            let page = of_account(db, Account([1; 20]), 3, after).await.unwrap();
            assert!(page.len() <= 3);
            let Some(last) = page.last() else { break };
            after = Some((last.voucher.renter, last.voucher.provider));
            read.extend(page.iter().map(|kept| (kept.voucher.renter.0[0], kept.voucher.provider.0[0])));
        }
        assert_eq!(read, [(1, 2), (1, 3), (3, 1), (9, 1)]);
    }
}
