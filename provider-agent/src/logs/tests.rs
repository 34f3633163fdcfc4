use selion_api::LeaseId;
use selion_api::agent::{MAX_LOG_CHUNK, MAX_RECORD};

use super::*;

const KEY: MemberKey = MemberKey { lease: LeaseId { seq: 1, index: 0 }, attempt: 0, member: 0 };

fn record(text: &str) -> LogRecord {
    LogRecord { source: LogSource::Stdout, bytes: text.as_bytes().to_vec() }
}

/// A folder, and the records in it of a member that was opened.
async fn said(texts: &[&str]) -> (tempfile::TempDir, Logs) {
    let dir = tempfile::tempdir().unwrap();
    let logs = Logs { patience: Duration::from_millis(50), ..Logs::open(&dir.path().join("logs")).unwrap() };
    logs.open_member(KEY);
    for text in texts {
        logs.push(KEY, vec![record(text)]).await;
    }
    (dir, logs)
}

/// What the link is sent: number of the first record, their texts, and whether that is the end.
fn told(logs: &Logs) -> Vec<(u64, String, bool)> {
    let text = |record: &LogRecord| String::from_utf8_lossy(&record.bytes).into_owned();
    let one = |chunk: LogChunk| (chunk.first, chunk.records.iter().map(text).collect(), chunk.end);
    logs.take(usize::MAX).into_iter().map(one).collect()
}

fn one(number: u64, text: &str) -> Vec<(u64, String, bool)> {
    vec![(number, text.to_owned(), false)]
}

fn is_forgotten(logs: &Logs) -> bool {
    logs.members().is_empty() && std::fs::read_dir(&logs.dir).unwrap().next().is_none()
}

#[tokio::test]
async fn records_are_numbered_over_all_streams() {
    let (_dir, logs) = said(&["a\n", "b\n"]).await;
    logs.note(KEY, "c".into());
    let chunks = logs.take(10);
    let [chunk] = &chunks[..] else { panic!("{chunks:?}") };
    let sources: Vec<LogSource> = chunk.records.iter().map(|record| record.source).collect();
    assert_eq!(sources, [LogSource::Stdout, LogSource::Stdout, LogSource::Agent]);
    logs.push(KEY, vec![record("d\n")]).await;
    assert_eq!(told(&logs), one(3, "d\n"));
}

#[tokio::test]
async fn what_was_not_acknowledged_is_sent_again_on_the_next_link_with_the_same_numbers() {
    let (_dir, logs) = said(&["a", "b", "c"]).await;
    assert_eq!(told(&logs), one(0, "abc"));
    assert_eq!(told(&logs), [], "once on a link");
    logs.acknowledge(KEY, 1);
    assert_eq!(told(&logs), [], "nor after an acknowledgement");
    logs.rewind();
    assert_eq!(told(&logs), one(1, "bc"));
    logs.rewind();
    logs.push(KEY, vec![record("d")]).await;
    // The controller had them: it is the acknowledgement that was lost.
    logs.acknowledge(KEY, 3);
    assert_eq!(told(&logs), one(3, "d"));
}

#[tokio::test]
async fn a_member_that_ended_is_forgotten_once_all_of_it_is_acknowledged_and_not_before() {
    let (_dir, logs) = said(&["a", "b"]).await;
    logs.close(KEY);
    assert_eq!(told(&logs), [(0, "ab".to_owned(), true)], "the end goes with the last");
    logs.acknowledge(KEY, 1);
    assert!(!is_forgotten(&logs));
    logs.acknowledge(KEY, 2);
    assert!(is_forgotten(&logs));
    let (_dir, logs) = said(&["a"]).await;
    assert_eq!(told(&logs), one(0, "a"));
    logs.acknowledge(KEY, 1);
    assert!(!is_forgotten(&logs), "more may follow");
    logs.close(KEY);
    assert_eq!(told(&logs), [(1, String::new(), true)]);
    logs.acknowledge(KEY, 1);
    assert!(is_forgotten(&logs));
    let (_dir, logs) = said(&[]).await;
    logs.close(KEY);
    assert!(is_forgotten(&logs), "nobody need hear of a member that said nothing");
}

#[tokio::test]
async fn an_agent_that_was_killed_sends_what_it_had_kept() {
    let (dir, logs) = said(&["a", "b", "c"]).await;
    assert_eq!(told(&logs).len(), 1);
    logs.acknowledge(KEY, 1);
    drop(logs);
    let logs = Logs::open(&dir.path().join("logs")).unwrap();
    logs.note(KEY, "restarted".into());
    // The controller takes what it has not.
    assert_eq!(told(&logs), [(0, "abc".to_owned(), false), (3, "restarted\n".to_owned(), true)]);
    logs.acknowledge(KEY, 4);
    assert!(is_forgotten(&logs));
}

