//! Which requests are relayed: pure, one early return for each refusal.

use selion_api::{Account, Address, Signature, TimeMs};
use selion_contracts::relay::{Contract, NotACall};
use selion_contracts::{ForwardRequest, Permit, PoolAddresses, PoolCall};

/// Most gas of a relayed call. Registering a component with a long URL is the dearest that is relayed.
pub const MOST_GAS: u64 = 500_000;
/// Most bytes of a call's data: URLs and content ids fit.
const MOST_DATA: usize = 2_048;
/// Most bytes of a signature: contracts of several owners want one of each.
const MOST_SIGNATURE: usize = 2_048;
/// A request may be good for so long: whoever finds it later cannot use it.
const LONGEST_MS: u64 = HOUR_MS;
const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
/// Requests of one account in an hour.
const PER_ACCOUNT: u32 = 20;
/// Requests from one network address in an hour.
const PER_PEER: u32 = 60;

/// What owners and renters do for themselves. Nothing here is the authority's, and nothing that is not here is relayed.
const RELAYED: [(Contract, &str); 18] = [
    (Contract::Controller, "registerProvider"),
    (Contract::Controller, "unbond"),
    (Contract::Controller, "withdrawStake"),
    (Contract::Controller, "setPayout"),
    (Contract::Controller, "registerNode"),
    (Contract::Controller, "retireNode"),
    (Contract::Controller, "setOffer"),
    (Contract::Controller, "closeOffer"),
    (Contract::Controller, "registerComponent"),
    (Contract::Controller, "setLicence"),
    (Contract::Vault, "deposit"),
    (Contract::Vault, "enter"),
    (Contract::Vault, "grant"),
    (Contract::Vault, "revoke"),
    (Contract::Vault, "thaw"),
    (Contract::Vault, "withdraw"),
    (Contract::Vault, "cashOut"),
    (Contract::Token, "permit"),
];

/// Why a request is not relayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The operator pays for nobody.
    #[error("this controller relays nothing: its relay_per_day is 0")]
    Off,
    /// It is no call of this pool.
    #[error(transparent)]
    NotACall(#[from] NotACall),
    /// It is a call of this pool that is not relayed.
    #[error("{call} of the {contract} is not relayed")]
    NotRelayed {
        /// Of which contract.
        contract: Contract,
        /// The function.
        call: String,
    },
    /// It wants too much gas.
    #[error("gas is {gas}; a relayed call may use 1 to {MOST_GAS}")]
    Gas {
        /// As given.
        gas: u64,
    },
    /// It is too long.
    #[error("{what} has {bytes} bytes; at most {most} are relayed")]
    TooLong {
        /// Which part.
        what: &'static str,
        /// As given.
        bytes: usize,
        /// At most.
        most: usize,
    },
    /// Its time is over.
    #[error("the request lapsed at {deadline} ms, and it is {now} ms")]
    Lapsed {
        /// As signed, in milliseconds since 1970.
        deadline: u64,
        /// The controller's time.
        now: u64,
    },
    /// It would be good for too long.
    #[error("the request is good until {deadline} ms; at most an hour ahead is relayed, now until {latest} ms")]
    TooFar {
        /// As signed, in milliseconds since 1970.
        deadline: u64,
        /// The latest that would be taken.
        latest: u64,
    },
    /// Nobody signed it who may.
    #[error(
        "the key of {from} did not sign this request for forwarder {forwarder} on chain {chain_id}, and no contract at {from} accepts the signature"
    )]
    NotSigned {
        /// Who should have.
        from: Account,
        /// For which forwarder.
        forwarder: Address,
        /// On which chain.
        chain_id: u64,
    },
    /// The pool's token knows no permits.
    #[error("the pool's token {token} takes no permits (EIP-2612)")]
    NoPermits {
        /// The token.
        token: Address,
    },
    /// It would let a stranger take tokens.
    #[error(
        "the permit is for {spender}; one for the pool's Controller {}, its Vault {} or its Court {} is relayed",
        at.controller, at.vault, at.court
    )]
    Spender {
        /// As signed.
        spender: Address,
        /// The pool's contracts; apart, since an error travels in every result.
        at: Box<PoolAddresses>,
    },
    /// The request says one thing and the permit in it another.
    #[error("the request and the permit in its data differ in {what}")]
    Differs {
        /// Which part.
        what: &'static str,
    },
    /// Nobody signed the permit who may.
    #[error(
        "the key of {owner} did not sign this permit with nonce {nonce} for token {token} on chain {chain_id}; a signature with a high s counts as none, and one by a contract is not known to tokens"
    )]
    PermitNotSigned {
        /// Who should have.
        owner: Account,
        /// As the request has it.
        nonce: u64,
        /// For which token.
        token: Address,
        /// On which chain.
        chain_id: u64,
    },
    /// It was used, or one before it is missing.
    #[error("the next nonce of {from} is {next}, not {given}")]
    Nonce {
        /// Whose.
        from: Account,
        /// As signed.
        given: u64,
        /// What the chain has.
        next: u64,
    },
    /// Another request has its nonce.
    #[error("another request of {from} with nonce {nonce} is on its way as relay {id}")]
    Busy {
        /// Whose.
        from: Account,
        /// Which nonce.
        nonce: u64,
        /// That request.
        id: i64,
    },
    /// The contract would refuse it.
    #[error("the contract refuses it: {reason}")]
    Reverted {
        /// The contract's reason.
        reason: String,
    },
    /// So much was relayed already.
    #[error("{whose} had {most} requests relayed in the last {window}")]
    OverBudget {
        /// Whose allowance is used up.
        whose: &'static str,
        /// How much it is.
        most: u32,
        /// Over which time.
        window: &'static str,
        /// Seconds until there is some again.
        wait_s: u64,
    },
    /// The chain could not be asked.
    #[error("the chain did not answer")]
    NoAnswer {
        /// Why, for the log.
        why: String,
    },
}

