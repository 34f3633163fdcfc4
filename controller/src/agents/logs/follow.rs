//! A reader of one lease's file: what is there, then what comes.

use std::io::SeekFrom;
use std::sync::Arc;

use futures::Stream;
use selion_api::rest::LogLine;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::sync::watch;
use tracing::warn;

use super::book::{Book, Extent};

/// Most bytes read at once.
const CHUNK: u64 = 64 << 10;

/// Where a reader is.
struct Reader {
    book: Arc<Book>,
    extent: watch::Receiver<Extent>,
    /// Bytes read.
    at: u64,
    /// Number of the next line in `rest`.
    number: u64,
    /// Lines below this number are not wanted.
    from: u64,
    /// Bytes read and not given yet.
    rest: Vec<u8>,
    /// How much of `rest` was given.
    given: usize,
}

/// Lines from number `from` on. A file that cannot be read ends the stream, and the log of the controller says why.
pub(super) fn follow(book: Option<Arc<Book>>, from: u64) -> impl Stream<Item = (u64, LogLine)> + Send + use<> {
    let reader =
        book.map(|book| Reader { extent: book.watch(), book, at: 0, number: 0, from, rest: Vec::new(), given: 0 });
    futures::stream::unfold(reader, |reader| async {
        let mut reader = reader?;
        let line = reader.next().await?;
        Some((line, Some(reader)))
    })
}

impl Reader {
    async fn next(&mut self) -> Option<(u64, LogLine)> {
        loop {
            if let Some(line) = self.take() {
                return Some(line);
            }
            let extent = *self.extent.borrow_and_update();
            if self.at < extent.bytes {
                if let Err(error) = self.read(extent.bytes).await {
                    warn!(path = %self.book.path().display(), %error, "log lines could not be read");
                    return None;
                }
            } else if extent.finished || self.extent.changed().await.is_err() {
                return None;
            }
        }
    }

    /// The next whole line that is wanted.
    fn take(&mut self) -> Option<(u64, LogLine)> {
        loop {
            let left = &self.rest[self.given..];
            let end = left.iter().position(|byte| *byte == b'\n')?;
            let line = serde_json::from_slice(&left[..end]);
            self.given += end + 1;
            let number = self.number;
            self.number += 1;
            if number >= self.from
                && let Ok(line) = line
            {
                return Some((number, line));
            }
        }
    }

    async fn read(&mut self, upto: u64) -> std::io::Result<()> {
        self.rest.drain(..self.given);
        self.given = 0;
        let mut file = tokio::fs::File::open(self.book.path()).await?;
        file.seek(SeekFrom::Start(self.at)).await?;
        let want = (upto - self.at).min(CHUNK);
        let got = file.take(want).read_to_end(&mut self.rest).await?;
        if got == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        self.at += got as u64;
        Ok(())
    }
}
