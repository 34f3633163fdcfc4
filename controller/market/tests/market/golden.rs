//! The encoding is for ever: one sample of every variant, byte for byte as it was when it was first written.
//!
//! `golden/inputs.txt` and `golden/effects.txt` hold lines of `name hex`. A new variant adds a line; no line changes.

use std::fmt::Write as _;

use selion_api::agent::{Fence, Head, Hello, MemberEvent, Report, SignedHead, SignedHello, SignedReport};
use selion_api::chain::{Block, ChainEvent, ComponentKind};
use selion_api::commit::canonical;
use selion_api::lease::{BillLine, LeaseState, NearestMiss, OnNodeLoss, Priority, Refusal, Resource};
use selion_api::said::Said;
use selion_api::slice::IsolationClass;
use selion_api::{
    Account, Address, Amount, GpuId, Hash32, LeaseId, LeaseRequest, Licence, MemberWant, NodeId, Rate, Reason,
    Signature, SliceWant, Slot, TimeMs,
};
use selion_market::{Effect, Grant, Group, Input, Pocket, Policy, RequestLease, Seat, Transfer, VoucherDue};

use crate::pool::{a100, spec};

const LEASE: LeaseId = LeaseId { seq: 12, index: 3 };
const RENTER: Account = Account([0x11; 20]);
const PROVIDER: Account = Account([0x22; 20]);
const NODE: NodeId = NodeId([0x33; 20]);
const GPU: GpuId = GpuId([0x44; 16]);

fn slots() -> [Slot; 3] {
    [
        Slot::Whole,
        Slot::Mig { profile: "3g.40gb".into(), start: 4, size: 4 },
        Slot::Share { compute_permille: 250, mem_bytes: 1 << 33 },
    ]
}

fn request() -> LeaseRequest {
    let wants = [
        SliceWant::Whole,
        SliceWant::Mig { profile: "1g.10gb".into() },
        SliceWant::Share { compute_permille: 250, mem_bytes: 1 << 33 },
    ];
    let members = wants.map(|slice| MemberWant {
        gpus: if slice == SliceWant::Whole { 2 } else { 1 },
        slice,
        models: vec!["A100 80GB".into()],
        node: Some(NODE),
        gpu: None,
        cpu_milli: 500,
        ram_bytes: 1 << 29,
        disk_bytes: 1 << 30,
        net_mbps: 100,
    });
    LeaseRequest {
        renter: RENTER,
        idem: Hash32([0x55; 32]),
        members: members.to_vec(),
        min_members: 2,
        min_nodes: 2,
        within: selion_api::lease::Within::Pool,
        max_latency_us: Some(2_000),
        regions: Vec::new(),
        max_rate: Some(Rate(900_000)),
        classes: 0b11_1111,
        needs: selion_api::BoxFeatures::NONE.with(selion_api::BoxFeature::Images),
        duration_ms: 3_600_000,
        wait_ms: 60_000,
        on_node_loss: OnNodeLoss::Requeue,
        work: Hash32([0x66; 32]),
        datasets: vec![Hash32([0x77; 32])],
        near_data: true,
        priority: Priority::Firm,
        licence: Some(Licence { issuer: PROVIDER, product: Hash32([0x88; 32]) }),
    }
}

fn chain_events() -> Vec<ChainEvent> {
    let (key, cap, until) = (Address([0x88; 20]), Amount(5), TimeMs(99));
    vec![
        ChainEvent::PoolOpened {
            token: key,
            vault: key,
            owner: PROVIDER,
            authority: RENTER,
            fee_bps: 200,
            allow_simulated: true,
            allow_unsandboxed: false,
            finality_depth: u32::MAX,
            min_stake: Amount(0),
        },
        ChainEvent::ComponentRegistered {
            owner: RENTER,
            kind: ComponentKind::Gateway,
            endpoint: "http://a".into(),
            until,
        },
        ChainEvent::ProviderRegistered { provider: PROVIDER, payout: key, stake: cap },
        ChainEvent::StakeChanged { provider: PROVIDER, stake: cap },
        ChainEvent::NodeRegistered { node: NODE, provider: PROVIDER },
        ChainEvent::NodeRetired { node: NODE },
        ChainEvent::OfferSet { node: NODE, spec_hash: Hash32([1; 32]), classes: 1 },
        ChainEvent::OfferClosed { node: NODE },
        ChainEvent::AuthorityChanged { epoch: 2, authority: RENTER, owner: PROVIDER },
        ChainEvent::Anchored { epoch: 2, size: 9, root: Hash32([1; 32]), digest: Hash32([2; 32]) },
        ChainEvent::Deposited { renter: RENTER, amount: cap },
        ChainEvent::KeySet { renter: RENTER, key, until },
        ChainEvent::KeyGranted { renter: RENTER, key, cap, until },
        ChainEvent::KeyRevoked { renter: RENTER, key, dead_from: until },
        ChainEvent::Thawed { renter: RENTER, amount: cap, ready: until },
        ChainEvent::Withdrawn { renter: RENTER, amount: cap },
        ChainEvent::Claimed { provider: PROVIDER, renter: RENTER, cumulative: cap, paid: cap, key: Some(key) },
        ChainEvent::CashedOut { provider: PROVIDER, amount: cap },
        ChainEvent::FeesCashedOut { epoch: 1, amount: cap },
        ChainEvent::LicenceSet { issuer: PROVIDER, holder: RENTER, product: Hash32([1; 32]), seats: 3, until },
        ChainEvent::StandbySet { standby: RENTER, allowed: true },
        ChainEvent::BondChanged { owner: PROVIDER, kept: cap, leaving: cap, ready: until },
        ChainEvent::Convicted { owner: PROVIDER, epoch: 2, amount: cap },
        ChainEvent::Forfeited { owner: PROVIDER, amount: cap },
        ChainEvent::StakeForfeited { provider: PROVIDER, node: NODE, amount: cap },
        ChainEvent::Renewed { epoch: 2 },
        ChainEvent::OwnerAnnounced { next: RENTER, ready: until },
        ChainEvent::AnchorsDisowned { epoch: 2, size: 9 },
    ]
}

