//! Joining with a wallet that does not own the node: refused by name, and the chain is as it was.

use std::fs;

use anyhow::{Context, Result};
use selion_api::{Account, NodeId};
use selion_contracts::{BlockTag, Signer};
use selion_tests::{Part, Pool, dead_port, run};

const MODEL: &str = "A100 80GB";

/// What an agent's `joined` says.
struct Joined {
    node: NodeId,
    spec_hash: String,
    transactions: usize,
}

struct Scene {
    pool: Pool,
    /// Where the controller listens while it is up: only for a first joining, as it writes to the chain by itself.
    listen: String,
    /// An agent's command line.
    args: Vec<String>,
}

impl Scene {
    async fn open() -> Result<Self> {
        let pool = Pool::open().await?;
        let listen = format!("127.0.0.1:{}", dead_port()?);
        let args = pool.agent_args(&format!("http://{listen}"), &pool.path("agent"), MODEL);
        Ok(Self { pool, listen, args })
    }

    fn with(&self, provider: Option<Account>) -> Vec<String> {
        let flag = provider.map(|account| ["--provider".to_owned(), account.to_string()]);
        self.args.iter().cloned().chain(flag.into_iter().flatten()).collect()
    }

    /// The account of the wallet on the node.
    fn here(&self) -> Result<Account> {
        Ok(Signer::open_or_create(&self.pool.path("agent/provider.key"))?.account())
    }

    /// Another wallet on the node.
    fn replace_wallet(&self) -> Result<Account> {
        fs::rename(self.pool.path("agent/provider.key"), self.pool.path("first.key"))?;
        self.here()
    }

    async fn joins(&self, provider: Option<Account>) -> Result<Joined> {
        let controller = self.pool.controller(&self.pool.path("controller"), &self.listen).await?;
        let mut agent = Part::start(self.pool.home(), "agent", self.with(provider))?;
        let joined = agent.said("joined").await?;
        agent.stop().await?;
        controller.part.stop().await?;
        Ok(Joined {
            node: joined["node"].as_str().context("a node")?.parse()?,
            spec_hash: joined["spec_hash"].as_str().context("a hash")?.to_owned(),
            transactions: joined["transactions"].as_array().context("a list")?.len(),
        })
    }

    /// Joining must be refused with all of these words, and nothing be written to the chain, not even a coin for gas.
    async fn assert_refused(&self, provider: Option<Account>, words: &[String]) -> Result<()> {
        let contracts = &self.pool.contracts;
        let before = contracts.rpc.header(BlockTag::Latest).await?;
        let ended = run(self.pool.home(), self.with(provider)).await?;
        assert_eq!(ended.code, Some(1), "{}", ended.said());
        for word in words {
            assert!(ended.said().contains(word), "it does not say `{word}`: {}", ended.said());
        }
        let after = contracts.rpc.header(BlockTag::Latest).await?;
        assert_eq!((after.number, after.hash), (before.number, before.hash), "nothing is on chain");
        let wallet = self.here()?;
        assert!(contracts.provider(wallet, BlockTag::Latest).await?.is_none());
        assert_eq!(contracts.rpc.balance(wallet).await?, 0);
        Ok(())
    }
}

#[tokio::test]
async fn a_node_whose_owner_is_said_to_be_elsewhere_joins_only_what_that_owner_registered() -> Result<()> {
    let mut scene = Scene::open().await?;
    let elsewhere = Account([0x11; 20]);
    // The remedy names the node and the offer, for a wallet that knows neither.
    let missing = ["must sign", "register node 0x", "set its offer 0x"].map(str::to_owned);
    let who = [elsewhere.to_string()];
    scene.assert_refused(Some(elsewhere), &[&missing[..], &who].concat()).await?;

    // Registered by a wallet that is here, then moved elsewhere: the node joins with what is there.
    let owner = scene.here()?;
    let first = scene.joins(None).await?;
    assert!(first.transactions > 0);
    let stranger = scene.replace_wallet()?;
    let second = scene.joins(Some(owner)).await?;
    assert_eq!((second.node, &second.spec_hash, second.transactions), (first.node, &first.spec_hash, 0));

    // Another price is another offer, which only the owner can set.
    scene.args.iter_mut().filter(|arg| *arg == "36").for_each(|price| *price = "37".into());
    let words = [owner.to_string(), format!("the key here is {stranger}'s"), first.node.to_string()];
    scene.assert_refused(Some(owner), &words).await?;
    // And an account that the chain does not have as the owner is told who is.
    let owned = [format!("belongs to provider {owner}"), first.node.to_string()];
    scene.assert_refused(Some(elsewhere), &owned).await
}

#[tokio::test]
async fn an_agent_whose_controller_does_not_answer_stakes_nothing() -> Result<()> {
    let scene = Scene::open().await?;
    scene.assert_refused(None, &["nothing was sent".to_owned(), scene.listen.clone()]).await
}

#[tokio::test]
async fn a_wallet_that_is_not_the_nodes_owner_is_refused_before_it_stakes() -> Result<()> {
    let scene = Scene::open().await?;
    let first = scene.joins(None).await?;
    let owner = scene.here()?;
    scene.replace_wallet()?;
    let words = [format!("belongs to provider {owner}"), first.node.to_string(), "use that provider's key".into()];
    scene.assert_refused(None, &words).await?;
    // With the owner's wallet back there is nothing left to do.
    fs::rename(scene.pool.path("first.key"), scene.pool.path("agent/provider.key"))?;
    assert_eq!(scene.joins(None).await?.transactions, 0);
    Ok(())
}
