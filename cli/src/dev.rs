//! Money for trying things out: on development chains only.

use selion_api::{Account, Amount};
use selion_contracts::{Pool, Rpc, Signer};

use crate::failure::{Done, Failure};

/// Ids of chains whose coin is worth nothing: Hardhat, Anvil and our own dev chain; `geth --dev`.
const DEV_CHAINS: [u64; 2] = [31_337, 1_337];
/// Below this an account is given gas; and how much, in wei.
const LITTLE_WEI: u128 = 1_000_000_000_000_000_000;
const GIVEN_WEI: u128 = 100 * LITTLE_WEI;

/// Whether money on that chain is play money.
pub fn is_dev_chain(chain_id: u64) -> bool {
    DEV_CHAINS.contains(&chain_id)
}

/// Refuses every other chain.
pub fn require_dev_chain(chain_id: u64, what: &str) -> Done {
    if is_dev_chain(chain_id) {
        return Ok(());
    }
    let detail = format!("{what} is for development chains (31337, 1337); this is chain {chain_id}");
    Err(Failure::usage(detail, "use an account of yours that has the chain's coin and the pool's token"))
}

/// Gives an account gas if it has little.
pub async fn give_gas(rpc: &Rpc, account: Account) -> Done {
    require_dev_chain(rpc.chain_id().await?, "free gas")?;
    if rpc.balance(account).await? < LITTLE_WEI {
        rpc.give_coins(account, GIVEN_WEI).await?;
    }
    Ok(())
}

/// Gives an account gas, and tokens up to `amount`.
pub async fn give_tokens(pool: &Pool, signer: &Signer, amount: Amount) -> Done {
    require_dev_chain(pool.chain_id, "free tokens")?;
    give_gas(&pool.rpc, signer.account()).await?;
    let has = pool.token_balance(signer.address(), selion_contracts::BlockTag::Latest).await?;
    let missing = u128::from(amount.0).saturating_sub(has);
    if missing > 0 {
        pool.send(signer, pool.mint(signer.address(), missing)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_free_money_on_a_foreign_chain() {
        for chain in [31_337, 1_337] {
            assert!(require_dev_chain(chain, "free gas").is_ok());
        }
        for chain in [1, 10, 11_155_111, 0] {
            let failure = require_dev_chain(chain, "free gas").unwrap_err();
            assert!(failure.body().detail.contains(&format!("chain {chain}")), "{failure:?}");
        }
    }
}
