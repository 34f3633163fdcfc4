//! The real binary, from outside: exit codes, errors in both forms, layers of configuration, secrets.
#![expect(clippy::expect_used, reason = "a test that cannot go on says why")]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// The binary with an empty home and none of the caller's settings.
fn selion(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_selion"));
    command.env_clear().env("HOME", home).env("PATH", "/usr/bin:/bin").current_dir(home);
    command
}

fn run(home: &Path, words: &[&str]) -> Output {
    selion(home).args(words).output().expect("the binary starts")
}

fn json(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(bytes)))
}

fn home() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// A port that nobody listens on: bound and closed again.
fn dead_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("bound").port()
}

#[test]
fn every_renter_command_without_a_profile_says_how_to_get_one() {
    let home = home();
    let commands: [&[&str]; 11] = [
        &["whoami"],
        &["offers"],
        &["lease", "list"],
        &["account", "show"],
        &["account", "keys"],
        &["account", "revoke"],
        &["data", "list"],
        &["node", "list"],
        &["shares"],
        &["registry"],
        &["lease", "create", "--slice", "whole", "--", "true"],
    ];
    for words in commands {
        let plain = run(home.path(), words);
        assert_eq!(plain.status.code(), Some(4), "{words:?}");
        let text = String::from_utf8_lossy(&plain.stderr).into_owned();
        assert!(text.contains("selion login --controller URL") && text.contains("selion up"), "{text}");
        assert!(plain.stdout.is_empty());

        let mut with_json = vec!["--output", "json"];
        with_json.extend(words);
        let form = run(home.path(), &with_json);
        assert_eq!(form.status.code(), Some(4), "{words:?}");
        assert_eq!(json(&form.stdout)["error"]["code"], "no_profile");
        assert!(form.stderr.is_empty(), "an error in JSON is told once");
    }
}

#[test]
fn our_own_failure_of_run_is_255_and_not_on_stdout() {
    let home = home();
    let done = run(home.path(), &["run", "--output", "json", "--slice", "whole", "--", "true"]);
    assert_eq!(done.status.code(), Some(255));
    assert!(done.stdout.is_empty());
    assert_eq!(json(&done.stderr)["error"]["code"], "no_profile");
    for before in [&[][..], &["-v"], &["-o", "json"]] {
        let words = [before, &["run", "--slice", "half", "--", "true"]].concat();
        assert_eq!(run(home.path(), &words).status.code(), Some(255), "{words:?}");
    }
}

