//! DAGs whose every block matches its CID, made to hurt.

use bytes::Bytes;
use selion_dataplane::dag::{self, DAG_PB, DagError, Entry, Kind, MAX_BLOCK, Node};
use selion_dataplane::{Cid, Limits, Store, StoreError};

use crate::support::store;

/// A DAG-PB block of these protobuf bytes.
fn pb(bytes: &[u8]) -> (Cid, Bytes) {
    let cid = Cid::new_v1(DAG_PB, *dag::leaf(bytes).cid.hash());
    (cid, Bytes::copy_from_slice(bytes))
}

fn field(tag: u8, body: &[u8]) -> Vec<u8> {
    assert!(body.len() < 128);
    [&[tag, body.len() as u8], body].concat()
}

/// A link with this name, in the order Hash, Name, Tsize.
fn link(name: &[u8], cid: &Cid) -> Vec<u8> {
    field(0x12, &[field(0x0a, &cid.to_bytes()), field(0x12, name), vec![0x18, 1]].concat())
}

fn read(parts: &[Vec<u8>]) -> Result<Node, DagError> {
    let (cid, bytes) = pb(&parts.concat());
    dag::decode(&cid, bytes)
}

fn put(store: &Store, parts: &[Vec<u8>]) -> Cid {
    let (cid, bytes) = pb(&parts.concat());
    store.put(&cid, &bytes).unwrap();
    cid
}

fn folder() -> Vec<u8> {
    field(0x0a, &[8, 1])
}

fn file(sizes: &[u8], total: u8) -> Vec<u8> {
    let sizes: Vec<u8> = sizes.iter().flat_map(|size| [0x20, *size]).collect();
    field(0x0a, &[&[8, 2, 0x18, total], sizes.as_slice()].concat())
}

#[test]
fn data_before_links_and_links_before_data_are_the_same_node() {
    let leaf = dag::leaf(b"x").cid;
    let first = read(&[folder(), link(b"a", &leaf)]).unwrap();
    assert_eq!(first, read(&[link(b"a", &leaf), folder()]).unwrap());
    assert_eq!(first.kind, Kind::Folder(vec![Entry { name: "a".to_owned(), cid: leaf, tsize: 1 }]));
}

#[test]
fn names_that_leave_the_folder_are_refused() {
    let leaf = dag::leaf(b"x").cid;
    for name in ["..", ".", "", "a/b", "/etc", "a\0b"] {
        let error = read(&[link(name.as_bytes(), &leaf), folder()]).unwrap_err();
        assert!(matches!(&error, DagError::BadName { name: bad, .. } if bad == name), "{name:?}: {error}");
    }
    assert!(matches!(dag::check_name(&"n".repeat(256)), Err(DagError::BadName { .. })));
}

#[test]
fn a_name_that_is_not_text_is_refused() {
    let error = read(&[link(&[0xff, 0xfe], &dag::leaf(b"x").cid), folder()]).unwrap_err();
    assert!(matches!(error, DagError::Malformed { .. }), "{error}");
}

#[test]
fn a_name_that_appears_twice_is_refused() {
    let leaf = dag::leaf(b"x").cid;
    let error = read(&[link(b"a", &leaf), link(b"a", &leaf), folder()]).unwrap_err();
    assert!(matches!(error, DagError::DuplicateName { name, .. } if name == "a"));
}

#[test]
fn sizes_that_do_not_add_up_are_refused() {
    let leaf = dag::leaf(b"x").cid;
    let links = [link(b"", &leaf), link(b"", &leaf)].concat();
    for (sizes, total) in [(vec![1, 1], 3), (vec![1], 1), (vec![1, 0], 1), (vec![1, 1, 1], 3)] {
        let error = read(&[links.clone(), file(&sizes, total)]).unwrap_err();
        assert!(matches!(error, DagError::Malformed { .. }), "{sizes:?}: {error}");
    }
    assert_eq!(read(&[links, file(&[1, 1], 2)]).unwrap().size(), Some(2));
}

#[test]
fn sizes_that_overflow_are_refused() {
    let leaf = dag::leaf(b"x").cid;
    let huge = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1];
    let message = [&[8, 2, 0x18, 1, 0x20][..], &huge, &[0x20], &huge].concat();
    let error = read(&[link(b"", &leaf), link(b"", &leaf), field(0x0a, &message)]).unwrap_err();
    assert!(matches!(error, DagError::Malformed { .. }), "{error}");
}

