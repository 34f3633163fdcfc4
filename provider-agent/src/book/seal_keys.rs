//! The keys to which clients seal the secrets of leases: a new one each day, kept so that an agent that was started again opens
//! what was sealed before, and forgotten after two days, so that what was sealed then opens for nobody any more.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use selion_api::seal::{PrivateKey, SEAL_KEY_MS};
use selion_api::{Hash32, TimeMs};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{BookError, at, replace};

/// How long a key is stated to clients, in milliseconds.
const DAY_MS: u64 = SEAL_KEY_MS / 2;

/// The keys of a state directory.
#[derive(Debug)]
pub struct SealKeys {
    path: PathBuf,
    /// The newest last.
    keys: Mutex<Vec<Kept>>,
}

/// One key.
#[derive(Clone, Debug)]
struct Kept {
    private: PrivateKey,
    made: TimeMs,
}

/// The same in its file.
#[derive(Serialize, Deserialize)]
struct Filed {
    made_ms: TimeMs,
    private: Hash32,
}

fn apart(one: TimeMs, other: TimeMs) -> u64 {
    one.since(other).max(other.since(one))
}

impl SealKeys {
    /// Reads the keys at `path`; none are there at first.
    ///
    /// # Errors
    ///
    /// [`BookError::Io`], [`BookError::Damaged`].
    pub fn open(path: PathBuf) -> Result<Self, BookError> {
        let keys = match fs::read(&path).map(Zeroizing::new) {
            Ok(bytes) => read(&path, &bytes)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(at(&path, error)),
        };
        Ok(Self { path, keys: Mutex::new(keys) })
    }

    /// [`current`](Self::current) by this machine's clock.
    ///
    /// # Errors
    ///
    /// [`BookError::Io`].
    pub fn today(&self) -> Result<(Hash32, TimeMs), BookError> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.current(TimeMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)))
    }

    /// The key that clients are to seal to at `now`, and when it was made: a new one, on disk before it is told, once a day.
    ///
    /// # Errors
    ///
    /// [`BookError::Io`].
    pub fn current(&self, now: TimeMs) -> Result<(Hash32, TimeMs), BookError> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(newest) = keys.last().filter(|key| apart(now, key.made) < DAY_MS) {
            return Ok((newest.private.public(), newest.made));
        }
        let mut random = Zeroizing::new([0; 32]);
        getrandom::fill(random.as_mut_slice()).map_err(|error| at(&self.path, io::Error::other(error)))?;
        let made = Kept { private: PrivateKey::derive(&random), made: now };
        let told = (made.private.public(), made.made);
        // A clock that was set may leave a key of another time behind: it goes too.
        let mut next: Vec<Kept> = keys.iter().filter(|key| apart(now, key.made) < SEAL_KEY_MS).cloned().collect();
        next.push(made);
        self.write(&next)?;
        *keys = next;
        Ok(told)
    }

    /// The private half of a key that was told; `None` if it is forgotten, or never was ours.
    #[must_use]
    pub fn find(&self, public: &Hash32) -> Option<PrivateKey> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.iter().find(|key| key.private.public() == *public).map(|key| key.private.clone())
    }

    fn write(&self, keys: &[Kept]) -> Result<(), BookError> {
        let filed: Vec<Filed> =
            keys.iter().map(|key| Filed { made_ms: key.made, private: Hash32(*key.private.as_bytes()) }).collect();
        let bytes = serde_json::to_vec(&filed).map_err(|error| at(&self.path, error.into()))?;
        replace(&self.path, &Zeroizing::new(bytes))
    }
}

fn read(path: &Path, bytes: &[u8]) -> Result<Vec<Kept>, BookError> {
    // Neither cause may repeat what is in the file.
    let damaged = || BookError::Damaged { path: path.to_owned(), detail: "it holds no list of keys".into() };
    let filed: Vec<Filed> = serde_json::from_slice(bytes).map_err(|_| damaged())?;
    let key = |filed: Filed| {
        let private = PrivateKey::from_bytes(&filed.private.0).map_err(|_| damaged())?;
        Ok(Kept { private, made: filed.made_ms })
    };
    filed.into_iter().map(key).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const DAY: u64 = DAY_MS;

    #[test]
    fn a_key_serves_a_day_opens_for_another_and_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let keys = SealKeys::open(dir.path().join("seal.json")).unwrap();
        let start = TimeMs(10 * DAY);
        let (first, made) = keys.current(start).unwrap();
        assert_eq!(made, start);
        assert_eq!(keys.current(TimeMs(start.0 + DAY - 1)).unwrap(), (first, start));
        let (second, _) = keys.current(TimeMs(start.0 + DAY)).unwrap();
        assert_ne!(first, second);
        assert!(keys.find(&first).is_some() && keys.find(&second).is_some());
        keys.current(TimeMs(start.0 + 2 * DAY)).unwrap();
        assert!(keys.find(&first).is_none() && keys.find(&second).is_some());
        let text = fs::read_to_string(dir.path().join("seal.json")).unwrap();
        assert_eq!(text.matches("private").count(), 2);
    }

    #[test]
    fn an_agent_that_was_started_again_has_the_same_keys_in_a_file_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("seal.json");
        let (first, _) = SealKeys::open(path.clone()).unwrap().current(TimeMs(DAY)).unwrap();
        let again = SealKeys::open(path.clone()).unwrap();
        assert_eq!(again.current(TimeMs(DAY + 1)).unwrap().0, first);
        assert_eq!(again.find(&first).unwrap().public(), first);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&path, "[{\"made_ms\":1,\"private\":\"0x12\"}]").unwrap();
        let told = SealKeys::open(path).unwrap_err().to_string();
        assert!(told.contains("seal.json") && !told.contains("0x12"), "{told}");
    }
}
