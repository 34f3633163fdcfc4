//! What one member printed and the controller does not have yet: records in files of the node, bounded.
//!
//! A file holds consecutive records and is named by the number of its first. A record is its stream (1 byte), its length
//! (4 bytes, little-endian) and its bytes. What the controller has goes file by file; where that is not enough, files
//! behind the first part go too, and their numbers are missing.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use selion_api::agent::{LogRecord, LogSource};

/// Bytes before a record's own.
const FRAME: usize = 5;

/// How much is kept of one member, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// A file is closed from here on.
    pub file: u64,
    /// So much of a member's beginning is not dropped for what came later.
    pub head: u64,
}

/// Consecutive records.
#[derive(Debug)]
struct Segment {
    /// Number of its first record, and of the one after its last.
    first: u64,
    next: u64,
    bytes: u64,
    /// Bytes of the member before it.
    at: u64,
}

/// A reader's place.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    /// Number of the record to be read next.
    pub number: u64,
    /// So much of it was read.
    pub from: u32,
    /// Its file and its place there, once they were looked up.
    place: Option<(u64, u64)>,
}

impl Cursor {
    pub(super) fn at(number: u64) -> Self {
        Self { number, ..Self::default() }
    }
}

/// What a reader gets.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// There is no more now.
    Nothing,
    /// The next record is longer than may go at once, and parts are not wanted now.
    TooLong,
    /// The records from the reader's place up to this number were dropped.
    Gap(u64),
    /// Records; `more` if the last goes on.
    Records { records: Vec<LogRecord>, more: bool },
}

/// The records of one member.
#[derive(Debug)]
pub(super) struct Spool {
    dir: PathBuf,
    limits: Limits,
    segments: VecDeque<Segment>,
    /// The last of them, open for writing.
    file: Option<File>,
    /// Number of the next record.
    next: u64,
    /// Bytes of all that was ever kept.
    at: u64,
}

