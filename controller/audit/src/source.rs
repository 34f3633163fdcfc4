//! Where the log comes from.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use selion_api::commit::PoolId;
use selion_api::rest::{EntryPage, LoggedEntry};
use selion_contracts::bounded::{Unread, body};
use selion_log::Entry;

use crate::cache::Cache;
use crate::pass::PIECE;
use crate::run::LogSource;
use crate::tiles::{TileSource, TilesError, read_tiles};

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
    /// The controller's answer is longer than any page of a log.
    #[error("log of {url}: the page from entry {at} on is longer than {MAX_PAGE} bytes; is it a controller?")]
    TooLong {
        /// Which controller.
        url: String,
        /// The entry that was asked for.
        at: u64,
    },
    /// The controller's answer is no page of a log.
    #[error("log of {url}: the page from entry {at} on does not read: {source}; is it a controller?")]
    Page {
        /// Which controller.
        url: String,
        /// The entry that was asked for.
        at: u64,
        /// Cause.
        source: serde_json::Error,
    },
    /// The controller answered with entries that were not asked for.
    #[error("log of {url}: entry {asked} was asked for, entry {came} came; its log cannot be read in order")]
    Order {
        /// Which controller.
        url: String,
        /// The entry that comes next.
        asked: u64,
        /// What came in its place.
        came: u64,
    },
    /// A page that was kept is not what it was.
    #[error("{}: the page from byte {at} on was changed since it was fetched; delete the folder to fetch the log anew", path.display())]
    Cache {
        /// Which file.
        path: PathBuf,
        /// Where the page begins.
        at: u64,
    },
    /// Static files do not give a log.
    #[error(transparent)]
    Tiles(#[from] TilesError),
}

/// Entries a request.
const PAGE: u64 = 1000;
/// Longest page that is read, in bytes. A controller ends its pages at a few MiB, after one entry at least.
const MAX_PAGE: usize = 64 << 20;
/// How long a server of a log may take to accept a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// How long it may be silent in the middle of an answer.
const SILENCE: Duration = Duration::from_secs(20);
/// How long an answer may take in all.
const ANSWER: Duration = Duration::from_secs(300);

/// Asks servers of logs, none of which can make it wait for ever.
pub(crate) fn client() -> Result<reqwest::Client, reqwest::Error> {
    patient(SILENCE, ANSWER)
}

fn patient(silence: Duration, answer: Duration) -> Result<reqwest::Client, reqwest::Error> {
    reqwest::Client::builder().connect_timeout(CONNECT).read_timeout(silence).timeout(answer).build()
}

/// Reads the whole log as published, without a look at what it says: see [`Log::read`](crate::Log::read).
///
/// # Errors
///
/// [`SourceError`] if it cannot be had.
pub async fn fetch(source: &LogSource) -> Result<Vec<LoggedEntry>, SourceError> {
    let mut entries = Vec::new();
    match source {
        LogSource::Url(url) => {
            let mut feed = Feed::new(url, None)?;
            while let Some(page) = feed.next().await? {
                entries.extend(page);
            }
            entries.extend(feed.take_uncovered());
        }
        LogSource::File(path) => {
            for piece in Lines::open(path)? {
                entries.extend(piece?);
            }
        }
        LogSource::Folder(path) => return Ok(read_tiles(TileSource::Dir(path.clone())).await?),
        LogSource::Static(url) => return Ok(read_tiles(TileSource::at_url(url).await?).await?),
    }
    Ok(entries)
}

/// The number of the chain's block that an entry brings, if it brings one.
pub(crate) fn block_of(logged: &LoggedEntry) -> Option<u64> {
    /// First byte of the input: [`Input::Block`](selion_market::Input::Block). The number comes next.
    const BLOCK: u8 = 2;
    let entry: Entry = borsh::from_slice(&hex::decode(&logged.entry).ok()?).ok()?;
    let (kind, rest) = entry.input.split_first()?;
    (*kind == BLOCK).then_some(u64::from_le_bytes(*rest.first_chunk()?))
}