fn member_events() -> [MemberEvent; 8] {
    let outputs = Some(Hash32([0x99; 32]));
    [
        MemberEvent::Accepted,
        MemberEvent::Ready,
        MemberEvent::Running,
        MemberEvent::Metered,
        MemberEvent::Exited { code: -1, outputs },
        MemberEvent::Stopped { outputs: None },
        MemberEvent::Failed { reason: Reason::StagingFailed },
        MemberEvent::Limited { reason: Reason::OutOfMemory, outputs },
    ]
}

/// A hello with every part. Its version stays as it was when this was first written: it is that of the link's messages.
fn hello() -> SignedHello {
    let fence = Fence { epoch: 1, term: 2 };
    let head = Head { size: 9, root: Hash32([4; 32]), digest: Hash32([5; 32]), fence };
    let hello = Hello {
        version: 4,
        nonce: Hash32([6; 32]),
        challenge: Hash32([7; 32]),
        spec: spec(1, vec![a100(1, 0)]),
        fence,
        head: Some(SignedHead { head, signature: Signature([2; 65]) }),
        last_seq: 5,
        life: Hash32([8; 32]),
    };
    SignedHello { hello, signature: Signature([3; 65]) }
}

pub fn inputs() -> Vec<(String, Vec<u8>)> {
    let (digest, number) = (Hash32([1; 32]), 7);
    let said = Some(Said { said_ms: TimeMs(98), signature: Signature([3; 65]) });
    let named = [
        ("rules", Input::Rules { version: 1, digest }),
        (
            "opened",
            Input::Opened {
                delegate: Address([0x88; 20]),
                policy: Policy {
                    groups: vec![Group { path: "lab/vision".into(), weight: 3, quota_permille: 250 }],
                    accounts: vec![Seat { account: RENTER, group: "lab/vision".into(), weight: 2 }],
                    half_life_ms: 3_600_000,
                    ..Policy::default()
                },
            },
        ),
        ("chain_broken", Input::ChainBroken { number, had: digest, has: Hash32([2; 32]) }),
        ("tick", Input::Tick),
        ("continue", Input::Continue),
        ("request", Input::Request(RequestLease { request: request(), signature: Some(Signature([3; 65])) })),
        ("release", Input::Release { renter: RENTER, lease: LEASE, said }),
        ("release_unsigned", Input::Release { renter: RENTER, lease: LEASE, said: None }),
        ("extend", Input::Extend { renter: RENTER, lease: LEASE, for_ms: 3_600_000, key: Hash32([0x99; 32]), said }),
        ("set_paused", Input::SetPaused { provider: PROVIDER, node: NODE, paused: true, said }),
        ("linked", Input::Linked(Box::new(hello()))),
        ("lost", Input::Lost { node: NODE, last_seq: 5 }),
        ("measured", Input::Measured { node: NODE, rtt_us: 1_000 }),
        ("reclaim", Input::Reclaim { provider: PROVIDER, node: NODE, gpu: Some(GPU), notice_ms: 600_000, said }),
    ];
    let mut lines: Vec<(String, Vec<u8>)> =
        named.iter().map(|(name, input)| ((*name).into(), canonical(input))).collect();
    for (at, event) in chain_events().into_iter().enumerate() {
        let block = Input::Block(Block { number, hash: digest, parent: Hash32([2; 32]), events: vec![event] });
        lines.push((format!("block_{at}"), canonical(&block)));
    }
    for (at, event) in member_events().into_iter().enumerate() {
        let report = Report {
            node: NODE,
            provider: PROVIDER,
            seq: 4,
            fence: Fence { epoch: 1, term: 2 },
            lease: LEASE,
            attempt: 1,
            member: 2,
            gpus: vec![GPU],
            slot: slots()[at % 3].clone(),
            event,
            metered_ms: 1234,
        };
        let signed = Input::Report(SignedReport { report, signature: Signature([3; 65]) });
        lines.push((format!("report_{at}"), canonical(&signed)));
    }
    lines
}

