//! From State to the JSON that readers get: pure functions, one for each kind of row.

use selion_api::agent::Peer;
use selion_api::lease::LeaseState;
use selion_api::rest;
use selion_api::{Account, Amount, LeaseId, NodeId, Reason, TimeMs, words};
use selion_market::Pocket;
use selion_market::state::{Lease, Node, State};

/// A lease as its renter sees it; `None` if State does not know it (any more).
#[must_use]
pub fn lease(state: &State, id: LeaseId) -> Option<rest::Lease> {
    let lease = state.leases.get(&id)?;
    let members = members(state, lease);
    // What was lost in this run has its final bill already.
    let billed = lease.members.iter().filter(|member| member.since.is_some());
    let run: u64 = lease.fixed.0 + billed.map(|member| member.rate.bill(member.billable_ms).0).sum::<u64>();
    let past: u64 = lease.past.iter().map(|(_, _, amount)| amount.0).sum();
    let counted = lease.past.iter().any(|(attempt, _, _)| *attempt == lease.attempt);
    Some(rest::Lease {
        id,
        renter: lease.request.renter,
        state: lease.state,
        reason: lease.reason,
        party: lease.reason.map(Reason::party),
        waiting: (lease.state == LeaseState::Waiting).then(|| rest::Waiting {
            position: lease.position,
            reason: lease.reason.unwrap_or(Reason::Queued),
            nearest: lease.nearest.clone(),
            until_ms: lease.wait_until,
            booked_ms: state.booking.as_ref().filter(|booking| booking.lease == id).map(|booking| booking.at),
        }),
        attempt: lease.attempt,
        members,
        attempts: lease
            .past
            .iter()
            .map(|(attempt, reason, amount)| rest::Attempt { attempt: *attempt, reason: *reason, amount: *amount })
            .collect(),
        wants: lease.request.members.clone(),
        duration_ms: lease.request.duration_ms,
        max_rate: lease.request.max_rate,
        priority: lease.request.priority,
        licence: lease.request.licence,
        created_ms: lease.created,
        since_ms: lease.since,
        deadline_ms: lease.deadline,
        taken_back_ms: notice(lease, Reason::OwnerReclaimed),
        paid_until_ms: notice(lease, Reason::PaymentRequired),
        reserved: lease.reserved,
        amount: Amount(past + if counted { 0 } else { run }),
        signed: lease.signed,
        outputs: Vec::new(),
        actions: match lease.state {
            LeaseState::Ending | LeaseState::Ended => Vec::new(),
            _ => vec!["extend".into(), "release".into()],
        },
        name: None,
        labels: Default::default(),
    })
}

/// When a running lease is stopped for this reason, if its notice is for that.
fn notice(lease: &Lease, reason: Reason) -> Option<TimeMs> {
    lease.notice.filter(|notice| notice.reason == reason).map(|notice| notice.by)
}

fn members(state: &State, lease: &Lease) -> Vec<rest::LeaseMember> {
    lease
        .members
        .iter()
        .zip(0_u16..)
        .map(|(member, rank)| rest::LeaseMember {
            rank,
            attempt: member.attempt,
            node: member.node,
            gpus: member.gpus.clone(),
            slot: member.slot.clone(),
            class: member.class,
            rate: member.rate,
            address: address(state, member.node, member.port),
            billable_ms: member.billable_ms,
            amount: if lease.active_since.is_some() { member.rate.bill(member.billable_ms) } else { Amount::ZERO },
            exit_code: member.exit_code,
            datasets: rest::StagedView {
                staged: lease.staged(member),
                of: u16::try_from(lease.request.datasets.len()).unwrap_or(u16::MAX),
            },
            usage: None,
        })
        .collect()
}

/// `host:port` of a member.
#[must_use]
pub fn address(state: &State, node: NodeId, port: u16) -> String {
    let host = state.nodes.get(&node).and_then(|node| node.spec.as_ref()).map_or("", |spec| spec.address.as_str());
    words::host_port(host, port)
}

/// Where the members of a lease reach each other.
#[must_use]
pub fn peers(state: &State, lease: &Lease) -> Vec<Peer> {
    lease
        .members
        .iter()
        .zip(0_u16..)
        .map(|(member, rank)| Peer { rank, address: address(state, member.node, member.port), attempt: member.attempt })
        .collect()
}

