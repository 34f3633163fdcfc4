//! A log of made-up entries, published as files.

use std::path::Path;

use selion_api::agent::{Fence, SignedHead};
use selion_api::{Address, Signature, TimeMs};
use selion_contracts::Signer;
use selion_log::{Levels, write_entries, write_hashes};

use super::*;

const POOL: PoolId = PoolId { chain_id: 31_337, controller: Address([1; 20]) };
/// More than two full tiles, and one entry that is too long for its bundle.
const SIZE: u64 = 600;
const LONG: u64 = 300;

fn key() -> Signer {
    Signer::from_bytes(&[5; 32]).unwrap()
}

fn effects(seq: u64) -> Vec<Vec<u8>> {
    (0..seq % 3).map(|n| vec![n as u8; 5]).collect()
}

/// Entry `seq` of the history `of`; histories differ from entry 500 on.
fn entry(of: u8, seq: u64) -> Vec<u8> {
    let hashes: Vec<Hash32> = effects(seq).iter().map(|leaf| leaf_hash(leaf)).collect();
    let input = vec![if seq < 500 { 0 } else { of }; if seq == LONG { 70_000 } else { 40 }];
    let fence = Fence { epoch: 1, term: 1 };
    Entry { rules: 1, seq, fence, at_ms: TimeMs(seq), input, effects_root: root(&hashes) }.bytes()
}

fn put(dir: &Path, path: &str, bytes: &[u8]) {
    let path = dir.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}

/// Publishes the first `size` entries of a history in `dir`, as a controller serves them.
fn publish(dir: &Path, of: u8, size: u64) {
    let all: Vec<Vec<u8>> = (0..size).map(|seq| entry(of, seq)).collect();
    let leaves: Vec<Hash32> = all.iter().map(|entry| leaf_hash(entry)).collect();
    let mut levels = Levels::default();
    leaves.iter().for_each(|leaf| levels.push(*leaf));
    for level in 0..2 {
        for tile in Tile::all(Kind::Hashes(level), size, 0) {
            let hashes = match level {
                0 => slice(&leaves, 0, tile.first(), tile.width).unwrap(),
                _ => levels.hashes(level, tile.first(), tile.width).unwrap().to_vec(),
            };
            put(dir, &tile.to_string(), &write_hashes(&hashes));
        }
    }
    for tile in Tile::all(Kind::Entries, size, 0) {
        let seqs = tile.first()..tile.first() + u64::from(tile.width);
        let bundle = write_entries(seqs.clone().map(|seq| all[seq as usize].as_slice()));
        put(dir, &tile.to_string(), &bundle);
        let bundle: Vec<u8> = seqs.flat_map(|seq| selion_api::commit::canonical(&effects(seq))).collect();
        put(dir, &Tile { kind: Kind::Effects, ..tile }.to_string(), &bundle);
    }
    if size > LONG {
        put(dir, &long_entry(LONG), &all[LONG as usize]);
    }
    sign(dir, Head { size, root: levels.root(), digest: Hash32([2; 32]), fence: Fence { epoch: 1, term: 1 } });
}

fn sign(dir: &Path, head: Head) {
    let signature: Signature = key().sign_text(&head.digest_to_sign(&POOL).0).unwrap();
    let checkpoint = Checkpoint { pool: POOL, signed: SignedHead { head, signature } };
    let signature = key().sign_text(checkpoint.text().as_bytes()).unwrap();
    put(dir, CHECKPOINT, checkpoint.note(&key().account(), &signature).as_bytes());
}

fn folder(of: u8, size: u64) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    publish(dir.path(), of, size);
    dir
}

fn at(dir: &Path) -> TileSource {
    TileSource::Dir(dir.into())
}

#[tokio::test]
async fn a_log_reads_back_from_its_files_with_effects_and_the_signed_head() {
    let dir = folder(1, SIZE);
    let entries = read_tiles(at(dir.path())).await.unwrap();
    assert_eq!(entries.len() as u64, SIZE);
    for (logged, seq) in entries.iter().zip(0..) {
        assert_eq!((logged.seq, &logged.entry), (seq, &hex::encode(entry(1, seq))));
        assert_eq!(logged.effects, effects(seq).iter().map(hex::encode).collect::<Vec<_>>());
        assert_eq!(logged.head.is_some(), seq + 1 == SIZE);
    }
    let tiles = Tiles::open(at(dir.path())).await.unwrap();
    assert_eq!(tiles.signed_by, key().account());
    assert_eq!(tiles.root(300), Some(root(&tiles.leaves()[..300])));
    assert_eq!((tiles.root(SIZE + 1), tiles.bundles()), (None, 3));
    assert!(read_tiles(at(folder(1, 256).path())).await.unwrap().len() == 256, "a whole tile and no edge");
}

