//! A pool in memory: every step is checked against the invariants, by the second opinion, and kept for replay.

use selion_api::agent::{Fence, MemberEvent, Report, SignedReport};
use selion_api::chain::{Block, ChainEvent};
use selion_api::lease::{LeaseState, OnNodeLoss, Priority, Refusal, Within};
use selion_api::slice::{GpuSpec, IsolationClass, MigProfile, MigTable, NodeSpec, Sandbox, ShareTerms};
use selion_api::{
    Account, Address, Amount, GpuId, Hash32, LeaseId, LeaseRequest, MemberWant, NodeId, Rate, Reason, Signature,
    SliceWant, TimeMs,
};
use selion_checker::Checker;
use selion_market::{
    Answer, Effect, Grant, Group, Input, Lease, Outcome, Policy, RequestLease, Seat, Stamp, State, step,
};

use crate::invariants;

/// The key that the controller holds.
pub const DELEGATE: Address = Address([0xdd; 20]);
pub const GIB: u64 = 1 << 30;
pub const HOUR: u64 = 3_600_000;
/// One token.
pub const TOKEN: u64 = 1_000_000;

/// What a grant keeps for an hour of a member at this rate.
pub fn kept(rate: u64) -> u64 {
    Rate(rate).reserve(HOUR + Policy::default().grace_ms).0
}

pub fn renter(number: u8) -> Account {
    Account([number; 20])
}

pub fn provider(number: u8) -> Account {
    Account([0x40 + number; 20])
}

pub fn node_id(number: u8) -> NodeId {
    NodeId([number; 20])
}

pub fn gpu_id(node: u8, rank: u8) -> GpuId {
    let mut id = [node; 16];
    id[15] = rank;
    GpuId(id)
}

fn profile(name: &str, starts: &[u8], size: u8, compute: u8, max: u8, gib: u64) -> MigProfile {
    MigProfile {
        name: name.into(),
        starts: starts.to_vec(),
        size,
        compute_slices: compute,
        max_instances: max,
        mem_bytes: gib * GIB,
        rate: Rate(u64::from(compute) * 100_000),
    }
}

/// The A100 80GB as NVML lists it, without its media profile.
pub fn a100_table() -> MigTable {
    MigTable {
        mem_slices: 8,
        compute_slices: 7,
        profiles: vec![
            profile("1g.10gb", &[0, 1, 2, 3, 4, 5, 6], 1, 1, 7, 10),
            profile("1g.20gb", &[0, 2, 4, 6], 2, 1, 4, 20),
            profile("2g.20gb", &[0, 2, 4], 2, 2, 3, 20),
            profile("3g.40gb", &[0, 4], 4, 3, 2, 40),
            profile("4g.40gb", &[0], 4, 4, 1, 40),
            profile("7g.80gb", &[0], 8, 7, 1, 80),
        ],
    }
}

/// A GPU that can be leased in every mode.
pub fn a100(node: u8, rank: u8) -> GpuSpec {
    GpuSpec {
        gpu: gpu_id(node, rank),
        model: "A100 80GB".into(),
        mem_bytes: 80 * GIB,
        work_milli: 1000,
        simulated: true,
        whole: Some(Rate(TOKEN)),
        mig: Some(a100_table()),
        share: Some(ShareTerms { rate: Rate(TOKEN), max_shares: 1000, class: IsolationClass::Capped }),
    }
}

pub fn spec(node: u8, gpus: Vec<GpuSpec>) -> NodeSpec {
    NodeSpec {
        node: node_id(node),
        provider: provider(node),
        gpus,
        cpu_milli: 64_000,
        ram_bytes: 256 * GIB,
        address: format!("10.0.0.{node}"),
        port_base: 20_000,
        ports: 400,
        sandbox: Sandbox::Namespaces,
        features: selion_api::BoxFeatures::NONE,
        region: if node % 2 == 1 { "eu" } else { "us" }.into(),
        rack: format!("rack {}", node / 4),
        disk_bytes: 1_024 * GIB,
        net_mbps: 10_000,
    }
}

pub fn mig(name: &str) -> SliceWant {
    SliceWant::Mig { profile: name.into() }
}

pub fn share(compute_permille: u16, gib: u64) -> SliceWant {
    SliceWant::Share { compute_permille, mem_bytes: gib * GIB }
}

pub fn want(slice: SliceWant) -> MemberWant {
    MemberWant { cpu_milli: 500, ram_bytes: GIB, ..MemberWant::of(slice) }
}

pub fn group(path: &str, weight: u32, quota_permille: u16) -> Group {
    Group { path: path.into(), weight, quota_permille }
}

