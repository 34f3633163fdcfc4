//! How a refusal looks from outside: of the market by its reason, of the relay by what it judged.

use axum::http::StatusCode;
use selion_api::Reason;

use super::problem::{Face, face};
use crate::relay::judge as relay;

/// A refusal keeps its reason as code. All are conflicts with how the pool stands, but for a few.
pub(super) fn refused(reason: Reason) -> Face {
    use Reason as R;
    use StatusCode as S;
    let (status, suggestion, retryable) = match reason {
        R::PriceAboveMax => (S::CONFLICT, "raise max_rate to at least `nearest.need` of the nearest offer", false),
        R::PaymentRequired => {
            (S::CONFLICT, "deposit more, or grant the pool's key more or for longer; or shorten duration_ms", true)
        }
        R::TooManyLeases => {
            (S::TOO_MANY_REQUESTS, "release leases that wait, or ask again when some of the last day are over", true)
        }
        R::PoolAtLimit => (S::TOO_MANY_REQUESTS, "ask again later, or ask the pool's operator for more room", true),
        R::FreeUseSpent => (
            S::TOO_MANY_REQUESTS,
            "ask again in some hours; a higher deposit allows more, and what runs is billed and does not count",
            true,
        ),
        R::TooLong => (S::CONFLICT, "ask for less, or for another lease that goes on where this one ends", false),
        R::MoneyLeaves => (S::CONFLICT, "deposit more, or thaw less; or extend to no later than `nearest.have`", true),
        R::BookedThen => (
            S::CONFLICT,
            "extend to an end before the booked time in `nearest.have`, or ask for another lease for the time after",
            true,
        ),
        R::NoSeat => (S::CONFLICT, "set wait_ms to wait for a seat; GET /v1/licences shows those that are taken", true),
        R::NoLicence => (
            S::CONFLICT,
            "GET /v1/licences shows the licences of the account; ask the issuer, or for at most `nearest.have` members",
            false,
        ),
        R::IdempotencyMismatch => (S::UNPROCESSABLE_ENTITY, "use a new Idempotency-Key for another request", false),
        R::BadRequest => (S::UNPROCESSABLE_ENTITY, "correct the request; GET /openapi.json has its form", false),
        R::StaleWord => (S::CONFLICT, "say and sign it again, with the time of now as said_ms", false),
        R::NotYours => (S::FORBIDDEN, "log in as the account that owns it", false),
        R::NoSuchLease | R::UnknownNode => (S::NOT_FOUND, "check the id; the list endpoints show what there is", false),
        R::NotLive
        | R::Released
        | R::Completed
        | R::CommandFailed
        | R::OutOfMemory
        | R::DiskFull
        | R::Expired
        | R::WaitedTooLong => (S::CONFLICT, "the lease is over; ask for a new one if you still need it", false),
        R::SecretsMissing => (
            S::CONFLICT,
            "ask again with a client that stays and seals: `selion run`, or `selion lease seal` once the lease is held",
            true,
        ),
        R::NodeLost
        | R::PrepareTimeout
        | R::StartTimeout
        | R::StagingFailed
        | R::SliceFailed
        | R::RuntimeFailed
        | R::NodePaused
        | R::NodeNotSchedulable
        | R::OwnerReclaimed
        | R::OfferClosed
        | R::SpecMismatch
        | R::StakeTooLow
        | R::StaleReport
        | R::NotAssigned
        | R::StopUnconfirmed => (S::CONFLICT, "ask again without naming the node, or with a wait_ms", true),
        R::NoMatchingSlice | R::ClassNotAllowed | R::SandboxNotAllowed => {
            (S::CONFLICT, "GET /v1/offers shows what can be leased; ask for one of those", false)
        }
        R::BoxTooWeak => (
            S::CONFLICT,
            "GET /v1/nodes shows what the box of each node gives and holds; ask for less of it, in enforced, image or root",
            false,
        ),
        R::TooFewGpus => {
            (S::CONFLICT, "ask for at most `nearest.have` GPUs in a member, or for several members", false)
        }
        R::PoolFull | R::GangIncomplete | R::Queued | R::WaitsForStop => {
            (S::CONFLICT, "set wait_ms to wait for room, or ask for a smaller slice", true)
        }
        R::TooFar => (S::CONFLICT, "raise max_latency_us, or ask for one node with within node", true),
        R::DataElsewhere => {
            (S::CONFLICT, "ask without near_data: the datasets are then fetched to where there is room", true)
        }
        R::KeptForBooking => (
            S::CONFLICT,
            "set wait_ms to wait, or a duration_ms that ends before the booked time in `nearest.have`",
            true,
        ),
        R::QuotaReclaimed => (S::CONFLICT, "ask again with on_node_loss requeue, or in the class firm", true),
        R::Preempted => (S::CONFLICT, "ask again, in a higher class or with on_node_loss requeue", true),
        R::StaleFence => (S::SERVICE_UNAVAILABLE, "another controller took over; send it there", true),
        R::UnknownVersion => (S::CONFLICT, "use the client release of this pool", false),
        R::ChainUnconfirmed => (S::CONFLICT, "wait until the chain's block is final, then ask again", true),
        R::ChainBroken => (S::CONFLICT, "no new leases until the operator has looked; running ones go on", false),
    };
    face(status, reason.code(), reason.text(), suggestion, retryable)
}

