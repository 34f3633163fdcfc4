//! One member's records on their way to the controller.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use selion_api::agent::{LogChunk, LogRecord, LogSource, MAX_LOG_CHUNK};
use tokio::sync::watch;

use super::spool::{Cursor, Spool, Taken};
use crate::member_key::MemberKey;

/// What the controller said of a member's records.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer {
    /// Number on the wire of the first record that it does not have.
    pub next: u64,
    /// What comes from there on could not be kept.
    pub again: bool,
}

/// One member. Whoever holds the lock may be writing to a slow disk; the link never waits for it.
#[derive(Debug)]
pub(super) struct Member {
    key: MemberKey,
    backlog: Mutex<Backlog>,
    answers: Mutex<Vec<Answer>>,
    /// Changes whenever the controller kept something.
    pub room: watch::Sender<u64>,
}

#[derive(Debug)]
pub(super) struct Backlog {
    spool: Spool,
    /// Number on the wire of the spool's record 0. `None` where an earlier process of this agent may have numbered records
    /// of the member: the controller is asked first where the numbers go on.
    base: Option<u64>,
    /// It was asked so on this link.
    asked: bool,
    cursor: Cursor,
    /// The controller has the spool's records below this number.
    acked: u64,
    /// The controller could not keep them; nothing is sent before [`Backlog::retry`].
    refused: bool,
    /// Nobody acknowledged anything for long: whoever prints does not wait.
    stalled: bool,
    /// The command is ending, or has ended: the same, for good.
    hasty: bool,
    closed: bool,
    /// Its end was sent on this link.
    end_sent: bool,
}

impl Member {
    pub(super) fn new(key: MemberKey, spool: Spool, base: Option<u64>, closed: bool) -> Self {
        let backlog = Backlog {
            spool,
            base,
            asked: false,
            cursor: Cursor::default(),
            acked: 0,
            refused: false,
            stalled: false,
            hasty: false,
            closed,
            end_sent: false,
        };
        Self { key, backlog: Mutex::new(backlog), answers: Mutex::default(), room: watch::Sender::new(0) }
    }

    /// Changes the backlog, and what the controller said of it meanwhile is taken in.
    pub(super) fn with<T>(&self, change: impl FnOnce(&mut Backlog) -> T) -> T {
        let mut backlog = self.backlog.lock().unwrap_or_else(PoisonError::into_inner);
        self.take_in(&mut backlog);
        let told = change(&mut backlog);
        drop(backlog);
        self.settle();
        told
    }

    /// The same, unless somebody is at it.
    pub(super) fn try_with<T>(&self, change: impl FnOnce(&mut Backlog) -> T) -> Option<T> {
        let mut backlog = self.try_lock()?;
        self.take_in(&mut backlog);
        let told = change(&mut backlog);
        drop(backlog);
        self.settle();
        Some(told)
    }

    /// Notes what the controller said; it counts at once, or as soon as nobody is at the backlog.
    pub(super) fn answered(&self, answer: Answer) {
        self.answers().push(answer);
        self.settle();
    }

    fn settle(&self) {
        // Who holds the lock settles after it, so that no answer stays behind.
        while !self.answers().is_empty() {
            let Some(mut backlog) = self.try_lock() else { return };
            self.take_in(&mut backlog);
        }
    }

    fn take_in(&self, backlog: &mut Backlog) {
        let answers = std::mem::take(&mut *self.answers());
        for answer in answers {
            if backlog.answered(answer) {
                self.room.send_modify(|version| *version += 1);
            }
        }
    }

    fn answers(&self) -> MutexGuard<'_, Vec<Answer>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, Backlog>> {
        match self.backlog.try_lock() {
            Ok(backlog) => Some(backlog),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(super) fn key(&self) -> MemberKey {
        self.key
    }

    /// The next chunk that was not taken since the last rewind, or the question where the numbers go on. A long record is
    /// begun only if it may come `in_parts`.
    pub(super) fn chunk(&self, in_parts: bool) -> Option<LogChunk> {
        self.try_with(|backlog| backlog.chunk(self.key, in_parts)).flatten()
    }
}

impl Backlog {
    /// Keeps the records within `most` bytes; the number of the next one. Where they do not fit, they come back, if whoever prints
    /// may wait; else the oldest behind the first part make room.
    pub(super) fn push(&mut self, records: Vec<LogRecord>, most: u64, may_wait: bool) -> Result<u64, Vec<LogRecord>> {
        let may_wait = may_wait && !self.stalled && !self.hasty;
        let size: u64 = records.iter().map(|record| record.bytes.len() as u64).sum();
        while self.spool.bytes() + size > most {
            if may_wait {
                return Err(records);
            }
            if !self.spool.drop_middle() {
                break;
            }
        }
        let Err(error) = self.spool.append(&records) else { return Ok(self.spool.next()) };
        if may_wait {
            return Err(records);
        }
        // A full disk: what makes room for the newest is what lies in the middle.
        if !self.spool.drop_middle() || self.spool.append(&records).is_err() {
            tracing::warn!(%error, lost = records.len(), "log records cannot be kept");
            self.spool.lose(records.len() as u64);
        }
        Ok(self.spool.next())
    }

