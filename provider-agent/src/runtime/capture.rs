//! From a pipe to log records: lines whole, unfinished ones after a moment, bytes as they came.

use std::future::Future;
use std::time::Duration;

use selion_api::agent::{LogRecord, LogSource, MAX_RECORD};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, timeout_at};

/// A line that stays unfinished for this long is given as far as it is, as a progress bar or a prompt is.
const UNFINISHED: Duration = Duration::from_millis(200);
/// Bytes read at once.
const READ: usize = 64 << 10;

/// Cuts a stream of bytes into records.
#[derive(Debug)]
struct Cutter {
    source: LogSource,
    unfinished: Vec<u8>,
    ready: Vec<LogRecord>,
}

impl Cutter {
    fn new(source: LogSource) -> Self {
        Self { source, unfinished: Vec::new(), ready: Vec::new() }
    }

    fn push(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.unfinished.extend_from_slice(part);
            while self.unfinished.len() > MAX_RECORD {
                self.give(char_start(&self.unfinished, MAX_RECORD));
            }
            if part.ends_with(b"\n") {
                self.give(self.unfinished.len());
            }
        }
    }

    /// Gives what is unfinished, but a character of which the rest is still to come.
    fn give_unfinished(&mut self) {
        let len = self.unfinished.len();
        let cut = match self.unfinished.iter().rposition(|byte| byte & 0xc0 != 0x80) {
            Some(last) if len - last < char_len(self.unfinished[last]) => last,
            _ => len,
        };
        self.give(if cut == 0 { len } else { cut });
    }

    fn give(&mut self, upto: usize) {
        let rest = self.unfinished.split_off(upto);
        let bytes = std::mem::replace(&mut self.unfinished, rest);
        if !bytes.is_empty() {
            self.ready.push(LogRecord { source: self.source, bytes });
        }
    }

    fn take(&mut self) -> Vec<LogRecord> {
        std::mem::take(&mut self.ready)
    }
}

/// Reads `from` to its end. `keep` takes the records as they come; while it does not return, nothing is read, and whoever
/// writes into the pipe waits once it is full.
pub async fn read_records<F: Future<Output = ()>>(
    mut from: impl AsyncRead + Unpin,
    source: LogSource,
    mut keep: impl FnMut(Vec<LogRecord>) -> F,
) {
    let mut cutter = Cutter::new(source);
    let mut buffer = vec![0; READ];
    let mut since = None;
    loop {
        let read = match since {
            None => Ok(from.read(&mut buffer).await),
            Some(since) => timeout_at(since + UNFINISHED, from.read(&mut buffer)).await,
        };
        match read {
            Ok(Ok(read @ 1..)) => {
                let had = cutter.unfinished.len();
                cutter.push(&buffer[..read]);
                // A line that began in what was just read is young.
                if cutter.unfinished.is_empty() {
                    since = None;
                } else if since.is_none() || cutter.unfinished.len() < had + read {
                    since = Some(Instant::now());
                }
            }
            // A pipe that fails is over.
            Ok(_) => break,
            Err(_) => {
                cutter.give_unfinished();
                since = (!cutter.unfinished.is_empty()).then(Instant::now);
            }
        }
        let records = cutter.take();
        if !records.is_empty() {
            keep(records).await;
        }
    }
    cutter.give(cutter.unfinished.len());
    let records = cutter.take();
    if !records.is_empty() {
        keep(records).await;
    }
}

/// The last place at or before `at` where a UTF-8 character begins, but at most 3 bytes earlier.
fn char_start(bytes: &[u8], at: usize) -> usize {
    let is_inside = |at: &usize| bytes.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
    (at.saturating_sub(3)..=at).rev().find(|at| !is_inside(at)).unwrap_or(at)
}