/// Why a call is not relayed. A code for each reason: wallets branch on it.
pub(super) fn not_relayed(refusal: &relay::Refusal) -> Face {
    use StatusCode as S;
    use relay::Refusal as R;
    const TITLE: &str = "The call is not relayed.";
    const OWN: &str = "sign within these bounds, or send the call as a transaction of your own";
    let (status, code, suggestion, retryable) = match refusal {
        R::Off => (
            S::CONFLICT,
            "relay_off",
            "send the call as a transaction of your own, or ask the operator to start with --relay-per-day N",
            false,
        ),
        R::NotACall(_) => (S::UNPROCESSABLE_ENTITY, "relay_no_call", "sign a call to this pool's contracts", false),
        R::NotRelayed { .. } => (S::FORBIDDEN, "relay_not_allowed", "send it as a transaction of your own", false),
        R::Gas { .. } => (S::UNPROCESSABLE_ENTITY, "relay_gas", OWN, false),
        R::TooLong { .. } => (S::UNPROCESSABLE_ENTITY, "relay_too_long", OWN, false),
        R::Lapsed { .. } => (S::UNPROCESSABLE_ENTITY, "relay_lapsed", "sign it again with a later deadline", false),
        R::TooFar { .. } => (S::UNPROCESSABLE_ENTITY, "relay_too_far", "sign it again with a nearer deadline", false),
        R::NotSigned { .. } => (
            S::UNPROCESSABLE_ENTITY,
            "bad_signature",
            "sign the typed data ForwardRequest with value 0, for the forwarder and chain that the detail names",
            false,
        ),
        R::PermitNotSigned { .. } => (
            S::UNPROCESSABLE_ENTITY,
            "bad_signature",
            "sign the typed data Permit under the token's own DOMAIN_SEPARATOR, with the owner's key",
            false,
        ),
        R::NoPermits { .. } => {
            (S::CONFLICT, "relay_no_permits", "send the token's approve as a transaction of your own", false)
        }
        R::Spender { .. } => {
            (S::FORBIDDEN, "relay_spender", "sign a permit for one of the contracts that the detail names", false)
        }
        R::Differs { .. } => (
            S::UNPROCESSABLE_ENTITY,
            "relay_permit",
            "say in from, deadline_ms and signature what the permit in the data says",
            false,
        ),
        R::Nonce { .. } => (S::CONFLICT, "relay_nonce", "sign it again with the nonce that the detail names", false),
        R::Busy { .. } => (S::CONFLICT, "relay_busy", "wait for that one: GET /v1/relay/{id}", true),
        R::Reverted { .. } => {
            (S::CONFLICT, "relay_reverted", "put right what the contract names, then sign it again", false)
        }
        R::OverBudget { .. } => {
            (S::TOO_MANY_REQUESTS, "relay_budget", "wait as long as Retry-After says, or pay for it yourself", true)
        }
        R::NoAnswer { .. } => (S::SERVICE_UNAVAILABLE, "chain_silent", "send the same request again in a moment", true),
    };
    face(status, code, TITLE, suggestion, retryable)
}
