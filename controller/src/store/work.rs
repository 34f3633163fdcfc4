//! Table `work`: what leases run, by commitment. Private, and encrypted at rest.

use selion_api::Hash32;
use selion_api::commit::{Work, canonical};
use sqlx::{Row, SqliteConnection};
use zeroize::Zeroizing;

use super::at_rest::AtRest;
use super::{Store, fixed, undecodable};

/// Keeps the work of a commitment; the same again changes nothing.
pub async fn put(
    db: &mut SqliteConnection,
    key: &AtRest,
    commitment: &Hash32,
    salt: &Hash32,
    work: &Work,
) -> sqlx::Result<()> {
    let plain = Zeroizing::new(canonical(work));
    sqlx::query("insert into work (commitment, salt, body) values ($1, $2, $3) on conflict (commitment) do nothing")
        .bind(&commitment.0[..])
        .bind(&salt.0[..])
        .bind(key.seal(("work", &commitment.0), &plain)?)
        .execute(db)
        .await?;
    Ok(())
}

/// The salt and the work of a commitment.
pub async fn get(store: &Store, commitment: &Hash32) -> sqlx::Result<Option<(Hash32, Work)>> {
    let row = sqlx::query("select salt, body from work where commitment = $1")
        .bind(&commitment.0[..])
        .fetch_optional(&store.readers)
        .await?;
    row.map(|row| {
        let plain = store.at_rest.open_text(("work", &commitment.0), &row.get::<Vec<u8>, _>("body"))?;
        let work = borsh::from_slice(&plain).map_err(undecodable)?;
        Ok((Hash32(fixed(&row.get::<Vec<u8>, _>("salt"))?), work))
    })
    .transpose()
}
