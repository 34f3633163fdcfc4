//! The pool's events as chain facts.

use core::ops::Range;

use ethers_contract::EthLogDecode as _;
use ethers_core::abi::RawLog;
use ethers_core::types::U256;
use selion_api::chain::{ChainEvent, ComponentKind};
use selion_api::{Account, Address, Amount, Hash32, NodeId};

use crate::abi::controller::ControllerAbiEvents as OfController;
use crate::abi::court::CourtAbiEvents as OfCourt;
use crate::abi::vault::VaultAbiEvents as OfVault;
use crate::deploy::PoolAddresses;
use crate::rpc::Log;
use crate::word::{account, address, h256, lane64, ms};

/// An event of the pool that this release does not know. Nothing may be skipped, so the reader has to stop.
#[derive(Debug, thiserror::Error)]
#[error(
    "{contract} emitted an event that this release does not know (block {block}, log {index}, kind {kind}): {why}; \
         use the release that matches the pool's contracts"
)]
pub struct EventError {
    /// Which contract.
    pub contract: Address,
    /// Height of the block.
    pub block: u64,
    /// Place of the log in it.
    pub index: u64,
    /// The event's first topic.
    pub kind: Hash32,
    /// What did not fit.
    pub why: String,
}

/// A log of the pool, read. It holds more than the facts: what only storage keeps.
pub(crate) enum Read {
    Controller(OfController),
    Vault(OfVault),
    Court(OfCourt),
}

impl Read {
    /// `None` if the log is of another address than this pool's contracts.
    pub(crate) fn log(pool: &PoolAddresses, log: &Log) -> Result<Option<Self>, EventError> {
        let raw = || RawLog { topics: log.topics.iter().copied().map(h256).collect(), data: log.data.clone() };
        let read = if log.address == pool.controller {
            OfController::decode_log(&raw()).map(Self::Controller)
        } else if log.address == pool.vault {
            OfVault::decode_log(&raw()).map(Self::Vault)
        } else if log.address == pool.court {
            OfCourt::decode_log(&raw()).map(Self::Court)
        } else {
            return Ok(None);
        };
        read.map(Some).map_err(|error| unknown(log, error.to_string()))
    }
}

/// An event that does not fit.
pub(crate) fn unknown(log: &Log, why: String) -> EventError {
    EventError {
        contract: log.address,
        block: log.block_number,
        index: log.index,
        kind: log.topics.first().copied().unwrap_or(Hash32::ZERO),
        why,
    }
}

/// Which rows of the next claim came out of the cap of which key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spends(Vec<(Address, Range<usize>)>);

impl Spends {
    /// Remembers what a log says of the claim after it.
    pub(crate) fn note(&mut self, key: Address, first: U256, count: U256) {
        let [first, count] = [first, count].map(|number| usize::try_from(number).unwrap_or(usize::MAX));
        self.0.push((key, first..first.saturating_add(count)));
    }

    /// The key of each of the rows of a claim, which ends what was noted.
    pub(crate) fn take(&mut self, rows: usize) -> Vec<Option<Address>> {
        let spends = core::mem::take(&mut self.0);
        let of = |row| spends.iter().find(|(_, rows)| rows.contains(&row)).map(|(key, _)| *key);
        (0..rows).map(of).collect()
    }
}

/// The facts in logs that follow each other, in order; logs of other addresses give none.
///
/// # Errors
///
/// [`EventError`] if an event of the pool is not known.
pub fn decode(pool: &PoolAddresses, logs: &[Log]) -> Result<Vec<ChainEvent>, EventError> {
    let mut facts = Vec::new();
    let mut spends = Spends::default();
    for log in logs {
        match Read::log(pool, log)? {
            None => {}
            Some(Read::Controller(event)) => facts.push(of_controller(event).map_err(|why| unknown(log, why))?),
            Some(Read::Vault(event)) => facts.extend(of_vault(event, &mut spends)),
            Some(Read::Court(event)) => facts.push(of_court(&event)),
        }
    }
    Ok(facts)
}

