//! Bytes of disk, taken before they are written.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use super::Inner;
use super::state::Victim;
use crate::image::ImageError;
use crate::image::error::{At, at};

/// Bytes that are taken at a time where many small pieces are needed.
const STEP: u64 = 16 << 20;
/// Bytes of the disk that are left free for everything else.
const LEFT_FREE: u64 = 1 << 30;

/// Bytes taken for something that is being made. Given back when it is dropped.
#[derive(Debug)]
pub(in crate::image) struct Reservation {
    inner: Arc<Inner>,
    taken: u64,
    needed: u64,
}

impl Reservation {
    pub fn new(inner: &Arc<Inner>) -> Self {
        Self { inner: inner.clone(), taken: 0, needed: 0 }
    }

    /// Takes `more` bytes, making room for them if need be.
    pub fn take(&mut self, more: u64) -> Result<(), ImageError> {
        self.needed = self.needed.saturating_add(more);
        let short = self.needed.saturating_sub(self.taken);
        if short == 0 {
            return Ok(());
        }
        let step = short.max(STEP);
        // More than is needed now is no reason to remove anything.
        let got = if self.inner.is_free(step) { step } else { short };
        self.inner.take(got)?;
        self.taken += got;
        Ok(())
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.inner.state().give_back(self.taken);
    }
}

impl Inner {
    fn is_free(&self, bytes: u64) -> bool {
        self.state().used().saturating_add(bytes) <= self.rules.bytes
    }

    /// Takes bytes of the cache's, and of the disk's. Removes what is least used and held by nobody.
    fn take(&self, bytes: u64) -> Result<(), ImageError> {
        let mut removed = Vec::new();
        let taken = loop {
            let mut state = self.state();
            if state.used().saturating_add(bytes) <= self.rules.bytes {
                state.take(bytes);
                break Ok(());
            }
            let Some(victim) = state.least_used() else {
                break Err(ImageError::CacheFull { wanted: bytes, limit: self.rules.bytes, held: state.used() });
            };
            // Out of its place while nobody else can hold it; its bytes go after.
            let path = self.place_of(&victim);
            let aside = self.work_path();
            if let Err(error) = fs::rename(&path, &aside)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                break Err(at(&path, error));
            }
            state.forget(&victim);
            removed.push(aside);
        };
        for path in removed {
            // What cannot be removed now goes at the next open.
            let _ = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        }
        taken?;
        self.room_on_disk(bytes).inspect_err(|_| self.state().give_back(bytes))
    }

    fn place_of(&self, victim: &Victim) -> PathBuf {
        match victim {
            Victim::Part(digest) => self.part_path(digest),
            Victim::Layer(digest) => self.layer_dir(digest),
            Victim::Image(id) => self.image_dir(id),
        }
    }

    fn room_on_disk(&self, bytes: u64) -> Result<(), ImageError> {
        let stat = nix::sys::statvfs::statvfs(&self.dir).at(&self.dir)?;
        let free = stat.blocks_available().saturating_mul(stat.fragment_size());
        if free < LEFT_FREE.saturating_add(bytes) {
            return Err(ImageError::Full { path: self.dir.clone() });
        }
        Ok(())
    }
}
