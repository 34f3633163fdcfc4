//! Who wants which root.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use cid::Cid;

use super::error::{At, at};
use super::{Store, StoreError, sync_dir};

/// `owner` wants `cid` kept.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Pin {
    /// A lease id, an account: what the caller pins under.
    pub owner: String,
    /// The root.
    pub cid: Cid,
}

impl Store {
    /// Records, for good, that `owner` wants `root`. Again is the same as once.
    ///
    /// # Errors
    ///
    /// [`StoreError::Missing`] if the root block is not here; [`StoreError::BadOwner`]; [`StoreError::Full`];
    /// [`StoreError::Io`].
    pub fn pin(&self, owner: &str, root: &Cid) -> Result<(), StoreError> {
        let folder = self.owner(owner)?;
        if !self.has(root) {
            return Err(StoreError::Missing { cid: (*root).into() });
        }
        fs::create_dir_all(&folder).at(&folder)?;
        let path = folder.join(root.to_string());
        File::create(&path).at(&path)?;
        sync_dir(&folder)?;
        sync_dir(&self.inner.pins)
    }

    /// Withdraws a pin. `false` if there was none.
    ///
    /// # Errors
    ///
    /// [`StoreError::BadOwner`]; [`StoreError::Io`].
    pub fn unpin(&self, owner: &str, root: &Cid) -> Result<bool, StoreError> {
        let folder = self.owner(owner)?;
        let path = folder.join(root.to_string());
        match fs::remove_file(&path) {
            Ok(()) => sync_dir(&folder).map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(at(&path, error)),
        }
    }

    /// All pins, by owner, then root.
    ///
    /// # Errors
    ///
    /// [`StoreError::Io`].
    pub fn list(&self) -> Result<Vec<Pin>, StoreError> {
        let mut pins = Vec::new();
        for owner in names(&self.inner.pins)? {
            for name in names(&self.inner.pins.join(&owner))? {
                if let Ok(cid) = name.parse() {
                    pins.push(Pin { owner: owner.clone(), cid });
                }
            }
        }
        pins.sort_unstable();
        Ok(pins)
    }

    fn owner(&self, owner: &str) -> Result<PathBuf, StoreError> {
        let fits = (1..=128).contains(&owner.len())
            && !owner.starts_with('.')
            && owner.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
        if !fits {
            return Err(StoreError::BadOwner { owner: owner.to_owned() });
        }
        Ok(self.inner.pins.join(owner))
    }
}

fn names(dir: &Path) -> Result<Vec<String>, StoreError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir).at(dir)? {
        names.extend(entry.at(dir)?.file_name().into_string().ok());
    }
    Ok(names)
}
