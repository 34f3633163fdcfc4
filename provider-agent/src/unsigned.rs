//! Use that no voucher covers yet, by renter: what the owner loses if none ever comes. Pure; [`Guard`](crate::guard::Guard)
//! keeps it on disk.
//!
//! A voucher is a running total over all nodes of the owner, and this agent knows its own node only. So a rise of the
//! total pays for what ran here and was open; what is left of the rise pays other nodes and is no credit for later. The
//! sum here is then never above what is open in truth, and it does not fall without a voucher.

use std::collections::BTreeMap;

use selion_api::{Account, Amount, Rate};
use serde::{Deserialize, Serialize};

use crate::member_key::MemberKey;

/// So long the end of a member is not forgotten that was paid for less than half, in microseconds, as reports are numbered: some
/// of it may be owed by nobody, and who says so each time would be served for nothing.
const DOUBTED_US: u64 = 86_400_000_000;

/// What is open of every renter.
#[derive(Debug, Default)]
pub(crate) struct Tabs(BTreeMap<Account, Tab>);

/// What is open of one renter.
#[derive(Debug, Default)]
struct Tab {
    /// Highest total of a voucher that was counted.
    covered: Amount,
    live: BTreeMap<MemberKey, Live>,
    over: Vec<Over>,
    /// Highest rate at which the renter's members ran here at once since nothing was open last.
    peak: Rate,
    /// What was open when it was last written down.
    written: Amount,
    /// A member has ended since then, or something was paid.
    is_stale: bool,
    /// Members of an earlier life that may run on, with the meter as it was written down.
    earlier: BTreeMap<MemberKey, u64>,
}

/// A member whose end is not told yet.
#[derive(Debug)]
struct Live {
    rate: Rate,
    /// What the pair was billed when the member came: no voucher up to this total pays for it.
    billed: Amount,
    metered_ms: u64,
    paid: Amount,
    /// It uses more by the millisecond.
    runs: bool,
}

impl Live {
    fn open(&self) -> Amount {
        self.rate.bill(self.metered_ms).saturating_sub(self.paid)
    }
}

/// A member that has ended.
#[derive(Debug)]
struct Over {
    open: Amount,
    paid: Amount,
    /// Number of the report that told its end, or of a later one.
    seq: u64,
}

/// What a restart must not forget of a renter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Unsigned {
    /// The renter.
    pub(crate) renter: Account,
    /// Worth of the use that no voucher covered, in token base units.
    pub(crate) open: Amount,
    /// Highest total of a voucher that was counted.
    pub(crate) covered: Amount,
    /// Highest rate at which the renter's members ran at once since nothing was open last.
    pub(crate) peak: Rate,
    /// Members that ran, each with the meter up to which its use is counted in what is open, or was paid.
    #[serde(default)]
    pub(crate) live: Vec<(MemberKey, u64)>,
}

/// More is open than may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Excess {
    /// What is open.
    pub(crate) open: Amount,
    /// What may be.
    pub(crate) most: Amount,
}

impl Tab {
    fn open(&self) -> Amount {
        let live = self.live.values().map(Live::open);
        let over = self.over.iter().map(|over| over.open);
        live.chain(over).fold(Amount::ZERO, Amount::saturating_add)
    }

    fn rate(&self) -> Rate {
        let running = self.live.values().filter(|live| live.runs);
        running.fold(Rate::ZERO, |sum, live| sum.saturating_add(live.rate))
    }

    /// Whatever an earlier life left is told in reports up to this number.
    fn told(&mut self, seq: u64) {
        self.over.iter_mut().filter(|over| over.seq == u64::MAX).for_each(|over| over.seq = seq);
    }

    fn note_peak(&mut self) {
        let rate = self.rate();
        self.peak = if self.open() == Amount::ZERO { rate } else { self.peak.max(rate) };
    }

