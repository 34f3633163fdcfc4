//! Facts of the chain: the registry, and money that came and went. They are never refused, only folded.

use alloc::vec::Vec;

use selion_api::agent::Fence;
use selion_api::chain::{Block, ChainEvent};
use selion_api::lease::Refusal;
use selion_api::{Account, Amount, Licence, NodeId, Reason, TimeMs};

use crate::effect::Answer;
use crate::ledger::Pocket;
use crate::state::{BlockRef, KeyGrant, PoolTerms, Provider};
use crate::step::{Step, Wake};

impl Step<'_> {
    /// A final block. Numbers rise.
    pub(crate) fn block(&mut self, block: &Block) -> Answer {
        if self.state.block.is_some_and(|last| block.number <= last.number) {
            return self.refuse(Refusal::plain(Reason::StaleReport));
        }
        self.state.block = Some(BlockRef { number: block.number, hash: block.hash });
        self.touched.registry = true;
        for event in &block.events {
            self.fold(event);
        }
        // What a block of long ago tells may be due already.
        self.fire_deadlines();
        Answer::Done
    }

    fn fold(&mut self, event: &ChainEvent) {
        match event {
            ChainEvent::PoolOpened { .. } => self.pool_opened(event),
            ChainEvent::ComponentRegistered { owner, kind, endpoint, until } => {
                // The contract keeps one place of each kind: a new one takes the old one's.
                self.state.components.retain(|(who, what, _), _| (*who, *what) != (*owner, *kind));
                self.state.components.insert((*owner, *kind, endpoint.clone()), *until);
            }
            ChainEvent::ProviderRegistered { provider, payout, stake } => {
                let known = Provider { payout: *payout, stake: *stake };
                self.state.providers.insert(*provider, known);
                self.reblock_all(|owner| owner == Some(*provider));
            }
            ChainEvent::StakeChanged { provider, stake } => {
                if let Some(known) = self.state.providers.get_mut(provider) {
                    known.stake = *stake;
                }
                self.reblock_all(|owner| owner == Some(*provider));
            }
            ChainEvent::NodeRegistered { node, provider } => {
                self.node_entry(*node);
                self.state.change_node(*node, None, |node| node.provider = Some(*provider));
                self.reblock(*node);
            }
            ChainEvent::NodeRetired { node } => {
                self.node_entry(*node);
                self.state.change_node(*node, None, |node| {
                    node.provider = None;
                    node.offer = None;
                });
                self.reblock(*node);
            }
            ChainEvent::OfferSet { node, spec_hash, .. } => {
                self.node_entry(*node).offer = Some(*spec_hash);
                self.reblock(*node);
            }
            ChainEvent::OfferClosed { node } => {
                self.node_entry(*node).offer = None;
                self.reblock(*node);
            }
            ChainEvent::AuthorityChanged { epoch, authority, .. } => {
                if let Some(pool) = &mut self.state.pool {
                    pool.epoch = *epoch;
                    pool.authority = *authority;
                }
            }
            ChainEvent::Anchored { size, .. } => {
                if let Some(pool) = &mut self.state.pool {
                    pool.anchored = pool.anchored.max(*size);
                }
            }
            ChainEvent::AnchorsDisowned { size, .. } => {
                if let Some(pool) = &mut self.state.pool {
                    pool.anchored = *size;
                }
            }
            ChainEvent::Deposited { .. }
            | ChainEvent::KeyGranted { .. }
            | ChainEvent::KeyRevoked { .. }
            | ChainEvent::Thawed { .. }
            | ChainEvent::Withdrawn { .. }
            | ChainEvent::Claimed { .. } => self.fold_money(event),
            ChainEvent::LicenceSet { issuer, holder, product, seats, until } => {
                let licence = Licence { issuer: *issuer, product: *product };
                let seating = self.state.licences.entry((licence, *holder)).or_default();
                (seating.seats, seating.until) = (*seats, *until);
                self.wake_up(Wake::All);
            }
            // A renter's own key signs without us, and earnings are the provider's own affair. A forfeited stake is told by
            // StakeChanged, and what an owner has at stake decides nothing here.
            ChainEvent::KeySet { .. }
            | ChainEvent::CashedOut { .. }
            | ChainEvent::FeesCashedOut { .. }
            | ChainEvent::StandbySet { .. }
            | ChainEvent::BondChanged { .. }
            | ChainEvent::Convicted { .. }
            | ChainEvent::Forfeited { .. }
            | ChainEvent::StakeForfeited { .. }
            | ChainEvent::OwnerAnnounced { .. }
            | ChainEvent::Renewed { .. } => {}
        }
    }

    /// The first one sets the terms, for ever.
    fn pool_opened(&mut self, event: &ChainEvent) {
        let ChainEvent::PoolOpened {
            token,
            vault,
            authority,
            fee_bps,
            allow_simulated,
            allow_unsandboxed,
            finality_depth,
            min_stake,
            ..
        } = event
        else {
            return;
        };
        if self.state.pool.is_some() {
            return;
        }
        self.state.pool = Some(PoolTerms {
            token: *token,
            vault: *vault,
            fee_bps: *fee_bps,
            allow_simulated: *allow_simulated,
            allow_unsandboxed: *allow_unsandboxed,
            finality_depth: *finality_depth,
            min_stake: *min_stake,
            authority: *authority,
            epoch: FIRST_EPOCH,
            anchored: 0,
        });
        self.reblock_all(|_| true);
    }

    fn reblock_all(&mut self, whose: impl Fn(Option<Account>) -> bool) {
        let nodes = self.state.nodes.iter().filter(|(_, node)| whose(node.provider));
        let ids: Vec<NodeId> = nodes.map(|(id, _)| *id).collect();
        for id in ids {
            self.reblock(id);
        }
    }

    fn fold_money(&mut self, event: &ChainEvent) {
        self.wake_up(Wake::All);
        match event {
            ChainEvent::Deposited { renter, amount } => {
                if self.transfer(Pocket::Outside, Pocket::Free(*renter), *amount) {
                    let books = self.state.books.entry(*renter).or_default();
                    books.deposited = books.deposited.saturating_add(*amount);
                }
                self.touched.accounts.insert(*renter);
                self.apportion(*renter);
            }
            ChainEvent::KeyGranted { renter, key, cap, until } if *key == self.state.delegate => {
                // The contract grants a revoked key anew when it is dead, and not before.
                self.state.grants.insert(*renter, KeyGrant { cap: *cap, until: *until, revoked: false });
                self.touched.accounts.insert(*renter);
            }
            ChainEvent::KeyRevoked { renter, key, .. } if *key == self.state.delegate => {
                if let Some(grant) = self.state.grants.get_mut(renter) {
                    grant.revoked = true;
                }
                self.touched.accounts.insert(*renter);
                self.end_all_of(*renter, Reason::PaymentRequired);
            }
            ChainEvent::Thawed { renter, amount, ready } => {
                let books = self.state.books.entry(*renter).or_default();
                (books.thawing, books.ready) = (*amount, *ready);
                self.touched.accounts.insert(*renter);
                self.apportion(*renter);
            }
            ChainEvent::Withdrawn { renter, amount } => {
                let first = Pocket::Thawing(*renter);
                let left = self.leave(*renter, first, *amount);
                let books = self.state.books.entry(*renter).or_default();
                books.withdrawn = books.withdrawn.saturating_add(left);
                // The contract forgets the rest as well, where claims left less than was asked back.
                (books.thawing, books.ready) = (Amount::ZERO, TimeMs(0));
                self.apportion(*renter);
            }
            ChainEvent::Claimed { provider, renter, paid, key, .. } => {
                let total = self.state.claimed.entry((*renter, *provider)).or_default();
                *total = total.saturating_add(*paid);
                if *key == Some(self.state.delegate)
                    && let Some(grant) = self.state.grants.get_mut(renter)
                {
                    grant.cap = grant.cap.saturating_sub(*paid);
                }
                let first = Pocket::Owed(*renter, *provider);
                let left = self.leave(*renter, first, *paid);
                let books = self.state.books.entry(*renter).or_default();
                books.claimed = books.claimed.saturating_add(left);
                self.touched.accounts.extend([*renter, *provider]);
                self.apportion(*renter);
            }
            _ => {}
        }
    }

    /// Ends what the renter runs: nothing more can be signed for it, and what ran so far is still paid.
    fn end_all_of(&mut self, renter: Account, reason: Reason) {
        for id in self.leases_of(renter) {
            self.end(id, reason, false);
        }
    }

    /// Money of `renter` that left the vault: out of `first`, and where that does not hold it (the renter signed
    /// more than was billed, or took out what leases counted on) out of what else there is. Tells how much left.
    fn leave(&mut self, renter: Account, first: Pocket, amount: Amount) -> Amount {
        self.touched.accounts.insert(renter);
        let rest = [Pocket::Free(renter), Pocket::Thawing(renter), Pocket::Reserved(renter)];
        let owed: Vec<Pocket> = self.state.ledger.owed_pockets(renter).collect();
        let mut missing = amount;
        for pocket in core::iter::once(first).chain(rest).chain(owed) {
            let part = self.transfer_up_to(pocket, Pocket::Outside, missing);
            missing = missing.saturating_sub(part);
        }
        amount.saturating_sub(missing)
    }

    /// A reorganisation went deeper than the finality rule: no new grants, exits work.
    pub(crate) fn chain_broken(&mut self) -> Answer {
        self.state.chain_broken = true;
        self.touched.registry = true;
        self.wake_up(Wake::All);
        Answer::Done
    }
}

/// The pool's first epoch. Source: the vault's constructor.
pub const FIRST_EPOCH: u32 = 1;

/// True if `stamp` may not decide any more.
pub(crate) fn is_stale(stamp: Fence, state: Fence) -> bool {
    stamp < state
}
