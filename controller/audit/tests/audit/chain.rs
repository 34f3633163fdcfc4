//! The checks that need the chain, on the real contracts.

use std::path::PathBuf;
use std::time::Duration;

use selion_api::chain::{Block, ComponentKind};
use selion_api::commit::PoolId;
use selion_api::{Account, Amount, NodeId, TimeMs};
use selion_audit::rehearse::Book;
use selion_audit::{AuditError, LogSource, Options, Report, audit};
use selion_contracts::deploy::{create_pool, deploy_factory, deploy_test_token};
use selion_contracts::write::Call;
use selion_contracts::{BlockTag, Pool, PoolTerms, Rpc, Signer};
use selion_devchain::{Config, DevMethods, serve};
use selion_market::Input;
use tokio_util::sync::CancellationToken;

use super::book::{assert_caught, cast, key, named, spec};

/// A pool on the embedded chain, with one node on offer and one deposit, and its log in a file.
pub struct World {
    pub url: String,
    pub pool: Pool,
    pub operator: Signer,
    pub book: Book,
    dir: tempfile::TempDir,
    stop: CancellationToken,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl World {
    pub async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (listen, data_dir) = (([127, 0, 0, 1], 0).into(), dir.path().join("chain"));
        let config = Config { listen, data_dir, dev_methods: DevMethods::Coins, ..Config::default() };
        let stop = CancellationToken::new();
        let (tell, told) = tokio::sync::oneshot::channel();
        let ready = move |address| tell.send(address).expect("the test waits");
        tokio::spawn(serve(config, stop.clone(), ready));
        let url = format!("http://{}", told.await.unwrap());
        let rpc = Rpc::new(&url).unwrap();
        let operator = person(&rpc, 1).await;
        let token = deploy_test_token(&rpc, &operator).await.unwrap();
        let factory = deploy_factory(&rpc, &operator).await.unwrap();
        let terms = terms(operator.account(), token);
        let at = create_pool(&rpc, &operator, factory, &terms).await.unwrap();
        let pool = Pool::open(rpc, at.controller).await.unwrap();
        let id = PoolId { chain_id: pool.chain_id, controller: at.controller };
        let book = Book::open(id, cast());
        let mut world = Self { url, pool, operator, book, dir, stop };
        world.fill().await;
        world.mirror().await;
        world
    }

    async fn fill(&mut self) {
        let (owner, renter) = (person(&self.pool.rpc, 30).await, person(&self.pool.rpc, 20).await);
        for who in [&owner, &renter] {
            self.send(who, self.pool.mint(who.address(), 900_000_000)).await;
            self.send(who, self.pool.approve_vault()).await;
            self.send(who, self.pool.approve_controller()).await;
        }
        let stake = self.pool.register_provider(owner.address(), Amount(100_000_000));
        self.send(&owner, stake).await;
        let node = key(10);
        let consent = self.pool.sign_node_binding(&node, owner.account(), 0).unwrap();
        let id = NodeId(node.account().0);
        self.send(&owner, self.pool.register_node(id, &consent)).await;
        let offer = self.pool.set_offer(id, spec().hash(), spec().classes(), "bafy-spec");
        self.send(&owner, offer).await;
        self.send(&renter, self.pool.deposit(Amount(5_000_000))).await;
    }

    pub async fn send(&self, signer: &Signer, call: Call) {
        self.pool.send(signer, call).await.unwrap();
    }

    /// Enters every block with events that is not in the log yet.
    pub async fn mirror(&mut self) {
        self.mirror_from(self.book.state.block.map_or(0, |block| block.number + 1)).await;
    }

    async fn mirror_from(&mut self, from: u64) {
        let head = self.pool.rpc.header(BlockTag::Latest).await.unwrap().number;
        for number in from..=head {
            let header = self.pool.rpc.header(BlockTag::Number(number)).await.unwrap();
            let events = self.pool.events_of_block(header.hash).await.unwrap();
            if !events.is_empty() {
                self.book.enter(Input::Block(Block { number, hash: header.hash, parent: header.parent, events }));
            }
        }
    }

    /// Anchors the log as it is.
    pub async fn anchor(&mut self) {
        let head = self.book.seal().unwrap().last().unwrap().head.unwrap().head;
        let call = self.pool.anchor(1, head.size, head.root, head.digest);
        self.send(&self.operator, call).await;
        self.mirror().await;
    }

    /// The log in a file.
    pub fn file(&self) -> LogSource {
        let path: PathBuf = self.dir.path().join("log.jsonl");
        let lines: Vec<String> =
            self.book.seal().unwrap().iter().map(|entry| serde_json::to_string(entry).unwrap()).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        LogSource::File(path)
    }

    async fn audit(&self) -> Report {
        audit(&self.options(self.file())).await.unwrap()
    }

    /// An audit of that log that asks the chain itself.
    pub fn options(&self, log: LogSource) -> Options {
        let patience = Duration::from_millis(300);
        Options { patience, ..Options::new(self.url.clone(), self.pool.at.controller, log) }
    }
}

impl World {
    /// An hour after the newest block: components are registered for a year at most.
    pub async fn soon(&self) -> TimeMs {
        TimeMs((self.pool.rpc.header(BlockTag::Latest).await.unwrap().time_s + 3_600) * 1_000)
    }
}

pub async fn person(rpc: &Rpc, number: u8) -> Signer {
    let signer = key(number);
    rpc.give_coins(signer.account(), 10_u128.pow(20)).await.unwrap();
    signer
}

