//! What members print, until the controller has kept it: numbered, in files of the node, bounded.
//!
//! As long as the controller takes records, whoever prints waits for room: nothing is lost. If it takes none for
//! [`PATIENCE`], the oldest records behind the first part go, so that the first and the newest stay.

mod backlog;
mod spool;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use selion_api::agent::{LogChunk, LogRecord, LogSource};
use tokio::sync::Notify;
use tokio::time::timeout;

use self::backlog::{Answer, Member};
use self::spool::{Limits, Spool};
use crate::member_key::MemberKey;
use crate::staging::blocking;

/// Most bytes of one member on the node's disk.
const MEMBER_BYTES: u64 = 32 << 20;
/// Most bytes of all members together: many of them share it, down to [`LEAST_BYTES`] each.
const ALL_BYTES: u64 = 1 << 30;
/// What each member has in any case.
const LEAST_BYTES: u64 = 4 << 20;
/// A file each, the unit of making room; and what is kept of a member's beginning.
const LIMITS: Limits = Limits { file: 1 << 20, head: 2 << 20 };
/// A member that prints waits so long for a controller that takes nothing.
const PATIENCE: Duration = Duration::from_secs(10);

/// All members' records. Clones share them.
#[derive(Clone, Debug)]
pub struct Logs {
    dir: PathBuf,
    members: Arc<Mutex<BTreeMap<MemberKey, Arc<Member>>>>,
    /// The member whose long record is being sent: one at a time, so that the controller has one to put together.
    in_parts: Arc<Mutex<Option<MemberKey>>>,
    wake: Arc<Notify>,
    patience: Duration,
}