#[test]
fn a_file_that_is_not_there_is_a_wrong_value() {
    let home = home();
    let url = format!("http://127.0.0.1:{}", dead_port());
    let done = run(home.path(), &["login", "--controller", &url, "--api-key-file", "/no/such/file"]);
    assert_eq!(done.status.code(), Some(2), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(String::from_utf8_lossy(&done.stderr).contains("/no/such/file"));
}

#[test]
fn a_wrong_command_line_is_exit_code_2_in_both_forms() {
    let home = home();
    for words in [&["rnu"][..], &["lease", "show", "lease-12"], &["account", "deposit", "1e3"]] {
        let plain = run(home.path(), words);
        assert_eq!(plain.status.code(), Some(2), "{words:?}");
        assert!(!plain.stderr.is_empty());
        let mut with_json = words.to_vec();
        with_json.extend(["--output", "json"]);
        let form = run(home.path(), &with_json);
        assert_eq!(form.status.code(), Some(2), "{words:?}");
        assert_eq!(json(&form.stdout)["error"]["code"], "usage");
    }
    assert_eq!(run(home.path(), &["--version"]).status.code(), Some(0));
}

#[test]
fn a_flag_beats_the_environment_which_beats_the_file() {
    let home = home();
    let file = home.path().join("c.toml");
    std::fs::write(&file, "poll_ms = 11\nanchor_ms = 12\nclaim_ms = 13\n[policy]\nhold_ms = 7\n").expect("written");
    let out = selion(home.path())
        .args(["controller", "--print-config", "--claim-ms", "33", "--config"])
        .arg(&file)
        .env("SELION_CONTROLLER_ANCHOR_MS", "22")
        .env("SELION_CONTROLLER_CLAIM_MS", "22")
        .env("SELION_CONTROLLER_POLICY__PREPARE_MS", "8")
        .output()
        .expect("the binary starts");
    let config = json(&out.stdout);
    let found = ["poll_ms", "anchor_ms", "claim_ms"].map(|name| config[name].as_u64());
    assert_eq!(found, [Some(11), Some(22), Some(33)]);
    assert_eq!((config["policy"]["hold_ms"].as_u64(), config["policy"]["prepare_ms"].as_u64()), (Some(7), Some(8)));
}

#[test]
fn a_wrong_setting_is_named_with_the_layer_it_came_from() {
    let home = home();
    let file = home.path().join("c.toml");
    std::fs::write(&file, "pol_ms = 1\n").expect("written");
    let of_file = selion(home.path()).args(["controller", "--config"]).arg(&file).output().expect("starts");
    assert_eq!(of_file.status.code(), Some(2));
    let text = String::from_utf8_lossy(&of_file.stderr).into_owned();
    assert!(text.contains("pol_ms") && text.contains("c.toml"), "{text}");
    let of_env =
        selion(home.path()).arg("controller").env("SELION_CONTROLLER_POLL_MS", "soon").output().expect("starts");
    let text = String::from_utf8_lossy(&of_env.stderr).into_owned();
    assert!(of_env.status.code() == Some(2) && text.contains("POLL_MS"), "{text}");
    let no_pool = run(home.path(), &["controller"]);
    assert!(String::from_utf8_lossy(&no_pool.stderr).contains("selion pool create"));
}

#[test]
fn an_agent_is_set_up_by_flags_in_human_units() {
    let home = home();
    let words = ["agent", "up", "--print-config", "--simulate", "H100 80GB", "--price", "0.80", "--stake", "2"];
    let config = json(&run(home.path(), &words).stdout);
    assert_eq!(config["gpus"]["simulated"]["models"][0], "H100 80GB");
    assert_eq!(config["prices"]["per_work"], "800000");
    assert_eq!(config["stake"], 2_000_000);
    let place = ["agent", "up", "--print-config", "--relay", "--state-dir", "d", "--controller", "http://h:1"];
    let config = json(&run(home.path(), &place).stdout);
    assert_eq!(
        (&config["relay"], &config["state_dir"], &config["controller"]),
        (&true.into(), &"d".into(), &"http://h:1".into())
    );
}

#[test]
fn an_owner_chooses_cards_and_says_what_unknown_ones_do() {
    let home = home();
    let up = ["agent", "up", "--print-config", "--gpu", "0,GPU-x", "--gpu", "3", "--except", "1"];
    let more = ["--work", "RTX A4000=0.25", "--ask", "RTX A4000=0.30", "--price", "0.80"];
    let config = json(&run(home.path(), &[&up[..], &more].concat()).stdout);
    assert_eq!(config["cards"], serde_json::json!(["0", "GPU-x", "3"]));
    assert_eq!((&config["except"][0], &config["work"]["RTX A4000"]), (&"1".into(), &250.into()));
    assert_eq!(config["prices"]["whole"]["RTX A4000"], "300000");
    assert_eq!(config["prices"]["per_work"], "800000");
    let wrong = run(home.path(), &["agent", "up", "--print-config", "--work", "RTX A4000"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("MODEL=WORK"));
}

#[test]
fn the_status_of_no_agent_is_exit_code_1_in_both_forms() {
    let home = home();
    let plain = run(home.path(), &["agent", "status", "--state-dir", "d"]);
    assert_eq!(plain.status.code(), Some(1));
    let text = String::from_utf8_lossy(&plain.stderr).into_owned();
    assert!(text.contains("no agent runs on d") && text.contains("selion agent up"), "{text}");
    let form = run(home.path(), &["agent", "status", "--json", "--state-dir", "d"]);
    assert_eq!(form.status.code(), Some(1));
    assert_eq!(json(&form.stdout)["error"]["code"], "no_agent");
}

#[test]
fn a_unit_is_written_once_with_the_settings_beside_the_keys_and_no_secret_in_it() {
    let home = home();
    let pool = format!("0x{}", "01".repeat(20));
    let install = |more: &[&str]| {
        let words = ["agent", "install", "--user-unit", "--pool", &pool, "--state-dir", "s", "--simulate", "H100 80GB"];
        run(home.path(), &[&words[..], &["--chain-rpc", "https://node.example/v3/SECRET-KEY"], more].concat())
    };
    let unit = home.path().join(".config/systemd/user/selion-agent.service");
    let printed = install(&["--print"]);
    assert_eq!(printed.status.code(), Some(0), "{}", String::from_utf8_lossy(&printed.stderr));
    assert!(!unit.exists() && !home.path().join("s").exists(), "nothing is written");
    let done = install(&[]);
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    assert!(text.contains("systemctl --user enable --now selion-agent.service"), "{text}");
    let written = std::fs::read_to_string(&unit).expect("the unit");
    assert_eq!(written.trim_end(), String::from_utf8_lossy(&printed.stdout).trim_end());
    assert!(!written.contains("SECRET-KEY") && written.contains("agent up --yes --config /"), "{written}");
    let settings = home.path().join("s/agent.toml");
    let mode = std::fs::metadata(&settings).expect("the settings").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    // What the unit starts has the same settings.
    let config = ["agent", "up", "--print-config", "--config", "s/agent.toml"];
    let config = json(&run(home.path(), &config).stdout);
    assert_eq!(
        (&config["chain_rpc"], &config["pool"]),
        (&"https://node.example/v3/SECRET-KEY".into(), &pool.as_str().into())
    );
    assert_eq!(config["gpus"]["simulated"]["models"][0], "H100 80GB");
    assert_eq!(install(&[]).status.code(), Some(0), "the same again is no change");
    let other = install(&["--region", "eu"]);
    assert_eq!(other.status.code(), Some(5), "{}", String::from_utf8_lossy(&other.stderr));
    assert!(String::from_utf8_lossy(&other.stderr).contains("--replace"));
    std::fs::write(&unit, "another's").expect("written");
    assert_eq!(install(&[]).status.code(), Some(5));
    assert_eq!(std::fs::read_to_string(&unit).expect("the unit"), "another's");
    assert_eq!(install(&["--region", "eu", "--replace"]).status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(&unit).expect("the unit"), written);
    assert!(std::fs::read_to_string(&settings).expect("the settings").contains("region = \"eu\""));
}

#[test]
fn an_owner_without_a_key_or_a_pool_is_told_and_no_key_is_made() {
    let home = home();
    for words in [&["show"][..], &["close-offer"], &["retire"], &["unbond"], &["withdraw-stake"], &["leave"]] {
        let no_pool = run(home.path(), &[&["agent"], words, &["--state-dir", "d"]].concat());
        assert_eq!(no_pool.status.code(), Some(2), "{words:?}: {}", String::from_utf8_lossy(&no_pool.stderr));
        assert!(String::from_utf8_lossy(&no_pool.stderr).contains("--pool ADDRESS"), "{words:?}");
        let pool = format!("0x{}", "01".repeat(20));
        let no_key = run(home.path(), &[&["agent"], words, &["--state-dir", "d", "--pool", &pool]].concat());
        assert_eq!(no_key.status.code(), Some(1), "{words:?}");
        assert!(String::from_utf8_lossy(&no_key.stderr).contains("no key file d/provider.key"), "{words:?}");
        assert!(!home.path().join("d").exists(), "{words:?} made something");
    }
}

#[test]
fn an_unreachable_controller_is_exit_code_9_and_leaves_no_key_behind() {
    let home = home();
    let port = dead_port();
    for url in [format!("http://127.0.0.1:{port}"), format!("localhost:{port}"), format!("127.0.0.1:{port}")] {
        let done = run(home.path(), &["login", "--controller", &url]);
        assert_eq!(done.status.code(), Some(9), "{}", String::from_utf8_lossy(&done.stderr));
        assert!(String::from_utf8_lossy(&done.stderr).contains("check that the controller runs"));
        assert!(!home.path().join(".config/selion/key").exists(), "the login that works tells of its new key");
    }
}

#[test]
fn an_unreachable_chain_and_a_key_file_that_others_read_are_named() {
    let home = home();
    let url = format!("http://127.0.0.1:{}", dead_port());
    let dead = run(home.path(), &["pool", "create", "--chain-rpc", &url, "--key-file", "k"]);
    assert_eq!(dead.status.code(), Some(9));
    assert!(String::from_utf8_lossy(&dead.stderr).contains("check that the node runs"));
    let key = home.path().join("open.key");
    std::fs::write(&key, "11".repeat(32)).expect("written");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("chmod");
    let open = run(home.path(), &["login", "--controller", &url, "--key-file", "open.key"]);
    assert_eq!(open.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&open.stderr).contains("chmod 600"));
}

#[test]
fn a_wrong_name_label_or_time_of_a_lease_is_told_before_anybody_is_asked() {
    let home = home();
    let ask = ["lease", "create", "--slice", "whole"];
    let with = |flags: &[&'static str]| [&ask[..], flags, &["--", "true"]].concat();
    let wrong = [
        (vec!["lease", "show", "lease-01-0"], "neither the id of a lease"),
        (vec!["lease", "release", ".."], "nor a name"),
        (vec!["lease", "extend", "train", "--for", "31d"], "up to 30d"),
        (vec!["lease", "extend", "train", "--for", "0s"], "up to 30d"),
        (vec!["lease", "list", "--label", "team"], "KEY=VALUE"),
        (with(&["--name", "lease-1-0"]), "not like an id"),
        (with(&["--label", "a:b=c"]), "not the key of a label"),
    ];
    for (words, told) in wrong {
        let output = run(home.path(), &words);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {text}");
        assert!(text.contains(told), "{words:?}: {text}");
    }
    // What is right is asked: there is no profile yet.
    for words in [vec!["lease", "extend", "train", "--for", "1h"], with(&["--name", "train", "--label", "team=a=b"])] {
        let text = String::from_utf8_lossy(&run(home.path(), &words).stderr).into_owned();
        assert!(text.contains("selion login"), "{words:?}: {text}");
    }
}