    /// Counts a voucher. The rise pays each running member as far as it lies above what was billed when the member came,
    /// then those that have ended. Of a member whose end the log had before, and of which at least half is paid, nothing
    /// stays open: a total that is signed later covers its bill.
    fn cover(&mut self, total: Amount, acked: u64) {
        let mut from = self.covered;
        let mut left = total.saturating_sub(from);
        (self.covered, self.is_stale) = (total, true);
        let mut live: Vec<&mut Live> = self.live.values_mut().collect();
        live.sort_by_key(|one| one.billed);
        for one in live {
            from = from.max(one.billed);
            let part = one.open().min(total.saturating_sub(from)).min(left);
            one.paid = one.paid.saturating_add(part);
            from = from.saturating_add(part);
            left = left.saturating_sub(part);
        }
        for one in &mut self.over {
            let part = one.open.min(left);
            one.open = one.open.saturating_sub(part);
            one.paid = one.paid.saturating_add(part);
            left = left.saturating_sub(part);
        }
        self.over.retain(|one| one.open > Amount::ZERO && (one.seq > acked || one.open > one.paid));
    }
}

impl Tabs {
    /// What an earlier life left open, and vouchers that it kept. What is open stays so, whatever the log has, until
    /// [`interrupted`](Self::interrupted) says with which report the earlier life is over.
    pub(crate) fn restore(kept: &[Unsigned], vouchers: &[(Account, Amount)]) -> Self {
        let mut tabs = Self::default();
        for one in kept {
            let tab = tabs.0.entry(one.renter).or_default();
            (tab.covered, tab.peak, tab.written) = (one.covered, one.peak, one.open);
            tab.earlier = one.live.iter().copied().collect();
            if one.open > Amount::ZERO {
                tab.over.push(Over { open: one.open, paid: Amount::ZERO, seq: u64::MAX });
            }
        }
        for (renter, total) in vouchers {
            match tabs.0.get_mut(renter) {
                Some(tab) if *total > tab.covered => tab.cover(*total, 0),
                Some(_) => {}
                None => drop(tabs.0.insert(*renter, Tab { covered: *total, ..Tab::default() })),
            }
        }
        tabs
    }

    /// The ends of all that an earlier life left are told in reports up to the number `seq`, but of what runs on.
    pub(crate) fn interrupted(&mut self, seq: u64) {
        self.0.values_mut().filter(|tab| tab.live.is_empty()).for_each(|tab| tab.told(seq));
    }

    /// A member that an earlier life began runs on. What it used up to the last writing is in what that life left open; it is
    /// counted from there on.
    pub(crate) fn resume(&mut self, renter: Account, key: MemberKey, rate: Rate, billed: Amount) {
        let tab = self.0.entry(renter).or_default();
        let metered_ms = tab.earlier.remove(&key).unwrap_or(0);
        tab.live.insert(key, Live { rate, billed, metered_ms, paid: rate.bill(metered_ms), runs: true });
        tab.note_peak();
    }

    /// A member runs from now on.
    pub(crate) fn begin(&mut self, renter: Account, key: MemberKey, rate: Rate, billed: Amount) {
        let tab = self.0.entry(renter).or_default();
        tab.live.insert(key, Live { rate, billed, metered_ms: 0, paid: Amount::ZERO, runs: true });
        tab.note_peak();
    }

    /// The meter of a running member.
    pub(crate) fn meter(&mut self, renter: Account, key: MemberKey, metered_ms: u64) {
        let live = self.0.get_mut(&renter).and_then(|tab| tab.live.get_mut(&key));
        if let Some(live) = live {
            live.metered_ms = live.metered_ms.max(metered_ms);
        }
    }

    /// The member runs no more: its rate makes room for nothing from now on, however long its outputs take.
    pub(crate) fn stopped(&mut self, renter: Account, key: MemberKey, metered_ms: u64) {
        self.meter(renter, key, metered_ms);
        if let Some(live) = self.0.get_mut(&renter).and_then(|tab| tab.live.get_mut(&key)) {
            live.runs = false;
        }
    }

