//! The controller's secrets: files in `<data_dir>/keys`, made on the box, readable by their owner only, never logged.
//!
//! The *authority* key decides: it signs log heads, vouchers and transactions. The *delegate* key signs vouchers under
//! grants of renters, and must be another key: one signature would count twice otherwise.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use selion_api::agent::Head;
use selion_api::commit::PoolId;
use selion_api::{Account, Address, Hash32, Signature};
use selion_contracts::{Signer, SignerError};

/// File of the authority's key in the folder of keys.
pub const AUTHORITY: &str = "authority.key";

/// Why the keys cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file or folder could not be read or made.
    #[error("key file {}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// Others may read it.
    #[error(
        "{} may be read by other users (mode {mode:03o}); if nobody did, run: chmod {want:03o} {}",
        path.display(), path.display()
    )]
    Loose {
        /// Which.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
        /// What they should be.
        want: u32,
    },
    /// It does not hold a secret.
    #[error(
        "key file {} does not hold 64 hex digits of a secp256k1 key; restore it from a copy, or name the right file",
        path.display()
    )]
    Malformed {
        /// Which.
        path: PathBuf,
    },
    /// Authority and delegate are the same key.
    #[error(
        "authority and delegate are the same key {address}, so one signature would count twice; remove {} and start again",
        path.display()
    )]
    Same {
        /// The key's address.
        address: Address,
        /// The delegate's file.
        path: PathBuf,
    },
    /// The system gave no randomness.
    #[error("no randomness from the system: {0}")]
    NoRandomness(getrandom::Error),
}

/// The controller's keys.
pub struct Keys {
    authority: Signer,
    delegate: Signer,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys")
            .field("authority", &self.authority())
            .field("delegate", &self.delegate())
            .finish_non_exhaustive()
    }
}

impl Keys {
    /// Reads the keys in `<data_dir>/keys`, making those that are not there. `authority_file` names another file for
    /// the authority's key; that one must exist.
    ///
    /// # Errors
    ///
    /// [`KeyError`]; nothing is overwritten.
    pub fn open(data_dir: &Path, authority_file: Option<&Path>) -> Result<Self, KeyError> {
        let dir = data_dir.join("keys");
        let authority = match authority_file {
            Some(path) => signer(path, &read_secret(path)?)?,
            None => made_signer(&dir.join(AUTHORITY))?,
        };
        let delegate_path = dir.join("delegate.key");
        let delegate = made_signer(&delegate_path)?;
        if authority.address() == delegate.address() {
            return Err(KeyError::Same { address: delegate.address(), path: delegate_path });
        }
        Ok(Self { authority, delegate })
    }

    /// Who decides.
    #[must_use]
    pub fn authority(&self) -> Account {
        self.authority.account()
    }

    /// The key that renters may grant.
    #[must_use]
    pub fn delegate(&self) -> Address {
        self.delegate.address()
    }

    /// Signs a log head (EIP-191, by the authority).
    #[must_use]
    pub fn sign_head(&self, head: &Head, pool: &PoolId) -> Signature {
        self.sign_text(&head.digest_to_sign(pool).0)
    }

    /// Signs a text (EIP-191, by the authority).
    #[must_use]
    pub fn sign_text(&self, text: &[u8]) -> Signature {
        signed(self.authority.sign_text(text))
    }

    /// Signs a voucher's EIP-712 digest: first by the delegate for the renter, then by the authority.
    #[must_use]
    pub fn sign_voucher(&self, digest: Hash32) -> (Signature, Signature) {
        let delegate = signed(self.delegate.sign_digest(digest));
        (delegate, signed(self.authority.sign_digest(digest)))
    }

    /// Signs the EIP-712 digest of a batch of vouchers, by the authority.
    #[must_use]
    pub fn sign_batch(&self, digest: Hash32) -> Signature {
        signed(self.authority.sign_digest(digest))
    }

    /// Signs the pool's transactions.
    #[must_use]
    pub fn authority_signer(&self) -> &Signer {
        &self.authority
    }
}

fn signed(outcome: Result<Signature, SignerError>) -> Signature {
    // ECDSA over a digest fails for a nonce of zero only, which RFC 6979 rules out.
    #[expect(clippy::expect_used, reason = "signing a 32-byte digest cannot fail")]
    outcome.expect("a digest can be signed")
}

fn signer(path: &Path, secret: &[u8; 32]) -> Result<Signer, KeyError> {
    Signer::from_bytes(secret).map_err(|_| KeyError::Malformed { path: path.to_owned() })
}

fn made_signer(path: &Path) -> Result<Signer, KeyError> {
    // A random secret is no key with chance 2^-128; then the file is named and left to the operator.
    signer(path, &random_secret(path)?)
}

