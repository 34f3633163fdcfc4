//! What a pool's first event tells: its terms and its parts.

use ethers_contract::EthEvent as _;
use ethers_core::abi::RawLog;
use selion_api::Address;

use crate::abi::controller::PoolOpenedFilter;
use crate::deploy::{PoolAddresses, PoolTerms};
use crate::rpc::Log;
use crate::word::{address, h256};

/// The event that opened a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opened {
    /// The money.
    pub vault: Address,
    /// The bond of the authority.
    pub court: Address,
    /// All terms, which never change.
    pub terms: PoolTerms,
}

impl Opened {
    /// `None` if the log is another event, or not of this pool's controller.
    #[must_use]
    pub fn read(pool: &PoolAddresses, log: &Log) -> Option<Self> {
        if log.address != pool.controller {
            return None;
        }
        let raw = RawLog { topics: log.topics.iter().copied().map(h256).collect(), data: log.data.clone() };
        let event = PoolOpenedFilter::decode_log(&raw).ok()?;
        Some(Self { vault: address(event.vault), court: address(event.court), terms: event.config.into() })
    }
}
