//! The links over the real sequencer and store: a lease from request to active, and the death of its agent.

use std::sync::Arc;
use std::time::{Duration, Instant};

use selion_api::agent::{Assignment, Desired, Head, MemberEvent, Phase, SignedDesired, ToAgent};
use selion_api::chain::{Block, ChainEvent};
use selion_api::lease::{LeaseRequest, LeaseState, OnNodeLoss, Priority};
use selion_api::{Account, Address, Amount, Hash32, LeaseId, MemberWant, NodeSpec, Reason, SliceWant, TimeMs};
use selion_contracts::Signer;
use selion_market::{Answer, Effect, Input, Policy, RequestLease};
use tokio_util::sync::CancellationToken;

use super::super::logs::{Limits, Logs};
use super::super::{Hub, Parts};
use super::agent::{Agent, report, signed};
use super::key::Key;
use super::world::{POOL, PROVIDER, RENTER, SALT, serve, spec, work};
use crate::http::secrets::Secrets;
use crate::ipfs::Ipfs;
use crate::sequencer::{self, Private, Sequencer};
use crate::store::Store;

const DELEGATE: Address = Address([0xdd; 20]);
const NEVER: TimeMs = TimeMs(4_000_000_000_000);

struct Real {
    log: Sequencer,
    hub: Hub,
    key: Key,
    url: String,
    stop: CancellationToken,
    _dir: tempfile::TempDir,
}

impl Drop for Real {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Real {
    /// A controller with one node registered and on offer, and one renter with money.
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path()).await.unwrap();
        let stop = CancellationToken::new();
        let authority = Signer::from_bytes(&[1; 32]).unwrap();
        let account = authority.account();
        let sign = move |head: &Head| authority.sign_text(&head.digest_to_sign(&POOL).0).unwrap();
        let parts = sequencer::Parts {
            store: store.clone(),
            pool: POOL,
            epoch: 1,
            delegate: DELEGATE,
            policy: Policy::default(),
            sign: Arc::new(sign),
            clock: crate::wall_clock,
        };
        let (log, _) = Sequencer::start(parts, stop.clone()).await.unwrap();
        let key = Key::new(7);
        let block = Input::Block(block(account, &key));
        log.submit(block, None).await.unwrap();
        let content = selion_dataplane::Store::open(dir.path().join("content")).unwrap();
        let core = Parts {
            log: log.clone(),
            store,
            secrets: Arc::new(Secrets::open(dir.path(), &POOL).unwrap()),
            ipfs: Ipfs::new(content.clone(), None, false).unwrap(),
            content,
            sign: Box::new(|text| Signer::from_bytes(&[1; 32]).unwrap().sign_text(text).unwrap()),
            clock: crate::wall_clock,
            on_claim: Box::new(|claim| panic!("nobody contradicts: {claim:?}")),
        };
        let logs = Logs::open(dir.path(), Limits::default()).unwrap();
        let hub = Hub::new(Arc::new(core), POOL, logs);
        let url = serve(&hub, &stop).await;
        Self { log, hub, key, url, stop, _dir: dir }
    }

    async fn request(&self) -> LeaseId {
        let member = MemberWant { cpu_milli: 500, ram_bytes: 1 << 30, ..MemberWant::of(SliceWant::Whole) };
        let commitment = work().commitment(&SALT);
        let request = LeaseRequest {
            renter: RENTER,
            idem: Hash32([1; 32]),
            members: vec![member],
            min_members: 1,
            min_nodes: 1,
            within: selion_api::lease::Within::Pool,
            max_latency_us: None,
            regions: Vec::new(),
            max_rate: None,
            classes: 0x3f,
            needs: selion_api::BoxFeatures::NONE,
            duration_ms: 60_000,
            wait_ms: 60_000,
            on_node_loss: OnNodeLoss::End,
            priority: Priority::Standard,
            licence: None,
            work: commitment,
            datasets: Vec::new(),
            near_data: false,
        };
        let asked = Input::Request(RequestLease { request, signature: None });
        let private = Private::Work { commitment, salt: SALT, work: work(), called: Default::default() };
        let step = self.log.submit(asked, Some(private)).await.unwrap();
        match step.answer() {
            Answer::Created(lease) => *lease,
            other => panic!("no lease: {other:?}"),
        }
    }

    fn state_of(&self, lease: LeaseId) -> LeaseState {
        self.log.read(|state| state.leases[&lease].state)
    }
}

fn block(authority: Account, key: &Key) -> Block {
    let spec = spec(key.node());
    let money = Amount(1_000_000);
    Block {
        number: 1,
        hash: Hash32([1; 32]),
        parent: Hash32::ZERO,
        events: vec![
            ChainEvent::PoolOpened {
                token: Address([1; 20]),
                vault: Address([2; 20]),
                owner: Account([4; 20]),
                authority,
                fee_bps: 0,
                allow_simulated: true,
                allow_unsandboxed: true,
                finality_depth: 0,
                min_stake: Amount(0),
            },
            ChainEvent::ProviderRegistered { provider: PROVIDER, payout: Address([3; 20]), stake: Amount(1) },
            ChainEvent::NodeRegistered { node: spec.node, provider: PROVIDER },
            ChainEvent::OfferSet { node: spec.node, spec_hash: spec.hash(), classes: spec.classes() },
            ChainEvent::Deposited { renter: RENTER, amount: money },
            ChainEvent::KeyGranted { renter: RENTER, key: DELEGATE, cap: money, until: NEVER },
        ],
    }
}