#[test]
fn links_of_another_hash_or_codec_are_refused() {
    let identity: Cid = "bafkqaaa".parse().unwrap();
    let error = read(&[link(b"a", &identity), folder()]).unwrap_err();
    assert!(matches!(error, DagError::UnsupportedHash { code: 0, .. }), "{error}");
    let cbor = Cid::new_v1(0x71, *dag::leaf(b"x").cid.hash());
    let error = read(&[link(b"a", &cbor), folder()]).unwrap_err();
    assert!(matches!(error, DagError::UnsupportedCodec { codec: 0x71, .. }), "{error}");
}

#[test]
fn sharded_folders_are_refused_by_name() {
    let error = read(&[field(0x0a, &[8, 5])]).unwrap_err();
    assert!(error.to_string().contains("sharded folder"), "{error}");
}

#[test]
fn a_symbolic_link_that_no_system_could_hold_is_refused() {
    let link_to = |target: &[u8]| read(&[field(0x0a, &[&[8, 4, 0x12, target.len() as u8], target].concat())]);
    assert_eq!(link_to(b"../../etc/passwd").unwrap().kind, Kind::Link("../../etc/passwd".to_owned()));
    for target in [b"".as_slice(), b"a\0b"] {
        assert!(matches!(link_to(target), Err(DagError::BadTarget { .. })), "{target:?}");
    }
    assert!(matches!(link_to(b"\xff"), Err(DagError::Malformed { .. })));
    let leaf = dag::leaf(b"x").cid;
    let error = read(&[link(b"", &leaf), field(0x0a, &[8, 4, 0x12, 1, b'a'])]).unwrap_err();
    assert!(matches!(error, DagError::Malformed { .. }), "{error}");
}

#[test]
fn a_block_over_two_mebibytes_is_refused_though_its_hash_is_right() {
    let (_dir, store) = store();
    let bytes = vec![7; MAX_BLOCK + 1];
    let cid = dag::leaf(&bytes).cid;
    let error = store.put(&cid, &bytes).unwrap_err();
    assert!(matches!(error, StoreError::Dag(DagError::BlockTooLarge { .. })), "{error}");
    assert!(!store.has(&cid));
    store.put(&dag::leaf(&bytes[1..]).cid, &bytes[1..]).unwrap();
}

#[test]
fn a_child_of_another_length_than_declared_is_caught_before_anything_appears() {
    let (dir, store) = store();
    let leaf = store.add_bytes(b"four").unwrap();
    let root = put(&store, &[link(b"", &leaf), link(b"", &leaf), file(&[4, 5], 9)]);
    let dest = dir.path().join("out");
    let error = store.export(&root, &dest).unwrap_err();
    assert!(matches!(error, StoreError::Dag(DagError::WrongSize { declared: 5, found: 4, .. })), "{error}");
    assert!(!dest.exists());
    assert!(matches!(store.stat(&root, &Limits::default()), Err(StoreError::Dag(DagError::WrongSize { .. }))));
}

#[test]
fn a_folder_inside_a_file_is_refused() {
    let (dir, store) = store();
    let empty = put(&store, &[folder()]);
    let root = put(&store, &[link(b"", &empty), link(b"", &empty), file(&[1, 1], 2)]);
    let error = store.export(&root, dir.path().join("out")).unwrap_err();
    assert!(matches!(error, StoreError::Dag(DagError::FolderInFile { .. })), "{error}");
}

#[test]
fn folders_nested_beyond_the_limit_are_refused() {
    let (dir, store) = store();
    let mut cid = put(&store, &[folder()]);
    for _ in 0..9 {
        cid = put(&store, &[link(b"d", &cid), folder()]);
    }
    let limits = |depth| Limits { depth, ..Limits::default() };
    store.export_within(&cid, dir.path().join("ten"), &limits(10)).unwrap();
    let error = store.export_within(&cid, dir.path().join("nine"), &limits(9)).unwrap_err();
    assert!(matches!(error, StoreError::Dag(DagError::TooDeep { limit: 9, .. })), "{error}");
    assert!(!dir.path().join("nine").exists());
}

