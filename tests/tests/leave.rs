//! An owner takes out what is his, by commands alone: every step says what stands in its way, and who left can come back.

use anyhow::{Context, Result};
use selion_api::lease::LeaseState;
use selion_api::slice::SliceWant;
use selion_api::{Account, Address, Amount, NodeId, Reason};
use selion_client::{OfferQuery, fresh_key};
use selion_contracts::{BlockTag, Signer};
use selion_tests::{Controller, Ended, PATIENCE, Part, Pool, Renter, run, until, want};
use serde_json::Value;

const MODEL: &str = "A100 80GB";
const STAKE: u64 = 1_000_000;
/// The operator's part of every claim.
const FEE_BPS: u64 = 200;
const COINS: u128 = 1_000_000_000_000_000_000;
const LATEST: BlockTag = BlockTag::Latest;

struct Scene {
    pool: Pool,
    controller: Controller,
}

impl Scene {
    async fn open(terms: &[&str], more: &[&str]) -> Result<Self> {
        let pool = Pool::open_with(terms).await?;
        let controller = pool.controller_with(&pool.path("controller"), "127.0.0.1:0", more).await?;
        Ok(Self { pool, controller })
    }

    /// `selion agent WORDS` by the state directory of that name.
    async fn at(&self, dir: &str, words: &[&str]) -> Result<Ended> {
        let pool = self.pool.contracts.at.controller.to_string();
        let place = ["--controller", &self.controller.url, "--chain-rpc", &self.pool.rpc, "--pool", &pool];
        let state = ["--state-dir", dir];
        run(self.pool.home(), ["agent"].iter().chain(words).chain(&place).chain(&state).copied()).await
    }

    async fn does(&self, words: &[&str]) -> Result<Value> {
        self.at("agent", words).await?.json().with_context(|| words.join(" "))
    }

    /// It must be refused with that code, and say these words.
    async fn is_refused(&self, words: &[&str], code: &str, said: &[&str]) -> Result<()> {
        let before = self.pool.contracts.rpc.nonce(self.owner("agent")?.account(), LATEST).await?;
        let ended = self.at("agent", words).await?;
        assert_ne!(ended.code, Some(0), "{words:?}: {}", ended.said());
        let error: Value = serde_json::from_str::<Value>(&ended.out).with_context(|| ended.said())?["error"].take();
        assert_eq!(error["code"], code, "{words:?}: {}", ended.said());
        for word in said {
            assert!(ended.said().contains(word), "{words:?} does not say `{word}`: {}", ended.said());
        }
        let after = self.pool.contracts.rpc.nonce(self.owner("agent")?.account(), LATEST).await?;
        assert_eq!(before, after, "{words:?} sent something");
        Ok(())
    }

    fn owner(&self, dir: &str) -> Result<Signer> {
        Ok(Signer::open_or_create(&self.pool.path(&format!("{dir}/provider.key")))?)
    }

    fn node(&self, dir: &str) -> Result<NodeId> {
        Ok(NodeId(Signer::open_or_create(&self.pool.path(&format!("{dir}/node.key")))?.account().0))
    }

    async fn agent(&self, dir: &str) -> Result<Part> {
        self.pool.agent(&self.controller.url, dir, MODEL).await
    }

    /// Joins with an agent that is stopped again.
    async fn joined(&self, dir: &str) -> Result<()> {
        self.agent(dir).await?.stop().await?;
        Ok(())
    }

    async fn tokens(&self, of: Address) -> Result<u128> {
        Ok(self.pool.contracts.token_balance(of, LATEST).await?)
    }

    /// A renter who finds an offer.
    async fn renter(&self) -> Result<Renter> {
        let renter = Renter::funded(&self.pool, &self.controller.url, "ada", Amount(10_000_000)).await?;
        let offered = async || Ok(renter.client.offers(&OfferQuery::default()).await?.offers.first().map(drop));
        until("an offer", offered).await?;
        Ok(renter)
    }