fn of_controller(event: OfController) -> Result<ChainEvent, String> {
    let fact = match event {
        OfController::PoolOpenedFilter(e) => ChainEvent::PoolOpened {
            token: address(e.config.token),
            vault: address(e.vault),
            owner: account(e.config.owner),
            authority: account(e.config.authority),
            fee_bps: e.config.fee_bps,
            allow_simulated: e.config.allow_simulated,
            allow_unsandboxed: e.config.allow_unsandboxed,
            finality_depth: e.config.finality_depth,
            min_stake: Amount(e.config.min_stake),
        },
        OfController::ComponentRegisteredFilter(e) => ChainEvent::ComponentRegistered {
            owner: account(e.owner),
            kind: component_kind(e.kind)?,
            endpoint: e.endpoint,
            until: ms(e.until),
        },
        OfController::ProviderRegisteredFilter(e) => ChainEvent::ProviderRegistered {
            provider: account(e.provider),
            payout: address(e.payout),
            stake: Amount(e.stake),
        },
        OfController::StakeChangedFilter(e) => {
            ChainEvent::StakeChanged { provider: account(e.provider), stake: Amount(e.stake) }
        }
        OfController::NodeRegisteredFilter(e) => {
            ChainEvent::NodeRegistered { node: NodeId(e.node.0), provider: account(e.provider) }
        }
        OfController::NodeRetiredFilter(e) => ChainEvent::NodeRetired { node: NodeId(e.node.0) },
        OfController::OfferSetFilter(e) => {
            ChainEvent::OfferSet { node: NodeId(e.node.0), spec_hash: Hash32(e.spec_hash), classes: e.classes }
        }
        OfController::OfferClosedFilter(e) => ChainEvent::OfferClosed { node: NodeId(e.node.0) },
        OfController::StakeForfeitedFilter(e) => ChainEvent::StakeForfeited {
            provider: account(e.provider),
            node: NodeId(e.node.0),
            amount: Amount(e.amount),
        },
        OfController::OwnerAnnouncedFilter(e) => {
            ChainEvent::OwnerAnnounced { next: account(e.next), ready: ms(e.ready_at) }
        }
        OfController::AnchorsDisownedFilter(e) => ChainEvent::AnchorsDisowned { epoch: e.epoch, size: e.size },
        OfController::AuthorityChangedFilter(e) => {
            ChainEvent::AuthorityChanged { epoch: e.epoch, authority: account(e.authority), owner: account(e.owner) }
        }
        OfController::AnchoredFilter(e) => {
            ChainEvent::Anchored { epoch: e.epoch, size: e.size, root: Hash32(e.root), digest: Hash32(e.digest) }
        }
        OfController::RenewedFilter(e) => ChainEvent::Renewed { epoch: e.epoch },
        OfController::StandbySetFilter(e) => ChainEvent::StandbySet { standby: account(e.standby), allowed: e.allowed },
        OfController::LicenceSetFilter(e) => ChainEvent::LicenceSet {
            issuer: account(e.issuer),
            holder: account(e.holder),
            product: Hash32(e.product),
            seats: e.seats,
            until: ms(e.until),
        },
    };
    Ok(fact)
}

/// The number in the contract's enum.
pub(crate) fn component_kind(number: u8) -> Result<ComponentKind, String> {
    match number {
        0 => Ok(ComponentKind::Controller),
        1 => Ok(ComponentKind::Gateway),
        2 => Ok(ComponentKind::Relay),
        other => Err(format!("component kind {other}")),
    }
}

fn of_vault(event: OfVault, spends: &mut Spends) -> Vec<ChainEvent> {
    let fact = match event {
        OfVault::DepositedFilter(e) => ChainEvent::Deposited { renter: account(e.renter), amount: Amount(e.amount) },
        OfVault::EnteredFilter(e) => {
            let renter = account(e.renter);
            let key = ChainEvent::KeySet { renter, key: address(e.key), until: ms(e.until.into()) };
            let deposit = ChainEvent::Deposited { renter, amount: Amount(e.amount) };
            return if e.amount == 0 { vec![key] } else { vec![deposit, key] };
        }
        OfVault::KeyClearedFilter(e) => {
            ChainEvent::KeySet { renter: account(e.renter), key: Address::ZERO, until: ms(0) }
        }
        OfVault::KeyGrantedFilter(e) => ChainEvent::KeyGranted {
            renter: account(e.renter),
            key: address(e.key),
            cap: Amount(e.cap),
            until: ms(e.until.into()),
        },
        OfVault::KeyRevokedFilter(e) => {
            ChainEvent::KeyRevoked { renter: account(e.renter), key: address(e.key), dead_from: ms(e.dead_from.into()) }
        }
        OfVault::ThawedFilter(e) => {
            ChainEvent::Thawed { renter: account(e.renter), amount: Amount(e.amount), ready: ms(e.ready_at) }
        }
        OfVault::WithdrawnFilter(e) => ChainEvent::Withdrawn { renter: account(e.renter), amount: Amount(e.amount) },
        OfVault::SpentFilter(e) => {
            spends.note(address(e.key), e.first, e.count);
            return Vec::new();
        }
        OfVault::ClaimedFilter(e) => {
            let keys = spends.take(e.rows.len() / 2);
            return claims(account(e.provider), &e.rows, &keys);
        }
        OfVault::CashedOutFilter(e) => {
            ChainEvent::CashedOut { provider: account(e.provider), amount: Amount(e.amount) }
        }
        OfVault::FeesCashedOutFilter(e) => ChainEvent::FeesCashedOut { epoch: e.epoch, amount: Amount(e.amount) },
    };
    vec![fact]
}