/// A node and what is on it.
#[must_use]
pub fn node(state: &State, id: NodeId) -> Option<rest::NodeView> {
    let node = state.nodes.get(&id)?;
    let reason = selion_market::fleet::blocked(state, node);
    let spec = node.spec.as_ref();
    let [cpu, ram, disk, net] = selion_market::fleet::beside_of(node);
    let narrow = |amount: u64| u32::try_from(amount).unwrap_or(u32::MAX);
    Some(rest::NodeView {
        node: id,
        provider: node.provider.or(spec.map(|spec| spec.provider)).unwrap_or_default(),
        schedulable: reason.is_none(),
        reason,
        linked: node.linked,
        rtt_us: node.rtt_us,
        paused: node.paused,
        reclaimed: node.reclaimed.iter().map(|(gpu, by)| rest::ReclaimView { gpu: *gpu, by_ms: *by }).collect(),
        since_ms: node.since,
        last_seq: node.last_seq,
        sandbox: spec.map(|spec| spec.sandbox),
        features: spec.map(|spec| spec.features).unwrap_or_default(),
        address: spec.map(|spec| spec.address.clone()).unwrap_or_default(),
        region: spec.map(|spec| spec.region.clone()).unwrap_or_default(),
        rack: spec.map(|spec| spec.rack.clone()).unwrap_or_default(),
        cpu_milli: spec.map_or(0, |spec| spec.cpu_milli),
        cpu_milli_used: narrow(cpu),
        ram_bytes: spec.map_or(0, |spec| spec.ram_bytes),
        ram_bytes_used: ram,
        disk_bytes: spec.map_or(0, |spec| spec.disk_bytes),
        disk_bytes_used: disk,
        net_mbps: spec.map_or(0, |spec| spec.net_mbps),
        net_mbps_used: narrow(net),
        gpus: spec.map(|spec| spec.gpus.iter().map(|gpu| gpu_view(node, gpu)).collect()).unwrap_or_default(),
    })
}

fn gpu_view(node: &Node, gpu: &selion_api::GpuSpec) -> rest::GpuView {
    let slots = node
        .held
        .iter()
        .filter(|(_, held)| held.gpus.contains(&gpu.gpu))
        .map(|((lease, member), held)| rest::SlotView { slot: held.slot.clone(), lease: *lease, member: *member })
        .collect();
    rest::GpuView { spec: gpu.clone(), slots }
}

/// An account's money as the log has it.
#[must_use]
pub fn account(state: &State, account: Account) -> rest::AccountView {
    let books = state.books.get(&account).copied().unwrap_or_default();
    rest::AccountView {
        account,
        deposited: books.deposited,
        withdrawn: books.withdrawn,
        thawing: state.ledger.holds(Pocket::Thawing(account)),
        claimed: books.claimed,
        promised: state.promised(account),
        reserved: state.ledger.holds(Pocket::Reserved(account)),
        free: state.ledger.holds(Pocket::Free(account)),
        delegated: state.grants.get(&account).map(|grant| grant.cap).unwrap_or_default(),
    }
}

/// Licences that an account holds or issued, in order of licence and holder.
pub fn licences(state: &State, account: Account) -> impl Iterator<Item = rest::LicenceView> {
    let mine =
        state.licences.iter().filter(move |((licence, holder), _)| licence.issuer == account || *holder == account);
    mine.map(|((licence, holder), seating)| rest::LicenceView {
        licence: *licence,
        holder: *holder,
        seats: seating.seats,
        used: seating.used,
        until_ms: seating.until,
        over: seating.until <= state.now,
    })
}

/// What the log knows of the chain.
#[must_use]
pub fn registry(state: &State) -> rest::RegistryView {
    let nodes_of = |provider: &Account| {
        state.nodes.iter().filter(|(_, node)| node.provider == Some(*provider)).map(|(id, _)| *id).collect()
    };
    rest::RegistryView {
        block_number: state.block.map_or(0, |block| block.number),
        block_hash: state.block.map(|block| block.hash).unwrap_or_default(),
        unconfirmed_block: None,
        components: state
            .components
            .iter()
            .map(|((owner, kind, endpoint), until)| rest::ComponentView {
                owner: *owner,
                kind: *kind,
                endpoint: endpoint.clone(),
                until_ms: *until,
            })
            .collect(),
        providers: state
            .providers
            .iter()
            .map(|(provider, terms)| rest::ProviderView {
                provider: *provider,
                payout: terms.payout,
                stake: terms.stake,
                nodes: nodes_of(provider),
            })
            .collect(),
    }
}
