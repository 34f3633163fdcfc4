//! A pool whose parts each take their time: blocks become final late, vouchers are signed at an interval, claimed at another.

use std::collections::{BTreeMap, VecDeque};

use selion_api::agent::{Fence, MemberEvent};
use selion_api::chain::ChainEvent;
use selion_api::lease::LeaseState;
use selion_api::{Account, Amount, LeaseId, TimeMs};
use selion_controller::loops::vouchers::{Office, judge};
use selion_controller::store::voucher::VoucherRow;
use selion_market::state::Progress;
use selion_market::{Effect, Input, Pocket, Policy, Transfer, VoucherDue};

use crate::pool::{DELEGATE, HOUR, Pool, a100, renter, spec};
use crate::vault::{Signed, Vault};

pub const MINUTE: u64 = 60_000;
/// A voucher is due so often, and agents read their meters so often.
pub const VOUCHER: u64 = 10 * MINUTE;
/// What is signed is claimed after so long, and tried again.
pub const CLAIM: u64 = 30 * MINUTE;
/// A block is final after so long.
pub const LAG: u64 = 20 * MINUTE;
/// What runs on money that thaws stops so long before that may leave.
pub const MARGIN: u64 = VOUCHER + CLAIM + LAG + MINUTE;
pub const RENTERS: u8 = 3;

type Pair = (Account, Account);

pub struct World {
    pub pool: Pool,
    pub vault: Vault,
    /// Blocks that are not final, with when they are.
    blocks: VecDeque<(u64, Vec<ChainEvent>)>,
    heard: usize,
    due: BTreeMap<Pair, VoucherRow>,
    /// What the log took out of the renter's reserve for the provider.
    billed: BTreeMap<Pair, u64>,
    signed: BTreeMap<Pair, Signed>,
    /// Pairs with something to claim, by when that is tried next.
    sweep: BTreeMap<Pair, u64>,
    /// False while nobody claims: the operator has no gas.
    pub has_gas: bool,
    /// False while nothing is signed: the controller is slow, or away.
    pub signs: bool,
    meters: u64,
    /// What agents served, at the rates granted.
    served: BTreeMap<(LeaseId, u32, u16), (Pair, u64)>,
    /// What one interval of each lease costs, by pair.
    pub at_risk: BTreeMap<Pair, BTreeMap<LeaseId, u64>>,
}

impl World {
    pub fn new(thaw_ms: u64) -> Self {
        let mut pool = Pool::new();
        let policy = Policy { voucher_ms: VOUCHER, claim_margin_ms: MARGIN, ..Policy::default() };
        pool.enter(Input::Opened { delegate: DELEGATE, policy });
        for node in 1..=3 {
            pool.node(spec(node, (0..2).map(|rank| a100(node, rank)).collect()));
        }
        let mut world = Self {
            vault: Vault::new(thaw_ms, 6 * HOUR),
            blocks: VecDeque::new(),
            heard: 0,
            due: BTreeMap::new(),
            billed: BTreeMap::new(),
            signed: BTreeMap::new(),
            sweep: BTreeMap::new(),
            has_gas: true,
            signs: true,
            meters: pool.now + VOUCHER,
            served: BTreeMap::new(),
            at_risk: BTreeMap::new(),
            pool,
        };
        for who in 1..=RENTERS {
            let deposit = world.vault.deposit(renter(who), 30 * crate::pool::TOKEN);
            world.mine(vec![deposit]);
        }
        // What the key may sign for is more than the first has, and less than the second; the third's ends soon.
        for (who, cap, hours) in [(1, 1_000_000, 100_000), (2, 20, 100_000), (3, 1_000_000, 40)] {
            world.grant(renter(who), cap * crate::pool::TOKEN, hours);
        }
        world.pass(LAG);
        world
    }

    pub fn mine(&mut self, events: Vec<ChainEvent>) {
        if !events.is_empty() {
            self.blocks.push_back((self.pool.now + LAG, events));
        }
    }

    /// The key may sign for so much more than before, and until so many hours from now if that is later.
    pub fn grant(&mut self, renter: Account, more: u64, hours: u64) {
        let (cap, until) = self.vault.left(renter);
        let (cap, until) = (cap + more, until.max(self.pool.now + hours * HOUR));
        let granted = self.vault.grant(renter, cap, until, self.pool.now);
        self.mine(granted.into_iter().collect());
    }