fn of_court(event: &OfCourt) -> ChainEvent {
    match event {
        OfCourt::BondChangedFilter(e) => ChainEvent::BondChanged {
            owner: account(e.owner),
            kept: Amount(e.kept),
            leaving: Amount(e.leaving),
            ready: ms(e.ready_at),
        },
        OfCourt::ConvictedFilter(e) => {
            ChainEvent::Convicted { owner: account(e.owner), epoch: e.epoch, amount: Amount(e.amount) }
        }
        OfCourt::ForfeitedFilter(e) => ChainEvent::Forfeited { owner: account(e.owner), amount: Amount(e.amount) },
    }
}

/// Two words a voucher: renter(160) | .. and claimed(64) | paid(64) | ..
fn claims(provider: Account, rows: &[U256], keys: &[Option<Address>]) -> Vec<ChainEvent> {
    let rows = rows.chunks_exact(2).zip(keys);
    rows.map(|(row, key)| ChainEvent::Claimed {
        provider,
        renter: renter_of(row[0]),
        cumulative: Amount(lane64(row[1], 192)),
        paid: Amount(lane64(row[1], 128)),
        key: *key,
    })
    .collect()
}

/// The renter in a voucher's first word.
pub(crate) fn renter_of(a: U256) -> Account {
    let mut word = [0; 32];
    a.to_big_endian(&mut word);
    let mut renter = [0; 20];
    renter.copy_from_slice(&word[..20]);
    Account(renter)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POOL: PoolAddresses = PoolAddresses {
        factory: Address([1; 20]),
        controller: Address([2; 20]),
        vault: Address([3; 20]),
        court: Address([5; 20]),
        token: Address([4; 20]),
    };

    fn node_retired(address: Address) -> Log {
        let kind = ethers_core::utils::keccak256("NodeRetired(address,address)");
        let (mut node, mut provider) = ([0; 32], [0; 32]);
        node[12..].copy_from_slice(&[7; 20]);
        provider[12..].copy_from_slice(&[8; 20]);
        let topics = [kind, node, provider].map(Hash32).to_vec();
        Log { address, topics, data: vec![], block_number: 1, block_hash: Hash32::ZERO, tx: Hash32::ZERO, index: 0 }
    }

    #[test]
    fn a_log_of_the_controller_is_a_fact_and_of_another_address_is_none() {
        let fact = ChainEvent::NodeRetired { node: NodeId([7; 20]) };
        assert_eq!(decode(&POOL, &[node_retired(POOL.controller)]).expect("known"), vec![fact]);
        assert_eq!(decode(&POOL, &[node_retired(Address([9; 20]))]).expect("foreign"), vec![]);
    }

    #[test]
    fn a_log_that_only_the_controller_may_emit_is_refused_from_the_vault() {
        let error = decode(&POOL, &[node_retired(POOL.vault)]).expect_err("unknown to the vault").to_string();
        assert!(error.contains("does not know") && error.contains("release"), "{error}");
    }

    #[test]
    fn a_row_of_a_claim_is_of_the_key_that_spent_it_and_of_no_later_claim() {
        let (one, other) = (Address([1; 20]), Address([2; 20]));
        let mut spends = Spends::default();
        spends.note(one, 0.into(), 2.into());
        spends.note(other, 3.into(), 1.into());
        assert_eq!(spends.take(5), [Some(one), Some(one), None, Some(other), None]);
        assert_eq!(spends.take(2), [None, None]);
    }
}