pub fn seat(of: u8, path: &str, weight: u32) -> Seat {
    Seat { account: renter(of), group: path.into(), weight }
}

/// An hour on `slices`, waiting up to ten.
pub fn ask(renter: Account, slices: &[SliceWant]) -> LeaseRequest {
    LeaseRequest {
        renter,
        idem: Hash32::ZERO, // the pool numbers requests that name none
        members: slices.iter().cloned().map(want).collect(),
        min_members: u16::try_from(slices.len()).unwrap(),
        min_nodes: 1,
        within: Within::Pool,
        max_latency_us: None,
        regions: Vec::new(),
        max_rate: None,
        classes: 0b11_1111,
        needs: selion_api::BoxFeatures::NONE,
        duration_ms: HOUR,
        wait_ms: 10 * HOUR,
        on_node_loss: OnNodeLoss::End,
        work: Hash32([7; 32]),
        datasets: Vec::new(),
        near_data: false,
        priority: Priority::Standard,
        licence: None,
    }
}

#[derive(Clone)]
pub struct Pool {
    pub state: State,
    pub now: u64,
    pub fence: Fence,
    pub log: Vec<(Stamp, Input)>,
    pub outcomes: Vec<Outcome>,
    pub height: u64,
    pub checker: Checker,
    requests: u64,
}

impl Pool {
    /// A pool without nodes or money that allows everything.
    pub fn new() -> Self {
        Self::with_terms(true, true)
    }

    pub fn with_terms(allow_simulated: bool, allow_unsandboxed: bool) -> Self {
        let mut pool = Self {
            state: State::new(),
            now: 1_000_000,
            fence: Fence { epoch: 1, term: 1 },
            log: Vec::new(),
            outcomes: Vec::new(),
            height: 0,
            checker: Checker::new(),
            requests: 0,
        };
        pool.enter(Input::Rules { version: 1, digest: Hash32::ZERO });
        pool.enter(Input::Opened { delegate: DELEGATE, policy: Policy::default() });
        pool.block(vec![ChainEvent::PoolOpened {
            token: Address([1; 20]),
            vault: Address([2; 20]),
            owner: Account([4; 20]),
            authority: Account([3; 20]),
            fee_bps: 200,
            allow_simulated,
            allow_unsandboxed,
            finality_depth: 0,
            min_stake: Amount(5),
        }]);
        pool
    }

    /// One node with one A100, and a renter 1 with 1,000 tokens.
    pub fn small() -> Self {
        let mut pool = Self::new();
        pool.node(spec(1, vec![a100(1, 0)]));
        pool.fund(renter(1), 1000 * TOKEN);
        pool
    }

    pub fn enter(&mut self, input: Input) -> Outcome {
        let stamp = Stamp { seq: self.log.len() as u64, at_ms: TimeMs(self.now), fence: self.fence };
        // A copy has an empty index: it looks at every node again, and must decide the same. One that was read from
        // its bytes has no tables either, as after a restart.
        let restarts = stamp.seq.is_multiple_of(4);
        let bytes = restarts.then(|| borsh::to_vec(&self.state).unwrap());
        let mut cold = bytes.map_or_else(|| self.state.clone(), |bytes| borsh::from_slice(&bytes).unwrap());
        let outcome = step(&mut self.state, &stamp, &input);
        assert_eq!(step(&mut cold, &stamp, &input), outcome);
        assert!(cold == self.state, "the index missed a change of a node");
        let findings = self.checker.check(&stamp, &input, &outcome.effects);
        assert_eq!(findings, [], "engine and checker agree on {input:?}: {:?}", outcome.effects);
        self.log.push((stamp, input));
        self.outcomes.push(outcome.clone());
        invariants::check(&self.state);
        outcome
    }

    pub fn block(&mut self, events: Vec<ChainEvent>) -> Outcome {
        self.height += 1;
        self.enter(Input::Block(Block { number: self.height, hash: Hash32([1; 32]), parent: Hash32::ZERO, events }))
    }

    /// Registers, offers and links a node.
    pub fn node(&mut self, spec: NodeSpec) {
        self.block(vec![
            ChainEvent::ProviderRegistered { provider: spec.provider, payout: Address([9; 20]), stake: Amount(5) },
            ChainEvent::NodeRegistered { node: spec.node, provider: spec.provider },
            ChainEvent::OfferSet { node: spec.node, spec_hash: spec.hash(), classes: spec.classes() },
        ]);
        self.enter(Input::modelled_link(spec, 0));
    }

    pub fn fund(&mut self, renter: Account, amount: u64) {
        self.block(vec![
            ChainEvent::Deposited { renter, amount: Amount(amount) },
            ChainEvent::KeyGranted {
                renter,
                key: DELEGATE,
                cap: Amount(amount),
                until: TimeMs(self.now + 1000 * HOUR),
            },
        ]);
    }