    /// What the provider earns of a bill, once all of it is claimed.
    async fn earned(&self, bill: Amount) -> Result<u64> {
        let net = bill.0 - bill.0 * FEE_BPS / 10_000;
        until("the claim of the whole bill", async || {
            let shown = self.does(&["show"]).await?;
            let all = (shown["earned"].as_str(), shown["unclaimed"].as_str()) == (Some(&*net.to_string()), Some("0"));
            Ok(all.then_some(net))
        })
        .await
    }
}

/// What was done, by name.
fn acts(did: &Value) -> Vec<&str> {
    did["sent"].as_array().into_iter().flatten().filter_map(|sent| sent["act"].as_str()).collect()
}

#[tokio::test]
async fn an_owner_walks_out_with_stake_and_earnings_and_comes_back() -> Result<()> {
    let scene = Scene::open(&["--unbond", "6s"], &[]).await?;
    let agent = scene.agent("agent").await?;
    let renter = scene.renter().await?;
    let asked = renter.client.create_lease(&fresh_key()?, &want(SliceWant::Whole, &["sleep", "0.2"])).await?;
    let ended = renter.client.wait(asked.id, LeaseState::Ended, PATIENCE).await?;
    let earned = scene.earned(ended.amount).await?;
    scene.is_refused(&["leave"], "agent_runs", &["selion node pause 0x", "stop the agent"]).await?;
    agent.stop().await?;
    let cold = Address([0xC0; 20]);
    scene.does(&["set-payout", &cold.to_string()]).await?;

    let out = scene.does(&["leave"]).await?;
    assert_eq!(acts(&out), ["retire", "unbond"]);
    let has = &out["holdings"];
    assert_eq!((&has["node"]["provider"], &has["node"]["on_offer"]), (&Value::Null, &false.into()));
    assert_eq!((&has["stake"], &has["unbonding"], &has["offers"]), (&"0".into(), &STAKE.to_string().into(), &0.into()));
    assert_eq!(acts(&scene.does(&["leave"]).await?), [""; 0], "there is nothing to do but wait");
    assert_eq!(scene.tokens(cold).await?, 0);
    let last = until("the stake to come free", async || {
        let did = scene.does(&["leave"]).await?;
        Ok((!acts(&did).is_empty()).then_some(did))
    })
    .await?;
    assert_eq!(acts(&last), ["withdraw_stake", "cash_out"]);
    assert_eq!(scene.tokens(cold).await?, u128::from(STAKE + earned), "to who is paid");
    let nothing = scene.does(&["leave"]).await?;
    assert_eq!((acts(&nothing), &nothing["holdings"]["unbonding"]), (vec![], &"0".into()));

    // The same folder, the same owner, the same node: all of it is registered anew, and it can be leased again.
    let _agent = scene.agent("agent").await?;
    let back = scene.does(&["show"]).await?;
    assert_eq!((&back["stake"], &back["node"]["on_offer"]), (&STAKE.to_string().into(), &true.into()));
    assert_eq!(back["payee"], cold.to_string(), "who is paid stays");
    let offered = async || Ok(renter.client.offers(&OfferQuery::default()).await?.offers.first().map(drop));
    until("the offer again", offered).await
}

