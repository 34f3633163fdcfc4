//! A controller in memory: it runs the market over inputs that real keys signed, and may be told to lie before it
//! signs its heads.

use selion_api::agent::{Fence, Head, MemberEvent, Report, SignedHead, SignedReport};
use selion_api::chain::{Block, ChainEvent};
use selion_api::commit::{PoolId, canonical, signing_digest};
use selion_api::lease::{LeaseState, OnNodeLoss, Priority};
use selion_api::rest::LoggedEntry;
use selion_api::slice::{GpuSpec, NodeSpec, Sandbox};
use selion_api::{
    Account, Address, Amount, GpuId, Hash32, LeaseId, LeaseRequest, MemberWant, NodeId, Rate, SliceWant, TimeMs,
};
use selion_audit::{Check, Report as Audit, check_log};
use selion_contracts::Signer;
use selion_log::{Entry, Tree, leaf_hash, root};
use selion_market::{Answer, Effect, Input, Policy, RequestLease, Stamp, State, step};

pub const POOL: PoolId = PoolId { chain_id: 31_337, controller: Address([9; 20]) };
const FENCE: Fence = Fence { epoch: 1, term: 1 };
const DELEGATE: Address = Address([0xdd; 20]);
const HOUR: u64 = 3_600_000;
const GIB: u64 = 1 << 30;

pub fn key(number: u8) -> Signer {
    Signer::from_bytes(&[number; 32]).unwrap()
}

/// One entry before it is sealed; a lie changes it here, and every hash and signature will fit it.
#[derive(Clone)]
pub struct Draft {
    pub stamp: Stamp,
    pub input: Input,
    pub effects: Vec<Effect>,
    pub digest: Hash32,
}

/// The controller.
pub struct Book {
    pub state: State,
    pub drafts: Vec<Draft>,
    pub authority: Signer,
    pool: PoolId,
    now: u64,
    height: u64,
    requests: u8,
}

impl Book {
    /// A log that was just opened.
    pub fn open(pool: PoolId, authority: Signer) -> Self {
        let state = State::new();
        let mut book = Self { state, drafts: Vec::new(), authority, pool, now: 1_000_000, height: 0, requests: 0 };
        let digest = Hash32::ZERO;
        book.enter(Input::Rules { version: 1, digest });
        book.enter(Input::Opened { delegate: DELEGATE, policy: Policy::default() });
        book
    }

    /// A pool with one node, that has one GPU, and three renters with money.
    fn new() -> Self {
        let mut book = Self::open(POOL, key(1));
        book.block(vec![ChainEvent::PoolOpened {
            token: Address([1; 20]),
            vault: Address([2; 20]),
            authority: book.authority.account(),
            fee_bps: 200,
            allow_simulated: true,
            allow_unsandboxed: true,
            finality_depth: 0,
            min_stake: Amount(0),
        }]);
        let spec = spec();
        book.block(vec![
            ChainEvent::ProviderRegistered { provider: spec.provider, payout: Address([9; 20]), stake: Amount(5) },
            ChainEvent::NodeRegistered { node: spec.node, provider: spec.provider },
            ChainEvent::OfferSet { node: spec.node, spec_hash: spec.hash(), classes: spec.classes() },
        ]);
        book.enter(Input::Linked { spec, last_seq: 0 });
        for renter in 20..23 {
            let renter = key(renter).account();
            let until = TimeMs(book.now + 1_000 * HOUR);
            book.block(vec![
                ChainEvent::Deposited { renter, amount: Amount(100_000_000) },
                ChainEvent::KeyGranted { renter, key: DELEGATE, cap: Amount(100_000_000), until },
            ]);
        }
        book
    }

    /// Three renters want the one GPU; the first has it for a while, then the second, for whom nothing is billed yet.
    pub fn story() -> (Self, [LeaseId; 3]) {
        let mut book = Self::new();
        let leases = [20, 21, 22].map(|renter| book.request(renter));
        book.run_up(leases[0]);
        book.now += 90_000;
        book.report(leases[0], MemberEvent::Metered, 90_000);
        book.now += 1_000;
        let renter = key(20).account();
        book.enter(Input::Release { renter, lease: leases[0] });
        book.report(leases[0], MemberEvent::Stopped { outputs: None }, 90_500);
        assert_eq!(book.state.leases[&leases[0]].state, LeaseState::Ended);
        assert_eq!(book.state.leases[&leases[1]].state, LeaseState::Held);
        assert_eq!(book.state.leases[&leases[2]].state, LeaseState::Waiting);
        (book, leases)
    }

    pub fn enter(&mut self, input: Input) -> Answer {
        let stamp = Stamp { seq: self.drafts.len() as u64, at_ms: TimeMs(self.now), fence: FENCE };
        let outcome = step(&mut self.state, &stamp, &input);
        self.drafts.push(Draft { stamp, input, effects: outcome.effects, digest: self.state.digest() });
        outcome.answer
    }

    pub fn block(&mut self, events: Vec<ChainEvent>) {
        self.height += 1;
        self.enter(Input::Block(Block { number: self.height, hash: Hash32([1; 32]), parent: Hash32::ZERO, events }));
    }

