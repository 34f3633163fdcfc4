//! No slot is leased twice: a checker of its own that knows nothing of `step`.

use std::collections::{BTreeMap, BTreeSet};

use selion_api::slice::{GpuSpec, WHOLE_PERMILLE};
use selion_api::{GpuId, NodeId};
use selion_market::{Effect, Input};

use crate::effects::{GrantSeen, Place, Run, Seen, in_words};
use crate::entries::Item;
use crate::finding::Finding;
use crate::pass::Watch;

/// No two live grants overlap, none exceeds its GPU, and every GPU is one that its node's agent showed.
#[derive(Default)]
pub(crate) struct Grants {
    /// What the nodes said they have.
    specs: BTreeMap<(NodeId, GpuId), GpuSpec>,
    /// What a member holds, one grant for each GPU, and the entry that gave it.
    live: BTreeMap<Run, (u64, Vec<GrantSeen>)>,
    /// Who is on a GPU.
    on: BTreeMap<GpuId, BTreeSet<Run>>,
    grants: u64,
}

impl Watch for Grants {
    fn take(&mut self, item: &Item) -> Result<(), Finding> {
        if let Input::Linked(signed) = &item.input {
            let spec = &signed.hello.spec;
            for gpu in &spec.gpus {
                self.specs.insert((spec.node, gpu.gpu), gpu.clone());
            }
        }
        item.effects.iter().try_for_each(|leaf| self.effect(item, leaf))
    }

    fn said(&self) -> String {
        format!("{} grants, never two on one placement and never more than a GPU has", self.grants)
    }
}

impl Grants {
    fn effect(&mut self, item: &Item, leaf: &[u8]) -> Result<(), Finding> {
        let wrong = |detail: String| Err(Finding::at(item.seq, detail));
        match Seen::read(leaf) {
            Some(Seen::Grant(grant)) => {
                if let Err(why) = self.judge(item.seq, &grant) {
                    return wrong(format!("{}: {why}", in_words(leaf)));
                }
                self.grants += 1;
                self.on.entry(grant.gpu).or_default().insert(grant.run);
                self.live.entry(grant.run).or_insert((item.seq, Vec::new())).1.push(grant);
                Ok(())
            }
            Some(Seen::Other(effect)) => match *effect {
                Effect::Freed { lease, attempt, member } if !self.free((lease, attempt, member)) => {
                    wrong(format!("{lease} attempt {attempt} member {member} is freed, but holds nothing"))
                }
                _ => Ok(()),
            },
            Some(Seen::Bill(_)) => Ok(()),
            None => wrong("an effect is not one of this release".into()),
        }
    }

    /// Takes a member off its GPUs. False if it holds none.
    fn free(&mut self, run: Run) -> bool {
        let Some((_, grants)) = self.live.remove(&run) else {
            return false;
        };
        for grant in grants {
            self.on.entry(grant.gpu).or_default().remove(&run);
        }
        true
    }

    fn judge(&self, entry: u64, grant: &GrantSeen) -> Result<(), String> {
        let Some(spec) = self.specs.get(&(grant.node, grant.gpu)) else {
            return Err("its node never showed that GPU".into());
        };
        if let Some((given, own)) = self.live.get(&grant.run) {
            self.belongs(entry == *given, own, grant, spec)?;
        }
        let runs = self.on.get(&grant.gpu).into_iter().flatten();
        let here = runs.filter_map(|run| self.live.get(run)).flat_map(|(_, grants)| grants);
        let here = here.filter(|other| other.gpu == grant.gpu);
        let (mut permille, mut bytes) = (0_u64, 0_u64);
        for other in here {
            if overlap(grant.place, other.place) {
                let (lease, attempt, member) = other.run;
                return Err(format!("the same placement is held by {lease} attempt {attempt} member {member}"));
            }
            if let Place::Share { permille: taken, mem_bytes } = other.place {
                permille = permille.saturating_add(taken);
                bytes = bytes.saturating_add(mem_bytes);
            }
        }
        fits(grant.place, spec, permille, bytes)
    }
}

impl Grants {
    /// Whether a member may have one more GPU beside those that it has.
    fn belongs(&self, at_once: bool, own: &[GrantSeen], grant: &GrantSeen, spec: &GpuSpec) -> Result<(), String> {
        if !at_once || grant.place != Place::Whole || own.iter().any(|other| other.place != Place::Whole) {
            return Err("the member holds a slot already".into());
        }
        if own.iter().any(|other| other.node != grant.node) {
            return Err("the member's other GPUs are on another node".into());
        }
        let model = |other: &GrantSeen| self.specs.get(&(other.node, other.gpu)).map(|other| &other.model);
        if own.iter().any(|other| model(other) != Some(&spec.model)) {
            return Err("the member's other GPUs are of another model".into());
        }
        Ok(())
    }
}

/// Shares lie beside each other; everything else excludes what it touches, and another mode altogether.
pub(crate) fn overlap(a: Place, b: Place) -> bool {
    match (a, b) {
        (Place::Share { .. }, Place::Share { .. }) => false,
        (Place::Mig { start, size }, Place::Mig { start: other, size: wide }) => {
            start < other.saturating_add(wide) && other < start.saturating_add(size)
        }
        _ => true,
    }
}

fn fits(place: Place, spec: &GpuSpec, permille: u64, bytes: u64) -> Result<(), String> {
    match place {
        Place::Whole => Ok(()),
        Place::Mig { start, size } => {
            let slices = spec.mig.as_ref().map_or(0, |mig| u64::from(mig.mem_slices));
            if start.saturating_add(size) > slices {
                return Err(format!("the GPU has {slices} memory slices"));
            }
            Ok(())
        }
        Place::Share { permille: more, mem_bytes } => {
            let (permille, bytes) = (permille.saturating_add(more), bytes.saturating_add(mem_bytes));
            if permille > u64::from(WHOLE_PERMILLE) || bytes > spec.mem_bytes {
                return Err(format!("shares would take {permille} permille and {bytes} of {} bytes", spec.mem_bytes));
            }
            Ok(())
        }
    }
}
