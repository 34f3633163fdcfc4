//! Files and folders of a DAG as streams: verified block by block, in bounded memory, over when nobody reads on.
//!
//! Each block is read when the reader asks for more; between blocks nothing is held but a place in the tree, so a
//! reader that is slow, or gone, costs nothing.

mod find;
mod leaves;
mod tar;

use std::io;

use bytes::Bytes;
use cid::Cid;
use futures::stream::{self, BoxStream, StreamExt};

use crate::dag::{DagError, FILE_MODE};
use crate::source::blocking;
use crate::store::{Store, StoreError};
use leaves::Leaves;

pub use find::{Found, find};
pub use tar::tar;

/// Why something in a DAG cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No such name.
    #[error("{path:?} is not there")]
    NotThere {
        /// As asked for.
        path: String,
    },
    /// The path goes through a link that leaves the tree, or through too many.
    #[error("{path:?} leads out of the tree by a symbolic link, which is not followed")]
    LeadsOut {
        /// As asked for.
        path: String,
    },
    /// A folder where a file was wanted, or the other way round.
    #[error("{path:?} is a {kind}")]
    OtherKind {
        /// As asked for.
        path: String,
        /// What it is.
        kind: &'static str,
    },
    /// The range begins behind the end.
    #[error("the file has {size} bytes, and the range begins behind them")]
    BadRange {
        /// Bytes of the file.
        size: u64,
    },
    /// A block is absent or bad.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<DagError> for ReadError {
    fn from(error: DagError) -> Self {
        Self::Store(error.into())
    }
}

/// A file to be read.
#[derive(Debug)]
pub struct File {
    store: Store,
    cid: Cid,
    /// Bytes of the file.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
}

/// The file at `path` (names with `/` between them; empty for the root itself) below `root`. Links are followed inside
/// the tree.
///
/// # Errors
///
/// [`ReadError`].
pub async fn file(store: &Store, root: &Cid, path: &str) -> Result<File, ReadError> {
    let (finder, root, wanted) = (store.clone(), *root, path.to_owned());
    match blocking(move || find(&finder, &root, &wanted)).await? {
        Found::File { cid, size, mode } => {
            Ok(File { store: store.clone(), cid, size, mode: mode.unwrap_or(FILE_MODE) })
        }
        Found::Folder { .. } => Err(ReadError::OtherKind { path: path.to_owned(), kind: "folder" }),
    }
}

impl File {
    /// The CID of the file itself, which names its bytes: an entity tag.
    pub fn cid(&self) -> Cid {
        self.cid
    }

    /// `length` bytes from `start`; fewer if the file ends before.
    ///
    /// # Errors
    ///
    /// [`ReadError::BadRange`] if `start` is behind the end; later, in the stream, those of the store.
    pub fn range(self, start: u64, length: u64) -> Result<Chunks, ReadError> {
        if start > self.size {
            return Err(ReadError::BadRange { size: self.size });
        }
        let length = length.min(self.size - start);
        Ok(chunks(self.store, Leaves::new(self.cid, self.size, start, length)))
    }

    /// All of it.
    pub fn stream(self) -> Chunks {
        chunks(self.store, Leaves::new(self.cid, self.size, 0, self.size))
    }
}

/// Bytes in order. An error ends them: who counts bytes sees that some are missing.
pub type Chunks = BoxStream<'static, io::Result<Bytes>>;

/// Something that gives bytes piece by piece, reading blocks as it goes.
trait Pieces: Send + 'static {
    fn next(&mut self, store: &Store) -> Result<Option<Bytes>, StoreError>;
}

fn chunks(store: Store, pieces: impl Pieces) -> Chunks {
    let step = |(store, mut pieces): (Store, _)| async move {
        blocking(move || {
            let chunk = Pieces::next(&mut pieces, &store).map_err(io::Error::other)?;
            Ok(chunk.map(|bytes| (bytes, (store, pieces))))
        })
        .await
    };
    stream::try_unfold((store, pieces), step).boxed()
}
