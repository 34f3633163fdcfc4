//! Every decision judged a second time, by a checker that shares no code with the rules that a replay runs.

use selion_api::lease::BillLine;
use selion_api::{SliceWant, Slot};
use selion_checker::Checker;
use selion_market::{Effect, Grant, Input, Stamp};

use crate::effects::{BillSeen, GrantSeen, Place, Seen};
use crate::entries::{Item, Log};
use crate::finding::Finding;

/// What was granted, freed, billed and paid was allowed, and nobody was passed over where that can be told.
pub(crate) fn check(log: &Log) -> Result<String, Finding> {
    let mut checker = Checker::new();
    let (mut judged, mut grants) = (0_u64, 0_u64);
    for item in &log.items {
        let mut effects = Vec::with_capacity(item.effects.len());
        for leaf in &item.effects {
            let seen = Seen::read(leaf);
            let effect = seen.and_then(|seen| effect(&checker, item, seen));
            effects.push(effect.ok_or_else(|| Finding::at(item.seq, "an effect is not one of this release"))?);
        }
        judged += effects.len() as u64;
        grants += effects.iter().filter(|effect| matches!(effect, Effect::Granted(_))).count() as u64;
        let stamp = Stamp { seq: item.seq, at_ms: item.at(), fence: item.entry.fence };
        if let Some(first) = checker.check(&stamp, &item.input, &effects).first() {
            return Err(Finding::at(item.seq, first.to_string()));
        }
    }
    Ok(format!("{judged} effects, {grants} of them grants, are allowed by a second checker's own books"))
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
