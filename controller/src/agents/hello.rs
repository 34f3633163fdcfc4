//! The one judgement of a link: is this the node it says it is, with the hardware it offers, under our fence?

use selion_api::agent::{Fence, Hello, LINK_VERSION, SignedHead, SignedHello};
use selion_api::commit::{PoolId, signing_digest};
use selion_api::slice::NodeSpec;
use selion_api::{Hash32, NodeId, Reason, words};
use selion_contracts::signer::recover_text;
use selion_market::State;

use super::core::Claim;

/// Most GPUs of one node.
const MAX_GPUS: usize = 64;
/// Most MIG profiles of one GPU.
const MAX_PROFILES: usize = 64;

/// Why a hello was refused: what goes to the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    /// Stable code.
    pub reason: Reason,
    /// What was wrong and what to do.
    pub detail: String,
}

impl Refused {
    pub(super) fn new(reason: Reason, detail: impl Into<String>) -> Self {
        Self { reason, detail: detail.into() }
    }
}

/// Checks what needs no State: version, nonce, sizes, signature. In this order, so that an agent of another release
/// is told so, not that it signs wrongly.
pub(super) fn check_words(pool: &PoolId, nonce: &Hash32, said: &SignedHello) -> Result<(), Refused> {
    let Hello { version, nonce: echo, spec, .. } = &said.hello;
    if *version != LINK_VERSION {
        return Err(Refused::new(
            Reason::UnknownVersion,
            format!(
                "the agent speaks link version {version}, this controller {LINK_VERSION}: run the same release on both"
            ),
        ));
    }
    if echo != nonce {
        return Err(Refused::new(
            Reason::BadRequest,
            "the hello answers another challenge: sign the nonce of this connection's challenge",
        ));
    }
    check_sizes(spec)?;
    let digest = signing_digest(pool, "hello", &said.hello);
    match recover_text(&digest.0, &said.signature) {
        Some(who) if who.0 == spec.node.0 => Ok(()),
        Some(who) => Err(Refused::new(
            Reason::BadRequest,
            format!("the hello of node {} is signed by {who}: start the agent with the node's own key", spec.node),
        )),
        None => Err(Refused::new(Reason::BadRequest, format!("the hello of node {} is not signed", spec.node))),
    }
}

fn check_sizes(spec: &NodeSpec) -> Result<(), Refused> {
    let too = |what: &str| Err(Refused::new(Reason::BadRequest, format!("the spec has {what}")));
    if spec.gpus.len() > MAX_GPUS {
        return too("more than 64 GPUs");
    }
    let mut ids: Vec<_> = spec.gpus.iter().map(|gpu| gpu.gpu).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.len() != spec.gpus.len() {
        return too("one GPU twice");
    }
    if !words::is_host(&spec.address) {
        return too("an address that is no host name and no IP: start the agent with --address HOST");
    }
    let names = [&spec.region, &spec.rack].into_iter().chain(spec.gpus.iter().map(|gpu| &gpu.model));
    if !names.into_iter().all(|name| words::is_name(name)) {
        return too("a region, rack or model that is no name: at most 64 printable ASCII characters");
    }
    let profiles = spec.gpus.iter().filter_map(|gpu| gpu.mig.as_ref());
    if profiles.into_iter().any(|mig| mig.profiles.len() > MAX_PROFILES) {
        return too("more than 64 MIG profiles on one GPU");
    }
    Ok(())
}

/// Checks what the chain and the log say of the node.
pub(super) fn check_standing(state: &State, hello: &Hello) -> Result<(), Refused> {
    let spec = &hello.spec;
    let known = state.nodes.get(&spec.node);
    // A node that holds leases may always come back as what it was when they were granted: its offer may have been
    // closed or changed since, and its leases must still be able to end.
    if known.is_some_and(|node| !node.held.is_empty() && node.spec.as_ref() == Some(spec)) {
        return Ok(());
    }
    let Some((node, provider)) = known.and_then(|node| Some((node, node.provider?))) else {
        return Err(Refused::new(
            Reason::UnknownNode,
            format!(
                "no provider registered node {} in a final block: register it, or wait until the registration is final",
                spec.node
            ),
        ));
    };
    if provider != spec.provider {
        return Err(Refused::new(
            Reason::UnknownNode,
            format!(
                "node {} belongs to provider {provider} on chain, its agent says {}: start the agent with the right provider",
                spec.node, spec.provider
            ),
        ));
    }
    match node.offer {
        Some(offer) if offer == spec.hash() => Ok(()),
        Some(offer) => Err(Refused::new(
            Reason::SpecMismatch,
            format!(
                "the offer on chain has spec {offer}, the agent's hardware and asks are {}: set the offer again",
                spec.hash()
            ),
        )),
        None => Err(Refused::new(
            Reason::ChainUnconfirmed,
            format!("no offer of node {} is in a final block: set one, or wait until it is final", spec.node),
        )),
    }
}

/// Checks that the agent obeyed nobody higher than us.
pub(super) fn check_fence(ours: Fence, hello: &Hello) -> Result<(), (Refused, Box<Claim>)> {
    if hello.fence <= ours {
        return Ok(());
    }
    let claim = Box::new(Claim::HigherFence { node: hello.spec.node, fence: hello.fence });
    Err((
        Refused::new(
            Reason::StaleFence,
            format!(
                "the agent obeyed epoch {} term {}, this controller has epoch {} term {}: connect to the controller that took over",
                hello.fence.epoch, hello.fence.term, ours.epoch, ours.term
            ),
        ),
        claim,
    ))
}

/// Whether the authority of our epoch signed this head.
pub(super) fn head_is_signed(state: &State, pool: &PoolId, head: &SignedHead) -> bool {
    let authority =
        state.pool.as_ref().filter(|terms| terms.epoch == head.head.fence.epoch).map(|terms| terms.authority);
    let digest = head.head.digest_to_sign(pool);
    authority.is_some() && recover_text(&digest.0, &head.signature) == authority
}

/// Checks that our log extends the head which the agent was shown; `ours` is our root at its size. Without a
/// signature that counts the agent is refused, but its head is no evidence.
pub(super) fn check_head(
    node: NodeId,
    head: &SignedHead,
    ours: Option<Hash32>,
    signed: bool,
) -> Result<(), (Refused, Option<Box<Claim>>)> {
    if ours == Some(head.head.root) {
        return Ok(());
    }
    let detail = match ours {
        None => format!(
            "the agent was shown a log of {} entries, ours is shorter: this controller runs on a restored backup; \
             bring back the newest data directory",
            head.head.size
        ),
        Some(root) => format!(
            "the agent was shown a log with root {} at {} entries, ours is {root}: one of the two is a fork",
            head.head.root, head.head.size
        ),
    };
    let claim = signed.then(|| Box::new(Claim::ForeignHead { node, head: *head, ours }));
    Err((Refused::new(Reason::StaleFence, detail), claim))
}
