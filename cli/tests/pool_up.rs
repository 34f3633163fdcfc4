//! `selion up` and the renter's first commands, with the real binary: a pool out of nothing, stopped, started again.
#![expect(clippy::expect_used, reason = "a test that cannot go on says why")]

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use selion_dataplane::{Store, gateway};
use serde_json::Value;

struct Pool {
    process: Child,
    stdout: BufReader<ChildStdout>,
    ready: Value,
}

fn selion(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_selion"));
    command.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin").current_dir(home);
    command
}

impl Pool {
    fn start(home: &Path) -> Self {
        let mut process = selion(home)
            .args([
                "up",
                "--output",
                "json",
                "--data-dir",
                "d",
                "--listen",
                "127.0.0.1:0",
                "--chain-listen",
                "127.0.0.1:0",
            ])
            .args(["--simulate", "H100 80GB"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let mut stdout = BufReader::new(process.stdout.take().expect("piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("readable");
        let said: Value = serde_json::from_str(&line).expect("a line of JSON");
        assert!(said["ready"].is_object(), "{said}");
        Self { process, stdout, ready: said["ready"].clone() }
    }

    fn pid(&self, name: &str) -> i32 {
        i32::try_from(self.ready["pids"][name].as_i64().expect("a pid")).expect("fits")
    }

    /// The next thing it says.
    fn says(&mut self) -> Value {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("readable");
        serde_json::from_str(&line).expect("a line of JSON")
    }

    /// Ctrl-C, and the exit code.
    fn interrupt(mut self) -> Option<i32> {
        kill(Pid::from_raw(self.process.id().cast_signed()), Signal::SIGINT).expect("signalled");
        self.process.wait().expect("waited").code()
    }
}

fn is_alive(pid: i32) -> bool {
    kill(Pid::from_raw(pid), None).is_ok()
}

fn run(home: &Path, words: &[&str]) -> Output {
    selion(home).args(words).output().expect("the binary starts")
}

fn json(done: &Output) -> Value {
    let shown = || format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).unwrap_or_else(|error| panic!("{error}: {}", shown()))
}

fn a_key_does_what_its_scope_says_until_it_is_revoked(home: &Path) {
    let words = ["key", "create", "--scope", "lease:read", "--name", "ci", "--expires", "1d", "--output", "json"];
    let key = json(&run(home, &words));
    let secret = key["api_key"].as_str().expect("a key").to_owned();
    let with_key = |words: &[&str]| selion(home).args(words).env("SELION_API_KEY", &secret).output().expect("starts");
    assert_eq!(with_key(&["lease", "list"]).status.code(), Some(0));
    let narrow = with_key(&["data", "list", "--output", "json"]);
    assert_eq!((narrow.status.code(), &json(&narrow)["error"]["code"]), (Some(4), &"missing_scope".into()));
    let listed = run(home, &["key", "list", "--output", "json"]);
    assert!(!String::from_utf8_lossy(&listed.stdout).contains(&secret));
    assert_eq!(json(&listed)["api_keys"][0]["name"], "ci");
    assert_eq!(run(home, &["key", "revoke", &key["id"].to_string()]).status.code(), Some(0));
    let over = with_key(&["lease", "list", "--output", "json"]);
    assert_eq!((over.status.code(), &json(&over)["error"]["code"]), (Some(4), &"bad_api_key".into()));
}

fn controller_and_key_in_the_environment_are_enough(home: &Path, url: &str) {
    let mut words = vec!["key", "create", "--name", "ci", "--output", "json"];
    for scope in ["lease:read", "lease:write", "data:read", "data:write", "money:read"] {
        words.extend(["--scope", scope]);
    }
    let key = json(&run(home, &words))["api_key"].as_str().expect("a key").to_owned();
    let empty = tempfile::tempdir().expect("a folder");
    let nowhere = empty.path().join("there/is/no/profile");
    for place in [None, Some(&nowhere)] {
        let bare = |words: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_selion"));
            command.env_clear().env("PATH", "/usr/bin:/bin").current_dir(empty.path()).args(words);
            command
                .env("SELION_CONTROLLER", url)
                .env("SELION_API_KEY", &key)
                .envs(place.map(|dir| ("SELION_HOME", dir)));
            command.output().expect("the binary starts")
        };
        for words in [
            &["offers"][..],
            &["whoami"],
            &["lease", "list"],
            &["data", "list"],
            &["account", "show"],
            &["why", "--help"],
        ] {
            let done = bare(words);
            assert_eq!(done.status.code(), Some(0), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        }
        let hi = bare(&["run", "--slice", "1g.10gb", "--", "echo", "hi"]);
        assert_eq!(String::from_utf8_lossy(&hi.stdout), "hi\n", "{}", String::from_utf8_lossy(&hi.stderr));
        std::fs::write(empty.path().join("in.txt"), "more data\n").expect("written");
        let added = bare(&["data", "add", "in.txt"]);
        assert_eq!(added.status.code(), Some(0), "{}", String::from_utf8_lossy(&added.stderr));
    }
    let long = selion(home).args(["run", "--slice", "1g.10gb", "--duration", "31d", "--", "true"]).output();
    let told = String::from_utf8_lossy(&long.expect("the binary starts").stderr).into_owned();
    assert!(told.contains("--duration") && !told.contains("duration_ms"), "{told}");
}

fn a_device_is_let_in_by_its_code_and_logs_out(home: &Path, url: &str) {
    let elsewhere = tempfile::tempdir().expect("a folder");
    let elsewhere = elsewhere.path();
    let login = ["login", "--controller", url, "--device", "--output", "json"];
    let mut device = selion(elsewhere).args(login).stdout(Stdio::piped()).spawn().expect("the binary starts");
    let mut said = BufReader::new(device.stdout.take().expect("piped")).lines();
    let mut next = || -> Value {
        let line = said.next().expect("a line").expect("readable");
        serde_json::from_str(&line).expect("a line of JSON")
    };
    let asked = next();
    let code = asked["device"]["user_code"].as_str().expect("a code");
    assert_eq!(run(home, &["approve", code]).status.code(), Some(0));
    let account = next()["account"].clone();
    assert_eq!(device.wait().expect("ends").code(), Some(0));
    assert_eq!(json(&run(elsewhere, &["whoami", "--output", "json"]))["account"], account);
    assert_eq!(json(&run(home, &["whoami", "--output", "json"]))["account"], account);
    let refused = run(elsewhere, &["key", "list", "--output", "json"]);
    assert_eq!(json(&refused)["error"]["code"], "missing_scope");
    assert_eq!(run(elsewhere, &["logout"]).status.code(), Some(0));
    assert_eq!(run(elsewhere, &["whoami"]).status.code(), Some(4));
    assert_eq!(run(home, &["whoami"]).status.code(), Some(0), "the other login goes on");
}

/// The program on a terminal of its own, where somebody types `answer`; its exit code and all that was shown.
fn on_a_terminal(home: &Path, words: &[&str], answer: &str) -> (Option<i32>, String) {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let line = format!("'{}' {}", env!("CARGO_BIN_EXE_selion"), quoted.join(" "));
    let mut script = Command::new("script")
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .env_clear()
        .env("HOME", home)
        .env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin")
        .env("TERM", "xterm")
        .current_dir(home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script starts");
    let mut keys = script.stdin.take().expect("piped");
    keys.write_all(answer.as_bytes()).expect("typed");
    // The terminal hangs up when nobody is left to type.
    let done = script.wait_with_output().expect("waited");
    drop(keys);
    (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned())
}

fn a_terminal_sees_how_much_is_sent(home: &Path) {
    std::fs::write(home.join("more.bin"), vec![7; 3 << 20]).expect("written");
    let (code, shown) = on_a_terminal(home, &["data", "add", "more.bin"], "");
    assert_eq!(code, Some(0), "{shown}");
    assert!(shown.contains("MiB sent"), "{shown}");
}

fn what_a_renter_moves_counts_when_the_command_ends(home: &Path) {
    let account = || json(&run(home, &["account", "show", "--output", "json"]));
    let number = |value: &Value| value.as_str().expect("an amount").parse::<u64>().expect("a number");
    let does = |words: &[&str]| {
        let done = run(home, words);
        assert_eq!(done.status.code(), Some(0), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let before = number(&account()["deposited"]);
    let said = does(&["account", "deposit", "2.50", "--dev", "--wait"]);
    assert!(said.contains("2.50 tokens deposited; it counts now"), "{said}");
    assert_eq!(number(&account()["deposited"]), before + 2_500_000);
    does(&["account", "thaw", "1", "--wait"]);
    assert_eq!(number(&account()["thawing"]), 1_000_000);
    let said = does(&["account", "thaw", "0", "--wait"]);
    assert!(said.contains("nothing thaws any more") && !said.contains("1970"), "{said}");
    assert_eq!(number(&account()["thawing"]), 0);
}

/// Every file of the pool that holds a secret, by its full name, asked for by a lease.
fn a_lease_sees_no_key_of_the_pool(home: &Path) {
    let data = home.join("d").canonicalize().expect("there");
    let mut folders = vec![data.clone()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("readable") {
            let entry = entry.expect("readable");
            match entry.file_type().expect("known") {
                kind if kind.is_dir() => folders.push(entry.path()),
                kind if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    let names: Vec<_> = files.iter().map(|file| file.to_str().expect("UTF-8")).collect();
    for key in ["authority.key", "delegate.key", "renter.key", "chain/url"] {
        assert!(names.iter().any(|name| name.ends_with(key)), "{key} is not where this test looks: {names:?}");
    }
    let secrets = names.iter().filter(|name| ["key", "url", ".db"].iter().any(|end| name.ends_with(end)));
    let asked: Vec<_> = secrets.copied().chain([data.to_str().expect("UTF-8")]).collect();
    let script = "for name; do [ ! -e \"$name\" ] || echo \"sees $name\"; done; echo looked at $#";
    let done = run(home, &[&["run", "--slice", "1g.10gb", "--", "sh", "-c", script, "look"], &asked[..]].concat());
    assert_eq!(String::from_utf8_lossy(&done.stdout), format!("looked at {}\n", asked.len()));
}

/// A second owner comes to the pool, reads its terms and says no.
fn an_owner_is_asked_before_stake_is_locked(home: &Path, pool: &Pool) {
    let text = |name: &str| pool.ready[name].as_str().expect("a text").to_owned();
    let (rpc, at, controller) = (text("chain_rpc"), text("pool"), text("controller"));
    let words = ["agent", "up", "--state-dir", "second", "--simulate", "H100 80GB", "--pool", &at];
    let words = [&words[..], &["--controller", &controller, "--chain-rpc", &rpc]].concat();
    let providers = || json(&run(home, &["registry", "--output", "json"]));
    let before = providers();
    let (code, shown) = on_a_terminal(home, &words, "n\n");
    assert_eq!(code, Some(1), "{shown}");
    assert!(shown.contains("joining locks 1.00 tokens") && shown.contains("come back 3d after unbonding"), "{shown}");
    assert!(shown.contains("lock them? [y/N]") && shown.contains("nothing was sent"), "{shown}");
    assert_eq!(providers()["providers"], before["providers"]);
}

/// What is hard to take back is said first, and asked for; who says no has done nothing.
fn nothing_ends_before_somebody_said_yes(home: &Path, pool: &Pool) {
    let text = |name: &str| pool.ready[name].as_str().expect("a text").to_owned();
    let (rpc, at, controller) = (text("chain_rpc"), text("pool"), text("controller"));
    let place = ["--state-dir", "d/agent", "--pool", &at, "--controller", &controller, "--chain-rpc", &rpc];
    let no = |words: &[&str], said: &[&str]| {
        let (code, shown) = on_a_terminal(home, words, "n\n");
        assert_eq!(code, Some(1), "{words:?}: {shown}");
        for part in said.iter().chain(&["[y/N]", "nothing was sent"]) {
            assert!(shown.contains(part), "{words:?} does not say `{part}`: {shown}");
        }
    };
    let before = json(&run(home, &["registry", "--output", "json"]));
    let retire = [&["agent", "retire"], &place[..]].concat();
    no(&retire, &["is unbound from 0x", "nothing is leased on it", "`selion agent up` binds and offers it again"]);
    no(&["account", "revoke"], &["no lease of yours runs or waits", "stay claimable for 3d, up to", "account grant"]);
    let key = format!("0x{}", "11".repeat(20));
    no(&["account", "own-key", &key], &["all of your deposit", "No lease is paid by an own key"]);
    assert_eq!(json(&run(home, &["registry", "--output", "json"]))["providers"], before["providers"]);
    let keys = String::from_utf8_lossy(&run(home, &["account", "keys"]).stdout).into_owned();
    assert!(keys.contains("delegated, the pool's controller's") && !keys.contains(&key), "{keys}");

    let leave = run(home, &[&["agent", "leave"], &place[..]].concat());
    assert_eq!(leave.status.code(), Some(5));
    let told = String::from_utf8_lossy(&leave.stderr).into_owned();
    assert!(told.contains("an agent runs on d/agent") && told.contains("selion node pause 0x"), "{told}");
    let shown = run(home, &[&["agent", "show"], &place[..]].concat());
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("1.00, the pool's least is 1.00") && shown.contains("yours, on offer"), "{shown}");
}

#[test]
fn a_pool_out_of_nothing_runs_a_command_and_goes_on_where_it_was() {
    let home = tempfile::tempdir().expect("a folder");
    let home = home.path();
    let pool = Pool::start(home);
    let pids = ["chain", "controller", "agent"].map(|name| pool.pid(name));

    let offers = json(&run(home, &["offers", "--output", "json"]));
    assert!(offers["offers"].as_array().expect("a list").iter().any(|offer| offer["slice"] == "1g.10gb"));

    let hi = run(home, &["run", "--slice", "1g.10gb", "--", "sh", "-c", "echo hi; echo oops >&2"]);
    assert_eq!(hi.status.code(), Some(0), "{}", String::from_utf8_lossy(&hi.stderr));
    assert_eq!(String::from_utf8_lossy(&hi.stdout), "hi\n");
    assert!(String::from_utf8_lossy(&hi.stderr).contains("oops"));
    let remote = run(home, &["run", "--slice", "1g.10gb", "--", "sh", "-c", "exit 42"]);
    assert_eq!(remote.status.code(), Some(42), "{}", String::from_utf8_lossy(&remote.stderr));

    let typo = run(home, &["run", "--slice", "1g.10gb", "--", "pyhton3"]);
    assert_eq!(typo.status.code(), Some(255), "{}", String::from_utf8_lossy(&typo.stderr));
    let told = String::from_utf8_lossy(&typo.stderr);
    assert!(told.contains("runtime_failed") && told.contains("check the program's name first"), "{told}");

    let dear = run(home, &["run", "--slice", "1g.10gb", "--max-rate", "0.000001", "--wait", "0s", "--", "true"]);
    assert_eq!(dear.status.code(), Some(255), "{}", String::from_utf8_lossy(&dear.stderr));
    assert!(String::from_utf8_lossy(&dear.stderr).contains("price_above_max"));
    let missing = run(home, &["lease", "show", "lease-999999-0"]);
    assert_eq!(missing.status.code(), Some(3), "{}", String::from_utf8_lossy(&missing.stderr));

    std::fs::write(home.join("in.txt"), "some data\n").expect("written");
    let added = json(&run(home, &["data", "add", "in.txt", "--output", "json"]));
    let cid = added["cid"].as_str().expect("a CID").to_owned();
    let mount = format!("{cid}:in");
    let script = "cat \"$SELION_DATA_DIR/in\" && cp \"$SELION_DATA_DIR/in\" \"$SELION_OUTPUT_DIR/out.txt\"";
    let copied = run(home, &["run", "--slice", "1g.10gb", "--data", &mount, "--", "sh", "-c", script]);
    assert_eq!(String::from_utf8_lossy(&copied.stdout), "some data\n", "{}", String::from_utf8_lossy(&copied.stderr));
    let listed = json(&run(home, &["lease", "list", "--output", "json"]));
    let output = listed["leases"][0]["outputs"][0]["cid"].as_str().expect("an output").to_owned();
    let got = run(home, &["data", "get", &output, "out"]);
    assert_eq!(got.status.code(), Some(0), "{}", String::from_utf8_lossy(&got.stderr));
    assert_eq!(std::fs::read_to_string(home.join("out/out.txt")).expect("there"), "some data\n");

    let kept = json(&run(home, &["data", "add", "--cid", &output, "--name", "left", "--output", "json"]));
    assert_eq!((&kept["cid"], &kept["name"]), (&output.as_str().into(), &"left".into()));
    let all = json(&run(home, &["data", "list", "--output", "json"]));
    assert!(all["datasets"].as_array().expect("a list").iter().any(|one| one["cid"] == output.as_str()), "{all}");

    a_terminal_sees_how_much_is_sent(home);
    what_a_renter_moves_counts_when_the_command_ends(home);
    a_lease_sees_no_key_of_the_pool(home);
    an_owner_is_asked_before_stake_is_locked(home, &pool);
    nothing_ends_before_somebody_said_yes(home, &pool);

    let url = pool.ready["controller"].as_str().expect("a URL").to_owned();
    a_key_does_what_its_scope_says_until_it_is_revoked(home);
    controller_and_key_in_the_environment_are_enough(home, &url);
    a_device_is_let_in_by_its_code_and_logs_out(home, &url);

    the_owner_and_everybody_see_how_it_stands(home, &pool);

    let listed = json(&run(home, &["lease", "list", "--output", "json"]));
    assert_eq!(pool.interrupt(), Some(0));
    assert!(!pids.into_iter().any(is_alive), "a part outlived `up`");

    let again = Pool::start(home);
    let after = json(&run(home, &["lease", "list", "--output", "json"]));
    assert_eq!(after["leases"], listed["leases"], "leases are as they were");
    let audit = ["audit", "--json", "--rpc", again.ready["chain_rpc"].as_str().expect("a URL")];
    let pool = again.ready["pool"].as_str().expect("an address").to_owned();
    let log = again.ready["controller"].as_str().expect("a URL").to_owned();
    let report = run(home, &[&audit[..], &["--pool", &pool, "--log", &log]].concat());
    assert_eq!(report.status.code(), Some(0), "{}", json(&report));
    a_copy_of_the_log_is_audited_by_its_cid(home, &[&audit[..], &["--pool", &pool]].concat(), &log);

    a_lease_outlives_the_controller(home, again);
}

/// The chain's secret is in its file alone; the terms are shown by chain and controller alike; `doctor` beside the running
/// agent looks at its link, and knows a wrong pool.
fn the_owner_and_everybody_see_how_it_stands(home: &Path, pool: &Pool) {
    let text = |name: &str| pool.ready[name].as_str().expect("a text").to_owned();
    let (rpc, at, controller) = (text("chain_rpc"), text("pool"), text("controller"));
    let url = std::fs::read_to_string(rpc.strip_prefix('@').expect("a file")).expect("readable");
    let secret = url.trim().rsplit('/').next().expect("a path").to_owned();
    assert_eq!(secret.len(), 32, "{url}");
    for name in ["chain", "controller", "agent"] {
        let command = std::fs::read(format!("/proc/{}/cmdline", pool.pid(name))).expect("it runs");
        let log = std::fs::read_to_string(home.join("d").join(format!("{name}.log"))).expect("readable");
        assert!(!String::from_utf8_lossy(&command).contains(&secret), "{name} shows the secret");
        assert!(!log.contains(&secret), "{name}'s log has the secret");
    }

    let mut by_chain = json(&run(home, &["pool", "show", "--chain-rpc", &rpc, "--pool", &at, "--output", "json"]));
    // Who owns the pool is asked of the chain alone.
    let owner = by_chain.as_object_mut().expect("an object").remove("owner").expect("an owner");
    assert_ne!(owner, by_chain["authority"]);
    let by_controller = json(&run(home, &["pool", "show", "--controller", &controller, "--output", "json"]));
    assert_eq!(by_chain, by_controller);
    assert_eq!((&by_chain["unbond_s"], &by_chain["min_stake"]), (&259_200.into(), &"1000000".into()));

    let doctor = |pool: &str| {
        let words = ["agent", "doctor", "--state-dir", "d/agent", "--simulate", "H100 80GB", "--output", "json"];
        let more = ["--controller", &controller, "--chain-rpc", &rpc, "--pool", pool];
        let checks = json(&run(home, &[&words[..], &more].concat()));
        move |name: &str| {
            let checks = checks.as_array().expect("a list");
            checks.iter().find(|check| check["name"] == name).cloned().unwrap_or_default()
        }
    };
    let right = doctor(&at);
    for name in ["controller", "registered", "stake", "offer", "link"] {
        assert_eq!(right(name)["ok"], true, "{name}: {}", right(name));
    }
    // The vault is a contract of this chain, and no pool.
    assert_eq!(doctor(by_chain["vault"].as_str().expect("an address"))("chain")["ok"], false);
}

/// A part that dies is started again; one that dies again and again takes the whole down, by name, with exit code 1.
fn a_lease_outlives_the_controller(home: &Path, mut pool: Pool) {
    let script = "echo began; sleep 3; echo ended";
    let words = ["run", "--slice", "1g.10gb", "--", "sh", "-c", script];
    let mut lease = selion(home).args(words).stdout(Stdio::piped()).spawn().expect("the binary starts");
    let mut said = BufReader::new(lease.stdout.take().expect("piped")).lines();
    let mut next = || said.next().map(|line| line.expect("readable"));
    assert_eq!(next().as_deref(), Some("began"));
    kill(Pid::from_raw(pool.pid("controller")), Signal::SIGKILL).expect("signalled");
    let restarted = pool.says();
    assert_eq!(restarted["restarted"]["name"], "controller", "{restarted}");
    assert_eq!(next().as_deref(), Some("ended"));
    assert_eq!(lease.wait().expect("waited").code(), Some(0));
    let listed = json(&run(home, &["lease", "list", "--output", "json"]));
    assert_eq!(listed["leases"][0]["reason"], "completed", "{}", listed["leases"][0]);

    let mut agent = pool.pid("agent");
    let died = loop {
        kill(Pid::from_raw(agent), Signal::SIGKILL).expect("signalled");
        let said = pool.says();
        match said["restarted"]["pid"].as_i64() {
            Some(pid) => agent = i32::try_from(pid).expect("fits"),
            None => break said,
        }
    };
    assert_eq!(died["error"]["code"], "child_died");
    assert!(died["error"]["detail"].as_str().is_some_and(|text| text.starts_with("agent ended")), "{died}");
    assert!(died["error"]["detail"].as_str().is_some_and(|text| text.contains("death 6 within 10 min")), "{died}");
    assert_eq!(pool.process.wait().expect("waited").code(), Some(1));
}

/// The copy is made of static files; whoever has their blocks may bring them.
fn a_copy_of_the_log_is_audited_by_its_cid(home: &Path, audit: &[&str], log: &str) {
    let copied = json(&run(home, &["audit", "tiles", "--log", log, "--out", "copy", "--output", "json"]));
    let cid = copied["cid"].as_str().expect("a CID").to_owned();
    let store = Store::open(home.join("blocks")).expect("a store");
    assert_eq!(store.add_path(home.join("copy")).expect("added").to_string(), cid);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let listener = runtime.block_on(tokio::net::TcpListener::bind(("127.0.0.1", 0))).expect("a port");
    let gateway = format!("http://{}", listener.local_addr().expect("an address"));
    runtime.spawn(async move { axum::serve(listener, gateway::router(store)).await });
    let place = format!("ipfs://{cid}");
    let report = json(&run(home, &[audit, &["--log", &place, "--gateway", &gateway]].concat()));
    assert_eq!(report["entries"], copied["entries"], "{report}");
    for check in report["checks"].as_array().expect("checks") {
        // An anchor may have come between copy and audit.
        let newer = ["chain_blocks_in_log", "anchors_match"].iter().any(|name| check["name"] == *name);
        assert!(check["ok"] == true || newer, "{check}");
    }
    let nobody = run(home, &[audit, &["--log", &place]].concat());
    assert_eq!(nobody.status.code(), Some(2), "{}", String::from_utf8_lossy(&nobody.stderr));
}
