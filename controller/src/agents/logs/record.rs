//! A record as it lies in a file.

use std::collections::BTreeMap;

use base64::Engine;
use selion_api::agent::LogSource;
use selion_api::rest::LogLine;

/// Bytes before a record's own: length, attempt, member, number, stream.
const FRAME: usize = 4 + 4 + 2 + 8 + 1;
/// Bytes of a file's beginning before its list of members.
const HEAD: usize = 8 + 2;
/// Bytes of each member in that list.
const MEMBER: usize = 2 + 4 + 8;

/// What a member printed: a line with its end, or a piece of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which run.
    pub attempt: u32,
    /// Rank of the member.
    pub member: u16,
    /// Number in the member's run.
    pub number: u64,
    /// Stream.
    pub source: LogSource,
    /// As printed.
    pub bytes: Vec<u8>,
}

impl Record {
    /// As it is shown. Bytes that are no text go along as they are.
    #[must_use]
    pub fn line(&self) -> LogLine {
        let body = self.bytes.strip_suffix(b"\n");
        let partial = body.is_none();
        let body = body.unwrap_or(&self.bytes);
        let text = String::from_utf8_lossy(body);
        let is_text = matches!(text, std::borrow::Cow::Borrowed(_));
        let bytes_base64 = (!is_text).then(|| base64::engine::general_purpose::STANDARD.encode(body));
        LogLine {
            attempt: self.attempt,
            member: self.member,
            line: self.number,
            source: self.source,
            text: text.into_owned(),
            partial,
            bytes_base64,
        }
    }

    pub(super) fn write(&self, into: &mut Vec<u8>) {
        // A record has at most MAX_RECORD bytes.
        let len = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        into.extend_from_slice(&len.to_le_bytes());
        into.extend_from_slice(&self.attempt.to_le_bytes());
        into.extend_from_slice(&self.member.to_le_bytes());
        into.extend_from_slice(&self.number.to_le_bytes());
        into.push(self.source as u8);
        into.extend_from_slice(&self.bytes);
    }

    /// The record at the beginning of `bytes` and how many bytes it takes; `None` if it is not all there.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let mut at = Bytes(bytes);
        let len = u32::from_le_bytes(at.take()?) as usize;
        let (attempt, member) = (u32::from_le_bytes(at.take()?), u16::from_le_bytes(at.take()?));
        let number = u64::from_le_bytes(at.take()?);
        let source = match at.take::<1>()? {
            [0] => LogSource::Stdout,
            [1] => LogSource::Stderr,
            _ => LogSource::Agent,
        };
        let bytes = at.0.get(..len)?.to_vec();
        Some((Self { attempt, member, number, source, bytes }, FRAME + len))
    }
}

/// What a file begins with: what was before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Head {
    /// Records of the lease in the files before.
    pub before: u64,
    /// The latest run of each member, and the number of its next record.
    pub next: BTreeMap<u16, (u32, u64)>,
}

impl Head {
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.before.to_le_bytes().to_vec();
        // Ranks are 16 bits wide.
        bytes.extend_from_slice(&u16::try_from(self.next.len()).unwrap_or(u16::MAX).to_le_bytes());
        for (member, (attempt, next)) in &self.next {
            bytes.extend_from_slice(&member.to_le_bytes());
            bytes.extend_from_slice(&attempt.to_le_bytes());
            bytes.extend_from_slice(&next.to_le_bytes());
        }
        bytes
    }

    /// The head of a file, and how many bytes it takes; `None` if it is not all there.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let mut at = Bytes(bytes);
        let (before, members) = (u64::from_le_bytes(at.take()?), u16::from_le_bytes(at.take()?));
        let mut next = BTreeMap::new();
        for _ in 0..members {
            let member = u16::from_le_bytes(at.take()?);
            next.insert(member, (u32::from_le_bytes(at.take()?), u64::from_le_bytes(at.take()?)));
        }
        Some((Self { before, next }, HEAD + usize::from(members) * MEMBER))
    }
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(bytes: &[u8]) -> Record {
        Record { attempt: 2, member: 3, number: 4, source: LogSource::Stderr, bytes: bytes.to_vec() }
    }

    #[test]
    fn a_record_and_a_head_read_back_and_torn_ones_do_not() {
        let one = record(b"a\xff\n");
        let mut bytes = Vec::new();
        one.write(&mut bytes);
        assert_eq!(Record::read(&bytes), Some((one, bytes.len())));
        assert!((0..bytes.len()).all(|cut| Record::read(&bytes[..cut]).is_none()));
        let head = Head { before: 7, next: BTreeMap::from([(0, (1, 5)), (9, (2, 0))]) };
        let bytes = head.bytes();
        assert_eq!(Head::read(&bytes), Some((head, bytes.len())));
        assert!((0..bytes.len()).all(|cut| Head::read(&bytes[..cut]).is_none()));
    }

    #[test]
    fn a_line_has_no_end_a_piece_is_marked_and_bytes_that_are_no_text_go_along() {
        let line = record("één\r\n".as_bytes()).line();
        assert_eq!((line.text.as_str(), line.partial, line.bytes_base64), ("één\r", false, None));
        let piece = record(b"\r 10%").line();
        assert_eq!((piece.text.as_str(), piece.partial), ("\r 10%", true));
        let bytes = record(b"a\xff\n").line();
        assert_eq!((bytes.text.as_str(), bytes.bytes_base64.as_deref()), ("a\u{fffd}", Some("Yf8=")));
    }
}
