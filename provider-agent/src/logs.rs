//! Log lines of members until the controller has kept them: bounded, numbered, never in the way of the command.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use selion_api::agent::{LogChunk, LogSource};
use tokio::sync::Notify;

use crate::member_key::MemberKey;

/// Most lines of one member that are kept until the controller acknowledges them.
const MAX_LINES: usize = 5_000;
/// Most bytes of one member that are kept until then.
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
    /// Lines that the controller has not acknowledged, in order.
    lines: VecDeque<(LogSource, String)>,
    bytes: usize,
    /// Number of the first of them. `None` where an earlier process of this agent may have numbered lines of the
    /// member: the controller is asked first where the numbers go on.
    base: Option<u64>,
    /// It was asked so on this link.
    asked: bool,
    /// How many of `lines` were sent on this link.
    sent: usize,
    /// The controller could not keep them; nothing is sent before [`Logs::retry`].
    refused: bool,
    dropped: u64,
    /// The newest line is a note of dropped ones.
    noted: bool,
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
        self.noted = false;
    }

    fn note_dropped(&mut self) {
        if self.dropped > 0 {
            let note = format!("{} lines dropped: they came faster than the controller took them", self.dropped);
            self.dropped = 0;
            self.bytes += note.len();
            self.lines.push_back((LogSource::Agent, note));
            self.noted = true;
        }
    }

    /// The next lines of one stream that were not sent on this link, or the question where the numbers go on.
    fn chunk(&mut self, key: MemberKey) -> Option<LogChunk> {
        if self.refused {
            return None;
        }
        let MemberKey { lease, attempt, member } = key;
        let Some(base) = self.base else {
            let asks = !self.lines.is_empty() && !std::mem::replace(&mut self.asked, true);
            let source = LogSource::Agent;
            return asks.then(|| LogChunk { lease, attempt, member, source, first_line: 0, lines: Vec::new() });
        };
        // Beyond the bound there is room for one note, not for one at every turn.
        if self.sent == self.lines.len() && (self.lines.is_empty() || !self.noted) {
            self.note_dropped();
        }
        let source = self.lines.get(self.sent)?.0;
        let (mut lines, mut bytes) = (Vec::new(), 0);
        let unsent = self.lines.range(self.sent..).take_while(|(next, _)| *next == source);
        for (_, line) in unsent.take(CHUNK_LINES) {
            bytes += line.len();
            lines.push(line.clone());
            if bytes >= CHUNK_BYTES {
                break;
            }
        }
        let first_line = base.saturating_add(self.sent as u64);
        self.sent += lines.len();
        Some(LogChunk { lease, attempt, member, source, first_line, lines })
    }

    fn acknowledge(&mut self, next: u64) {
        let base = *self.base.get_or_insert(next);
        let kept = usize::try_from(next.saturating_sub(base)).unwrap_or(usize::MAX).min(self.lines.len());
        self.bytes -= self.lines.drain(..kept).map(|(_, line)| line.len()).sum::<usize>();
        self.sent = self.sent.saturating_sub(kept);
        self.base = Some(base.max(next));
    }

    fn rewind(&mut self) {
        self.sent = 0;
        self.asked = false;
    }

    fn is_over(&self) -> bool {
        self.closed && self.lines.is_empty() && self.dropped == 0
    }
}

impl Logs {
    fn members(&self) -> MutexGuard<'_, BTreeMap<MemberKey, Backlog>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins `key`, of which no process of this agent pushed a line yet: its lines are numbered from 0. A member that
    /// was not opened has its numbers go on where the controller says that they end.
    pub fn open(&self, key: MemberKey) {
        self.members().entry(key).or_default().base.get_or_insert(0);
    }

    /// Adds a line of `key`. Never waits: over the bound it is dropped and counted, and a line says so later.
    pub fn push(&self, key: MemberKey, source: LogSource, line: String) {
        self.members().entry(key).or_default().push(source, line);
        self.wake.notify_one();
    }

    /// No line of `key` follows; it is forgotten once all are acknowledged.
    pub fn close(&self, key: MemberKey) {
        self.change(key, |backlog| backlog.closed = true);
        self.wake.notify_one();
    }

