//! Log lines of members on their way to the controller: bounded, numbered, never in the way of the command.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use selion_api::agent::{LogChunk, LogSource};
use tokio::sync::Notify;

use crate::member_key::MemberKey;

/// Most lines of one member that wait to be sent.
const MAX_LINES: usize = 5_000;
/// Most bytes of one member that wait to be sent.
const MAX_BYTES: usize = 1 << 20;
/// Most lines and bytes of one chunk.
const CHUNK_LINES: usize = 256;
const CHUNK_BYTES: usize = 64 << 10;

/// All members' lines. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Logs {
    members: Arc<Mutex<BTreeMap<MemberKey, Backlog>>>,
    wake: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Backlog {
    lines: VecDeque<(LogSource, String)>,
    bytes: usize,
    dropped: u64,
    /// Number of the next line to be sent.
    next: u64,
    closed: bool,
}

impl Backlog {
    fn push(&mut self, source: LogSource, line: String) {
        if self.lines.len() >= MAX_LINES || self.bytes + line.len() > MAX_BYTES {
            self.dropped += 1;
            return;
        }
        self.note_dropped();
        self.bytes += line.len();
        self.lines.push_back((source, line));
    }

    fn note_dropped(&mut self) {
        if self.dropped > 0 {
            let note = format!("{} lines dropped: they came faster than they could be sent", self.dropped);
            self.dropped = 0;
            self.bytes += note.len();
            self.lines.push_back((LogSource::Agent, note));
        }
    }

    /// The next lines of one stream.
    fn chunk(&mut self, key: MemberKey) -> Option<LogChunk> {
        if self.lines.is_empty() {
            self.note_dropped();
        }
        let (source, _) = *self.lines.front().map(|(source, line)| (source, line)).as_ref()?;
        let source = *source;
        let (mut lines, mut bytes) = (Vec::new(), 0);
        while let Some((_, line)) = self.lines.pop_front_if(|(next, _)| *next == source) {
            self.bytes -= line.len();
            bytes += line.len();
            lines.push(line);
            if lines.len() >= CHUNK_LINES || bytes >= CHUNK_BYTES {
                break;
            }
        }
        let first_line = self.next;
        self.next += lines.len() as u64;
        Some(LogChunk { lease: key.lease, attempt: key.attempt, member: key.member, source, first_line, lines })
    }
}

impl Logs {
    fn members(&self) -> MutexGuard<'_, BTreeMap<MemberKey, Backlog>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a line of `key`. Never waits: over the bound it is dropped and counted, and a line says so later.
    pub fn push(&self, key: MemberKey, source: LogSource, line: String) {
        self.members().entry(key).or_default().push(source, line);
        self.wake.notify_one();
    }

    /// No line of `key` follows; it is forgotten once all are sent.
    pub fn close(&self, key: MemberKey) {
        if let Some(backlog) = self.members().get_mut(&key) {
            backlog.closed = true;
        }
        self.wake.notify_one();
    }

    /// Takes up to `most` chunks, members in turn. What is taken and not delivered is lost: log lines are told once.
    #[must_use]
    pub fn take(&self, most: usize) -> Vec<LogChunk> {
        let mut members = self.members();
        let mut chunks = Vec::new();
        loop {
            let before = chunks.len();
            for (key, backlog) in members.iter_mut() {
                if chunks.len() < most {
                    chunks.extend(backlog.chunk(*key));
                }
            }
            if chunks.len() == before || chunks.len() >= most {
                break;
            }
        }
        members.retain(|_, backlog| !(backlog.closed && backlog.lines.is_empty() && backlog.dropped == 0));
        chunks
    }

    /// Resolves when there may be new lines.
    pub async fn changed(&self) {
        self.wake.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use selion_api::LeaseId;

    use super::*;

    const KEY: MemberKey = MemberKey { lease: LeaseId { seq: 1, index: 0 }, attempt: 0, member: 0 };

    #[test]
    fn lines_are_numbered_over_all_streams() {
        let logs = Logs::default();
        for (source, line) in [(LogSource::Stdout, "a"), (LogSource::Stdout, "b"), (LogSource::Stderr, "c")] {
            logs.push(KEY, source, line.into());
        }
        let chunks = logs.take(10);
        let told: Vec<_> = chunks.iter().map(|c| (c.source, c.first_line, c.lines.join(","))).collect();
        assert_eq!(told, [(LogSource::Stdout, 0, "a,b".into()), (LogSource::Stderr, 2, "c".into())]);
        logs.push(KEY, LogSource::Stdout, "d".into());
        assert_eq!(logs.take(10)[0].first_line, 3);
    }

    #[test]
    fn a_flood_is_bounded_and_says_what_was_dropped() {
        let logs = Logs::default();
        for at in 0..MAX_LINES + 7 {
            logs.push(KEY, LogSource::Stdout, at.to_string());
        }
        logs.close(KEY);
        let chunks = logs.take(usize::MAX);
        let lines: usize = chunks.iter().map(|chunk| chunk.lines.len()).sum();
        assert_eq!(lines, MAX_LINES + 1);
        let last = chunks.last().unwrap();
        assert_eq!(last.source, LogSource::Agent);
        assert!(last.lines[0].starts_with("7 lines dropped"), "{:?}", last.lines);
        assert!(logs.members().is_empty(), "a closed member is forgotten once told");
    }

    #[test]
    fn no_chunk_is_larger_than_a_message_may_be() {
        let logs = Logs::default();
        for _ in 0..100 {
            logs.push(KEY, LogSource::Stdout, "x".repeat(8 << 10));
        }
        let chunks = logs.take(usize::MAX);
        assert!(chunks.len() > 1);
        for chunk in chunks {
            assert!(chunk.lines.iter().map(String::len).sum::<usize>() < CHUNK_BYTES + (8 << 10));
        }
    }
}