impl Logs {
    /// What an earlier process left in `dir`, which is made; the members of then print no more.
    ///
    /// # Errors
    ///
    /// The file system's.
    pub fn open(dir: &Path) -> io::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let mut members = BTreeMap::new();
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            let key = path.file_name().and_then(|name| name.to_str()).and_then(MemberKey::parse);
            match key.map(|key| Spool::open(path.clone(), LIMITS).map(|spool| (key, spool))) {
                Some(Ok((key, spool))) => drop(members.insert(key, Arc::new(Member::new(key, spool, Some(0), true)))),
                Some(Err(error)) => tracing::warn!(path = %path.display(), %error, "old log records cannot be read"),
                None => tracing::warn!(path = %path.display(), "not a folder of log records"),
            }
        }
        let members = Arc::new(Mutex::new(members));
        let (in_parts, wake) = (Arc::default(), Arc::default());
        Ok(Self { dir: dir.to_owned(), members, in_parts, wake, patience: PATIENCE })
    }

    /// Begins `key`, of which no process of this agent kept anything yet: its records are numbered from 0. For a member
    /// that was not opened the controller says where the numbers go on.
    pub fn open_member(&self, key: MemberKey) {
        if let Some(member) = self.member(key) {
            member.with(|backlog| backlog.begin());
        }
    }

    /// Goes on with `key`, whose command outlived an earlier process of this agent: its numbers go on as well.
    pub fn reopen_member(&self, key: MemberKey) {
        if let Some(member) = self.member(key) {
            member.with(|backlog| {
                backlog.begin();
                backlog.reopen();
            });
        }
    }

    /// Bytes of the records of `key` from number `first` on that came from `source`: what was kept after a stream's place was noted
    /// last.
    #[must_use]
    pub fn kept_since(&self, key: MemberKey, source: LogSource, first: u64) -> u64 {
        self.member(key).map_or(0, |member| member.with(|backlog| backlog.kept_since(source, first)))
    }

    /// Keeps what `key` printed; the number of the record after it. Waits for room as long as the controller takes something,
    /// else for [`PATIENCE`].
    pub async fn push(&self, key: MemberKey, mut records: Vec<LogRecord>) -> u64 {
        // Nothing can be kept, so nothing was.
        let Some(member) = self.member(key) else { return u64::MAX };
        loop {
            let mut room = member.room.subscribe();
            let (writer, most) = (Arc::clone(&member), self.share());
            let kept = blocking(move || writer.with(|backlog| backlog.push(records, most, true))).await;
            self.wake.notify_one();
            match kept {
                Ok(next) => return next,
                Err(back) => records = back,
            }
            if timeout(self.patience, room.changed()).await.is_err() {
                member.with(|backlog| backlog.stall());
            }
        }
    }

    /// Adds a line of the agent's own. Never waits for room.
    pub fn note(&self, key: MemberKey, mut line: String) {
        let Some(member) = self.member(key) else { return };
        line.push('\n');
        let record = LogRecord { source: LogSource::Agent, bytes: line.into_bytes() };
        // What may not wait is kept.
        let _ = member.with(|backlog| backlog.push(vec![record], self.share(), false));
        self.wake.notify_one();
    }

    /// The command of `key` is ending: what it still prints is kept at once, in the place of older records if need be.
    pub fn hasten(&self, key: MemberKey) {
        let member = self.members().get(&key).cloned();
        if let Some(member) = member {
            member.with(|backlog| backlog.hasten());
            member.room.send_modify(|version| *version += 1);
        }
    }

    /// Nothing of `key` follows; it is forgotten once all is acknowledged.
    pub fn close(&self, key: MemberKey) {
        self.change(key, |member| member.with(|backlog| backlog.close()));
        self.wake.notify_one();
    }

    /// Up to `most` chunks that were not taken since the last [`rewind`](Self::rewind), members in turn. Their records are
    /// kept until they are acknowledged. If more is left, [`changed`](Self::changed) resolves at once.
    #[must_use]
    pub fn take(&self, most: usize) -> Vec<LogChunk> {
        let mut busy: Vec<_> = self.members().values().cloned().collect();
        let mut chunks = Vec::new();
        while !busy.is_empty() && chunks.len() < most {
            busy.retain(|member| {
                if chunks.len() >= most {
                    return true;
                }
                let chunk = self.chunk(member);
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

    fn chunk(&self, member: &Member) -> Option<LogChunk> {
        let mut in_parts = self.in_parts();
        let key = member.key();
        let chunk = member.chunk(in_parts.is_none_or(|other| other == key))?;
        if chunk.more {
            *in_parts = Some(key);
        } else if *in_parts == Some(key) {
            *in_parts = None;
        }
        Some(chunk)
    }

    fn in_parts(&self) -> MutexGuard<'_, Option<MemberKey>> {
        self.in_parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The controller keeps the records of `key` below number `next`, or never will: they are forgotten.
    pub fn acknowledge(&self, key: MemberKey, next: u64) {
        self.change(key, |member| member.answered(Answer { next, again: false }));
        self.wake.notify_one();
    }

    /// The controller could not keep the records of `key` from number `next` on: they are sent again after
    /// [`retry`](Self::retry).
    pub fn refused(&self, key: MemberKey, next: u64) {
        self.change(key, |member| member.answered(Answer { next, again: true }));
    }

    /// What was refused is sent again.
    pub fn retry(&self) {
        self.each(backlog::Backlog::retry);
    }

    /// A new link: everything that is not acknowledged is sent again.
    pub fn rewind(&self) {
        *self.in_parts() = None;
        self.each(|backlog| {
            backlog.rewind();
            backlog.retry();
        });
    }

    /// Resolves when there may be something to take.
    pub async fn changed(&self) {
        self.wake.notified().await;
    }

    fn each(&self, change: impl Fn(&mut backlog::Backlog)) {
        let all: Vec<_> = self.members().values().cloned().collect();
        all.iter().for_each(|member| member.with(&change));
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<MemberKey, Arc<Member>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The member, made if it is not there. `None` if the node's disk gives nothing; that is logged.
    fn member(&self, key: MemberKey) -> Option<Arc<Member>> {
        let mut members = self.members();
        if let Some(member) = members.get(&key) {
            return Some(Arc::clone(member));
        }
        let spool = Spool::open(self.dir.join(key.to_string()), LIMITS)
            .inspect_err(|error| tracing::warn!(member = %key, %error, "what it prints cannot be kept"))
            .ok()?;
        let member = Arc::new(Member::new(key, spool, None, false));
        members.insert(key, Arc::clone(&member));
        Some(member)
    }

    /// How many bytes a member may have now.
    fn share(&self) -> u64 {
        let members = self.members().len().max(1) as u64;
        (ALL_BYTES / members).clamp(LEAST_BYTES, MEMBER_BYTES)
    }

    /// Changes `key`, if anything of it is there, and forgets it once it is over.
    fn change(&self, key: MemberKey, change: impl FnOnce(&Member)) {
        let Some(member) = self.members().get(&key).cloned() else { return };
        change(&member);
        // Somebody who writes to it now looks after it when it is acknowledged.
        if member.try_with(|backlog| backlog.is_over()) == Some(true) {
            self.members().remove(&key);
            self.in_parts().take_if(|busy| *busy == key);
            member.with(backlog::Backlog::destroy);
        }
    }
}

#[cfg(test)]
mod tests;