/// Reads the 32 secret bytes in `path`, or makes the file (0600) and its folder (0700) with random ones. Also for
/// secrets that are not keys of the chain: token signing, dataset tags.
///
/// # Errors
///
/// [`KeyError`]; an existing file is never overwritten.
pub fn random_secret(path: &Path) -> Result<[u8; 32], KeyError> {
    let io = |source| KeyError::Io { path: path.to_owned(), source };
    let dir = path.parent().unwrap_or(Path::new("."));
    if !dir.exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io)?;
    }
    private(dir, 0o700)?;
    match read_secret(path) {
        Err(KeyError::Io { source, .. }) if source.kind() == ErrorKind::NotFound => {}
        other => return other,
    }
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(KeyError::NoRandomness)?;
    // Whole or not at all, and never over a file that another process made meanwhile.
    let draft = path.with_extension(format!("new-{}", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft).map_err(io)?;
    file.set_permissions(Permissions::from_mode(0o600)).map_err(io)?;
    file.write_all(format!("{}\n", hex::encode(secret)).as_bytes()).and_then(|()| file.sync_all()).map_err(io)?;
    let linked = fs::hard_link(&draft, path);
    fs::remove_file(&draft).map_err(io)?;
    match linked {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return read_secret(path),
        other => other.map_err(io)?,
    }
    fs::File::open(dir).and_then(|dir| dir.sync_all()).map_err(io)?;
    Ok(secret)
}

/// Reads 32 secret bytes, as 64 hex digits with or without `0x`.
///
/// # Errors
///
/// [`KeyError`], also when other users may read the file.
pub fn read_secret(path: &Path) -> Result<[u8; 32], KeyError> {
    private(path, 0o600)?;
    let mut text = String::new();
    fs::File::open(path)
        .and_then(|file| file.take(256).read_to_string(&mut text))
        .map_err(|source| KeyError::Io { path: path.to_owned(), source })?;
    let text = text.trim();
    let mut secret = [0; 32];
    hex::decode_to_slice(text.strip_prefix("0x").unwrap_or(text), &mut secret)
        .map_err(|_| KeyError::Malformed { path: path.to_owned() })?;
    Ok(secret)
}

fn private(path: &Path, want: u32) -> Result<(), KeyError> {
    let found = fs::metadata(path).map_err(|source| KeyError::Io { path: path.to_owned(), source })?;
    let mode = found.permissions().mode() & 0o777;
    if mode & 0o077 == 0 {
        return Ok(());
    }
    Err(KeyError::Loose { path: path.to_owned(), mode, want })
}

#[cfg(test)]
mod tests {
    use super::*;
    use selion_contracts::signer::recover_text;

    #[test]
    fn keys_are_made_once_and_kept_private() {
        let dir = tempfile::tempdir().unwrap();
        let first = Keys::open(dir.path(), None).unwrap();
        let again = Keys::open(dir.path(), None).unwrap();
        assert_eq!(first.authority(), again.authority());
        assert_ne!(first.authority().0, first.delegate().0);
        for name in ["authority.key", "delegate.key"] {
            let path = dir.path().join("keys").join(name);
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
        let files = fs::read_dir(dir.path().join("keys")).unwrap().count();
        assert_eq!(files, 2, "no draft is left");
    }

    #[test]
    fn a_key_that_others_may_read_is_refused_with_the_command_that_helps() {
        let dir = tempfile::tempdir().unwrap();
        Keys::open(dir.path(), None).unwrap();
        let path = dir.path().join("keys/authority.key");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let error = Keys::open(dir.path(), None).unwrap_err().to_string();
        assert!(error.contains("chmod 600"), "{error}");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        fs::set_permissions(dir.path().join("keys"), Permissions::from_mode(0o755)).unwrap();
        let error = Keys::open(dir.path(), None).unwrap_err().to_string();
        assert!(error.contains("chmod 700"), "{error}");
    }

    #[test]
    fn one_key_for_both_offices_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        Keys::open(dir.path(), None).unwrap();
        let delegate = dir.path().join("keys/delegate.key");
        let error = Keys::open(dir.path(), Some(&delegate)).unwrap_err();
        assert!(matches!(error, KeyError::Same { .. }), "{error}");
    }

    #[test]
    fn a_damaged_key_file_is_named_and_not_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        Keys::open(dir.path(), None).unwrap();
        let path = dir.path().join("keys/authority.key");
        fs::write(&path, "0xabc").unwrap();
        let error = Keys::open(dir.path(), None).unwrap_err().to_string();
        assert!(error.contains("authority.key"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "0xabc");
    }

    #[test]
    fn secrets_do_not_show_in_debug_output() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::open(dir.path(), None).unwrap();
        let secret = fs::read_to_string(dir.path().join("keys/authority.key")).unwrap();
        let secret = secret.trim().to_owned();
        assert!(!format!("{keys:?}").contains(&secret));
    }

    #[test]
    fn a_head_is_signed_by_the_authority_for_one_pool() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::open(dir.path(), None).unwrap();
        let pool = PoolId { chain_id: 1, controller: Address([9; 20]) };
        let head = Head {
            size: 1,
            root: Hash32([1; 32]),
            digest: Hash32([2; 32]),
            fence: selion_api::agent::Fence { epoch: 1, term: 1 },
        };
        let signature = keys.sign_head(&head, &pool);
        let who = recover_text(&head.digest_to_sign(&pool).0, &signature);
        assert_eq!(who, Some(keys.authority()));
    }
}