/// The next desired state with an assignment of that phase, reading over what else comes.
async fn assigned(agent: &mut Agent, phase: Phase) -> Assignment {
    loop {
        match agent.next().await {
            Some(ToAgent::Desired(SignedDesired { desired: Desired { assignments, .. }, .. })) => {
                if let Some(one) = assignments.into_iter().find(|one| one.phase == phase) {
                    return one;
                }
            }
            Some(_) => {}
            None => panic!("the link closed"),
        }
    }
}

async fn tell(agent: &mut Agent, key: &Key, seq: u64, to: &Assignment, event: MemberEvent) {
    let mut said = report(key, seq, event);
    said.fence.term = 1;
    (said.lease, said.attempt, said.member) = (to.lease, to.attempt, to.member);
    (said.gpus, said.slot) = (to.gpus.clone(), to.slot.clone());
    agent.send(&signed(key, said)).await;
}

/// An agent with a lease whose command runs.
async fn running(real: &Real) -> (Agent, LeaseId, Assignment) {
    let mut agent = Agent::connect(&real.url).await;
    let mut hello = agent.hello(spec(real.key.node()));
    hello.fence.term = 1;
    agent.say(&real.key, hello).await;
    assert!(matches!(agent.next().await, Some(ToAgent::Welcome { .. })));

    let lease = real.request().await;
    let one = assigned(&mut agent, Phase::Prepare).await;
    assert_eq!((one.lease, &one.work), (lease, &work()));
    let rate = real.log.read(|state| state.leases[&lease].members[0].rate);
    assert_eq!((one.renter, one.delegate, one.rate, one.billed), (RENTER, DELEGATE, rate, Amount::ZERO));
    tell(&mut agent, &real.key, 1, &one, MemberEvent::Accepted).await;
    tell(&mut agent, &real.key, 2, &one, MemberEvent::Ready).await;
    let one = assigned(&mut agent, Phase::Start).await;
    tell(&mut agent, &real.key, 3, &one, MemberEvent::Running).await;
    while !matches!(agent.next().await, Some(ToAgent::Ack { seq: 3 })) {}
    (agent, lease, one)
}

#[tokio::test]
async fn a_lease_runs_over_the_link_and_ends_within_seconds_of_its_agents_death() {
    let real = Real::start().await;
    let (agent, lease, _) = running(&real).await;
    assert_eq!(real.state_of(lease), LeaseState::Active, "acknowledged after the commit");

    let mut batches = real.log.subscribe();
    let died = Instant::now();
    drop(agent);
    let lost = |effect: &Effect| {
        matches!(effect, Effect::Moved { state: LeaseState::Ended, reason: Some(Reason::NodeLost), .. })
    };
    loop {
        let batch = batches.recv().await.unwrap();
        let mut effects = batch.steps.iter().flat_map(|step| &step.outcome.effects);
        if effects.any(lost) {
            break;
        }
    }
    assert!(died.elapsed() < Duration::from_secs(7), "{:?}", died.elapsed());
    assert_eq!(real.hub.live().lost, 1);
}

#[tokio::test]
async fn an_agent_is_told_to_stop_when_its_owners_notice_is_over_and_not_before() {
    let real = Real::start().await;
    let (mut agent, lease, one) = running(&real).await;
    let NodeSpec { node, provider, .. } = spec(real.key.node());
    let asked = Instant::now();
    real.log
        .submit(Input::Reclaim { provider, node, gpu: Some(one.gpus[0]), notice_ms: 300, said: None }, None)
        .await
        .unwrap();
    assert_eq!(real.state_of(lease), LeaseState::Active);
    loop {
        match agent.next().await {
            Some(ToAgent::Desired(signed)) if signed.desired.assignments.is_empty() => break,
            Some(_) => {}
            None => panic!("the link closed"),
        }
    }
    assert!(asked.elapsed() >= Duration::from_millis(299), "{:?}", asked.elapsed());
    assert_eq!(real.state_of(lease), LeaseState::Ending);
    tell(&mut agent, &real.key, 4, &one, MemberEvent::Stopped { outputs: None }).await;
    while !matches!(agent.next().await, Some(ToAgent::Ack { seq: 4 })) {}
    let reason = real.log.read(|state| state.leases[&lease].reason);
    assert_eq!((real.state_of(lease), reason), (LeaseState::Ended, Some(Reason::OwnerReclaimed)));
}

#[tokio::test]
async fn an_agent_that_comes_back_with_the_newest_head_is_welcome() {
    let real = Real::start().await;
    for _ in 0..2 {
        let mut agent = Agent::connect(&real.url).await;
        let mut hello = agent.hello(spec(real.key.node()));
        hello.fence.term = 1;
        hello.head = real.log.position().head;
        assert!(hello.head.is_some());
        agent.say(&real.key, hello).await;
        let welcome = agent.next().await;
        assert!(matches!(welcome, Some(ToAgent::Welcome { .. })), "{welcome:?}");
    }
}
