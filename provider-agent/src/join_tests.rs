//! Joining on a real EVM, beside controllers that are not the pool's, or not there.

use axum::Json;
use axum::routing::get;
use selion_api::agent::Fence;
use selion_api::rest::PoolView;
use selion_contracts::PoolTerms;
use selion_contracts::deploy::{create_pool, deploy_factory, deploy_test_token};
use tokio_util::sync::CancellationToken;

use super::*;

const COINS: u128 = 100_000_000_000_000_000_000;
const MIN_STAKE: Amount = Amount(1_000_000);

struct Scene {
    pool: Pool,
    config: Config,
    dir: tempfile::TempDir,
    stop: CancellationToken,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Scene {
    async fn open() -> Self {
        let (dir, stop) = (tempfile::tempdir().unwrap(), CancellationToken::new());
        let chain = selion_devchain::Config {
            listen: ([127, 0, 0, 1], 0).into(),
            data_dir: dir.path().join("chain"),
            dev_methods: selion_devchain::DevMethods::Coins,
            ..selion_devchain::Config::default()
        };
        let (tell, told) = tokio::sync::oneshot::channel();
        let ready = move |address| tell.send(address).unwrap();
        tokio::spawn(selion_devchain::serve(chain, stop.clone(), ready));
        let chain_rpc = format!("http://{}", told.await.unwrap());
        let (rpc, authority) = (Rpc::new(&chain_rpc).unwrap(), Signer::random().unwrap());
        rpc.give_coins(authority.account(), COINS).await.unwrap();
        let token = deploy_test_token(&rpc, &authority).await.unwrap();
        let factory = deploy_factory(&rpc, &authority).await.unwrap();
        let terms = terms(token, authority.account());
        let at = create_pool(&rpc, &authority, factory, &terms).await.unwrap();
        let pool = Pool::open(rpc, at.controller).await.unwrap();
        let state_dir = dir.path().join("agent");
        let config = Config { chain_rpc, pool: Some(at.controller), state_dir, dev_fund: true, ..Config::default() };
        Self { pool, config, dir, stop }
    }

    fn id(&self) -> PoolId {
        PoolId { chain_id: self.pool.chain_id, controller: self.pool.at.controller }
    }

    /// Brings the owner's stake to `wanted`, as `join` does.
    async fn stake(&self, owner: &Signer, wanted: u64) -> Result<(), JoinError> {
        let record = self.pool.provider(owner.account(), BlockTag::Latest).await.unwrap();
        let there = record.as_ref().map_or(Amount::ZERO, |record| record.stake);
        let missing = Amount(wanted).max(MIN_STAKE).saturating_sub(there);
        let (pool, owner) = (self.pool.clone(), owner.clone());
        Joining { config: &self.config, pool, owner, sent: Vec::new() }.stake(record.as_ref(), missing).await
    }
}

fn terms(token: Address, authority: Account) -> PoolTerms {
    PoolTerms {
        token,
        owner: authority,
        authority,
        fee_bps: 200,
        thaw_delay_s: 0,
        unbond_delay_s: 86_400,
        min_stake: MIN_STAKE,
        finality_depth: 0,
        grace_s: 3_600,
        allow_simulated: true,
        allow_unsandboxed: true,
        min_bond: Amount(0),
        hand_over_delay_s: 0,
        take_over_after_s: 86_400,
        metadata_cid: String::new(),
    }
}

/// A controller that says it speaks for `pool`; its URL.
async fn controller_of(pool: PoolId) -> String {
    let zero = Address::ZERO;
    let view = PoolView {
        pool,
        vault: zero,
        token: zero,
        authority: Account([1; 20]),
        delegate: zero,
        fence: Fence { epoch: 1, term: 1 },
        terms: terms(zero, Account([1; 20])).shown(),
    };
    let router = axum::Router::new().route("/v1/pool", get(move || async move { Json(view) }));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

#[tokio::test]
async fn a_controller_of_another_pool_is_refused_before_anything_is_made_or_sent() {
    let scene = Scene::open().await;
    let other = PoolId { chain_id: scene.pool.chain_id, controller: Address([9; 20]) };
    let config = Config { controller: controller_of(other).await, ..scene.config.clone() };
    let refused = look(&config).await.err().unwrap();
    assert!(matches!(refused, JoinError::OtherPool(_)), "{refused}");
    let said = refused.to_string();
    assert!(said.contains(&other.controller.to_string()) && said.contains("Nothing was sent"), "{said}");
    assert!(!scene.dir.path().join("agent").exists(), "not even keys were made");
    let far = PoolId { chain_id: 1, ..scene.id() };
    assert!(matches!(controller::speaks_for(&controller_of(far).await, scene.id()).await, Err(Unfit::OtherPool(_))));
    assert!(controller::speaks_for(&controller_of(scene.id()).await, scene.id()).await.is_ok());
}

#[tokio::test]
async fn a_controller_that_does_not_answer_is_told_apart_from_a_wrong_one() {
    let scene = Scene::open().await;
    let gone = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let spoken = controller::speaks_for(&format!("http://{gone}"), scene.id()).await;
    assert!(matches!(spoken, Err(Unfit::Silent(_))));
    // A port that speaks plain http, asked with TLS: as wrong as no port at all.
    let plain = controller_of(scene.id()).await.replace("http://", "https://");
    assert!(matches!(controller::speaks_for(&plain, scene.id()).await, Err(Unfit::Silent(_))));
}

#[tokio::test]
async fn an_owner_who_left_comes_back_and_a_higher_stake_adds_the_difference() {
    let (scene, owner) = (Scene::open().await, Signer::random().unwrap());
    let stake = async || scene.pool.provider(owner.account(), BlockTag::Latest).await.unwrap().unwrap();
    scene.stake(&owner, 0).await.unwrap();
    assert_eq!(stake().await.stake, MIN_STAKE);
    scene.stake(&owner, 3_000_000).await.unwrap();
    assert_eq!(stake().await.stake, Amount(3_000_000));
    scene.stake(&owner, 2_000_000).await.unwrap();
    assert_eq!(stake().await.stake, Amount(3_000_000), "nothing is taken back by a lower wish");

    scene.pool.send(&owner, scene.pool.unbond(Amount(3_000_000))).await.unwrap();
    assert_eq!(stake().await.stake, Amount::ZERO);
    scene.stake(&owner, 5_000_000).await.unwrap();
    let back = stake().await;
    assert_eq!((back.stake, back.unbonding), (Amount(5_000_000), Amount(3_000_000)));
}

#[tokio::test]
async fn a_stake_that_cannot_be_paid_is_told_in_tokens_with_what_is_on_its_way_back() {
    let (mut scene, owner) = (Scene::open().await, Signer::random().unwrap());
    scene.stake(&owner, 3_000_000).await.unwrap();
    scene.pool.send(&owner, scene.pool.unbond(Amount(3_000_000))).await.unwrap();
    scene.config.dev_fund = false;
    let said = scene.stake(&owner, 50_000_000).await.unwrap_err().to_string();
    assert!(said.contains("has 1.00 tokens, the stake takes 50.00"), "{said}");
    assert!(said.contains("3.00 tokens of former stake can be taken in 24 h"), "{said}");
}