    /// Up to `most` chunks that were not taken since the last [`rewind`](Self::rewind), members in turn. Their lines
    /// are kept until they are acknowledged. If more is left, [`changed`](Self::changed) resolves at once.
    #[must_use]
    pub fn take(&self, most: usize) -> Vec<LogChunk> {
        let mut members = self.members();
        let mut busy: Vec<_> = members.iter_mut().collect();
        let mut chunks = Vec::new();
        while !busy.is_empty() && chunks.len() < most {
            busy.retain_mut(|(key, backlog)| {
                if chunks.len() >= most {
                    return true;
                }
                let chunk = backlog.chunk(**key);
                let more = chunk.is_some();
                chunks.extend(chunk);
                more
            });
        }
        if !busy.is_empty() {
            self.wake.notify_one();
        }
        chunks
    }

    /// The controller keeps the lines of `key` below number `next`, or never will: they are forgotten.
    pub fn acknowledge(&self, key: MemberKey, next: u64) {
        let answered = self.change(key, |backlog| {
            let asked = backlog.base.is_none();
            backlog.acknowledge(next);
            asked
        });
        if answered == Some(true) {
            self.wake.notify_one();
        }
    }

    /// The controller could not keep the lines of `key` from number `next` on: they are sent again after
    /// [`retry`](Self::retry).
    pub fn refused(&self, key: MemberKey, next: u64) {
        self.change(key, |backlog| {
            // A question that could not be answered stays one.
            if backlog.base.is_some() {
                backlog.acknowledge(next);
            }
            backlog.rewind();
            backlog.refused = true;
        });
    }

    /// What was refused is sent again.
    pub fn retry(&self) {
        self.members().values_mut().for_each(|backlog| backlog.refused = false);
    }

    /// A new link: everything that is not acknowledged is sent again.
    pub fn rewind(&self) {
        for backlog in self.members().values_mut() {
            backlog.rewind();
            backlog.refused = false;
        }
    }

    /// Resolves when there may be something to take.
    pub async fn changed(&self) {
        self.wake.notified().await;
    }

    /// Changes what is kept of `key`, if anything is, and forgets it once it is over.
    fn change<T>(&self, key: MemberKey, change: impl FnOnce(&mut Backlog) -> T) -> Option<T> {
        let mut members = self.members();
        let Entry::Occupied(mut member) = members.entry(key) else { return None };
        let told = change(member.get_mut());
        if member.get().is_over() {
            member.remove();
        }
        Some(told)
    }
}

#[cfg(test)]
mod tests {
    use selion_api::LeaseId;

    use super::*;

    const KEY: MemberKey = MemberKey { lease: LeaseId { seq: 1, index: 0 }, attempt: 0, member: 0 };

    /// An opened member with these lines on its standard output.
    fn said(lines: &[&str]) -> Logs {
        let logs = Logs::default();
        logs.open(KEY);
        lines.iter().for_each(|line| logs.push(KEY, LogSource::Stdout, (*line).into()));
        logs
    }

    /// What the next link, or the rest of this one, is sent: number of the first line, lines.
    fn told(logs: &Logs) -> Vec<(u64, String)> {
        logs.take(usize::MAX).iter().map(|chunk| (chunk.first_line, chunk.lines.join(","))).collect()
    }

    fn is_forgotten(logs: &Logs) -> bool {
        logs.members().is_empty()
    }

    #[test]
    fn lines_are_numbered_over_all_streams() {
        let logs = said(&["a", "b"]);
        logs.push(KEY, LogSource::Stderr, "c".into());
        let chunks = logs.take(10);
        let told: Vec<_> = chunks.iter().map(|c| (c.source, c.first_line, c.lines.join(","))).collect();
        assert_eq!(told, [(LogSource::Stdout, 0, "a,b".into()), (LogSource::Stderr, 2, "c".into())]);
        logs.push(KEY, LogSource::Stdout, "d".into());
        assert_eq!(logs.take(10)[0].first_line, 3);
    }

    #[test]
    fn what_was_not_acknowledged_is_sent_again_on_the_next_link_with_the_same_numbers() {
        let logs = said(&["a", "b", "c"]);
        assert_eq!(told(&logs), [(0, "a,b,c".into())]);
        assert_eq!(told(&logs), [], "once on a link");
        logs.acknowledge(KEY, 1);
        assert_eq!(told(&logs), [], "nor after an acknowledgement");
        logs.rewind();
        assert_eq!(told(&logs), [(1, "b,c".into())]);
        logs.rewind();
        logs.push(KEY, LogSource::Stdout, "d".into());
        // The controller had them: it is the acknowledgement that was lost.
        logs.acknowledge(KEY, 3);
        assert_eq!(told(&logs), [(3, "d".into())]);
    }

