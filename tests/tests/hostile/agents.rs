//! A registered node whose owner lies: it links over and over, and reports what never was.

use anyhow::{Result, bail};
use borsh::BorshDeserialize;
use futures::{SinkExt, StreamExt};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use selion_api::agent::{
    Fence, Hello, LINK_VERSION, MemberEvent, Report, SignedHello, SignedReport, ToAgent, ToController,
};
use selion_api::commit::{PoolId, canonical, signing_digest};
use selion_api::{GpuId, Hash32, LeaseId, NodeId, NodeSpec, Slot};
use selion_client::Client;
use selion_contracts::Signer;
use selion_tests::{Pool, until};
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;

/// Links at once in the one node's name.
const LINKS: usize = 4;
/// Reports over one link before the next.
const REPORTS: u64 = 400;

/// As many open files as the system lets a process have: each attacker's socket is one.
pub fn raise_file_limit() -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    Ok(setrlimit(Resource::RLIMIT_NOFILE, most, most)?)
}

/// A node with a stake and a key.
pub struct Mallory {
    key: Signer,
    spec: NodeSpec,
}

impl Mallory {
    /// Joins as an honest agent would, and leaves with the key.
    ///
    /// # Errors
    ///
    /// The pool does not take it.
    pub async fn register(pool: &Pool, url: &str, client: &Client) -> Result<Self> {
        let agent = pool.agent(url, "mallory", "L4 24GB").await?;
        agent.stop().await?;
        let key = Signer::open_or_create(&pool.path("mallory").join("node.key"))?;
        let node = NodeId(key.account().0);
        let view = until("the node", async || {
            let nodes = client.nodes(&Default::default()).await;
            Ok(nodes.ok().and_then(|page| page.nodes.into_iter().find(|view| view.node == node)))
        })
        .await?;
        let spec = NodeSpec {
            node,
            provider: view.provider,
            gpus: view.gpus.into_iter().map(|gpu| gpu.spec).collect(),
            cpu_milli: 1_000,
            ram_bytes: 1 << 30,
            address: "127.0.0.1".into(),
            port_base: 40_000,
            ports: 10,
            sandbox: selion_api::slice::Sandbox::Namespaces,
            features: selion_api::BoxFeatures::NONE,
            region: String::new(),
            rack: String::new(),
            disk_bytes: 0,
            net_mbps: 0,
        };
        Ok(Self { key, spec })
    }

    pub fn set_upon(self, attackers: &mut JoinSet<()>, address: String, pool: PoolId) {
        let this = std::sync::Arc::new(self);
        for _ in 0..LINKS {
            let (this, address) = (std::sync::Arc::clone(&this), address.clone());
            attackers.spawn(async move {
                loop {
                    let _ = this.lie(&address, &pool).await;
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                }
            });
        }
    }

    /// One link: a hello, then reports of members that it never had.
    async fn lie(&self, address: &str, pool: &PoolId) -> Result<()> {
        let (mut socket, _) = tokio_tungstenite::connect_async(format!("ws://{address}/v1/link")).await?;
        let nonce = loop {
            let Some(Message::Binary(bytes)) = socket.next().await.transpose()? else { bail!("no challenge") };
            if let ToAgent::Challenge { nonce, .. } = ToAgent::try_from_slice(&bytes)? {
                break nonce;
            }
        };
        let fence = Fence::default();
        let challenge = Hash32::ZERO;
        let (spec, life) = (self.spec.clone(), Hash32::ZERO);
        let hello = Hello { version: LINK_VERSION, nonce, challenge, spec, fence, head: None, last_seq: 0, life };
        let signature = self.key.sign_text(&signing_digest(pool, "hello", &hello).0)?;
        let said = ToController::Hello(Box::new(SignedHello { hello, signature }));
        socket.send(Message::Binary(canonical(&said).into())).await?;
        for seq in 1..=REPORTS {
            let report = Report {
                node: self.spec.node,
                provider: self.spec.provider,
                seq,
                fence,
                lease: LeaseId { seq, index: 0 },
                attempt: 1,
                member: 0,
                gpus: vec![GpuId([0; 16]); 2_000],
                slot: Slot::Whole,
                event: MemberEvent::Metered,
                metered_ms: seq,
            };
            let signature = self.key.sign_text(&signing_digest(pool, "report", &report).0)?;
            socket
                .send(Message::Binary(canonical(&ToController::Report(SignedReport { report, signature })).into()))
                .await?;
        }
        Ok(())
    }
}
