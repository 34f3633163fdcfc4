//! Keys of people and machines: made, kept in a file that only the owner can read, and used to sign.

use std::fmt;
use std::io::{ErrorKind, Read as _, Write as _};
use std::path::Path;

use ethers_core::types::Bytes;
use ethers_core::types::transaction::eip2718::TypedTransaction;
use ethers_core::utils::{hash_message, keccak256};
use ethers_signers::{LocalWallet, Signer as _};
use secp256k1::ecdsa::{RecoverableSignature, RecoveryId};
use secp256k1::{Message, SECP256K1};
use selion_api::{Account, Address, Hash32, Signature};

use crate::word::{account, h256};

/// Half the order of secp256k1; a higher `s` is the malleable twin and refused.
pub(crate) const MAX_S: [u8; 32] = [
    0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x5d, 0x57, 0x6e,
    0x73, 0x57, 0xa4, 0x50, 0x1d, 0xdf, 0xe9, 0x2f, 0x46, 0x68, 0x1b, 0x20, 0xa0,
];

/// Why a key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SignerError {
    /// The bytes are no private key.
    #[error("32 bytes that are no secp256k1 private key (zero, or above the group's order)")]
    NotAKey,
    /// The file does not hold a key.
    #[error("{path} is not a key file: it must hold 64 hex digits; move it away to have a new key made")]
    NotAKeyFile {
        /// Which file.
        path: String,
    },
    /// Others can read the file.
    #[error("{path} can be read by others (mode {mode:o}); run: chmod 600 {path}")]
    Open {
        /// Which file.
        path: String,
        /// Its permission bits.
        mode: u32,
    },
    /// The file cannot be read or made.
    #[error("{path}: {source}")]
    File {
        /// Which file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The system has no randomness.
    #[error("the system gave no randomness for a new key: {0}")]
    NoRandomness(String),
    /// The key refused to sign.
    #[error("signing failed: {0}")]
    Refused(String),
}

/// A private key with its address. `Debug` shows the address only.
#[derive(Clone)]
pub struct Signer {
    wallet: LocalWallet,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Signer").field(&self.account()).finish()
    }
}

impl Signer {
    /// The key of these 32 bytes.
    ///
    /// # Errors
    ///
    /// [`SignerError::NotAKey`] for zero and for numbers above the group's order.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, SignerError> {
        LocalWallet::from_bytes(bytes).map(|wallet| Self { wallet }).map_err(|_| SignerError::NotAKey)
    }

    /// A new key from the system's randomness.
    ///
    /// # Errors
    ///
    /// [`SignerError::NoRandomness`].
    pub fn random() -> Result<Self, SignerError> {
        Self::random_bytes().map(|(signer, _)| signer)
    }

    fn random_bytes() -> Result<(Self, [u8; 32]), SignerError> {
        loop {
            let mut bytes = [0; 32];
            getrandom::fill(&mut bytes).map_err(|error| SignerError::NoRandomness(error.to_string()))?;
            // All but one in 2^128 numbers are keys.
            if let Ok(signer) = Self::from_bytes(&bytes) {
                return Ok((signer, bytes));
            }
        }
    }

    /// The key in this file; a new one is made there, readable by its owner only, if there is no file.
    ///
    /// # Errors
    ///
    /// [`SignerError::NotAKeyFile`], [`SignerError::Open`] if others can read it, [`SignerError::File`].
    pub fn open_or_create(path: &Path) -> Result<Self, SignerError> {
        let shown = || path.display().to_string();
        let failed = |source| SignerError::File { path: shown(), source };
        match std::fs::File::open(path) {
            Ok(mut file) => {
                refuse_open(&file, path)?;
                let mut text = String::new();
                file.read_to_string(&mut text).map_err(failed)?;
                let mut bytes = [0; 32];
                let digits = text.trim().strip_prefix("0x").unwrap_or(text.trim());
                hex::decode_to_slice(digits, &mut bytes).map_err(|_| SignerError::NotAKeyFile { path: shown() })?;
                Self::from_bytes(&bytes)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let (signer, bytes) = Self::random_bytes()?;
                let mut options = std::fs::OpenOptions::new();
                options.write(true).create_new(true);
                #[cfg(unix)]
                std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
                let mut file = options.open(path).map_err(failed)?;
                file.write_all(format!("{}\n", hex::encode(bytes)).as_bytes()).map_err(failed)?;
                file.sync_all().map_err(failed)?;
                Ok(signer)
            }
            Err(error) => Err(failed(error)),
        }
    }

    /// The account of this key.
    #[must_use]
    pub fn account(&self) -> Account {
        account(self.wallet.address())
    }

    /// The same 20 bytes as an address, as for a session key.
    #[must_use]
    pub fn address(&self) -> Address {
        Address(self.account().0)
    }

    /// Signs 32 bytes as they are (EIP-712 digests).
    ///
    /// # Errors
    ///
    /// [`SignerError::Refused`].
    pub fn sign_digest(&self, digest: Hash32) -> Result<Signature, SignerError> {
        let signed = self.wallet.sign_hash(h256(digest)).map_err(|error| SignerError::Refused(error.to_string()))?;
        Ok(Signature(signed.into()))
    }

    /// Signs a text for people (EIP-191, as wallets do).
    ///
    /// # Errors
    ///
    /// [`SignerError::Refused`].
    pub fn sign_text(&self, text: &[u8]) -> Result<Signature, SignerError> {
        self.sign_digest(text_digest(text))
    }

    /// The signed bytes of a transaction that names its chain.
    pub(crate) fn sign_transaction(&self, tx: &TypedTransaction) -> Result<Bytes, SignerError> {
        // Not sign_hash: its v is not the one that rlp_signed expects.
        let signed = self.wallet.sign_transaction_sync(tx).map_err(|error| SignerError::Refused(error.to_string()))?;
        Ok(tx.rlp_signed(&signed))
    }
}

