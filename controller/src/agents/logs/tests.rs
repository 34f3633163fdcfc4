use futures::{FutureExt, StreamExt};
use selion_api::agent::{LogRecord, LogSource};

use super::*;

const LEASE: LeaseId = LeaseId { seq: 5, index: 0 };
const SMALL: Limits = Limits { file: 500, lease: 4_000_000, account: 8_000_000, total: 16_000_000 };

fn account(number: u8) -> Account {
    Account([number; 20])
}

fn chunk(first: u64, texts: &[&str]) -> LogChunk {
    let record = |text: &&str| LogRecord { source: LogSource::Stdout, bytes: format!("{text}\n").into_bytes() };
    let records = texts.iter().map(record).collect();
    LogChunk { lease: LEASE, attempt: 1, member: 0, first, from: 0, more: false, records, end: false }
}

fn text(kept: Kept) -> String {
    match kept {
        Kept::Record(record) => record.line().text,
        Kept::LeftOut { records, before, .. } => format!("{records} left out before {before}"),
    }
}

async fn texts(logs: &Logs, from: Begin) -> Vec<String> {
    logs.follow(account(1), LEASE, from, false, true).await.map(text).collect().await
}

/// Appends `from..to`, a record each.
fn count(logs: &Logs, from: u64, to: u64) {
    for number in from..to {
        let text = format!("record {number}");
        assert_eq!(logs.append(account(1), &chunk(number, &[&text])).unwrap(), number + 1);
    }
}

fn bytes_of(dir: &Path) -> u64 {
    let entries = fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap());
    entries
        .map(|entry| if entry.path().is_dir() { bytes_of(&entry.path()) } else { entry.metadata().unwrap().len() })
        .sum()
}

#[tokio::test]
async fn records_sent_again_after_a_broken_link_are_kept_once() {
    let dir = tempfile::tempdir().unwrap();
    let logs = Logs::open(dir.path(), Limits::default()).unwrap();
    assert_eq!(logs.append(account(1), &chunk(0, &["a", "b"])).unwrap(), 2);
    assert_eq!(logs.append(account(1), &chunk(0, &["a", "b"])).unwrap(), 2);
    assert_eq!(logs.append(account(1), &chunk(1, &["b", "c"])).unwrap(), 3);
    assert_eq!(logs.append(account(1), &chunk(0, &["a"])).unwrap(), 3);
    assert_eq!(texts(&logs, Begin::Start).await, ["a", "b", "c"]);
    let next_run = LogChunk { attempt: 2, ..chunk(0, &["again"]) };
    assert_eq!(logs.append(account(1), &next_run).unwrap(), 1);
    assert_eq!(logs.append(account(1), &chunk(3, &["late"])).unwrap(), 4, "taken from the agent, and not kept");
    assert_eq!(texts(&logs, Begin::Start).await, ["a", "b", "c", "again"], "every run stays readable");
}

#[tokio::test]
async fn records_outlive_the_process_over_many_files_and_one_that_a_crash_tore_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let logs = Logs::open(dir.path(), SMALL).unwrap();
    count(&logs, 0, 100);
    drop(logs);
    let folder = dir.path().join("logs").join(account(1).to_string()).join(LEASE.to_string());
    let mut files: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 5);
    let newest = files.last().unwrap();
    let mut bytes = fs::read(newest).unwrap();
    bytes.extend_from_slice(&[9, 0, 0, 0, 1, 0, 0, 0, 0]);
    fs::write(newest, bytes).unwrap();
    let logs = Logs::open(dir.path(), SMALL).unwrap();
    assert_eq!(logs.append(account(1), &chunk(0, &[])).unwrap(), 100, "an agent that was restarted asks so");
    count(&logs, 100, 120);
    let all: Vec<String> = (0..120).map(|number| format!("record {number}")).collect();
    assert_eq!(texts(&logs, Begin::Start).await, all);
    assert_eq!(texts(&logs, Begin::Tail(3)).await, all[117..]);
    assert_eq!(texts(&logs, Begin::Tail(60)).await, all[60..]);
    assert_eq!(texts(&logs, Begin::Tail(1_000)).await, all);
    assert!(texts(&logs, Begin::Tail(0)).await.is_empty());
}

#[tokio::test]
async fn bytes_arrive_as_they_were_printed_and_the_last_line_begins_at_its_beginning() {
    let dir = tempfile::tempdir().unwrap();
    let logs = Logs::open(dir.path(), SMALL).unwrap();
    let pieces: [&[u8]; 4] = [b"whole\n", b"\xff\x00 not ", b"text\r\n", b"\r 10%"];
    let records = pieces.iter().map(|bytes| LogRecord { source: LogSource::Stdout, bytes: bytes.to_vec() }).collect();
    logs.append(account(1), &LogChunk { records, ..chunk(0, &[]) }).unwrap();
    let bytes = |kept| match kept {
        Kept::Record(record) => record.bytes,
        Kept::LeftOut { .. } => panic!("nothing is left out"),
    };
    let read: Vec<Vec<u8>> = logs.follow(account(1), LEASE, Begin::Start, false, true).await.map(bytes).collect().await;
    assert_eq!(read, pieces);
    let last: Vec<Vec<u8>> =
        logs.follow(account(1), LEASE, Begin::Tail(2), false, true).await.map(bytes).collect().await;
    assert_eq!(last, pieces[1..]);
}

#[tokio::test]
async fn a_chunk_that_cannot_be_written_is_kept_when_it_comes_again() {
    let dir = tempfile::tempdir().unwrap();
    let logs = Logs::open(dir.path(), Limits::default()).unwrap();
    let blocked = logs.block(account(1), LEASE);
    logs.append(account(1), &chunk(0, &["a"])).unwrap_err();
    drop(blocked);
    assert_eq!(logs.append(account(1), &chunk(0, &["a"])).unwrap(), 1);
    assert_eq!(texts(&logs, Begin::Start).await, ["a"]);
}

