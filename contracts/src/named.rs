//! What an account ever had in a pool, by the events that name it: keys of a renter, nodes of a provider. Whether it has them
//! still is for the contracts to say.

use std::collections::BTreeSet;

use ethers_contract::EthEvent as _;
use ethers_core::types::H256;
use selion_api::{Account, Address, NodeId};
use serde_json::{Value, json};

use crate::abi::{controller as c, vault as v};
use crate::event::Read;
use crate::history::History;
use crate::pool::{Pool, PoolError};
use crate::rpc::{BlockTag, Log};
use crate::word::{account, address, h160, hex0x};

/// An address as an indexed word.
fn topic(of: Account) -> String {
    hex0x(H256::from(h160(of)).as_bytes())
}

impl Pool {
    /// Every key that ever was the renter's own session key, or that the renter let sign.
    ///
    /// # Errors
    ///
    /// Any [`PoolError`].
    pub async fn keys_of(&self, renter: Account) -> Result<BTreeSet<Address>, PoolError> {
        let kinds = [v::EnteredFilter::signature(), v::KeyGrantedFilter::signature()];
        let mut keys = BTreeSet::new();
        for log in self.logs_about(self.at.vault, json!([kinds, topic(renter)])).await? {
            let named = match Read::log(&self.at, &log)? {
                Some(Read::Vault(v::VaultAbiEvents::EnteredFilter(e))) => (account(e.renter), e.key),
                Some(Read::Vault(v::VaultAbiEvents::KeyGrantedFilter(e))) => (account(e.renter), e.key),
                _ => continue,
            };
            // A node of the chain is not trusted to filter.
            keys.extend((named.0 == renter).then(|| address(named.1)));
        }
        Ok(keys)
    }

    /// Every node that ever was bound to the provider.
    ///
    /// # Errors
    ///
    /// Any [`PoolError`].
    pub async fn nodes_of(&self, provider: Account) -> Result<BTreeSet<NodeId>, PoolError> {
        let kind = c::NodeRegisteredFilter::signature();
        let mut nodes = BTreeSet::new();
        for log in self.logs_about(self.at.controller, json!([kind, null, topic(provider)])).await? {
            if let Some(Read::Controller(c::ControllerAbiEvents::NodeRegisteredFilter(e))) = Read::log(&self.at, &log)?
                && account(e.provider) == provider
            {
                nodes.insert(NodeId(e.node.0));
            }
        }
        Ok(nodes)
    }

    /// The logs of one contract with these topics, of all blocks.
    async fn logs_about(&self, contract: Address, topics: Value) -> Result<Vec<Log>, PoolError> {
        let last = self.rpc.header(BlockTag::Latest).await?.number;
        let mut history = History::about(&self.rpc, contract, topics);
        let (mut logs, mut from) = (Vec::new(), 0);
        while from <= last {
            let told = history.next(from, last).await?;
            logs.extend(told.logs);
            from = told.to.saturating_add(1);
        }
        Ok(logs)
    }
}
