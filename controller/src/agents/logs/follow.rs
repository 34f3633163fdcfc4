//! A reader of one lease's files: what is there, then what comes.

use std::io::{self, SeekFrom};
use std::sync::Arc;

use futures::Stream;
use tokio::fs::File;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::watch;
use tracing::warn;

use super::Kept;
use super::book::{Book, Extent, Place};
use super::record::{Head, Record};

/// Most bytes read at once.
const READ: u64 = 64 << 10;
/// Most bytes that are looked through for the last lines.
const TAIL_BYTES: u64 = 16 << 20;

/// Where a reader is.
struct Reader {
    book: Arc<Book>,
    extent: watch::Receiver<Extent>,
    /// Bytes of this file up to here were read.
    at: Place,
    file: Option<File>,
    /// Read and not given yet, and how much of it was given.
    rest: Vec<u8>,
    given: usize,
    /// The next bytes are a file's head.
    at_head: bool,
    /// Records of the lease before the next one; unknown where the reader began in the middle.
    before: Option<u64>,
    /// Records that were dropped before the next one, to be told with it.
    left_out: u64,
    /// Where a reader that does not wait for more ends.
    upto: Option<Place>,
}

/// What is kept from `from` on; then, if asked, what comes. Files that cannot be read end the stream, and the log of the
/// controller says why.
pub(super) fn follow(
    book: Arc<Book>,
    from: Place,
    follow: bool,
) -> io::Result<impl Stream<Item = Kept> + Send + use<>> {
    let extent = book.watch()?;
    let now = *extent.borrow();
    let at_head = from.offset == 0;
    let reader = Reader {
        book,
        extent,
        at: from,
        file: None,
        rest: Vec::new(),
        given: 0,
        at_head,
        before: (from == Place::default()).then_some(0),
        left_out: 0,
        upto: (!follow).then_some(Place { file: now.file, offset: now.bytes }),
    };
    Ok(futures::stream::unfold(Some(reader), |reader| async {
        let mut reader = reader?;
        match reader.next().await {
            Ok(kept) => kept.map(|kept| (kept, Some(reader))),
            Err(error) => {
                warn!(path = %reader.book.path(reader.at.file).display(), %error, "log records could not be read");
                None
            }
        }
    }))
}

impl Reader {
    async fn next(&mut self) -> io::Result<Option<Kept>> {
        loop {
            if let Some(kept) = self.take() {
                return Ok(Some(kept));
            }
            let extent = *self.extent.borrow_and_update();
            let end = self.upto.unwrap_or(Place { file: extent.file, offset: extent.bytes });
            if self.at.file < end.file || self.at.offset < end.offset && self.at.file == end.file {
                self.read(end).await?;
            } else if self.upto.is_some() || extent.finished || self.extent.changed().await.is_err() {
                return Ok(None);
            }
        }
    }

    /// The next record, or what was dropped before it.
    fn take(&mut self) -> Option<Kept> {
        if self.at_head {
            let (head, size) = Head::read(&self.rest[self.given..])?;
            (self.given, self.at_head) = (self.given + size, false);
            self.left_out += self.before.map_or(0, |before| head.before.saturating_sub(before));
            self.before = Some(head.before);
        }
        let (record, size) = Record::read(&self.rest[self.given..])?;
        if self.left_out > 0 {
            let Record { attempt, member, number, .. } = record;
            return Some(Kept::LeftOut {
                records: std::mem::take(&mut self.left_out),
                attempt,
                member,
                before: number,
            });
        }
        self.given += size;
        self.before = self.before.map(|before| before + 1);
        Some(Kept::Record(record))
    }

    /// Reads on, in the next file that is there once this one is read out.
    async fn read(&mut self, end: Place) -> io::Result<()> {
        self.rest.drain(..self.given);
        self.given = 0;
        if self.file.is_none() {
            self.file = self.open().await?;
        }
        let got = match &mut self.file {
            None => 0,
            Some(file) => {
                let most = if self.at.file == end.file { end.offset - self.at.offset } else { READ };
                file.take(most.min(READ)).read_to_end(&mut self.rest).await?
            }
        };
        self.at.offset += got as u64;
        if got > 0 {
            return Ok(());
        }
        if self.at.file == end.file {
            // The newest file was dropped: nothing more of it comes.
            self.at.offset = end.offset;
            return Ok(());
        }
        let book = Arc::clone(&self.book);
        let least = self.at.file + 1;
        let next = tokio::task::spawn_blocking(move || book.file_from(least)).await.map_err(io::Error::other)??;
        self.at = Place { file: next.unwrap_or(end.file), offset: 0 };
        (self.file, self.at_head) = (None, true);
        self.rest.clear();
        Ok(())
    }

    async fn open(&mut self) -> io::Result<Option<File>> {
        let mut file = match File::open(self.book.path(self.at.file)).await {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(self.at.offset)).await?;
        Ok(Some(file))
    }
}

/// Where the last `lines` lines begin, looked for from the end and not further back than [`TAIL_BYTES`].
pub(super) fn tail(book: &Book, lines: usize) -> io::Result<Place> {
    let (mut found, mut looked) = (0, 0);
    let mut place = Place::default();
    for (file, bytes) in book.newest_first()? {
        let kept = match std::fs::read(book.path(file)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            other => other?,
        };
        let begins = line_begins(&kept[..kept.len().min(usize::try_from(bytes).unwrap_or(usize::MAX))]);
        if let Some(last) = begins.len().checked_sub(lines - found) {
            return Ok(Place { file, offset: begins.get(last).copied().unwrap_or(bytes) });
        }
        found += begins.len();
        place = Place { file, offset: 0 };
        looked += bytes;
        if looked >= TAIL_BYTES {
            break;
        }
    }
    Ok(place)
}

/// Offsets of the records in a file that begin a line, as far as the file tells.
fn line_begins(kept: &[u8]) -> Vec<u64> {
    let Some((_, mut used)) = Head::read(kept) else { return Vec::new() };
    let mut unfinished = std::collections::BTreeSet::new();
    let mut begins = Vec::new();
    while let Some((record, size)) = Record::read(&kept[used..]) {
        let stream = (record.attempt, record.member, record.source);
        if !unfinished.contains(&stream) {
            begins.push(used as u64);
        }
        if record.bytes.ends_with(b"\n") {
            unfinished.remove(&stream);
        } else {
            unfinished.insert(stream);
        }
        used += size;
    }
    begins
}
