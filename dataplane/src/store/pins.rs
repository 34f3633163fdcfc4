//! Who wants which root.

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use cid::Cid;

use super::error::{At, at};
use super::walk::{Leaves, Walk, digest};
use super::{Stat, Stop, Store, StoreError, sync_dir};
use crate::dag::Limits;

/// `owner` wants `cid` kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Pin {
    /// A lease id, an account: what the caller pins under.
    pub owner: String,
    /// The root.
    pub cid: Cid,
}

impl Store {
    /// Records, for good, that `owner` wants `root`; what it reaches is for good, too, and is charged to him from now
    /// on. Again is the same as once. `false` if something of it is not here yet, or it is beyond [`Limits::default`].
    ///
    /// # Errors
    ///
    /// [`StoreError::Missing`] if the root block is not here; [`StoreError::BadOwner`]; [`StoreError::Full`];
    /// [`StoreError::Io`].
    pub fn pin(&self, owner: &str, root: &Cid) -> Result<bool, StoreError> {
        let folder = self.owner_folder(owner)?;
        {
            let _gate = self.inner.gate.lock().unwrap_or_else(|poison| poison.into_inner());
            if !self.has(root) {
                return Err(StoreError::Missing { cid: (*root).into() });
            }
            fs::create_dir_all(&folder).at(&folder)?;
            let path = folder.join(root.to_string());
            if !path.exists() {
                File::create(&path).at(&path)?;
            }
        }
        let mut blocks = HashSet::new();
        let seen = Walk::new(self, *root, &Limits::default(), &Stop::default(), Leaves::Look)
            .measure(&mut |cid| blocks.extend([digest(cid)]));
        // A pin of what is not whole here yet is one all the same; its bytes are loose until it is pinned again.
        if let Ok(stat) = &seen {
            let path = folder.join(root.to_string());
            fs::write(&path, stat.stored.to_string()).at(&path)?;
            self.pinned_now(owner, &blocks)?;
        }
        self.sync()?;
        sync_dir(&folder)?;
        sync_dir(&self.inner.pins)?;
        Ok(seen.is_ok())
    }

    /// [`pin`](Self::pin) of what is whole here, good, within `limits` and, with what `owner` has pinned besides,
    /// within his `allowance` of bytes. Pinned first and verified then, so that nothing is collected between.
    ///
    /// # Errors
    ///
    /// [`StoreError::OverAllowance`]; as [`pin`](Self::pin) and [`stat_until`](Self::stat_until). Nothing is pinned
    /// after any of them that was not before.
    pub fn keep(
        &self,
        owner: &str,
        root: &Cid,
        limits: &Limits,
        allowance: u64,
        stop: &Stop,
    ) -> Result<Stat, StoreError> {
        let before = self.owner_folder(owner)?.join(root.to_string()).exists();
        let others = self.pinned_bytes(owner)?;
        // What is not whole or too large is refused before anything waits for the disk.
        let look = Walk::new(self, *root, limits, stop, Leaves::Look).measure(&mut |_| {})?;
        if !before && others.saturating_add(look.stored) > allowance {
            return Err(StoreError::OverAllowance { used: others, allowance });
        }
        self.pin(owner, root)?;
        let kept = self.stat_until(root, limits, stop);
        if kept.is_err() && !before {
            self.unpin(owner, root)?;
        }
        kept
    }

    /// Withdraws a pin. `false` if there was none. What it reached stays until it is collected.
    ///
    /// # Errors
    ///
    /// [`StoreError::BadOwner`]; [`StoreError::Io`].
    pub fn unpin(&self, owner: &str, root: &Cid) -> Result<bool, StoreError> {
        let folder = self.owner_folder(owner)?;
        let path = folder.join(root.to_string());
        match fs::remove_file(&path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(at(&path, error)),
        }
        sync_dir(&folder)?;
        let mut blocks = HashMap::new();
        // What is not whole was never charged in whole; what can be reached is loose again.
        let _ = Walk::new(self, *root, &Limits::default(), &Stop::default(), Leaves::Look).measure(&mut |cid| {
            let length = self.length(cid).unwrap_or(0);
            blocks.insert(digest(cid), u32::try_from(length).unwrap_or(u32::MAX));
        });
        self.unpinned_now(owner, &blocks)?;
        Ok(true)
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

    /// Bytes of what `owner` has pinned, each root by itself.
    pub(super) fn pinned_bytes(&self, owner: &str) -> Result<u64, StoreError> {
        let folder = self.owner_folder(owner)?;
        if !folder.exists() {
            return Ok(0);
        }
        let mut bytes = 0_u64;
        for name in names(&folder)? {
            let text = fs::read_to_string(folder.join(name)).unwrap_or_default();
            bytes = bytes.saturating_add(text.trim().parse().unwrap_or(0));
        }
        Ok(bytes)
    }

    pub(super) fn owner_folder(&self, owner: &str) -> Result<PathBuf, StoreError> {
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
