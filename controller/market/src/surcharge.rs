//! What a slice costs beside the ask where the pool charges for fragmentation: a part of its shadow price, paid to the
//! owner of the GPU like the ask. It hangs on what stands on that GPU and on the lower ranks of the same gang, and not on
//! how the places were found. What is only kept for a booking does not count.

use alloc::vec::Vec;

use selion_api::lease::{NearestMiss, Resource};
use selion_api::slice::{GpuSpec, NodeSpec};
use selion_api::{Rate, Reason, Slot};

use crate::dry_run::shadow_of;
use crate::geometry::{self, Use};
use crate::place::{Machine, Miss, Placed, Room, Stage, World, miss_by};

/// `floor(shadow price * permille / 1,000)`.
fn surcharge(gpu: &GpuSpec, used: &Use<'_>, slot: &Slot, permille: u16) -> Rate {
    let shadow = shadow_of(gpu, geometry::destroys(gpu, used, slot));
    let exact = u128::from(shadow.0) * u128::from(permille) / 1_000;
    Rate(u64::try_from(exact).unwrap_or(u64::MAX))
}

impl World<'_> {
    /// True if what stands on a GPU may decide whether it is too dear: less room may then be more.
    pub(crate) fn is_capped(&self) -> bool {
        self.state.policy.shadow_permille > 0 && self.request.max_rate.is_some()
    }

    /// The places of a node with what they cost, without those that cost more than the renter pays. In an empty fleet
    /// that is the least that they can ever cost: only a whole GPU is always alone on it.
    pub(crate) fn surcharged(
        &self,
        machine: &Machine<'_>,
        spec: &NodeSpec,
        mut places: Vec<Placed>,
    ) -> Result<Vec<Placed>, Miss> {
        let permille = self.state.policy.shadow_permille;
        if permille == 0 {
            return Ok(places);
        }
        for place in &mut places {
            if self.room != Room::Empty || place.slot == Slot::Whole {
                place.charge(machine, spec, permille);
            }
        }
        let least = places.iter().map(|place| place.rate).min();
        places.retain(|place| self.request.max_rate.is_none_or(|max| place.rate <= max));
        match (least, self.request.max_rate) {
            (Some(least), Some(max)) if places.is_empty() => {
                Err(miss_by(Stage::Price, Reason::PriceAboveMax, Resource::Rate, least.0, max.0))
            }
            _ => Ok(places),
        }
    }

    /// The members of a gang with what each costs beside what stands there and the lower ranks. They are in order.
    ///
    /// # Errors
    ///
    /// The first that costs more than the renter pays.
    pub(crate) fn rated(&mut self, places: Vec<Placed>) -> Result<Vec<Placed>, Miss> {
        let permille = self.state.policy.shadow_permille;
        if permille == 0 || self.room == Room::Empty {
            return Ok(places);
        }
        self.placed.clear();
        for mut place in places {
            let node = self.state.nodes.get(&place.node);
            if let Some((node, spec)) = node.and_then(|node| Some((node, node.spec.as_ref()?))) {
                let machine = self.machine(place.node, node, place.rank);
                place.charge(&machine, spec, permille);
            }
            if let Some(max) = self.request.max_rate.filter(|max| place.rate > *max) {
                let short = miss_by(Stage::Price, Reason::PriceAboveMax, Resource::Rate, place.rate.0, max.0);
                let nearest = NearestMiss { node: place.node, gpu: place.gpu(), ..short.nearest };
                self.placed.clear();
                return Err(Miss { nearest, ..short });
            }
            self.placed.push(place);
        }
        Ok(core::mem::take(&mut self.placed))
    }
}

impl Placed {
    /// Works out the surcharge of each of its GPUs, beside what stands there.
    fn charge(&mut self, machine: &Machine<'_>, spec: &NodeSpec, permille: u16) {
        for piece in &mut self.gpus {
            if let Some(gpu) = spec.gpus.iter().find(|gpu| gpu.gpu == piece.gpu) {
                piece.surcharge = surcharge(gpu, &machine.standing(gpu), &self.slot, permille);
            }
        }
        self.rate = self.gpus.iter().fold(Rate::ZERO, |sum, piece| sum.saturating_add(piece.rate()));
        self.score.rate = self.rate;
    }
}
