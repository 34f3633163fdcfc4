//! A process that is killed while it adds.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use selion_dataplane::dag::{self, CHUNK};
use selion_dataplane::{Cid, Limits, Store};

use crate::support::pattern;

const STORE: &str = "SELION_TEST_STORE_OF_THE_KILLED";

/// Not a test by itself: the process that the next test starts, and kills.
#[test]
fn an_add_that_goes_on_until_it_is_killed() {
    let Ok(dir) = std::env::var(STORE) else {
        return;
    };
    let store = Store::open(dir).unwrap();
    for round in 0..=u8::MAX {
        let bytes: Vec<u8> = pattern(8 * CHUNK).into_iter().map(|byte| byte ^ round).collect();
        println!("\nadded {}", store.add_bytes(&bytes).unwrap());
    }
}

#[test]
fn a_killed_add_leaves_only_good_blocks_and_loses_nothing_it_had_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["crash::an_add_that_goes_on_until_it_is_killed", "--exact", "--nocapture"])
        .env(STORE, &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
    let told = lines.map(Result::unwrap).filter_map(|line| line.strip_prefix("added ").map(str::to_owned));
    let told: Vec<Cid> = told.take(2).map(|cid| cid.parse().unwrap()).collect();
    victim.kill().unwrap();
    assert!(!victim.wait().unwrap().success(), "it was still adding");

    let store = Store::open(&path).unwrap();
    for root in &told {
        assert_eq!(store.stat(root, &Limits::default()).unwrap().bytes, 8 * CHUNK as u64);
    }
    let mut blocks = 0;
    for shard in fs::read_dir(path.join("blocks")).unwrap() {
        for file in fs::read_dir(shard.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            let leaf = dag::leaf(&fs::read(&path).unwrap());
            let name = path.file_name().unwrap().to_str().unwrap();
            assert_eq!(name, hex::encode(leaf.cid.hash().to_bytes()), "a torn block is visible");
            blocks += 1;
        }
    }
    assert_eq!(store.usage().unwrap().blocks, blocks);
}