    #[test]
    fn a_member_that_ended_is_forgotten_once_all_its_lines_are_acknowledged_and_not_before() {
        let logs = said(&["a", "b"]);
        logs.close(KEY);
        assert_eq!(told(&logs).len(), 1);
        logs.acknowledge(KEY, 1);
        assert!(!is_forgotten(&logs));
        logs.acknowledge(KEY, 2);
        assert!(is_forgotten(&logs));
        let logs = said(&["a"]);
        assert_eq!(told(&logs).len(), 1);
        logs.acknowledge(KEY, 1);
        assert!(!is_forgotten(&logs), "more may follow");
        logs.close(KEY);
        assert!(is_forgotten(&logs));
    }

    #[test]
    fn a_flood_is_bounded_and_says_what_was_dropped() {
        let logs = said(&[]);
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
        logs.acknowledge(KEY, MAX_LINES as u64 + 1);
        assert!(is_forgotten(&logs), "a closed member is forgotten once kept");
    }

    #[test]
    fn while_nobody_acknowledges_neither_lines_nor_notes_grow_beyond_the_bound() {
        let logs = said(&[]);
        let line = "x".repeat(8 << 10);
        for _ in 0..1_000 {
            logs.push(KEY, LogSource::Stdout, line.clone());
            // Sent, even over new links; but not kept by anybody.
            logs.rewind();
            assert!(!told(&logs).is_empty());
        }
        let (lines, bytes) = {
            let members = logs.members();
            (members[&KEY].lines.len(), members[&KEY].bytes)
        };
        assert!(bytes <= MAX_BYTES + 1_000, "{bytes}");
        assert_eq!(lines, MAX_BYTES / line.len() + 1, "full, and one note");
        logs.acknowledge(KEY, lines as u64);
        let [(at, note)] = &told(&logs)[..] else { panic!("the note of those dropped after the first note") };
        assert_eq!(*at, lines as u64);
        let after_the_first = 1_000 - MAX_BYTES / line.len() - 1;
        assert!(note.starts_with(&format!("{after_the_first} lines dropped")), "{note}");
        assert_eq!(logs.members()[&KEY].bytes, note.len());
    }

    #[test]
    fn what_the_controller_could_not_keep_is_sent_again_at_the_next_try_only() {
        let logs = said(&["a", "b", "c"]);
        assert_eq!(told(&logs).len(), 1);
        logs.refused(KEY, 1);
        logs.push(KEY, LogSource::Stdout, "d".into());
        assert_eq!(told(&logs), []);
        logs.retry();
        assert_eq!(told(&logs), [(1, "b,c,d".into())]);
    }

    #[test]
    fn a_member_of_an_earlier_process_goes_on_where_the_controller_says() {
        let logs = Logs::default();
        logs.push(KEY, LogSource::Agent, "restarted".into());
        logs.close(KEY);
        assert_eq!(told(&logs), [(0, String::new())], "it is asked first");
        assert_eq!(told(&logs), []);
        logs.rewind();
        assert_eq!(told(&logs), [(0, String::new())], "and again, if the answer was lost");
        logs.refused(KEY, 0);
        logs.retry();
        assert_eq!(told(&logs), [(0, String::new())], "or could not be given");
        logs.acknowledge(KEY, 7);
        assert_eq!(told(&logs), [(7, "restarted".into())]);
        logs.acknowledge(KEY, 8);
        assert!(is_forgotten(&logs));
    }

    #[tokio::test]
    async fn members_take_turns_and_what_a_burst_leaves_behind_wakes_the_link() {
        let logs = said(&["a"]);
        let other = MemberKey { member: 1, ..KEY };
        logs.open(other);
        logs.push(KEY, LogSource::Stderr, "b".into());
        logs.push(other, LogSource::Stdout, "c".into());
        logs.changed().await;
        let first: Vec<_> = logs.take(2).into_iter().map(|chunk| chunk.lines.concat()).collect();
        assert_eq!(first, ["a", "c"]);
        logs.changed().await;
        assert_eq!(told(&logs), [(1, "b".into())]);
    }

    #[test]
    fn no_chunk_is_larger_than_a_message_may_be() {
        let logs = said(&[]);
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
