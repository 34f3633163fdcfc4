//! Vouchers: checked against the chain, kept, acknowledged.

use std::sync::Arc;
use std::time::Duration;

use selion_api::agent::{SignedVoucher, ToController};
use selion_api::{Account, Address, TimeMs};
use selion_contracts::{BlockTag, Pool, PoolError, Voucher};
use tokio::sync::mpsc;

use crate::book::{Book, BookError};
use crate::error::chain;
use crate::event::Event;
use crate::guard::{self, Guard};
use crate::reporter::OnEvent;
use crate::staging::blocking;

/// Pause before the chain is asked again.
const PAUSE: Duration = Duration::from_secs(2);

/// Why a voucher is not kept.
#[derive(Debug, thiserror::Error)]
pub enum VoucherError {
    /// It pays somebody else.
    #[error("the voucher pays {provider}, this node belongs to {ours}")]
    NotOurs {
        /// Whom it pays.
        provider: Account,
        /// Who we are.
        ours: Account,
    },
    /// The authority did not sign it.
    #[error("the voucher of {renter} is not signed by the pool's authority {authority}")]
    NotTheAuthority {
        /// Whose.
        renter: Account,
        /// Who should have.
        authority: Account,
    },
    /// No key of the renter signed it.
    #[error("the voucher of {renter} is signed by {signer}, which is no key of that renter")]
    NotTheRenter {
        /// Whose.
        renter: Account,
        /// Who did; zero if the signature is none.
        signer: Address,
    },
    /// The renter's key ended before the use that it signed for.
    #[error(
        "the voucher of {renter} is signed by {signer} for use until {used_through:?}, but that key ended at {until:?}"
    )]
    KeyEnded {
        /// Whose.
        renter: Account,
        /// The key.
        signer: Address,
        /// Its end.
        until: TimeMs,
        /// What it signed for.
        used_through: TimeMs,
    },
    /// The renter's key was revoked, and its time to claim is over.
    #[error("the voucher of {renter} is signed by {signer}, a key that was revoked and is dead since {since:?}")]
    KeyDead {
        /// Whose.
        renter: Account,
        /// The key.
        signer: Address,
        /// From when its vouchers count no more.
        since: TimeMs,
    },
    /// The chain could not be asked.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// It could not be kept.
    #[error(transparent)]
    Book(#[from] BookError),
}

/// Checks both signatures against the chain's latest block, by the vault's own rules: what passes can be claimed now.
///
/// # Errors
///
/// [`VoucherError`].
pub async fn check(pool: &Pool, ours: Account, signed: &SignedVoucher) -> Result<(), VoucherError> {
    let (renter, provider) = (signed.renter, signed.provider);
    if provider != ours {
        return Err(VoucherError::NotOurs { provider, ours });
    }
    let recover = |signature| Voucher::from(signed).recover(signature, pool.chain_id, pool.at.vault);
    let authority = pool.authority(BlockTag::Latest).await?;
    if recover(&signed.authority_signature) != Some(authority) {
        return Err(VoucherError::NotTheAuthority { renter, authority });
    }
    let Some(signer) = recover(&signed.renter_signature).map(|account| Address(account.0)) else {
        return Err(VoucherError::NotTheRenter { renter, signer: Address::ZERO });
    };
    check_key(pool, renter, signer, signed.used_through).await
}

/// Whether this key of the renter pays for use until then: as the own one, or else as a delegated or former one.
async fn check_key(pool: &Pool, renter: Account, signer: Address, used_through: TimeMs) -> Result<(), VoucherError> {
    let own = Some(pool.account(renter, BlockTag::Latest).await?).filter(|account| account.key == signer);
    if own.is_some_and(|own| used_through <= own.until) {
        return Ok(());
    }
    let other = pool.key(renter, signer, BlockTag::Latest).await?;
    let ends = [own.map(|own| own.until), other.map(|other| other.until)];
    let Some(until) = ends.into_iter().flatten().max() else {
        return Err(VoucherError::NotTheRenter { renter, signer });
    };
    if used_through > until {
        return Err(VoucherError::KeyEnded { renter, signer, until, used_through });
    }
    let Some(since) = other.and_then(|other| other.dead_from) else { return Ok(()) };
    let now_s = pool.rpc.header(BlockTag::Latest).await.map_err(PoolError::from)?.time_s;
    if now_s.saturating_mul(1_000) >= since.0 { Err(VoucherError::KeyDead { renter, signer, since }) } else { Ok(()) }
}

/// Keeps vouchers as they come. One that cannot be checked now is tried again; one that is wrong is not acknowledged.
pub(crate) async fn keep_vouchers(
    mut vouchers: mpsc::Receiver<SignedVoucher>,
    book: Arc<Book>,
    chain_rpc: String,
    ours: Account,
    guard: Arc<Guard>,
    outbound: mpsc::Sender<ToController>,
    on_event: OnEvent,
) {
    let mut pool = None;
    while let Some(voucher) = vouchers.recv().await {
        loop {
            match keep(&mut pool, &book, &chain_rpc, ours, &voucher).await {
                Ok(()) => {
                    let (renter, cumulative) = (voucher.renter, voucher.cumulative);
                    guard.cover(renter, cumulative).await;
                    // If the link is gone the controller sends the voucher again.
                    let _ = outbound.send(ToController::VoucherStored { renter, cumulative }).await;
                    on_event(Event::Voucher { renter, cumulative });
                    break;
                }
                Err(VoucherError::Pool(error)) => {
                    tracing::warn!(error = chain(&error), "a voucher waits: the chain cannot be asked");
                    pool = None;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => {
                    tracing::error!(error = chain(&error), "a voucher was refused");
                    break;
                }
            }
        }
    }
}

async fn keep(
    pool: &mut Option<Pool>,
    book: &Arc<Book>,
    chain_rpc: &str,
    ours: Account,
    voucher: &SignedVoucher,
) -> Result<(), VoucherError> {
    if pool.is_none() {
        *pool = Some(guard::open(book, chain_rpc).await?);
    }
    if let Some(pool) = pool {
        check(pool, ours, voucher).await?;
    }
    let (book, voucher) = (Arc::clone(book), voucher.clone());
    Ok(blocking(move || book.keep_voucher(&voucher)).await?)
}

#[cfg(test)]
#[path = "money_tests.rs"]
pub(crate) mod tests;
