//! What must be true before a controller decides anything: the chain is the pool's, the key is the authority's, and the
//! log extends what was anchored.

use std::time::Duration;

use selion_api::commit::PoolId;
use selion_api::{Account, Address, Hash32};
use selion_contracts::read::HeadRecord;
use selion_contracts::voucher::head_commitment;
use selion_contracts::{BlockTag, Pool, PoolError, PoolTerms, Rpc, RpcError};

use crate::store::{Store, entry, head};

/// Why the controller does not start.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// No pool is named.
    #[error("no pool is named: make one with `selion pool create`, or name its Controller contract with --pool")]
    NoPoolNamed,
    /// The chain's URL is none, or the node does not answer.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// There is no such pool, or it does not answer as one.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// The pool is on another chain.
    #[error("the pool is on chain {want}, but the node at {node} serves chain {found}; check --chain-rpc")]
    OtherChain {
        /// As named with the pool.
        want: u64,
        /// What the node says.
        found: u64,
        /// Which node.
        node: String,
    },
    /// Our key is not the authority's.
    #[error(
        "the pool's authority is {authority}, but the authority key of this controller is {ours}; \
         name the right key file with --authority-key, or let the pool's owner name {ours} with `selion authority replace`"
    )]
    NotAuthority {
        /// On chain.
        authority: Account,
        /// Ours.
        ours: Account,
    },
    /// The pool decides about the delegate key as well.
    #[error(
        "the delegate key {0} is the pool's authority: one signature would count twice; remove keys/delegate.key and start again"
    )]
    DelegateIsAuthority(Address),
    /// The log is shorter than what was promised.
    #[error(
        "the log has {local} entries, but {anchored} are anchored on chain: this data directory is a restored backup or \
         a copy that stayed behind. Restore the newer copy of the data directory; if it is lost, the pool's owner can give \
         up the anchors, and the bond with them, by `selion authority disown`, after providers have claimed the vouchers \
         that their agents hold"
    )]
    Shorter {
        /// Entries here.
        local: u64,
        /// Entries anchored.
        anchored: u64,
    },
    /// The log is another one than what was promised.
    #[error(
        "the log's first {anchored} entries are not those that are anchored on chain: this data directory was restored \
         from a backup and written since, or belongs to another pool. Restore the copy that was anchored; if it is lost, \
         the pool's owner can give up the anchors, and the bond with them, by `selion authority disown`, after providers \
         have claimed the vouchers that their agents hold"
    )]
    Differs {
        /// Entries anchored.
        anchored: u64,
    },
    /// The store failed.
    #[error("database: {0}")]
    Sql(#[from] sqlx::Error),
}

/// The pool as the chain has it at the start.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Its contracts, and the node.
    pub pool: Pool,
    /// Chain and Controller contract.
    pub id: PoolId,
    /// Fixed terms.
    pub fixed: PoolTerms,
    /// Who decides: our key.
    pub authority: Account,
    /// The authority's epoch.
    pub epoch: u32,
    /// The last anchor.
    pub anchor: HeadRecord,
}

/// Reads the pool from the chain and checks that this controller may act for it. `chain_id` as named with the pool, if
/// it was.
///
/// # Errors
///
/// [`CheckError`], naming what was found and what to do.
pub async fn verify_chain(
    rpc_url: &str,
    controller: Option<Address>,
    chain_id: Option<u64>,
    authority: Account,
    delegate: Address,
) -> Result<Terms, CheckError> {
    let controller = controller.ok_or(CheckError::NoPoolNamed)?;
    let rpc = Rpc::new(rpc_url)?;
    let found = rpc.chain_id().await?;
    if let Some(want) = chain_id.filter(|want| *want != found) {
        let node = rpc.node().to_owned();
        return Err(CheckError::OtherChain { want, found, node });
    }
    let pool = Pool::open(rpc, controller).await?;
    let fixed = pool.terms(BlockTag::Latest).await?;
    let on_chain = pool.authority(BlockTag::Latest).await?;
    if on_chain != authority {
        return Err(CheckError::NotAuthority { authority: on_chain, ours: authority });
    }
    if delegate.0 == on_chain.0 {
        return Err(CheckError::DelegateIsAuthority(delegate));
    }
    let anchor = pool.head(BlockTag::Latest).await?;
    begun(&pool, fixed.finality_depth, anchor.epoch).await?;
    Ok(Terms { id: PoolId { chain_id: found, controller }, pool, fixed, authority, epoch: anchor.epoch, anchor })
}

