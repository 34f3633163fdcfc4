//! Output folders of members that are over, each with a record of how far it is.
//!
//! ```text
//! STATE/outputs/MEMBER/record.json    written anew at every step
//!                      output/        the folder, until its content is in the store
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use selion_api::agent::Assignment;
use selion_api::outputs::{OutputState, Outputs};
use selion_api::{Hash32, Reason, TimeMs};
use serde::{Deserialize, Serialize};

use crate::book::{BookError, replace};
use crate::member_key::MemberKey;
use crate::runtime::remove_tree;

/// Why a record or a folder cannot be kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ShelfError {
    /// The record cannot be written.
    #[error(transparent)]
    Record(#[from] BookError),
    /// The folder cannot be moved or read.
    #[error("the output folder cannot be moved to {}", path.display())]
    Folder {
        /// Where to.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// How a member's command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    /// Its exit code; `None` if it was stopped.
    pub(crate) code: Option<i32>,
    /// The limit at which it was ended, if one was.
    #[serde(default)]
    pub(crate) limit: Option<Reason>,
    /// Whether the node failed it: its supervisor was killed, or no agent was there for too long.
    #[serde(default)]
    pub(crate) failed: bool,
    /// How long it ran.
    pub(crate) metered_ms: u64,
}

/// How far the outputs of one member are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Whose.
    pub(crate) key: MemberKey,
    /// What the folder was called when the command ran.
    pub(crate) room: PathBuf,
    /// Salt of the commitment to their CID.
    pub(crate) salt: Hash32,
    /// Most bytes of files that are kept.
    pub(crate) disk_bytes: u64,
    /// Since when they wait to be sent, by this machine's clock; before that, when the command was about to run.
    pub(crate) since_ms: TimeMs,
    /// How the command ended, once it did while an agent looked on.
    pub(crate) ended: Option<Ended>,
    /// What is known of them; `None` while the folder is not in the store.
    pub(crate) said: Option<Outputs>,
}

impl Record {
    /// A record of a member that is about to run.
    pub(crate) fn of(assignment: &Assignment, room: &Path, now: TimeMs) -> Self {
        Self {
            key: MemberKey::of(assignment),
            room: room.to_owned(),
            salt: assignment.salt,
            disk_bytes: assignment.disk_bytes,
            since_ms: now,
            ended: None,
            said: None,
        }
    }

    /// What is to be said now.
    pub(crate) fn outputs(&self) -> Outputs {
        let MemberKey { lease, attempt, member } = self.key;
        self.said.clone().unwrap_or(Outputs {
            lease,
            attempt,
            member,
            state: OutputState::Uploading,
            cid: None,
            bytes: 0,
            files: 0,
            skipped: 0,
            named: Vec::new(),
            why: None,
        })
    }

    /// The last word where nothing can be kept.
    pub(crate) fn lost(&self, why: &str) -> Outputs {
        let why = Some(selion_api::outputs::printable(why));
        Outputs { state: OutputState::Lost, cid: None, why, ..self.outputs() }
    }
}

/// The records. Clones share the folder.
#[derive(Clone, Debug)]
pub(crate) struct Shelf {
    dir: PathBuf,
}

impl Shelf {
    /// The shelf in the folder `dir`.
    pub(crate) fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// Writes `record`; on return it survives a power cut.
    pub(crate) fn write(&self, record: &Record) -> Result<(), ShelfError> {
        let place = self.place(record.key);
        let failed = |source| ShelfError::Folder { path: place.clone(), source };
        fs::create_dir_all(&place).map_err(failed)?;
        let bytes = serde_json::to_vec_pretty(record).map_err(|error| failed(error.into()))?;
        Ok(replace(&place.join("record.json"), &bytes)?)
    }

    /// Moves the output folder of an ended member here, and notes it. False, and nothing is left of the record, if the
    /// folder is empty or not there.
    pub(crate) fn take(&self, record: &Record, folder: &Path) -> Result<bool, ShelfError> {
        let dest = self.folder(record.key);
        let moved = fs::read_dir(folder).and_then(|mut entries| match entries.next() {
            None => Ok(false),
            Some(_) => fs::rename(folder, &dest).map(|()| true),
        });
        match moved {
            Ok(true) => self.write(record).map(|()| true),
            // An agent that was killed in between had moved it.
            Err(error) if error.kind() == io::ErrorKind::NotFound && dest.is_dir() => self.write(record).map(|()| true),
            Ok(false) => {
                self.forget(record.key);
                Ok(false)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.forget(record.key);
                Ok(false)
            }
            Err(source) => Err(ShelfError::Folder { path: dest, source }),
        }
    }

