//! A renter: an account, its key, and a client that is logged in.

use std::path::PathBuf;
use std::time::Duration;

use futures::StreamExt;
use selion_api::commit::PoolId;
use selion_api::lease::{LeaseState, Priority};
use selion_api::rest::{BillView, Lease, LeaseEvent, NewLease, NodeView};
use selion_api::slice::SliceWant;
use selion_api::{Account, IsolationClass, LeaseId, MemberWant};
use selion_client::{Client, LocalWallet, PageQuery, fresh_key};
use selion_contracts::Signer;

use crate::chapter::Chain;
use crate::fault::{Expecting, Fault, Told};
use crate::stage::Stage;

/// Longest wait for a lease to move.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// Longest time that a lease of the demo may run, in milliseconds.
const DURATION_MS: u64 = 600_000;
/// Rows asked for at once.
const PAGE: u32 = 500;

/// Somebody who leases.
#[derive(Clone)]
pub(crate) struct Renter {
    pub name: &'static str,
    /// The profile's folder, for sub-commands.
    pub home: PathBuf,
    pub key_file: PathBuf,
    pub signer: Signer,
    pub client: Client,
    wallet: LocalWallet,
    pool: PoolId,
}

impl Renter {
    /// Makes a key and logs in, as a new user would: `selion login`.
    pub async fn login(stage: &Stage, name: &'static str, controller: &str, chain: &Chain) -> Told<Self> {
        let home = stage.path("renters").join(name);
        std::fs::create_dir_all(&home)?;
        let key_file = home.join("key");
        let args =
            ["--output", "json", "login", "--controller", controller, "--chain-rpc", &chain.rpc_url, "--key-file"];
        let answer =
            stage.tool(Some(&home), args.iter().map(std::ffi::OsStr::new).chain([key_file.as_os_str()])).await?;
        answer.json(&format!("{name} to log in"))?;
        let signer = Signer::open_or_create(&key_file)?;
        let text = std::fs::read_to_string(&key_file)?;
        let digits = text.trim();
        let wallet: LocalWallet = digits.strip_prefix("0x").unwrap_or(digits).parse().expecting("a key that signs")?;
        let client = Client::new(controller)?;
        client.login(&wallet, "demo").await.expecting(&format!("{name} to log in with a wallet"))?;
        let pool = PoolId { chain_id: chain.pool.chain_id, controller: chain.pool.at.controller };
        client.sign_with(wallet.clone(), pool);
        Ok(Self { name, home, key_file, signer, client, wallet, pool })
    }

    pub fn account(&self) -> Account {
        self.signer.account()
    }

    /// Signs the request and asks for the lease.
    pub async fn ask(&self, mut lease: NewLease) -> Result<Lease, selion_client::ClientError> {
        let key = fresh_key()?;
        self.client.create_signed_lease(&self.wallet, &self.pool, &key, &mut lease).await
    }

    /// Waits until the lease reached `state` in its present run.
    pub async fn reach(&self, id: LeaseId, state: LeaseState) -> Told<Lease> {
        let what = format!("lease {id} to become {} within {} s", state.code(), PATIENCE.as_secs());
        match self.client.wait(id, state, PATIENCE).await {
            Ok(lease) => Ok(lease),
            Err(error) => {
                let now = self.client.lease(id).await;
                let now = now.map_or_else(|error| error.to_string(), |lease| tell(&lease));
                Err(Fault::new(what, format!("{error}; it is {now}")))
            }
        }
    }

    /// Everything that happened to a lease up to the first change that `stop` names.
    pub async fn history(&self, id: LeaseId, stop: impl Fn(&LeaseEvent) -> bool) -> Told<Vec<LeaseEvent>> {
        let read = async {
            let mut seen = Vec::new();
            let mut events = self.client.events(id, None);
            while let Some(event) = events.next().await {
                let event = event?;
                let last = stop(&event);
                seen.push(event);
                if last {
                    break;
                }
            }
            Told::Ok(seen)
        };
        tokio::time::timeout(PATIENCE, read).await.expecting(&format!("the history of lease {id}"))?
    }

    /// The change that brought the lease to `state` in run `attempt`.
    pub async fn event(&self, id: LeaseId, state: LeaseState, attempt: u32) -> Told<LeaseEvent> {
        let is_it = |event: &LeaseEvent| event.state == state && event.attempt == attempt;
        let seen = self.history(id, is_it).await?;
        seen.into_iter().rfind(is_it).expecting(&format!("lease {id} to have been {} in run {attempt}", state.code()))
    }

    /// All leases, newest first.
    pub async fn leases(&self) -> Told<Vec<Lease>> {
        let mut page = PageQuery { page_size: Some(PAGE), page_token: None };
        let mut all = Vec::new();
        loop {
            let mut some = self.client.leases(&page).await?;
            all.append(&mut some.leases);
            page.page_token = some.next_page_token;
            if page.page_token.is_none() {
                return Ok(all);
            }
        }
    }

    /// All bill lines, newest first.
    pub async fn bills(&self) -> Told<Vec<BillView>> {
        let mut page = PageQuery { page_size: Some(PAGE), page_token: None };
        let mut all = Vec::new();
        loop {
            let mut some = self.client.bills(&page).await?;
            all.append(&mut some.bills);
            page.page_token = some.next_page_token;
            if page.page_token.is_none() {
                return Ok(all);
            }
        }
    }

    /// Every node of the pool.
    pub async fn nodes(&self) -> Told<Vec<NodeView>> {
        Ok(self.client.nodes(&PageQuery { page_size: Some(PAGE), page_token: None }).await?.nodes)
    }
}

/// One line on where a lease stands.
pub(crate) fn tell(lease: &Lease) -> String {
    let reason = lease.reason.map_or(String::new(), |reason| format!(" ({reason})"));
    format!("{} in run {}{reason}", lease.state.code(), lease.attempt)
}

/// A member on a GPU of that model, with little beside it.
pub(crate) fn member(slice: SliceWant, model: &str) -> MemberWant {
    MemberWant { models: vec![model.to_owned()], cpu_milli: 100, ram_bytes: 64 << 20, ..MemberWant::of(slice) }
}

/// A MIG instance.
pub(crate) fn mig(profile: &str) -> SliceWant {
    SliceWant::Mig { profile: profile.to_owned() }
}

/// A share.
pub(crate) fn share(compute_permille: u16, gib: u64) -> SliceWant {
    SliceWant::Share { compute_permille, mem_bytes: gib << 30 }
}

/// A request that runs until it is released and waits a minute for room. On simulated GPUs: the story is the same on
/// every machine, and a real GPU beside them is not repartitioned for a show.
pub(crate) fn request(members: Vec<MemberWant>, command: Vec<String>) -> NewLease {
    NewLease {
        members,
        min_members: None,
        min_nodes: 1,
        within: selion_api::lease::Within::Pool,
        max_latency_us: None,
        regions: Vec::new(),
        max_rate: None,
        classes: vec![IsolationClass::Simulated],
        duration_ms: DURATION_MS,
        wait_ms: 60_000,
        on_node_loss: None,
        priority: Priority::Standard,
        licence: None,
        command,
        image: None,
        root: selion_api::rest::PlainRoot::Base,
        entrypoint: None,
        working_dir: None,
        user: None,
        enforced: Vec::new(),
        env: std::collections::BTreeMap::new(),
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
