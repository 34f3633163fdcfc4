//! When a controller may anchor and when it must end: the decisions as values, and the end of a whole controller.

use selion_api::agent::Fence;
use selion_api::{Account, Address, Amount, NodeId, TimeMs};
use selion_contracts::{Pool, Rpc, Signer};
use selion_market::State;
use selion_market::state::{Node, PoolTerms};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::testing::{chain, owner, pool};

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// A log that holds one node for each of these, linked or not.
fn nodes(linked: &[bool]) -> State {
    let mut state = State::default();
    for (number, linked) in (1_u8..).zip(linked) {
        let node = Node {
            provider: Some(Account([9; 20])),
            offer: None,
            spec: None,
            linked: *linked,
            since: TimeMs(0),
            paused: false,
            reclaimed: Default::default(),
            last_seq: 0,
            blocked: None,
            rtt_us: None,
            staged: selion_market::staged::Staged::default(),
            held: Default::default(),
        };
        state.nodes.insert(NodeId([number; 20]), node);
    }
    state
}

#[test]
fn agents_are_back_once_every_node_that_the_log_holds_as_linked_is_linked_here() {
    let back = |logged: &[bool], linked: &[u8]| are_back(&nodes(logged), |node| linked.contains(&node.0[0]));
    assert!(back(&[], &[]), "a log without nodes waits for none");
    assert!(!back(&[true], &[]));
    assert!(!back(&[true, true], &[1]), "one of two is not all");
    assert!(back(&[true, true], &[1, 2]));
    assert!(back(&[false, false], &[]), "a lost node is not waited for");
    assert!(!back(&[false, true], &[]), "nor does it stand for another");
    assert!(!back(&[false, true], &[1, 3]), "a lost or unknown node does not either");
}

#[test]
fn a_data_directory_that_others_could_read_is_closed_to_them_with_all_that_lies_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    fs::create_dir_all(data.join("content")).unwrap();
    fs::write(data.join("selion.db"), b"rows").unwrap();
    let set = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    set(&data, 0o755);
    set(&data.join("content"), 0o755);
    set(&data.join("selion.db"), 0o644);
    make_private(&data).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&data), mode(&data.join("content")), mode(&data.join("selion.db"))), (0o700, 0o700, 0o600));
    make_private(&dir.path().join("new/data")).unwrap();
    assert_eq!(mode(&dir.path().join("new/data")), 0o700);
}

#[test]
fn authority_has_passed_on_only_when_the_chains_epoch_is_above_the_logs() {
    let terms = |epoch| PoolTerms {
        token: Address([1; 20]),
        vault: Address([2; 20]),
        fee_bps: 200,
        allow_simulated: true,
        allow_unsandboxed: true,
        finality_depth: 0,
        min_stake: Amount(0),
        authority: Account([3; 20]),
        epoch,
        anchored: 0,
    };
    let at = |ours, pool| passed_on(&State { fence: Fence { epoch: ours, term: 7 }, pool, ..State::default() });
    assert_eq!(at(1, None), None, "before the pool's first block");
    assert_eq!(at(1, Some(terms(1))), None);
    assert_eq!(at(1, Some(terms(2))), Some(2));
    // The new authority begins before the block that made it so is final.
    assert_eq!(at(2, Some(terms(1))), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_ends_by_itself_once_its_authority_passed_to_another_address() {
    let (dir, chain_stop) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    let (url, chain_task) = chain(dir.path(), &chain_stop).await;
    let (_, file) = pool(&url, &data).await;
    let config = Config {
        listen: ([127, 0, 0, 1], 0).into(),
        data_dir: data,
        chain_rpc: url.clone(),
        pool: Some(file.controller),
        poll_ms: 20,
        ..Config::default()
    };
    let (tell, told) = tokio::sync::oneshot::channel();
    let stop = CancellationToken::new();
    let running = tokio::spawn(run(config.clone(), stop.clone(), |address| tell.send(address).unwrap()));
    timeout(PATIENCE, told).await.unwrap().unwrap();

    let (pool, heir) = (Pool::open(Rpc::new(&url).unwrap(), file.controller).await.unwrap(), Signer::random().unwrap());
    let consent = pool.sign_authority_binding(&heir, owner().account(), 2).unwrap();
    pool.send(&owner(), pool.replace_authority(heir.account(), &consent)).await.unwrap();
    let ended = timeout(PATIENCE, running).await.expect("it ends by itself").unwrap();
    assert!(matches!(ended, Err(RunError::Deposed)), "{ended:?}");

    // Nor does it begin again.
    let again = timeout(PATIENCE, run(config, stop, |_| panic!("it may not decide"))).await.unwrap();
    assert!(matches!(again, Err(RunError::Check(CheckError::NotAuthority { .. }))), "{again:?}");
    chain_stop.cancel();
    chain_task.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_controller_on_one_data_directory_is_refused_and_the_first_goes_on() {
    let (dir, chain_stop) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let data = dir.path().join("data");
    fs::create_dir(&data).unwrap();
    let (url, chain_task) = chain(dir.path(), &chain_stop).await;
    let (_, file) = pool(&url, &data).await;
    let listen = ([127, 0, 0, 1], 0).into();
    let config =
        Config { listen, data_dir: data.clone(), chain_rpc: url, pool: Some(file.controller), ..Config::default() };
    let (tell, told) = tokio::sync::oneshot::channel();
    let stop = CancellationToken::new();
    let running = tokio::spawn(run(config.clone(), stop.clone(), |address| tell.send(address).unwrap()));
    let address = timeout(PATIENCE, told).await.unwrap().unwrap();

    let second = run(config.clone(), CancellationToken::new(), |_| panic!("it may not serve"));
    let said = timeout(PATIENCE, second).await.unwrap().unwrap_err().to_string();
    assert!(said.contains(&data.display().to_string()), "{said}");
    assert!(said.contains(&format!("process {}", std::process::id())), "{said}");

    let alive = reqwest::get(format!("http://{address}/healthz")).await.unwrap();
    assert!(alive.status().is_success() && !running.is_finished(), "the first one decides on");
    stop.cancel();
    timeout(PATIENCE, running).await.unwrap().unwrap().unwrap();

    // Its end gives the folder back.
    let (tell, told) = tokio::sync::oneshot::channel();
    let stop = CancellationToken::new();
    let again = tokio::spawn(run(config, stop.clone(), |address| tell.send(address).unwrap()));
    timeout(PATIENCE, told).await.unwrap().unwrap();
    stop.cancel();
    timeout(PATIENCE, again).await.unwrap().unwrap().unwrap();
    chain_stop.cancel();
    chain_task.await.unwrap();
}
