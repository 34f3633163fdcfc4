//! Taking out what the owner has earned.

use selion_api::{Account, Address, Amount, Hash32};
use selion_contracts::{BlockTag, Pool, Rpc, Signer};
use serde::Serialize;

use crate::agent::PROVIDER_KEY;
use crate::book::Book;
use crate::config::Config;
use crate::courier::Courier;
use crate::join::JoinError;

/// What was taken out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CashedOut {
    /// Whose earnings.
    pub provider: Account,
    /// Who got them.
    pub payee: Address,
    /// How much was there when it was asked for; 0 if there was nothing, and nothing was sent.
    pub amount: Amount,
    /// The transaction.
    pub transaction: Option<Hash32>,
    /// In vouchers of this state directory that nobody has claimed yet, before the operator's fee.
    pub unclaimed: Amount,
}

/// Pays the owner's unpaid earnings out of the vault to who is paid for him in the pool. The key must be in the state
/// directory; it pays the gas, and can send the money nowhere else.
///
/// # Errors
///
/// [`JoinError`].
pub async fn cash_out(config: &Config) -> Result<CashedOut, JoinError> {
    let controller = config.pool.ok_or(JoinError::NoPool)?;
    let pool = Pool::open(Rpc::new(&config.chain_rpc)?, controller).await?;
    // Not through the book: the agent that runs holds its lock.
    let path = config.state_dir.join(PROVIDER_KEY);
    if !path.exists() {
        return Err(JoinError::NoKey { path });
    }
    let owner = Signer::open_or_create(&path)?;
    let provider = owner.account();
    let known = pool.provider(provider, BlockTag::Latest).await?;
    let payee = known.map_or_else(|| owner.address(), |known| known.payout);
    let unclaimed = unclaimed(config, &pool).await?;
    let totals = pool.totals(provider, BlockTag::Latest).await?;
    let amount = totals.earned.saturating_sub(totals.paid_out);
    if amount == Amount::ZERO {
        return Ok(CashedOut { provider, payee, amount, transaction: None, unclaimed });
    }
    let courier = Courier { pool: &pool, signer: &owner, controller: &config.controller, always_relay: config.relay };
    let receipt = courier.send(pool.cash_out(provider)).await?;
    Ok(CashedOut { provider, payee, amount, transaction: Some(receipt.tx), unclaimed })
}

/// What the vouchers promise beyond what the chain has paid for them.
pub(crate) async fn unclaimed(config: &Config, pool: &Pool) -> Result<Amount, JoinError> {
    let mut open = Amount::ZERO;
    for voucher in Book::vouchers_in(&config.state_dir)? {
        let (claimed, _) = pool.claimed(voucher.provider, voucher.renter, BlockTag::Latest).await?;
        open = Amount(open.0.saturating_add(voucher.cumulative.saturating_sub(claimed).0));
    }
    Ok(open)
}