    /// Lets time pass: everything happens when it is due.
    pub fn pass(&mut self, ms: u64) {
        let end = self.pool.now + ms;
        self.happen();
        loop {
            let block = self.blocks.front().map(|(at, _)| *at);
            let sweep = self.sweep.values().min().copied().filter(|_| self.has_gas);
            let deadline = self.pool.state.next_deadline().map(|at| at.0);
            let next = [block, sweep, deadline, Some(self.meters)].into_iter().flatten().min().unwrap_or(end);
            self.pool.now = self.pool.now.max(next.min(end));
            if next > end {
                break;
            }
            self.happen();
        }
        self.happen();
    }

    fn happen(&mut self) {
        let now = self.pool.now;
        while self.blocks.front().is_some_and(|(at, _)| *at <= now) {
            let (_, events) = self.blocks.pop_front().unwrap();
            self.pool.block(events);
            self.take_over();
        }
        while self.pool.state.next_deadline().is_some_and(|at| at.0 <= now) {
            self.pool.enter(Input::Tick);
        }
        self.agents();
        self.sign();
        self.claim();
    }

    /// The next authority goes on with the log as soon as it hears that it is it.
    fn take_over(&mut self) {
        let epoch = self.pool.state.pool.as_ref().unwrap().epoch;
        if epoch != self.pool.fence.epoch {
            self.pool.fence = Fence { epoch, term: self.pool.fence.term + 1 };
            let policy = self.pool.state.policy.clone();
            self.pool.enter(Input::Opened { delegate: DELEGATE, policy });
        }
    }

    /// Every agent does what it is told at once, and reads its meter at the interval.
    fn agents(&mut self) {
        let (now, reads) = (self.pool.now, self.pool.now >= self.meters);
        if reads {
            self.meters = now + VOUCHER;
        }
        loop {
            let mut said = false;
            let live = self.pool.state.leases.iter().filter(|(_, lease)| lease.state != LeaseState::Ended);
            let members: Vec<(LeaseId, u16)> =
                live.flat_map(|(id, lease)| (0..lease.members.len()).map(|rank| (*id, rank as u16))).collect();
            for (id, rank) in members {
                said |= self.agent(id, rank);
            }
            if !said {
                break;
            }
        }
        let active = self.pool.state.leases.iter().filter(|(_, lease)| lease.state == LeaseState::Active);
        let active: Vec<(LeaseId, usize)> = active.map(|(id, lease)| (*id, lease.members.len())).collect();
        for (id, members) in active {
            for rank in 0..members as u16 {
                let metered = self.meter(id, rank);
                if reads && self.pool.state_of(id) == LeaseState::Active {
                    self.pool.report(id, rank, MemberEvent::Metered, metered);
                }
            }
        }
    }

    /// What the member served so far, in milliseconds; noted.
    fn meter(&mut self, id: LeaseId, rank: u16) -> u64 {
        let lease = self.pool.get(id);
        let member = &lease.members[usize::from(rank)];
        let Some(since) = member.since else {
            return 0;
        };
        let metered = self.pool.now - since.0;
        let pair = (lease.request.renter, member.provider);
        let (rate, run) = (member.rate, (id, member.attempt, rank));
        self.served.insert(run, (pair, rate.bill(metered).0));
        let interval = VOUCHER + CLAIM + LAG + VOUCHER;
        self.at_risk.entry(pair).or_default().insert(id, lease.members.len() as u64 * rate.reserve(interval).0);
        metered
    }

    /// The next step of a member, if there is one.
    fn agent(&mut self, id: LeaseId, rank: u16) -> bool {
        let lease = self.pool.get(id);
        let progress = lease.members.get(usize::from(rank)).map_or(Progress::Gone, |member| member.progress);
        let event = match (lease.state, progress) {
            (LeaseState::Waiting | LeaseState::Ended, _) | (_, Progress::Gone) => return false,
            (LeaseState::Ending, _) => MemberEvent::Stopped { outputs: None },
            (_, Progress::Granted) => MemberEvent::Accepted,
            (_, Progress::Accepted) => MemberEvent::Ready,
            (LeaseState::Starting, Progress::Ready) => MemberEvent::Running,
            _ => return false,
        };
        let metered = self.meter(id, rank);
        self.pool.report(id, rank, event, metered);
        true
    }

    /// Notes what the log bills. A total is what was taken out of the reserve, to the unit.
    fn hear(&mut self) {
        for (entry, outcome) in self.pool.outcomes.iter().enumerate().skip(self.heard) {
            for effect in &outcome.effects {
                match *effect {
                    Effect::Moneyed(Transfer { from: Pocket::Reserved(_), to: Pocket::Owed(who, whom), amount }) => {
                        *self.billed.entry((who, whom)).or_default() += amount.0;
                    }
                    Effect::VoucherDue(VoucherDue { renter, provider, cumulative, used_through }) => {
                        assert_eq!(self.billed.get(&(renter, provider)), Some(&cumulative.0), "{renter} to {provider}");
                        let log_size = entry as u64 + 1;
                        let row = VoucherRow { renter, provider, cumulative, used_through, log_size };
                        self.due.insert((renter, provider), row);
                    }
                    _ => {}
                }
            }
        }
        self.heard = self.pool.outcomes.len();
    }

