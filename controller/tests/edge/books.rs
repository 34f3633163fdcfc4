//! What a list of events says of a pool, folded anew by rules of our own, to be held against the contracts' own words.

use std::collections::BTreeMap;

use selion_api::chain::{ChainEvent, ComponentKind};
use selion_api::{Account, Address, Amount, Hash32, NodeId, TimeMs};
use selion_contracts::voucher::head_commitment;
use selion_contracts::{BlockTag, Pool};
use selion_market::State;

/// A renter in the vault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Renter {
    pub deposited: u64,
    pub withdrawn: u64,
    pub claimed: u64,
    pub thawing: u64,
    pub key: Address,
}

/// Everything that the pool's events tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Books {
    pub providers: BTreeMap<Account, (Address, Amount)>,
    /// Owner, and what is on offer.
    pub nodes: BTreeMap<NodeId, (Option<Account>, Option<Hash32>)>,
    pub components: BTreeMap<(Account, ComponentKind), (String, TimeMs)>,
    pub renters: BTreeMap<Account, Renter>,
    /// Cap left and whether it is revoked, of keys that are not the renter's own.
    pub grants: BTreeMap<(Account, Address), (Amount, bool)>,
    pub pairs: BTreeMap<(Account, Account), Amount>,
    /// Claimed for a provider, and taken out by it.
    pub earned: BTreeMap<Account, (u64, u64)>,
    pub fees_out: u64,
    pub authority: Account,
    pub epoch: u32,
    pub anchored: Option<(u64, Hash32, Hash32)>,
}

