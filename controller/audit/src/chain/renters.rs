//! What renters have in the vault beside money: session keys, delegated keys, and what is thawing. Folded from events
//! alone, it equals what the contract answers.

use std::collections::BTreeMap;

use selion_api::chain::ChainEvent;
use selion_api::{Account, Address, Amount, TimeMs};
use selion_contracts::rpc::BlockTag;
use selion_contracts::{Pool, PoolError};

use super::Facts;
use crate::finding::Finding;

/// A key that is not, or no longer, the renter's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Key {
    until: TimeMs,
    dead_from: Option<TimeMs>,
    delegated: bool,
    /// Granted last. Claims lower what is left, and do not tell of which key.
    cap: Amount,
}

#[derive(Default)]
struct Renters {
    own: BTreeMap<Account, (Address, TimeMs)>,
    keys: BTreeMap<(Account, Address), Key>,
    thawing: BTreeMap<Account, (Amount, TimeMs)>,
}

impl Renters {
    fn fold(&mut self, event: &ChainEvent) {
        match event {
            ChainEvent::KeySet { renter, key, until } => {
                self.own.insert(*renter, (*key, *until));
            }
            ChainEvent::KeyGranted { renter, key, cap, until } => {
                let key = self.keys.entry((*renter, *key)).or_default();
                *key = Key { until: *until, dead_from: None, delegated: true, cap: *cap };
            }
            ChainEvent::KeyRevoked { renter, key, dead_from } => self.revoke(*renter, *key, *dead_from),
            ChainEvent::Thawed { renter, amount, ready } => {
                self.thawing.insert(*renter, (*amount, *ready));
            }
            ChainEvent::Withdrawn { renter, .. } => {
                self.thawing.insert(*renter, (Amount(0), TimeMs(0)));
            }
            _ => {}
        }
    }

    /// The own key becomes a former one, which is told before what comes in its place; a delegated one stays delegated.
    fn revoke(&mut self, renter: Account, key: Address, dead_from: TimeMs) {
        let own = self.own.get(&renter).filter(|(own, _)| *own == key).map(|(_, until)| *until);
        let known = self.keys.entry((renter, key)).or_default();
        known.dead_from = Some(dead_from);
        if let Some(until) = own {
            *known = Key { until: known.until.max(until), delegated: false, cap: Amount(0), ..*known };
        }
    }
}

/// Asks the contract for every key and every thaw that the events name.
pub(super) async fn check(pool: &Pool, facts: &Facts, at: BlockTag) -> Result<Result<String, Finding>, PoolError> {
    let mut renters = Renters::default();
    facts.events().for_each(|event| renters.fold(event));
    let differs = |what: String| Ok(Err(Finding::plain(what)));
    for (renter, told) in &renters.own {
        let held = pool.account(*renter, at).await?;
        let held = (held.key, held.until);
        if held != *told {
            return differs(format!("own key of renter {renter}: events tell {told:?}, the contract says {held:?}"));
        }
    }
    for ((renter, key), told) in &renters.keys {
        let held = pool.key(*renter, *key, at).await?;
        let same = held.is_some_and(|held| {
            (held.until, held.dead_from, held.delegated) == (told.until, told.dead_from, told.delegated)
                && held.cap_left <= told.cap
        });
        if !same {
            return differs(format!("key {key} of renter {renter}: events tell {told:?}, the contract says {held:?}"));
        }
    }
    for (renter, told) in &renters.thawing {
        let held = pool.thawing(*renter, at).await?;
        if held != *told {
            return differs(format!("thawing of renter {renter}: events tell {told:?}, the contract says {held:?}"));
        }
    }
    Ok(Ok(format!(
        "{} own keys, {} delegated or former keys and {} thaws, from events as from the contract",
        renters.own.len(),
        renters.keys.len(),
        renters.thawing.len()
    )))
}
