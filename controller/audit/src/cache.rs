//! Pages of a controller's log that were fetched before, so that an audit that was killed goes on. Entries lie in
//! `entries.jsonl`, which is a log file like any other; `pages` says, a line a page, where the page ends and what its
//! bytes and all before it hash to.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use selion_api::Hash32;
use selion_api::commit::{PoolId, salted};
use selion_api::rest::LoggedEntry;

use crate::source::SourceError;

/// A page in the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    /// Bytes of `entries.jsonl` up to its end.
    bytes: u64,
    hash: Hash32,
}

/// The pages of one pool.
#[derive(Debug)]
pub(crate) struct Cache {
    path: PathBuf,
    entries: File,
    pages: File,
    marks: std::vec::IntoIter<Mark>,
    last: Mark,
}

impl Cache {
    /// The cache of a pool in `dir`, which is made if it is not there. A page that was not written whole is cut off.
    pub(crate) fn open(dir: &Path, pool: &PoolId) -> Result<Self, SourceError> {
        let dir = dir.join(format!("{}-{}", pool.chain_id, pool.controller));
        let path = dir.join("entries.jsonl");
        let failed = |source| SourceError::File { path: path.clone(), source };
        DirBuilder::new().recursive(true).create(&dir).map_err(failed)?;
        let open = |path: &Path| OpenOptions::new().read(true).append(true).create(true).open(path);
        let (mut entries, mut pages) = (open(&path).map_err(failed)?, open(&dir.join("pages")).map_err(failed)?);
        let mut text = String::new();
        pages.read_to_string(&mut text).map_err(failed)?;
        let written = entries.seek(SeekFrom::End(0)).map_err(failed)?;
        let lines = text.split_inclusive('\n');
        let read =
            lines.map_while(|line| Some((line.len(), Mark::read(line)?))).take_while(|(_, mark)| mark.bytes <= written);
        let (lengths, marks): (Vec<usize>, Vec<Mark>) = read.unzip();
        pages.set_len(lengths.iter().sum::<usize>() as u64).map_err(failed)?;
        entries.set_len(marks.last().map_or(0, |mark| mark.bytes)).map_err(failed)?;
        entries.seek(SeekFrom::Start(0)).map_err(failed)?;
        Ok(Self { path, entries, pages, marks: marks.into_iter(), last: Mark { bytes: 0, hash: Hash32::ZERO } })
    }

    /// The next page that is here; `None` after the last.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<LoggedEntry>>, SourceError> {
        let Some(mark) = self.marks.next() else { return Ok(None) };
        let failed = |source| SourceError::File { path: self.path.clone(), source };
        let changed = || SourceError::Cache { path: self.path.clone(), at: self.last.bytes };
        let length = mark.bytes.checked_sub(self.last.bytes).ok_or_else(changed)?;
        let mut bytes = Vec::new();
        (&mut self.entries).take(length).read_to_end(&mut bytes).map_err(failed)?;
        if salted(&self.last.hash, &bytes) != mark.hash {
            return Err(changed());
        }
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        let page: Result<_, _> = lines.map(serde_json::from_slice).collect();
        let page = page.map_err(|error| failed(std::io::Error::new(ErrorKind::InvalidData, error)))?;
        self.last = mark;
        Ok(Some(page))
    }

    /// Keeps a page. All that are here were read before.
    pub(crate) fn keep(&mut self, page: &[LoggedEntry]) -> Result<(), SourceError> {
        let failed = |source| SourceError::File { path: self.path.clone(), source };
        let mut bytes = Vec::new();
        for entry in page {
            serde_json::to_writer(&mut bytes, entry).map_err(|error| failed(error.into()))?;
            bytes.push(b'\n');
        }
        let mark = Mark { bytes: self.last.bytes + bytes.len() as u64, hash: salted(&self.last.hash, &bytes) };
        self.entries.write_all(&bytes).map_err(failed)?;
        // The mark comes last: without it the page never was.
        self.pages.write_all(format!("{} {}\n", mark.bytes, mark.hash).as_bytes()).map_err(failed)?;
        self.last = mark;
        Ok(())
    }
}

