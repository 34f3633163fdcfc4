//! What is looked for, one kind of offence each. A walk may begin at any entry: it holds against the log only what it saw
//! itself, so that no piece of an honest log, however it is cut, accuses anybody.

use std::collections::{BTreeMap, BTreeSet};

use selion_api::agent::SignedReport;
use selion_api::chain::ChainEvent;
use selion_api::commit::{PoolId, signing_digest};
use selion_api::slice::WHOLE_PERMILLE;
use selion_api::{Account, GpuId, NodeId};
use selion_contracts::signer::recover_text;
use selion_market::{Effect, Input, Pocket, State, Transfer};

use super::Offence;
use crate::bills::Bills;
use crate::claims::Claims;
use crate::effects::{GrantSeen, Place, Run, Seen, in_words};
use crate::entries::Item;
use crate::grants::overlap;

/// The pool's first epoch. Source: the vault's constructor.
const FIRST_EPOCH: u32 = 1;

/// An offence that is complete with the entry that was just taken.
pub(super) struct Found {
    pub offence: Offence,
    /// The first entry that is needed to show it.
    pub from: u64,
    /// What was done, in words.
    pub why: String,
}

pub(super) trait Walk {
    /// What is complete with this entry, which follows on the one before.
    fn take(&mut self, item: &Item) -> Vec<Found>;
}

fn seen(item: &Item) -> impl Iterator<Item = (&[u8], Seen)> {
    item.effects.iter().filter_map(|leaf| Some((leaf.as_slice(), Seen::read(leaf)?)))
}

/// Grants of a place that another lease holds. Of each grant one clash is told, of those that are wanted: whoever gives a place
/// to many has made as many pairs as their square.
pub(super) struct DoubleLeases<'a> {
    wanted: &'a dyn Fn(&Offence) -> bool,
    on: BTreeMap<(NodeId, GpuId), Vec<(u64, GrantSeen)>>,
    held: BTreeMap<Run, BTreeSet<(NodeId, GpuId)>>,
}

impl<'a> DoubleLeases<'a> {
    pub(super) fn new(wanted: &'a dyn Fn(&Offence) -> bool) -> Self {
        Self { wanted, on: BTreeMap::new(), held: BTreeMap::new() }
    }
}

impl Walk for DoubleLeases<'_> {
    fn take(&mut self, item: &Item) -> Vec<Found> {
        let mut found = Vec::new();
        for (leaf, effect) in seen(item) {
            match effect {
                Seen::Grant(grant) => {
                    let here = self.on.entry((grant.node, grant.gpu)).or_default();
                    let full = overfull(here, &grant);
                    let clashes = here.iter().filter(|(_, other)| {
                        other.run.0 != grant.run.0 && (clash(other, &grant) || full.is_some() && is_share(other))
                    });
                    let mut told = clashes.map(|(from, other)| (*from, other.run.0, pair(other, &grant)));
                    if let Some((from, holder, offence)) = told.find(|(.., offence)| (self.wanted)(offence)) {
                        let from = full.map_or(from, |(first, _)| first.min(from));
                        let sum = full
                            .map_or_else(String::new, |(_, sum)| format!(", and shares of it come to {sum} permille"));
                        let why = format!(
                            "entry {}: {}. {holder} has the place since entry {from}, and nothing freed it{sum}",
                            item.seq,
                            in_words(leaf)
                        );
                        found.push(Found { offence, from, why });
                    }
                    self.held.entry(grant.run).or_default().insert((grant.node, grant.gpu));
                    here.push((item.seq, grant));
                }
                Seen::Other(effect) => {
                    if let Effect::Freed { lease, attempt, member } = *effect {
                        let run = (lease, attempt, member);
                        for gpu in self.held.remove(&run).unwrap_or_default() {
                            self.on.entry(gpu).or_default().retain(|(_, grant)| grant.run != run);
                        }
                    }
                }
                Seen::Bill(_) => {}
            }
        }
        found
    }
}

fn pair(one: &GrantSeen, other: &GrantSeen) -> Offence {
    Offence::DoubleLease { one: one.run.0, other: other.run.0 }
}

fn is_share(grant: &GrantSeen) -> bool {
    matches!(grant.place, Place::Share { .. })
}

/// The first entry that gave a share of that GPU and the sum of all shares, if that is more than the GPU with the new one.
fn overfull(here: &[(u64, GrantSeen)], new: &GrantSeen) -> Option<(u64, u64)> {
    let share = |grant: &GrantSeen| if let Place::Share { permille, .. } = grant.place { Some(permille) } else { None };
    let shares = here.iter().filter_map(|(_, grant)| share(grant));
    let sum = shares.fold(share(new)?, u64::saturating_add);
    let first = here.iter().find(|(_, grant)| is_share(grant)).map(|(seq, _)| *seq)?;
    (sum > u64::from(WHOLE_PERMILLE)).then_some((first, sum))
}