fn terms(authority: Account, token: selion_api::Address) -> PoolTerms {
    PoolTerms {
        token,
        owner: authority,
        authority,
        fee_bps: 200,
        thaw_delay_s: 0,
        unbond_delay_s: 0,
        min_stake: Amount(100_000_000),
        finality_depth: 0,
        grace_s: 3_600,
        allow_simulated: true,
        allow_unsandboxed: true,
        min_bond: Amount(0),
        hand_over_delay_s: 0,
        take_over_after_s: 86_400,
        metadata_cid: String::new(),
    }
}

#[tokio::test]
async fn an_honest_pool_passes_against_the_real_contracts() {
    let mut world = World::start().await;
    world.anchor().await;
    let report = world.audit().await;
    for check in &report.checks {
        assert!(check.ok, "{}: {}", check.name, check.detail);
    }
    assert_eq!(report.anchored_size, report.entries - 1);
    let books = &named(&report, "money_conserved").detail;
    assert!(books.starts_with("deposited 5000000 = paid 0"), "{books}");
}

#[tokio::test]
async fn a_deposit_that_is_not_on_chain_is_caught_and_its_entry_named() {
    let mut world = World::start().await;
    let entry = world.book.drafts.len() - 1;
    let Input::Block(block) = &mut world.book.drafts[entry].input else {
        panic!("the last entry is the deposit's block");
    };
    block.events.extend(block.events.clone());
    assert_caught(&world.audit().await, "chain_blocks_in_log", entry);
}

#[tokio::test]
async fn a_final_block_that_the_log_left_out_is_caught() {
    let mut world = World::start().await;
    world.book.drafts.pop();
    let report = world.audit().await;
    let check = named(&report, "chain_blocks_in_log");
    assert!(!check.ok);
    assert!(check.detail.contains("is final and not in the log"), "{}", check.detail);
}

#[tokio::test]
async fn a_log_that_its_anchor_does_not_cover_is_caught() {
    let mut world = World::start().await;
    world.anchor().await;
    // The same story, rewritten after the anchor: every time a millisecond later, and all heads signed again.
    for draft in &mut world.book.drafts {
        draft.stamp.at_ms.0 += 1;
    }
    let report = world.audit().await;
    assert!(named(&report, "heads_signed").ok, "the rewriting is well signed");
    assert!(!named(&report, "anchors_match").ok);
    assert!(!report.ok);
}

#[tokio::test]
async fn a_log_that_begins_after_the_pools_first_block_is_caught() {
    let mut world = World::start().await;
    let id = PoolId { chain_id: world.pool.chain_id, controller: world.pool.at.controller };
    let blocks = world.book.drafts.iter().filter_map(|draft| match &draft.input {
        Input::Block(block) => Some(block.number),
        _ => None,
    });
    let second = blocks.skip(1).min().unwrap();
    world.book = Book::open(id, cast());
    world.mirror_from(second).await;
    let report = world.audit().await;
    let check = named(&report, "chain_blocks_in_log");
    assert!(!check.ok);
    assert!(check.detail.contains("created the pool"), "{}", check.detail);
}

#[tokio::test]
async fn components_keys_and_thaws_that_the_contracts_tell_equal_their_events() {
    let mut world = World::start().await;
    let (owner, renter) = (person(&world.pool.rpc, 30).await, person(&world.pool.rpc, 20).await);
    let far = TimeMs(4_000_000_000_000);
    let gateway = world.pool.register_component(ComponentKind::Gateway, "https://gateway.example", world.soon().await);
    world.send(&owner, gateway).await;
    let relay = world.pool.register_component(ComponentKind::Relay, "https://over.example", TimeMs(1_000));
    world.send(&owner, relay).await;
    let (own, other, delegate) = (key(41).address(), key(42).address(), key(43).address());
    world.send(&renter, world.pool.enter(Amount(1_000), own, far)).await;
    world.send(&renter, world.pool.enter(Amount(0), other, far)).await;
    world.send(&renter, world.pool.grant(delegate, Amount(500), far)).await;
    world.send(&renter, world.pool.revoke(delegate)).await;
    world.send(&renter, world.pool.thaw(Amount(300))).await;
    world.mirror().await;
    let report = world.audit().await;
    for check in &report.checks {
        assert!(check.ok, "{}: {}", check.name, check.detail);
    }
    let registry = &named(&report, "registry_from_events").detail;
    assert!(registry.contains("2 components"), "{registry}");
    let renters = &named(&report, "renters_from_events").detail;
    assert!(renters.starts_with("1 own keys, 2 delegated or former keys and 1 thaws"), "{renters}");
    world.send(&renter, world.pool.withdraw(renter.address())).await;
    world.send(&renter, world.pool.revoke(other)).await;
    world.mirror().await;
    let report = world.audit().await;
    assert!(report.ok, "{report:#?}");
}

#[tokio::test]
async fn entries_before_an_anchor_are_trusted_and_the_report_says_so() {
    let mut world = World::start().await;
    world.anchor().await;
    let anchored = world.book.drafts.len() as u64 - 1;
    let log = world.file();
    let report = audit(&Options { from: anchored, ..world.options(log.clone()) }).await.unwrap();
    assert!(report.ok, "{report:#?}");
    assert_eq!(report.judged_from, anchored);
    let replayed = &named(&report, "replay_identical").detail;
    assert!(replayed.contains(&format!("the {anchored} before entry {anchored} were trusted")), "{replayed}");
    let error = audit(&Options { from: anchored + 3, ..world.options(log) }).await.unwrap_err();
    assert!(
        matches!(error, AuditError::NoAnchor { asked, nearest: Some(near) } if (asked, near) == (anchored + 3, anchored)),
        "{error}"
    );
    assert!(error.to_string().contains(&format!("the nearest covers {anchored}")), "{error}");
}
