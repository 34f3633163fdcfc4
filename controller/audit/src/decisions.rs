//! Every decision judged a second time, by a checker that shares no code with the rules that a replay runs.

use selion_api::lease::BillLine;
use selion_api::{SliceWant, Slot};
use selion_checker::Checker;
use selion_market::{Effect, Grant, Input, Stamp};

use crate::effects::{BillSeen, GrantSeen, Place, Seen};
use crate::entries::Item;
use crate::finding::Finding;
use crate::pass::Watch;

/// The second checker over a log: what was granted, freed, billed and paid was allowed, and nobody was passed over where
/// that can be told.
#[derive(Default)]
pub(crate) struct Decisions {
    checker: Checker,
    judged: u64,
    grants: u64,
}

impl Watch for Decisions {
    fn take(&mut self, item: &Item) -> Result<(), Finding> {
        let mut effects = Vec::with_capacity(item.effects.len());
        for leaf in &item.effects {
            let seen = Seen::read(leaf);
            let effect = seen.and_then(|seen| effect(&self.checker, item, seen));
            effects.push(effect.ok_or_else(|| Finding::at(item.seq, "an effect is not one of this release"))?);
        }
        self.judged += effects.len() as u64;
        self.grants += effects.iter().filter(|effect| matches!(effect, Effect::Granted(_))).count() as u64;
        let stamp = Stamp { seq: item.seq, at_ms: item.at(), fence: item.entry.fence };
        match self.checker.check(&stamp, &item.input, &effects).first() {
            Some(first) => Err(Finding::at(item.seq, first.to_string())),
            None => Ok(()),
        }
    }

    fn said(&self) -> String {
        format!("{} effects, {} of them grants, are allowed by a second checker's own books", self.judged, self.grants)
    }
}

/// The effect that a leaf was made from; `None` if it names no slot. A grant's leaf has no room for the name of a MIG
/// profile: that is the one asked for, and the checker compares size and start with it.
fn effect(checker: &Checker, item: &Item, seen: Seen) -> Option<Effect> {
    match seen {
        Seen::Grant(grant) => granted(checker, item, grant).map(Effect::Granted),
        Seen::Bill(BillSeen { run: (lease, attempt, member), renter, provider, rate, billable_ms, amount }) => {
            Some(Effect::Billed(BillLine { lease, attempt, member, renter, provider, rate, billable_ms, amount }))
        }
        Seen::Other(effect) => Some(*effect),
    }
}

fn granted(checker: &Checker, item: &Item, grant: GrantSeen) -> Option<Grant> {
    let GrantSeen { run: (lease, attempt, member), renter, provider, node, gpu, place, class, rate } = grant;
    let slot = match place {
        Place::Whole => Slot::Whole,
        Place::Share { permille, mem_bytes } => {
            Slot::Share { compute_permille: u16::try_from(permille).ok()?, mem_bytes }
        }
        Place::Mig { start, size } => {
            // A lease may be granted by the entry that creates it.
            let asked = match &item.input {
                Input::Request(asked) if lease.seq == item.seq => asked.request.members.get(usize::from(member)),
                _ => checker.want(lease, member),
            };
            let profile = match asked.map(|want| &want.slice) {
                Some(SliceWant::Mig { profile }) => profile.clone(),
                _ => String::new(),
            };
            Slot::Mig { profile, start: u8::try_from(start).ok()?, size: u8::try_from(size).ok()? }
        }
    };
    Some(Grant { lease, attempt, member, renter, provider, node, gpu, slot, class, rate })
}