/// How often it is asked whether the epoch's beginning is final.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Waits until the beginning of an epoch is final. Before that a reorganisation could change which anchor the epoch takes
/// over, and what was signed on top of another one would contradict it. The first epoch takes nothing over.
async fn begun(pool: &Pool, finality_depth: u32, epoch: u32) -> Result<(), CheckError> {
    if epoch <= 1 {
        return Ok(());
    }
    let mut told = false;
    loop {
        if let Some(header) = pool.final_header(finality_depth).await?
            && pool.head(BlockTag::Hash(header.hash)).await?.epoch >= epoch
        {
            return Ok(());
        }
        if !core::mem::replace(&mut told, true) {
            tracing::warn!(epoch, "the epoch began in a block that is not final yet: nothing is signed before it is");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What the local log says about the anchored head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalLog {
    /// Entries.
    pub size: u64,
    /// Root and digest of the head of the anchored size, if such a head was signed here.
    pub at_anchor: Option<(Hash32, Hash32)>,
}

impl LocalLog {
    /// Reads it from the store.
    ///
    /// # Errors
    ///
    /// When SQLite fails.
    pub async fn read(store: &Store, anchor: &HeadRecord) -> sqlx::Result<Self> {
        let signed = head::at(&store.readers, anchor.size).await?;
        Ok(Self {
            size: entry::size(&store.readers).await?,
            at_anchor: signed.map(|signed| (signed.head.root, signed.head.digest)),
        })
    }
}

/// Whether the log extends the anchor. Anchors that the owner disowned count by their size only: what is in them nobody
/// stands by.
///
/// # Errors
///
/// [`CheckError::Shorter`] for a restored backup, [`CheckError::Differs`] for one that was written since.
pub fn verify_log(local: &LocalLog, anchor: &HeadRecord) -> Result<(), CheckError> {
    if anchor.size == 0 {
        return Ok(());
    }
    if local.size < anchor.size {
        return Err(CheckError::Shorter { local: local.size, anchored: anchor.size });
    }
    if anchor.commitment == [0; 16] {
        return Ok(());
    }
    // Every anchored head was signed here, and its row is never deleted.
    match local.at_anchor {
        Some((root, digest)) if head_commitment(root, digest) == anchor.commitment => Ok(()),
        _ => Err(CheckError::Differs { anchored: anchor.size }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn anchor(size: u64) -> HeadRecord {
        HeadRecord {
            epoch: 1,
            size,
            commitment: head_commitment(Hash32([1; 32]), Hash32([2; 32])),
            seen: selion_api::TimeMs(0),
        }
    }

    fn local(size: u64, root: u8) -> LocalLog {
        LocalLog { size, at_anchor: Some((Hash32([root; 32]), Hash32([2; 32]))) }
    }

    #[test]
    fn a_log_that_extends_the_anchor_may_go_on() {
        assert!(verify_log(&local(10, 1), &anchor(10)).is_ok());
        assert!(verify_log(&local(11, 1), &anchor(10)).is_ok());
        assert!(verify_log(&local(0, 9), &anchor(0)).is_ok());
    }

    #[test]
    fn of_disowned_anchors_only_the_size_counts() {
        let disowned = HeadRecord { commitment: [0; 16], ..anchor(10) };
        assert!(verify_log(&local(10, 9), &disowned).is_ok());
        assert!(matches!(verify_log(&local(9, 1), &disowned), Err(CheckError::Shorter { .. })));
    }

    #[test]
    fn a_restored_backup_is_named_with_the_remedy() {
        let error = verify_log(&local(9, 1), &anchor(10)).unwrap_err();
        assert!(matches!(error, CheckError::Shorter { .. }));
        let text = error.to_string();
        assert!(text.contains("restored backup") && text.contains("authority disown"), "{text}");
    }

    #[test]
    fn a_backup_that_was_written_since_is_refused_too() {
        assert!(matches!(verify_log(&local(12, 7), &anchor(10)), Err(CheckError::Differs { .. })));
        let unknown = LocalLog { size: 12, at_anchor: None };
        assert!(verify_log(&unknown, &anchor(10)).is_err());
    }

    #[tokio::test]
    async fn a_pool_that_is_not_named_and_a_chain_that_is_silent_say_what_to_do() {
        let (key, delegate) = (Account([1; 20]), Address([2; 20]));
        let error = verify_chain("http://127.0.0.1:1", None, None, key, delegate).await;
        assert!(error.unwrap_err().to_string().contains("selion pool create"));
        let pool = Some(Address([3; 20]));
        let error = verify_chain("http://127.0.0.1:1", pool, None, key, delegate).await;
        let text = error.unwrap_err().to_string();
        assert!(text.contains("check that the node runs"), "{text}");
    }
}