    /// The controller signs what is due, as its loop does.
    fn sign(&mut self) {
        self.hear();
        if !self.signs {
            return;
        }
        let office = Office {
            fence: self.pool.fence,
            authority: self.pool.state.pool.as_ref().unwrap().authority,
            delegate: DELEGATE,
        };
        for (pair, row) in &self.due {
            let have = self.signed.get(pair).map_or((0, 0), |signed| (signed.cumulative, signed.epoch));
            if (row.cumulative.0, office.fence.epoch) <= have {
                continue;
            }
            let Ok(voucher) = judge(&self.pool.state, &office, row, Amount(have.0), TimeMs(self.pool.now)) else {
                continue;
            };
            let (cumulative, used_through) = (voucher.cumulative.0, voucher.used_through.0);
            self.signed.insert(*pair, Signed { cumulative, used_through, epoch: voucher.epoch });
            self.sweep.entry(*pair).or_insert(self.pool.now + CLAIM);
            if self.blocks.is_empty() && cumulative > have.0 {
                self.promises_stay(pair.0);
            }
        }
    }

    /// Everybody's vouchers are claimed when it is time for them.
    fn claim(&mut self) {
        let now = self.pool.now;
        if !self.has_gas {
            return;
        }
        let ripe: Vec<Pair> = self.sweep.iter().filter(|(_, at)| **at <= now).map(|(pair, _)| *pair).collect();
        for pair in ripe {
            let events = self.vault.claim(pair.0, pair.1, self.signed[&pair], now);
            self.mine(events);
            if self.open(pair) == 0 {
                self.sweep.remove(&pair);
            } else {
                self.sweep.insert(pair, now + CLAIM);
            }
        }
    }

    /// What is signed for a pair and not claimed.
    fn open(&self, pair: Pair) -> u64 {
        let signed = self.signed.get(&pair).map_or(0, |signed| signed.cumulative);
        signed.saturating_sub(self.vault.claimed.get(&pair).copied().unwrap_or(0))
    }

    /// What is signed for a renter and not claimed.
    fn promised(&self, renter: Account) -> u64 {
        self.signed.keys().filter(|pair| pair.0 == renter).map(|pair| self.open(*pair)).sum()
    }

    /// What has just been signed is in the vault with all that was before, and cannot leave in the next moment.
    fn promises_stay(&self, renter: Account) {
        let deposit = self.vault.deposits.get(&renter).copied().unwrap_or_default();
        let leaving = if deposit.ready <= self.pool.now { deposit.thawing.min(deposit.balance) } else { 0 };
        let (promised, stays) = (self.promised(renter), deposit.balance - leaving);
        assert!(promised <= stays, "{promised} is promised, and {stays} of {renter} stays in the vault");
    }

    /// All that is signed and not claimed is in the vault.
    pub fn promises_fit(&self, renter: Account) {
        let promised = self.promised(renter);
        let balance = self.vault.deposits.get(&renter).map_or(0, |deposit| deposit.balance);
        assert!(promised <= balance, "{promised} is promised of {balance} that {renter} has in the vault");
    }

    /// Ends all leases and claims all that is signed. Tells what each pair is served and not paid.
    pub fn settle(&mut self) -> BTreeMap<Pair, u64> {
        let live = self.pool.state.leases.iter().filter(|(_, lease)| lease.state != LeaseState::Ended);
        let live: Vec<LeaseId> = live.map(|(id, _)| *id).collect();
        for id in live {
            self.pool.release(id);
        }
        self.pass(CLAIM + LAG);
        if self.blocks.is_empty() {
            (1..=RENTERS).for_each(|who| self.keys_agree(renter(who)));
        }
        let mut unpaid: BTreeMap<Pair, u64> = BTreeMap::new();
        for (pair, worth) in self.served.values() {
            *unpaid.entry(*pair).or_default() += worth;
        }
        for (pair, worth) in &mut unpaid {
            *worth = worth.saturating_sub(self.vault.claimed.get(pair).copied().unwrap_or(0));
        }
        unpaid
    }

    /// State knows of a renter's key what the vault does.
    fn keys_agree(&self, renter: Account) {
        let known = self.pool.state.grants.get(&renter).map(|grant| (grant.cap.0, grant.until.0, grant.revoked));
        assert_eq!(known, self.vault.key(renter), "the key of {renter}");
    }

    pub fn time(&self) -> TimeMs {
        TimeMs(self.pool.now)
    }
}