/// A file of JSON lines, in pieces.
pub(crate) struct Lines {
    path: PathBuf,
    file: BufReader<File>,
    line: usize,
    buffer: Vec<u8>,
}

impl Lines {
    pub(crate) fn open(path: &Path) -> Result<Self, SourceError> {
        let failed = |source| SourceError::File { path: path.into(), source };
        let file = BufReader::with_capacity(1 << 20, File::open(path).map_err(failed)?);
        Ok(Self { path: path.into(), file, line: 0, buffer: Vec::new() })
    }

    fn next_entry(&mut self) -> Result<Option<LoggedEntry>, SourceError> {
        loop {
            self.buffer.clear();
            self.line += 1;
            let read = self.file.read_until(b'\n', &mut self.buffer);
            let read = read.map_err(|source| SourceError::File { path: self.path.clone(), source })?;
            let line = self.buffer.trim_ascii();
            if read == 0 {
                return Ok(None);
            }
            if !line.is_empty() {
                let wrong = |source| SourceError::Line { path: self.path.clone(), line: self.line, source };
                return serde_json::from_slice(line).map(Some).map_err(wrong);
            }
        }
    }

    /// The first block of the chain in the log, if it has any.
    pub(crate) fn first_block(mut self) -> Result<Option<u64>, SourceError> {
        while let Some(entry) = self.next_entry()? {
            if let Some(number) = block_of(&entry) {
                return Ok(Some(number));
            }
        }
        Ok(None)
    }
}

impl Iterator for Lines {
    type Item = Result<Vec<LoggedEntry>, SourceError>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut piece = Vec::with_capacity(PIECE);
        while piece.len() < PIECE {
            match self.next_entry() {
                Ok(Some(entry)) => piece.push(entry),
                Ok(None) => break,
                Err(error) => return Some(Err(error)),
            }
        }
        (!piece.is_empty()).then_some(Ok(piece))
    }
}

/// A controller's log, page by page: first those that were kept.
pub(crate) struct Feed {
    http: reqwest::Client,
    url: String,
    cache: Option<Cache>,
    /// The entry that comes next.
    at: u64,
    /// The log's newest entries, over which no head was signed when they came. A head follows its entries by a moment, so
    /// they are asked for again.
    uncovered: Vec<LoggedEntry>,
}

impl Feed {
    pub(crate) fn new(url: &str, cache: Option<Cache>) -> Result<Self, SourceError> {
        let url = url.trim_end_matches('/').to_owned();
        let http = client().map_err(|source| SourceError::Http { url: url.clone(), source })?;
        Ok(Self { http, url, cache, at: 0, uncovered: Vec::new() })
    }

    /// With the pages of that pool that are in the folder, if one is named.
    pub(crate) fn open(url: &str, cache: Option<&Path>, pool: &PoolId) -> Result<Self, SourceError> {
        let cache = cache.map(|dir| Cache::open(dir, pool)).transpose()?;
        Self::new(url, cache)
    }

