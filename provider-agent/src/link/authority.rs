//! Who may decide for this node: the pool's authority, as the chain names it. What somebody else signed is kept nowhere and
//! obeyed by nobody.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use selion_api::agent::{Desired, Fence, SignedDesired, SignedHead, SignedWelcome};
use selion_api::commit::PoolId;
use selion_api::{Account, Address, Hash32, NodeId, Signature};
use selion_contracts::signer::recover_text;
use selion_contracts::{BlockTag, Pool, PoolError, Rpc};
use tokio::time::timeout;

use super::LinkError;
use crate::book::{Book, BookError};
use crate::error::chain;

/// Longest wait for the chain while a link is greeted; a controller waits 10 s for the hello.
const ASK: Duration = Duration::from_secs(5);
/// The chain is asked again this often whether authority has passed on.
const AGAIN: Duration = Duration::from_secs(60);

/// Why it is not known who decides.
#[derive(Debug, thiserror::Error)]
pub enum Unknown {
    /// The chain did not answer in time.
    #[error("the chain did not answer within {} s", ASK.as_secs())]
    Silent,
    /// The chain said no.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The chain has no such epoch.
    #[error("the chain has no such epoch of the pool")]
    NoSuchEpoch,
}

/// What the chain said of one pool.
#[derive(Debug, Default)]
struct Facts {
    /// Whoever was the authority of an epoch is it for ever.
    authorities: BTreeMap<u32, Account>,
    /// The epoch in force in the newest final block.
    settled: u32,
}

/// Who decides, as far as the chain was asked. Clones share what it said.
#[derive(Clone)]
pub(crate) struct Authority {
    chain_rpc: String,
    facts: Arc<Mutex<Facts>>,
}

impl Authority {
    /// Nobody was asked yet.
    pub(crate) fn new(chain_rpc: String) -> Self {
        Self { chain_rpc, facts: Arc::default() }
    }

    fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the chain before the hello, if nothing is known of the pool: nobody waits for the answer yet.
    pub(crate) async fn prepare(&self, book: &Book, pool: PoolId) {
        let seen = book.seen();
        let kept = seen.pool == Some(pool) && seen.authority.is_some();
        if !kept
            && self.facts().authorities.is_empty()
            && let Err(error) = self.learn(pool.controller).await
        {
            tracing::warn!(error = chain(&error), "the chain cannot be asked who decides in the pool");
        }
    }