#[tokio::test]
async fn each_command_names_what_stands_in_its_way_and_what_removes_it() -> Result<()> {
    let scene = Scene::open(&["--unbond", "1h"], &[]).await?;
    let nowhere = scene.at("nowhere", &["unbond"]).await?;
    assert!(nowhere.code == Some(1) && nowhere.said().contains("there is no key file"), "{}", nowhere.said());
    assert!(!scene.pool.path("nowhere").exists(), "no key is made");
    scene.joined("agent").await?;
    let node = scene.node("agent")?.to_string();
    let close = format!("selion agent close-offer --node {node}");
    scene.is_refused(&["unbond"], "offers_stand", &["1 node", &close]).await?;
    scene
        .is_refused(&["unbond", "0.50"], "stake_too_low", &["leave 1.00 tokens or more", "selion agent unbond"])
        .await?;
    scene.is_refused(&["unbond", "5"], "stake_too_low", &["the stake is 1.00", "ask for less"]).await?;
    scene.is_refused(&["unbond", "0"], "usage", &["above 0"]).await?;
    scene
        .is_refused(&["withdraw-stake"], "nothing_unbonds", &["1.00 tokens are staked", "selion agent unbond"])
        .await?;
    let other = NodeId([9; 20]).to_string();
    scene.is_refused(&["retire", "--node", &other], "not_bound", &["bound to nobody"]).await?;

    assert_eq!(acts(&scene.does(&["close-offer"]).await?), ["close_offer"]);
    scene.is_refused(&["close-offer"], "no_offer", &["is not on offer"]).await?;
    let unbonds = scene.does(&["unbond"]).await?;
    let now_ms = scene.pool.contracts.rpc.header(LATEST).await?.time_s * 1_000;
    assert_eq!(unbonds["holdings"]["ready_ms"], now_ms + 3_600_000);
    scene.is_refused(&["unbond"], "no_stake", &["has no stake"]).await?;
    scene
        .is_refused(&["withdraw-stake"], "still_unbonding", &["1.00 tokens of stake come free at 20", "after that"])
        .await?;
    assert_eq!(acts(&scene.does(&["retire"]).await?), ["retire"]);
    scene.is_refused(&["retire"], "not_bound", &["bound to nobody", "nothing to unbind"]).await
}

