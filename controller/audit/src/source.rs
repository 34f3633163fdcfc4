//! Where the log comes from.

use std::path::{Path, PathBuf};

use selion_api::rest::{EntryPage, LoggedEntry};

use crate::run::LogSource;

/// Why the log could not be had.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The file could not be read.
    #[error("log file {}: {source}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// A line of the file is not an entry as published.
    #[error("log file {}, line {line}: {source}; it should hold one entry of GET /v1/log/entries a line", path.display())]
    Line {
        /// Which file.
        path: PathBuf,
        /// Which line, from 1.
        line: usize,
        /// Cause.
        source: serde_json::Error,
    },
    /// The controller did not answer.
    #[error("log of {url}: {source}; is the controller running? A copy can be audited with --log FILE")]
    Http {
        /// Which controller.
        url: String,
        /// Cause.
        source: reqwest::Error,
    },
}

/// Entries a request.
const PAGE: u64 = 1000;

/// Reads the whole log as published, without a look at what it says: see [`Log::read`](crate::Log::read).
///
/// # Errors
///
/// [`SourceError`] if it cannot be had.
pub async fn fetch(source: &LogSource) -> Result<Vec<LoggedEntry>, SourceError> {
    match source {
        LogSource::File(path) => from_file(path),
        LogSource::Url(url) => {
            let mut entries = Vec::new();
            extend_from_url(&reqwest::Client::new(), url, &mut entries).await?;
            Ok(entries)
        }
    }
}

/// All entries of a file of JSON lines.
pub(crate) fn from_file(path: &Path) -> Result<Vec<LoggedEntry>, SourceError> {
    let text = std::fs::read_to_string(path).map_err(|source| SourceError::File { path: path.into(), source })?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty());
    lines
        .map(|(at, line)| {
            serde_json::from_str(line).map_err(|source| SourceError::Line { path: path.into(), line: at + 1, source })
        })
        .collect()
}

/// Adds the entries of a controller that are not in `entries` yet.
pub(crate) async fn extend_from_url(
    http: &reqwest::Client,
    url: &str,
    entries: &mut Vec<LoggedEntry>,
) -> Result<(), SourceError> {
    let failed = |source: reqwest::Error| SourceError::Http { url: url.into(), source };
    loop {
        let from = entries.len();
        let page = format!("{}/v1/log/entries?from={from}&limit={PAGE}", url.trim_end_matches('/'));
        let answer = http.get(page).send().await.map_err(failed)?;
        let answer = answer.error_for_status().map_err(failed)?;
        let EntryPage { entries: more, next } = answer.json().await.map_err(failed)?;
        let none = more.is_empty();
        entries.extend(more);
        if none || next.is_none() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_log_reads_back_and_a_broken_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.jsonl");
        let entry = LoggedEntry { seq: 0, entry: "00".into(), effects: vec!["01".into()], head: None };
        let line = serde_json::to_string(&entry).unwrap();
        std::fs::write(&path, format!("{line}\n")).unwrap();
        assert_eq!(from_file(&path).unwrap(), [entry]);
        std::fs::write(&path, format!("{line}\n{{\n")).unwrap();
        let error = from_file(&path).unwrap_err().to_string();
        assert!(error.contains("line 2"), "{error}");
    }
}