#[tokio::test]
async fn a_follower_gets_records_as_they_come_and_ends_after_the_last_words_of_a_lease_that_is_over() {
    let dir = tempfile::tempdir().unwrap();
    let logs = Logs::open(dir.path(), SMALL).unwrap();
    count(&logs, 0, 1);
    let kept = logs.follow(account(1), LEASE, Begin::Start, true, true).await;
    tokio::pin!(kept);
    assert_eq!(text(kept.next().await.unwrap()), "record 0");
    assert!(kept.next().now_or_never().is_none(), "nothing new yet");
    count(&logs, 1, 50);
    for number in 1..50 {
        assert_eq!(text(kept.next().await.unwrap()), format!("record {number}"));
    }
    logs.finish(LEASE);
    assert!(kept.next().now_or_never().is_none(), "its member has not said all");
    logs.append(account(1), &LogChunk { end: true, ..chunk(50, &["the end"]) }).unwrap();
    assert_eq!(text(kept.next().await.unwrap()), "the end");
    assert!(kept.next().await.is_none());
}

#[tokio::test]
async fn nobody_waits_for_the_last_words_of_a_node_that_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let logs = Logs::open(dir.path(), SMALL).unwrap();
    count(&logs, 0, 1);
    let kept = logs.follow(account(1), LEASE, Begin::Start, true, true).await;
    logs.finish(LEASE);
    logs.abandon(LEASE, 0);
    assert_eq!(kept.map(text).collect::<Vec<_>>().await, ["record 0"]);
}

#[tokio::test]
async fn of_a_lease_that_prints_too_much_the_first_and_the_last_stay_and_one_line_tells_of_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { file: 1_000, lease: 400_000, account: 900_000, total: 900_000 };
    let logs = Logs::open(dir.path(), limits).unwrap();
    count(&logs, 0, 2_000);
    assert!(bytes_of(dir.path()) <= limits.lease);
    let kept = texts(&logs, Begin::Start).await;
    assert_eq!((kept.first().unwrap().as_str(), kept.last().unwrap().as_str()), ("record 0", "record 1999"));
    let notes: Vec<&String> = kept.iter().filter(|text| text.contains("left out")).collect();
    let [note] = &notes[..] else { panic!("one line: {notes:?}") };
    let (missing, before) = note.split_once(" left out before ").unwrap();
    assert_eq!(missing.parse::<usize>().unwrap() + kept.len() - 1, 2_000);
    let at = kept.iter().position(|text| text == *note).unwrap();
    assert_eq!(kept[at + 1], format!("record {before}"));
    assert_eq!(texts(&logs, Begin::Tail(1)).await, ["record 1999"]);
}

#[tokio::test]
async fn above_the_bounds_whoever_has_most_makes_room_and_nobody_who_has_little_loses_anything() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { file: 1_000, lease: 200_000, account: 400_000, total: 500_000 };
    let logs = Logs::open(dir.path(), limits).unwrap();
    let of = |seq: u64, text: &str| LogChunk { lease: LeaseId { seq, index: 0 }, ..chunk(0, &[text]) };
    logs.append(account(2), &of(0, "the only words of a small account")).unwrap();
    for seq in 1..100 {
        logs.append(account(1), &of(seq, &"x".repeat(2_000))).unwrap();
        logs.finish(LeaseId { seq, index: 0 });
    }
    let folder = |number: u8| dir.path().join("logs").join(account(number).to_string());
    let leases = |number: u8| fs::read_dir(folder(number)).unwrap().count();
    assert_eq!(leases(2), 1, "the oldest of all, of somebody else");
    assert!((2..=24).contains(&leases(1)), "{}", leases(1));
    assert!(folder(1).join("lease-99-0").exists() && !folder(1).join("lease-1-0").exists(), "its oldest go first");
    // What is live gives up its oldest only, and goes on.
    let logs = Logs::open(dir.path(), Limits { account: 40_000, ..limits }).unwrap();
    let long = LeaseId { seq: 200, index: 0 };
    for first in 0..40 {
        logs.append(account(3), &LogChunk { lease: long, ..chunk(first, &[&"y".repeat(1_500)]) }).unwrap();
    }
    let kept: Vec<String> = logs.follow(account(3), long, Begin::Start, false, true).await.map(text).collect().await;
    assert!(kept.len() < 10 && kept.last().unwrap().starts_with('y'), "{}", kept.len());
}

#[tokio::test]
async fn what_is_on_disk_is_counted_again_after_a_restart_and_leases_that_are_over_are_known() {
    let dir = tempfile::tempdir().unwrap();
    let limits = Limits { file: 1_000, lease: 200_000, account: 400_000, total: 500_000 };
    let of = |seq: u64| LogChunk { lease: LeaseId { seq, index: 0 }, ..chunk(0, &["x"]) };
    let logs = Logs::open(dir.path(), limits).unwrap();
    for seq in 0..20 {
        logs.append(account(1), &of(seq)).unwrap();
    }
    drop(logs);
    let logs = Logs::open(dir.path(), limits).unwrap();
    logs.tend(|lease| lease.seq == 0);
    for seq in 20..40 {
        logs.append(account(1), &of(seq)).unwrap();
    }
    let folder = dir.path().join("logs").join(account(1).to_string());
    assert!(folder.join("lease-0-0").exists(), "it is live");
    assert!(!folder.join("lease-1-0").exists(), "it is over, and the oldest of those");
}
