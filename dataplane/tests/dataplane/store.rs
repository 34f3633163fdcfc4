//! Blocks on disk.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;
use selion_dataplane::dag::{self, CHUNK, DagError};
use selion_dataplane::{AddRules, ExportRules, Limits, Pin, Stop, Store, StoreError, Usage};

use crate::support::{block_file, damage, pattern, store};

/// Everything below `root` by its relative path: permissions, and bytes or target; folders end in `/`.
fn tree(root: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    fn visit(root: &Path, at: &Path, found: &mut BTreeMap<String, (u32, Vec<u8>)>) {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
            let meta = fs::symlink_metadata(&path).unwrap();
            let mode = meta.permissions().mode() & 0o777;
            if meta.is_dir() {
                found.insert(format!("{name}/"), (mode, Vec::new()));
                visit(root, &path, found);
            } else if meta.is_symlink() {
                found.insert(name, (0, fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()));
            } else {
                found.insert(name, (mode, fs::read(&path).unwrap()));
            }
        }
    }
    let mut found = BTreeMap::new();
    visit(root, root, &mut found);
    found
}

#[test]
fn bytes_that_are_not_the_block_never_enter() {
    let (_dir, store) = store();
    let cid = dag::cid_of(b"good");
    let error = store.put(&cid, b"evil").unwrap_err();
    let StoreError::Dag(DagError::HashMismatch { cid: named, found }) = error else { panic!("{error}") };
    assert_eq!((*named, *found), (cid, dag::cid_of(b"evil")));
    assert!(!store.has(&cid));
    assert_eq!(store.usage().unwrap(), Usage::default());
}

#[test]
fn a_block_comes_back_and_a_second_copy_is_not_written() {
    let (_dir, store) = store();
    let cid = dag::cid_of(b"block");
    assert!(store.put(&cid, b"block").unwrap());
    assert!(!store.put(&cid, b"block").unwrap());
    assert_eq!(store.get(&cid).unwrap().as_ref(), b"block");
    assert_eq!(store.usage().unwrap(), Usage { blocks: 1, bytes: 5 });
}

#[test]
fn a_damaged_block_is_named_and_never_served_and_a_put_mends_it() {
    let (dir, store) = store();
    let cid = store.add_bytes(&pattern(1000)).unwrap();
    for harm in [
        damage as fn(&Path),
        |path| fs::write(path, b"").unwrap(),
        |path| {
            fs::write(path, vec![0; dag::MAX_BLOCK + 1]).unwrap();
        },
    ] {
        harm(&block_file(dir.path(), &cid));
        let error = store.get(&cid).unwrap_err();
        assert!(matches!(&error, StoreError::Corrupt { cid: named, .. } if **named == cid), "{error}");
        assert!(error.to_string().contains(&cid.to_string()));
        let out = dir.path().join("out");
        assert!(matches!(store.export(&cid, &out), Err(StoreError::Corrupt { .. })));
        assert!(!out.exists());
        assert!(store.put(&cid, &pattern(1000)).unwrap());
        assert_eq!(store.get(&cid).unwrap(), pattern(1000));
    }
}

#[test]
fn an_export_with_one_damaged_or_absent_leaf_leaves_nothing_behind() {
    let (dir, store) = store();
    let bytes = pattern(3 * CHUNK);
    let root = store.add_bytes(&bytes).unwrap();
    let leaf = dag::cid_of(&bytes[CHUNK..2 * CHUNK]);
    damage(&block_file(dir.path(), &leaf));
    let out = dir.path().join("out");
    assert!(matches!(store.export(&root, &out), Err(StoreError::Corrupt { cid, .. }) if *cid == leaf));
    fs::remove_file(block_file(dir.path(), &leaf)).unwrap();
    assert!(matches!(store.export(&root, &out), Err(StoreError::Missing { cid }) if *cid == leaf));
    let left: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["store"]);
}

