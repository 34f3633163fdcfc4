//! Somebody who changes the tree while it is read.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use selion_dataplane::{AddRules, Cid, Limits, Store};

use crate::support::store;

const SECRET: &[u8] = b"for root's eyes only";

/// A daemon that outlived its lease swaps a folder of its output for a link to another's folder, again and again, while
/// the agent, as root, reads the output.
#[test]
fn a_folder_that_becomes_a_link_while_it_is_read_gives_nothing_from_outside() {
    let (dir, store) = store();
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), SECRET).unwrap();
    let root = dir.path().join("output");
    fs::create_dir_all(root.join("d")).unwrap();
    for number in 0..50 {
        fs::write(root.join(format!("a{number}")), b"slow").unwrap();
    }
    fs::write(root.join("d/file"), b"mine").unwrap();

    let over = AtomicBool::new(false);
    let secret = selion_dataplane::dag::cid_of(SECRET);
    let (mut whole, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                swap(&root, &outside);
            }
        });
        for _ in 0..300 {
            let added = store.add(&root, &AddRules::lenient(Limits::default(), vec![root.clone()])).unwrap();
            match added.skipped_total {
                0 => whole += 1,
                _ => refused += 1,
            }
            assert!(!reaches(&store, &added.cid, &secret), "a file from outside was read: {added:?}");
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(whole + refused == 300 && refused > 0, "the swap was never met: {whole} whole");
}

/// The same by name: were a path resolved, this would find the secret.
#[test]
fn a_link_in_place_of_a_folder_is_left_out() {
    let (dir, store) = store();
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("file"), SECRET).unwrap();
    let root = dir.path().join("output");
    fs::create_dir(&root).unwrap();
    symlink(&outside, root.join("d")).unwrap();
    let added = store.add(&root, &AddRules::lenient(Limits::default(), Vec::new())).unwrap();
    assert_eq!((added.files, added.skipped_total), (0, 1));
    assert!(store.add(root.join("d"), &AddRules::strict()).is_err());
}

fn swap(root: &Path, outside: &Path) {
    let (d, old) = (root.join("d"), root.join("old"));
    let _ = fs::rename(&d, &old);
    let _ = symlink(outside, &d);
    let _ = fs::remove_file(&d);
    let _ = fs::rename(&old, &d);
}

fn reaches(store: &Store, root: &Cid, wanted: &Cid) -> bool {
    store.blocks(root, &Limits::default()).unwrap().contains(wanted)
}