#[tokio::test]
async fn who_is_paid_is_changed_by_the_account_that_is_paid_and_by_no_other() -> Result<()> {
    let scene = Scene::open(&[], &[]).await?;
    scene.joined("agent").await?;
    let owner = scene.owner("agent")?;
    let cold = Signer::open_or_create(&scene.pool.path("cold.key"))?;
    let (own, cold_at) = (owner.address().to_string(), cold.address().to_string());
    scene.is_refused(&["set-payout", &own], "same_payee", &["paid already"]).await?;
    let vault = scene.pool.contracts.at.vault.to_string();
    scene.is_refused(&["set-payout", &vault], "contract_refused", &["is a contract of the pool"]).await?;
    let did = scene.does(&["set-payout", &cold_at]).await?;
    assert_eq!(did["holdings"]["payee"], cold_at);
    scene.is_refused(&["set-payout", &own], "not_payee", &[&cold_at, "--key-file"]).await?;
    scene.pool.contracts.rpc.give_coins(cold.account(), COINS).await?;
    scene.does(&["set-payout", &own, "--key-file", "cold.key"]).await?;
    scene.is_refused(&["set-payout", &cold_at, "--key-file", "cold.key"], "not_payee", &[&own]).await?;
    // A folder whose owner is another account does nothing in that one's name.
    std::fs::write(scene.pool.path("elsewhere.toml"), format!("provider = \"{cold_at}\"\n"))?;
    for words in [&["unbond"][..], &["set-payout", &own]] {
        let words = [words, &["--config", "elsewhere.toml"]].concat();
        scene.is_refused(&words, "key_elsewhere", &[&cold_at, &own]).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_lease_runs_on_and_is_paid_when_its_node_is_retired_under_it() -> Result<()> {
    let scene = Scene::open(&[], &[]).await?;
    let _agent = scene.agent("agent").await?;
    let renter = scene.renter().await?;
    let asked = renter.client.create_lease(&fresh_key()?, &want(SliceWant::Whole, &["sleep", "2"])).await?;
    renter.client.wait(asked.id, LeaseState::Active, PATIENCE).await?;
    assert_eq!(acts(&scene.does(&["close-offer"]).await?), ["close_offer"]);
    let block = scene.does(&["retire"]).await?["sent"][0]["block_number"].as_u64().context("a block")?;
    let entered = async || Ok((scene.controller.client.registry().await?.block_number >= block).then_some(()));
    until("the retirement in the log", entered).await?;
    assert_eq!(renter.client.lease(asked.id).await?.state, LeaseState::Active);
    assert!(renter.client.offers(&OfferQuery::default()).await?.offers.is_empty(), "and takes no other");
    let ended = renter.client.wait(asked.id, LeaseState::Ended, PATIENCE).await?;
    assert_eq!(ended.reason, Some(Reason::Completed));
    let amount = ended.amount;
    assert!(amount >= Amount(19_000), "two seconds at 10,000 units each: {amount:?}");
    // Whoever has left is still paid for what ran.
    let earned = scene.earned(amount).await?;
    let owner = scene.owner("agent")?.address();
    let before = scene.tokens(owner).await?;
    scene.does(&["cash-out"]).await?;
    assert_eq!(scene.tokens(owner).await? - before, u128::from(earned));
    Ok(())
}

#[tokio::test]
async fn the_stake_of_an_owner_stays_until_the_last_node_is_off_offer() -> Result<()> {
    let scene = Scene::open(&["--unbond", "0"], &[]).await?;
    scene.joined("agent").await?;
    std::fs::create_dir(scene.pool.path("second"))?;
    std::fs::copy(scene.pool.path("agent/provider.key"), scene.pool.path("second/provider.key"))?;
    scene.joined("second").await?;
    let second = scene.node("second")?.to_string();
    scene.is_refused(&["unbond"], "offers_stand", &["2 nodes", &format!("close-offer --node {second}")]).await?;
    let out = scene.does(&["leave"]).await?;
    assert_eq!((acts(&out), &out["holdings"]["stake"]), (vec!["retire"], &STAKE.to_string().into()));
    assert_eq!(out["holdings"]["others"], serde_json::json!([second]));
    assert_eq!(acts(&scene.does(&["leave"]).await?), [""; 0], "the other node keeps the stake");
    assert_eq!(acts(&scene.does(&["close-offer", "--node", &second]).await?), ["close_offer"]);
    // In a pool whose stake comes back at once it is one call.
    assert_eq!(acts(&scene.does(&["leave"]).await?), ["unbond", "withdraw_stake"]);
    Ok(())
}

#[tokio::test]
async fn an_owner_without_gas_leaves_through_the_relay() -> Result<()> {
    const STAKE: u64 = 5_000_000;
    let scene = Scene::open(&["--min-stake", "5", "--unbond", "0"], &["--relay-per-day", "20"]).await?;
    let contracts = &scene.pool.contracts;
    let owner = {
        std::fs::create_dir(scene.pool.path("agent"))?;
        scene.owner("agent")?
    };
    let operator = Signer::open_or_create(&scene.pool.path("owner.key"))?;
    contracts.send(&operator, contracts.mint(owner.address(), STAKE.into())).await?;
    let mut args = scene.pool.agent_args(&scene.controller.url, &scene.pool.path("agent"), MODEL);
    args.retain(|arg| arg != "--dev-fund");
    let mut agent = Part::start(scene.pool.home(), "agent", args)?;
    while agent.said("event").await? != "linked" {}
    agent.stop().await?;
    assert_eq!(scene.tokens(owner.address()).await?, 0);
    let out = scene.does(&["leave"]).await?;
    assert_eq!(acts(&out), ["retire", "unbond", "withdraw_stake"]);
    assert_eq!(scene.tokens(owner.address()).await?, u128::from(STAKE));
    assert_eq!(contracts.rpc.balance(owner.account()).await?, 0, "it never had a coin");
    assert_eq!(contracts.rpc.nonce(owner.account(), LATEST).await?, 0);
    let record = contracts.provider(Account(owner.account().0), LATEST).await?.context("a provider")?;
    assert_eq!((record.stake, record.unbonding), (Amount(0), Amount(0)));
    Ok(())
}
