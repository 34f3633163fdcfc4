//! From the output folder into the content store.

use std::path::{Path, PathBuf};

use selion_api::outputs::{MAX_NAMED, OutputState, Outputs, SkippedEntry, printable};
use selion_dataplane::{AddRules, Limits, Store, StoreError};

use super::Record;

/// Adds what can be kept of the record's folder to `store`, and pins it there. What cannot be kept is counted, and the
/// first of it named.
///
/// # Errors
///
/// [`StoreError`] of the store itself, as on a full disk: the folder is as it was, and may be added again.
pub(super) fn add(record: &Record, folder: &Path, store: &Store) -> Result<Outputs, StoreError> {
    let rules = AddRules::lenient(Limits::of_bytes(record.disk_bytes), seen_as(record));
    let added = store.add(folder, &rules)?;
    store.pin(&record.key.to_string(), &added.cid)?;
    let named = added.skipped.iter().take(MAX_NAMED);
    let named = named.map(|entry| SkippedEntry { path: printable(&entry.path), why: printable(&entry.why) });
    Ok(Outputs {
        state: OutputState::Uploading,
        cid: Some(added.cid.to_string()),
        bytes: added.bytes,
        files: added.files,
        skipped: added.skipped_total,
        named: named.collect(),
        ..record.outputs()
    })
}

/// What the folder was called where the command ran: an absolute link below it leads inside.
fn seen_as(record: &Record) -> Vec<PathBuf> {
    vec![record.room.clone(), PathBuf::from("/selion/output")]
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use selion_api::TimeMs;

    use super::*;
    use crate::testing::assignment;

    fn added(fill: impl Fn(&Path)) -> (Outputs, PathBuf, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let (folder, back) = (dir.path().join("output"), dir.path().join("back"));
        fs::create_dir(&folder).unwrap();
        fill(&folder);
        let store = Store::open(dir.path().join("store")).unwrap();
        let record = Record::of(&assignment(1), Path::new("/rooms/output"), TimeMs(1));
        let said = add(&record, &folder, &store).unwrap();
        store.export(&said.cid.as_ref().unwrap().parse().unwrap(), &back).unwrap();
        assert_eq!(said.check(), Ok(()));
        (said, back, dir)
    }

    #[test]
    fn one_link_in_the_output_folder_costs_nothing() {
        let (said, back, _dir) = added(|folder| {
            fs::create_dir(folder.join("checkpoint-200")).unwrap();
            fs::write(folder.join("checkpoint-200/model.bin"), "weights").unwrap();
            symlink("checkpoint-200", folder.join("latest")).unwrap();
            symlink("/rooms/output/checkpoint-200", folder.join("absolute")).unwrap();
        });
        assert_eq!((said.skipped, said.files, said.bytes), (0, 1, 7));
        for name in ["checkpoint-200", "latest", "absolute"] {
            assert_eq!(fs::read(back.join(name).join("model.bin")).unwrap(), b"weights", "{name}");
        }
    }

    #[test]
    fn what_cannot_be_kept_is_skipped_and_named_and_the_rest_is_kept() {
        let (said, back, _dir) = added(|folder| {
            fs::write(folder.join("good"), "kept").unwrap();
            nix::unistd::mkfifo(&folder.join("a\u{1b}pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
            symlink("/etc/passwd", folder.join("outside")).unwrap();
            // The lease's disk is 1 MiB.
            fs::File::create(folder.join("sparse")).unwrap().set_len(200 << 30).unwrap();
        });
        assert_eq!((said.skipped, said.files), (3, 1), "{said:?}");
        assert_eq!(fs::read(back.join("good")).unwrap(), b"kept");
        assert_eq!(fs::read_dir(back).unwrap().count(), 1);
        let lines = super::super::lines(&said).join("\n");
        assert!(lines.contains("sparse") && lines.contains("outside") && !lines.contains('\u{1b}'), "{lines}");
    }

    #[test]
    fn of_a_million_bad_entries_a_few_are_named_and_all_are_counted() {
        let (said, ..) = added(|folder| {
            fs::write(folder.join("good"), "kept").unwrap();
            for number in 0..150 {
                symlink("/outside", folder.join(format!("link-{number:03}"))).unwrap();
            }
        });
        assert_eq!((said.skipped, said.named.len()), (150, MAX_NAMED));
        let lines = super::super::lines(&said);
        assert_eq!(lines.len(), MAX_NAMED + 1);
        assert!(lines[MAX_NAMED].contains("130 more"), "{lines:?}");
    }
}