/// Whether two grants are of one place beyond doubt: what a share beside a MIG instance means, only the market's rules say.
fn clash(one: &GrantSeen, other: &GrantSeen) -> bool {
    match (one.place, other.place) {
        (Place::Share { permille: a, .. }, Place::Share { permille: b, .. }) => {
            a.saturating_add(b) > u64::from(WHOLE_PERMILLE)
        }
        (Place::Share { .. }, Place::Mig { .. }) | (Place::Mig { .. }, Place::Share { .. }) => false,
        (a, b) => overlap(a, b),
    }
}

/// Bills of members whose grant was seen.
pub(super) struct OverBills {
    pool: PoolId,
    whole: bool,
    bills: Bills,
    granted: BTreeMap<Run, u64>,
}

impl OverBills {
    pub(super) fn new(pool: &PoolId, whole: bool) -> Self {
        Self { pool: *pool, whole, bills: Bills::default(), granted: BTreeMap::new() }
    }

    /// A meter that its node did not sign is none.
    fn is_signed(&self, signed: &SignedReport) -> bool {
        let digest = signing_digest(&self.pool, "report", &signed.report);
        recover_text(&digest.0, &signed.signature).is_some_and(|by| by.0 == signed.report.node.0)
    }
}

impl Walk for OverBills {
    fn take(&mut self, item: &Item) -> Vec<Found> {
        if matches!(&item.input, Input::Report(signed) if self.is_signed(signed)) {
            self.bills.hear(item);
        }
        let mut found = Vec::new();
        for (leaf, effect) in seen(item) {
            let run = match effect {
                Seen::Grant(grant) => {
                    self.granted.entry(grant.run).or_insert(item.seq);
                    Some(grant.run)
                }
                Seen::Bill(bill) => Some(bill.run),
                Seen::Other(effect) => match *effect {
                    Effect::Joined { lease, attempt, member } => Some((lease, attempt, member)),
                    _ => None,
                },
            };
            let from = run.map_or(Some(0), |run| self.granted.get(&run).copied().or(self.whole.then_some(0)));
            let Some(from) = from else { continue };
            if let (Err(finding), Some((lease, attempt, member))) = (self.bills.effect(item, leaf), run) {
                let why = format!("entry {}: {}", item.seq, finding.detail);
                found.push(Found { offence: Offence::OverBill { lease, attempt, member }, from, why });
            }
        }
        found
    }
}

/// A pair's voucher.
#[derive(Clone, Copy, Default)]
struct Pair {
    /// The last total, if it was seen.
    total: Option<u64>,
    /// In which entry.
    since: u64,
    /// Billed since then.
    moved: u64,
}

/// Totals of vouchers that are not what was billed, and claims above them.
pub(super) struct OverVouchers {
    whole: bool,
    /// Authority has passed: vouchers of others can be claimed.
    passed: bool,
    /// What bills and running use come to at most: of a whole log only.
    used: Claims,
    pairs: BTreeMap<(Account, Account), Pair>,
}

impl OverVouchers {
    pub(super) fn new(whole: bool) -> Self {
        Self { whole, passed: false, used: Claims::default(), pairs: BTreeMap::new() }
    }

    fn pair(&mut self, renter: Account, provider: Account) -> &mut Pair {
        let total = self.whole.then_some(0);
        self.pairs.entry((renter, provider)).or_insert(Pair { total, ..Pair::default() })
    }
}

impl Walk for OverVouchers {
    fn take(&mut self, item: &Item) -> Vec<Found> {
        let (whole, mut found) = (self.whole, Vec::new());
        let mut tell = |renter, provider, from, why: String| {
            let why = format!("entry {}: {why}", item.seq);
            found.push(Found { offence: Offence::OverVoucher { renter, provider }, from, why });
        };
        let block = if let Input::Block(block) = &item.input { block.events.as_slice() } else { &[] };
        // A voucher of a former authority can be claimed for a while after its epoch, and the log does not say of which a claim is.
        self.passed |= item.entry.fence.epoch != FIRST_EPOCH;
        for event in block {
            self.passed |= matches!(event, ChainEvent::AuthorityChanged { .. });
            if !self.passed
                && let ChainEvent::Claimed { provider, renter, cumulative, .. } = event
                && let Pair { total: Some(total), since, .. } = *self.pair(*renter, *provider)
                && cumulative.0 > total
            {
                let why = format!("{provider} claimed {cumulative} of {renter}, the last voucher total was {total}");
                tell(*renter, *provider, since, why);
            }
        }
        for (leaf, effect) in seen(item) {
            let used = self.used.effect(item, leaf);
            let Seen::Other(effect) = effect else { continue };
            match *effect {
                Effect::Moneyed(Transfer { from: Pocket::Reserved(_), to: Pocket::Owed(renter, provider), amount }) => {
                    let pair = self.pair(renter, provider);
                    pair.moved = pair.moved.saturating_add(amount.0);
                }
                Effect::VoucherDue(due) => {
                    let pair = self.pair(due.renter, due.provider);
                    let Pair { total, since, moved } = *pair;
                    *pair = Pair { total: Some(due.cumulative.0), since: item.seq, moved: 0 };
                    if let Some(total) = total.filter(|total| total.saturating_add(moved) != due.cumulative.0) {
                        let why = format!(
                            "the voucher total of {} to {} is {}, it was {total} and {moved} was billed since",
                            due.renter, due.provider, due.cumulative
                        );
                        tell(due.renter, due.provider, since, why);
                    } else if let (true, Err(finding)) = (whole, used) {
                        tell(due.renter, due.provider, 0, finding.detail);
                    }
                }
                _ => {}
            }
        }
        found
    }
}

