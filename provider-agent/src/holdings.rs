//! What an owner has in a pool, what stands in the way of each act on it, and the way out. Pure: by the rules of
//! `contracts/solidity/src/Controller.sol`, so that nothing is sent which the contracts refuse.

use selion_api::{Account, Address, Amount, NodeId, TimeMs};
use serde::Serialize;

use crate::join::tokens;

/// What an owner does on chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Takes the node off offer.
    CloseOffer,
    /// Unbinds the node from the owner, and closes its offer.
    Retire,
    /// Asks for this much of the stake back.
    Unbond(Amount),
    /// Takes the stake that has come free, to who is paid.
    WithdrawStake,
    /// Takes the earnings, to who is paid.
    CashOut,
    /// Names another account to be paid.
    SetPayout(Address),
}

impl Act {
    /// Stable snake_case name.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::CloseOffer => "close_offer",
            Self::Retire => "retire",
            Self::Unbond(_) => "unbond",
            Self::WithdrawStake => "withdraw_stake",
            Self::CashOut => "cash_out",
            Self::SetPayout(_) => "set_payout",
        }
    }
}

/// A node as the chain has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Held {
    /// The node.
    pub node: NodeId,
    /// Whose it is; `None` if it is bound to nobody.
    pub provider: Option<Account>,
    /// Whether it is on offer.
    pub on_offer: bool,
}

impl Held {
    /// Whether it is that owner's, and on offer.
    #[must_use]
    pub fn is_offer_of(&self, provider: Account) -> bool {
        self.on_offer && self.provider == Some(provider)
    }
}

/// What an owner has in a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Holdings {
    /// The owner's account.
    pub provider: Account,
    /// Who is paid; `None` if the owner never registered.
    pub payee: Option<Address>,
    /// Stake that counts.
    pub stake: Amount,
    /// The least that the pool takes.
    pub min_stake: Amount,
    /// Stake on its way back.
    pub unbonding: Amount,
    /// When that can be taken.
    pub ready_ms: TimeMs,
    /// How long unbonding takes, in seconds.
    pub unbond_s: u32,
    /// The node in question.
    pub node: Option<Held>,
    /// Offers of all nodes of the owner.
    pub offers: u32,
    /// The other nodes of the owner that are on offer.
    pub others: Vec<NodeId>,
    /// Claimed so far, the operator's fee taken off.
    pub earned: Amount,
    /// The operator's fee.
    pub fee: Amount,
    /// Earnings taken out so far.
    pub paid_out: Amount,
    /// In vouchers of the state directory that nobody has claimed, the fee included.
    pub unclaimed: Amount,
}

/// What stands in the way of an act.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Obstacle {
    /// No node is named, and the state directory has none.
    #[error("the state directory has no node key, and no node is named")]
    NoNode,
    /// The node is another owner's, or nobody's.
    #[error("node {node} is not bound to {provider}: {}", whose(*owner))]
    NotBound {
        /// The node.
        node: NodeId,
        /// Who asks.
        provider: Account,
        /// Whose it is.
        owner: Option<Account>,
    },
    /// The node is not on offer.
    #[error("node {node} is not on offer")]
    NoOffer {
        /// The node.
        node: NodeId,
    },
    /// All of the stake is asked for while offers stand.
    #[error("{} on offer: all of the stake cannot leave while an offer stands", offers(nodes, *count))]
    OffersStand {
        /// How many.
        count: u32,
        /// Of which nodes, as far as the chain's node tells.
        nodes: Vec<NodeId>,
    },
    /// Less than the least stake would be left, and not nothing.
    #[error("{} tokens of stake would be left, and the pool's least is {}", tokens(left.0.into()), tokens(least.0.into()))]
    LeavesTooLittle {
        /// What would be left.
        left: Amount,
        /// The pool's least.
        least: Amount,
    },
    /// More is asked for than there is.
    #[error("{} tokens are asked for, and the stake is {}", tokens(asked.0.into()), tokens(stake.0.into()))]
    StakeTooLow {
        /// What is asked for.
        asked: Amount,
        /// What there is.
        stake: Amount,
    },
    /// There is no stake that could be asked back.
    #[error("{provider} has no stake")]
    NoStake {
        /// Who asks.
        provider: Account,
    },
    /// Nothing is on its way back.
    #[error("no stake is on its way back; {} tokens are staked", tokens(stake.0.into()))]
    NothingUnbonds {
        /// What is staked.
        stake: Amount,
    },
    /// It is too early.
    #[error("{} tokens of stake come free at {} ms UTC", tokens(amount.0.into()), ready.0)]
    NotReady {
        /// How much.
        amount: Amount,
        /// When.
        ready: TimeMs,
    },
    /// No earnings wait in the vault.
    #[error("no earnings of {provider} wait in the vault")]
    NothingDue {
        /// Who asks.
        provider: Account,
    },
    /// The account is no provider of the pool.
    #[error("{provider} is not registered in this pool")]
    NotRegistered {
        /// Who asks.
        provider: Account,
    },
    /// That account is paid already.
    #[error("{payee} is who is paid already")]
    SamePayee {
        /// Who is paid.
        payee: Address,
    },
    /// Only who is paid now can name another.
    #[error("only {payee}, who is paid for {provider} now, can name another account; the key at hand is {here}'s")]
    NotPayee {
        /// Whose earnings.
        provider: Account,
        /// Who is paid.
        payee: Address,
        /// Whose key it is.
        here: Account,
    },
    /// The key in the state directory is another account's.
    #[error("provider {provider} must sign, and the key in the state directory is {here}'s")]
    KeyElsewhere {
        /// Who must.
        provider: Account,
        /// Whose key it is.
        here: Account,
    },
}

