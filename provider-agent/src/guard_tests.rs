use selion_api::TimeMs;
use selion_contracts::{Signer, Voucher};

use super::*;
use crate::money::tests::{DEPOSIT, Scene};
use crate::testing::assignment;

/// Ten minutes cost about the whole deposit.
const RATE: Rate = Rate(6 * DEPOSIT.0);

/// A guard of the scene's provider, which asks again as soon as `vault_ms` are over.
fn guard(scene: &Scene, dir: &std::path::Path, vault_ms: u64) -> Guard {
    let book = Arc::new(Book::open(dir).unwrap());
    let (chain_id, controller) = (scene.pool.chain_id, scene.pool.at.controller);
    book.pin_pool(selion_api::commit::PoolId { chain_id, controller }).unwrap();
    let config = Config { chain_rpc: scene.pool.rpc.node().into(), vault_ms, ..Config::default() };
    Guard::open(&config, book, scene.provider).unwrap()
}

fn member(scene: &Scene, seq: u64) -> Assignment {
    let (renter, delegate) = (scene.renter.account(), scene.delegate.address());
    Assignment { renter, delegate, rate: RATE, ..assignment(seq) }
}

#[tokio::test]
async fn an_assignment_is_taken_whose_renter_has_deposit_and_grant_and_no_other() {
    let (chain, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let scene = Scene::open(chain.path()).await;
    let guard = guard(&scene, state.path(), 60_000);
    let good = member(&scene, 1);
    guard.admit(&good).await.unwrap();
    let dear = Assignment { rate: Rate(61 * DEPOSIT.0), ..good.clone() };
    assert!(guard.admit(&dear).await.unwrap_err().contains("is short"));
    let nobody = Assignment { renter: Account([3; 20]), ..good.clone() };
    assert!(guard.admit(&nobody).await.unwrap_err().contains("granted the pool's key nothing"));
    let last = Assignment { max_run_ms: 1, ..dear };
    guard.admit(&last).await.unwrap();
}

#[tokio::test]
async fn vouchers_that_nobody_claimed_are_taken_off_the_deposit_before_more_is_worked_for() {
    let (chain, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let scene = Scene::open(chain.path()).await;
    let guard = guard(&scene, state.path(), 60_000);
    guard.admit(&member(&scene, 1)).await.unwrap();
    guard.cover(scene.renter.account(), DEPOSIT).await;
    assert!(guard.admit(&member(&scene, 2)).await.unwrap_err().contains("short"));
}

#[tokio::test]
async fn a_member_goes_on_until_its_renter_thaws_or_revokes() {
    for revokes in [false, true] {
        let (chain, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let scene = Scene::open(chain.path()).await;
        let guard = Arc::new(guard(&scene, state.path(), 20));
        let member = member(&scene, 1);
        guard.admit(&member).await.unwrap();
        guard.begin(&member);
        let watch = tokio::spawn(Arc::clone(&guard).watch());
        guard.judge(&member, 1).unwrap();
        let call = if revokes { scene.pool.revoke(member.delegate) } else { scene.pool.thaw(DEPOSIT) };
        scene.pool.send(&scene.renter, call).await.unwrap();
        let ended = async {
            loop {
                match guard.judge(&member, 1) {
                    Ok(()) => tokio::task::yield_now().await,
                    Err(why) => return why,
                }
            }
        };
        let why = timeout(Duration::from_secs(20), ended).await.unwrap();
        assert!(why.contains(if revokes { "revoked" } else { "deposit is short" }), "{why}");
        watch.abort();
    }
}

#[tokio::test]
async fn a_chain_that_is_silent_ends_nothing_until_the_cap() {
    let (chain, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let scene = Scene::open(chain.path()).await;
    let mut guard = guard(&scene, state.path(), 60_000);
    (guard.chain_rpc, guard.cap_ms) = ("http://127.0.0.1:1".into(), 1_000);
    let nobody = Assignment { renter: Account([3; 20]), ..member(&scene, 1) };
    guard.admit(&nobody).await.unwrap();
    assert!(guard.is_silent.load(Ordering::Acquire));
    guard.begin(&nobody);
    guard.meter(&nobody, 1_000).await;
    guard.judge(&nobody, 1_000).unwrap();
    guard.meter(&nobody, 1_010).await;
    assert!(guard.judge(&nobody, 1_010).unwrap_err().contains("no voucher covers"));
}

#[tokio::test]
async fn the_whole_of_what_a_deposit_pays_for_is_served() {
    let (chain, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let scene = Scene::open(chain.path()).await;
    let guard = guard(&scene, state.path(), 60_000);
    // Ten minutes for the whole deposit, a voucher each minute, nothing claimed.
    let member = Assignment { max_run_ms: 600_000, ..member(&scene, 1) };
    guard.admit(&member).await.unwrap();
    guard.begin(&member);
    for second in 1..=600_u64 {
        guard.meter(&member, second * 1_000).await;
        guard.judge(&member, second * 1_000).unwrap_or_else(|why| panic!("ended at {second} s: {why}"));
        if second % 60 == 0 {
            guard.cover(member.renter, RATE.bill(second * 1_000)).await;
        }
    }
}

#[tokio::test]
async fn the_agent_claims_alone_what_a_renter_is_about_to_take_away() {
    let (chain, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let scene = Scene::open(chain.path()).await;
    let guard = guard(&scene, state.path(), 60_000);
    let owner = Signer::open_or_create(&state.path().join(crate::agent::PROVIDER_KEY)).unwrap();
    let config = Config { chain_rpc: scene.pool.rpc.node().into(), claim_min: 600, ..Config::default() };
    let never = Config { claim: crate::config::Claiming::Never, ..config.clone() };
    assert!(crate::claim::Collector::new(&never, Arc::clone(&guard.book)).is_none());
    let mut collector = crate::claim::Collector::new(&config, Arc::clone(&guard.book)).unwrap();
    let by = |voucher: Voucher, key: &Signer| voucher.sign(key, scene.pool.chain_id, scene.pool.at.vault).unwrap();
    let voucher = Voucher { provider: owner.account(), ..scene.voucher() };
    let signed = voucher.signed(by(voucher, &scene.delegate), by(voucher, &scene.authority));
    guard.book.keep_voucher(&signed).unwrap();
    let now = TimeMs(1_800_000_000_000);
    assert_eq!(collector.pass(now).await.unwrap().vouchers, 0, "nothing is in peril");

    scene.pool.send(&scene.renter, scene.pool.thaw(Amount(1))).await.unwrap();
    assert_eq!(collector.pass(now).await.unwrap().vouchers, 0, "the owner has no gas");
    scene.pool.rpc.give_coins(owner.account(), crate::money::tests::COINS).await.unwrap();
    scene.register(&owner).await;
    let report = collector.pass(now).await.unwrap();
    assert_eq!((report.vouchers, report.claimed, report.left), (1, voucher.cumulative, Amount::ZERO));
    assert_eq!(collector.pass(now).await.unwrap().vouchers, 0, "once is enough");

    // By hand, also where nothing is in peril: all that the deposit has left, and the rest is told.
    let more = Voucher { cumulative: Amount(DEPOSIT.0 + 5), ..voucher };
    let signed = more.signed(by(more, &scene.own), by(more, &scene.authority));
    guard.book.keep_voucher(&signed).unwrap();
    let report = crate::claim_all(&scene.pool, &[signed], &owner).await.unwrap();
    assert_eq!((report.claimed, report.left), (Amount(DEPOSIT.0 - 700), Amount(5)));
    assert_eq!(report.transactions.len(), 1);
}
