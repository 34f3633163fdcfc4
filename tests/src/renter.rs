//! A renter with money in the vault.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use selion_api::lease::Priority;
use selion_api::rest::{Lease, NewLease};
use selion_api::slice::SliceWant;
use selion_api::{Amount, IsolationClass, MemberWant, TimeMs};
use selion_client::{Client, LocalWallet};
use selion_contracts::Signer;

use crate::pool::Pool;
use crate::process::until;

/// Gas for a renter, in wei: one coin of a development chain.
const WEI: u128 = 1_000_000_000_000_000_000;
/// Until when the pool's delegate may sign: the last second that the contract can hold.
const FAR: TimeMs = TimeMs(u32::MAX as u64 * 1_000);

/// Somebody who leases.
pub struct Renter {
    /// Signs transactions.
    pub signer: Signer,
    /// Signs requests.
    pub wallet: LocalWallet,
    /// Logged in.
    pub client: Client,
}

impl Renter {
    /// A new account, logged in at `url`.
    ///
    /// # Errors
    ///
    /// The controller does not let it.
    pub async fn login(pool: &Pool, url: &str, name: &str) -> Result<Self> {
        let file = pool.path(&format!("{name}.key"));
        let signer = Signer::open_or_create(&file)?;
        let wallet: LocalWallet = std::fs::read_to_string(&file)?.trim().parse()?;
        let client = Client::new(url)?;
        client.login(&wallet, name).await?;
        client.sign_with(wallet.clone(), pool.id());
        Ok(Self { signer, wallet, client })
    }

    /// The same with a deposit and a grant to the pool's delegate, both in the log.
    ///
    /// # Errors
    ///
    /// The chain refuses, or the log does not come to have it.
    pub async fn funded(pool: &Pool, url: &str, name: &str, deposit: Amount) -> Result<Self> {
        let renter = Self::login(pool, url, name).await?;
        let (contracts, signer) = (&pool.contracts, &renter.signer);
        let delegate = renter.client.pool().await?.delegate;
        contracts.rpc.give_coins(signer.account(), WEI).await?;
        let calls = [
            contracts.mint(signer.address(), deposit.0.into()),
            contracts.approve_vault(),
            contracts.deposit(deposit),
            contracts.grant(delegate, deposit, FAR),
        ];
        for call in calls {
            contracts.send(signer, call).await?;
        }
        until("the deposit in the log", async || {
            let account = renter.client.account().await?;
            Ok((account.free == deposit && account.delegated == deposit).then_some(()))
        })
        .await?;
        Ok(renter)
    }

    /// `POST /v1/leases` without any of the client's help: status and bytes of the answer.
    ///
    /// # Errors
    ///
    /// No answer came.
    pub async fn post_lease(&self, http: &reqwest::Client, key: &str, body: &str) -> Result<(u16, Vec<u8>)> {
        let token = self.client.bearer().await.context("a token")?;
        let answer = http
            .post(format!("{}v1/leases", self.client.base_url()))
            .header(AUTHORIZATION, format!("Bearer {token}"))
            .header(CONTENT_TYPE, "application/json")
            .header("Idempotency-Key", key)
            .body(body.to_owned())
            .send()
            .await?;
        Ok((answer.status().as_u16(), answer.bytes().await?.into()))
    }
}

/// CIDs of the outputs that the pool has, by rank, of the newest run of each.
#[must_use]
pub fn kept(lease: &Lease) -> BTreeMap<u16, String> {
    let readable = lease.outputs.iter().filter(|one| one.state.is_readable());
    readable.filter_map(|one| Some((one.rank, one.cid.clone()?))).collect()
}

/// One member on that slice that runs `command`; it may wait a minute for room and run a minute.
#[must_use]
pub fn want(slice: SliceWant, command: &[&str]) -> NewLease {
    NewLease {
        members: vec![MemberWant { cpu_milli: 50, ram_bytes: 32 << 20, ..MemberWant::of(slice) }],
        min_members: None,
        min_nodes: 1,
        within: selion_api::lease::Within::Pool,
        max_latency_us: None,
        regions: Vec::new(),
        max_rate: None,
        classes: IsolationClass::ALL.to_vec(),
        duration_ms: 60_000,
        wait_ms: 60_000,
        on_node_loss: None,
        priority: Priority::Standard,
        licence: None,
        command: command.iter().copied().map(str::to_owned).collect(),
        image: None,
        root: selion_api::rest::PlainRoot::Base,
        entrypoint: None,
        working_dir: None,
        user: None,
        enforced: Vec::new(),
        env: BTreeMap::new(),
        secrets: Vec::new(),
        pool_may_keep_secrets: false,
        datasets: Vec::new(),
        network: None,
        name: None,
        labels: Default::default(),
        near_data: false,
        salt: None,
        signature: None,
    }
}