#[tokio::test]
async fn a_partial_tile_that_is_gone_is_read_from_the_full_one() {
    let dir = folder(1, 512);
    let whole = read_tiles(at(dir.path())).await.unwrap();
    // The checkpoint of an older size, whose partial tiles nobody kept.
    let head = Head {
        size: 400,
        root: root(&Tiles::open(at(dir.path())).await.unwrap().leaves()[..400]),
        ..head(dir.path()).await
    };
    sign(dir.path(), head);
    put(dir.path(), "tile/1/000.p/1", &std::fs::read(dir.path().join("tile/1/000.p/2")).unwrap()[..32]);
    let older = read_tiles(at(dir.path())).await.unwrap();
    assert_eq!(older.len(), 400);
    assert_eq!(older[..399], whole[..399]);
}

async fn head(dir: &Path) -> Head {
    Tiles::open(at(dir)).await.unwrap().checkpoint.signed.head
}

#[tokio::test]
async fn a_file_that_is_altered_cut_stretched_or_missing_is_refused_by_its_name() {
    for (path, names) in [
        ("tile/0/000", "tile/0/000 is altered"),
        ("tile/0/002.p/88", "the tiles at the edge"),
        ("tile/1/000.p/2", "the tiles at the edge"),
        ("tile/entries/001", "tile/entries/001"),
        ("tile/entries/002.p/88", "tile/entries/002.p/88"),
        ("effects/001", "effects/001"),
        ("long/300", "long/300: entry 300"),
        ("checkpoint", "checkpoint"),
    ] {
        let dir = folder(1, SIZE);
        let whole = std::fs::read(dir.path().join(path)).unwrap();
        let altered =
            whole.iter().zip(0..).map(|(byte, at)| byte ^ u8::from(at == whole.len() / 2)).collect::<Vec<u8>>();
        let said = async || read_tiles(at(dir.path())).await.map(drop).unwrap_err().to_string();
        put(dir.path(), path, &altered);
        assert!(said().await.contains(names), "{path}: {}", said().await);
        for other in [&whole[..whole.len() - 1], &[&whole[..], b"\0"].concat(), b""] {
            put(dir.path(), path, other);
            let file = if path.starts_with("long") { "entry 300" } else { path };
            assert!(said().await.contains(file), "{path} of {} bytes: {}", other.len(), said().await);
        }
        std::fs::remove_file(dir.path().join(path)).unwrap();
        assert!(said().await.contains(path.split('.').next().unwrap()), "{path}: {}", said().await);
    }
}

#[tokio::test]
async fn a_copy_is_the_log_itself_goes_on_where_it_was_and_fetches_nothing_twice() {
    let (from, to) = (folder(1, 300), tempfile::tempdir().unwrap());
    let first = mirror(at(from.path()), to.path()).await.unwrap();
    assert_eq!((first.entries, first.kept, first.signed_by), (300, 0, key().account()));
    publish(from.path(), 1, SIZE);
    // What the copy has is not asked for again.
    for path in ["tile/0/000", "tile/entries/000", "effects/000"] {
        std::fs::remove_file(from.path().join(path)).unwrap();
    }
    let second = mirror(at(from.path()), to.path()).await.unwrap();
    assert_eq!((second.entries, second.kept), (SIZE, 3));
    let again = mirror(at(from.path()), to.path()).await.unwrap();
    assert_eq!((again.written, again.kept), (0, second.written + 3));
    assert_eq!(read_tiles(at(to.path())).await.unwrap(), read_tiles(at(folder(1, SIZE).path())).await.unwrap());
}

#[tokio::test]
async fn a_log_that_does_not_extend_the_copy_is_refused_and_both_checkpoints_are_kept() {
    let to = tempfile::tempdir().unwrap();
    mirror(at(folder(1, 550).path()), to.path()).await.unwrap();
    let mine = std::fs::read(to.path().join(CHECKPOINT)).unwrap();
    let split = mirror(at(folder(2, SIZE).path()), to.path()).await.unwrap_err();
    assert!(matches!(split, TilesError::Split { .. }), "{split}");
    let cut = mirror(at(folder(1, 520).path()), to.path()).await.unwrap_err();
    assert!(matches!(cut, TilesError::Shrunk { .. }), "{cut}");
    assert_eq!(std::fs::read(to.path().join(CHECKPOINT)).unwrap(), mine);
    assert_ne!(std::fs::read(to.path().join("checkpoint.other")).unwrap(), mine);
}

/// Every file of a folder, by its path in it.
fn files(dir: &Path) -> std::collections::BTreeMap<String, Vec<u8>> {
    let (mut found, mut folders) = (std::collections::BTreeMap::new(), vec![dir.to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for one in std::fs::read_dir(&folder).unwrap() {
            let path = one.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(dir).unwrap().display().to_string();
                found.insert(name, std::fs::read(&path).unwrap());
            }
        }
    }
    found
}

#[tokio::test]
async fn a_copy_that_grew_equals_one_that_was_made_at_once() {
    let (from, grown, fresh) = (folder(1, 200), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for size in [200, 300, 301, 512, SIZE] {
        publish(from.path(), 1, size);
        mirror(at(from.path()), grown.path()).await.unwrap();
    }
    mirror(at(from.path()), fresh.path()).await.unwrap();
    let (grown, fresh) = (files(grown.path()), files(fresh.path()));
    assert_eq!(grown.keys().collect::<Vec<_>>(), fresh.keys().collect::<Vec<_>>());
    assert_eq!(grown, fresh);
}
