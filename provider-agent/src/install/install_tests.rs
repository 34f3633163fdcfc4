use std::process::Command;

use selion_api::Address;
use tempfile::TempDir;

use super::*;

fn of(config: Config, scope: Scope) -> Installation {
    Installation { config, program: "/usr/local/bin/selion".into(), scope, user: None, replace: false }
}

fn config(state: &str) -> Config {
    Config { pool: Some(Address([7; 20])), state_dir: state.into(), ..Config::default() }
}

const MACHINES: &str =
    "# Made by `selion agent install`, which makes it anew with --replace. The settings are in the file after --config.

[Unit]
Description=Selion provider agent
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
Type=exec
User=nobody
ExecStartPre=-+/usr/bin/nvidia-modprobe -u -c 0
ExecStart=/usr/local/bin/selion agent up --yes --config /var/lib/selion/agent.toml
Restart=always
RestartSec=5
RestartPreventExitStatus=2
KillMode=process
TimeoutStopSec=90
Delegate=yes
OOMPolicy=continue
TasksMax=infinity
LimitNOFILE=524288
UMask=0022
NoNewPrivileges=yes
LockPersonality=yes
SystemCallArchitectures=native
RestrictRealtime=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
SystemCallFilter=~@clock @cpu-emulation @module @obsolete @raw-io @reboot @swap
SystemCallErrorNumber=EPERM
KeyringMode=private
CapabilityBoundingSet=
ProtectSystem=strict
ReadWritePaths=/var/lib/selion
ProtectHome=yes
ProtectKernelModules=yes
PrivateTmp=yes

[Install]
WantedBy=multi-user.target
";

#[test]
fn the_unit_of_a_machine_is_this_text() {
    let installation = Installation { user: Some("nobody".into()), ..of(config("/var/lib/selion"), Scope::System) };
    let planned = installation.plan().unwrap();
    assert_eq!(planned.text, MACHINES);
    assert_eq!(planned.unit, Path::new("/etc/systemd/system/selion-agent.service"));
    assert_eq!(planned.next, ["systemctl daemon-reload", "systemctl enable --now selion-agent.service"]);
}

#[test]
fn a_unit_of_a_users_own_has_no_wall_that_takes_root() {
    let text = of(config("/home/o/selion"), Scope::User).plan().unwrap().text;
    for of_root in ["ProtectSystem", "ReadWritePaths", "CapabilityBoundingSet", "User=", "nvidia-modprobe", "Private"] {
        assert!(!text.contains(of_root), "{of_root} in {text}");
    }
    for line in ["Delegate=yes", "NoNewPrivileges=yes", "KillMode=process", "WantedBy=default.target"] {
        assert!(text.lines().any(|found| found == line), "{line} not in {text}");
    }
}

#[test]
fn paths_of_a_home_or_of_tmp_are_seen_and_odd_ones_are_quoted() {
    let text = of(config("/root/my selion/50%$HOME"), Scope::System).plan().unwrap().text;
    assert!(text.contains("ReadWritePaths=\"/root/my selion/50%%$$HOME\"\nProtectHome=read-only\n"), "{text}");
    assert!(text.contains("--config \"/root/my selion/50%%$$HOME/agent.toml\"\n"), "{text}");
    let text = of(config("/var/tmp/s"), Scope::System).plan().unwrap().text;
    assert!(!text.contains("PrivateTmp"), "{text}");
    let refused = of(config("/s\nExecStart=/bin/evil"), Scope::System).plan().unwrap_err().to_string();
    assert!(refused.contains("control character"), "{refused}");
}