    /// Asks for the whole GPU, signed by the renter's key.
    fn request(&mut self, renter: u8) -> LeaseId {
        self.requests += 1;
        let signer = key(renter);
        let member = MemberWant { cpu_milli: 500, ram_bytes: GIB, ..MemberWant::of(SliceWant::Whole) };
        let request = LeaseRequest {
            renter: signer.account(),
            idem: Hash32([self.requests; 32]),
            members: vec![member],
            min_members: 1,
            min_nodes: 1,
            within: selion_api::lease::Within::Pool,
            regions: Vec::new(),
            max_rate: None,
            classes: 0b11_1111,
            duration_ms: HOUR,
            wait_ms: 10 * HOUR,
            on_node_loss: OnNodeLoss::End,
            priority: Priority::Standard,
            work: Hash32([7; 32]),
            datasets: Vec::new(),
        };
        let digest = signing_digest(&POOL, "lease", &request);
        let signature = Some(signer.sign_text(&digest.0).unwrap());
        match self.enter(Input::Request(RequestLease { request, signature })) {
            Answer::Created(lease) => lease,
            other => panic!("no lease: {other:?}"),
        }
    }

    fn run_up(&mut self, lease: LeaseId) {
        for event in [MemberEvent::Accepted, MemberEvent::Ready, MemberEvent::Running] {
            self.report(lease, event, 0);
        }
        assert_eq!(self.state.leases[&lease].state, LeaseState::Active);
    }

    fn report(&mut self, id: LeaseId, event: MemberEvent, metered_ms: u64) {
        let lease = &self.state.leases[&id];
        let member = &lease.members[0];
        let report = Report {
            node: member.node,
            seq: self.state.nodes[&member.node].last_seq + 1,
            fence: FENCE,
            lease: id,
            attempt: member.attempt,
            member: 0,
            gpu: member.gpu,
            slot: member.slot.clone(),
            event,
            metered_ms,
        };
        let signed = sign(&key(10), report);
        self.enter(Input::Report(signed));
    }

    /// The number of the first entry with an effect that `which` is true for, and the effect's place.
    pub fn find(&self, which: impl Fn(&Effect) -> bool) -> (usize, usize) {
        let found = self.drafts.iter().enumerate().find_map(|(entry, draft)| {
            let at = draft.effects.iter().position(&which)?;
            Some((entry, at))
        });
        found.expect("no such effect")
    }

    /// Publishes: every hash and every head fits what the drafts say.
    pub fn seal(&self) -> Vec<LoggedEntry> {
        let mut tree = Tree::default();
        self.drafts
            .iter()
            .map(|draft| {
                let leaves: Vec<Vec<u8>> = draft.effects.iter().map(Effect::leaf).collect();
                let hashes: Vec<Hash32> = leaves.iter().map(|leaf| leaf_hash(leaf)).collect();
                let entry = Entry {
                    rules: 1,
                    seq: draft.stamp.seq,
                    fence: draft.stamp.fence,
                    at_ms: draft.stamp.at_ms,
                    input: canonical(&draft.input),
                    effects_root: root(&hashes),
                };
                tree.push(entry.leaf());
                let head = Head { size: draft.stamp.seq + 1, root: tree.root(), digest: draft.digest, fence: FENCE };
                LoggedEntry {
                    seq: draft.stamp.seq,
                    entry: hex::encode(entry.bytes()),
                    effects: leaves.iter().map(hex::encode).collect(),
                    head: Some(self.sign_head(head)),
                }
            })
            .collect()
    }

    fn sign_head(&self, head: Head) -> SignedHead {
        let digest = head.digest_to_sign(&self.pool);
        SignedHead { head, signature: self.authority.sign_text(&digest.0).unwrap() }
    }
}

pub fn sign(key: &Signer, report: Report) -> SignedReport {
    let digest = signing_digest(&POOL, "report", &report);
    SignedReport { signature: key.sign_text(&digest.0).unwrap(), report }
}

pub fn spec() -> NodeSpec {
    NodeSpec {
        node: NodeId(key(10).account().0),
        provider: Account([0x41; 20]),
        gpus: vec![GpuSpec {
            gpu: GpuId([4; 16]),
            model: "A100 80GB".into(),
            mem_bytes: 80 * GIB,
            work_milli: 1_000,
            simulated: true,
            whole: Some(Rate(1_000_000)),
            mig: None,
            share: None,
        }],
        cpu_milli: 64_000,
        ram_bytes: 256 * GIB,
        address: "10.0.0.1".into(),
        port_base: 20_000,
        ports: 400,
        sandbox: Sandbox::Bubblewrap,
        region: String::new(),
        rack: String::new(),
        disk_bytes: 0,
        net_mbps: 0,
    }
}

pub fn audit(published: &[LoggedEntry]) -> Audit {
    check_log(&POOL, published, &[])
}

pub fn named<'a>(audit: &'a Audit, name: &str) -> &'a Check {
    let found = audit.checks.iter().find(|check| check.name == name);
    found.expect("no such check")
}

/// The check fails, and at that entry.
#[track_caller]
pub fn assert_caught<'a>(audit: &'a Audit, name: &str, entry: usize) -> &'a str {
    assert!(!audit.ok);
    let check = named(audit, name);
    assert!(!check.ok, "{name} did not see it: {}", check.detail);
    assert_eq!(check.entry, Some(entry as u64), "{}", check.detail);
    &check.detail
}
