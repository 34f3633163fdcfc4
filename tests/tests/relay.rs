//! A wallet without gas joins: the pool's controller sends what it signs.

use anyhow::{Context, Result};
use selion_api::NodeId;
use selion_client::{Client, OfferQuery};
use selion_contracts::{BlockTag, Signer};
use selion_tests::{Part, Pool, Renter, run, until};

const MODEL: &str = "A100 80GB";
/// Terms under which nobody needs tokens to join.
const NO_STAKE: [&str; 2] = ["--min-stake", "0"];

/// An agent's command line whose owner is given nothing.
fn without_funds(pool: &Pool, controller: &str) -> Vec<String> {
    let mut args = pool.agent_args(controller, &pool.path("agent"), MODEL);
    args.retain(|arg| arg != "--dev-fund");
    args
}

async fn assert_still_penniless(pool: &Pool) -> Result<Signer> {
    let owner = Signer::open_or_create(&pool.path("agent/provider.key"))?;
    assert_eq!(pool.contracts.rpc.balance(owner.account()).await?, 0);
    assert_eq!(pool.contracts.rpc.nonce(owner.account(), BlockTag::Latest).await?, 0);
    Ok(owner)
}

async fn is_on_offer(client: &Client, node: NodeId) -> Result<Option<()>> {
    Ok(client.offers(&OfferQuery::default()).await?.offers.iter().find(|offer| offer.node == node).map(drop))
}

#[tokio::test]
async fn an_owner_without_gas_joins_through_the_relay_and_the_node_can_be_leased() -> Result<()> {
    let pool = Pool::open_with(&NO_STAKE).await?;
    let budget = ["--relay-per-day", "3"];
    let controller = pool.controller_with(&pool.path("controller"), "127.0.0.1:0", &budget).await?;
    let mut agent = Part::start(pool.home(), "agent", without_funds(&pool, &controller.url))?;
    let joined = agent.said("joined").await?;
    assert_eq!(joined["transactions"].as_array().context("a list")?.len(), 3);
    while agent.said("event").await? != "linked" {}
    let owner = assert_still_penniless(&pool).await?;
    let provider = pool.contracts.provider(owner.account(), BlockTag::Latest).await?;
    assert_eq!(provider.context("a provider")?.payout, owner.address());

    let node: NodeId = joined["node"].as_str().context("a node")?.parse()?;
    let renter = Renter::login(&pool, &controller.url, "ada").await?;
    until("the node's offer", async || is_on_offer(&renter.client, node).await).await?;

    // A fourth call is over the day's budget, and says so: another price is another offer.
    agent.stop().await?;
    let dearer =
        without_funds(&pool, &controller.url).into_iter().map(|arg| if arg == "36" { "37".into() } else { arg });
    let ended = run(pool.home(), dearer).await?;
    assert_eq!(ended.code, Some(1), "{}", ended.said());
    assert!(ended.said().contains("has no gas") && ended.said().contains("relay_budget"), "{}", ended.said());
    assert_still_penniless(&pool).await?;
    Ok(())
}

#[tokio::test]
async fn an_owner_without_gas_stakes_by_a_permit_and_is_on_offer() -> Result<()> {
    const STAKE: u64 = 5_000_000;
    let pool = Pool::open_with(&["--min-stake", "5"]).await?; // tokens of a million units
    let controller = pool.controller_with(&pool.path("controller"), "127.0.0.1:0", &["--relay-per-day", "4"]).await?;
    let args = without_funds(&pool, &controller.url);
    let ended = run(pool.home(), args.clone()).await?;
    assert!(ended.code == Some(1) && ended.said().contains("the stake takes 5"), "{}", ended.said());
    // Somebody sends it the stake; it never has a coin of the chain.
    let owner = assert_still_penniless(&pool).await?;
    let operator = Signer::open_or_create(&pool.path("authority.key"))?;
    pool.contracts.send(&operator, pool.contracts.mint(owner.address(), STAKE.into())).await?;

    let mut agent = Part::start(pool.home(), "agent", args)?;
    let joined = agent.said("joined").await?;
    assert_eq!(joined["transactions"].as_array().context("a list")?.len(), 4);
    while agent.said("event").await? != "linked" {}
    assert_still_penniless(&pool).await?;
    let provider = pool.contracts.provider(owner.account(), BlockTag::Latest).await?.context("a provider")?;
    assert_eq!(provider.stake.0, STAKE);
    assert_eq!(pool.contracts.token_balance(owner.address(), BlockTag::Latest).await?, 0);
    let node: NodeId = joined["node"].as_str().context("a node")?.parse()?;
    let renter = Renter::login(&pool, &controller.url, "ada").await?;
    until("the node's offer", async || is_on_offer(&renter.client, node).await).await?;
    Ok(())
}

#[tokio::test]
async fn an_owner_without_gas_is_told_what_to_do_where_nothing_is_relayed() -> Result<()> {
    let pool = Pool::open_with(&NO_STAKE).await?;
    let controller = pool.controller(&pool.path("controller"), "127.0.0.1:0").await?;
    let ended = run(pool.home(), without_funds(&pool, &controller.url)).await?;
    assert_eq!(ended.code, Some(1), "{}", ended.said());
    for word in ["has no gas", "relay_off", "--relay-per-day", "--dev-fund"] {
        assert!(ended.said().contains(word), "it does not say `{word}`: {}", ended.said());
    }
    let owner = assert_still_penniless(&pool).await?;
    assert!(pool.contracts.provider(owner.account(), BlockTag::Latest).await?.is_none());
    Ok(())
}