/// What a renter has by the chain's facts in the log, and by its transfers.
#[derive(Clone, Default)]
struct Purse {
    /// Deposits less claims and withdrawals.
    balance: i128,
    pockets: BTreeMap<Pocket, u128>,
}

/// Promises of more than a deposit holds. What a renter has is known from State before the first entry only.
pub(super) struct OverPromises {
    knows: bool,
    from: u64,
    purses: BTreeMap<Account, Purse>,
}

/// Whose pocket it is; nobody's outside.
fn owner(pocket: Pocket) -> Option<Account> {
    match pocket {
        Pocket::Outside => None,
        Pocket::Free(renter) | Pocket::Reserved(renter) | Pocket::Thawing(renter) | Pocket::Owed(renter, _) => {
            Some(renter)
        }
    }
}

fn named(pocket: Pocket) -> String {
    match pocket {
        Pocket::Outside => "the chain".into(),
        Pocket::Free(renter) => format!("the free deposit of {renter}"),
        Pocket::Reserved(renter) => format!("what is kept for leases of {renter}"),
        Pocket::Thawing(renter) => format!("what {renter} has on its way back"),
        Pocket::Owed(renter, provider) => format!("what {renter} owes {provider}"),
    }
}

impl OverPromises {
    pub(super) fn new(before: Option<&State>) -> Self {
        let mut purses: BTreeMap<Account, Purse> = BTreeMap::new();
        for (renter, books) in before.iter().flat_map(|state| &state.books) {
            let left = i128::from(books.claimed.0) + i128::from(books.withdrawn.0);
            purses.entry(*renter).or_default().balance = i128::from(books.deposited.0) - left;
        }
        for (pocket, amount) in before.iter().flat_map(|state| state.ledger.pockets()) {
            if let Some(renter) = owner(*pocket) {
                purses.entry(renter).or_default().pockets.insert(*pocket, amount.0.into());
            }
        }
        Self { knows: before.is_some(), from: before.map_or(0, |state| state.next_seq), purses }
    }

    fn fold(&mut self, event: &ChainEvent) {
        let (renter, change) = match event {
            ChainEvent::Deposited { renter, amount } => (renter, i128::from(amount.0)),
            ChainEvent::Withdrawn { renter, amount } => (renter, -i128::from(amount.0)),
            ChainEvent::Claimed { renter, paid, .. } => (renter, -i128::from(paid.0)),
            _ => return,
        };
        self.purses.entry(*renter).or_default().balance += change;
    }

    /// Moves the money, or says why it cannot move like that, and of whose deposit.
    fn apply(&mut self, transfer: Transfer) -> Option<(Account, String)> {
        let Transfer { from, to, amount } = transfer;
        let mut wrong = None;
        if let Some(renter) = owner(from) {
            let pockets = &mut self.purses.entry(renter).or_default().pockets;
            let held = pockets.entry(from).or_default();
            if *held < u128::from(amount.0) {
                wrong = Some((renter, format!("{amount} is taken out of {}, which is {held}", named(from))));
            } else if owner(to).is_some_and(|other| other != renter) {
                let (from, to) = (named(from), named(to));
                wrong = Some((renter, format!("{amount} goes from {from} to {to}, which is another renter's")));
            }
            *held = held.saturating_sub(amount.0.into());
        }
        if let Some(renter) = owner(to) {
            *self.purses.entry(renter).or_default().pockets.entry(to).or_default() += u128::from(amount.0);
        }
        wrong
    }
}

impl Walk for OverPromises {
    fn take(&mut self, item: &Item) -> Vec<Found> {
        if !self.knows {
            return Vec::new();
        }
        if let Input::Block(block) = &item.input {
            block.events.iter().for_each(|event| self.fold(event));
        }
        let (mut wrong, mut touched) = (Vec::new(), BTreeSet::new());
        for (_, effect) in seen(item) {
            if let Seen::Other(effect) = effect
                && let Effect::Moneyed(transfer) = *effect
            {
                touched.extend([owner(transfer.from), owner(transfer.to)].into_iter().flatten());
                wrong.extend(self.apply(transfer));
            }
        }
        for renter in touched {
            let Some(Purse { balance, pockets }) = self.purses.get(&renter) else { continue };
            let promised = i128::try_from(pockets.values().sum::<u128>()).unwrap_or(i128::MAX);
            if promised > *balance {
                wrong.push((renter, format!("{promised} is kept, owed or free of {balance} that {renter} has")));
            }
        }
        let told = |(renter, why): (Account, String)| Found {
            offence: Offence::OverPromise { renter },
            from: self.from,
            why: format!("entry {}: {why}", item.seq),
        };
        wrong.into_iter().map(told).collect()
    }
}
