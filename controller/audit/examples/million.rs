//! Makes a log of a busy pool and audits it, to see how long that takes and how much memory.
//!
//! ```sh
//! cargo run --release -p selion-audit --example million -- make 1000000 log.jsonl
//! cargo run --release -p selion-audit --example million -- audit log.jsonl
//! cargo run --release -p selion-audit --example million -- tiles log.jsonl DIR
//! cargo run --release -p selion-audit --example million -- audit DIR
//! ```
//!
//! A lease is eight entries: a request (one in three signed), five reports that its node signed, a signed release, and the report
//! that ends it, which brings bill and voucher. Every 500 entries there is a block, in which a provider claims. Ten
//! entries come in a second, so State holds a day's 100,000 ended leases; a head is signed every 256 entries.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a tool for measuring: a failure ends it")]

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use selion_api::agent::{Fence, Head, MemberEvent, Report, SignedHead, SignedHello};
use selion_api::chain::{Block, ChainEvent};
use selion_api::commit::{PoolId, canonical, sha256_of, signing_digest};
use selion_api::lease::{OnNodeLoss, Priority, Within};
use selion_api::rest::LoggedEntry;
use selion_api::said::{Release, Said, Statement};
use selion_api::{
    Account, Address, Amount, GpuId, Hash32, LeaseId, LeaseRequest, MemberWant, NodeId, NodeSpec, Rate, SliceWant,
    TimeMs,
};
use selion_audit::TileSource;
use selion_audit::rehearse::Cast;
use selion_audit::rehearse::book::sign;
use selion_contracts::Signer;
use selion_log::{Checkpoint, Entry, Kind, Levels, Tile, Tree, leaf_hash, root, write_entries, write_hashes};
use selion_market::input::RULES;
use selion_market::{Answer, Effect, Input, Policy, RequestLease, Stamp, State, step};

const POOL: PoolId = PoolId { chain_id: 31_337, controller: Address([9; 20]) };
const FENCE: Fence = Fence { epoch: 1, term: 1 };
const NODES: u8 = 50;
const RENTERS: u8 = 100;
const HEAD_EVERY: u64 = 256;
const BLOCK_EVERY: u64 = 500;
const DEPOSIT: Amount = Amount(1_000_000_000_000_000);
/// Leases that run at a time.
const RUNNING: usize = 40;
/// From entry to entry. A lease's turn comes every 8 s at most, before its hold lapses.
const STEP_MS: u64 = 100;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["make", entries, path] => make(entries.parse().unwrap(), path),
        ["audit", path] => audit(path.as_ref()),
        ["tiles", path, dir] => tiles(path, dir.as_ref()),
        _ => println!("make ENTRIES FILE, audit FILE, tiles FILE DIR, or audit DIR"),
    }
}

