//! The records of one lease: files that only grow, the oldest behind the first part going as the newest come.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use selion_api::agent::LogChunk;
use tokio::sync::watch;

use super::Limits;
use super::record::{Head, Record};

/// What a file costs beside its bytes, for a file system.
const FILE_COSTS: u64 = 16 << 10;
/// A lease that is over waits so long for what its members still have to say.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// How much of the files readers may read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    /// The newest file.
    pub file: u32,
    /// Its bytes that are whole records.
    pub bytes: u64,
    /// No more will come.
    pub finished: bool,
}

/// A reader's place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub file: u32,
    pub offset: u64,
}

/// One lease's files.
pub(super) struct Book {
    dir: PathBuf,
    limits: Limits,
    /// `None` until somebody wants to know: then it is read from the files.
    written: Mutex<Option<Written>>,
    extent: watch::Sender<Extent>,
}

struct Written {
    /// Bytes of each file that is there.
    files: BTreeMap<u32, u64>,
    /// The newest, if it is open for more.
    open: Option<File>,
    /// Number of the newest file that ever was.
    newest: Option<u32>,
    /// All records so far, and the next of each member.
    head: Head,
    /// Members of which more will come.
    talking: BTreeSet<u16>,
    over: bool,
    touched: Instant,
}

impl Book {
    /// The book of the files in `dir`, which need not be there.
    pub(super) fn new(dir: PathBuf, limits: Limits) -> Self {
        Self { dir, limits, written: Mutex::new(None), extent: watch::Sender::new(Extent::default()) }
    }

    pub(super) fn path(&self, file: u32) -> PathBuf {
        self.dir.join(format!("{file:08}"))
    }

    /// What readers may read now and from now on.
    pub(super) fn watch(&self) -> io::Result<watch::Receiver<Extent>> {
        self.with(|_| Ok(self.extent.subscribe()))
    }

    /// The oldest file from `least` on.
    pub(super) fn file_from(&self, least: u32) -> io::Result<Option<u32>> {
        self.with(|written| Ok(written.files.range(least..).next().map(|(file, _)| *file)))
    }

    /// The newest files first, with their bytes.
    pub(super) fn newest_first(&self) -> io::Result<Vec<(u32, u64)>> {
        self.with(|written| Ok(written.files.iter().rev().map(|(file, bytes)| (*file, *bytes)).collect()))
    }

    /// The lease is over: readers end once its members have said all.
    pub(super) fn finish(&self) {
        let told = self.with(|written| {
            written.over = true;
            self.settle(written);
            Ok(())
        });
        if told.is_err() {
            // What cannot be read has no readers to wait for more.
            self.extent.send_modify(|extent| extent.finished = true);
        }
    }

    /// The link of this member is gone: whoever waits for the last words of a lease that is over waits no more.
    pub(super) fn abandon(&self, member: u16) {
        let _ = self.with(|written| {
            written.talking.remove(&member);
            self.settle(written);
            Ok(())
        });
    }

    fn settle(&self, written: &Written) {
        let patient = !written.talking.is_empty() && written.touched.elapsed() < LAST_WORDS;
        if written.over && !patient {
            self.extent.send_if_modified(|extent| !std::mem::replace(&mut extent.finished, true));
        }
    }

    /// Keeps the records that are new, in one write; tells the number of the one that should come next, and what the lease
    /// costs on disk now. A gap is taken as it is: what an agent drops never comes.
    pub(super) fn append(&self, chunk: &LogChunk) -> io::Result<(u64, u64)> {
        self.with(|written| {
            let latest = written.head.next.get(&chunk.member).copied();
            let expected = match latest {
                Some((attempt, next)) if attempt == chunk.attempt => next,
                // A run that was followed by another has nothing to say any more.
                Some((attempt, _)) if attempt > chunk.attempt => u64::MAX,
                _ => 0,
            };
            let mut bytes = Vec::new();
            let mut kept = 0;
            for (number, record) in (chunk.first..).zip(&chunk.records).filter(|(number, _)| *number >= expected) {
                let record = Record {
                    attempt: chunk.attempt,
                    member: chunk.member,
                    number,
                    source: record.source,
                    bytes: record.bytes.clone(),
                };
                record.write(&mut bytes);
                kept += 1;
            }
            self.write(written, &bytes)?;
            let next = match expected {
                u64::MAX => end(chunk),
                expected => end(chunk).max(expected),
            };
            if expected < u64::MAX && (next > 0 || latest.is_some()) {
                written.head.next.insert(chunk.member, (chunk.attempt, next));
            }
            written.head.before += kept;
            written.touched = Instant::now();
            if chunk.end {
                written.talking.remove(&chunk.member);
            } else {
                written.talking.insert(chunk.member);
            }
            self.settle(written);
            self.drop_middle(written);
            Ok((next, cost(written)))
        })
    }

