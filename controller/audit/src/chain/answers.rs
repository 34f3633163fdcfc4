//! What a pool's contracts answer, against what their events tell. The interfaces promise that events and the times of
//! their blocks give every stored field: each field is asked for, at one block.

use std::collections::BTreeMap;
use std::fmt::Debug;

use futures::{StreamExt, TryStreamExt, stream};
use selion_api::{Account, Amount};
use selion_contracts::opened::Opened;
use selion_contracts::read::{AccountRecord, HeadRecord};
use selion_contracts::rpc::BlockTag;
use selion_contracts::stored::{Stored, ThawRecord};
use selion_contracts::{Pool, PoolError};

use super::Facts;
use crate::finding::{Check, Finding};

/// Questions that are open at one time.
const AT_ONCE: usize = 16;

/// A pool whose contracts are asked.
struct Asked<'a> {
    pool: &'a Pool,
    facts: &'a Facts,
    stored: &'a Stored,
    /// The block that all questions are about.
    at: BlockTag,
    /// Token base units in a unit.
    scale: u128,
}

/// The first answer that is not as told.
#[derive(Default)]
struct Unlike(Option<Finding>);

impl Unlike {
    fn see<T: PartialEq + Debug>(&mut self, what: impl FnOnce() -> String, told: &T, held: &T) {
        if self.0.is_none() && told != held {
            let detail = format!("{}: events tell {told:?}, the contract says {held:?}", what());
            self.0 = Some(Finding::plain(detail));
        }
    }

    /// Asks for each, some at a time.
    async fn ask<K: Copy, T: PartialEq + Debug, F: Future<Output = Result<T, PoolError>>>(
        &mut self,
        told: impl IntoIterator<Item = (K, T)>,
        what: impl Fn(K) -> String,
        ask: impl Fn(K) -> F,
    ) -> Result<(), PoolError> {
        let asked = stream::iter(told).map(|(key, told)| {
            let held = ask(key);
            async move { Ok::<_, PoolError>((key, told, held.await?)) }
        });
        let mut asked = std::pin::pin!(asked.buffered(AT_ONCE));
        while self.0.is_none()
            && let Some((key, told, held)) = asked.try_next().await?
        {
            self.see(|| what(key), &told, &held);
        }
        Ok(())
    }

    /// A contract has the tokens that it owes.
    fn covers(&mut self, what: &str, there: u128, owed: u128) {
        if self.0.is_none() && there < owed {
            self.0 = Some(Finding::plain(format!("the {what} has {there} and owes {owed}")));
        }
    }

    fn check(self, name: &str, said: String) -> Check {
        Check::of(name, self.0.map_or(Ok(said), Err))
    }
}

/// Asks for everything that the events tell of, at the last final block.
///
/// # Errors
///
/// A node does not answer.
pub(super) async fn check(pool: &Pool, facts: &Facts) -> Result<Vec<Check>, PoolError> {
    let at = facts.last_hash.map_or(BlockTag::Number(facts.last), BlockTag::Hash);
    let scale = pool.scale(at).await?;
    let asked = Asked { pool, facts, stored: &facts.stored, at, scale };
    let accounts = asked.accounts().await?;
    Ok(vec![
        asked.registry().await?,
        asked.renters(&accounts).await?,
        asked.court().await?,
        asked.head().await?,
        asked.vault(&accounts).await?,
    ])
}

