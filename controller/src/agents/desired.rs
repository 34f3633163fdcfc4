//! What a node should hold, from committed State and the private matter beside it.

use std::collections::BTreeMap;

use selion_api::agent::{Assignment, Desired, MAX_MESSAGE, Peer, Phase, Resume, SignedDesired};
use selion_api::commit::{Overrides, PoolId, Root, Work, canonical};
use selion_api::lease::UNDECLARED_DISK_BYTES;
use selion_api::{Hash32, LeaseId, NodeId, words};
use selion_market::state::DesiredMember;
use selion_market::{Lease, State};
use tracing::error;

use super::core::{Core, CoreError, read};

/// Room in a message beside the assignments: numbers and a signature.
const ENVELOPE: usize = 160;

/// Salt and work by commitment, kept for as long as the node holds a member that needs it.
#[derive(Default)]
pub(super) struct WorkCache(BTreeMap<Hash32, (Hash32, Work)>);

/// The node's whole desired state now, signed. Its generation is the number of the next entry, so it rises with every change.
pub(super) async fn desired(
    core: &dyn Core,
    pool: &PoolId,
    node: NodeId,
    cache: &mut WorkCache,
) -> Result<SignedDesired, CoreError> {
    let (fence, generation, bare) = read(core, |state| (state.fence, state.next_seq, bare_assignments(state, node)));
    cache.0.retain(|held, _| bare.iter().any(|one| one.commitment == *held));
    let mut assignments = Vec::with_capacity(bare.len());
    let mut bytes = ENVELOPE;
    for mut assignment in bare {
        let commitment = assignment.commitment;
        if let std::collections::btree_map::Entry::Vacant(vacant) = cache.0.entry(commitment) {
            match core.work(commitment).await? {
                Some(found) => {
                    vacant.insert(found);
                }
                None => {
                    error!(%node, lease = %assignment.lease, %commitment, "the work of a lease is not stored; it cannot start");
                    continue;
                }
            }
        }
        if let Some((salt, work)) = cache.0.get(&commitment) {
            assignment.salt = *salt;
            assignment.work = work.clone();
        }
        // What runs has its data; a first run has nothing to go on from.
        if assignment.phase == Phase::Prepare && assignment.attempt > 1 {
            assignment.resume = core.resume(assignment.lease, assignment.attempt, assignment.member).await?;
        }
        bytes += canonical(&assignment).len();
        // Members that run come first, so it is a member not yet started that finds no room and lapses.
        if bytes > MAX_MESSAGE {
            error!(%node, lease = %assignment.lease, "the node's desired state exceeds one message; this member waits");
            continue;
        }
        assignments.push(assignment);
    }
    let desired = Desired { node, fence, generation, assignments };
    Ok(SignedDesired { signature: core.sign(&desired.digest_to_sign(pool)), desired })
}

/// Everything but salt and work, members to be started before those to be prepared.
fn bare_assignments(state: &State, node: NodeId) -> Vec<Assignment> {
    let mut members = state.desired(node);
    members.sort_by_key(|want| (want.phase != Phase::Start, want.lease, want.member));
    members.iter().filter_map(|want| bare(state, node, want)).collect()
}

fn bare(state: &State, node: NodeId, want: &DesiredMember) -> Option<Assignment> {
    let lease = state.leases.get(&want.lease)?;
    let held = state.nodes.get(&node)?.held.get(&(want.lease, want.member))?;
    let member = lease.members.get(usize::from(want.member))?;
    let [cpu_milli, ram_bytes, disk_bytes, net_mbps] = held.beside;
    Some(Assignment {
        lease: want.lease,
        attempt: want.attempt,
        member: want.member,
        phase: want.phase,
        gpus: held.gpus.clone(),
        slot: held.slot.clone(),
        cpu_milli: u32::try_from(cpu_milli).unwrap_or(u32::MAX),
        ram_bytes,
        disk_bytes: if disk_bytes > 0 { disk_bytes } else { UNDECLARED_DISK_BYTES },
        net_mbps: u32::try_from(net_mbps).unwrap_or(u32::MAX),
        port: held.port,
        peers: peers(state, want.lease),
        work: Work {
            command: Vec::new(),
            env: Vec::new(),
            datasets: Vec::new(),
            network: selion_api::commit::Network::None,
            root: Root::Base,
            over: Overrides::default(),
            secrets: selion_api::commit::Expected::default(),
        },
        salt: Hash32::ZERO,
        commitment: lease.request.work,
        max_run_ms: max_run_ms(state, lease, want.member),
        resume: Resume::Nothing,
        renter: lease.request.renter,
        delegate: state.delegate,
        rate: member.rate,
        billed: state.billed.get(&(lease.request.renter, member.provider)).copied().unwrap_or_default(),
    })
}

/// The whole duration; of a member that is being repaired what is left of it.
fn max_run_ms(state: &State, lease: &Lease, rank: u16) -> u64 {
    let since = lease.members.get(usize::from(rank)).and_then(|member| member.since).unwrap_or(state.now);
    lease.expires().map_or(lease.request.duration_ms, |expires| expires.since(since))
}

/// Where the members of a lease are reached, by rank.
fn peers(state: &State, lease: LeaseId) -> Vec<Peer> {
    let members = state.leases.get(&lease).map(|lease| &lease.members[..]);
    let of = |(rank, member): (usize, &selion_market::Member)| {
        let spec = state.nodes.get(&member.node)?.spec.as_ref()?;
        let address = words::host_port(&spec.address, member.port);
        Some(Peer { rank: u16::try_from(rank).ok()?, address, attempt: member.attempt })
    };
    let members = members.unwrap_or_default().iter().enumerate();
    members.filter_map(of).collect()
}
