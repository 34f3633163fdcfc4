//! [`Core`] over the real parts: sequencer, store and secrets.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use selion_api::agent::{Outputs, Resume, SignedVoucher};
use selion_api::commit::Work;
use selion_api::lease::LeaseState;
use selion_api::outputs::OutputState;
use selion_api::seal::{Sealed, Secret};
use selion_api::{Account, Amount, Hash32, LeaseId, NodeId, Signature, TimeMs};
use selion_dataplane::{Cid, Store as Content, StoreError};
use selion_market::{Input, State};
use tokio::sync::broadcast;

use super::core::{Claim, Core, CoreError, GatewayToken};
use crate::http::secrets::{self, Secrets, TOKEN_MS};
use crate::ipfs::Ipfs;
use crate::sequencer::{Batch, Position, Sequencer, Step, SubmitError};
use crate::store::output::Told;
use crate::store::secret::{self, Run};
use crate::store::{Store, entry, head, output, signed_voucher, work};

/// Signs a text.
pub type Sign = Box<dyn Fn(&[u8]) -> Signature + Send + Sync>;

/// The parts of a running controller that the links use.
pub struct Parts {
    /// The one way to change a lease.
    pub log: Sequencer,
    /// The database.
    pub store: Store,
    /// Token keys.
    pub secrets: Arc<Secrets>,
    /// The content store.
    pub content: Content,
    /// Where outputs are pinned once more.
    pub ipfs: Ipfs,
    /// Signs a text as the authority, by EIP-191.
    pub sign: Sign,
    /// Tells the time.
    pub clock: fn() -> TimeMs,
    /// What to do when an agent contradicts this controller's right to decide. [`Claim::ForeignHead`] is proof: stop.
    pub on_claim: Box<dyn Fn(Claim) + Send + Sync>,
}

fn cannot(error: impl std::fmt::Display) -> CoreError {
    CoreError(error.to_string())
}

impl Parts {
    /// Keeps the content under `root` for the lease. False if not all of it is here.
    async fn pin(&self, lease: LeaseId, root: Cid) -> Result<bool, CoreError> {
        let content = self.content.clone();
        let pinned = tokio::task::spawn_blocking(move || pin_whole(&content, &output::pin_owner(lease), &root)).await;
        pinned.map_err(cannot)?.map_err(cannot)
    }
}

/// Pins what is whole here, and nothing else: a node may say that it sent all.
fn pin_whole(content: &Content, owner: &str, root: &Cid) -> Result<bool, StoreError> {
    match content.pin(owner, root) {
        Ok(false) => content.unpin(owner, root).map(|_| false),
        Err(StoreError::Missing { .. }) => Ok(false),
        other => other,
    }
}

#[async_trait::async_trait]
impl Core for Parts {
    async fn submit(&self, input: Input) -> Result<Arc<Step>, SubmitError> {
        self.log.submit(input, None).await
    }

    async fn submit_all(&self, inputs: Vec<Input>) -> Result<Vec<Arc<Step>>, SubmitError> {
        self.log.submit_all(inputs).await
    }

