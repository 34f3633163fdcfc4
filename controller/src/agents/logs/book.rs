//! The lines of one lease: a file that only grows by whole lines.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use selion_api::agent::{LogChunk, LogSource};
use selion_api::rest::LogLine;
use tokio::sync::watch;

use super::super::registry::lock;

/// How much of the file readers may read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    /// Bytes that are whole lines.
    pub bytes: u64,
    /// No more will come.
    pub finished: bool,
}

/// One lease's file.
pub(super) struct Book {
    path: PathBuf,
    limit: u64,
    /// Number of the next line, by attempt and member.
    next: Mutex<BTreeMap<(u32, u16), u64>>,
    extent: watch::Sender<Extent>,
}

impl Book {
    /// Opens what is there; a line that a crash tore is cut off.
    pub(super) fn open(path: PathBuf, limit: u64) -> io::Result<Self> {
        let kept = match fs::read(&path) {
            Ok(kept) => kept,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error),
        };
        let whole = kept.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let bytes = whole as u64;
        if whole < kept.len() {
            OpenOptions::new().write(true).open(&path)?.set_len(bytes)?;
        }
        let mut next = BTreeMap::new();
        let lines = kept[..whole].split(|byte| *byte == b'\n');
        for line in lines.filter_map(|line| serde_json::from_slice::<LogLine>(line).ok()) {
            let above = next.entry((line.attempt, line.member)).or_insert(0);
            *above = (line.line + 1).max(*above);
        }
        let extent = watch::Sender::new(Extent { bytes, finished: false });
        Ok(Self { path, limit, next: Mutex::new(next), extent })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn watch(&self) -> watch::Receiver<Extent> {
        self.extent.subscribe()
    }

    pub(super) fn finish(&self) {
        self.extent.send_if_modified(|extent| !std::mem::replace(&mut extent.finished, true));
    }

    /// Appends the lines that are new, in one write; tells the number of the line that should come next. A gap is
    /// taken as it is: what an agent drops, or what is over the limit, never comes.
    pub(super) fn append(&self, chunk: &LogChunk) -> io::Result<u64> {
        let mut next = lock(&self.next);
        let expected = next.entry((chunk.attempt, chunk.member)).or_insert(0);
        let before = self.extent.borrow().bytes;
        let mut text = Vec::new();
        for (number, line) in (chunk.first_line..).zip(&chunk.lines) {
            if number < *expected {
                continue;
            }
            if before + text.len() as u64 >= self.limit {
                break;
            }
            let line = LogLine {
                attempt: chunk.attempt,
                member: chunk.member,
                line: number,
                source: chunk.source,
                text: line.clone(),
            };
            push(&mut text, &line)?;
            if before + text.len() as u64 >= self.limit {
                push(&mut text, &self.last_line(&line))?;
            }
        }
        self.write(before, &text)?;
        *expected = end(chunk).max(*expected);
        Ok(*expected)
    }

    fn last_line(&self, after: &LogLine) -> LogLine {
        LogLine {
            source: LogSource::Agent,
            text: format!("the pool keeps {} bytes of log lines of a lease; later lines are not kept", self.limit),
            ..after.clone()
        }
    }

    /// Writes whole lines at the end; if that fails, as on a full disk, the file is what it was.
    fn write(&self, before: u64, text: &[u8]) -> io::Result<()> {
        if text.is_empty() {
            return Ok(());
        }
        let mut file = File::options().create(true).append(true).open(&self.path)?;
        if let Err(error) = file.write_all(text) {
            file.set_len(before)?;
            return Err(error);
        }
        self.extent.send_modify(|extent| extent.bytes = before + text.len() as u64);
        Ok(())
    }
}

/// Number of the line after the last of `chunk`.
pub(crate) fn end(chunk: &LogChunk) -> u64 {
    chunk.first_line.saturating_add(chunk.lines.len() as u64)
}

fn push(text: &mut Vec<u8>, line: &LogLine) -> io::Result<()> {
    serde_json::to_writer(&mut *text, line)?;
    text.push(b'\n');
    Ok(())
}