    /// Where the folder of `key` lies until its content is in the store.
    pub(crate) fn folder(&self, key: MemberKey) -> PathBuf {
        self.place(key).join("output")
    }

    /// Removes the folder of `key`: its content is in the store, or never will be.
    pub(crate) fn empty(&self, key: MemberKey) {
        tidy(&self.folder(key));
    }

    /// Removes everything of `key`. What cannot be removed is in nobody's way: its record goes first.
    pub(crate) fn forget(&self, key: MemberKey) {
        let place = self.place(key);
        if let Err(error) = fs::remove_file(place.join("record.json"))
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(member = %key, %error, "a record of outputs stays behind");
        }
        tidy(&place);
    }

    /// Every record, oldest member first. What is no record of ours is left where it is, with a warning: it never keeps
    /// an agent from starting.
    pub(crate) fn records(&self) -> Vec<Record> {
        let mut records = Vec::new();
        for place in fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let path = place.path();
            let read = fs::read(path.join("record.json")).and_then(|bytes| Ok(serde_json::from_slice(&bytes)?));
            match read {
                Ok(record) => records.push(record),
                Err(error) => tracing::warn!(path = %path.display(), %error, "outputs without a record are left alone"),
            }
        }
        records.sort_by_key(|record: &Record| record.key);
        records
    }

    fn place(&self, key: MemberKey) -> PathBuf {
        self.dir.join(key.to_string())
    }
}

fn tidy(path: &Path) {
    if let Err(error) = remove_tree(path) {
        tracing::warn!(path = %path.display(), %error, "a folder of outputs stays behind");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::assignment;

    fn shelf() -> (tempfile::TempDir, Shelf, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let shelf = Shelf::at(dir.path().join("outputs"));
        let room = dir.path().join("room");
        fs::create_dir(&room).unwrap();
        (dir, shelf, room)
    }

    #[test]
    fn an_output_folder_is_moved_aside_and_known_to_the_next_life() {
        let (_dir, shelf, room) = shelf();
        let mut record = Record::of(&assignment(1), &room, TimeMs(5));
        shelf.write(&record).unwrap();
        fs::write(room.join("model"), "weights").unwrap();
        record.ended = Some(Ended { code: Some(3), limit: None, failed: false, metered_ms: 70 });
        assert!(shelf.take(&record, &room).unwrap());
        assert!(!room.exists(), "its room is free");
        assert_eq!(fs::read(shelf.folder(record.key).join("model")).unwrap(), b"weights");
        assert_eq!(shelf.records(), [record.clone()]);
        // A kill came after the move and before the record.
        assert!(shelf.take(&record, &room).unwrap());
        shelf.forget(record.key);
        assert_eq!(shelf.records(), []);
        assert!(!shelf.folder(record.key).exists());
    }

    #[test]
    fn an_empty_output_folder_leaves_nothing_to_say() {
        let (_dir, shelf, room) = shelf();
        let record = Record::of(&assignment(1), &room, TimeMs(5));
        shelf.write(&record).unwrap();
        assert!(!shelf.take(&record, &room).unwrap());
        assert_eq!(shelf.records(), []);
        assert!(!shelf.take(&record, &room.join("absent")).unwrap());
    }

    #[test]
    fn a_damaged_record_keeps_no_agent_from_starting() {
        let (dir, shelf, room) = shelf();
        let good = Record::of(&assignment(2), &room, TimeMs(5));
        shelf.write(&good).unwrap();
        let bad = dir.path().join("outputs/lease-1-0.1.0");
        fs::create_dir(&bad).unwrap();
        fs::write(bad.join("record.json"), "{").unwrap();
        assert_eq!(shelf.records(), [good]);
        assert!(bad.exists(), "and loses nothing");
    }
}
