//! A layer as it is sent, on its way to the disk.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;

use super::{Inner, Reservation};
use crate::image::digest::Hasher;
use crate::image::error::At;
use crate::image::local::Region;
use crate::image::manifest::Blob;
use crate::image::registry::Target;
use crate::image::{Digest, ImageError};

/// Bytes that came, in a file that outlives the process. Not synced: what a power cut tore has another digest.
pub(in crate::image) struct Part {
    inner: Arc<Inner>,
    digest: Digest,
    path: PathBuf,
    file: File,
    len: u64,
    hasher: Hasher,
    keep: bool,
    _room: Reservation,
    _alone: OwnedMutexGuard<()>,
}

impl Part {
    /// Opens what came before, or a new file. Waits for nobody: `alone` says that no other part of this digest is open.
    pub fn open(inner: &Arc<Inner>, blob: &Blob, alone: OwnedMutexGuard<()>) -> Result<Self, ImageError> {
        let path = inner.part_path(&blob.digest);
        let mut room = Reservation::new(inner);
        room.take(blob.size)?;
        inner.state().parts.remove(&blob.digest);
        let file = File::options().create(true).truncate(false).read(true).write(true).open(&path).at(&path)?;
        let (inner, digest, hasher) = (inner.clone(), blob.digest, Hasher::default());
        let mut part = Self { inner, digest, path, file, len: 0, hasher, keep: true, _room: room, _alone: alone };
        part.read_again(blob.size)?;
        Ok(part)
    }

    /// Hashes what is there.
    fn read_again(&mut self, most: u64) -> Result<(), ImageError> {
        if self.file.metadata().at(&self.path)?.len() > most {
            return self.clear();
        }
        let mut buffer = vec![0; 1 << 20];
        loop {
            let count = self.file.read(&mut buffer).at(&self.path)?;
            if count == 0 {
                return Ok(());
            }
            self.hasher.update(&buffer[..count]);
            self.len += count as u64;
        }
    }

    /// What is there, to read.
    pub fn region(&self) -> Result<Region, ImageError> {
        let file = self.file.try_clone().at(&self.path)?;
        Ok(Region::whole(file, self.len))
    }

    /// It is of no use any more.
    pub fn remove(mut self) {
        self.keep = false;
    }
}

impl Target for Part {
    fn len(&self) -> u64 {
        self.len
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), ImageError> {
        self.file.write_all(bytes).at(&self.path)?;
        self.hasher.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    fn clear(&mut self) -> Result<(), ImageError> {
        self.file.set_len(0).at(&self.path)?;
        self.file.seek(SeekFrom::Start(0)).at(&self.path)?;
        (self.len, self.hasher) = (0, Hasher::default());
        Ok(())
    }

    fn digest(&self) -> Digest {
        self.hasher.clone().finish()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if self.keep && self.len > 0 {
            self.inner.state().parts.insert(self.digest, self.len);
        } else {
            // It is unpacked, or empty; what cannot be removed is found at the next open.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Inner {
    pub(super) fn part_path(&self, digest: &Digest) -> PathBuf {
        self.dir.join("parts").join(digest.hex())
    }
}
