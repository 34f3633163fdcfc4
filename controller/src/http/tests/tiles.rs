//! The log as static files.

use selion_contracts::signer::recover_text;
use selion_log::{
    Checkpoint, Entry, Kind, Tile, leaf_hash, long_entry, read_effects, read_entries, read_hashes, root, root_from,
};

use super::*;

/// The file at `path` of the log, which never changes.
async fn file(pool: &Pool, path: &str) -> Vec<u8> {
    let reply = pool.get("", &format!("/log/{path}")).await;
    assert_eq!(reply.status.as_u16(), 200, "{path}: {}", reply.text());
    assert_eq!(reply.header("content-type"), "application/octet-stream", "{path}");
    assert_eq!(reply.header("cache-control"), "public, max-age=31536000, immutable", "{path}");
    assert_eq!(reply.header("selion-entry"), "", "{path}: what never changes names no state");
    reply.body
}

/// What the checkpoint says, and who signed it.
async fn checkpoint(pool: &Pool) -> (Checkpoint, Account) {
    let reply = pool.get("", "/log/checkpoint").await;
    assert_eq!(reply.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(reply.header("cache-control"), "no-store");
    Checkpoint::read(&reply.text(), recover_text).unwrap()
}

/// Reads the whole log from its files, and from nothing else, and works out that it is what was signed.
async fn read(pool: &Pool) -> (u64, Vec<Entry>) {
    let (Checkpoint { signed, pool: of }, by) = checkpoint(pool).await;
    assert_eq!((of, by), (POOL, authority().account()));
    let size = signed.head.size;
    let mut levels: Vec<Vec<Hash32>> = vec![Vec::new(); 3];
    for (level, hashes) in (0..).zip(&mut levels) {
        for tile in Tile::all(Kind::Hashes(level), size, 0) {
            hashes.extend(read_hashes(&file(pool, &tile.to_string()).await, tile.width).unwrap());
        }
    }
    let get = |level: u8, from: u64, count: u16| {
        let hashes = levels.get(usize::from(level)).and_then(|hashes| hashes.get(from as usize..)).ok_or("none")?;
        hashes.get(..count.into()).map(<[_]>::to_vec).ok_or("too few")
    };
    assert_eq!(root_from(size, get), Ok(signed.head.root));
    for (number, above) in levels[1].iter().enumerate() {
        assert_eq!(root(&levels[0][number * 256..][..256]), *above);
    }
    let mut entries = Vec::new();
    for (bundle, effects) in Tile::all(Kind::Entries, size, 0).zip(Tile::all(Kind::Effects, size, 0)) {
        let bytes = read_entries(&file(pool, &bundle.to_string()).await, bundle.width).unwrap();
        let leaves = read_effects(&file(pool, &effects.to_string()).await, effects.width).unwrap();
        for (mut bytes, leaves) in bytes.into_iter().zip(leaves) {
            if bytes.is_empty() {
                bytes = file(pool, &long_entry(entries.len() as u64)).await;
                assert!(bytes.len() > 65_535);
            }
            assert_eq!(leaf_hash(&bytes), levels[0][entries.len()]);
            let entry = Entry::read(&bytes).unwrap();
            let hashes: Vec<Hash32> = leaves.iter().map(|leaf| leaf_hash(leaf)).collect();
            assert_eq!(root(&hashes), entry.effects_root, "entry {}", entry.seq);
            entries.push(entry);
        }
    }
    (size, entries)
}

/// Blocks without events up to this number.
async fn blocks(pool: &Pool, from: u64, to: u64) {
    for number in from..=to {
        let (hash, parent) = (Hash32([number as u8; 32]), Hash32([(number - 1) as u8; 32]));
        pool.enter(Input::Block(Block { number, hash, parent, events: Vec::new() })).await;
    }
}

#[tokio::test]
async fn whoever_has_the_files_of_the_log_has_the_log_also_after_a_restart() {
    let (dir, pool) = pool().await;
    let (before, entries) = read(&pool).await;
    assert_eq!(entries.len() as u64, before);
    pool.lease(&pool.alice(), "a").await;
    blocks(&pool, 2, 300).await;
    let (size, entries) = read(&pool).await;
    assert!(size >= before + 300 && entries.len() as u64 == size, "{size}");
    let tile = file(&pool, "tile/0/000").await;
    pool.close().await;

    let again = Pool::open(dir.path(), 1000).await;
    assert_eq!(file(&again, "tile/0/000").await, tile);
    assert_eq!(file(&again, &format!("tile/0/001.p/{}", before)).await.len() as u64, before * 32, "an older width");
    let (later, entries_later) = read(&again).await;
    assert!(later > size && entries_later[..entries.len()] == entries);
}

#[tokio::test]
async fn an_entry_too_long_for_its_bundle_is_a_file_of_its_own() {
    let (_dir, pool) = pool().await;
    let deposit = |_| ChainEvent::Deposited { renter: ALICE, amount: Amount(1) };
    let events = (0..3_000).map(deposit).collect();
    pool.enter(Input::Block(Block { number: 2, hash: Hash32([2; 32]), parent: Hash32([1; 32]), events })).await;
    let (size, entries) = read(&pool).await;
    let long = entries.iter().find(|entry| entry.bytes().len() > 65_535).unwrap();
    for seq in [long.seq - 1, size, u64::MAX] {
        let reply = pool.get("", &format!("/log/{}", long_entry(seq))).await;
        assert_eq!(reply.fault(), (404, "not_found".to_owned()), "{seq}");
    }
}

#[tokio::test]
async fn a_tile_is_served_and_that_takes_what_is_printed() {
    const TIMES: u32 = 200;
    let (_dir, pool) = pool().await;
    blocks(&pool, 2, 300).await;
    for path in ["tile/0/000", "tile/1/000.p/1", "tile/entries/000", "effects/000"] {
        let began = std::time::Instant::now();
        let mut bytes = 0;
        for _ in 0..TIMES {
            bytes = file(&pool, path).await.len();
        }
        println!("{path} of {bytes} bytes served in {:?}", began.elapsed() / TIMES);
    }
}

#[tokio::test]
async fn a_tile_beyond_the_log_and_a_path_that_is_none_are_not_found() {
    let (_dir, pool) = pool().await;
    let size = checkpoint(&pool).await.0.signed.head.size;
    for path in [
        "tile/0/000".to_owned(),
        format!("tile/0/000.p/{}", size + 1),
        format!("tile/entries/000.p/{}", size + 1),
        format!("effects/000.p/{}", size + 1),
        "tile/0/001.p/1".to_owned(),
        "tile/1/000.p/1".to_owned(),
        "tile/63/000.p/1".to_owned(),
        "tile/0/0".to_owned(),
        "tile/0/000.p/0".to_owned(),
        "tile/entries".to_owned(),
        "anything".to_owned(),
    ] {
        let reply = pool.get("", &format!("/log/{path}")).await;
        assert_eq!(reply.fault(), (404, "not_found".to_owned()), "{path}");
        assert_ne!(reply.header("selion-entry"), "", "{path}: that it is not there depends on state");
    }
    assert_eq!(file(&pool, &format!("tile/0/000.p/{size}")).await.len() as u64, size * 32);
}