#[tokio::test]
async fn who_prints_waits_while_the_controller_takes_records_and_nothing_is_lost() {
    let (_dir, logs) = said(&[]).await;
    let logs = Logs { patience: Duration::from_secs(60), ..logs };
    let printer = logs.clone();
    let records = 100_u64;
    // More than the node keeps of a member.
    let printing = tokio::spawn(async move {
        for _ in 0..records {
            printer.push(KEY, vec![record(&"x".repeat(MAX_RECORD))]).await;
        }
        printer.close(KEY);
    });
    let (mut next, mut bytes, mut ended) = (0, 0, false);
    while !ended {
        logs.changed().await;
        for chunk in logs.take(16) {
            assert!(chunk.records.iter().map(|record| record.bytes.len()).sum::<usize>() <= MAX_LOG_CHUNK);
            assert_eq!(chunk.first, next);
            bytes += chunk.records.iter().map(|record| record.bytes.len()).sum::<usize>();
            next += chunk.records.len() as u64 - u64::from(chunk.more);
            ended |= chunk.end;
            logs.acknowledge(KEY, next);
        }
    }
    printing.await.unwrap();
    logs.acknowledge(KEY, records);
    assert_eq!((next, bytes), (records, records as usize * MAX_RECORD));
}

#[tokio::test]
async fn where_nobody_takes_records_the_first_and_the_last_stay_and_one_line_tells_of_the_rest() {
    let (dir, logs) = said(&["the beginning\n"]).await;
    let flood = 2 * MEMBER_BYTES as usize / MAX_RECORD;
    for n in 0..flood {
        logs.push(KEY, vec![record(&format!("{n:09}{}\n", "x".repeat(MAX_RECORD - 10)))]).await;
    }
    logs.push(KEY, vec![record("Traceback: boom\n")]).await;
    let on_disk: u64 = std::fs::read_dir(dir.path().join("logs").join(KEY.to_string()))
        .unwrap()
        .map(|file| file.unwrap().metadata().unwrap().len())
        .sum();
    assert!(on_disk <= MEMBER_BYTES + (2 << 20), "{on_disk}");
    let chunks = logs.take(usize::MAX);
    let first = &chunks.first().unwrap().records[0];
    assert_eq!(first.bytes, b"the beginning\n");
    assert_eq!(chunks.last().unwrap().records.last().unwrap().bytes, b"Traceback: boom\n");
    let notes: Vec<String> = chunks
        .iter()
        .flat_map(|chunk| &chunk.records)
        .filter(|record| record.source == LogSource::Agent)
        .map(|record| String::from_utf8_lossy(&record.bytes).into_owned())
        .collect();
    let [note] = &notes[..] else { panic!("one line: {notes:?}") };
    assert!(note.contains("lines were left out here"), "{note}");
    assert_eq!(chunks.last().unwrap().first + chunks.last().unwrap().records.len() as u64, flood as u64 + 2);
}

#[tokio::test]
async fn a_command_that_ends_waits_for_nobody() {
    let (_dir, logs) = said(&[]).await;
    let logs = Logs { patience: Duration::from_secs(3_600), ..logs };
    logs.hasten(KEY);
    for _ in 0..2 * MEMBER_BYTES as usize / MAX_RECORD {
        logs.push(KEY, vec![record(&"x".repeat(MAX_RECORD))]).await;
    }
    logs.push(KEY, vec![record("last")]).await;
    let last = logs.take(usize::MAX).pop().unwrap().records.pop().unwrap();
    assert_eq!(last.bytes, b"last");
}

#[tokio::test]
async fn what_the_controller_could_not_keep_is_sent_again_at_the_next_try_only() {
    let (_dir, logs) = said(&["a", "b", "c"]).await;
    assert_eq!(told(&logs).len(), 1);
    logs.refused(KEY, 1);
    logs.push(KEY, vec![record("d")]).await;
    assert_eq!(told(&logs), []);
    logs.retry();
    assert_eq!(told(&logs), one(1, "bcd"));
}

#[tokio::test]
async fn a_member_that_nobody_here_opened_goes_on_where_the_controller_says() {
    let dir = tempfile::tempdir().unwrap();
    let logs = Logs::open(dir.path()).unwrap();
    logs.note(KEY, "never prepared".into());
    logs.close(KEY);
    assert_eq!(told(&logs), one(0, ""), "it is asked first");
    assert_eq!(told(&logs), []);
    logs.rewind();
    assert_eq!(told(&logs), one(0, ""), "and again, if the answer was lost");
    logs.refused(KEY, 0);
    logs.retry();
    assert_eq!(told(&logs), one(0, ""), "or could not be given");
    logs.acknowledge(KEY, 7);
    assert_eq!(told(&logs), [(7, "never prepared\n".to_owned(), true)]);
    logs.acknowledge(KEY, 8);
    assert!(is_forgotten(&logs));
}

#[tokio::test]
async fn members_take_turns_and_what_a_burst_leaves_behind_wakes_the_link() {
    let (_dir, logs) = said(&[]).await;
    let other = MemberKey { member: 1, ..KEY };
    logs.open_member(other);
    for _ in 0..3 {
        logs.push(KEY, vec![record(&"a".repeat(MAX_LOG_CHUNK))]).await;
    }
    logs.push(other, vec![record("b")]).await;
    logs.changed().await;
    let members: Vec<u16> = logs.take(2).iter().map(|chunk| chunk.member).collect();
    assert_eq!(members, [0, 1]);
    logs.changed().await;
    assert_eq!(told(&logs).len(), 2);
}