    /// Asks the chain again and again, for as long as the link lives.
    pub(crate) async fn follow(self, pool: PoolId) {
        let mut silent = false;
        loop {
            let learned = self.learn(pool.controller).await;
            if let Err(error) = &learned
                && !silent
            {
                tracing::warn!(error = chain(error), "the chain cannot be asked who decides in the pool; asking again");
            }
            silent = learned.is_err();
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Checks that the authority of its epoch answered this very hello of ours, and pins the pool.
    ///
    /// # Errors
    ///
    /// [`LinkError`]; nothing was kept then.
    pub(crate) async fn welcomed(
        &self,
        book: &Book,
        pool: PoolId,
        (node, challenge): (NodeId, Hash32),
        said: &SignedWelcome,
    ) -> Result<(), LinkError> {
        let SignedWelcome { welcome, signature } = said;
        if (welcome.node, welcome.challenge) != (node, challenge) {
            return Err(LinkError::NotSigned { what: "a welcome to another hello", fence: welcome.fence });
        }
        let digest = welcome.digest_to_sign(&pool);
        let authority = self.signer(book, pool, ("a welcome", welcome.fence), &digest, signature).await?;
        book.pin_pool(pool)?;
        Ok(book.remember_authority(welcome.fence.epoch, authority)?)
    }

    /// The desired state, if the authority of its epoch signed it for this node.
    ///
    /// # Errors
    ///
    /// [`LinkError`]; nothing was kept then.
    pub(crate) async fn desired(
        &self,
        book: &Book,
        pool: PoolId,
        node: NodeId,
        said: SignedDesired,
    ) -> Result<Desired, LinkError> {
        let SignedDesired { desired, signature } = said;
        if desired.node != node {
            return Err(LinkError::NotSigned { what: "another node's desired state", fence: desired.fence });
        }
        let digest = desired.digest_to_sign(&pool);
        self.signer(book, pool, ("a desired state", desired.fence), &digest, &signature).await?;
        Ok(desired)
    }

    /// Keeps a head that the authority of its epoch signed. While it is not known who that is, none is kept and the link
    /// goes on.
    ///
    /// # Errors
    ///
    /// [`LinkError::NotSigned`]; [`LinkError::Book`] if it contradicts one that was kept.
    pub(crate) fn see(&self, book: &Book, pool: PoolId, head: SignedHead) -> Result<(), LinkError> {
        let (size, fence) = (head.head.size, head.head.fence);
        let Some(authority) = self.known(book, pool, fence.epoch) else {
            tracing::warn!(size, epoch = fence.epoch, "a head is not kept: it is not known who signs in its epoch");
            return Ok(());
        };
        if recover_text(&head.head.digest_to_sign(&pool).0, &head.signature) != Some(authority) {
            return Err(LinkError::NotSigned { what: "a log head", fence });
        }
        match book.see_head(head) {
            // A head more or less is no reason to leave the link: a later one is kept.
            Err(BookError::Io { path, source }) => {
                tracing::warn!(size, path = %path.display(), %source, "a head is not kept");
                Ok(())
            }
            other => Ok(other?),
        }
    }

    /// The authority of the fence's epoch, if it made the signature and no final block gave its place to another.
    async fn signer(
        &self,
        book: &Book,
        pool: PoolId,
        (what, fence): (&'static str, Fence),
        digest: &Hash32,
        signature: &Signature,
    ) -> Result<Account, LinkError> {
        let authority = match self.known(book, pool, fence.epoch) {
            Some(authority) => authority,
            None => {
                let learned = self.learn(pool.controller).await;
                let found = learned.and_then(|()| self.known(book, pool, fence.epoch).ok_or(Unknown::NoSuchEpoch));
                found.map_err(|source| LinkError::AuthorityUnknown { epoch: fence.epoch, source: Box::new(source) })?
            }
        };
        let settled = self.facts().settled;
        if settled > fence.epoch {
            return Err(LinkError::Deposed { epoch: fence.epoch, now: settled });
        }
        match recover_text(&digest.0, signature) {
            Some(by) if by == authority => Ok(authority),
            _ => Err(LinkError::NotSigned { what, fence }),
        }
    }

    /// Who signs in an epoch: as the chain said to this process, or to an earlier life of the agent. So leases run through
    /// an outage of the chain.
    fn known(&self, book: &Book, pool: PoolId, epoch: u32) -> Option<Account> {
        let seen = book.seen();
        let kept = seen.authority.filter(|(of, _)| seen.pool == Some(pool) && *of == epoch);
        self.facts().authorities.get(&epoch).copied().or(kept.map(|(_, authority)| authority))
    }

    async fn learn(&self, controller: Address) -> Result<(), Unknown> {
        let asked = timeout(ASK, ask(&self.chain_rpc, controller)).await;
        let (authorities, settled) = asked.map_err(|_| Unknown::Silent)??;
        *self.facts() = Facts { authorities, settled };
        Ok(())
    }
}

/// The authorities of the epochs in force in the newest final block and in the newest block, and the former epoch.
async fn ask(chain_rpc: &str, controller: Address) -> Result<(BTreeMap<u32, Account>, u32), PoolError> {
    let pool = Pool::open(Rpc::new(chain_rpc)?, controller).await?;
    let depth = pool.terms(BlockTag::Latest).await?.finality_depth;
    let settled = match pool.final_header(depth).await? {
        Some(header) => pool.head(BlockTag::Number(header.number)).await?.epoch,
        None => 0,
    };
    let newest = pool.head(BlockTag::Latest).await?.epoch;
    let mut authorities = BTreeMap::new();
    for epoch in [settled, newest] {
        if let std::collections::btree_map::Entry::Vacant(vacant) = authorities.entry(epoch) {
            let (authority, _) = pool.authority_of(epoch, BlockTag::Latest).await?;
            vacant.insert(authority);
        }
    }
    authorities.retain(|_, authority| *authority != Account::default());
    Ok((authorities, settled))
}

#[cfg(test)]
#[path = "authority_tests.rs"]
mod tests;
