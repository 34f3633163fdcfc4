//! Bills, worked out again from the grants, the nodes' signed meters and the times of the entries.

use std::collections::BTreeMap;

use selion_api::agent::MemberEvent;
use selion_api::lease::LeaseState;
use selion_api::unit::MS_PER_HOUR;
use selion_api::{LeaseId, TimeMs};
use selion_market::{Effect, Input};

use crate::effects::{BillSeen, GrantSeen, Run, Seen, add_up, in_words};
use crate::entries::Item;
use crate::finding::Finding;
use crate::pass::Watch;

/// Every line is the frozen ask, of all GPUs of the member together, times what was used, rounded down; what was used is at most what the node signed and
/// what lies between the entries.
#[derive(Default)]
pub(crate) struct Bills {
    /// What is known of runs whose bill is to come.
    grants: BTreeMap<Run, GrantSeen>,
    active: BTreeMap<(LeaseId, u32), TimeMs>,
    /// When members that were repaired began.
    joined: BTreeMap<Run, TimeMs>,
    metered: BTreeMap<Run, u64>,
    billed: BTreeMap<Run, u64>,
}

impl Watch for Bills {
    fn take(&mut self, item: &Item) -> Result<(), Finding> {
        self.hear(item);
        item.effects.iter().try_for_each(|leaf| self.effect(item, leaf))
    }

    fn said(&self) -> String {
        format!("{} bill lines are the frozen ask times the time used, rounded down", self.billed.len())
    }
}

impl Bills {
    /// Notes the meter of a report, if the entry is one.
    pub(crate) fn hear(&mut self, item: &Item) {
        if let Input::Report(signed) = &item.input {
            let report = &signed.report;
            let run = (report.lease, report.attempt, report.member);
            // Only the node that was granted the member speaks for it.
            if self.grants.get(&run).is_some_and(|grant| grant.node == report.node) {
                let most = self.metered.entry(run).or_default();
                *most = report.metered_ms.max(*most);
            }
        }
    }

    /// Judges an effect of the entry.
    pub(crate) fn effect(&mut self, item: &Item, leaf: &[u8]) -> Result<(), Finding> {
        match Seen::read(leaf) {
            Some(Seen::Grant(grant)) => {
                add_up(&mut self.grants, grant);
            }
            Some(Seen::Other(effect)) => match *effect {
                Effect::Moved { lease, state: LeaseState::Active, attempt, .. } => {
                    self.active.insert((lease, attempt), item.at());
                }
                Effect::Joined { lease, attempt, member } => {
                    let run = (lease, attempt, member);
                    if !item.reports(run, &MemberEvent::Running) {
                        let why = format!(
                            "{lease} attempt {attempt} member {member} is billed from here on, and did not say that it runs"
                        );
                        return Err(Finding::at(item.seq, why));
                    }
                    self.joined.insert(run, item.at());
                }
                _ => {}
            },
            Some(Seen::Bill(bill)) => {
                self.judge(item, &bill).map_err(|why| Finding::at(item.seq, format!("{}: {why}", in_words(leaf))))?;
                self.billed.insert(bill.run, item.seq);
                self.grants.remove(&bill.run);
                self.joined.remove(&bill.run);
                self.metered.remove(&bill.run);
            }
            None => {}
        }
        Ok(())
    }

    fn judge(&self, item: &Item, bill: &BillSeen) -> Result<(), String> {
        let (lease, attempt, _) = bill.run;
        if let Some(entry) = self.billed.get(&bill.run) {
            return Err(format!("it was billed already in entry {entry}"));
        }
        let Some(grant) = self.grants.get(&bill.run) else {
            return Err("it was never granted".into());
        };
        if (bill.renter, bill.provider) != (grant.renter, grant.provider) {
            return Err("payer or earner are not those of the grant".into());
        }
        if bill.rate != grant.rate {
            return Err(format!("the ask of all its GPUs at the grant was {}", grant.rate));
        }
        let exact = u128::from(bill.rate.0) * u128::from(bill.billable_ms) / u128::from(MS_PER_HOUR);
        if u128::from(bill.amount.0) != exact {
            return Err(format!("rounded down it is {exact}"));
        }
        let Some(since) = self.joined.get(&bill.run).or_else(|| self.active.get(&(lease, attempt))) else {
            return Err("the lease was never active in that run".into());
        };
        let interval = item.at().since(*since);
        if bill.billable_ms > interval {
            return Err(format!("only {interval} ms lie between the entries that made it run and ended it"));
        }
        let metered = self.metered.get(&bill.run).copied().unwrap_or_default();
        if bill.billable_ms > metered {
            return Err(format!("its node signed for {metered} ms only"));
        }
        Ok(())
    }
}