impl Asked<'_> {
    async fn accounts(&self) -> Result<BTreeMap<Account, AccountRecord>, PoolError> {
        let ask = |renter: &Account| {
            let renter = *renter;
            async move { Ok((renter, self.pool.account(renter, self.at).await?)) }
        };
        stream::iter(self.stored.accounts.keys()).map(ask).buffered(AT_ONCE).try_collect().await
    }

    /// Units as token base units.
    fn units(&self, amounts: impl IntoIterator<Item = Amount>) -> u128 {
        let sum: u128 = amounts.into_iter().map(|amount| u128::from(amount.0)).sum();
        sum.saturating_mul(self.scale)
    }

    async fn registry(&self) -> Result<Check, PoolError> {
        let Self { pool, facts, stored, at, .. } = *self;
        let mut unlike = Unlike::default();
        unlike.see(|| "owner".into(), &stored.owner, &pool.owner(at).await?);
        unlike.see(|| "announced owner".into(), &stored.announced, &pool.announced(at).await?);
        let epochs = stored.authorities.keys().filter_map(|epoch| Some((*epoch, stored.epoch_of(*epoch)?)));
        let ask = |epoch| pool.epoch_of(epoch, at);
        unlike.ask(epochs, |epoch| format!("owner and anchor of epoch {epoch}"), ask).await?;
        if let Some(Opened { vault, court, terms }) = &facts.opened {
            unlike.see(|| "terms".into(), terms, &pool.terms(at).await?);
            let held = (pool.vault(at).await?, pool.court(at).await?);
            unlike.see(|| "vault and court".into(), &(*vault, *court), &held);
        }
        let present = stored.authorities.last_key_value().map(|(_, (signer, _))| ((), *signer));
        unlike.ask(present, |()| "present authority".into(), |()| pool.authority(at)).await?;
        let authorities = stored.authorities.iter().map(|(epoch, told)| (*epoch, *told));
        let ask = |epoch| pool.authority_of(epoch, at);
        unlike.ask(authorities, |epoch| format!("authority of epoch {epoch} and its end"), ask).await?;
        let standbys = stored.standbys.iter().map(|(who, told)| (*who, *told));
        unlike.ask(standbys, |who| format!("standby {who}"), |who| pool.is_standby(who, at)).await?;
        let providers = stored.providers.iter().map(|(owner, told)| (*owner, Some(*told)));
        unlike.ask(providers, |owner| format!("provider {owner}"), |owner| pool.provider(owner, at)).await?;
        let nodes = stored.nodes.iter().map(|(node, told)| (*node, *told));
        unlike.ask(nodes, |node| format!("node {node}"), |node| pool.node(node, at)).await?;
        let offers = stored.offers.iter().map(|(node, told)| (*node, told.clone()));
        unlike.ask(offers, |node| format!("offer of node {node}"), |node| pool.offer(node, at)).await?;
        let components = stored.components.iter().map(|(whose, (endpoint, until))| {
            let endpoint = if facts.now < *until { endpoint.clone() } else { String::new() };
            (*whose, (endpoint, *until))
        });
        let ask = |(owner, kind)| pool.component_as_stored(owner, kind, at);
        unlike.ask(components, |(owner, kind)| format!("{kind:?} of {owner}"), ask).await?;
        let licences = stored.licences.iter().map(|(whose, told)| (*whose, *told));
        let what = |(issuer, holder, product)| format!("licence of {holder} for {product} of {issuer}");
        unlike.ask(licences, what, |(issuer, holder, product)| pool.licence(issuer, holder, product, at)).await?;
        let bindings = stored.bindings.iter().map(|(whose, told)| (*whose, (true, *told)));
        let what = |(node, provider)| format!("what node {node} was to provider {provider}");
        unlike.ask(bindings, what, |(node, provider)| pool.binding(node, provider, at)).await?;
        let offers = stored.providers.keys().map(|owner| (*owner, stored.offers_of(*owner)));
        unlike.ask(offers, |owner| format!("offers of provider {owner}"), |owner| pool.offers_of(owner, at)).await?;
        unlike.see(|| "what was burnt of stakes".into(), &stored.stakes_burnt, &pool.stakes_burnt(at).await?);
        let stakes = stored.providers.values().flat_map(|held| [held.stake, held.unbonding]);
        let stakes = self.units(stakes.chain([stored.stakes_burnt]));
        unlike.covers("controller", pool.token_balance(pool.at.controller, at).await?, stakes);
        Ok(unlike.check(
            "registry_from_events",
            format!(
                "{} epochs, {} standbys, {} providers, {} nodes, {} components and {} licences, from events as from \
                 the contracts; their stakes are there",
                stored.authorities.len(),
                stored.standbys.values().filter(|allowed| **allowed).count(),
                stored.providers.len(),
                stored.nodes.len(),
                stored.components.len(),
                stored.licences.len()
            ),
        ))
    }

    async fn renters(&self, accounts: &BTreeMap<Account, AccountRecord>) -> Result<Check, PoolError> {
        let Self { pool, stored, at, .. } = *self;
        let mut unlike = Unlike::default();
        for (renter, told) in &stored.accounts {
            let held = accounts.get(renter).copied().unwrap_or_default();
            unlike.see(|| format!("own key of renter {renter}"), &(told.key, told.until), &(held.key, held.until));
        }
        let keys = stored.keys.iter().map(|(whose, told)| (*whose, Some(*told)));
        let what = |(renter, key)| format!("key {key} of renter {renter}");
        unlike.ask(keys, what, |(renter, key)| pool.key(renter, key, at)).await?;
        let thawing = stored.thawing.iter().map(|(renter, told)| (*renter, *told));
        let ask = async |renter| {
            let (amount, ready) = pool.thawing(renter, at).await?;
            Ok(ThawRecord { amount, ready })
        };
        unlike.ask(thawing, |renter| format!("thawing of renter {renter}"), ask).await?;
        Ok(unlike.check(
            "renters_from_events",
            format!(
                "{} own keys, {} delegated or former keys and {} thaws, from events as from the contract",
                stored.accounts.values().filter(|held| held.key != selion_api::Address::ZERO).count(),
                stored.keys.len(),
                stored.thawing.values().filter(|thaw| thaw.amount.0 > 0).count()
            ),
        ))
    }

    async fn court(&self) -> Result<Check, PoolError> {
        let Self { pool, facts, stored, at, .. } = *self;
        let mut unlike = Unlike::default();
        // What was not taken in time is kept again, which no event tells.
        let unbond_delay_s = pool.terms(at).await?.unbond_delay_s;
        let bonds = stored.bonds.iter().map(|(who, told)| (*who, told.at(facts.now, unbond_delay_s)));
        unlike.ask(bonds, |who| format!("bond of {who}"), |who| pool.bond(who, at)).await?;
        let epochs = stored.authorities.keys().map(|epoch| (*epoch, stored.convicted.contains_key(epoch)));
        let ask = |epoch| pool.is_convicted(epoch, at);
        unlike.ask(epochs, |epoch| format!("conviction of epoch {epoch}"), ask).await?;
        unlike.see(|| "what was burnt".into(), &stored.burnt, &pool.burnt(at).await?);
        let bonds = stored.bonds.values().flat_map(|held| [held.kept, held.leaving]);
        let owed = self.units(bonds.chain([stored.burnt]));
        unlike.covers("court", pool.token_balance(pool.at.court, at).await?, owed);
        Ok(unlike.check(
            "court_from_events",
            format!(
                "{} bonds and {} convictions, from events as from the contract, which has what it owes; {} burnt",
                stored.bonds.len(),
                stored.convicted.len(),
                stored.burnt
            ),
        ))
    }

    /// The contract holds the last anchor that its events tell, and the epoch, and when the authority was seen.
    async fn head(&self) -> Result<Check, PoolError> {
        let held = Some(self.pool.head(self.at).await?);
        let mut unlike = Unlike::default();
        unlike.see(|| "anchor".into(), &self.stored.head, &held);
        Ok(unlike.check(
            "anchor_on_chain",
            match held {
                Some(HeadRecord { size: 1.., .. }) => {
                    format!("the newest anchor covers {} entries", held.map_or(0, |held| held.size))
                }
                _ => "nothing is anchored yet".into(),
            },
        ))
    }

    /// Every balance and every claim that the vault answers is what the events give, and the tokens are there.
    async fn vault(&self, accounts: &BTreeMap<Account, AccountRecord>) -> Result<Check, PoolError> {
        let Self { pool, stored, at, .. } = *self;
        let mut unlike = Unlike::default();
        for (renter, told) in &stored.accounts {
            let held = accounts.get(renter).copied().unwrap_or_default();
            unlike.see(|| format!("balance of renter {renter}"), &told.balance, &held.balance);
        }
        let pairs = stored.pairs.iter().map(|(pair, told)| (*pair, *told));
        let what = |(provider, renter)| format!("claims of provider {provider} of renter {renter}");
        unlike.ask(pairs, what, |(provider, renter)| pool.claimed(provider, renter, at)).await?;
        let totals = stored.totals.iter().map(|(provider, told)| (*provider, *told));
        let what = |provider| format!("totals of provider {provider}");
        unlike.ask(totals, what, |provider| pool.totals(provider, at)).await?;
        let fees = stored.fees.iter().map(|(epoch, told)| (*epoch, *told));
        unlike.ask(fees, |epoch| format!("fees of epoch {epoch}"), |epoch| pool.fees_of(epoch, at)).await?;
        let earned = stored.totals.values().map(|totals| totals.earned.saturating_sub(totals.paid_out));
        let earned = earned.chain(stored.fees.values().copied());
        let owed = self.units(stored.accounts.values().map(|held| held.balance).chain(earned));
        let there = pool.token_balance(pool.at.vault, at).await?;
        unlike.covers("vault", there, owed);
        Ok(unlike.check("vault_covers", format!("the vault has {there} and owes {owed}")))
    }
}