impl Spool {
    /// Opens what is in `dir`, which need not be there. A record that a crash tore is left out.
    pub(super) fn open(dir: PathBuf, limits: Limits) -> io::Result<Self> {
        let mut firsts = Vec::new();
        match fs::read_dir(&dir) {
            Ok(entries) => {
                for entry in entries {
                    firsts.extend(entry?.file_name().to_str().and_then(|name| name.parse::<u64>().ok()));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        firsts.sort_unstable();
        // Without its first file a member has no first part to keep here: the controller has it.
        let at = if firsts.first().is_some_and(|first| *first > 0) { limits.head } else { 0 };
        let mut spool = Self { dir, limits, segments: VecDeque::new(), file: None, next: 0, at };
        for first in firsts {
            let (records, bytes) = whole_records(&spool.path(first))?;
            if records == 0 {
                fs::remove_file(spool.path(first))?;
                spool.next = first;
                continue;
            }
            let segment = Segment { first, next: first + records, bytes, at: spool.at };
            (spool.next, spool.at) = (segment.next, spool.at + bytes);
            spool.segments.push_back(segment);
        }
        Ok(spool)
    }

    /// Number of the next record.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Bytes that are there now.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Bytes of the records from number `first` on that came from `wanted`.
    pub(super) fn bytes_since(&self, wanted: LogSource, first: u64) -> io::Result<u64> {
        let mut bytes = 0;
        for segment in self.segments.iter().filter(|segment| segment.next > first) {
            let kept = fs::read(self.path(segment.first))?;
            let (mut used, mut number) = (0, segment.first);
            while let Some((record, size)) = whole_frame(&kept[used..])? {
                if number >= first && record.source == wanted {
                    bytes += record.bytes.len() as u64;
                }
                used += size;
                number += 1;
            }
        }
        Ok(bytes)
    }

    /// Keeps the records; on failure none of them.
    pub(super) fn append(&mut self, records: &[LogRecord]) -> io::Result<()> {
        let mut frames = Vec::new();
        for record in records {
            let len = u32::try_from(record.bytes.len()).map_err(io::Error::other)?;
            frames.push(record.source as u8);
            frames.extend_from_slice(&len.to_le_bytes());
            frames.extend_from_slice(&record.bytes);
        }
        let mut file = match self.file.take() {
            Some(file) => file,
            None => self.begin()?,
        };
        let Some(segment) = self.segments.back_mut() else { return Err(io::ErrorKind::NotFound.into()) };
        if let Err(error) = file.write_all(&frames) {
            file.set_len(segment.bytes)?;
            self.file = Some(file);
            return Err(error);
        }
        let written = frames.len() as u64;
        segment.bytes += written;
        segment.next += records.len() as u64;
        (self.next, self.at) = (segment.next, self.at + written);
        if segment.bytes < self.limits.file {
            self.file = Some(file);
        }
        Ok(())
    }

    /// Begins a file.
    fn begin(&mut self) -> io::Result<File> {
        fs::create_dir_all(&self.dir)?;
        let file = File::options().create(true).append(true).open(self.path(self.next))?;
        file.set_len(0)?;
        self.segments.push_back(Segment { first: self.next, next: self.next, bytes: 0, at: self.at });
        Ok(file)
    }

    /// So many records cannot be kept: their numbers are missing.
    pub(super) fn lose(&mut self, records: u64) {
        self.next += records;
        self.file = None;
    }

    /// The controller has everything below `number`. The last file stays, for its numbers.
    pub(super) fn forget(&mut self, number: u64) {
        while self.segments.len() > 1 && self.segments.front().is_some_and(|segment| segment.next <= number) {
            self.remove(0);
        }
    }

    /// Makes room: the oldest file behind the first part goes. False if there is none that may go.
    pub(super) fn drop_middle(&mut self) -> bool {
        let last = self.segments.len().saturating_sub(1);
        let head = self.limits.head;
        let middle = self.segments.iter().take(last).position(|segment| segment.at >= head);
        let found = middle.or((last > 0).then_some(0));
        found.map(|index| self.remove(index)).is_some()
    }

    fn remove(&mut self, index: usize) {
        if let Some(segment) = self.segments.remove(index) {
            // What cannot be removed is removed with the member's folder.
            let _ = fs::remove_file(self.path(segment.first));
        }
    }

    /// Reads on from `cursor`, at most `most` bytes of records, and moves it. A longer record comes `in_parts`, or not.
    pub(super) fn read(&self, cursor: &mut Cursor, most: usize, in_parts: bool) -> io::Result<Taken> {
        let Some(segment) = self.segments.iter().find(|segment| segment.next > cursor.number) else {
            return Ok(Taken::Nothing);
        };
        if segment.first > cursor.number {
            return Ok(Taken::Gap(segment.first));
        }
        let path = self.path(segment.first);
        let offset = match cursor.place {
            Some((first, offset)) if first == segment.first => offset,
            _ => {
                cursor.from = 0;
                offset_of(&path, cursor.number - segment.first)?
            }
        };
        let file = File::open(&path)?;
        if cursor.from > 0 {
            return rest_of_record(&file, cursor, (segment.first, offset), most);
        }
        let want = usize::try_from(segment.bytes - offset).unwrap_or(usize::MAX).min(most + FRAME);
        let mut block = vec![0; want];
        file.read_exact_at(&mut block, offset)?;
        let (mut records, mut used) = (Vec::new(), 0);
        while let Some((record, size)) = whole_frame(&block[used..])? {
            records.push(record);
            used += size;
        }
        let more = records.is_empty();
        if more && !in_parts {
            return Ok(Taken::TooLong);
        }
        if more {
            let source = source(block[0])?;
            records.push(LogRecord { source, bytes: block.split_off(FRAME) });
            cursor.from = u32::try_from(want - FRAME).map_err(io::Error::other)?;
        } else {
            cursor.number += records.len() as u64;
        }
        cursor.place = Some((segment.first, offset + used as u64));
        Ok(Taken::Records { records, more })
    }

    /// Removes everything.
    pub(super) fn destroy(&mut self) {
        self.file = None;
        self.segments.clear();
        match fs::remove_dir_all(&self.dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(path = %self.dir.display(), %error, "log records stay behind");
            }
            _ => {}
        }
    }

    fn path(&self, first: u64) -> PathBuf {
        self.dir.join(format!("{first:020}"))
    }
}

/// What is left of the record at `place`, of which `cursor.from` bytes were read.
fn rest_of_record(file: &File, cursor: &mut Cursor, place: (u64, u64), most: usize) -> io::Result<Taken> {
    let mut frame = [0; FRAME];
    file.read_exact_at(&mut frame, place.1)?;
    let (source, len) = frame_head(frame)?;
    let left = len.saturating_sub(cursor.from as usize);
    let mut bytes = vec![0; left.min(most)];
    file.read_exact_at(&mut bytes, place.1 + FRAME as u64 + u64::from(cursor.from))?;
    let more = left > bytes.len();
    if more {
        cursor.from += u32::try_from(bytes.len()).map_err(io::Error::other)?;
        cursor.place = Some(place);
    } else {
        *cursor = Cursor { number: cursor.number + 1, from: 0, place: Some((place.0, place.1 + (FRAME + len) as u64)) };
    }
    Ok(Taken::Records { records: vec![LogRecord { source, bytes }], more })
}

fn frame_head(frame: [u8; FRAME]) -> io::Result<(LogSource, usize)> {
    let [kind, len @ ..] = frame;
    Ok((source(kind)?, u32::from_le_bytes(len) as usize))
}

/// The record at the beginning of `block` and its size with its frame, if all of it is there.
fn whole_frame(block: &[u8]) -> io::Result<Option<(LogRecord, usize)>> {
    let Some((frame, rest)) = block.split_first_chunk::<FRAME>() else { return Ok(None) };
    let (source, len) = frame_head(*frame)?;
    Ok(rest.get(..len).map(|bytes| (LogRecord { source, bytes: bytes.to_vec() }, FRAME + len)))
}

fn source(byte: u8) -> io::Result<LogSource> {
    match byte {
        0 => Ok(LogSource::Stdout),
        1 => Ok(LogSource::Stderr),
        2 => Ok(LogSource::Agent),
        other => Err(io::Error::other(format!("a log record of stream {other}"))),
    }
}

/// Where the record begins that has `skip` records before it in the file.
fn offset_of(path: &Path, skip: u64) -> io::Result<u64> {
    let mut file = BufReader::new(File::open(path)?);
    let mut offset = 0;
    for _ in 0..skip {
        let mut frame = [0; FRAME];
        file.read_exact(&mut frame)?;
        let (_, len) = frame_head(frame)?;
        file.seek_relative(i64::try_from(len).map_err(io::Error::other)?)?;
        offset += (FRAME + len) as u64;
    }
    Ok(offset)
}

/// How many whole records a file holds, and their bytes; what is behind them is cut off.
fn whole_records(path: &Path) -> io::Result<(u64, u64)> {
    let kept = fs::read(path)?;
    let (mut records, mut used) = (0, 0);
    while let Some((_, size)) = whole_frame(&kept[used..]).ok().flatten() {
        records += 1;
        used += size;
    }
    if used < kept.len() {
        File::options().write(true).open(path)?.set_len(used as u64)?;
    }
    Ok((records, used as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { file: 40, head: 60 };

    fn record(text: &str) -> LogRecord {
        LogRecord { source: LogSource::Stdout, bytes: text.as_bytes().to_vec() }
    }

    /// Everything from `number` on: numbers are counted, gaps shown.
    fn all(spool: &Spool, number: u64, most: usize) -> Vec<String> {
        let (mut cursor, mut told) = (Cursor::at(number), Vec::new());
        loop {
            match spool.read(&mut cursor, most, true).unwrap() {
                Taken::Nothing | Taken::TooLong => return told,
                Taken::Gap(upto) => {
                    told.push(format!("{}..{upto} dropped", cursor.number));
                    cursor = Cursor::at(upto);
                }
                Taken::Records { records, more } => {
                    let texts = records.into_iter().map(|record| String::from_utf8(record.bytes).unwrap());
                    told.extend(texts.map(|text| if more { format!("{text}..") } else { text }));
                }
            }
        }
    }

    #[test]
    fn records_are_read_in_order_over_files_and_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path().join("m"), LIMITS).unwrap();
        let texts: Vec<String> = (0..20).map(|n| format!("record {n}")).collect();
        for text in &texts {
            spool.append(&[record(text)]).unwrap();
        }
        assert_eq!(all(&spool, 0, 1_000), texts);
        assert_eq!(all(&spool, 7, 12), texts[7..]);
        let spool = Spool::open(dir.path().join("m"), LIMITS).unwrap();
        assert_eq!((spool.next(), all(&spool, 13, 1_000)), (20, texts[13..].to_vec()));
    }

    #[test]
    fn a_record_longer_than_may_go_at_once_comes_in_parts() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path().join("m"), LIMITS).unwrap();
        spool.append(&[record("a"), record("0123456789"), record("b")]).unwrap();
        assert_eq!(all(&spool, 0, 4), ["a", "0123..", "4567..", "89", "b"]);
    }

