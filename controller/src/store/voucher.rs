//! Table `voucher`: the newest total that is due to each pair; a fold of the log.

use selion_api::{Account, Amount, TimeMs};
use selion_market::VoucherDue;
use sqlx::{Row, SqliteConnection, SqlitePool};

use super::{count, fixed, int};

/// A total that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VoucherRow {
    /// Who pays.
    pub renter: Account,
    /// Who earns.
    pub provider: Account,
    /// All that was ever billed between them.
    pub cumulative: Amount,
    /// Use up to here is covered.
    pub used_through: TimeMs,
    /// Size of the log that justifies it.
    pub log_size: u64,
}

/// Raises the pair's total.
pub async fn raise(db: &mut SqliteConnection, due: &VoucherDue, log_size: u64) -> sqlx::Result<()> {
    sqlx::query(
        "insert into voucher (renter, provider, cumulative, used_through, log_size) values ($1, $2, $3, $4, $5) \
         on conflict (renter, provider) do update set cumulative = excluded.cumulative, \
         used_through = excluded.used_through, log_size = excluded.log_size \
         where excluded.cumulative > voucher.cumulative",
    )
    .bind(&due.renter.0[..])
    .bind(&due.provider.0[..])
    .bind(int(due.cumulative.0))
    .bind(int(due.used_through.0))
    .bind(int(log_size))
    .execute(db)
    .await?;
    Ok(())
}

/// The newest total of every pair.
pub async fn due(db: &SqlitePool) -> sqlx::Result<Vec<VoucherRow>> {
    let rows = sqlx::query(
        "select renter, provider, cumulative, used_through, log_size from voucher order by renter, provider",
    )
    .fetch_all(db)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(VoucherRow {
                renter: Account(fixed(&row.get::<Vec<u8>, _>("renter"))?),
                provider: Account(fixed(&row.get::<Vec<u8>, _>("provider"))?),
                cumulative: Amount(count(&row, "voucher", "cumulative")?),
                used_through: TimeMs(count(&row, "voucher", "used_through")?),
                log_size: count(&row, "voucher", "log_size")?,
            })
        })
        .collect()
}