fn audit(path: &Path) {
    let began = Instant::now();
    let report = match path.is_dir() {
        true => {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(selion_audit::check_tiles(&POOL, TileSource::Dir(path.into()))).unwrap()
        }
        false => selion_audit::check_file(&POOL, path).unwrap(),
    };
    let took = began.elapsed();
    for check in &report.checks {
        println!("{:6} {:20} {}", if check.ok { "ok" } else { "FAILED" }, check.name, check.detail);
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find(|line| line.starts_with("VmHWM")).unwrap_or("VmHWM unknown");
    println!("{} entries in {:.1} s; {peak}", report.entries, took.as_secs_f64());
}

/// Writes a log as the static files that a controller serves, and tells how long the tree of it took.
fn tiles(path: &str, dir: &Path) {
    let began = Instant::now();
    let mut log = Vec::new();
    for line in BufReader::new(File::open(path).unwrap()).lines() {
        log.push(serde_json::from_str::<LoggedEntry>(&line.unwrap()).unwrap());
    }
    println!("{} entries read in {:?}", log.len(), began.elapsed());
    let plain = |texts: &[String]| -> Vec<Vec<u8>> { texts.iter().map(|text| hex::decode(text).unwrap()).collect() };
    let leaves: Vec<Hash32> = log.iter().map(|logged| leaf_hash(&hex::decode(&logged.entry).unwrap())).collect();
    let began = Instant::now();
    let mut levels = Levels::default();
    leaves.iter().for_each(|leaf| levels.push(*leaf));
    println!("a tree of {} leaves with all its tiles in {:?}", levels.size(), began.elapsed());
    let began = Instant::now();
    let mut files = 0;
    let mut put = |path: String, bytes: Vec<u8>| {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
        files += 1;
    };
    let size = levels.size();
    for level in (0..8).take_while(|level| size >> (8 * u32::from(*level)) > 0) {
        for tile in Tile::all(Kind::Hashes(level), size, 0) {
            let first = usize::try_from(tile.first()).unwrap();
            let hashes = match level {
                0 => &leaves[first..first + usize::from(tile.width)],
                _ => levels.hashes(level, tile.first(), tile.width).unwrap(),
            };
            put(tile.to_string(), write_hashes(hashes));
        }
    }
    for tile in Tile::all(Kind::Entries, size, 0) {
        let first = usize::try_from(tile.first()).unwrap();
        let of = &log[first..first + usize::from(tile.width)];
        let entries: Vec<Vec<u8>> = of.iter().map(|logged| hex::decode(&logged.entry).unwrap()).collect();
        put(tile.to_string(), write_entries(entries.iter().map(Vec::as_slice)));
        let effects = of.iter().flat_map(|logged| canonical(&plain(&logged.effects))).collect();
        put(Tile { kind: Kind::Effects, ..tile }.to_string(), effects);
    }
    let signed = log.last().and_then(|last| last.head).unwrap();
    let (checkpoint, key) = (Checkpoint { pool: POOL, signed }, key(1, 0));
    let signature = key.sign_text(checkpoint.text().as_bytes()).unwrap();
    put("checkpoint".into(), checkpoint.note(&key.account(), &signature).into_bytes());
    println!("{files} files written in {:?}", began.elapsed());
}

fn key(kind: u8, number: u8) -> Signer {
    let mut bytes = [kind; 32];
    bytes[31] = number;
    Signer::from_bytes(&bytes).unwrap()
}

/// A running lease, and how many of its node's reports were entered.
struct Going {
    lease: LeaseId,
    renter: usize,
    said: u8,
}

struct Pool {
    state: State,
    tree: Tree,
    out: BufWriter<File>,
    authority: Signer,
    nodes: Vec<Signer>,
    renters: Vec<Signer>,
    now: u64,
}

fn make(entries: u64, path: &str) {
    let renters = (0..RENTERS).map(|at| key(3, at)).collect();
    let nodes = (0..NODES).map(|at| key(2, at)).collect();
    let out = BufWriter::new(File::create(path).unwrap());
    let (state, tree) = (State::new(), Tree::default());
    let mut pool = Pool { state, tree, out, authority: key(1, 0), nodes, renters, now: 1_000_000 };
    pool.open();
    let mut going = VecDeque::new();
    let mut asked = 0_u64;
    while pool.state.next_seq < entries {
        if pool.state.next_seq.is_multiple_of(BLOCK_EVERY) {
            pool.claim();
        }
        if going.len() < RUNNING {
            going.push_back(pool.request(asked));
            asked += 1;
        }
        let Some(mut one) = going.pop_front() else { continue };
        if pool.go_on(&mut one) {
            going.push_back(one);
        }
    }
    pool.enter(Input::Tick, true);
    pool.out.flush().unwrap();
    println!("{} entries, {asked} leases", pool.state.next_seq);
}

impl Pool {
    fn open(&mut self) {
        self.enter(Input::Rules { version: RULES, digest: Hash32::ZERO }, false);
        self.enter(Input::Opened { delegate: Address([0xdd; 20]), policy: Policy::default().unlimited() }, false);
        self.block(vec![ChainEvent::PoolOpened {
            token: Address([1; 20]),
            vault: Address([2; 20]),
            owner: Account([4; 20]),
            authority: self.authority.account(),
            fee_bps: 200,
            allow_simulated: true,
            allow_unsandboxed: true,
            finality_depth: 0,
            min_stake: Amount(0),
        }]);
        for spec in self.specs() {
            self.block(vec![
                ChainEvent::ProviderRegistered { provider: spec.provider, payout: Address([9; 20]), stake: Amount(0) },
                ChainEvent::NodeRegistered { node: spec.node, provider: spec.provider },
                ChainEvent::OfferSet { node: spec.node, spec_hash: spec.hash(), classes: spec.classes() },
            ]);
            let mut hello = SignedHello::modelled(spec, 0);
            let signer = self.nodes.iter().find(|signer| signer.account().0 == hello.hello.spec.node.0).unwrap();
            hello.signature = signer.sign_text(&signing_digest(&POOL, "hello", &hello.hello).0).unwrap();
            self.enter(Input::Linked(Box::new(hello)), false);
        }
        let until = TimeMs(self.now + 100 * 365 * 86_400_000);
        for renter in self.renters.iter().map(Signer::account).collect::<Vec<_>>() {
            self.block(vec![
                ChainEvent::Deposited { renter, amount: DEPOSIT },
                ChainEvent::KeyGranted { renter, key: Address([0xdd; 20]), cap: DEPOSIT, until },
            ]);
        }
    }

    /// Nodes of four whole GPUs.
    fn specs(&self) -> Vec<NodeSpec> {
        let renters = [key(1, 2), key(1, 3), key(1, 4)];
        let cast = Cast { authority: key(1, 0), node: key(1, 1), owner: key(1, 5), renters };
        let one = cast.spec();
        let node = |node: &Signer| {
            let mut spec = one.clone();
            (spec.node, spec.provider) =
                (NodeId(node.account().0), Account(sha256_of(&node.account()).0[..20].try_into().unwrap()));
            let gpu = |at: u8| {
                let mut gpu = one.gpus[0].clone();
                gpu.gpu = GpuId(sha256_of(&(node.account(), at)).0[..16].try_into().unwrap());
                (gpu.mig, gpu.whole) = (None, Some(Rate(1_000_000 + u64::from(at))));
                gpu
            };
            spec.gpus = (0..4).map(gpu).collect();
            spec
        };
        self.nodes.iter().map(node).collect()
    }

    fn request(&mut self, asked: u64) -> Going {
        let at = usize::try_from(asked % u64::from(RENTERS)).unwrap();
        let renter = self.renters[at].clone();
        let request = LeaseRequest {
            licence: None,
            renter: renter.account(),
            idem: sha256_of(&asked),
            members: vec![MemberWant { cpu_milli: 500, ram_bytes: 1 << 30, ..MemberWant::of(SliceWant::Whole) }],
            min_members: 1,
            min_nodes: 1,
            within: Within::Pool,
            max_latency_us: None,
            regions: Vec::new(),
            max_rate: None,
            classes: 0b11_1111,
            needs: selion_api::BoxFeatures::NONE,
            duration_ms: 3_600_000,
            wait_ms: 3_600_000,
            on_node_loss: OnNodeLoss::End,
            priority: Priority::Standard,
            work: Hash32([7; 32]),
            datasets: Vec::new(),
            near_data: false,
        };
        let sign = || renter.sign_text(&signing_digest(&POOL, "lease", &request).0).unwrap();
        let signature = asked.is_multiple_of(3).then(sign);
        match self.enter(Input::Request(RequestLease { request, signature }), false) {
            Answer::Created(lease) => Going { lease, renter: at, said: 0 },
            other => unreachable!("a request was answered with {other:?}"),
        }
    }

    /// The next thing that happens to a lease; false if it was the last.
    fn go_on(&mut self, going: &mut Going) -> bool {
        going.said += 1;
        let held = self.state.leases.get(&going.lease).unwrap();
        let since = held.members.first().map_or(0, |_| u64::from(going.said) * 1_000);
        let (event, metered) = match going.said {
            1 => (MemberEvent::Accepted, 0),
            2 => (MemberEvent::Ready, 0),
            3 => (MemberEvent::Running, 0),
            4 | 5 => (MemberEvent::Metered, since),
            6 => {
                let (signer, lease, said_ms) = (&self.renters[going.renter], going.lease, TimeMs(self.now + STEP_MS));
                let renter = signer.account();
                let signature = signer.sign_text(&Release { renter, lease, said_ms }.digest(&POOL).0).unwrap();
                self.enter(Input::Release { renter, lease, said: Some(Said { said_ms, signature }) }, false);
                return true;
            }
            _ => (MemberEvent::Stopped { outputs: None }, since),
        };
        let member = held.members.first().unwrap();
        let (node, provider, attempt) = (member.node, member.provider, held.attempt);
        let report = Report {
            node,
            provider,
            seq: self.state.nodes.get(&node).map_or(0, |node| node.last_seq) + 1,
            fence: FENCE,
            lease: going.lease,
            attempt,
            member: 0,
            gpus: member.gpus.clone(),
            slot: member.slot.clone(),
            event,
            metered_ms: metered,
        };
        let signer = self.nodes.iter().find(|signer| signer.account().0 == node.0).unwrap();
        let signed = sign(&POOL, signer, report).unwrap();
        self.enter(Input::Report(signed), false);
        going.said < 7
    }

    /// A provider claims what a renter's voucher says.
    fn claim(&mut self) {
        let billed = &self.state.billed;
        let turn = usize::try_from(self.state.next_seq / BLOCK_EVERY).unwrap() % billed.len().max(1);
        let Some(((renter, provider), total)) = billed.iter().nth(turn).map(|(pair, total)| (*pair, *total)) else {
            return self.block(vec![ChainEvent::FeesCashedOut { epoch: 1, amount: Amount(0) }]);
        };
        self.block(vec![ChainEvent::Claimed { provider, renter, cumulative: total, paid: Amount(0), key: None }]);
    }

    fn block(&mut self, events: Vec<ChainEvent>) {
        let (number, parent) = self.state.block.map_or((1, Hash32::ZERO), |last| (last.number + 1, last.hash));
        self.enter(Input::Block(Block { number, hash: sha256_of(&number), parent, events }), false);
    }

    fn enter(&mut self, input: Input, head: bool) -> Answer {
        self.now += STEP_MS;
        let stamp = Stamp { seq: self.state.next_seq, at_ms: TimeMs(self.now), fence: FENCE };
        let outcome = step(&mut self.state, &stamp, &input);
        let refused = outcome.effects.iter().find(|effect| matches!(effect, Effect::Refused(_)));
        assert!(refused.is_none(), "{refused:?} of {input:?} at entry {}", stamp.seq);
        let leaves: Vec<Vec<u8>> = outcome.effects.iter().map(Effect::leaf).collect();
        let hashes: Vec<Hash32> = leaves.iter().map(|leaf| leaf_hash(leaf)).collect();
        let Stamp { seq, at_ms, fence } = stamp;
        let entry = Entry { rules: RULES, seq, fence, at_ms, input: canonical(&input), effects_root: root(&hashes) };
        self.tree.push(entry.leaf());
        let sign = || {
            let head = Head { size: seq + 1, root: self.tree.root(), digest: self.state.digest(), fence };
            let signature = self.authority.sign_text(&head.digest_to_sign(&POOL).0).unwrap();
            SignedHead { head, signature }
        };
        let head = (head || (seq + 1).is_multiple_of(HEAD_EVERY)).then(sign);
        let effects = leaves.iter().map(hex::encode).collect();
        let logged = LoggedEntry { seq, entry: hex::encode(entry.bytes()), effects, head };
        serde_json::to_writer(&mut self.out, &logged).unwrap();
        self.out.write_all(b"\n").unwrap();
        while self.state.more && input != Input::Continue {
            self.enter(Input::Continue, false);
        }
        outcome.answer
    }
}
