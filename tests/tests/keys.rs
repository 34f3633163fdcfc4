//! A renter's keys in the vault, by commands alone: what ends with a key, what stays paid, and what an own key is not.

use anyhow::{Context, Result};
use selion_api::lease::LeaseState;
use selion_api::slice::SliceWant;
use selion_api::{Address, Amount, Reason};
use selion_client::{ClientError, OfferQuery, fresh_key};
use selion_contracts::{BlockTag, Signer};
use selion_tests::{Controller, Ended, PATIENCE, Part, Pool, Renter, run, until, want};
use serde_json::Value;

const DEPOSIT: Amount = Amount(10_000_000);
const COINS: u128 = 1_000_000_000_000_000_000;
const LATEST: BlockTag = BlockTag::Latest;

struct Scene {
    pool: Pool,
    controller: Controller,
    renter: Renter,
    _agent: Part,
}

impl Scene {
    /// A pool with a node on offer, and a renter with a deposit, a grant and a profile.
    async fn open(terms: &[&str]) -> Result<Self> {
        let pool = Pool::open_with(terms).await?;
        let controller = pool.controller(&pool.path("controller"), "127.0.0.1:0").await?;
        let agent = pool.agent(&controller.url, "agent", "A100 80GB").await?;
        let renter = Renter::funded(&pool, &controller.url, "ada", DEPOSIT).await?;
        let offered = async || Ok(renter.client.offers(&OfferQuery::default()).await?.offers.first().map(drop));
        until("an offer", offered).await?;
        let scene = Self { pool, controller, renter, _agent: agent };
        scene.log_in("ada.key").await?;
        Ok(scene)
    }

    async fn log_in(&self, key: &str) -> Result<()> {
        let place = ["--controller", &self.controller.url, "--chain-rpc", &self.pool.rpc, "--key-file", key];
        run(self.pool.home(), ["login"].iter().chain(&place).copied()).await?.json()?;
        Ok(())
    }

    /// `selion account WORDS`.
    async fn account(&self, words: &[&str]) -> Result<Ended> {
        run(self.pool.home(), ["account"].iter().chain(words).copied()).await
    }

    async fn does(&self, words: &[&str]) -> Result<Value> {
        self.account(words).await?.json().with_context(|| words.join(" "))
    }

    async fn is_refused(&self, words: &[&str], code: &str, said: &[&str]) -> Result<()> {
        let ended = self.account(words).await?;
        assert_ne!(ended.code, Some(0), "{words:?}: {}", ended.said());
        let error: Value = serde_json::from_str::<Value>(&ended.out).with_context(|| ended.said())?["error"].take();
        assert_eq!(error["code"], code, "{words:?}: {}", ended.said());
        for word in said {
            assert!(ended.said().contains(word), "{words:?} does not say `{word}`: {}", ended.said());
        }
        Ok(())
    }

    /// The keys that are shown.
    async fn keys(&self) -> Result<Vec<Value>> {
        Ok(self.does(&["keys"]).await?["keys"].as_array().context("a list")?.clone())
    }

    async fn delegate(&self) -> Result<String> {
        Ok(self.controller.client.pool().await?.delegate.to_string())
    }

    /// A lease must be refused for want of payment.
    async fn leases_nothing(&self, renter: &Renter) -> Result<()> {
        let asked = renter.client.create_lease(&fresh_key()?, &want(SliceWant::Whole, &["true"])).await;
        let Err(ClientError::Problem(problem)) = asked else { panic!("{asked:?}") };
        assert_eq!(problem.code, "payment_required");
        Ok(())
    }
}

#[tokio::test]
async fn a_revocation_ends_leases_pays_what_ran_and_the_key_is_granted_anew_when_it_is_dead() -> Result<()> {
    let scene = Scene::open(&["--thaw", "12s"]).await?;
    let (renter, client) = (&scene.renter, &scene.renter.client);
    let delegate = scene.delegate().await?;
    let before = scene.keys().await?;
    assert_eq!(before.len(), 1);
    assert_eq!((&before[0]["key"], &before[0]["kind"]), (&delegate.as_str().into(), &"delegated".into()));
    assert_eq!((&before[0]["of_controller"], &before[0]["cap_left"]), (&true.into(), &"10000000".into()));
    let asked = client.create_lease(&fresh_key()?, &want(SliceWant::Whole, &["sleep", "60"])).await?;
    client.wait(asked.id, LeaseState::Active, PATIENCE).await?;

    let did = scene.does(&["revoke"]).await?;
    scene.is_refused(&["grant", "5"], "key_not_dead", &["can be granted anew from 20", "after that"]).await?;
    let dead_ms = did["key"]["dead_from_ms"].as_u64().context("a time")?;
    let now_ms = scene.pool.contracts.rpc.header(LATEST).await?.time_s * 1_000;
    assert!(dead_ms > now_ms && dead_ms <= now_ms + 12_000, "{dead_ms} is not within the thaw time of {now_ms}");
    let ended = client.wait(asked.id, LeaseState::Ended, PATIENCE).await?;
    assert_eq!(ended.reason, Some(Reason::PaymentRequired));
    let amount = ended.amount;
    assert!(amount > Amount(0), "what ran is billed");
    let provider = Signer::open_or_create(&scene.pool.path("agent/provider.key"))?.account();
    until("the claim of what ran", async || {
        let (claimed, _) = scene.pool.contracts.claimed(provider, renter.signer.account(), LATEST).await?;
        Ok((claimed == amount).then_some(()))
    })
    .await?;
    scene.is_refused(&["revoke"], "no_such_key", &["is revoked already", "selion account keys"]).await?;
    assert_eq!(scene.keys().await?[0]["dead_from_ms"], dead_ms);
    scene.leases_nothing(renter).await?;

    // Dead, it has another life: with another cap, though it is a lower one.
    until("the key to be dead", async || Ok((scene.account(&["grant", "5"]).await?.code == Some(0)).then_some(())))
        .await?;
    let anew = scene.keys().await?;
    assert_eq!((&anew[0]["dead_from_ms"], &anew[0]["cap_left"]), (&Value::Null, &"5000000".into()));
    let again = client.create_lease(&fresh_key()?, &want(SliceWant::Whole, &["true"])).await?;
    let ended = client.wait(again.id, LeaseState::Ended, PATIENCE).await?;
    assert_eq!(ended.reason, Some(Reason::Completed));
    Ok(())
}