/// Bytes of the UTF-8 character that begins with this one.
fn char_len(first: u8) -> usize {
    match first {
        0xc0..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf7 => 4,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::io::{AsyncWriteExt, duplex};
    use tokio::sync::mpsc;

    use super::*;

    fn cut(chunks: &[&[u8]]) -> Vec<Vec<u8>> {
        let mut cutter = Cutter::new(LogSource::Stdout);
        chunks.iter().for_each(|chunk| cutter.push(chunk));
        cutter.give(cutter.unfinished.len());
        cutter.take().into_iter().map(|record| record.bytes).collect()
    }

    #[test]
    fn a_line_may_come_in_pieces_and_keeps_its_bytes_and_its_end() {
        let lines = cut(&[b"on", b"e\ntwo\r\n\n\xff\x00x\nthr", b"ee"]);
        assert_eq!(lines, [&b"one\n"[..], b"two\r\n", b"\n", b"\xff\x00x\n", b"three"]);
    }

    #[test]
    fn a_line_up_to_a_mebibyte_is_one_record_and_a_longer_one_keeps_every_byte() {
        let mut exact = vec![b'x'; MAX_RECORD - 1];
        exact.push(b'\n');
        assert_eq!(cut(&[&exact]), [exact]);
        let mut long = vec![b'x'; 20_000_000];
        long.push(b'\n');
        let pieces = cut(&[&long, b"next\n"]);
        assert_eq!(pieces.len(), 21);
        assert!(pieces.iter().all(|piece| piece.len() <= MAX_RECORD));
        assert_eq!(pieces[..20].concat(), long);
    }

    #[test]
    fn a_cut_does_not_split_a_character() {
        let mut text = "x".repeat(MAX_RECORD - 1);
        text.push_str("éy");
        let pieces = cut(&[text.as_bytes()]);
        assert_eq!((pieces[0].len(), pieces[1].as_slice()), (MAX_RECORD - 1, "éy".as_bytes()));
        let mut cutter = Cutter::new(LogSource::Stdout);
        cutter.push(b"ab\xc3");
        cutter.give_unfinished();
        assert_eq!((cutter.take()[0].bytes.as_slice(), cutter.unfinished.as_slice()), (&b"ab"[..], &b"\xc3"[..]));
        cutter.give_unfinished();
        assert_eq!(cutter.take()[0].bytes, b"\xc3", "it is no character after all");
    }

    #[tokio::test]
    async fn what_has_no_line_end_yet_is_shown_after_a_moment() {
        let (mut program, pipe) = duplex(1 << 10);
        let (give, mut given) = mpsc::unbounded_channel();
        let reading = tokio::spawn(read_records(pipe, LogSource::Stdout, move |records| {
            let give = give.clone();
            async move { records.into_iter().for_each(|record: LogRecord| give.send(record.bytes).unwrap()) }
        }));
        let started = Instant::now();
        program.write_all(b"\r 10%|#").await.unwrap();
        assert_eq!(given.recv().await.unwrap(), b"\r 10%|#");
        assert!(started.elapsed() >= UNFINISHED);
        program.write_all(b"#\nwhole\nand").await.unwrap();
        assert_eq!(given.recv().await.unwrap(), b"#\n");
        assert_eq!(given.recv().await.unwrap(), b"whole\n");
        drop(program);
        assert_eq!(given.recv().await.unwrap(), b"and");
        reading.await.unwrap();
    }

    #[tokio::test]
    async fn a_progress_bar_that_never_rests_is_shown_all_the_same() {
        let (mut program, pipe) = duplex(1 << 10);
        let (give, mut given) = mpsc::unbounded_channel();
        let reading = tokio::spawn(read_records(pipe, LogSource::Stderr, move |records| {
            let give = give.clone();
            async move { records.into_iter().for_each(|record: LogRecord| give.send(record.bytes).unwrap()) }
        }));
        let bar = tokio::spawn(async move {
            for percent in 0..20 {
                program.write_all(format!("\r{percent:2}%").as_bytes()).await.unwrap();
                tokio::time::sleep(UNFINISHED / 4).await;
            }
        });
        let mut all = Vec::new();
        let mut pieces = 0;
        while let Some(piece) = given.recv().await {
            all.extend(piece);
            pieces += 1;
        }
        bar.await.unwrap();
        reading.await.unwrap();
        assert!(pieces >= 2, "{pieces}");
        assert_eq!(all, (0..20).flat_map(|percent| format!("\r{percent:2}%").into_bytes()).collect::<Vec<_>>());
    }

    #[tokio::test]
    async fn a_keeper_that_does_not_return_holds_the_writer_up() {
        let (mut program, pipe) = duplex(16);
        let (open, opened) = tokio::sync::watch::channel(false);
        let kept = Arc::new(Mutex::new(0));
        let count = Arc::clone(&kept);
        let reading = tokio::spawn(read_records(pipe, LogSource::Stdout, move |records| {
            let (mut opened, count) = (opened.clone(), Arc::clone(&count));
            async move {
                opened.wait_for(|open| *open).await.unwrap();
                *count.lock().unwrap() += records.iter().map(|record| record.bytes.len()).sum::<usize>();
            }
        }));
        let mut written = 0;
        // What fits into the pipe and what was read once, and no more.
        while tokio::time::timeout(Duration::from_millis(50), program.write_all(b"12345678\n")).await.is_ok() {
            written += 9;
            assert!(written < 100, "the writer waits");
        }
        open.send_replace(true);
        drop(program);
        reading.await.unwrap();
        assert!(*kept.lock().unwrap() >= written);
    }
}
