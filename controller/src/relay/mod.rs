//! Relaying: an account signs a call, the operator pays for it. What may be relayed is decided in [`judge`]; what is
//! taken stands in the outbox before it is acknowledged, so that a crash loses none.

pub mod ground;
pub mod judge;

use std::net::IpAddr;
use std::sync::Arc;

use selion_api::rest::{NewRelay, RelayState, RelayView};
use selion_api::{Address, Hash32, TimeMs};
use selion_contracts::relay::Contract;
use selion_contracts::write::Call;
use selion_contracts::{ForwardRequest, PoolAddresses};
use tokio::sync::Notify;

use crate::network::Network;
use crate::store::outbox::{Kind, Order, Status};
use crate::store::relay::{self, Kept};
use crate::store::{Store, uint};
use ground::Ground;
use judge::{Refusal, budget, form, nonce};

/// Why a request was not taken.
#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    /// The judge said no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The store failed; nothing was taken.
    #[error("database: {0}")]
    Store(#[from] sqlx::Error),
}

/// What is relayed, for which pool, on whose account.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The pool's contracts.
    pub at: PoolAddresses,
    /// Their chain.
    pub chain_id: u64,
    /// The forwarder that they trust.
    pub forwarder: Address,
    /// Whose outbox sends, and pays.
    pub payer: Address,
    /// Requests of all accounts in a day.
    pub per_day: u32,
}

/// The counter for requests; cheap to clone.
#[derive(Clone)]
pub struct Relay {
    open: Option<Arc<Open>>,
}

struct Open {
    rules: Rules,
    store: Store,
    ground: Arc<dyn Ground>,
    /// Wakes the outbox.
    nudge: Arc<Notify>,
}

impl Relay {
    /// Refuses everything.
    #[must_use]
    pub fn off() -> Self {
        Self { open: None }
    }

    /// Takes requests by these rules.
    #[must_use]
    pub fn new(rules: Rules, store: Store, ground: Arc<dyn Ground>, nudge: Arc<Notify>) -> Self {
        Self { open: Some(Arc::new(Open { rules, store, ground, nudge })) }
    }

    /// Judges a request and puts it into the outbox. The same request again is the same answer.
    ///
    /// # Errors
    ///
    /// [`RelayError`]; nothing is kept then.
    pub async fn take(&self, new: &NewRelay, peer: Option<IpAddr>, now: TimeMs) -> Result<RelayView, RelayError> {
        let open = self.open.as_deref().ok_or(Refusal::Off)?;
        let request = ForwardRequest {
            from: new.from,
            to: new.to,
            gas: new.gas,
            nonce: new.nonce,
            deadline_s: new.deadline_ms.0 / 1_000,
            data: new.data.0.clone(),
        };
        open.take(&request, &new.signature.0, &network(peer), now).await
    }
}

impl Open {
    async fn take(
        &self,
        request: &ForwardRequest,
        signature: &[u8],
        peer: &str,
        now: TimeMs,
    ) -> Result<RelayView, RelayError> {
        let Rules { at, payer, per_day, .. } = self.rules;
        let call = form(&at, request, signature, now)?;
        let permits = call.contract == Contract::Token;
        let (digest, sent) = match permits {
            true => self.permit(request, signature).await?,
            false => self.call(request, signature).await?,
        };
        let row = relay::New {
            account: request.from,
            counter: sent.to,
            nonce: request.nonce,
            digest,
            call: &call.name,
            peer,
            now,
        };
        if let Some(kept) = relay::equal(&self.store.readers, &row).await? {
            return Ok(view(kept));
        }
        // Both of these again under the writer's lock; here they spare the chain a question.
        budget(&relay::spent(&self.store.readers, &row).await?, per_day, now)?;
        nonce(request, self.ground.next_nonce(sent.to, request.from).await?)?;
        match permits {
            true => self.ground.try_call(&sent).await?,
            false => self.ground.try_out(request, signature).await?,
        }
        let subject = format!("{} {} {}", call.name, request.from, request.nonce);
        let order = Order { kind: Kind::Relay, subject, target: sent.to, calldata: sent.data };
        let kept = relay::take(&self.store.writer, payer, &order, &row, |spent| budget(spent, per_day, now)).await??;
        self.nudge.notify_one();
        Ok(view(kept))
    }

    /// A call by way of the forwarder: what was signed, and what is sent.
    async fn call(&self, request: &ForwardRequest, signature: &[u8]) -> Result<(Hash32, Call), Refusal> {
        let Rules { chain_id, forwarder, .. } = self.rules;
        let digest = request.digest(chain_id, forwarder);
        let by_key = request.recover(signature, chain_id, forwarder) == Some(request.from);
        if !by_key && !self.ground.accepts(request.from, digest, signature).await? {
            return Err(Refusal::NotSigned { from: request.from, forwarder, chain_id });
        }
        Ok((digest, request.execute(forwarder, signature)))
    }

    /// A permit, which its token takes from anybody: what was signed, and what is sent.
    async fn permit(&self, request: &ForwardRequest, signature: &[u8]) -> Result<(Hash32, Call), Refusal> {
        let Rules { at, chain_id, .. } = self.rules;
        let (token, nonce) = (at.token, request.nonce);
        let (permit, signature) = judge::permit(&at, request, signature)?;
        let domain = self.ground.permit_domain().await?.ok_or(Refusal::NoPermits { token })?;
        if !permit.is_signed(&signature, domain) {
            return Err(Refusal::PermitNotSigned { owner: permit.owner, nonce, token, chain_id });
        }
        Ok((permit.digest(domain), permit.call(token, &signature)))
    }
}

/// The name that an address's calls are counted under.
fn network(peer: Option<IpAddr>) -> String {
    peer.map(|peer| Network::of(peer).to_string()).unwrap_or_default()
}

/// What became of it, for people and programs.
#[must_use]
pub fn view(kept: Kept) -> RelayView {
    let Kept { account, nonce, call, row } = kept;
    let state = match row.status {
        _ if row.has_failed() => RelayState::Failed,
        Status::Queued => RelayState::Waiting,
        Status::Signed => RelayState::Sent,
        _ => RelayState::Mined,
    };
    RelayView {
        id: uint(row.seq),
        from: account,
        nonce,
        call,
        state,
        transaction: row.tx_hash,
        block_number: row.block.map(|block| block.number),
        reason: row.reason,
    }
}

#[cfg(test)]
mod live;
#[cfg(test)]
mod tests;
