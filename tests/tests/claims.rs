//! Vouchers that are about to be lost are claimed by the controller that runs then, however seldom its operator claims.

use anyhow::{Result, ensure};
use selion_api::lease::LeaseState;
use selion_api::slice::SliceWant;
use selion_api::{Account, Amount};
use selion_client::{OfferQuery, fresh_key};
use selion_contracts::{BlockTag, Signer};
use selion_tests::{Controller, PATIENCE, Pool, Renter, run, until, want};

const DEPOSIT: Amount = Amount(10_000_000_000);
/// Nothing is claimed for its sum or for its age.
const SELDOM: [&str; 4] = ["--claim-min", "1000", "--claim-ms", "2592000000"];

/// A lease is over and its voucher is signed; agent and controller are dead, and nothing is claimed.
struct Story {
    pool: Pool,
    renter: Renter,
    provider: Account,
    total: Amount,
}

impl Story {
    async fn begin() -> Result<Self> {
        let pool = Pool::open_with(&["--thaw", "1d"]).await?;
        let Controller { mut part, url, .. } =
            pool.controller_with(&pool.path("controller"), "127.0.0.1:0", &SELDOM).await?;
        let mut agent = pool.agent(&url, "agent", "A100 80GB").await?;
        let renter = Renter::funded(&pool, &url, "ada", DEPOSIT).await?;
        let client = &renter.client;
        let offered = async || Ok(client.offers(&OfferQuery::default()).await?.offers.first().map(drop));
        until("an offer", offered).await?;
        let asked = client.create_lease(&fresh_key()?, &want(SliceWant::Whole, &["sleep", "0.2"])).await?;
        let lease = client.wait(asked.id, LeaseState::Ended, PATIENCE).await?;
        ensure!(lease.amount > Amount::ZERO, "{lease:?}");
        let voucher = until("a voucher over the bill", async || {
            let all = client.vouchers().await?.vouchers;
            Ok(all.into_iter().find(|voucher| voucher.signed && voucher.cumulative == lease.amount))
        })
        .await?;
        // The agent could claim alone; here it is gone with its owner.
        agent.kill().await?;
        part.kill().await?;
        let story = Self { pool, renter, provider: voucher.provider, total: lease.amount };
        assert_eq!(story.claimed().await?, Amount::ZERO);
        Ok(story)
    }

    async fn claimed(&self) -> Result<Amount> {
        let (pool, renter) = (&self.pool.contracts, self.renter.signer.account());
        Ok(pool.claimed(self.provider, renter, BlockTag::Latest).await?.0)
    }

    /// A controller that was started since claims everything.
    async fn is_claimed(&self) -> Result<()> {
        let data = self.pool.path("controller");
        let _controller = self.pool.controller_with(&data, "127.0.0.1:0", &SELDOM).await?;
        until("the claim", async || Ok((self.claimed().await? == self.total).then_some(()))).await
    }
}

#[tokio::test]
async fn a_voucher_of_a_key_that_is_revoked_while_the_controller_is_away_is_claimed_when_it_is_back() -> Result<()> {
    let story = Story::begin().await?;
    let (contracts, renter) = (&story.pool.contracts, &story.renter.signer);
    let delegate = Signer::open_or_create(&story.pool.path("controller/keys/delegate.key"))?.address();
    contracts.send(renter, contracts.revoke(delegate)).await?;
    story.is_claimed().await
}

#[tokio::test]
async fn vouchers_of_the_epoch_before_are_claimed_by_an_heir_that_cannot_sign_them_anew() -> Result<()> {
    let story = Story::begin().await?;
    let (pool, controller) = (&story.pool, story.pool.contracts.at.controller.to_string());
    let at = ["--chain-rpc", &pool.rpc, "--pool", &controller, "--key-file", "owner.key"];
    let replace = ["authority", "replace", "--authority-key", "next.key"];
    run(pool.home(), replace.into_iter().chain(at)).await?.json()?;
    std::fs::copy(pool.path("next.key"), pool.path("authority.key"))?;
    // The heir has the log, and not the key that renters granted.
    std::fs::remove_file(pool.path("controller/keys/delegate.key"))?;
    story.is_claimed().await
}
