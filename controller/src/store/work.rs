//! Table `work`: what leases run, by commitment. Private.

use selion_api::Hash32;
use selion_api::commit::Work;
use sqlx::{Row, SqliteConnection, SqlitePool};

use super::{fixed, undecodable};

/// Keeps the work of a commitment; the same again changes nothing.
pub async fn put(db: &mut SqliteConnection, commitment: &Hash32, salt: &Hash32, work: &Work) -> sqlx::Result<()> {
    sqlx::query("insert into work (commitment, salt, body) values ($1, $2, $3) on conflict (commitment) do nothing")
        .bind(&commitment.0[..])
        .bind(&salt.0[..])
        .bind(selion_api::commit::canonical(work))
        .execute(db)
        .await?;
    Ok(())
}

/// The salt and the work of a commitment.
pub async fn get(db: &SqlitePool, commitment: &Hash32) -> sqlx::Result<Option<(Hash32, Work)>> {
    let row = sqlx::query("select salt, body from work where commitment = $1")
        .bind(&commitment.0[..])
        .fetch_optional(db)
        .await?;
    row.map(|row| {
        let work = borsh::from_slice(&row.get::<Vec<u8>, _>("body")).map_err(undecodable)?;
        Ok((Hash32(fixed(&row.get::<Vec<u8>, _>("salt"))?), work))
    })
    .transpose()
}
