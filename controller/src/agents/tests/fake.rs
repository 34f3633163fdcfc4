//! A controller that notes what is entered and commits when it is told to.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use selion_api::agent::{Fence, MemberEvent, Outputs, Resume, SignedHead, SignedVoucher};
use selion_api::commit::Work;
use selion_api::seal::{Sealed, Secret};
use selion_api::{Account, Amount, Hash32, LeaseId, NodeId, Signature};
use selion_market::{Answer, Input, Outcome, State, Touched};
use tokio::sync::{Semaphore, broadcast};

use super::super::core::{Claim, Core, CoreError, GatewayToken};
use super::key::Key;
use crate::sequencer::{Batch, Position, Step, SubmitError};
use crate::store::output::Told;
use crate::store::secret::Run;

/// Number of the authority's key.
pub(super) const AUTHORITY: u8 = 1;
pub(super) const OURS: Fence = Fence { epoch: 1, term: 2 };

pub(super) struct Fake {
    pub state: Mutex<State>,
    pub entered: Mutex<Vec<Input>>,
    /// One permit is one commit.
    pub commits: Semaphore,
    pub head: Mutex<Option<SignedHead>>,
    pub roots: Mutex<BTreeMap<u64, Hash32>>,
    pub sealed: Mutex<Vec<(Run, Sealed)>>,
    pub kept: Mutex<BTreeMap<LeaseId, Vec<Secret>>>,
    pub works: Mutex<BTreeMap<Hash32, (Hash32, Work)>>,
    pub outputs: Mutex<BTreeMap<(LeaseId, u32, u16), Told>>,
    pub vouchers: Mutex<Vec<SignedVoucher>>,
    pub stored: Mutex<Vec<(Account, Account, Amount)>>,
    pub claims: Mutex<Vec<Claim>>,
    pub nonces: Mutex<u8>,
    /// Commits fail, as on a full disk.
    pub full: AtomicBool,
    signatures: AtomicUsize,
    batches: broadcast::Sender<Arc<Batch>>,
}

impl Fake {
    pub(super) fn new() -> Arc<Self> {
        let state = State { fence: OURS, ..State::new() };
        Arc::new(Self {
            state: Mutex::new(state),
            entered: Mutex::default(),
            commits: Semaphore::new(1_000),
            head: Mutex::default(),
            roots: Mutex::default(),
            sealed: Mutex::default(),
            kept: Mutex::default(),
            works: Mutex::default(),
            outputs: Mutex::default(),
            vouchers: Mutex::default(),
            stored: Mutex::default(),
            claims: Mutex::default(),
            nonces: Mutex::default(),
            full: AtomicBool::new(false),
            signatures: AtomicUsize::new(0),
            batches: broadcast::Sender::new(64),
        })
    }

    /// How often the authority signed.
    pub(super) fn signed(&self) -> usize {
        self.signatures.load(Ordering::SeqCst)
    }

    /// Commits nothing until [`commit`](Self::commit).
    pub(super) fn hold_commits(&self) {
        self.commits.forget_permits(1_000);
    }

    pub(super) fn commit(&self, count: usize) {
        self.commits.add_permits(count);
    }

    pub(super) fn count(&self, which: impl Fn(&Input) -> bool) -> usize {
        let entered = self.entered.lock().unwrap();
        entered.iter().filter(|input| which(input)).count()
    }

    pub(super) fn losses(&self) -> Vec<(NodeId, u64)> {
        let entered = self.entered.lock().unwrap();
        let lost = entered.iter().filter_map(|input| match input {
            Input::Lost { node, last_seq } => Some((*node, *last_seq)),
            _ => None,
        });
        lost.collect()
    }

    /// Tells everybody of a batch that touched the desired state of `node`.
    pub(super) fn touch(&self, node: NodeId) {
        let mut touched = Touched::default();
        touched.desired.insert(node);
        let mut state = self.state.lock().unwrap();
        state.next_seq += 1;
        let head = Hash32::ZERO;
        let batch = Batch {
            steps: vec![Arc::new(Step {
                seq: state.next_seq,
                at_ms: state.now,
                input: Input::Tick,
                outcome: outcome(touched),
            })],
            head: SignedHead {
                head: selion_api::agent::Head { size: state.next_seq, root: head, digest: head, fence: OURS },
                signature: Signature::ZERO,
            },
        };
        drop(self.batches.send(Arc::new(batch)));
    }

    fn is_writable(&self) -> Result<(), SubmitError> {
        let full = self.full.load(Ordering::SeqCst);
        if full { Err(SubmitError::Unavailable("disk is full".into())) } else { Ok(()) }
    }

    fn apply(&self, input: &Input) -> Option<()> {
        let mut state = self.state.lock().unwrap();
        state.next_seq += 1;
        match input {
            Input::Linked(signed) => {
                let spec = &signed.hello.spec;
                let node = state.nodes.get_mut(&spec.node)?;
                node.linked = true;
                node.spec = Some(spec.clone());
            }
            Input::Lost { node, .. } => state.nodes.get_mut(node)?.linked = false,
            Input::Report(signed) => {
                let report = &signed.report;
                state.nodes.get_mut(&report.node)?.last_seq = report.seq;
                if let MemberEvent::Exited { outputs, .. } = report.event {
                    let lease = state.leases.get_mut(&report.lease)?;
                    lease.members.get_mut(usize::from(report.member))?.outputs = outputs;
                }
            }
            _ => {}
        }
        Some(())
    }
}