    /// Bytes of records from number `first` on that came from `source`. What cannot be read counts nothing.
    pub(super) fn kept_since(&self, source: LogSource, first: u64) -> u64 {
        self.spool.bytes_since(source, first).unwrap_or_default()
    }

    /// Nobody took anything for long.
    pub(super) fn stall(&mut self) {
        self.stalled = true;
    }

    /// From now on nobody who prints waits.
    pub(super) fn hasten(&mut self) {
        self.hasty = true;
    }

    /// Its command runs on.
    pub(super) fn reopen(&mut self) {
        self.closed = false;
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    /// Its numbers are known to begin at 0.
    pub(super) fn begin(&mut self) {
        self.base.get_or_insert(0);
    }

    /// True if something was kept.
    fn answered(&mut self, Answer { next, again }: Answer) -> bool {
        if again {
            self.rewind();
            self.refused = true;
        }
        let base = match self.base {
            Some(base) => base,
            // A question that could not be answered stays one.
            None if again => return false,
            None => *self.base.insert(next),
        };
        let kept = next.saturating_sub(base).min(self.spool.next());
        let more = kept > self.acked;
        if more {
            self.acked = kept;
            self.stalled = false;
            self.spool.forget(kept);
        }
        if again || self.cursor.number < self.acked {
            self.cursor = Cursor::at(self.acked);
        }
        more
    }

    pub(super) fn rewind(&mut self) {
        self.cursor = Cursor::at(self.acked);
        self.asked = false;
        self.end_sent = false;
    }

    pub(super) fn retry(&mut self) {
        self.refused = false;
    }

    /// Everything is with the controller, and nothing follows.
    pub(super) fn is_over(&self) -> bool {
        let all = self.acked == self.spool.next();
        self.closed && all && (self.end_sent || self.spool.next() == 0)
    }

    pub(super) fn destroy(&mut self) {
        self.spool.destroy();
    }

    fn chunk(&mut self, key: MemberKey, in_parts: bool) -> Option<LogChunk> {
        if self.refused {
            return None;
        }
        let MemberKey { lease, attempt, member } = key;
        let empty =
            LogChunk { lease, attempt, member, first: 0, from: 0, more: false, records: Vec::new(), end: false };
        let Some(base) = self.base else {
            let asks = self.spool.next() > 0 && !std::mem::replace(&mut self.asked, true);
            return asks.then_some(empty);
        };
        let (first, from) = (base.saturating_add(self.cursor.number), self.cursor.from);
        match self.spool.read(&mut self.cursor, MAX_LOG_CHUNK, in_parts) {
            Ok(Taken::Records { records, more }) => {
                let end = self.ends_here();
                Some(LogChunk { first, from, more, records, end, ..empty })
            }
            Ok(Taken::Gap(upto)) => {
                let note = left_out(upto - self.cursor.number);
                self.cursor = Cursor::at(upto);
                Some(LogChunk { first: base.saturating_add(upto - 1), records: vec![note], ..empty })
            }
            Ok(Taken::TooLong) => None,
            Ok(Taken::Nothing) if self.cursor.number < self.spool.next() => {
                // The newest could not be kept.
                let note = left_out(self.spool.next() - self.cursor.number);
                self.cursor = Cursor::at(self.spool.next());
                Some(LogChunk { first: base.saturating_add(self.spool.next() - 1), records: vec![note], ..empty })
            }
            Ok(Taken::Nothing) => {
                let tell = self.closed && self.spool.next() > 0 && !std::mem::replace(&mut self.end_sent, true);
                tell.then_some(LogChunk { first, end: true, ..empty })
            }
            Err(error) => {
                self.unreadable(&error);
                None
            }
        }
    }

    /// Whether the last record was just taken; the end then goes with it.
    fn ends_here(&mut self) -> bool {
        let ends = self.closed && self.cursor.from == 0 && self.cursor.number == self.spool.next();
        self.end_sent |= ends;
        ends
    }

    /// Records that cannot be read back are passed over.
    fn unreadable(&mut self, error: &io::Error) {
        tracing::warn!(%error, "log records cannot be read and are left out");
        self.spool.destroy();
        self.cursor = Cursor::at(self.cursor.number);
    }
}

/// What stands in the place of records that were dropped.
fn left_out(records: u64) -> LogRecord {
    let text =
        format!("{records} lines were left out here: the pool did not take them, and the node keeps only so much\n");
    LogRecord { source: LogSource::Agent, bytes: text.into_bytes() }
}