impl Holdings {
    /// Earnings that wait in the vault.
    #[must_use]
    pub fn unpaid(&self) -> Amount {
        self.earned.saturating_sub(self.paid_out)
    }

    /// The node in question, if it is the owner's.
    fn bound(&self) -> Result<Held, Obstacle> {
        let held = self.node.ok_or(Obstacle::NoNode)?;
        if held.provider == Some(self.provider) {
            return Ok(held);
        }
        Err(Obstacle::NotBound { node: held.node, provider: self.provider, owner: held.provider })
    }

    /// Whether the contracts would take it at `now`, sent by `by`.
    ///
    /// # Errors
    ///
    /// The first [`Obstacle`].
    pub fn allows(&self, act: Act, by: Account, now: TimeMs) -> Result<(), Obstacle> {
        let provider = self.provider;
        match act {
            Act::CloseOffer => {
                let Held { node, on_offer, .. } = self.bound()?;
                if on_offer { Ok(()) } else { Err(Obstacle::NoOffer { node }) }
            }
            Act::Retire => self.bound().map(drop),
            Act::Unbond(amount) => self.may_unbond(amount),
            Act::WithdrawStake if self.unbonding == Amount::ZERO => Err(Obstacle::NothingUnbonds { stake: self.stake }),
            Act::WithdrawStake if now < self.ready_ms => {
                Err(Obstacle::NotReady { amount: self.unbonding, ready: self.ready_ms })
            }
            Act::WithdrawStake => Ok(()),
            Act::CashOut if self.unpaid() == Amount::ZERO => Err(Obstacle::NothingDue { provider }),
            Act::CashOut => Ok(()),
            Act::SetPayout(to) => match self.payee {
                None => Err(Obstacle::NotRegistered { provider }),
                Some(payee) if payee.0 != by.0 => Err(Obstacle::NotPayee { provider, payee, here: by }),
                Some(payee) if payee == to => Err(Obstacle::SamePayee { payee }),
                Some(_) => Ok(()),
            },
        }
    }

    fn may_unbond(&self, amount: Amount) -> Result<(), Obstacle> {
        if self.stake == Amount::ZERO {
            return Err(Obstacle::NoStake { provider: self.provider });
        }
        if amount > self.stake {
            return Err(Obstacle::StakeTooLow { asked: amount, stake: self.stake });
        }
        let left = self.stake.saturating_sub(amount);
        if left == Amount::ZERO && self.offers > 0 {
            let own = self.node.filter(|held| held.is_offer_of(self.provider)).map(|held| held.node);
            let nodes = own.into_iter().chain(self.others.iter().copied()).collect();
            return Err(Obstacle::OffersStand { count: self.offers, nodes });
        }
        if left > Amount::ZERO && left < self.min_stake {
            return Err(Obstacle::LeavesTooLittle { left, least: self.min_stake });
        }
        Ok(())
    }

    /// What takes the owner out with this node, as far as it goes at `now`, in order. The stake stays while another node is
    /// on offer; earnings are taken when nothing else is left to wait for.
    #[must_use]
    pub fn way_out(&self, now: TimeMs) -> Vec<Act> {
        let mut acts = Vec::new();
        let is_free = self.ready_ms <= now;
        if self.unbonding > Amount::ZERO && is_free {
            // First: what unbonds later would make it wait again.
            acts.push(Act::WithdrawStake);
        }
        let bound = self.bound().ok();
        acts.extend(bound.map(|_| Act::Retire));
        let stays = self.offers > u32::from(bound.is_some_and(|held| held.on_offer));
        if self.stake > Amount::ZERO && !stays {
            acts.push(Act::Unbond(self.stake));
        }
        let waits = !stays && (self.stake > Amount::ZERO || (self.unbonding > Amount::ZERO && !is_free));
        if self.unpaid() > Amount::ZERO && !waits {
            acts.push(Act::CashOut);
        }
        acts
    }
}

fn whose(owner: Option<Account>) -> String {
    owner.map_or_else(|| "it is bound to nobody".to_owned(), |owner| format!("it is {owner}'s"))
}

/// `1 node is`, with the names that are known.
fn offers(nodes: &[NodeId], count: u32) -> String {
    let names: Vec<String> = nodes.iter().map(ToString::to_string).collect();
    let named = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    if count == 1 { format!("1 node{named} is") } else { format!("{count} nodes{named} are") }
}

#[cfg(test)]
#[path = "holdings_tests.rs"]
mod tests;