#[test]
fn a_destination_that_exists_is_left_alone() {
    let (dir, store) = store();
    let root = store.add_bytes(b"new").unwrap();
    let out = dir.path().join("out");
    fs::write(&out, b"old").unwrap();
    assert!(matches!(store.export(&root, &out), Err(StoreError::Exists { .. })));
    assert_eq!(fs::read(&out).unwrap(), b"old");
}

#[test]
fn everything_that_cannot_be_kept_is_named_at_once_and_nothing_is_added() {
    let (dir, store) = store();
    let root = odd_tree(dir.path());
    let _socket = UnixListener::bind(root.join("deep/sock")).unwrap();
    let error = store.add_path(&root).unwrap_err();
    let StoreError::NotAddable { faults, total, .. } = &error else { panic!("{error}") };
    let named: Vec<&str> = faults.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!((named, *total), (vec!["deep/pipe", "deep/sock", "\u{fffd}\\u{1b}"], 3));
    for part in ["deep/pipe: it is a pipe", "deep/sock: it is a socket", "its name is not UTF-8"] {
        assert!(error.to_string().contains(part), "{error}");
    }
    let error = store.add_path("/dev/null").unwrap_err();
    assert!(error.to_string().contains("it is a device"), "{error}");
    std::os::unix::fs::symlink(&root, dir.path().join("link")).unwrap();
    let error = store.add_path(dir.path().join("link")).unwrap_err();
    assert!(error.to_string().contains("it is a symbolic link"), "{error}");
}

#[tokio::test]
async fn what_lies_too_deep_is_left_out_alone_and_what_is_kept_can_be_read() {
    let (dir, store) = store();
    let root = dir.path().join("deep");
    fs::create_dir(&root).unwrap();
    fs::write(root.join("model"), "precious").unwrap();
    let mut at = root.clone();
    for _ in 0..80 {
        at.push("d");
        fs::create_dir(&at).unwrap();
        fs::write(at.join("f"), pattern(CHUNK + 1)).unwrap();
        std::os::unix::fs::symlink("f", at.join("l")).unwrap();
    }
    let added = store.add(&root, &AddRules::lenient(Limits::default(), vec![root.clone()])).unwrap();
    assert_eq!(added.skipped_total, 1, "the first folder that is too deep: {:?}", added.skipped);
    let whole = store.stat(&added.cid, &Limits::default()).unwrap();
    assert!(whole.bytes > 40 * CHUNK as u64);
    let archive = selion_dataplane::read::tar(&store, &added.cid, "", "out", Limits::default()).await.unwrap();
    let parts: Vec<_> = futures::TryStreamExt::try_collect(archive).await.unwrap();
    assert!(!parts.is_empty());
    let to = dir.path().join("back");
    store.export(&added.cid, &to).unwrap();
    assert_eq!(fs::read_to_string(to.join("model")).unwrap(), "precious");
    assert!(matches!(store.add_path(&root), Err(StoreError::OverLimit { .. })), "by hand all or nothing");
}

/// One bad entry, whatever it is, loses nothing but itself.
#[test]
fn what_cannot_be_kept_is_left_out_and_the_rest_is_kept() {
    let (dir, store) = store();
    let root = odd_tree(dir.path());
    let _socket = UnixListener::bind(root.join("deep/sock")).unwrap();
    File::create(root.join("sparse")).unwrap().set_len(200 << 30).unwrap();
    for (name, target) in [
        ("latest", "checkpoint-200"),
        ("absolute", root.join("checkpoint-200").to_str().unwrap()),
        ("away", "/etc/passwd"),
        ("deep/up", "../good"),
        ("deep/out", "../../good"),
    ] {
        std::os::unix::fs::symlink(target, root.join(name)).unwrap();
    }
    let added = store.add(&root, &AddRules::lenient(Limits::of_bytes(1 << 20), vec![root.clone()])).unwrap();
    let skipped: Vec<String> = added.skipped.iter().map(ToString::to_string).collect();
    let expected = [
        "away: it is a symbolic link that leaves the folder",
        "deep/out: it is a symbolic link that leaves the folder",
        "deep/pipe: it is a pipe",
        "deep/sock: it is a socket",
        "sparse: more than the 1048576 bytes allowed",
        "\u{fffd}\\u{1b}: its name is not UTF-8",
    ];
    assert_eq!((skipped.iter().map(String::as_str).collect::<Vec<_>>(), added.skipped_total), (expected.to_vec(), 6));
    assert_eq!((added.files, added.bytes, added.others), (3, 12, 7));
    let out = dir.path().join("out");
    store.export(&added.cid, &out).unwrap();
    assert_eq!(fs::read(out.join("latest/model.bin")).unwrap(), b"model");
    assert_eq!(fs::read_link(out.join("absolute")).unwrap(), Path::new("checkpoint-200"));
    assert_eq!(fs::read(out.join("deep/up")).unwrap(), b"good");
    assert!(!out.join("deep/out").is_symlink() && !out.join("sparse").exists());
}