    fn state(&self) -> Box<dyn Deref<Target = State> + '_> {
        Box::new(self.log.state())
    }

    fn batches(&self) -> broadcast::Receiver<Arc<Batch>> {
        self.log.subscribe()
    }

    fn position(&self) -> Position {
        self.log.position()
    }

    async fn root_at(&self, size: u64) -> Result<Option<Hash32>, CoreError> {
        let db = &self.store.readers;
        if entry::size(db).await.map_err(cannot)? < size {
            return Ok(None);
        }
        // An agent was shown a head that we signed, so its root is at hand.
        if let Some(head) = head::at(db, size).await.map_err(cannot)? {
            return Ok(Some(head.head.root));
        }
        let edge = size % u64::from(selion_log::WIDTH);
        let leaves = entry::leaves(db, size - edge, edge as u32).await.map_err(cannot)?;
        let root = selion_log::root_from(size, |level, from, count| match level {
            0 => Ok(leaves.iter().skip((from - (size - edge)) as usize).take(count.into()).copied().collect()),
            _ => self.log.levels(|levels| levels.hashes(level, from, count).map(<[_]>::to_vec)).ok_or(()),
        });
        root.map(Some).map_err(|()| cannot("the levels of the tree are behind the entries"))
    }

    async fn work(&self, commitment: Hash32) -> Result<Option<(Hash32, Work)>, CoreError> {
        work::get(&self.store, &commitment).await.map_err(cannot)
    }

    async fn keep_outputs(&self, node: NodeId, renter: Account, said: &Outputs) -> Result<bool, CoreError> {
        let root = said.cid.as_ref().and_then(|cid| cid.parse::<Cid>().ok());
        if let Some(root) = root.filter(|_| said.state.is_readable()) {
            if !self.pin(said.lease, root).await? {
                return Ok(false);
            }
            self.ipfs.share(root);
        }
        output::put(&self.store.writer, renter, node, said, (self.clock)()).await.map_err(cannot)?;
        Ok(true)
    }

    async fn outputs_told(&self, lease: LeaseId, attempt: u32, member: u16) -> Result<Option<Told>, CoreError> {
        output::get(&self.store.readers, lease, attempt, member).await.map_err(cannot)
    }

    async fn disown_outputs(&self, lease: LeaseId, attempt: u32, member: u16) -> Result<(), CoreError> {
        output::disown(&self.store.writer, lease, attempt, member).await.map_err(cannot)
    }

    async fn resume(&self, lease: LeaseId, attempt: u32, member: u16) -> Result<Resume, CoreError> {
        let found = output::before(&self.store.readers, lease, attempt, member).await.map_err(cannot)?;
        let now = (self.clock)();
        Ok(found.map_or(Resume::Nothing, |told| {
            let attempt = told.outputs.attempt;
            match (told.state(now), told.outputs.cid) {
                (OutputState::Uploading, _) => Resume::Coming { attempt },
                (OutputState::Kept | OutputState::Partial, Some(cid)) => Resume::From { attempt, cid },
                _ => Resume::Nothing,
            }
        }))
    }

    async fn sealed(&self, run: &Run) -> Result<Option<Sealed>, CoreError> {
        secret::get(&self.store.readers, run).await.map_err(cannot)
    }

    async fn kept_secrets(&self, lease: LeaseId) -> Result<Option<Vec<Secret>>, CoreError> {
        secret::kept(&self.store, lease).await.map_err(cannot)
    }

    async fn forget_secrets(&self) -> Result<(), CoreError> {
        let is_live =
            |id| self.log.read(|state| state.leases.get(&id).is_some_and(|lease| lease.state != LeaseState::Ended));
        secret::forget(&self.store, is_live).await.map_err(cannot)
    }

    async fn vouchers(&self, provider: Account) -> Result<Vec<SignedVoucher>, CoreError> {
        let kept = signed_voucher::for_provider(&self.store.readers, provider).await;
        let kept = kept.map_err(cannot)?.into_iter();
        let lacking = kept.filter(|kept| kept.delivered < kept.voucher.cumulative);
        Ok(lacking.map(|kept| kept.voucher).collect())
    }

    async fn voucher_stored(&self, renter: Account, provider: Account, cumulative: Amount) -> Result<(), CoreError> {
        signed_voucher::mark_delivered(&self.store.writer, renter, provider, cumulative).await.map_err(cannot)
    }

    fn token(&self, node: NodeId) -> Result<GatewayToken, CoreError> {
        let text = self.secrets.node_token(node, (self.clock)());
        Ok(GatewayToken { text: text.map_err(CoreError)?, good_for: Duration::from_millis(TOKEN_MS) })
    }

    fn nonce(&self) -> Result<Hash32, CoreError> {
        secrets::random().map(Hash32).map_err(cannot)
    }

    fn sign(&self, digest: &Hash32) -> Signature {
        (self.sign)(&digest.0)
    }

    fn contradicted(&self, claim: Claim) {
        (self.on_claim)(claim);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_are_kept_once_all_their_blocks_are_here_and_not_before() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("left");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("model"), "weights").unwrap();
        let node = Content::open(dir.path().join("node")).unwrap();
        let root = node.add_path(&folder).unwrap();
        let pool = Content::open(dir.path().join("pool")).unwrap();
        let send = |cid: &Cid| pool.put(cid, &node.get(cid).unwrap()).unwrap();
        assert!(!pin_whole(&pool, "lease-1", &root).unwrap());
        send(&root);
        assert!(!pin_whole(&pool, "lease-1", &root).unwrap());
        assert_eq!(pool.list().unwrap(), []);
        for cid in node.blocks(&root, &selion_dataplane::Limits::default()).unwrap() {
            send(&cid);
        }
        assert!(pin_whole(&pool, "lease-1", &root).unwrap());
        assert_eq!(pool.list().unwrap().len(), 1);
    }
}
