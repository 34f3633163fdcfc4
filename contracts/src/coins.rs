//! The chain's own coin for accounts on development chains.

use selion_api::{Account, Address, Hash32};
use serde_json::{Value, json};

use crate::rpc::{Rpc, RpcError};
use crate::tx::{PATIENCE, TxError, wait};
use crate::word::{address_of, hash_of};

/// JSON-RPC's code for a method that a node does not have.
const NO_SUCH_METHOD: i64 = -32_601;

impl Rpc {
    /// Sees to it that an account has this many wei at least. Development chains only: Anvil and our dev chain make
    /// them, `geth --dev` sends them from the one rich account that it signs for itself.
    ///
    /// # Errors
    ///
    /// [`TxError::NoGift`] if the node does neither; any other [`TxError`].
    pub async fn give_coins(&self, to: Account, wei: u128) -> Result<(), TxError> {
        if self.balance(to).await? >= wei {
            return Ok(());
        }
        match self.set_balance(to, wei).await {
            Err(RpcError::Refused { code: NO_SUCH_METHOD, .. }) => {}
            other => return Ok(other?),
        }
        let Some(rich) = self.own_accounts().await?.into_iter().next() else {
            return Err(TxError::NoGift { node: self.node().to_owned(), account: to });
        };
        let sent = self.send_coins(rich, to, wei).await?;
        wait(self, sent, PATIENCE).await.map(drop)
    }

    async fn set_balance(&self, of: Account, wei: u128) -> Result<(), RpcError> {
        self.transport.ask("anvil_setBalance", json!([of.to_string(), format!("{wei:#x}")])).await.map(drop)
    }

    /// Accounts that the node signs for.
    async fn own_accounts(&self) -> Result<Vec<Address>, RpcError> {
        let read = |answer: &Value| answer.as_array()?.iter().map(address_of).collect();
        self.typed("eth_accounts", json!([]), "a list of accounts", read).await
    }

    async fn send_coins(&self, from: Address, to: Account, wei: u128) -> Result<Hash32, RpcError> {
        let transfer = json!({ "from": from.to_string(), "to": to.to_string(), "value": format!("{wei:#x}") });
        self.typed("eth_sendTransaction", json!([transfer]), "a hash", hash_of).await
    }
}