    /// The member has ended; the report that says so has the number `seq`, or a lower one.
    pub(crate) fn end(&mut self, renter: Account, key: MemberKey, seq: u64) {
        let Some(tab) = self.0.get_mut(&renter) else { return };
        tab.is_stale = true;
        if let Some(live) = tab.live.remove(&key)
            && live.open() > Amount::ZERO
        {
            tab.over.push(Over { open: live.open(), paid: live.paid, seq });
        }
        if tab.live.is_empty() {
            tab.told(seq);
        }
    }

    /// What ended more than a day before the report number `now` is forgotten, if the log has its end: it has every report up
    /// to `acked`.
    pub(crate) fn forget(&mut self, acked: u64, now: u64) {
        for tab in self.0.values_mut() {
            tab.over.retain(|one| one.seq > acked || now.saturating_sub(one.seq) < DOUBTED_US);
            tab.note_peak();
        }
    }

    /// A voucher of the renter was kept. The log has every report up to `acked`.
    pub(crate) fn cover(&mut self, renter: Account, total: Amount, acked: u64) {
        let tab = self.0.entry(renter).or_default();
        if total > tab.covered {
            tab.cover(total, acked);
            tab.note_peak();
        }
    }

    /// What is open of the renter, if it is worth more than `cap_ms` of running time at the highest rate at which his
    /// members ran here at once, one of `more` beside them.
    pub(crate) fn excess(&self, renter: Account, more: Rate, cap_ms: u64) -> Option<Excess> {
        let tab = self.0.get(&renter)?;
        let rate = tab.peak.max(tab.rate().saturating_add(more));
        let (open, most) = (tab.open(), rate.reserve(cap_ms));
        (open > most).then_some(Excess { open, most })
    }

    /// What is open of all renters together.
    pub(crate) fn open_of_all(&self) -> Amount {
        self.0.values().fold(Amount::ZERO, |sum, tab| sum.saturating_add(tab.open()))
    }

    /// What is open of the renter and the rate at which his members run here now.
    pub(crate) fn of(&self, renter: Account) -> (Amount, Rate) {
        self.0.get(&renter).map_or((Amount::ZERO, Rate::ZERO), |tab| (tab.open(), tab.rate()))
    }

    /// Highest total of a voucher of the renter that was counted.
    pub(crate) fn covered(&self, renter: Account) -> Amount {
        self.0.get(&renter).map_or(Amount::ZERO, |tab| tab.covered)
    }

    /// Renters with running members.
    pub(crate) fn renters(&self) -> Vec<Account> {
        self.0.iter().filter(|(_, tab)| !tab.live.is_empty()).map(|(renter, _)| *renter).collect()
    }

    /// What is to be written down, if a crash would forget more than a tenth of what may be open, or if something was paid, or
    /// a member has ended.
    pub(crate) fn unwritten(&mut self, cap_ms: u64) -> Option<Vec<Unsigned>> {
        let is_due = |tab: &Tab| {
            let step = if tab.is_stale { 0 } else { tab.peak.reserve(cap_ms).0 / 10 };
            let open = tab.open();
            open < tab.written || open.saturating_sub(tab.written).0 > step || (tab.is_stale && !tab.live.is_empty())
        };
        if !self.0.values().any(is_due) {
            return None;
        }
        for tab in self.0.values_mut() {
            (tab.written, tab.is_stale) = (tab.open(), false);
        }
        let open = self.0.iter().filter(|(_, tab)| tab.written > Amount::ZERO || !tab.live.is_empty());
        let kept = |(renter, tab): (&Account, &Tab)| Unsigned {
            renter: *renter,
            open: tab.written,
            covered: tab.covered,
            peak: tab.peak,
            live: tab.live.iter().map(|(key, live)| (*key, live.metered_ms)).collect(),
        };
        Some(open.map(kept).collect())
    }
}

#[cfg(test)]
#[path = "unsigned_tests.rs"]
mod tests;
