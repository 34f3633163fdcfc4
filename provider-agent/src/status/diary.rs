//! What happened lately, in the state directory: one event a line, bounded. It outlives the agent, so that an owner whose agent
//! is down reads why. It holds what `agent up` prints, and so nothing of a renter's command.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use crate::courier::now;
use crate::event::Event;

/// The file, and the one before it.
const FILES: (&str, &str) = ("events.log", "events.log.1");
/// Most bytes of each.
const MOST: u64 = 256 << 10;
/// Most bytes of a line: what a controller says may be long.
const LINE: usize = 4 << 10;

/// The diary of one agent.
#[derive(Debug)]
pub(crate) struct Diary {
    dir: PathBuf,
    /// Whether the last line could be written.
    writes: Mutex<bool>,
}

impl Diary {
    /// In the state directory.
    pub(crate) fn at(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), writes: Mutex::new(true) }
    }

    /// Notes an event. Readings of the meter are left out: there are too many. One that cannot be written is no reason to
    /// stop; that is said once.
    pub(crate) fn note(&self, event: &Event) {
        if matches!(event, Event::Member { what: "metered", .. }) {
            return;
        }
        let mut writes = self.writes.lock().unwrap_or_else(PoisonError::into_inner);
        let line = serde_json::json!({ "at_ms": now(), "said": event }).to_string();
        let written = self.write(&line);
        if let (Err(error), true) = (&written, *writes) {
            tracing::warn!(%error, "what happens cannot be noted in the state directory");
        }
        *writes = written.is_ok();
    }

    fn write(&self, line: &str) -> io::Result<()> {
        let path = self.dir.join(FILES.0);
        if fs::metadata(&path).is_ok_and(|meta| meta.len() >= MOST) {
            fs::rename(&path, self.dir.join(FILES.1))?;
        }
        let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(&path)?;
        let end = (0..=line.len().min(LINE)).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
        file.write_all(format!("{}\n", &line[..end]).as_bytes())
    }
}

/// The last events of the agent of a state directory, oldest first, as lines of JSON; none if there are none.
#[must_use]
pub fn last_events(dir: &Path, most: usize) -> Vec<String> {
    let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap_or_default();
    let (old, new) = (read(FILES.1), read(FILES.0));
    let mut last: Vec<String> = new.lines().rev().chain(old.lines().rev()).take(most).map(str::to_owned).collect();
    last.reverse();
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_diary_keeps_the_last_events_and_stays_small() {
        let dir = tempfile::tempdir().unwrap();
        assert!(last_events(dir.path(), 3).is_empty());
        let diary = Diary::at(dir.path());
        let long = "x".repeat(2 * LINE);
        for number in 0..300 {
            diary.note(&Event::LinkLost { why: format!("{number} {long}") });
        }
        let size = |name: &str| fs::metadata(dir.path().join(name)).unwrap().len();
        let most = MOST + u64::try_from(LINE).unwrap() + 1;
        assert!(size(FILES.0) <= most && size(FILES.1) <= most);
        diary.note(&Event::Linked);
        diary.note(&Event::Stopping);
        let last = last_events(dir.path(), 2);
        assert!(last[0].contains("linked") && last[1].contains("stopping"), "{last:?}");
        assert_eq!(last_events(dir.path(), 50).len(), 50, "across both files");
    }
}