    /// The next entries; `None` at the end of what a head covers, where a live log may have more when it is asked again.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<LoggedEntry>>, SourceError> {
        if let Some(page) = self.cache.as_mut().map(Cache::next).transpose()?.flatten() {
            self.at += page.len() as u64;
            return Ok(Some(page));
        }
        let failed = |source: reqwest::Error| SourceError::Http { url: self.url.clone(), source };
        let page = format!("{}/v1/log/entries?from={}&limit={PAGE}", self.url, self.at);
        let answer = self.http.get(page).send().await.map_err(failed)?;
        let answer = answer.error_for_status().map_err(failed)?;
        let bytes = body(answer, MAX_PAGE).await.map_err(|unread| match unread {
            Unread::Broken(source) => failed(source),
            Unread::TooLong(_) => SourceError::TooLong { url: self.url.clone(), at: self.at },
        })?;
        let other = |source| SourceError::Page { url: self.url.clone(), at: self.at, source };
        let EntryPage { mut entries, next } = serde_json::from_slice(&bytes).map_err(other)?;
        self.uncovered.clear();
        let Some(first) = entries.first() else { return Ok(None) };
        if first.seq != self.at {
            return Err(SourceError::Order { url: self.url.clone(), asked: self.at, came: first.seq });
        }
        if next.is_none() {
            let covered = entries.iter().rposition(|entry| entry.head.is_some()).map_or(0, |last| last + 1);
            self.uncovered = entries.split_off(covered);
        }
        if entries.is_empty() {
            return Ok(None);
        }
        if let Some(cache) = &mut self.cache {
            cache.keep(&entries)?;
        }
        self.at += entries.len() as u64;
        Ok(Some(entries))
    }

    /// The entries at the log's end that no head covers yet.
    pub(crate) fn uncovered(&self) -> &[LoggedEntry] {
        &self.uncovered
    }

    /// The same, for a reader that waits no longer.
    pub(crate) fn take_uncovered(&mut self) -> Vec<LoggedEntry> {
        std::mem::take(&mut self.uncovered)
    }
}

#[cfg(test)]
mod tests {
    use selion_api::agent::Fence;
    use selion_api::chain::Block;
    use selion_api::commit::canonical;
    use selion_api::{Hash32, TimeMs};
    use selion_market::Input;

    use super::*;

    fn read(path: &Path) -> Result<Vec<LoggedEntry>, SourceError> {
        let pieces: Result<Vec<_>, _> = Lines::open(path)?.collect();
        pieces.map(|pieces| pieces.concat())
    }

    #[test]
    fn a_copy_of_the_log_reads_back_and_a_broken_line_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log.jsonl");
        let entry = LoggedEntry { seq: 0, entry: "00".into(), effects: vec!["01".into()], head: None };
        let line = serde_json::to_string(&entry).unwrap();
        std::fs::write(&path, format!("{line}\n")).unwrap();
        assert_eq!(read(&path).unwrap(), [entry]);
        for broken in ["{", "not JSON", "{}", "[1]", &line[..line.len() - 3], "\u{fffd}"] {
            std::fs::write(&path, format!("{line}\n\n{broken}\n")).unwrap();
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains("line 3") && error.contains("log.jsonl"), "{broken}: {error}");
        }
        std::fs::write(&path, [0xff, 0xfe, 0x00]).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("line 1"));
        assert!(matches!(read(&dir.path().join("none")), Err(SourceError::File { .. })));
    }

    #[tokio::test]
    async fn a_server_that_never_answers_ends_the_reading_by_its_name() {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        // Connections are accepted by the system; nobody reads them.
        for (silence, answer) in [(100, 60_000), (60_000, 100)].map(|(a, b)| (ms(a), ms(b))) {
            let feed = Feed::new(&url, None).unwrap();
            let error = Feed { http: patient(silence, answer).unwrap(), ..feed }.next().await.unwrap_err();
            assert!(matches!(error, SourceError::Http { .. }) && error.to_string().contains(&url), "{error}");
        }
        drop(listener);
    }

    fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn the_block_that_an_entry_brings_is_seen_without_reading_the_rest() {
        let entry = |input: &Input| {
            let fence = Fence::default();
            let (input, effects_root) = (canonical(input), Hash32::ZERO);
            let entry = Entry { rules: 1, seq: 0, fence, at_ms: TimeMs(0), input, effects_root };
            LoggedEntry { seq: 0, entry: hex::encode(entry.bytes()), effects: Vec::new(), head: None }
        };
        let block = Block { number: 0x0102_0304, hash: Hash32::ZERO, parent: Hash32::ZERO, events: Vec::new() };
        assert_eq!(block_of(&entry(&Input::Block(block))), Some(0x0102_0304));
        assert_eq!(block_of(&entry(&Input::Tick)), None);
    }
}