impl Books {
    pub fn of<'a>(events: impl IntoIterator<Item = &'a ChainEvent>) -> Self {
        let mut books = Self::default();
        events.into_iter().for_each(|event| books.fold(event));
        books
    }

    fn renter(&mut self, of: Account) -> &mut Renter {
        self.renters.entry(of).or_default()
    }

    fn fold(&mut self, event: &ChainEvent) {
        match event.clone() {
            ChainEvent::PoolOpened { authority, .. } => (self.authority, self.epoch) = (authority, 1),
            ChainEvent::ComponentRegistered { owner, kind, endpoint, until } => {
                self.components.insert((owner, kind), (endpoint, until));
            }
            ChainEvent::ProviderRegistered { provider, payout, stake } => {
                self.providers.insert(provider, (payout, stake));
            }
            ChainEvent::StakeChanged { provider, stake } => self.providers.get_mut(&provider).unwrap().1 = stake,
            ChainEvent::NodeRegistered { node, provider } => {
                self.nodes.entry(node).or_default().0 = Some(provider);
            }
            ChainEvent::NodeRetired { node } => *self.nodes.entry(node).or_default() = (None, None),
            ChainEvent::OfferSet { node, spec_hash, .. } => {
                self.nodes.entry(node).or_default().1 = Some(spec_hash);
            }
            ChainEvent::OfferClosed { node } => self.nodes.entry(node).or_default().1 = None,
            ChainEvent::AuthorityChanged { epoch, authority, .. } => (self.epoch, self.authority) = (epoch, authority),
            ChainEvent::Anchored { size, root, digest, .. } => self.anchored = Some((size, root, digest)),
            ChainEvent::Deposited { renter, amount } => self.renter(renter).deposited += amount.0,
            ChainEvent::KeySet { renter, key, .. } => self.renter(renter).key = key,
            ChainEvent::KeyGranted { renter, key, cap, .. } => {
                self.grants.insert((renter, key), (cap, false));
            }
            ChainEvent::KeyRevoked { renter, key, .. } => {
                if let Some((_, revoked)) = self.grants.get_mut(&(renter, key)) {
                    *revoked = true;
                }
            }
            ChainEvent::Thawed { renter, amount, .. } => self.renter(renter).thawing = amount.0,
            ChainEvent::Withdrawn { renter, amount } => {
                let renter = self.renter(renter);
                renter.withdrawn += amount.0;
                renter.thawing = 0;
            }
            ChainEvent::Claimed { provider, renter, cumulative, paid, key } => {
                if let Some((cap, _)) = key.and_then(|key| self.grants.get_mut(&(renter, key))) {
                    cap.0 -= paid.0;
                }
                self.renter(renter).claimed += paid.0;
                self.pairs.insert((provider, renter), cumulative);
                self.earned.entry(provider).or_default().0 += paid.0;
            }
            ChainEvent::CashedOut { provider, amount } => self.earned.entry(provider).or_default().1 += amount.0,
            ChainEvent::FeesCashedOut { amount, .. } => self.fees_out += amount.0,
            other => panic!("these books do not know {other:?}"),
        }
    }

    /// Every word of the contracts at `at` is what these events say.
    pub async fn assert_chain_agrees(&self, pool: &Pool, at: BlockTag, now: TimeMs) {
        assert_eq!(pool.authority(at).await.unwrap(), self.authority);
        let head = pool.head(at).await.unwrap();
        let (size, commitment) =
            self.anchored.map_or((0, [0; 16]), |(size, root, digest)| (size, head_commitment(root, digest)));
        assert_eq!((head.epoch, head.size, head.commitment), (self.epoch, size, commitment));
        for (owner, (payout, stake)) in &self.providers {
            let found = pool.provider(*owner, at).await.unwrap().expect("a provider");
            assert_eq!((found.payout, found.stake), (*payout, *stake));
        }
        for (node, (provider, offer)) in &self.nodes {
            assert_eq!(pool.node(*node, at).await.unwrap().provider, *provider);
            assert_eq!(pool.offer(*node, at).await.unwrap().map(|offer| offer.spec_hash), *offer);
        }
        for ((owner, kind), (endpoint, until)) in &self.components {
            let found = pool.component(*owner, *kind, at).await.unwrap();
            assert_eq!(found, (*until > now).then(|| (endpoint.clone(), *until)));
        }
        self.assert_money_agrees(pool, at).await;
    }

    async fn assert_money_agrees(&self, pool: &Pool, at: BlockTag) {
        let mut held = 0;
        for (who, renter) in &self.renters {
            let found = pool.account(*who, at).await.unwrap();
            let balance = renter.deposited - renter.withdrawn - renter.claimed;
            assert_eq!((found.balance, found.key), (Amount(balance), renter.key));
            assert_eq!(pool.thawing(*who, at).await.unwrap().0, Amount(renter.thawing));
            held += balance;
        }
        for ((who, key), (cap, revoked)) in &self.grants {
            let found = pool.key(*who, *key, at).await.unwrap().expect("a key");
            assert_eq!((found.cap_left, found.dead_from.is_some()), (*cap, *revoked));
        }
        for ((provider, renter), cumulative) in &self.pairs {
            assert_eq!(pool.claimed(*provider, *renter, at).await.unwrap().0, *cumulative);
        }
        for (provider, (earned, out)) in &self.earned {
            let totals = pool.totals(*provider, at).await.unwrap();
            assert_eq!((totals.earned.0 + totals.fee.0, totals.paid_out.0), (*earned, *out));
            held += earned - out;
        }
        assert_eq!(pool.token_balance(pool.at.vault, at).await.unwrap(), u128::from(held - self.fees_out));
    }

    /// What the market folded of the same events is the same.
    pub fn assert_state_agrees(&self, state: &State, delegate: Address) {
        let providers: BTreeMap<_, _> =
            state.providers.iter().map(|(who, provider)| (*who, (provider.payout, provider.stake))).collect();
        assert_eq!(providers, self.providers);
        let nodes: BTreeMap<_, _> = state.nodes.iter().map(|(id, node)| (*id, (node.provider, node.offer))).collect();
        assert_eq!(nodes, self.nodes);
        let components: Vec<_> =
            state.components.iter().map(|((owner, kind, at), until)| ((*owner, *kind), (at.clone(), *until))).collect();
        assert_eq!(components, self.components.clone().into_iter().collect::<Vec<_>>());
        let Some(pool) = &state.pool else {
            assert_eq!(*self, Self::default());
            return;
        };
        let anchored = self.anchored.map_or(0, |(size, ..)| size);
        assert_eq!((pool.authority, pool.epoch, pool.anchored), (self.authority, self.epoch, anchored));
        for (who, renter) in &self.renters {
            let found = state.books.get(who).copied().unwrap_or_default();
            let told = (found.deposited.0, found.withdrawn.0, found.claimed.0, found.thawing.0);
            assert_eq!(told, (renter.deposited, renter.withdrawn, renter.claimed, renter.thawing), "{who}");
            let grant = state.grants.get(who).map(|grant| (grant.cap, grant.revoked));
            assert_eq!(grant, self.grants.get(&(*who, delegate)).copied(), "{who}");
        }
    }
}
