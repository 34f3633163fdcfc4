//! SQLite: one file per table, one function per question. Rows are a fold of the log; private matter and caches
//! stand in tables of their own.

pub mod api_key;
pub mod at_rest;
pub mod block;
pub mod called;
pub mod dataset;
pub mod device;
pub mod entry;
pub mod head;
pub mod nonce;
pub mod outbox;
pub mod output;
mod published;
pub mod relay;
pub mod rows;
pub mod secret;
pub mod session;
pub mod signed_voucher;
pub mod term;
pub mod voucher;
pub mod work;

pub use published::published;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteRow, SqliteSynchronous};
use sqlx::{Connection, Row, SqlitePool};

use crate::keys::KeyError;
use at_rest::AtRest;

/// The database: one writer connection, many readers.
#[derive(Clone)]
pub struct Store {
    /// For questions.
    pub readers: SqlitePool,
    /// One connection: whoever writes takes its turn.
    pub writer: SqlitePool,
    /// By which what is private is encrypted.
    pub at_rest: Arc<AtRest>,
}

/// Why the store could not be opened or used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file could not be opened or brought up to date.
    #[error("database {path}: {source}; {remedy}")]
    Open {
        /// File.
        path: String,
        /// Cause.
        source: sqlx::Error,
        /// What to do.
        remedy: &'static str,
    },
    /// The key by which private matter is encrypted cannot be read.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// It is not the one with which the database was written.
    #[error("{} {what}: {}", path.display(), at_rest::remedy(path))]
    KeyLost {
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        what: &'static str,
    },
    /// A query failed.
    #[error("database: {0}")]
    Sql(#[from] sqlx::Error),
    /// What is stored contradicts itself.
    #[error(
        "database: {0}; stop the controller, keep a copy of its data directory, and restore the newest backup \
         or start from a copy of the log"
    )]
    Corrupt(String),
}

impl Store {
    /// Opens `selion.db` in `dir`, making it if there is none.
    ///
    /// # Errors
    ///
    /// [`StoreError::Open`], naming the file and the remedy.
    pub async fn open(dir: &Path) -> Result<Self, StoreError> {
        let path = dir.join("selion.db");
        let options = SqliteConnectOptions::new()
            .filename(&path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(Duration::from_secs(5));
        let opened = |source: sqlx::Error| {
            let remedy = remedy(&source);
            StoreError::Open { path: path.display().to_string(), source, remedy }
        };
        // SQLite ends a transaction by itself when the disk is full, which sqlx does not notice: it would refuse every
        // later one. Such a connection is replaced.
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .before_acquire(|connection, _| Box::pin(async move { Ok(!connection.is_in_transaction()) }))
            .connect_with(options.clone())
            .await
            .map_err(opened)?;
        sqlx::migrate!("./migrations").run(&writer).await.map_err(|error| opened(error.into()))?;
        let at_rest = Arc::new(AtRest::open(dir, &writer).await?);
        let readers =
            SqlitePoolOptions::new().max_connections(4).connect_with(options.read_only(true)).await.map_err(opened)?;
        Ok(Self { readers, writer, at_rest })
    }

    /// Closes both pools; what was committed is on disk already.
    pub async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}

fn remedy(error: &sqlx::Error) -> &'static str {
    let text = error.to_string();
    if text.contains("malformed") || text.contains("not a database") || text.contains("disk image") {
        "the file is damaged: keep a copy, then restore the data directory from a backup"
    } else if text.contains("full") {
        "the disk is full: free some space and start again"
    } else if text.contains("locked") {
        "another controller uses this data directory: stop it, or give this one its own --data-dir"
    } else if text.contains("migration") {
        "the data directory belongs to another release: start that release"
    } else {
        "check that the data directory exists and is writable by this user"
    }
}

/// A count or a time as SQLite stores it.
#[must_use]
pub fn int(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A count or a time out of a row of `table`. A damaged one is never believed.
///
/// # Errors
///
/// [`sqlx::Error::Decode`] naming table, column and value, if it is below zero.
pub fn count(row: &SqliteRow, table: &str, column: &str) -> sqlx::Result<u64> {
    let value: i64 = row.try_get(column)?;
    u64::try_from(value).map_err(|_| sqlx::Error::Decode(format!("{table}.{column} is {value}, below zero").into()))
}

/// The same where the column may be empty.
///
/// # Errors
///
/// As [`count`].
pub fn count_if_any(row: &SqliteRow, table: &str, column: &str) -> sqlx::Result<Option<u64>> {
    row.try_get::<Option<i64>, _>(column)?.map(|_| count(row, table, column)).transpose()
}

/// A count or a time of a login's row, where zero is the careful reading of a damaged one: it is over, or never was.
#[must_use]
pub fn uint(value: i64) -> u64 {
    u64::try_from(value).unwrap_or_default()
}

/// Twenty or thirty-two bytes as they were stored.
///
/// # Errors
///
/// [`sqlx::Error::Decode`] if the length is another.
pub fn fixed<const N: usize>(bytes: &[u8]) -> sqlx::Result<[u8; N]> {
    bytes.try_into().map_err(|_| sqlx::Error::Decode(format!("{} bytes where {N} belong", bytes.len()).into()))
}

/// Canonical bytes that do not decode.
#[must_use]
pub fn undecodable(error: borsh::io::Error) -> sqlx::Error {
    // Without the standard library borsh's error is no `std::error::Error`; its text says as much.
    sqlx::Error::Decode(error.to_string().into())
}
