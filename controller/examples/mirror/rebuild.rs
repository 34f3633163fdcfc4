//! The log again: State from its entries, and rows from its entries, each in a process of its own for its memory.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use selion_api::chain::{Block, ChainEvent};
use selion_api::{Account, Address, Amount, Hash32};
use selion_controller::sequencer::refold;
use selion_controller::store::{Store, entry};
use selion_market::Input;

use crate::{log, per_second};

const RENTERS: u64 = 10_000;
const EVENTS_A_BLOCK: u64 = 10;
/// Blocks in a commit, as the mirror enters them.
const COMMIT: usize = 256;

pub async fn run(events: u64) {
    let dir = tempfile::tempdir().unwrap();
    println!("{events} events of {RENTERS} renters, {EVENTS_A_BLOCK} in a block, an entry for each block");
    for part in ["enter", "state", "rows"] {
        let me = std::env::current_exe().unwrap();
        let ended = Command::new(me).args(["rebuild-part", part]).arg(dir.path()).arg(events.to_string()).status();
        assert!(ended.unwrap().success(), "{part}");
    }
}

/// One part, in this process.
pub async fn part(what: &str, dir: &Path, events: u64) {
    let store = Store::open(dir).await.unwrap();
    let began = Instant::now();
    let name = match what {
        "enter" => {
            enter(&store, events).await;
            "entered, with State and rows"
        }
        "state" => {
            // Else a snapshot of State is loaded in place of the entries.
            sqlx::query("delete from snapshot").execute(&store.writer).await.unwrap();
            let (_, stop, task) = log(&store).await;
            println!("  started without a snapshot after {:.1} s", began.elapsed().as_secs_f64());
            stop.cancel();
            task.await.unwrap();
            "State from the entries"
        }
        "rows" => {
            refold(&store).await.unwrap();
            "rows from the entries"
        }
        other => panic!("{other} is no part"),
    };
    let took = began.elapsed();
    let size = entry::size(&store.readers).await.unwrap();
    store.close().await;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).map_or("unknown", str::trim);
    let rate = per_second(events, took);
    println!("  {name:30} {:7.1} s {rate:>8} events/s, log of {size} entries, at most {peak}", took.as_secs_f64());
}

async fn enter(store: &Store, events: u64) {
    let (log, stop, task) = log(store).await;
    let opened = ChainEvent::PoolOpened {
        token: Address([3; 20]),
        vault: Address([4; 20]),
        owner: Account([4; 20]),
        authority: Account([5; 20]),
        fee_bps: 200,
        allow_simulated: true,
        allow_unsandboxed: true,
        finality_depth: 0,
        min_stake: Amount(0),
    };
    let block = |number: u64, events: Vec<ChainEvent>| {
        let mut hash = [7; 32];
        hash[..8].copy_from_slice(&number.to_be_bytes());
        Input::Block(Block { number, hash: Hash32(hash), parent: Hash32::ZERO, events })
    };
    let deposit = |event: u64| {
        let mut renter = [9; 20];
        renter[..8].copy_from_slice(&(event * 7_919 % RENTERS).to_be_bytes());
        ChainEvent::Deposited { renter: Account(renter), amount: Amount(1 + event % 100) }
    };
    log.submit(block(1, vec![opened]), None).await.unwrap();
    let numbers: Vec<u64> = (0..events.div_ceil(EVENTS_A_BLOCK)).collect();
    for some in numbers.chunks(COMMIT) {
        let of = |number: u64| (number * EVENTS_A_BLOCK..events.min((number + 1) * EVENTS_A_BLOCK)).map(deposit);
        let blocks = some.iter().map(|number| block(number + 2, of(*number).collect())).collect();
        log.submit_all(blocks).await.unwrap();
    }
    stop.cancel();
    task.await.unwrap();
}
