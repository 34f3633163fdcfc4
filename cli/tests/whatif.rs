//! `selion simulate log`, `selion simulate philly` and `selion why`, on files, from outside.
#![expect(clippy::expect_used, reason = "a test that cannot go on says why")]

use std::path::Path;
use std::process::{Command, Output};

use selion_api::commit::canonical;
use selion_api::lease::{LeaseRequest, MemberWant, OnNodeLoss, Priority};
use selion_api::rest::LoggedEntry;
use selion_api::slice::SliceWant;
use selion_api::{Hash32, LeaseId, Rate};
use selion_log::{Entry, leaf_hash, root};
use selion_sim::world::{Fleet, HOUR, Keep, START, Work, World, account};
use serde_json::Value;

const TOKEN: u64 = 1_000_000;

fn run(home: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_selion"));
    command.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin").current_dir(home);
    command.args(words).output().expect("the binary starts")
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(bytes)))
}

/// Node 1 asks 1.00 and is taken for three hours; node 2 asks 2.00, and the second renter pays no more than 1.90.
fn made(home: &Path) -> [LeaseId; 2] {
    let mut world = World::keeping(Default::default(), Keep { log: true, opinion: true });
    world.add_fleet(&Fleet { rates: vec![Rate(TOKEN), Rate(2 * TOKEN)], ..Fleet::even(2, 1, "A100") });
    world.fund(&(1..=2).map(account).collect());
    let mut leases = Vec::new();
    for (renter, hours, max_rate) in [(1_u8, 3, None), (2, 1, Some(Rate(TOKEN * 19 / 10)))] {
        world.run_until(START.plus((u64::from(renter) - 1) * HOUR));
        let want = MemberWant { cpu_milli: 500, ram_bytes: 1 << 30, ..MemberWant::of(SliceWant::Whole) };
        let request = LeaseRequest {
            renter: account(renter.into()),
            idem: Hash32([renter; 32]),
            members: vec![want],
            min_members: 1,
            min_nodes: 1,
            within: selion_api::lease::Within::Pool,
            max_latency_us: None,
            regions: Vec::new(),
            max_rate,
            classes: 0b11_1111,
            needs: selion_api::BoxFeatures::NONE,
            duration_ms: 10 * HOUR,
            wait_ms: 48 * HOUR,
            on_node_loss: OnNodeLoss::End,
            work: Hash32::ZERO,
            datasets: Vec::new(),
            near_data: false,
            priority: Priority::Standard,
            licence: None,
        };
        leases.push(world.request(request, Work::plain(hours * HOUR)).expect("taken"));
    }
    world.run_out(START.plus(20 * HOUR));
    let lines: Vec<String> = world
        .log()
        .iter()
        .map(|entered| {
            let hashes: Vec<Hash32> = entered.effects.iter().map(|leaf| leaf_hash(leaf)).collect();
            let stamp = entered.stamp;
            let (seq, fence, at_ms) = (stamp.seq, stamp.fence, stamp.at_ms);
            let entry =
                Entry { rules: 1, seq, fence, at_ms, input: canonical(&entered.input), effects_root: root(&hashes) };
            let effects = entered.effects.iter().map(hex::encode).collect();
            let logged = LoggedEntry { seq, entry: hex::encode(entry.bytes()), effects, head: None };
            serde_json::to_string(&logged).expect("it serialises")
        })
        .collect();
    std::fs::write(home.join("log.jsonl"), lines.join("\n")).expect("written");
    leases.try_into().expect("two")
}

#[test]
fn why_says_what_was_too_dear_and_what_a_tenth_more_would_have_done() {
    let home = tempfile::tempdir().expect("a folder");
    let [first, second] = made(home.path()).map(|lease| lease.to_string());
    let told =
        json(&run(home.path(), &["why", &second, "--log", "log.jsonl", "--if", "max_rate=+10%", "--json"]).stdout);
    assert_eq!((told["state"].as_str(), told["reason"].as_str()), (Some("waiting"), Some("pool_full")));
    assert_eq!(told["candidates"][1]["held_by"][0], first.as_str());
    assert_eq!(told["fate"]["waited_ms"], 2 * HOUR);
    assert_eq!(told["what_if"]["before"]["waited_ms"], 2 * HOUR);
    assert_eq!(
        (told["what_if"]["after"]["waited_ms"].as_u64(), told["what_if"]["rate_after"].as_str()),
        (Some(0), Some("2000000"))
    );

    let pool =
        json(&run(home.path(), &["why", &second, "--log", "log.jsonl", "--if", "price.A100=-50%", "--json"]).stdout);
    assert_eq!((pool["what_if"]["after"]["waited_ms"].as_u64(), pool["what_if"]["from"].as_u64()), (Some(0), Some(0)));

    let plain = run(home.path(), &["why", &second, "--log", "log.jsonl", "--at", "2001-09-09T03:00:00Z"]);
    let text = String::from_utf8_lossy(&plain.stdout).into_owned();
    assert!(text.contains(&format!("{second} at 2001-09-09 03:00:00Z")) && text.contains("price_above_max"), "{text}");
}

