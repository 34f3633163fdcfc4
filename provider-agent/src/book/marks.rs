//! The highest of everything that must never go back.

use std::fs;
use std::io;
use std::path::Path;

use selion_api::Account;
use selion_api::agent::{Fence, SignedHead};
use selion_api::commit::PoolId;
use serde::{Deserialize, Serialize};

use super::{BookError, at, replace};

/// What the agent saw and will not unsee.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// The pool that this state belongs to.
    pub pool: Option<PoolId>,
    /// Highest fence obeyed.
    pub fence: Fence,
    /// Highest head shown.
    pub head: Option<SignedHead>,
    /// The authority of the highest epoch obeyed, as the chain named it.
    #[serde(default)]
    pub authority: Option<(u32, Account)>,
}

impl Marks {
    pub(super) fn read(path: &Path) -> Result<Self, BookError> {
        match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| BookError::Damaged { path: path.to_owned(), detail: error.to_string() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(at(path, error)),
        }
    }

    /// Changes them on disk, then here.
    pub(super) fn update(&mut self, path: &Path, change: impl FnOnce(&mut Self)) -> Result<(), BookError> {
        let mut next = self.clone();
        change(&mut next);
        let bytes = serde_json::to_vec_pretty(&next).map_err(|error| at(path, error.into()))?;
        replace(path, &bytes)?;
        *self = next;
        Ok(())
    }
}