/// Judges everything that needs no chain and no store: what it is, for how long, at what cost.
///
/// # Errors
///
/// The first [`Refusal`] that holds.
pub fn form(at: &PoolAddresses, request: &ForwardRequest, signature: &[u8], now: TimeMs) -> Result<PoolCall, Refusal> {
    for (what, bytes, most) in [("data", request.data.len(), MOST_DATA), ("signature", signature.len(), MOST_SIGNATURE)]
    {
        if bytes > most {
            return Err(Refusal::TooLong { what, bytes, most });
        }
    }
    let call = PoolCall::read(at, request.to, &request.data)?;
    if !RELAYED.iter().any(|(contract, name)| (*contract, *name) == (call.contract, call.name.as_str())) {
        return Err(Refusal::NotRelayed { contract: call.contract, call: call.name });
    }
    if !(1..=MOST_GAS).contains(&request.gas) {
        return Err(Refusal::Gas { gas: request.gas });
    }
    let (deadline, latest) = (request.deadline_s.saturating_mul(1_000), now.plus(LONGEST_MS).0);
    if deadline <= now.0 {
        return Err(Refusal::Lapsed { deadline, now: now.0 });
    }
    if deadline > latest {
        return Err(Refusal::TooFar { deadline, latest });
    }
    Ok(call)
}

/// Reads the permit that a request to the pool's token carries, and judges all of it but the signature.
///
/// # Errors
///
/// [`Refusal::Spender`], [`Refusal::Differs`]: that also for a deadline beyond 64 bits, which no request has.
pub fn permit(at: &PoolAddresses, request: &ForwardRequest, signature: &[u8]) -> Result<(Permit, Signature), Refusal> {
    let read = Permit::read(&request.data, request.nonce);
    let (permit, signed) = read.ok_or(Refusal::Differs { what: "the deadline" })?;
    let spender = permit.spender;
    if ![at.controller, at.vault, at.court].contains(&spender) {
        return Err(Refusal::Spender { spender, at: Box::new(*at) });
    }
    let parts = [
        ("the owner", permit.owner == request.from),
        ("the deadline", permit.deadline_s == request.deadline_s),
        ("the signature", signed.0 == signature),
    ];
    match parts.into_iter().find(|(_, equal)| !equal) {
        Some((what, _)) => Err(Refusal::Differs { what }),
        None => Ok((permit, signed)),
    }
}

/// Judges a nonce by the one that the chain expects.
///
/// # Errors
///
/// [`Refusal::Nonce`].
pub fn nonce(request: &ForwardRequest, next: u64) -> Result<(), Refusal> {
    if request.nonce == next {
        return Ok(());
    }
    Err(Refusal::Nonce { from: request.from, given: request.nonce, next })
}

/// What was relayed within a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Requests.
    pub count: u32,
    /// When the first of them came.
    pub oldest: TimeMs,
}

/// From when on requests count, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// For an account and a network address.
    pub hour: TimeMs,
    /// For all.
    pub day: TimeMs,
}

impl Since {
    /// The windows that end at `now`.
    #[must_use]
    pub fn before(now: TimeMs) -> Self {
        Self { hour: TimeMs(now.0.saturating_sub(HOUR_MS)), day: TimeMs(now.0.saturating_sub(DAY_MS)) }
    }
}

/// What was relayed so far, by whose allowance it counts against.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Of the account, in the last hour.
    pub account: Window,
    /// From the network address, in the last hour.
    pub peer: Window,
    /// Of all, in the last day.
    pub all: Window,
}

/// Judges whether the operator pays for one more.
///
/// # Errors
///
/// [`Refusal::Off`], [`Refusal::OverBudget`].
pub fn budget(spent: &Spent, per_day: u32, now: TimeMs) -> Result<(), Refusal> {
    if per_day == 0 {
        return Err(Refusal::Off);
    }
    let allowances = [
        ("this account", spent.account, PER_ACCOUNT, "hour", HOUR_MS),
        ("this network address", spent.peer, PER_PEER, "hour", HOUR_MS),
        ("all accounts together", spent.all, per_day, "day", DAY_MS),
    ];
    for (whose, window, most, name, span) in allowances {
        if window.count >= most {
            let wait_s = window.oldest.plus(span).since(now).div_ceil(1_000).max(1);
            return Err(Refusal::OverBudget { whose, most, window: name, wait_s });
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