#[test]
fn a_question_that_cannot_be_answered_says_what_to_do() {
    let home = tempfile::tempdir().expect("a folder");
    let [_, second] = made(home.path()).map(|lease| lease.to_string());
    std::fs::write(home.path().join("few.csv"), "id,user\n1,u\n").expect("written");
    let table: [(&[&str], i32, &str); 8] = [
        (&["why", "lease-1-0", "--log", "log.jsonl"], 3, "the log knows no lease lease-1-0"),
        (&["why", &second, "--log", "log.jsonl", "--at", "2001-01-01T00:00:00Z"], 2, "ask for a time from 2001-09-09"),
        (&["why", &second, "--log", "nowhere.jsonl"], 9, "nowhere.jsonl"),
        (&["why", &second, "--log", "."], 2, "holds no selion.db"),
        (&["why", &second, "--log", "log.jsonl", "--if", "price.H100=-20%"], 2, "the log has the models A100"),
        (&["simulate", "log", "--from-log", "log.jsonl", "--change", "quota.lab=9%"], 2, "no account is in the group"),
        (&["simulate", "philly", "--jobs", "few.csv"], 2, "no column `job_id`"),
        (&["simulate", "philly", "--jobs", "none.csv"], 2, "none.csv"),
    ];
    for (words, code, says) in table {
        let done = run(home.path(), words);
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.code() == Some(code) && text.contains(says), "{words:?}: {:?} {text}", done.status.code());
    }
    let altered =
        std::fs::read_to_string(home.path().join("log.jsonl")).expect("read").replace("\"seq\":3,", "\"seq\":4,");
    std::fs::write(home.path().join("bad.jsonl"), altered).expect("written");
    let done = run(home.path(), &["why", &second, "--log", "bad.jsonl"]);
    assert!(String::from_utf8_lossy(&done.stderr).contains("entry 3 is missing"), "{done:?}");
}

#[test]
fn a_lower_price_is_tried_out_on_a_log() {
    let home = tempfile::tempdir().expect("a folder");
    made(home.path());
    let words = ["simulate", "log", "--from-log", "log.jsonl", "--change", "price=-50%"];
    let text = String::from_utf8_lossy(&run(home.path(), &words).stdout).into_owned();
    assert!(text.contains("2 of 2 requests differ") && text.contains("paid 4.00 then 2.50"), "{text}");
    assert!(text.contains("starts 2 of the log's 2 started leases"), "{text}");
    let told = json(&run(home.path(), &[&words[..], &["--json"]].concat()).stdout);
    assert_eq!(told["lines"][1]["after"]["waited_ms"], 0);
    assert_eq!(told["reproduced"], 2);
    assert!(told.get("checked").is_none(), "nobody asked");
    let text = String::from_utf8_lossy(&run(home.path(), &[&words[..], &["--check"]].concat()).stdout).into_owned();
    assert!(text.contains("\nchecked: ") && text.contains(" entries"), "{text}");
}

#[test]
fn a_small_trace_is_run_from_the_command_line() {
    let home = tempfile::tempdir().expect("a folder");
    std::fs::write(
        home.path().join("jobs.csv"),
        "job_id,user,num_gpu,submit_time,duration\na,u,1,0,240\nb,v,2,60,120\nc,u,1,300,60\n",
    )
    .expect("written");
    let words = ["simulate", "philly", "--jobs", "jobs.csv", "--nodes", "1", "--gpus-per-node", "2"];
    let told = json(&run(home.path(), &[&words[..], &["--json"]].concat()).stdout);
    assert_eq!(told["classes"][0]["wait_min"]["max"], 180.0);
    assert_eq!((told["completed"].as_u64(), told["makespan_h"].as_f64()), (Some(3), Some(7.0)));
    let text = String::from_utf8_lossy(&run(home.path(), &words).stdout).into_owned();
    assert!(text.contains("WAIT MEAN") && text.contains("rho = T_shared / T_ideal"), "{text}");
    assert!(!text.contains("GROUP"), "{text}");

    let told = json(&run(home.path(), &[&words[..], &["--check", "--json"]].concat()).stdout);
    assert_eq!((&told["checked"]["entries"], told["checked"]["faults"].as_u64()), (&told["entries"], Some(0)));

    let tree = ["--group-by", "user", "--org", "lab=u", "--quotas", "50%", "--policy", "quota.lab=40%"];
    let told = json(&run(home.path(), &[&words[..], &tree, &["--json"]].concat()).stdout);
    let groups = told["groups"].as_array().expect("groups").iter();
    let groups: Vec<_> = groups.map(|group| (&group["path"], &group["quota_permille"], &group["jobs"])).collect();
    assert_eq!(serde_json::json!(groups), serde_json::json!([["lab", 400, 2], ["lab/u", 0, 2], ["v", 222, 1]]));
    let text = String::from_utf8_lossy(&run(home.path(), &[&words[..], &tree].concat()).stdout).into_owned();
    assert!(text.contains("BELOW QUOTA"), "{text}");
    let table: [(&[&str], &str); 3] = [
        (&["--group-by", "user", "--policy", "quota.lab=40%"], "no job is of the group `lab`; the groups are u, v"),
        (&["--group-by", "vc"], "no column `vc`"),
        (&["--policy", "price=-10%"], "is not a change of the policy"),
    ];
    for (more, says) in table {
        let done = run(home.path(), &[&words[..], more].concat());
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.code() == Some(2) && text.contains(says), "{more:?}: {text}");
    }
}