impl Mark {
    fn read(line: &str) -> Option<Self> {
        let (bytes, hash) = line.strip_suffix('\n')?.split_once(' ')?;
        Some(Self { bytes: bytes.parse().ok()?, hash: hash.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use selion_api::Address;

    use super::*;

    const POOL: PoolId = PoolId { chain_id: 1, controller: Address([7; 20]) };

    fn page(from: u64) -> Vec<LoggedEntry> {
        let entry = |seq| LoggedEntry { seq, entry: format!("{seq:04x}"), effects: vec!["01".into()], head: None };
        (from..from + 3).map(entry).collect()
    }

    fn all(cache: &mut Cache) -> Result<Vec<LoggedEntry>, SourceError> {
        let mut entries = Vec::new();
        while let Some(page) = cache.next()? {
            entries.extend(page);
        }
        Ok(entries)
    }

    /// A cache of two pages; the path of its entries.
    fn filled(dir: &Path) -> PathBuf {
        let mut cache = Cache::open(dir, &POOL).unwrap();
        assert_eq!(all(&mut cache).unwrap(), []);
        cache.keep(&page(0)).unwrap();
        cache.keep(&page(3)).unwrap();
        cache.path
    }

    #[test]
    fn pages_come_back_in_order_and_others_follow() {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path());
        let mut again = Cache::open(dir.path(), &POOL).unwrap();
        assert_eq!(all(&mut again).unwrap(), [page(0), page(3)].concat());
        again.keep(&page(6)).unwrap();
        let mut again = Cache::open(dir.path(), &POOL).unwrap();
        assert_eq!(all(&mut again).unwrap(), [page(0), page(3), page(6)].concat());
    }

    #[test]
    fn a_kill_at_any_byte_loses_the_last_page_at_most() {
        let dir = tempfile::tempdir().unwrap();
        let entries = filled(dir.path());
        let pages = entries.with_file_name("pages");
        let (text, marks) = (std::fs::read(&entries).unwrap(), std::fs::read(&pages).unwrap());
        let first = text.len() / 2;
        // The second page is written in part; then it is whole, and its mark is not.
        let written = (first..=text.len()).map(|cut| (cut, marks.len() / 2));
        let marked = (marks.len() / 2..marks.len()).map(|cut| (text.len(), cut));
        for (of_text, of_marks) in written.chain(marked) {
            std::fs::write(&entries, &text[..of_text]).unwrap();
            std::fs::write(&pages, &marks[..of_marks]).unwrap();
            let mut cache = Cache::open(dir.path(), &POOL).unwrap();
            assert_eq!(all(&mut cache).unwrap(), page(0), "{of_text} bytes and {of_marks} of the marks");
            cache.keep(&page(3)).unwrap();
            let mut cache = Cache::open(dir.path(), &POOL).unwrap();
            assert_eq!(all(&mut cache).unwrap(), [page(0), page(3)].concat());
        }
    }

    #[test]
    fn a_page_that_was_changed_since_is_refused_and_never_used() {
        let dir = tempfile::tempdir().unwrap();
        let entries = filled(dir.path());
        let text = std::fs::read_to_string(&entries).unwrap();
        std::fs::write(&entries, text.replace("0004", "0005")).unwrap();
        let mut cache = Cache::open(dir.path(), &POOL).unwrap();
        assert_eq!(cache.next().unwrap(), Some(page(0)));
        let error = cache.next().unwrap_err().to_string();
        assert!(error.contains("entries.jsonl") && error.contains("delete"), "{error}");
    }

    #[test]
    fn another_pools_pages_lie_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        filled(dir.path());
        let mut other = Cache::open(dir.path(), &PoolId { chain_id: 2, ..POOL }).unwrap();
        assert_eq!(all(&mut other).unwrap(), []);
    }
}
