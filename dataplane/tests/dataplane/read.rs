//! Files and folders of a DAG as streams.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;

use futures::TryStreamExt;
use selion_dataplane::dag::CHUNK;
use selion_dataplane::read::{self, Chunks, ReadError};
use selion_dataplane::{Cid, Limits, Store};
use tempfile::TempDir;

use crate::support::{block_file, damage, pattern, store};

async fn all(chunks: Chunks) -> std::io::Result<Vec<u8>> {
    let parts: Vec<bytes::Bytes> = chunks.try_collect().await?;
    Ok(parts.concat())
}

/// A folder with what results have: a checkpoint, a link to it, a program, an empty folder, long and odd names.
fn results() -> (TempDir, Store, Cid) {
    let (dir, store) = store();
    let root = dir.path().join("r");
    fs::create_dir_all(root.join("checkpoint-200/empty")).unwrap();
    fs::write(root.join("checkpoint-200/model.bin"), pattern(3 * CHUNK + 17)).unwrap();
    fs::write(root.join("run.sh"), b"#!/bin/sh\necho it runs\n").unwrap();
    fs::set_permissions(root.join("run.sh"), Permissions::from_mode(0o755)).unwrap();
    fs::write(root.join("nothing"), b"").unwrap();
    fs::write(root.join(format!("{}é.txt", "long".repeat(40))), b"long").unwrap();
    symlink("checkpoint-200", root.join("latest")).unwrap();
    symlink("../../etc/passwd", root.join("away")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    let cid = store.add_path(&root).unwrap();
    (dir, store, cid)
}

#[tokio::test]
async fn a_file_is_read_by_its_path_whole_and_by_range() {
    let (_dir, store, root) = results();
    let bytes = pattern(3 * CHUNK + 17);
    for path in
        ["checkpoint-200/model.bin", "/checkpoint-200//./model.bin", "latest/model.bin", "latest/../latest/model.bin"]
    {
        let file = read::file(&store, &root, path).await.unwrap();
        assert_eq!(file.size, bytes.len() as u64);
        assert!(all(file.stream()).await.unwrap() == bytes, "{path}");
    }
    for (start, length) in
        [(0, 1), (CHUNK - 1, 2), (5, 2 * CHUNK), (3 * CHUNK, 17), (3 * CHUNK + 16, 100), (bytes.len(), 5), (7, 0)]
    {
        let file = read::file(&store, &root, "latest/model.bin").await.unwrap();
        let got = all(file.range(start as u64, length as u64).unwrap()).await.unwrap();
        assert!(got == bytes[start..bytes.len().min(start + length)], "{start}+{length}");
    }
    let file = read::file(&store, &root, "nothing").await.unwrap();
    assert!(all(file.stream()).await.unwrap().is_empty());
    let file = read::file(&store, &root, "nothing").await.unwrap();
    assert!(matches!(file.range(1, 1), Err(ReadError::BadRange { size: 0 })));
}

#[tokio::test]
async fn a_path_that_leads_nowhere_or_out_is_told_apart() {
    let (_dir, store, root) = results();
    for path in ["nowhere", "run.sh/x", "latest/nowhere"] {
        assert!(matches!(read::file(&store, &root, path).await, Err(ReadError::NotThere { .. })), "{path}");
    }
    for path in ["away", "..", "latest/../../x", "loop"] {
        assert!(matches!(read::file(&store, &root, path).await, Err(ReadError::LeadsOut { .. })), "{path}");
    }
    for path in ["", "latest", "checkpoint-200/"] {
        let error = read::file(&store, &root, path).await.unwrap_err();
        assert!(matches!(error, ReadError::OtherKind { kind: "folder", .. }), "{path}");
    }
}

#[tokio::test]
async fn a_folder_is_an_archive_that_tar_unpacks_to_the_same_tree() {
    let (dir, store, root) = results();
    let archive = all(read::tar(&store, &root, "", "out", Limits::default()).await.unwrap()).await.unwrap();
    assert_eq!(archive.len() % 512, 0);
    fs::write(dir.path().join("a.tar"), &archive).unwrap();
    let done = Command::new("tar").args(["-xpf", "a.tar"]).current_dir(dir.path()).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(store.add_path(dir.path().join("out")).unwrap(), root);
    let part = all(read::tar(&store, &root, "latest", "part", Limits::default()).await.unwrap()).await.unwrap();
    fs::write(dir.path().join("b.tar"), &part).unwrap();
    assert!(Command::new("tar").args(["-xf", "b.tar"]).current_dir(dir.path()).status().unwrap().success());
    assert!(dir.path().join("part/empty").is_dir() && dir.path().join("part/model.bin").is_file());
}

#[tokio::test]
async fn a_damaged_block_breaks_the_stream_off() {
    let (dir, store, root) = results();
    let leaf = selion_dataplane::dag::cid_of(&pattern(3 * CHUNK)[CHUNK..2 * CHUNK]);
    damage(&block_file(dir.path(), &leaf));
    let file = read::file(&store, &root, "latest/model.bin").await.unwrap();
    let error = all(file.stream()).await.unwrap_err();
    assert!(error.to_string().contains(&leaf.to_string()), "{error}");
}

#[tokio::test]
async fn an_archive_of_a_tree_over_the_limits_breaks_off() {
    let (_dir, store, root) = results();
    let few = Limits { entries: 3, ..Limits::default() };
    let error = all(read::tar(&store, &root, "", "out", few).await.unwrap()).await.unwrap_err();
    assert!(error.to_string().contains("more than 3"), "{error}");
}
