//! Where the files are.

use std::io::ErrorKind;
use std::path::PathBuf;

use selion_contracts::bounded::{Unread, body};

use super::{CHECKPOINT, TilesError};
use crate::source::client;

/// Longest file that is read, in bytes.
pub(super) const MAX_FILE: usize = 1 << 28;

/// The files of a log.
#[derive(Clone, Debug)]
pub enum TileSource {
    /// Below a URL: of a controller, or of a folder behind any web server.
    Url {
        /// Keeps connections.
        http: reqwest::Client,
        /// Without a slash at its end.
        prefix: String,
    },
    /// In a folder.
    Dir(PathBuf),
    /// In a folder as far as it has them, else elsewhere. The checkpoint is always from there.
    Through(PathBuf, Box<Self>),
}

impl TileSource {
    /// The log of the controller at `url`, or the copy of one whose checkpoint is at `url/checkpoint`.
    ///
    /// # Errors
    ///
    /// [`TilesError::Http`] if nobody answers there, [`TilesError::Missing`] if there is no log.
    pub async fn at_url(url: &str) -> Result<Self, TilesError> {
        let url = url.trim_end_matches('/');
        let http = client().map_err(|source| TilesError::Http { url: url.into(), source })?;
        let controller = Self::Url { http: http.clone(), prefix: format!("{url}/log") };
        match controller.file(CHECKPOINT).await {
            Ok(_) => Ok(controller),
            Err(TilesError::Missing { .. }) => {
                let copy = Self::Url { http, prefix: url.into() };
                copy.file(CHECKPOINT).await.map(|_| copy)
            }
            Err(error) => Err(error),
        }
    }

    fn place(&self) -> String {
        match self {
            Self::Url { prefix, .. } => prefix.clone(),
            Self::Dir(dir) => dir.display().to_string(),
            Self::Through(_, far) => far.place(),
        }
    }

    pub(super) async fn checkpoint(&self) -> Result<Vec<u8>, TilesError> {
        match self {
            Self::Through(_, far) => Box::pin(far.checkpoint()).await,
            _ => self.file(CHECKPOINT).await,
        }
    }

    /// The file at `path` below the log's prefix.
    pub(super) async fn file(&self, path: &str) -> Result<Vec<u8>, TilesError> {
        let missing = || TilesError::Missing { place: self.place(), file: path.into() };
        match self {
            Self::Dir(dir) => {
                let path = dir.join(path);
                tokio::fs::read(&path).await.map_err(|source| match source.kind() {
                    ErrorKind::NotFound | ErrorKind::NotADirectory => missing(),
                    _ => TilesError::File { path: path.display().to_string(), source },
                })
            }
            Self::Through(near, far) => match Box::pin(Self::Dir(near.clone()).file(path)).await {
                Err(TilesError::Missing { .. }) => Box::pin(far.file(path)).await,
                other => other,
            },
            Self::Url { http, prefix } => {
                let url = format!("{prefix}/{path}");
                let failed = |source: reqwest::Error| TilesError::Http { url: url.clone(), source };
                let answer = http.get(&url).send().await.map_err(failed)?;
                if answer.status() == reqwest::StatusCode::NOT_FOUND {
                    return Err(missing());
                }
                let answer = answer.error_for_status().map_err(failed)?;
                body(answer, MAX_FILE).await.map_err(|unread| match unread {
                    Unread::Broken(source) => failed(source),
                    Unread::TooLong(_) => TilesError::TooLong(url.clone()),
                })
            }
        }
    }
}