/// Good files, a pipe, and a name that is not UTF-8.
fn odd_tree(dir: &Path) -> PathBuf {
    let root = dir.join("data");
    fs::create_dir_all(root.join("deep/empty")).unwrap();
    fs::create_dir(root.join("checkpoint-200")).unwrap();
    fs::write(root.join("checkpoint-200/model.bin"), b"model").unwrap();
    fs::write(root.join("good"), b"good").unwrap();
    fs::write(root.join("run.sh"), b"run").unwrap();
    nix::unistd::mkfifo(&root.join("deep/pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::write(root.join(std::ffi::OsStr::from_bytes(b"\xff\x1b")), b"").unwrap();
    root
}

#[test]
fn a_thousand_faults_are_counted_and_a_hundred_named() {
    let (dir, store) = store();
    let root = dir.path().join("data");
    fs::create_dir(&root).unwrap();
    for number in 0..1000 {
        std::os::unix::fs::symlink("/etc", root.join(format!("{number:04}"))).unwrap();
    }
    let added = store.add(&root, &AddRules::lenient(Limits::default(), Vec::new())).unwrap();
    assert_eq!((added.skipped.len(), added.skipped_total), (100, 1000));
}

#[test]
fn a_folder_of_more_names_than_a_block_holds_keeps_those_that_fit() {
    let (dir, store) = store();
    let root = dir.path().join("data");
    fs::create_dir(&root).unwrap();
    for number in 0..12_000 {
        std::os::unix::fs::symlink("x", root.join(format!("{number:0>120}"))).unwrap();
    }
    let added = store.add(&root, &AddRules::lenient(Limits::default(), Vec::new())).unwrap();
    assert_eq!(added.others - 1 + added.skipped_total, 12_000);
    assert!(added.others > 11_000 && added.skipped_total > 0, "{added:?}");
    assert_eq!(store.stat(&added.cid, &Limits::default()).unwrap().entries, added.others);
}

#[test]
fn results_over_the_limit_are_refused_by_strict_rules_and_left_out_by_others() {
    let (dir, store) = store();
    let root = dir.path().join("data");
    fs::create_dir_all(root.join("a/b")).unwrap();
    fs::write(root.join("a/b/file"), [0; 100]).unwrap();
    let limits = Limits { bytes: 100, entries: 4, depth: 4, ..Limits::default() };
    let strict = |limits| store.add(&root, &AddRules { limits, ..AddRules::strict() });
    strict(limits).unwrap();
    // A file is no level of folders.
    strict(Limits { depth: 3, ..limits }).unwrap();
    for tight in [Limits { bytes: 99, ..limits }, Limits { entries: 3, ..limits }, Limits { depth: 2, ..limits }] {
        assert!(matches!(strict(tight), Err(StoreError::OverLimit { .. })), "{tight:?}");
        let added = store.add(&root, &AddRules::lenient(tight, Vec::new())).unwrap();
        assert_eq!((added.files, added.skipped_total), (0, 1), "{tight:?}");
    }
}

#[test]
fn permissions_are_kept_and_the_usual_ones_do_not_change_a_cid() {
    let (dir, store) = store();
    let root = dir.path().join("data");
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::write(root.join("bin/tool"), b"tool").unwrap();
    fs::write(root.join("bin/big"), pattern(CHUNK + 1)).unwrap();
    let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    let set = |name: &str, mode| fs::set_permissions(root.join(name), Permissions::from_mode(mode)).unwrap();
    let plain = store.add_path(&root).unwrap();
    assert_eq!(plain, store.add(&root, &AddRules::names_and_bytes()).unwrap().cid);
    for (name, bits) in [("bin/tool", 0o4755), ("bin/big", 0o500), ("bin", 0o700)] {
        set(name, bits);
    }
    let cid = store.add_path(&root).unwrap();
    assert_ne!(cid, plain);
    assert_eq!(store.add(&root, &AddRules::names_and_bytes()).unwrap().cid, plain);
    let out = dir.path().join("out");
    store.export(&cid, &out).unwrap();
    let modes = ["", "bin", "bin/tool", "bin/big"].map(|name| mode(out.join(name)));
    assert_eq!(modes, [0o755, 0o700, 0o755, 0o500], "what raises privileges is not kept");
    assert_eq!(store.add_path(&out).unwrap(), cid);
    let staged = dir.path().join("staged");
    let rules = ExportRules { read_only: true, ..ExportRules::default() };
    let stat = store.export_by(&cid, &staged, &rules, &Stop::default()).unwrap();
    assert_eq!(stat.bytes, (CHUNK + 1 + 4) as u64);
    let modes = ["", "bin", "bin/tool", "bin/big"].map(|name| mode(staged.join(name)));
    assert_eq!(modes, [0o555, 0o555, 0o555, 0o555]);
}

#[test]
fn pins_outlive_the_process_and_are_counted_by_owner() {
    let (dir, store) = store();
    let cid = store.add_bytes(b"kept").unwrap();
    store.pin("lease-1", &cid).unwrap();
    store.pin("lease-1", &cid).unwrap();
    store.pin("lease-2", &cid).unwrap();
    let again = Store::open(dir.path().join("store")).unwrap();
    let pin = |owner: &str| Pin { owner: owner.to_owned(), cid };
    assert_eq!(again.list().unwrap(), [pin("lease-1"), pin("lease-2")]);
    assert!(again.unpin("lease-1", &cid).unwrap());
    assert!(!again.unpin("lease-1", &cid).unwrap());
    assert_eq!(store.list().unwrap(), [pin("lease-2")]);
    for owner in ["", "..", "../x", "a/b", ".hidden", &"o".repeat(129)] {
        assert!(matches!(store.pin(owner, &cid), Err(StoreError::BadOwner { .. })), "{owner:?}");
    }
    assert!(matches!(store.pin("lease-1", &dag::cid_of(b"absent")), Err(StoreError::Missing { .. })));
}

#[test]
fn debris_of_a_crash_is_no_block_and_old_debris_goes() {
    let (dir, store) = store();
    store.add_bytes(b"one").unwrap();
    let tmp = dir.path().join("store/tmp");
    fs::write(tmp.join("999999-0"), b"half a blo").unwrap();
    let old = File::create(tmp.join("999999-1")).unwrap();
    old.set_modified(std::time::SystemTime::now() - std::time::Duration::from_secs(7200)).unwrap();
    let again = Store::open(dir.path().join("store")).unwrap();
    assert_eq!(again.usage().unwrap(), Usage { blocks: 1, bytes: 3 });
    assert!(tmp.join("999999-0").exists(), "it may belong to a process at work");
    assert!(!tmp.join("999999-1").exists());
}

#[test]
fn a_full_disk_is_told_and_leaves_every_block_good() {
    let dir = tempfile::tempdir().unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(dir.path()).output();
    if !mounted.is_ok_and(|done| done.status.success()) {
        println!("skipped: a full disk needs the right to mount a small one");
        return;
    }
    let outcome = std::panic::catch_unwind(|| {
        let store = Store::open(dir.path().join("store")).unwrap();
        let error = store.add_bytes(&pattern(8 * CHUNK)).unwrap_err();
        assert!(matches!(error, StoreError::Full { .. }), "{error}");
        assert!(error.to_string().contains("free some space"), "{error}");
        assert_eq!(fs::read_dir(dir.path().join("store/tmp")).unwrap().count(), 0, "no half-written block is left");
        let whole = pattern(8 * CHUNK);
        let there = whole.chunks(CHUNK).map(dag::cid_of).filter(|cid| store.has(cid));
        let good = there.filter(|cid| store.get(cid).is_ok());
        assert_eq!(good.count() as u64, store.usage().unwrap().blocks, "what is there is good");
        let small = store.add_bytes(b"x");
        assert!(small.is_ok() || matches!(small, Err(StoreError::Full { .. })));
    });
    let unmounted = Command::new("umount").arg(dir.path()).status().unwrap();
    assert!(unmounted.success());
    if let Err(failed) = outcome {
        std::panic::resume_unwind(failed);
    }
}

fn sizes() -> impl Strategy<Value = usize> {
    let near = |at: usize| at.saturating_sub(2)..at + 3;
    prop_oneof![0usize..70_000, near(CHUNK), near(2 * CHUNK), near(3 * CHUNK)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_file_of_any_size_comes_back_as_it_went_in(size in sizes(), seed in any::<u8>()) {
        let (dir, store) = store();
        let bytes: Vec<u8> = pattern(size).into_iter().map(|byte| byte ^ seed).collect();
        let source = dir.path().join("in");
        fs::write(&source, &bytes).unwrap();
        let root = store.add_path(&source).unwrap();
        prop_assert_eq!(root, dag::cid_of(&bytes));
        prop_assert_eq!(root, store.add_bytes(&bytes).unwrap());
        store.export(&root, dir.path().join("out")).unwrap();
        prop_assert!(fs::read(dir.path().join("out")).unwrap() == bytes);
        prop_assert_eq!(store.stat(&root, &Limits::default()).unwrap().bytes, size as u64);
    }

    #[test]
    fn a_folder_of_any_shape_comes_back_as_it_went_in(
        files in prop::collection::btree_map("[a-d]{1,2}(/[a-d]{1,2}){0,3}", 0usize..2000, 0..24),
        empty in prop::collection::vec("[e-h]{1,2}(/[e-h]){0,2}", 0..4),
        links in prop::collection::btree_map("[i-kö \\n]{1,3}", "[a-h./]{1,9}", 0..5),
        modes in prop::collection::vec(0u32..0o1000, 40),
    ) {
        let (dir, store) = store();
        let root = dir.path().join("in");
        fs::create_dir(&root).unwrap();
        for (name, size) in files {
            let path = root.join(&name);
            // A name may be a folder already, or need a file to be one: such a file is left out.
            if fs::create_dir_all(path.parent().unwrap()).is_ok() && !path.exists() {
                fs::write(&path, pattern(size)).unwrap();
            }
        }
        for name in empty {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        for (name, target) in links {
            let _ = std::os::unix::fs::symlink(target, root.join(name));
        }
        let paths: Vec<PathBuf> = tree(&root).keys().map(|name| root.join(name)).collect();
        for (path, mode) in paths.iter().zip(modes) {
            if !path.is_symlink() {
                fs::set_permissions(path, Permissions::from_mode(mode | if path.is_dir() { 0o700 } else { 0o400 })).unwrap();
            }
        }
        let cid = store.add_path(&root).unwrap();
        store.export(&cid, dir.path().join("out")).unwrap();
        prop_assert_eq!(tree(&root), tree(&dir.path().join("out")));
        prop_assert_eq!(store.add_path(dir.path().join("out")).unwrap(), cid);
    }
}
