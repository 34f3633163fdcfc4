//! What is private stands in the database encrypted, under a key in a file beside it: a copy of the database alone, such as a
//! backup, tells nothing of what leases run.

use std::path::{Path, PathBuf};

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use selion_api::Hash32;
use selion_api::commit::{canonical, salted};
use sqlx::{Row, SqlitePool};
use zeroize::Zeroizing;

use super::{StoreError, fixed};
use crate::keys::random_secret;

/// File of the key, in the data directory.
const FILE: &str = "keys/at-rest.key";
/// Bytes of a nonce, random for each text: so many of 24 bytes never meet.
const NONCE: usize = 24;

/// The key.
pub struct AtRest {
    cipher: XChaCha20Poly1305,
}

impl std::fmt::Debug for AtRest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AtRest").finish_non_exhaustive()
    }
}

impl AtRest {
    /// Reads the key of the database in `dir`, or makes one for a database that has none.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if it cannot be read, [`StoreError::KeyLost`] if it is not there, or not the one with which
    /// something was written.
    pub async fn open(dir: &Path, writer: &SqlitePool) -> Result<Self, StoreError> {
        let path = dir.join(FILE);
        let row = sqlx::query("select key_id from at_rest").fetch_optional(writer).await?;
        let known = row.map(|row| fixed(&row.get::<Vec<u8>, _>("key_id"))).transpose()?.map(Hash32);
        if known.is_some() && !path.exists() {
            return Err(StoreError::KeyLost { path, what: "is not there" });
        }
        let key = Zeroizing::new(random_secret(&path)?);
        let id = name_of(&key);
        match known {
            Some(known) if known != id => return Err(StoreError::KeyLost { path, what: "holds another key" }),
            Some(_) => {}
            None => {
                sqlx::query("insert into at_rest (one, key_id) values (1, $1)").bind(&id.0[..]).execute(writer).await?;
            }
        }
        Ok(Self { cipher: XChaCha20Poly1305::new((&*key).into()) })
    }

    /// Encrypts `plain`, which opens for the same `of` only: the table and the key of its row.
    ///
    /// # Errors
    ///
    /// [`sqlx::Error::Encode`] if the system gives no randomness.
    pub fn seal(&self, of: (&str, &[u8]), plain: &[u8]) -> sqlx::Result<Vec<u8>> {
        let failed = |why: String| sqlx::Error::Encode(why.into());
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).map_err(|error| failed(format!("no randomness from the system: {error}")))?;
        let aad = canonical(&of);
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), Payload { msg: plain, aad: &aad });
        let sealed = sealed.map_err(|_| failed(format!("{} bytes of {} cannot be encrypted", plain.len(), of.0)))?;
        Ok([&nonce[..], &sealed].concat())
    }

    /// Opens what [`seal`](Self::seal) made.
    ///
    /// # Errors
    ///
    /// [`sqlx::Error::Decode`] if it was altered, moved from another row or written by hand.
    pub fn open_text(&self, of: (&str, &[u8]), sealed: &[u8]) -> sqlx::Result<Zeroizing<Vec<u8>>> {
        let altered = || sqlx::Error::Decode(format!("a row of `{}` is not what was written", of.0).into());
        let (nonce, sealed) = sealed.split_first_chunk::<NONCE>().ok_or_else(altered)?;
        let aad = canonical(&of);
        let plain = self.cipher.decrypt(&XNonce::from(*nonce), Payload { msg: sealed, aad: &aad });
        plain.map(Zeroizing::new).map_err(|_| altered())
    }
}

/// What names a key and does not tell it.
fn name_of(key: &[u8; 32]) -> Hash32 {
    salted(&Hash32(*key), b"selion at rest")
}

/// What is lost with the key, in the words of [`StoreError::KeyLost`].
pub(super) fn remedy(path: &Path) -> String {
    format!(
        "restore {} from the backup of the keys. Without it commands, environments and kept secrets of all leases are lost: a \
         controller that is restored from a copy of the log goes on without them, and what is to run then does not start",
        path.display()
    )
}

/// Where the key lies below the data directory.
#[must_use]
pub fn path_in(dir: &Path) -> PathBuf {
    dir.join(FILE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[tokio::test]
    async fn what_is_sealed_opens_for_its_row_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        let row = ("work", &b"row"[..]);
        let sealed = store.at_rest.seal(row, b"canary").unwrap();
        assert_eq!(*store.at_rest.open_text(row, &sealed).unwrap(), b"canary");
        assert_ne!(sealed, store.at_rest.seal(row, b"canary").unwrap());
        assert!(store.at_rest.open_text(("work", b"other"), &sealed).is_err());
        assert!(store.at_rest.open_text(("other", b"row"), &sealed).is_err());
        for length in 0..sealed.len() {
            assert!(store.at_rest.open_text(row, &sealed[..length]).is_err(), "{length}");
        }
        let mut altered = sealed;
        altered[30] ^= 1;
        assert!(store.at_rest.open_text(row, &altered).is_err());
    }

    #[tokio::test]
    async fn a_key_that_is_gone_or_another_is_named_with_what_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        Store::open(dir.path()).await.unwrap().close().await;
        let path = path_in(dir.path());
        let kept = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let told = |error: Option<StoreError>| error.map(|error| error.to_string()).unwrap_or_default();
        let gone = told(Store::open(dir.path()).await.err());
        assert!(gone.contains("is not there") && gone.contains("at-rest.key") && gone.contains("are lost"), "{gone}");
        assert!(!path.exists(), "nothing is made in its place");
        std::fs::write(&path, "11".repeat(32)).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        let other = told(Store::open(dir.path()).await.err());
        assert!(other.contains("holds another key"), "{other}");
        std::fs::write(&path, kept).unwrap();
        Store::open(dir.path()).await.unwrap();
    }
}