#[tokio::test]
async fn an_own_key_is_registered_moved_out_changed_and_ended_and_pays_for_no_lease() -> Result<()> {
    let scene = Scene::open(&["--thaw", "1h"]).await?;
    let contracts = &scene.pool.contracts;
    // Somebody with money, and with no key of the pool's controller.
    let renter = Renter::login(&scene.pool, &scene.controller.url, "bob").await?;
    scene.log_in("bob.key").await?;
    contracts.rpc.give_coins(renter.signer.account(), COINS).await?;
    contracts.send(&renter.signer, contracts.mint(renter.signer.address(), 2_000_000)).await?;
    assert_eq!(scene.keys().await?, [] as [Value; 0]);
    let [first, second] = [Signer::random()?, Signer::random()?].map(|key| key.address().to_string());

    let did = scene.does(&["own-key", &first, "--until", "1h", "--deposit", "2"]).await?;
    assert_eq!((&did["key"]["kind"], &did["key"]["cap_left"]), (&"own".into(), &Value::Null));
    let account = async || Ok::<_, anyhow::Error>(contracts.account(renter.signer.account(), LATEST).await?);
    let held = account().await?;
    assert_eq!((held.key.to_string(), held.balance), (first.clone(), Amount(2_000_000)));
    scene.leases_nothing(&renter).await?;

    scene
        .is_refused(&["own-key", &first, "--until", "10m"], "until_falls", &["only move out", "account revoke 0x"])
        .await?;
    scene.does(&["own-key", &first, "--until", "2h"]).await?;
    assert!(account().await?.until > held.until);
    let delegate = scene.delegate().await?;
    scene.is_refused(&["own-key", &delegate], "key_of_controller", &["without a cap", "account grant"]).await?;
    let authority = contracts.authority(LATEST).await?.to_string();
    scene.is_refused(&["own-key", &authority], "contract_refused", &["would count twice"]).await?;

    scene.does(&["own-key", &second]).await?;
    let kinds = |keys: &[Value], key: &str| {
        let found =
            keys.iter().find(|one| one["key"] == key).map(|one| (one["kind"].clone(), one["dead_from_ms"].is_u64()));
        found.unwrap_or_default()
    };
    let keys = scene.keys().await?;
    assert_eq!(kinds(&keys, &first), ("former".into(), true), "claimable for the thaw time");
    assert_eq!(kinds(&keys, &second), ("own".into(), false));
    scene.is_refused(&["revoke"], "no_such_key", &[&delegate, "may not sign for this account"]).await?;
    scene.is_refused(&["revoke", &first], "no_such_key", &["revoked already"]).await?;
    let ended = scene.does(&["revoke", &second]).await?;
    assert_eq!((&ended["key"]["kind"], ended["key"]["dead_from_ms"].is_u64()), (&"former".into(), true));
    assert_eq!(account().await?.key, Address::ZERO);
    assert_eq!(account().await?.balance, Amount(2_000_000), "the deposit stays");
    Ok(())
}

#[tokio::test]
async fn a_key_is_found_and_revoked_although_the_controller_is_gone() -> Result<()> {
    let mut scene = Scene::open(&["--thaw", "1h"]).await?;
    let delegate = scene.delegate().await?;
    scene.controller.part.kill().await?;
    let keys = scene.keys().await?;
    assert_eq!((&keys[0]["key"], &keys[0]["of_controller"]), (&delegate.as_str().into(), &Value::Null));
    scene.is_refused(&["revoke"], "unreachable", &["account revoke KEY", "account keys"]).await?;
    let did = scene.does(&["revoke", &delegate]).await?;
    assert!(did["key"]["dead_from_ms"].is_u64(), "{did}");
    Ok(())
}