fn effects() -> Vec<(String, Vec<u8>)> {
    let refusal = Refusal {
        reason: Reason::PriceAboveMax,
        nearest: Some(NearestMiss {
            node: NODE,
            gpu: Some(GPU),
            reason: Reason::PriceAboveMax,
            resource: Some(Resource::Rate),
            need: 9,
            have: 8,
        }),
        lease: Some(LEASE),
    };
    let moved = Effect::Moved { lease: LEASE, state: LeaseState::Ended, reason: Some(Reason::Released), attempt: 1 };
    let freed = Effect::Freed { lease: LEASE, attempt: 1, member: 2 };
    let billed = Effect::Billed(BillLine {
        lease: LEASE,
        attempt: 1,
        member: 2,
        renter: RENTER,
        provider: PROVIDER,
        rate: Rate(1_000_000),
        billable_ms: 90_000,
        amount: Amount(25_000),
    });
    let voucher = Effect::VoucherDue(VoucherDue {
        renter: RENTER,
        provider: PROVIDER,
        cumulative: Amount(25_000),
        used_through: TimeMs(77),
    });
    let node = Effect::NodeChanged { node: NODE, reason: Some(Reason::NodePaused) };
    let mut named = vec![
        ("moved".to_owned(), moved),
        ("freed".into(), freed),
        ("billed".into(), billed),
        ("voucher_due".into(), voucher),
        ("node_changed".into(), node),
        ("refused".into(), Effect::Refused(refusal)),
        ("booked".into(), Effect::Booked { lease: LEASE, at: Some(TimeMs(78)) }),
        ("reclaimed".into(), Effect::Reclaimed { node: NODE, gpu: Some(GPU), by: Some(TimeMs(79)) }),
        ("extended".into(), Effect::Extended { lease: LEASE, duration_ms: 7_200_000 }),
        ("preempted".into(), Effect::Preempted { lease: LEASE, attempt: 1, by: LeaseId { seq: 13, index: 0 } }),
    ];
    for (at, slot) in slots().into_iter().enumerate() {
        let grant = Grant {
            lease: LEASE,
            attempt: 1,
            member: 2,
            renter: RENTER,
            provider: PROVIDER,
            node: NODE,
            gpu: GPU,
            slot,
            class: IsolationClass::Capped,
            rate: Rate(1_000_000),
        };
        named.push((format!("granted_{at}"), Effect::Granted(grant)));
    }
    let pockets = [
        Pocket::Outside,
        Pocket::Free(RENTER),
        Pocket::Reserved(RENTER),
        Pocket::Owed(RENTER, PROVIDER),
        Pocket::Thawing(RENTER),
    ];
    for (at, pocket) in pockets.into_iter().enumerate() {
        let transfer = Transfer { from: pocket, to: Pocket::Free(PROVIDER), amount: Amount(5) };
        named.push((format!("moneyed_{at}"), Effect::Moneyed(transfer)));
    }
    named.push(("illegal".into(), Effect::Illegal { lease: LEASE, from: LeaseState::Ended, to: LeaseState::Held }));
    let both = named
        .iter()
        .flat_map(|(name, effect)| [(name.clone(), canonical(effect)), (format!("{name}_leaf"), effect.leaf())]);
    both.collect()
}

fn compare(file: &str, samples: &[(String, Vec<u8>)]) {
    let path = format!("{}/golden/{file}", env!("CARGO_MANIFEST_DIR"));
    let mut now = String::new();
    for (name, bytes) in samples {
        let _ = write!(now, "{name} ");
        for byte in bytes {
            let _ = write!(now, "{byte:02x}");
        }
        now.push('\n');
    }
    if std::env::var_os("GOLDEN_WRITE").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    for (kept, now) in kept.lines().zip(now.lines()) {
        assert_eq!(kept, now, "an encoding in {file} changed: old logs could not be read");
    }
    assert_eq!(kept.lines().count(), now.lines().count(), "a variant has no line in {file}");
}

#[test]
fn inputs_are_written_as_they_always_were() {
    compare("inputs.txt", &inputs());
}

#[test]
fn effects_are_written_as_they_always_were() {
    compare("effects.txt", &effects());
}