    /// Writes whole records at the end; if that fails, as on a full disk, the file is what it was.
    fn write(&self, written: &mut Written, records: &[u8]) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let (mut file, number) = match (written.open.take(), written.newest) {
            (Some(file), Some(newest)) => (file, newest),
            (_, newest) => self.begin(written, newest.map_or(0, |newest| newest + 1))?,
        };
        let bytes = written.files.entry(number).or_default();
        if let Err(error) = file.write_all(records) {
            file.set_len(*bytes)?;
            written.open = Some(file);
            return Err(error);
        }
        *bytes += records.len() as u64;
        if *bytes < self.limits.file {
            written.open = Some(file);
        }
        let bytes = *bytes;
        self.extent.send_modify(|extent| (extent.file, extent.bytes) = (number, bytes));
        Ok(())
    }

    fn begin(&self, written: &mut Written, number: u32) -> io::Result<(File, u32)> {
        fs::create_dir_all(&self.dir)?;
        let path = self.path(number);
        let mut file = File::options().create(true).append(true).open(&path)?;
        let head = written.head.bytes();
        let begun = file.set_len(0).and_then(|()| file.write_all(&head));
        if let Err(error) = begun {
            fs::remove_file(path)?;
            return Err(error);
        }
        written.files.insert(number, head.len() as u64);
        written.newest = Some(number);
        Ok((file, number))
    }

    /// Above the lease's limit the oldest file behind the first part goes.
    fn drop_middle(&self, written: &mut Written) {
        while cost(written) > self.limits.lease && written.files.len() > 1 {
            self.drop_one(written);
        }
    }

    fn drop_one(&self, written: &mut Written) {
        let head = u32::try_from(self.limits.lease / (self.limits.file + FILE_COSTS) / 4).unwrap_or(u32::MAX);
        let newest = written.files.keys().next_back().copied();
        let middle = written.files.range(head..).map(|(file, _)| *file).find(|file| Some(*file) != newest);
        let Some(file) = middle.or_else(|| written.files.keys().next().copied()) else { return };
        written.files.remove(&file);
        if Some(file) == written.newest {
            written.open = None;
        }
        if let Err(error) = fs::remove_file(self.path(file)) {
            tracing::warn!(path = %self.path(file).display(), %error, "log records could not be removed");
        }
    }

    /// Makes room for others: everything, or only the oldest file behind the first part. Tells what the lease costs now.
    pub(super) fn shed(&self, all: bool) -> u64 {
        let left = self.with(|written| {
            self.drop_one(written);
            while all && !written.files.is_empty() {
                self.drop_one(written);
            }
            Ok(cost(written))
        });
        if all {
            // It is gone, or it will be tried again at the next start.
            let _ = fs::remove_dir(&self.dir);
        }
        left.unwrap_or(0)
    }

    fn with<T>(&self, act: impl FnOnce(&mut Written) -> io::Result<T>) -> io::Result<T> {
        let mut guard: MutexGuard<'_, Option<Written>> = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.is_none() {
            let written = load(&self.dir)?;
            if let Some((file, bytes)) = written.files.iter().next_back() {
                self.extent.send_modify(|extent| (extent.file, extent.bytes) = (*file, *bytes));
            }
            *guard = Some(written);
        }
        match guard.as_mut() {
            Some(written) => act(written),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

/// What the files in `dir` tell: only the newest is read. A record that a crash tore is cut off.
fn load(dir: &Path) -> io::Result<Written> {
    let mut files = sizes(dir)?;
    let mut head = Head::default();
    let newest = files.keys().next_back().copied();
    while let Some((number, bytes)) = files.iter().next_back().map(|(number, bytes)| (*number, *bytes)) {
        let path = dir.join(format!("{number:08}"));
        let kept = fs::read(&path)?;
        let Some((begun, mut used)) = Head::read(&kept) else {
            // A crash before its first record.
            fs::remove_file(&path)?;
            files.remove(&number);
            continue;
        };
        head = begun;
        while let Some((record, size)) = Record::read(&kept[used..]) {
            head.next.insert(record.member, (record.attempt, record.number + 1));
            head.before += 1;
            used += size;
        }
        if (used as u64) < bytes {
            File::options().write(true).open(&path)?.set_len(used as u64)?;
            files.insert(number, used as u64);
        }
        break;
    }
    let (open, talking, over, touched) = (None, BTreeSet::new(), false, Instant::now());
    Ok(Written { files, open, newest, head, talking, over, touched })
}

/// The files in `dir` by number, with their bytes.
fn sizes(dir: &Path) -> io::Result<BTreeMap<u32, u64>> {
    let mut files = BTreeMap::new();
    let entries = match fs::read_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(files),
        other => other?,
    };
    for entry in entries {
        let entry = entry?;
        if let Some(number) = entry.file_name().to_str().and_then(|name| name.parse().ok()) {
            files.insert(number, entry.metadata()?.len());
        }
    }
    Ok(files)
}

/// What the files in `dir` cost on disk.
pub(super) fn cost_of(dir: &Path) -> io::Result<u64> {
    Ok(sizes(dir)?.values().map(|bytes| bytes + FILE_COSTS).sum())
}

fn cost(written: &Written) -> u64 {
    written.files.values().map(|bytes| bytes + FILE_COSTS).sum()
}

/// Number of the record after the last of `chunk`.
pub(crate) fn end(chunk: &LogChunk) -> u64 {
    chunk.first.saturating_add(chunk.records.len() as u64)
}