#[test]
fn a_small_dag_that_unfolds_into_a_huge_file_is_refused() {
    let (dir, store) = store();
    // 20 levels of one node that holds its child twice: a megabyte of 1-byte pieces from 21 blocks.
    let mut part = dag::leaf(b"x");
    store.put(&part.cid, b"x").unwrap();
    for _ in 0..20 {
        let (block, parent) = dag::file_node(&[part, part], None);
        store.put(&block.cid, &block.bytes).unwrap();
        part = parent;
    }
    let out = dir.path().join("out");
    let few = Limits { pieces: 10_000, ..Limits::default() };
    let error = store.export_within(&part.cid, &out, &few).unwrap_err();
    assert!(matches!(error, StoreError::Dag(DagError::TooManyPieces { .. })), "{error}");
    let short = Limits { bytes: (1 << 20) - 1, ..Limits::default() };
    let error = store.export_within(&part.cid, &out, &short).unwrap_err();
    assert!(matches!(error, StoreError::Dag(DagError::TooLarge { .. })), "{error}");
    assert!(!out.exists());
}

#[test]
fn a_small_dag_that_unfolds_into_many_folders_is_refused() {
    let (dir, store) = store();
    let mut cid = put(&store, &[folder()]);
    for _ in 0..20 {
        cid = put(&store, &[link(b"a", &cid), link(b"b", &cid), folder()]);
    }
    let limits = Limits { entries: 1000, ..Limits::default() };
    let error = store.export_within(&cid, dir.path().join("out"), &limits).unwrap_err();
    assert!(matches!(error, StoreError::Dag(DagError::TooManyEntries { limit: 1000, .. })), "{error}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["store"], "the half-written tree was removed");
}

/// A leaf of two mebibytes that holds one byte, linked eight million times: by path that is some hours of hashing.
#[test]
fn a_padded_block_used_a_million_times_is_read_once_and_refused() {
    let (dir, store) = store();
    let mut message = vec![8, 2, 0x12, 1, b'x', 0x18, 1, 0x7a];
    let padding = MAX_BLOCK - 64;
    let mut length = padding;
    while length >= 0x80 {
        message.push(length as u8 | 0x80);
        length >>= 7;
    }
    message.push(length as u8);
    message.resize(message.len() + padding, 0);
    let mut bytes = vec![0x0a];
    let mut length = message.len();
    while length >= 0x80 {
        bytes.push(length as u8 | 0x80);
        length >>= 7;
    }
    bytes.push(length as u8);
    bytes.extend(message);
    let (leaf, leaf_bytes) = pb(&bytes);
    store.put(&leaf, &leaf_bytes).unwrap();
    let mut part = dag::Part { cid: leaf, size: 1, tsize: 1 };
    for width in [20_000, 200] {
        let (block, parent) = dag::file_node(&vec![part; width], None);
        store.put(&block.cid, &block.bytes).unwrap();
        part = parent;
    }
    let began = std::time::Instant::now();
    for error in [
        store.stat(&part.cid, &Limits::default()).unwrap_err(),
        store.export(&part.cid, dir.path().join("out")).unwrap_err(),
    ] {
        assert!(matches!(error, StoreError::Dag(DagError::Padded { bytes: 4_000_000, .. })), "{error}");
    }
    assert!(!dir.path().join("out").exists());
    let once = began.elapsed();
    // Four million readings of that block would take four hours; the bound is loose, the factor is not.
    assert!(once.as_secs() < 60, "{once:?}");
}

/// Two mebibytes brought, a tebibyte laid out: refused by arithmetic, before a byte is written.
#[test]
fn a_small_dag_that_unfolds_beyond_the_disk_is_refused_before_anything_is_written() {
    let (dir, store) = store();
    let mut part = dag::leaf(&vec![7; MAX_BLOCK]);
    store.put(&part.cid, &vec![7; MAX_BLOCK]).unwrap();
    for _ in 0..2 {
        let (block, parent) = dag::file_node(&[part; 512], None);
        store.put(&block.cid, &block.bytes).unwrap();
        part = parent;
    }
    assert_eq!(store.stat(&part.cid, &Limits::default()).unwrap().bytes, 512 << 30);
    assert!(store.stat(&part.cid, &Limits::default()).unwrap().stored < 3 << 20, "each block counts once");
    let out = dir.path().join("out");
    let error = store.export_within(&part.cid, &out, &Limits::of_bytes(100 << 30)).unwrap_err();
    assert!(matches!(error, StoreError::Dag(DagError::TooLarge { .. })), "{error}");
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["store"]);
    let error = store.stat(&part.cid, &Limits { stored: MAX_BLOCK as u64, ..Limits::default() }).unwrap_err();
    assert!(matches!(error, StoreError::Dag(DagError::TooMuchStored { .. })), "{error}");
}
