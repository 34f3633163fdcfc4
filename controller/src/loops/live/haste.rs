//! A key is revoked while its voucher is not claimed, the claim fails, and the controller dies.

use async_trait::async_trait;
use selion_api::{Address, Hash32};
use selion_contracts::Fees;
use selion_market::state::BlockRef;

use super::*;
use crate::loops::sender::{Mined, SendError};

/// The authority's sender at a node that refuses the first claim.
struct Unlucky {
    inner: AuthoritySender,
    vault: Address,
    refused: AtomicBool,
    tell: mpsc::UnboundedSender<()>,
}

#[async_trait]
impl Sender for Unlucky {
    fn address(&self) -> Address {
        self.inner.address()
    }

    async fn next_nonce(&self) -> Result<u64, SendError> {
        self.inner.next_nonce().await
    }

    async fn mined_nonce(&self) -> Result<u64, SendError> {
        self.inner.mined_nonce().await
    }

    async fn head(&self) -> Result<u64, SendError> {
        self.inner.head().await
    }

    async fn holds(&self, at: BlockRef) -> Result<bool, SendError> {
        self.inner.holds(at).await
    }

    async fn fees(&self) -> Result<Fees, SendError> {
        self.inner.fees().await
    }

    async fn gas(&self, target: Address, calldata: &[u8]) -> Result<u64, SendError> {
        let gas = self.inner.gas(target, calldata).await?;
        // The only call of these tests to the vault is a claim.
        if target == self.vault && !self.refused.swap(true, Ordering::AcqRel) {
            self.tell.send(()).unwrap();
            return Err(SendError::Reverted("out of gas".into()));
        }
        Ok(gas)
    }

    fn sign(
        &self,
        target: Address,
        calldata: &[u8],
        nonce: u64,
        gas: u64,
        fees: Fees,
    ) -> Result<(Hash32, Vec<u8>), SendError> {
        self.inner.sign(target, calldata, nonce, gas, fees)
    }

    async fn send(&self, raw: &[u8]) -> Result<(), SendError> {
        self.inner.send(raw).await
    }

    async fn receipt(&self, hash: Hash32) -> Result<Option<Mined>, SendError> {
        self.inner.receipt(hash).await
    }

    async fn why(&self, target: Address, calldata: &[u8], block: u64) -> String {
        self.inner.why(target, calldata, block).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_keys_voucher_is_claimed_in_time_though_the_first_claim_fails_and_the_controller_dies() {
    let (dir, chain_stop) = (tempfile::tempdir().unwrap(), CancellationToken::new());
    let data = dir.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let (url, chain_task) = chain(dir.path(), &chain_stop).await;
    let rpc = Rpc::new(&url).unwrap();
    let (keys, file) = pool(&url, &data).await;
    let terms = terms(&url, file.controller, &keys).await;
    let keys = Arc::new(keys);
    let pool = terms.pool.clone();
    let (tell, mut told) = mpsc::unbounded_channel();
    let inner = AuthoritySender::new(pool.clone(), keys.authority_signer().clone());
    let unlucky = Arc::new(Unlucky { inner, vault: pool.at.vault, refused: AtomicBool::new(false), tell });
    let life = Life::begin_by(&data, &terms, keys.clone(), Arc::new(|| true), unlucky).await;
    let (renter, provider) = (Signer::random().unwrap(), provider(&pool, 9).await);
    rpc.give_coins(renter.account(), ETHER).await.unwrap();
    let who = renter.account();
    for call in [
        pool.mint(renter.address(), 5_000_000),
        pool.approve_vault(),
        pool.deposit(Amount(5_000_000)),
        pool.grant(keys.delegate(), Amount(3_000_000), wall_clock().plus(86_400_000)),
    ] {
        pool.send(&renter, call).await.unwrap();
    }
    life.until("the grant", |state| state.grants.contains_key(&who)).await;
    // Too little to be claimed for its sum, too new to be claimed for its age.
    let (cumulative, used_through) = (Amount(700_000), wall_clock());
    let voucher = Voucher { renter: who, provider, cumulative, used_through, epoch: 1, log_size: 1 };
    let (first, second) = keys.sign_voucher(voucher.digest(pool.chain_id, pool.at.vault));
    signed_voucher::put(&life.store.writer, &voucher.signed(first, second), wall_clock()).await.unwrap();

    pool.send(&renter, pool.revoke(keys.delegate())).await.unwrap();
    assert_eq!(told.recv().await, Some(()), "the revocation makes the claim due, and it fails");
    life.end().await;
    let kept = Store::open(&data).await.unwrap();
    let rows = outbox::newest(&kept.readers, 99).await.unwrap();
    let claims: Vec<_> = rows.iter().filter(|row| row.order.kind == outbox::Kind::Claim).collect();
    assert_eq!((claims.len(), claims[0].status), (1, outbox::Status::Failed));
    kept.close().await;
    assert_eq!(pool.claimed(provider, who, BlockTag::Latest).await.unwrap().0, Amount::ZERO);

    let life = Life::begin(&data, &terms, keys.clone()).await;
    life.until("the claim", |state| state.books.get(&who).is_some_and(|books| books.claimed == cumulative)).await;
    let key = pool.key(who, keys.delegate(), BlockTag::Latest).await.unwrap().unwrap();
    let now = rpc.header(BlockTag::Latest).await.unwrap().time_s;
    assert!(key.dead_from.is_some_and(|dead_from| now * 1_000 < dead_from.0), "{key:?} at {now}");
    life.end().await;
    chain_stop.cancel();
    chain_task.await.unwrap();
}
