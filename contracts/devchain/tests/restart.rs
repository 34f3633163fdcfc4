//! The journal: what a restart, a kill, damage and wrong use do to it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop there")]

mod common;

use common::{EMITTER, sign, start, try_start, try_start_chain, tx, word};
use ethers_signers::Signer;
use selion_devchain::{Error, JournalError};
use serde_json::{Value, json};
use std::{fs, path::PathBuf};
use tempfile::TempDir;

fn journal(dir: &TempDir) -> PathBuf {
    dir.path().join("devchain.journal")
}

/// A chain with every kind of record, stopped. Returns its head and the journal's length before the last
/// record, which is a transaction.
async fn lived(dir: &TempDir) -> (Value, u64) {
    let chain = start(dir.path()).await;
    let wallet = chain.rich(1).await;
    let emitter = chain.deploy(&wallet, 0, EMITTER).await;
    chain.ok("anvil_mine", json!([3])).await;
    chain.ok("evm_increaseTime", json!([100])).await;
    chain.ok("dev_reorg", json!([2])).await;
    chain.send(&sign(&wallet, tx(1).to(emitter).data(word(1)))).await;
    let before = fs::metadata(journal(dir)).unwrap().len();
    chain.send(&sign(&wallet, tx(2).to(emitter).data(word(2)))).await;
    let head = chain.head().await;
    chain.stop().await;
    (head, before)
}

/// Block `number` of the chain in `dir`, or of the head.
async fn head_after_restart(dir: &TempDir) -> Value {
    let chain = start(dir.path()).await;
    let head = chain.head().await;
    chain.stop().await;
    head
}

#[tokio::test]
async fn a_restart_gives_the_same_head_and_goes_on_from_there() {
    let dir = tempfile::tempdir().unwrap();
    let (head, _) = lived(&dir).await;
    let chain = start(dir.path()).await;
    assert_eq!(chain.head().await, head);
    let wallet = common::wallet(1);
    let again = chain.receipt(chain.send(&sign(&wallet, tx(3).to(wallet.address()))).await).await;
    assert_eq!(again["status"], "0x1", "nonces and balances are as they were");
    chain.stop().await;
}

#[tokio::test]
async fn a_record_is_on_disk_before_its_answer() {
    let dir = tempfile::tempdir().unwrap();
    let chain = start(dir.path()).await;
    let wallet = chain.rich(1).await;
    chain.send(&sign(&wallet, tx(0).to(wallet.address()))).await;
    let head = chain.head().await;
    // As after kill -9: the file as it is now, without any farewell from the node that wrote it.
    let copy = tempfile::tempdir().unwrap();
    fs::copy(journal(&dir), journal(&copy)).unwrap();
    assert_eq!(head_after_restart(&copy).await, head);
    chain.stop().await;
}

#[tokio::test]
async fn a_write_cut_short_at_any_byte_loses_only_that_unacknowledged_record() {
    let dir = tempfile::tempdir().unwrap();
    let (head, before) = lived(&dir).await;
    let whole = fs::read(journal(&dir)).unwrap();
    let parent = head["parentHash"].clone();
    for cut in (before + 1..whole.len() as u64).step_by(7) {
        fs::write(journal(&dir), &whole[..cut as usize]).unwrap();
        assert_eq!(head_after_restart(&dir).await["hash"], parent, "cut at {cut}");
        assert_eq!(fs::metadata(journal(&dir)).unwrap().len(), before, "the torn tail is gone from the file");
    }
    fs::write(journal(&dir), &whole).unwrap();
    assert_eq!(head_after_restart(&dir).await, head);
}

#[tokio::test]
async fn a_first_start_that_was_killed_at_any_byte_begins_again() {
    let dir = tempfile::tempdir().unwrap();
    start(dir.path()).await.stop().await;
    let whole = fs::read(journal(&dir)).unwrap();
    for cut in 0..whole.len() {
        fs::write(journal(&dir), &whole[..cut]).unwrap();
        assert_eq!(head_after_restart(&dir).await["number"], "0x0", "cut at {cut}");
    }
}

#[tokio::test]
async fn damage_to_an_acknowledged_record_stops_the_start_and_names_file_place_and_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let (head, before) = lived(&dir).await;
    let whole = fs::read(journal(&dir)).unwrap();
    for at in [16, 20, 40, before as usize, before as usize + 60, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(journal(&dir), damaged).unwrap();
        let Err(error) = try_start(dir.path()).await else { panic!("byte {at} was flipped and nobody saw") };
        assert!(matches!(error, Error::Journal(JournalError::Corrupt { .. })), "{error}");
        let said = error.to_string();
        assert!(said.contains("devchain.journal is corrupt") && said.contains("truncate -s"), "{said}");
    }
    // The remedy that the error names, taken at its word.
    let status = std::process::Command::new("truncate").args(["-s", &before.to_string()]).arg(journal(&dir)).status();
    assert!(status.unwrap().success());
    assert_eq!(head_after_restart(&dir).await["hash"], head["parentHash"]);
}

#[tokio::test]
async fn a_file_that_is_no_journal_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(journal(&dir), "my precious notes").unwrap();
    let Err(error) = try_start(dir.path()).await else { panic!("it started") };
    assert!(matches!(error, Error::Journal(JournalError::NotAJournal { .. })), "{error}");
    assert_eq!(fs::read_to_string(journal(&dir)).unwrap(), "my precious notes");
}

#[tokio::test]
async fn the_journal_of_another_chain_id_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    start(dir.path()).await.stop().await;
    let Err(error) = try_start_chain(dir.path(), 7).await else { panic!("it started") };
    assert!(error.to_string().contains("holds chain id 31337, but chain id 7 was asked for"), "{error}");
}

#[tokio::test]
async fn two_chains_cannot_share_a_directory_and_the_first_is_unharmed() {
    let dir = tempfile::tempdir().unwrap();
    let first = start(dir.path()).await;
    let Err(error) = try_start(dir.path()).await else { panic!("it started") };
    assert!(matches!(error, Error::Journal(JournalError::InUse { .. })), "{error}");
    first.ok("evm_mine", json!([])).await;
    first.stop().await;
    assert_eq!(head_after_restart(&dir).await["number"], "0x1");
}

#[tokio::test]
async fn a_busy_port_and_an_unusable_directory_name_themselves_and_the_way_out() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap();
    let config =
        selion_devchain::Config { listen, data_dir: dir.path().to_owned(), ..selion_devchain::Config::default() };
    let ended = selion_devchain::serve(config, Default::default(), |_| panic!("it is not ready")).await;
    let said = ended.unwrap_err().to_string();
    assert!(said.contains(&listen.to_string()) && said.contains("choose another"), "{said}");

    // A file where the directory should be fails for every user, root too.
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let Err(error) = try_start(&file).await else { panic!("it started") };
    assert!(matches!(error, Error::Journal(JournalError::Directory { .. })), "{error}");
    assert!(error.to_string().contains("choose another"), "{error}");
}