#[cfg(unix)]
fn refuse_open(file: &std::fs::File, path: &Path) -> Result<(), SignerError> {
    use std::os::unix::fs::PermissionsExt as _;
    let failed = |source| SignerError::File { path: path.display().to_string(), source };
    let mode = file.metadata().map_err(failed)?.permissions().mode() & 0o777;
    if mode & 0o077 == 0 { Ok(()) } else { Err(SignerError::Open { path: path.display().to_string(), mode }) }
}

#[cfg(not(unix))]
fn refuse_open(_: &std::fs::File, _: &Path) -> Result<(), SignerError> {
    Ok(())
}

/// What [`Signer::sign_text`] signs.
#[must_use]
pub fn text_digest(text: &[u8]) -> Hash32 {
    Hash32(hash_message(text).0)
}

/// Who signed these 32 bytes; `None` if the signature is not one, or is the malleable twin of one.
#[must_use]
pub fn recover_digest(digest: Hash32, signature: &Signature) -> Option<Account> {
    let (rs, v) = signature.0.split_first_chunk::<64>()?;
    let id = match v {
        [27] => RecoveryId::Zero,
        [28] => RecoveryId::One,
        _ => return None,
    };
    if rs.get(32..)? > MAX_S.as_slice() {
        return None;
    }
    let parsed = RecoverableSignature::from_compact(rs, id).ok()?;
    let key = SECP256K1.recover_ecdsa(Message::from_digest(digest.0), &parsed).ok()?.serialize_uncompressed();
    let hash = keccak256(key.get(1..)?);
    hash.last_chunk::<20>().copied().map(Account)
}

/// Who signed this text (EIP-191); `None` as for [`recover_digest`].
#[must_use]
pub fn recover_text(text: &[u8], signature: &Signature) -> Option<Account> {
    recover_digest(text_digest(text), signature)
}

/// A signature as two words (EIP-2098): `r`, and `s` with the parity in its top bit.
#[must_use]
pub fn compact(signature: &Signature) -> ([u8; 32], [u8; 32]) {
    let (mut r, mut vs) = ([0; 32], [0; 32]);
    r.copy_from_slice(&signature.0[..32]);
    vs.copy_from_slice(&signature.0[32..64]);
    if signature.0[64] == 28 {
        vs[0] |= 0x80;
    }
    (r, vs)
}

#[cfg(test)]
mod tests {
    use ethers_core::types::{RecoveryMessage, Signature as EthersSignature, U256};

    use super::*;

    fn key(byte: u8) -> Signer {
        Signer::from_bytes(&[byte; 32]).expect("a key")
    }

    #[test]
    fn a_signature_names_its_signer_and_no_other_text() {
        let signature = key(7).sign_text(b"hello").expect("signs");
        assert_eq!(recover_text(b"hello", &signature), Some(key(7).account()));
        assert_ne!(recover_text(b"hallo", &signature), Some(key(7).account()));
    }

    #[test]
    fn the_malleable_twin_of_a_signature_is_refused() {
        let digest = Hash32([9; 32]);
        let mut twin = key(7).sign_digest(digest).expect("signs");
        let order: U256 = U256::from_big_endian(&MAX_S) * 2 + 1;
        let low = U256::from_big_endian(&twin.0[32..64]);
        let mut s = [0; 32];
        order.overflowing_sub(low).0.to_big_endian(&mut s);
        twin.0[32..64].copy_from_slice(&s);
        twin.0[64] = 55 - twin.0[64];
        assert_eq!(recover_digest(digest, &twin), None);
    }

    #[test]
    fn who_signed_is_what_another_library_says_too() {
        for byte in 1..=40 {
            let digest = Hash32([byte; 32]);
            let mut signature = key(byte).sign_digest(digest).expect("signs");
            // With a bit turned it is somebody else's, or nobody's.
            signature.0[usize::from(byte)] ^= byte & 1;
            let theirs = EthersSignature::try_from(signature.0.as_slice()).expect("65 bytes");
            let theirs = theirs.recover(RecoveryMessage::Hash(h256(digest))).ok().map(account);
            assert_eq!(recover_digest(digest, &signature), theirs, "key {byte}");
        }
    }

    #[test]
    fn bytes_that_are_no_signature_are_nobodys() {
        let digest = Hash32([9; 32]);
        let good = key(7).sign_digest(digest).expect("signs");
        for v in [0, 1, 26, 29, 255] {
            let mut other = good;
            other.0[64] = v;
            assert_eq!(recover_digest(digest, &other), None, "v {v}");
        }
        assert_eq!(recover_digest(digest, &Signature([0; 65])), None);
    }

    #[test]
    fn a_key_file_is_made_once_and_read_by_its_owner_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        let made = Signer::open_or_create(&path).expect("made");
        assert_eq!(Signer::open_or_create(&path).expect("read").account(), made.account());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).expect("chmod");
            let error = Signer::open_or_create(&path).expect_err("open to all").to_string();
            assert!(error.contains("chmod 600"), "{error}");
        }
    }

    #[test]
    fn a_broken_key_file_is_never_overwritten() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("key");
        std::fs::write(&path, "not a key").expect("written");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("chmod");
        }
        assert!(matches!(Signer::open_or_create(&path), Err(SignerError::NotAKeyFile { .. })));
        assert_eq!(std::fs::read_to_string(&path).expect("still there"), "not a key");
    }

    #[test]
    fn a_key_does_not_show_itself() {
        let shown = format!("{:?}", key(7));
        assert!(!shown.contains("0707") && shown.contains("0x"), "{shown}");
    }
}