    #[test]
    fn when_room_is_made_the_first_part_and_the_newest_stay_and_the_gap_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path().join("m"), LIMITS).unwrap();
        for n in 0..20 {
            spool.append(&[record(&format!("{n:010}"))]).unwrap();
        }
        let before = spool.bytes();
        assert!(spool.drop_middle() && spool.drop_middle());
        assert!(spool.bytes() < before);
        let told = all(&spool, 0, 1_000);
        let gap = told.iter().position(|text| text.contains("dropped")).unwrap();
        assert!(gap >= 4, "the first 60 bytes stay: {told:?}");
        assert_eq!(told.last().unwrap(), "0000000019");
        while spool.drop_middle() {}
        assert_eq!(all(&spool, 0, 1_000).last().unwrap(), "0000000019");
    }

    #[test]
    fn what_the_controller_has_makes_room_and_numbers_go_on() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path().join("m"), LIMITS).unwrap();
        for n in 0..20 {
            spool.append(&[record(&format!("{n:010}"))]).unwrap();
        }
        spool.forget(20);
        assert!(spool.bytes() <= LIMITS.file + 15);
        drop(spool);
        let mut spool = Spool::open(dir.path().join("m"), LIMITS).unwrap();
        assert_eq!(spool.next(), 20);
        spool.lose(3);
        spool.append(&[record("on")]).unwrap();
        assert_eq!(all(&spool, 20, 100), ["20..23 dropped", "on"]);
        spool.destroy();
        assert!(!dir.path().join("m").exists());
    }

    #[test]
    fn what_a_stream_had_kept_after_a_number_is_counted_after_a_restart() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path().join("m"), LIMITS).unwrap();
        let of = |source, text: &str| LogRecord { source, bytes: text.as_bytes().to_vec() };
        for n in 0..9 {
            spool
                .append(&[record(&format!("{n:010}")), of(LogSource::Stderr, "err"), of(LogSource::Agent, "note")])
                .unwrap();
        }
        let spool = Spool::open(dir.path().join("m"), LIMITS).unwrap();
        for (source, first, bytes) in [
            (LogSource::Stdout, 0, 90),
            (LogSource::Stdout, 21, 20),
            (LogSource::Stderr, 22, 6),
            (LogSource::Stderr, 99, 0),
        ] {
            assert_eq!(spool.bytes_since(source, first).unwrap(), bytes, "{source:?} {first}");
        }
    }

    #[test]
    fn a_record_that_a_crash_tore_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(dir.path().join("m"), LIMITS).unwrap();
        spool.append(&[record("whole")]).unwrap();
        let path = spool.path(0);
        let mut kept = fs::read(&path).unwrap();
        kept.extend_from_slice(&[0, 9, 0, 0, 0, b't', b'o']);
        fs::write(&path, kept).unwrap();
        let mut spool = Spool::open(dir.path().join("m"), LIMITS).unwrap();
        spool.append(&[record("next")]).unwrap();
        assert_eq!(all(&spool, 0, 100), ["whole", "next"]);
    }
}
