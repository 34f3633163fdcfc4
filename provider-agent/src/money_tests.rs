use std::path::Path;

use selion_api::Amount;
use selion_contracts::deploy::{create_pool, deploy_factory, deploy_test_token};
use selion_contracts::{PoolTerms, Rpc, Signer};
use tokio_util::sync::CancellationToken;

use super::*;

pub(crate) const COINS: u128 = 100_000_000_000_000_000_000;
pub(crate) const DEPOSIT: Amount = Amount(1_000_000);
/// Ends of keys, in whole seconds; the use that most vouchers here are for is before them.
const UNTIL: TimeMs = TimeMs(4_000_000_000_000);
const USED: TimeMs = TimeMs(1_900_000_000_000);

/// A pool on a development chain with a renter who has a key of its own and one that may sign up to a cap.
pub(crate) struct Scene {
    pub(crate) pool: Pool,
    pub(crate) authority: Signer,
    pub(crate) renter: Signer,
    pub(crate) own: Signer,
    pub(crate) delegate: Signer,
    pub(crate) provider: Account,
    stop: CancellationToken,
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Scene {
    /// Registers a provider: delegated keys pay nobody else.
    pub(crate) async fn register(&self, owner: &Signer) {
        let stake = Amount(1_000_000);
        for call in [
            self.pool.mint(owner.address(), stake.0.into()),
            self.pool.approve_controller(),
            self.pool.register_provider(owner.address(), stake),
        ] {
            self.pool.send(owner, call).await.unwrap();
        }
    }

    pub(crate) async fn open(dir: &Path) -> Self {
        let config = selion_devchain::Config {
            listen: ([127, 0, 0, 1], 0).into(),
            data_dir: dir.to_owned(),
            dev_methods: selion_devchain::DevMethods::Coins,
            ..selion_devchain::Config::default()
        };
        let stop = CancellationToken::new();
        let (tell, told) = tokio::sync::oneshot::channel();
        let ready = move |address| tell.send(address).unwrap();
        tokio::spawn(selion_devchain::serve(config, stop.clone(), ready));
        let rpc = Rpc::new(&format!("http://{}", told.await.unwrap())).unwrap();
        let [authority, renter, own, delegate] = std::array::from_fn(|_| Signer::random().unwrap());
        for who in [&authority, &renter] {
            rpc.give_coins(who.account(), COINS).await.unwrap();
        }
        let pool = pool(&rpc, &authority).await;
        for call in [
            pool.mint(renter.address(), DEPOSIT.0.into()),
            pool.approve_vault(),
            pool.enter(DEPOSIT, own.address(), UNTIL),
            pool.grant(delegate.address(), DEPOSIT, UNTIL),
        ] {
            pool.send(&renter, call).await.unwrap();
        }
        Self { pool, authority, renter, own, delegate, provider: Account([9; 20]), stop }
    }

    pub(crate) fn voucher(&self) -> Voucher {
        let (renter, provider) = (self.renter.account(), self.provider);
        Voucher { renter, provider, cumulative: Amount(700), used_through: USED, epoch: 1, log_size: 3 }
    }

    /// What the agent says of a voucher with these two signatures, made for this pool.
    async fn says(&self, voucher: Voucher, key: &Signer, authority: &Signer) -> Result<(), VoucherError> {
        let by = |signer: &Signer| voucher.sign(signer, self.pool.chain_id, self.pool.at.vault).unwrap();
        check(&self.pool, self.provider, &voucher.signed(by(key), by(authority))).await
    }

    /// And of one that was signed for another place.
    async fn says_elsewhere(&self, chain_id: u64, vault: Address) -> Result<(), VoucherError> {
        let voucher = self.voucher();
        let by = |signer: &Signer| voucher.sign(signer, chain_id, vault).unwrap();
        check(&self.pool, self.provider, &voucher.signed(by(&self.own), by(&self.authority))).await
    }
}

/// A pool in which a revoked key is dead at once.
async fn pool(rpc: &Rpc, authority: &Signer) -> Pool {
    let terms = PoolTerms {
        token: deploy_test_token(rpc, authority).await.unwrap(),
        owner: authority.account(),
        authority: authority.account(),
        fee_bps: 200,
        thaw_delay_s: 0,
        unbond_delay_s: 0,
        min_stake: Amount(0),
        finality_depth: 0,
        grace_s: 0,
        allow_simulated: true,
        allow_unsandboxed: true,
        min_bond: Amount(0),
        hand_over_delay_s: 0,
        take_over_after_s: 0,
        metadata_cid: String::new(),
    };
    let factory = deploy_factory(rpc, authority).await.unwrap();
    let at = create_pool(rpc, authority, factory, &terms).await.unwrap();
    Pool::open(rpc.clone(), at.controller).await.unwrap()
}

#[tokio::test]
async fn a_voucher_of_either_key_is_good_and_a_forged_or_foreign_one_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let scene = Scene::open(dir.path()).await;
    let (good, thief) = (scene.voucher(), Signer::random().unwrap());
    for key in [&scene.own, &scene.delegate] {
        scene.says(good, key, &scene.authority).await.unwrap();
    }
    let forged = scene.says(good, &thief, &scene.authority).await;
    assert!(
        matches!(forged, Err(VoucherError::NotTheRenter { signer, .. }) if signer == thief.address()),
        "{forged:?}"
    );
    let forged = scene.says(good, &scene.own, &thief).await;
    assert!(matches!(forged, Err(VoucherError::NotTheAuthority { .. })), "{forged:?}");
    let anothers = Voucher { provider: Account([8; 20]), ..good };
    let anothers = scene.says(anothers, &scene.own, &scene.authority).await;
    assert!(matches!(anothers, Err(VoucherError::NotOurs { .. })), "{anothers:?}");

    // Signed by the right keys for another chain, and for another pool of the same people.
    let (chain_id, vault) = (scene.pool.chain_id, scene.pool.at.vault);
    scene.says_elsewhere(chain_id, vault).await.unwrap();
    for (chain_id, vault) in [(chain_id + 1, vault), (chain_id, pool(&scene.pool.rpc, &scene.authority).await.at.vault)]
    {
        let foreign = scene.says_elsewhere(chain_id, vault).await;
        assert!(matches!(foreign, Err(VoucherError::NotTheAuthority { .. })), "{foreign:?}");
    }
}

#[tokio::test]
async fn a_key_pays_for_use_through_its_end_and_no_later_and_not_at_all_once_it_is_dead() {
    let dir = tempfile::tempdir().unwrap();
    let scene = Scene::open(dir.path()).await;
    for key in [&scene.own, &scene.delegate] {
        let used = |used_through| Voucher { used_through, ..scene.voucher() };
        scene.says(used(UNTIL), key, &scene.authority).await.unwrap();
        let late = scene.says(used(UNTIL.plus(1)), key, &scene.authority).await;
        assert!(matches!(late, Err(VoucherError::KeyEnded { until: UNTIL, .. })), "{late:?}");
        scene.pool.send(&scene.renter, scene.pool.revoke(key.address())).await.unwrap();
        let dead = scene.says(used(USED), key, &scene.authority).await;
        assert!(matches!(dead, Err(VoucherError::KeyDead { .. })), "{dead:?}");
        let text = dead.unwrap_err().to_string();
        assert!(text.contains(&key.address().to_string()) && text.contains("revoked"), "{text}");
    }
}