fn outcome(touched: Touched) -> Outcome {
    Outcome { effects: Vec::new(), answer: Answer::Done, touched, more: false }
}

#[async_trait::async_trait]
impl Core for Fake {
    async fn submit(&self, input: Input) -> Result<Arc<Step>, SubmitError> {
        self.is_writable()?;
        self.entered.lock().unwrap().push(input.clone());
        let permit = self.commits.acquire().await;
        permit.map_err(|_| SubmitError::Stopped)?.forget();
        self.apply(&input);
        let state = self.state.lock().unwrap();
        Ok(Arc::new(Step { seq: state.next_seq, at_ms: state.now, input, outcome: outcome(Touched::default()) }))
    }

    async fn submit_all(&self, inputs: Vec<Input>) -> Result<Vec<Arc<Step>>, SubmitError> {
        self.is_writable()?;
        self.entered.lock().unwrap().extend(inputs.iter().cloned());
        let permit = self.commits.acquire().await;
        permit.map_err(|_| SubmitError::Stopped)?.forget();
        for input in &inputs {
            self.apply(input);
        }
        let mut state = self.state.lock().unwrap();
        state.next_seq += 1;
        let step = |input| Step { seq: state.next_seq, at_ms: state.now, input, outcome: outcome(Touched::default()) };
        Ok(inputs.into_iter().map(|input| Arc::new(step(input))).collect())
    }

    fn state(&self) -> Box<dyn Deref<Target = State> + '_> {
        Box::new(self.state.lock().unwrap())
    }

    fn batches(&self) -> broadcast::Receiver<Arc<Batch>> {
        self.batches.subscribe()
    }

    fn position(&self) -> Position {
        Position { entry: 0, head: *self.head.lock().unwrap(), block: None, fence: OURS }
    }

    async fn root_at(&self, size: u64) -> Result<Option<Hash32>, CoreError> {
        Ok(self.roots.lock().unwrap().get(&size).copied())
    }

    async fn work(&self, commitment: Hash32) -> Result<Option<(Hash32, Work)>, CoreError> {
        Ok(self.works.lock().unwrap().get(&commitment).cloned())
    }

    async fn keep_outputs(&self, node: NodeId, renter: Account, said: &Outputs) -> Result<bool, CoreError> {
        let (now, outputs) = (selion_api::TimeMs(0), said.clone());
        let told = Told { renter, node, outputs, begun_ms: now, told_ms: now, let_go: false };
        self.outputs.lock().unwrap().insert((said.lease, said.attempt, said.member), told);
        Ok(true)
    }

    async fn outputs_told(&self, lease: LeaseId, attempt: u32, member: u16) -> Result<Option<Told>, CoreError> {
        Ok(self.outputs.lock().unwrap().get(&(lease, attempt, member)).cloned())
    }

    async fn disown_outputs(&self, lease: LeaseId, attempt: u32, member: u16) -> Result<(), CoreError> {
        self.outputs.lock().unwrap().remove(&(lease, attempt, member));
        Ok(())
    }

    async fn resume(&self, _: LeaseId, attempt: u32, _: u16) -> Result<Resume, CoreError> {
        Ok(Resume::Coming { attempt: attempt - 1 })
    }

    async fn sealed(&self, run: &Run) -> Result<Option<Sealed>, CoreError> {
        let sealed = self.sealed.lock().unwrap();
        Ok(sealed.iter().rev().find(|(of, _)| of == run).map(|(_, sealed)| sealed.clone()))
    }

    async fn kept_secrets(&self, lease: LeaseId) -> Result<Option<Vec<Secret>>, CoreError> {
        Ok(self.kept.lock().unwrap().get(&lease).cloned())
    }

    async fn forget_secrets(&self) -> Result<(), CoreError> {
        Ok(())
    }

    async fn vouchers(&self, provider: Account) -> Result<Vec<SignedVoucher>, CoreError> {
        let vouchers = self.vouchers.lock().unwrap();
        let his = vouchers.iter().filter(|one| one.provider == provider);
        Ok(his.cloned().collect())
    }

    async fn voucher_stored(&self, renter: Account, provider: Account, cumulative: Amount) -> Result<(), CoreError> {
        let row = (renter, provider, cumulative);
        self.stored.lock().unwrap().push(row);
        Ok(())
    }

    fn token(&self, _node: NodeId) -> Result<GatewayToken, CoreError> {
        Ok(GatewayToken { text: "token".into(), good_for: Duration::from_secs(600) })
    }

    fn nonce(&self) -> Result<Hash32, CoreError> {
        let mut nonces = self.nonces.lock().unwrap();
        *nonces += 1;
        Ok(Hash32([*nonces; 32]))
    }

    fn sign(&self, digest: &Hash32) -> Signature {
        self.signatures.fetch_add(1, Ordering::SeqCst);
        Key::new(AUTHORITY).sign(digest)
    }

    fn contradicted(&self, claim: Claim) {
        self.claims.lock().unwrap().push(claim);
    }
}
