//! The network of a box, against every destination that it may not reach: in a world of network namespaces that is made
//! here, as root and as an ordinary user. Only root can make that world.
#![expect(clippy::unwrap_used, reason = "a test stops where it is surprised")]

#[expect(dead_code, reason = "other tests use the rest")]
mod house;

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use house::{House, PATIENCE, built, is_root, ran_within};
use selion_agent::runtime::{Gang, Launch, Links, Outlook, ProcessRuntime, Running, Runtime, Traffic, meet};
use selion_api::agent::Peer;
use selion_api::slice::Sandbox;

/// Names what a run of this program in the world is.
const WORLD: &str = "SELION_TEST_WORLD";
/// Time for many targets that do not answer.
const SLOW: Duration = Duration::from_secs(120);

/// The world: this machine (`m0`, `m1`), and behind it one that stands for all others: a neighbour, the internet, a cloud's
/// metadata service, networks that are not public.
const MADE: &str = r#"set -e
ip link set lo up
unshare -n sleep 1000 & F=$!
until [ "$(readlink /proc/$F/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do :; done
far() { nsenter --net=/proc/$F/ns/net "$@"; }
trap 'kill $F $S 2>/dev/null' EXIT
echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad
far sh -c 'echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad'
ip link add m0 type veth peer name f0 netns $F
ip link add m1 type veth peer name f1 netns $F
ip addr add 192.168.77.1/24 dev m0; ip addr add fd77::1/64 dev m0; ip addr add 52.1.1.1/32 dev lo
ip addr add 52.2.2.1/24 dev m1
ip link set m0 up; ip link set m1 up
far ip link set lo up; far ip link set f0 up; far ip link set f1 up
far ip addr add 192.168.77.2/24 dev f0; far ip addr add fd77::2/64 dev f0; far ip addr add 52.2.2.2/24 dev f1
for a in $FAR4; do far ip addr add $a/32 dev lo 2>/dev/null || true; done
for a in $FAR6; do far ip addr add $a/128 dev lo; done
ip route add default via 192.168.77.2; ip -6 route add default via fd77::2
ip route add 52.3.0.0/16 via 192.168.77.2
far ip route add 52.1.1.1/32 via 192.168.77.1
if [ "$(stat -c %a /dev/net/tun)" != 666 ]; then
    mount -t tmpfs -o mode=755 none /dev/net; mknod -m 666 /dev/net/tun c 10 200; fi
mkfifo "$DIR/up"
nsenter --net=/proc/$F/ns/net "$DIR/examples/world" serve $FAR4 $FAR6 192.168.77.2 52.2.2.2 fd77::2 > "$DIR/up" & S=$!
read up < "$DIR/up"; rm "$DIR/up"
[ "$up" = up ]
"$@"
"#;

/// What is the internet there.
const PUBLIC: &str = "45.9.9.9:80";
/// What is not, behind the machine.
const FAR: [&str; 11] = [
    "10.1.2.3",
    "100.100.100.200",
    "168.63.129.16",
    "169.254.7.7",
    "169.254.169.254",
    "172.16.5.5",
    "192.0.2.9",
    "192.168.77.2",
    "192.168.200.1",
    "52.2.2.2",
    "52.3.3.3",
];
const FAR6: [&str; 4] = ["2a00::99", "fd00:ec2::254", "fd12::3", "fd77::2"];
/// The machine itself.
const MACHINE: [&str; 3] = ["192.168.77.1", "52.1.1.1", "52.2.2.1"];

#[test]
fn all_of_it_is_tried_in_a_world_that_root_makes_as_root_and_as_an_ordinary_user() {
    if std::env::var_os(WORLD).is_some() {
        return;
    }
    assert!(is_root(), "only root makes a world of networks; run this test as root");
    for user in [0, house::ORDINARY] {
        let dir = tempfile::tempdir().unwrap();
        let own = house::laid_open(dir.path(), &["sandbox_helper", "world"]);
        let own_addresses = ["192.168.77.2", "52.2.2.2", "fd77::2"];
        let far = |all: &[&str]| {
            let all: Vec<&str> = all.iter().copied().filter(|one| !own_addresses.contains(one)).collect();
            all.join(" ")
        };
        let mut world = Command::new("unshare");
        world.args(["-n", "-m", "sh", "-c", MADE, "world", "setpriv"]);
        world.args([format!("--reuid={user}"), format!("--regid={user}"), "--clear-groups".into()]);
        world.arg(own).args(["--nocapture", "--test-threads=1"]).current_dir("/");
        world.env("FAR4", format!("{} 45.9.9.9 9.9.9.9", far(&FAR))).env("FAR6", far(&FAR6));
        world.env(WORLD, "made").env("DIR", dir.path()).env("HOME", "/nonexistent");
        assert!(world.status().unwrap().success(), "see above what fails as user {user}");
    }
}

fn is_world() -> bool {
    let is = std::env::var_os(WORLD).is_some();
    if !is {
        println!("tried in a world of its own, by the first test of this file");
    }
    is
}

/// A box that reaches this, and runs `world` with these words.
fn launch(house: &House, network: Links, words: &[&str]) -> Launch {
    let program = house.rooms.work.join("world");
    if !program.exists() {
        fs::copy(built("world"), &program).unwrap();
    }
    let mut launch = house.launch(Sandbox::Namespaces, "");
    launch.command = ["./world"].iter().chain(words).map(|word| (*word).to_owned()).collect();
    launch.network = network;
    launch
}

fn runtime(house: &House, outlook: Outlook) -> ProcessRuntime {
    let mut walls = house.walls(Sandbox::Namespaces);
    walls.outlook = outlook;
    ProcessRuntime::new(walls).unwrap()
}

async fn told(outlook: Outlook, network: Links, words: &[&str]) -> Vec<String> {
    let house = House::new();
    let (code, said) = ran_within(SLOW, &runtime(&house, outlook), launch(&house, network, words)).await;
    assert_eq!(code, 0, "{said}");
    said.lines().map(str::to_owned).collect()
}

/// What of the targets a box reaches, as `TARGET tcp` or `TARGET udp`.
async fn reached(outlook: Outlook, network: Links, targets: &[String]) -> Vec<String> {
    let words: Vec<&str> = ["reach"].into_iter().chain(targets.iter().map(String::as_str)).collect();
    let lines = told(outlook, network, &words).await;
    assert_eq!(lines.len(), 2 * targets.len(), "{lines:?}");
    lines.iter().filter_map(|line| line.strip_suffix(" here").map(str::to_owned)).collect()
}

/// What the machine itself reaches of them.
fn reached_without_a_box(targets: &[String]) -> usize {
    let said = Command::new(built("world")).arg("reach").args(targets).output().unwrap();
    String::from_utf8(said.stdout).unwrap().lines().filter(|line| line.ends_with(" here")).count()
}

fn internet() -> Links {
    Links { internet: true, ..Links::default() }
}

fn outlook() -> Outlook {
    Outlook { resolvers: vec!["9.9.9.9".parse().unwrap()], ..Outlook::default() }
}

fn at(hosts: &[&str], port: u16) -> Vec<String> {
    let name = |host: &&str| if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    hosts.iter().map(name).collect()
}

/// Services of the machine's at a port of their own, on every address: they answer as those of the far world.
fn services() -> u16 {
    let tcp = TcpListener::bind("[::]:0").unwrap();
    let port = tcp.local_addr().unwrap().port();
    let udp = UdpSocket::bind(("::", port)).unwrap();
    std::thread::spawn(move || tcp.incoming().flatten().for_each(|mut peer| drop(peer.write_all(b"here"))));
    std::thread::spawn(move || {
        while let Ok((_, peer)) = udp.recv_from(&mut [0; 64]) {
            let _ = udp.send_to(b"here", peer);
        }
    });
    port
}

/// Every destination that a box may not reach, and that answers the machine.
fn forbidden() -> Vec<String> {
    let service = services();
    let near = [MACHINE.as_slice(), &["127.0.0.1", "127.0.0.53", "::1", "fd77::1"]].concat();
    [at(&FAR, 80), at(&FAR, 7777), at(&FAR6, 80), at(&near, service)].concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_with_the_internet_reaches_it_and_nothing_of_the_machine_or_near_it() {
    if !is_world() {
        return;
    }
    let forbidden = forbidden();
    let all = 2 * forbidden.len();
    assert_eq!(reached_without_a_box(&forbidden), all, "else a box that reaches nothing of them would prove nothing");
    assert!(reached(outlook(), internet(), &forbidden).await.is_empty());
    let mapped = ["[::ffff:192.168.77.1]:80", "[::ffff:169.254.169.254]:80", "0.0.0.0:80", "255.255.255.255:80"];
    let odd = [&mapped[..], &["192.0.0.2:80", "192.0.0.3:53", "224.0.0.251:5353", "10.0.2.2:80"]].concat();
    let odd: Vec<String> = odd.into_iter().map(String::from).collect();
    assert!(reached(outlook(), internet(), &odd).await.is_empty());
    let public = reached(outlook(), internet(), &[PUBLIC.into(), "[::ffff:45.9.9.9]:80".into()]).await;
    assert_eq!(public.len(), 4, "{public:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_without_a_network_reaches_nothing_at_all() {
    if !is_world() {
        return;
    }
    let all = [forbidden(), vec![PUBLIC.into(), "9.9.9.9:53".into()]].concat();
    assert!(reached(outlook(), Links::default(), &all).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_owner_denies_is_not_reached_and_mail_only_where_he_lets_it() {
    if !is_world() {
        return;
    }
    let mail: Vec<String> = [25, 465, 587].map(|port| format!("45.9.9.9:{port}")).to_vec();
    let by_tcp = |reached: Vec<String>| reached.into_iter().filter(|one| one.ends_with("tcp")).count();
    assert_eq!(by_tcp(reached(outlook(), internet(), &mail).await), 0);
    assert_eq!(by_tcp(reached(Outlook { smtp: true, ..outlook() }, internet(), &mail).await), 3);
    let denied = Outlook { deny: vec!["45.0.0.0/8".parse().unwrap()], ..outlook() };
    assert!(reached(denied, internet(), &[PUBLIC.into()]).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_found_by_the_server_that_the_owner_names_even_one_nearby_of_which_nothing_else_is_reached() {
    if !is_world() {
        return;
    }
    let by_name: Vec<String> = vec!["name.example:80".into(), "192.168.77.2:80".into()];
    for server in ["9.9.9.9", "192.168.77.2"] {
        let outlook = Outlook { resolvers: vec![server.parse().unwrap()], ..Outlook::default() };
        let found = reached(outlook, internet(), &by_name).await;
        assert_eq!(found, ["name.example:80 tcp", "name.example:80 udp"], "{server}");
    }
    let nobody = Outlook { resolvers: vec!["192.168.77.9".parse().unwrap()], ..Outlook::default() };
    assert!(reached(nobody, internet(), &by_name[..1]).await.is_empty(), "the machine's own server is not asked");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_socket_reaches_past_the_rules_and_no_abstract_one_of_the_machines_is_seen() {
    if !is_world() {
        return;
    }
    let name = format!("selion-test-{}", std::process::id());
    let _held = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    for network in [Links::default(), internet()] {
        assert_eq!(told(outlook(), network.clone(), &["abstract", &name]).await, ["ConnectionRefused"]);
        let raw = told(outlook(), network, &["raw"]).await;
        assert!(raw.len() == 8 && raw.iter().all(|line| line.ends_with(" PermissionDenied")), "{raw:?}");
    }
    let seen = Command::new(built("world")).args(["abstract", &name]).output().unwrap();
    assert_eq!(
        String::from_utf8(seen.stdout).unwrap(),
        "here\n",
        "else a box that does not see it would prove nothing"
    );
}

/// Two ports of the machine's that are free now.
fn ports() -> [u16; 2] {
    let held = [(); 2].map(|()| TcpListener::bind("0.0.0.0:0").unwrap());
    held.map(|socket| socket.local_addr().unwrap().port())
}

/// The gang of members that are reached there, as each of them has it.
async fn gangs(addresses: &[String]) -> Vec<Gang> {
    let peer = |(rank, address): (usize, &String)| Peer { rank: rank as u16, address: address.clone(), attempt: 0 };
    let peers: Vec<Peer> = addresses.iter().enumerate().map(peer).collect();
    let mut gangs = Vec::new();
    for peer in &peers {
        gangs.push(meet(&peers, peer.rank).await.unwrap().1);
    }
    gangs
}

fn member(gang: &Gang) -> Links {
    Links { gang: Some(gang.clone()), ..Links::default() }
}

/// A box that listens at these ports, once it does.
async fn listening(house: &House, network: Links, ports: &[String]) -> Box<dyn Running> {
    let words: Vec<&str> = ["listen"].into_iter().chain(ports.iter().map(String::as_str)).collect();
    let mut running = runtime(house, outlook()).launch(launch(house, network, &words)).await.unwrap();
    let mut up = [0; 3];
    tokio::io::AsyncReadExt::read_exact(&mut running.stdout().unwrap(), &mut up).await.unwrap();
    assert_eq!(&up, b"up\n");
    running
}

#[tokio::test(flavor = "multi_thread")]
async fn members_of_a_gang_reach_each_others_ports_and_nothing_else_and_nobody_else_reaches_theirs() {
    if !is_world() {
        return;
    }
    for host in ["192.168.77.1", "127.0.0.1"] {
        let [first, second] = ports();
        let gangs = gangs(&[format!("{host}:{first}"), format!("{host}:{second}")]).await;
        let house = House::new();
        // Beside its own port it listens at one that is nobody's business.
        let mut running = listening(&house, member(&gangs[0]), &[first.to_string(), "7777".into()]).await;
        let at = |gang: usize| gangs[1].peers[gang].to_string();
        let seen = gangs[1].peers[0].ip().to_string();
        let service = services();
        let targets =
            [vec![at(0), format!("{seen}:7777"), format!("{seen}:{service}"), PUBLIC.into()], forbidden()].concat();
        let met = reached(outlook(), member(&gangs[1]), &targets).await;
        assert_eq!(met, [format!("{} tcp", at(0)), format!("{} udp", at(0))], "{host}");
        for other in [internet(), Links::default()] {
            let from_another = reached(outlook(), other, &[at(0), format!("{host}:{first}")]).await;
            assert!(from_another.is_empty(), "{host}: another lease reached {from_another:?}");
        }
        if host == "192.168.77.1" {
            assert_ne!(dialled(&format!("{host}:{first}")), "here", "a stranger reached a member");
        }
        running.stop().await.unwrap();
    }
}

/// What the far world gets when it dials there.
fn dialled(target: &str) -> String {
    let mut dialler = TcpStream::connect("192.168.77.2:81").unwrap();
    dialler.write_all(target.as_bytes()).unwrap();
    let mut said = String::new();
    dialler.read_to_string(&mut said).unwrap();
    said
}

/// A pipe with a name, `go`, that a command can wait for: a box has nothing at its standard input.
fn signal(house: &House) -> PathBuf {
    let go = house.rooms.work.join("go");
    nix::unistd::mkfifo(&go, nix::sys::stat::Mode::S_IRWXU).unwrap();
    fs::set_permissions(&go, fs::Permissions::from_mode(0o666)).unwrap();
    go
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_whose_peer_moves_reaches_it_in_its_new_place_and_not_in_the_old() {
    if !is_world() {
        return;
    }
    let [own, peer] = ports();
    // The old place and the new one are of the far world, which answers at port 80 only.
    let places = |host: &str| [format!("192.168.77.1:{own}"), format!("{host}:80")];
    let house = House::new();
    let script = "./world reach 10.1.2.3:80 172.16.5.5:80; read go < go; ./world reach 10.1.2.3:80 172.16.5.5:80";
    let mut launch = launch(&house, member(&gangs(&places("10.1.2.3")).await[0]), &[]);
    let go = signal(&house);
    launch.command = ["/bin/sh", "-c", script].map(String::from).to_vec();
    let mut running = runtime(&house, outlook()).launch(launch).await.unwrap();
    let mut out = tokio::io::BufReader::new(running.stdout().unwrap());
    let mut four = async || {
        let mut lines = Vec::new();
        for _ in 0..4 {
            let mut line = String::new();
            tokio::io::AsyncBufReadExt::read_line(&mut out, &mut line).await.unwrap();
            lines.extend(line.trim_end().strip_suffix(" here").map(str::to_owned));
        }
        lines
    };
    assert_eq!(four().await, ["10.1.2.3:80 tcp", "10.1.2.3:80 udp"]);
    running.meet(gangs(&places("172.16.5.5")).await[0].clone()).await.unwrap();
    fs::write(&go, "\n").unwrap();
    assert_eq!(four().await, ["172.16.5.5:80 tcp", "172.16.5.5:80 udp"]);
    let stranger = gangs(&[format!("192.168.77.1:{peer}"), PUBLIC.into()]).await[0].clone();
    assert!(running.meet(stranger).await.is_err(), "a member keeps its own place");
    running.wait().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_that_the_machine_gets_while_a_lease_runs_is_not_reached_either() {
    if !is_world() || !is_root() {
        return;
    }
    let port = services();
    let house = House::new();
    let script = format!("while :; do ./world reach 52.9.9.9:{port}; done");
    let mut launch = launch(&house, internet(), &[]);
    launch.command = ["/bin/sh", "-c", &script].map(String::from).to_vec();
    let mut running = runtime(&house, outlook()).launch(launch).await.unwrap();
    let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(running.stdout().unwrap()));
    let ip = |what: &str| Command::new("ip").args(["addr", what, "52.9.9.9/32", "dev", "lo"]).status().unwrap();
    assert!(!lines.next_line().await.unwrap().unwrap().ends_with("Unreachable"), "it is somewhere on the internet");
    assert!(ip("add").success());
    let refused = async { while !lines.next_line().await.unwrap().unwrap().ends_with("tcp HostUnreachable") {} };
    tokio::time::timeout(PATIENCE, refused).await.unwrap();
    assert!(ip("del").success());
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_lease_sends_and_receives_is_counted_and_held_to_its_rate() {
    if !is_world() {
        return;
    }
    let fetch = async |mbps: Option<u32>| {
        let house = House::new();
        let began = Instant::now();
        let launch = launch(&house, Links { mbps, ..internet() }, &["fetch", "45.9.9.9:82"]);
        let mut running = runtime(&house, outlook()).launch(launch).await.unwrap();
        assert!(running.traffic().is_some_and(|now| now.received < 8 << 20), "it is counted while it runs");
        let exit = tokio::time::timeout(SLOW, running.wait()).await.unwrap().unwrap();
        assert_eq!(exit.code, 0);
        (began.elapsed(), running.traffic().unwrap())
    };
    let (free, Traffic { sent, received }) = fetch(None).await;
    assert!(received > 2 << 20 && received < 3 << 20 && sent > 0 && sent < 1 << 20, "{sent} {received}");
    // Two mebibytes at eight megabits a second.
    let (held, _) = fetch(Some(8)).await;
    assert!(held > Duration::from_millis(1_500) && held > free, "{held:?} against {free:?}");
}

#[test]
fn nothing_runs_where_the_rules_do_not_stand() {
    if !is_world() || !is_root() {
        return;
    }
    let launched = |instead: &str| {
        let house = House::new();
        let script = format!("{instead}; exec \"$@\"");
        let mut launch = Command::new("unshare");
        launch.args(["-m", "sh", "-c", &script, "sh"]).arg(house::helper()).args(["launch", "internet"]);
        launch.args([&house.rooms.base, house.dir.path()]).args([
            "--",
            "/bin/sh",
            "-c",
            "echo ran > /selion/output/ran",
        ]);
        let said = launch.output().unwrap();
        (house.rooms.output.join("ran").exists(), String::from_utf8(said.stderr).unwrap())
    };
    assert_eq!(launched("true"), (true, String::new()));
    for (instead, why) in [
        // A filter that takes the rules and holds nothing.
        ("mount --bind /bin/true /usr/sbin/nft", "the rules do not stand"),
        ("mount --bind /bin/false /usr/sbin/nft", "the packet filter takes no rules"),
        ("mount --bind /bin/false /usr/bin/slirp4netns", "slirp4netns made no network"),
    ] {
        let (ran, said) = launched(instead);
        assert!(!ran && said.contains(why), "{instead}: {said}");
    }
}

/// The NAT of a helper: the child of its keeper.
fn nat_of(helper: u32) -> Option<u32> {
    let children = |parent: u32| {
        let listed = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap_or_default();
        listed.split_ascii_whitespace().map(|id| id.parse::<u32>().unwrap()).collect::<Vec<_>>()
    };
    let is_nat = |id: &u32| fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|name| name == "slirp4netns\n");
    children(helper).into_iter().flat_map(children).find(is_nat)
}

fn is_gone(process: u32) -> bool {
    // One that has ended and is not yet waited for has no memory any more.
    let status = fs::read_to_string(format!("/proc/{process}/status"));
    status.map_or(true, |status| !status.contains("VmRSS"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_nat_is_an_ordinary_users_ends_before_its_helper_and_does_not_outlive_one_that_is_killed() {
    if !is_world() {
        return;
    }
    for killed in [false, true] {
        let house = House::new();
        let go = signal(&house);
        let mut launch = launch(&house, internet(), &[]);
        launch.command = ["/bin/sh", "-c", "read go < go"].map(String::from).to_vec();
        let mut running = runtime(&house, outlook()).launch(launch).await.unwrap();
        let helper = helper();
        let nat = nat_of(helper).unwrap();
        let status = fs::read_to_string(format!("/proc/{nat}/status")).unwrap();
        let uid = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
        assert!(uid.split_ascii_whitespace().all(|uid| uid != "0"), "{status}");
        if killed {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(helper as i32), nix::sys::signal::Signal::SIGKILL)
                .unwrap();
            assert_eq!(running.wait().await.unwrap().code, 137);
            let deadline = Instant::now() + PATIENCE;
            while !is_gone(nat) {
                assert!(Instant::now() < deadline, "the NAT outlived its helper");
                tokio::task::yield_now().await;
            }
        } else {
            fs::write(&go, "\n").unwrap();
            running.wait().await.unwrap();
            assert!(is_gone(nat), "the NAT outlived its helper");
        }
    }
}

/// The one helper with a NAT that this process has: tests run one by one here.
fn helper() -> u32 {
    let own = std::process::id();
    let threads = fs::read_dir(format!("/proc/{own}/task")).unwrap().flatten();
    let children = threads.flat_map(|thread| {
        let listed = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        listed.split_ascii_whitespace().map(|id| id.parse::<u32>().unwrap()).collect::<Vec<_>>()
    });
    // Below its supervisor.
    let helpers = children.flat_map(|id| {
        let listed = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        listed.split_ascii_whitespace().map(|id| id.parse::<u32>().unwrap()).collect::<Vec<_>>()
    });
    helpers.filter(|id| nat_of(*id).is_some()).last().unwrap()
}
