//! Heads of the log that the controller shows: kept only as evidence, so only if the authority signed them.

use std::collections::BTreeMap;
use std::time::Duration;

use selion_api::Account;
use selion_api::agent::SignedHead;
use selion_contracts::signer::recover_text;
use selion_contracts::{BlockTag, Pool, PoolError, Rpc};
use tokio::time::timeout;

use super::LinkError;
use crate::book::Book;
use crate::error::chain;

/// Longest wait for the chain: nothing else of the link goes on meanwhile.
const ASK: Duration = Duration::from_secs(2);

/// Who signs heads, as far as the chain was asked.
pub(crate) struct Heads {
    chain_rpc: String,
    /// Whoever was the authority in an epoch is it for ever.
    authorities: BTreeMap<u32, Account>,
}

impl Heads {
    /// Nobody was asked yet.
    pub(crate) fn new(chain_rpc: String) -> Self {
        Self { chain_rpc, authorities: BTreeMap::new() }
    }

    /// Keeps a head that the authority of its epoch signed. While the chain cannot be asked who that is, none is kept and
    /// the link goes on.
    ///
    /// # Errors
    ///
    /// [`LinkError::HeadNotSigned`]; [`LinkError::Book`] if it contradicts one that was kept.
    pub(crate) async fn see(&mut self, book: &Book, head: SignedHead) -> Result<(), LinkError> {
        let Some(pool) = book.seen().pool else { return Ok(()) };
        let (size, epoch) = (head.head.size, head.head.fence.epoch);
        let authority = match timeout(ASK, self.authority(pool.controller, epoch)).await {
            Ok(Ok(authority)) => authority,
            Ok(Err(error)) => {
                tracing::warn!(error = chain(&error), size, "a head is not kept: the chain cannot be asked who signs");
                return Ok(());
            }
            Err(_) => {
                tracing::warn!(size, "a head is not kept: the chain did not say in time who signs");
                return Ok(());
            }
        };
        if recover_text(&head.head.digest_to_sign(&pool).0, &head.signature) != Some(authority) {
            return Err(LinkError::HeadNotSigned { size, epoch, authority });
        }
        Ok(book.see_head(head)?)
    }

    /// The authority of an epoch; the zero account if the chain has no such epoch yet.
    async fn authority(&mut self, controller: selion_api::Address, epoch: u32) -> Result<Account, PoolError> {
        if let Some(known) = self.authorities.get(&epoch) {
            return Ok(*known);
        }
        let pool = Pool::open(Rpc::new(&self.chain_rpc)?, controller).await?;
        let (authority, _) = pool.authority_of(epoch, BlockTag::Latest).await?;
        if authority != Account::default() {
            self.authorities.insert(epoch, authority);
        }
        Ok(authority)
    }
}

#[cfg(test)]
mod tests {
    use selion_api::agent::{Fence, Head};
    use selion_api::commit::PoolId;
    use selion_api::{Address, Hash32};
    use selion_contracts::Signer;

    use super::*;

    const POOL: PoolId = PoolId { chain_id: 31_337, controller: Address([7; 20]) };

    fn head(by: &Signer, size: u64, epoch: u32) -> SignedHead {
        let fence = Fence { epoch, term: 1 };
        let head = Head { size, root: Hash32([1; 32]), digest: Hash32::ZERO, fence };
        SignedHead { head, signature: by.sign_text(&head.digest_to_sign(&POOL).0).unwrap() }
    }

    #[tokio::test]
    async fn only_heads_that_the_epochs_authority_signed_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let book = Book::open(dir.path()).unwrap();
        book.pin_pool(POOL).unwrap();
        let key = |byte| Signer::from_bytes(&[byte; 32]).unwrap();
        let mut heads = Heads::new("http://127.0.0.1:1".into());
        heads.authorities.insert(1, key(5).account());
        heads.see(&book, head(&key(5), 3, 1)).await.unwrap();
        assert_eq!(book.seen().head.unwrap().head.size, 3);
        let refused = heads.see(&book, head(&key(6), 4, 1)).await.unwrap_err();
        assert!(matches!(refused, LinkError::HeadNotSigned { size: 4, epoch: 1, .. }), "{refused}");
        // Nobody can be asked about epoch 2: the link goes on, and the head is not kept.
        heads.see(&book, head(&key(6), 5, 2)).await.unwrap();
        assert_eq!(book.seen().head.unwrap().head.size, 3);
    }
}