    pub fn request(&mut self, mut request: LeaseRequest) -> Answer {
        self.requests += 1;
        if request.idem == Hash32::ZERO {
            request.idem.0[..8].copy_from_slice(&self.requests.to_be_bytes());
        }
        let signature = Some(Signature::ZERO);
        self.enter(Input::Request(RequestLease { request, signature })).answer
    }

    /// Asks and expects a lease.
    pub fn lease(&mut self, request: LeaseRequest) -> LeaseId {
        match self.request(request) {
            Answer::Created(id) => id,
            other => panic!("no lease: {other:?}"),
        }
    }

    /// Asks and expects a refusal.
    pub fn refusal(&mut self, request: LeaseRequest) -> Refusal {
        match self.request(request) {
            Answer::Refused(refusal) => refusal,
            other => panic!("no refusal: {other:?}"),
        }
    }

    pub fn get(&self, id: LeaseId) -> &Lease {
        &self.state.leases[&id]
    }

    pub fn state_of(&self, id: LeaseId) -> LeaseState {
        self.get(id).state
    }

    pub fn reason_of(&self, id: LeaseId) -> Option<Reason> {
        self.get(id).reason
    }

    pub fn report_for(&self, id: LeaseId, rank: u16, event: MemberEvent, metered_ms: u64) -> Report {
        let lease = self.get(id);
        let member = &lease.members[usize::from(rank)];
        Report {
            node: member.node,
            provider: member.provider,
            seq: self.state.nodes[&member.node].last_seq + 1,
            fence: self.fence,
            lease: id,
            attempt: member.attempt,
            member: rank,
            gpus: member.gpus.clone(),
            slot: member.slot.clone(),
            event,
            metered_ms,
        }
    }

    pub fn send(&mut self, report: Report) -> Outcome {
        self.enter(Input::Report(SignedReport { report, signature: Signature::ZERO }))
    }

    pub fn report(&mut self, id: LeaseId, rank: u16, event: MemberEvent, metered_ms: u64) -> Outcome {
        let report = self.report_for(id, rank, event, metered_ms);
        self.send(report)
    }

    /// Every member says so in turn.
    pub fn all(&mut self, id: LeaseId, event: &MemberEvent) {
        for rank in 0..self.get(id).members.len() {
            self.report(id, rank as u16, event.clone(), 0);
        }
    }

    /// From granted to active.
    pub fn run_up(&mut self, id: LeaseId) {
        for event in [MemberEvent::Accepted, MemberEvent::Ready, MemberEvent::Running] {
            self.all(id, &event);
        }
        assert_eq!(self.state_of(id), LeaseState::Active);
    }

    pub fn release(&mut self, id: LeaseId) -> Answer {
        let renter = self.get(id).request.renter;
        self.enter(Input::Release { renter, lease: id, said: None }).answer
    }

    /// Released, and every member says that it stopped.
    pub fn clear(&mut self, id: LeaseId) {
        assert_eq!(self.release(id), Answer::Done);
        self.all(id, &MemberEvent::Stopped { outputs: None });
        assert_eq!(self.state_of(id), LeaseState::Ended);
    }

    /// Releases a lease whose agents are silent: it is over, and its slots stay taken for nobody knows how long.
    pub fn jam(&mut self, id: LeaseId) {
        assert_eq!(self.release(id), Answer::Done);
        self.pass_ms(Policy::default().ending_ms);
        assert_eq!(self.state_of(id), LeaseState::Ended);
    }

    /// At last the agents say that it stopped.
    pub fn unjam(&mut self, id: LeaseId) {
        self.all(id, &MemberEvent::Stopped { outputs: None });
    }

    /// Lets time pass, as the controller would: a tick at every deadline.
    pub fn pass_ms(&mut self, ms: u64) {
        let end = self.now + ms;
        while let Some(due) = self.state.next_deadline().filter(|due| due.0 <= end) {
            self.now = self.now.max(due.0);
            let more = self.enter(Input::Tick).more;
            assert!(more || self.state.next_deadline().is_none_or(|next| next.0 > self.now), "a tick is for something");
        }
        self.now = end;
    }

    pub fn grants(&self) -> Vec<Grant> {
        let effects = self.outcomes.iter().flat_map(|outcome| &outcome.effects);
        let grants = effects.filter_map(|effect| match effect {
            Effect::Granted(grant) => Some(grant.clone()),
            _ => None,
        });
        grants.collect()
    }

    pub fn effects(&self) -> Vec<Effect> {
        self.outcomes.iter().flat_map(|outcome| outcome.effects.clone()).collect()
    }
}
