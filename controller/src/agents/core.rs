//! What the links need from the rest of the controller.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use selion_api::agent::{Fence, Outputs, Resume, SignedHead, SignedVoucher};
use selion_api::commit::Work;
use selion_api::seal::{Sealed, Secret};
use selion_api::{Account, Amount, Hash32, LeaseId, NodeId, Signature};
use selion_market::{Input, State};
use tokio::sync::broadcast;

use crate::sequencer::{Batch, Position, Step, SubmitError};
use crate::store::output::Told;
use crate::store::secret::Run;

/// The store, or the machine, could not answer; the cause is for the log, not for the agent.
#[derive(Debug, thiserror::Error)]
#[error("the controller could not answer: {0}")]
pub struct CoreError(pub String);

/// A bearer token for the content gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayToken {
    /// The token.
    pub text: String,
    /// How long it is good from now on.
    pub good_for: Duration,
}

/// What an agent said that this controller cannot both believe and go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The agent says it obeyed a higher fence. Its word only: another controller may have taken over, or the agent lies.
    HigherFence {
        /// Who says so.
        node: NodeId,
        /// The fence it names.
        fence: Fence,
    },
    /// The agent holds a head that the authority signed and that our log does not extend: this controller runs on a
    /// restored backup, or two controllers signed. Proof, not word: it must stop deciding.
    ForeignHead {
        /// Who holds it.
        node: NodeId,
        /// The head, its signature checked.
        head: SignedHead,
        /// Our root at that size; `None` if our log is shorter.
        ours: Option<Hash32>,
    },
}

/// The rest of the controller, as the links see it.
#[async_trait::async_trait]
pub trait Core: Send + Sync + 'static {
    /// Enters an input; resolves after the commit. Inputs enter in the order in which the futures are first polled.
    async fn submit(&self, input: Input) -> Result<Arc<Step>, SubmitError>;
    /// Enters inputs in this order, all or none; resolves after the commit.
    async fn submit_all(&self, inputs: Vec<Input>) -> Result<Vec<Arc<Step>>, SubmitError>;
    /// The committed State. Nothing is committed while this is held, so it is held across no wait.
    fn state(&self) -> Box<dyn Deref<Target = State> + '_>;
    /// Every batch committed from now on.
    fn batches(&self) -> broadcast::Receiver<Arc<Batch>>;
    /// What is committed now.
    fn position(&self) -> Position;
    /// Root of the log's tree over its first `size` entries; `None` if it has fewer.
    async fn root_at(&self, size: u64) -> Result<Option<Hash32>, CoreError>;
    /// Salt and work of a commitment; `None` if erased.
    async fn work(&self, commitment: Hash32) -> Result<Option<(Hash32, Work)>, CoreError>;
    /// Notes what `node` says of outputs of `renter`, and keeps their content from its last word on. False if that is
    /// not here.
    async fn keep_outputs(&self, node: NodeId, renter: Account, said: &Outputs) -> Result<bool, CoreError>;
    /// What was told of a member's outputs.
    async fn outputs_told(&self, lease: LeaseId, attempt: u32, member: u16) -> Result<Option<Told>, CoreError>;
    /// The node's report says otherwise: they are lost.
    async fn disown_outputs(&self, lease: LeaseId, attempt: u32, member: u16) -> Result<(), CoreError>;
    /// What run `attempt` of the member may go on from.
    async fn resume(&self, lease: LeaseId, attempt: u32, member: u16) -> Result<Resume, CoreError>;
    /// What a client sealed for this run of a member.
    async fn sealed(&self, run: &Run) -> Result<Option<Sealed>, CoreError>;
    /// The secrets of a lease that its renter lets the pool keep, if they were given.
    async fn kept_secrets(&self, lease: LeaseId) -> Result<Option<Vec<Secret>>, CoreError>;
    /// Forgets what was sealed for and kept of leases that are over.
    async fn forget_secrets(&self) -> Result<(), CoreError>;
    /// Vouchers of a provider, both signatures given, that no agent of his stored yet.
    async fn vouchers(&self, provider: Account) -> Result<Vec<SignedVoucher>, CoreError>;
    /// An agent of `provider` stored the pair's voucher up to `cumulative`.
    async fn voucher_stored(&self, renter: Account, provider: Account, cumulative: Amount) -> Result<(), CoreError>;
    /// A fresh token for a node's requests to the content gateway.
    fn token(&self, node: NodeId) -> Result<GatewayToken, CoreError>;
    /// 32 random bytes for a challenge.
    fn nonce(&self) -> Result<Hash32, CoreError>;
    /// The authority's signature over a digest, by EIP-191: what makes a welcome or a desired state one.
    fn sign(&self, digest: &Hash32) -> Signature;
    /// An agent contradicts this controller's right to decide; see [`Claim`] for what is proof and what is word.
    fn contradicted(&self, claim: Claim);
}

/// Reads one value from the committed State.
pub(super) fn read<R>(core: &dyn Core, ask: impl FnOnce(&State) -> R) -> R {
    ask(&core.state())
}