#[test]
fn a_user_who_cannot_come_to_the_program_is_told_where_the_way_ends() {
    let dir = tempfile::tempdir().unwrap();
    let (folder, program) = (dir.path().join("bin"), dir.path().join("bin/selion"));
    fs::create_dir(&folder).unwrap();
    fs::write(&program, "").unwrap();
    for (path, mode) in [(dir.path(), 0o755), (&folder, 0o700), (&program, 0o755)] {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    let user = Some("daemon".to_owned());
    let installation = Installation { program, user, ..of(config("/var/lib/selion"), Scope::System) };
    let said = installation.plan().unwrap_err().to_string();
    assert!(said.starts_with("daemon may not run") && said.contains("/bin is closed to others"), "{said}");
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    assert!(installation.plan().is_ok());
}

/// Where the tool is: it may not be.
fn analyze(verb: &[&str], unit: &Path) -> Option<(bool, String)> {
    let output = Command::new("systemd-analyze").args(verb).arg(unit).env("SYSTEMD_LOG_LEVEL", "warning").output();
    let Ok(output) = output else {
        println!("there is no systemd-analyze here: not tried");
        return None;
    };
    let said = [output.stdout, output.stderr].map(|said| String::from_utf8_lossy(&said).into_owned()).concat();
    Some((output.status.success(), said))
}

/// Both units in a folder, with programs that are there.
fn units() -> (TempDir, Vec<PathBuf>) {
    let dir = tempfile::tempdir().unwrap();
    let made = [Scope::System, Scope::User].map(|scope| {
        let place = dir.path().join(format!("{scope:?}"));
        fs::create_dir(&place).unwrap();
        let config = Config { gpus: GpuSource::Simulated { models: Vec::new() }, ..config("/var/lib/a place") };
        // A user that every machine has.
        let user = (scope == Scope::System).then(|| "daemon".to_owned());
        let text = Installation { program: "/bin/true".into(), user, ..of(config, scope) }.plan().unwrap().text;
        let unit = place.join(UNIT);
        fs::write(&unit, text).unwrap();
        unit
    });
    (dir, made.to_vec())
}

#[test]
fn systemd_reads_every_line_of_the_units() {
    let (_dir, units) = units();
    for unit in units {
        let Some((good, said)) = analyze(&["verify", "--man=no"], &unit) else { return };
        let about: Vec<&str> = said.lines().filter(|line| line.contains(UNIT)).collect();
        assert!(good && about.is_empty(), "{said}");
        // A line that it does not know is told, so that silence means something.
        let text = fs::read_to_string(&unit).unwrap();
        fs::write(&unit, text.replace("UMask=0022", "UMaks=0022")).unwrap();
        let (_, said) = analyze(&["verify", "--man=no"], &unit).unwrap();
        assert!(said.contains("UMaks"), "{said}");
    }
}

#[test]
fn systemd_calls_the_machines_unit_well_kept() {
    let (_dir, units) = units();
    let verb = ["security", "--offline=yes", "--threshold=50", "--no-pager"];
    let Some((good, said)) = analyze(&verb, &units[0]) else { return };
    assert!(good, "its exposure is above 5.0 of 10: {said}");
}

fn settings(config: Config, dir: &Path) -> String {
    let installation = Installation { config, ..of(Config::default(), Scope::User) };
    assert!(dir.is_absolute());
    toml::differing(&installation.absolute().unwrap(), &Config::default()).unwrap()
}

#[test]
fn the_settings_are_those_that_differ_with_whole_paths() {
    let mut config = config("s");
    config.chain_rpc = "@rpc-url".into();
    config.show = vec!["conda".into()];
    config.cards = vec!["0".into()];
    config.work = [("RTX A4000".into(), 250)].into();
    config.gpus = GpuSource::Simulated { models: vec!["H100 80GB".into()] };
    config.region = "a \"b\" \u{7f}".into();
    let here = std::env::current_dir().unwrap();
    let text = settings(config, &here);
    let here = here.display();
    for line in [
        &format!("state_dir = \"{here}/s\""),
        &format!("chain_rpc = \"@{here}/rpc-url\""),
        &format!("show = [\"{here}/conda\"]"),
        "cards = [\"0\"]",
        "region = \"a \\\"b\\\" \\u007f\"",
        "[work]\n\"RTX A4000\" = 250",
        "[gpus]\nsimulated = { models = [\"H100 80GB\"] }",
    ] {
        assert!(text.contains(line), "{line} not in {text}");
    }
    for usual in ["meter_ms", "sandbox", "prices", "provider"] {
        assert!(!text.lines().any(|line| line.contains(usual) && !line.contains(['/', '#'])), "{usual} in {text}");
    }
}

#[test]
fn without_a_pool_or_with_a_user_that_is_not_there_nothing_is_planned() {
    let no_pool = Config { pool: None, ..config("/s") };
    assert!(matches!(of(no_pool, Scope::System).plan(), Err(InstallError::NoPool)));
    let nobody = Installation { user: Some("no-such-user".into()), ..of(config("/s"), Scope::System) };
    let said = nobody.plan().unwrap_err().to_string();
    assert!(said.contains("useradd --system --create-home no-such-user"), "{said}");
}
