//! Several whole GPUs of one node for one member: of each model those of the lowest asks, so there is one way a model and
//! node.

use alloc::vec::Vec;

use selion_api::lease::Resource;
use selion_api::slice::{GpuSpec, NodeSpec};
use selion_api::{MemberWant, Rate, Reason};

use crate::geometry::Use;
use crate::look::Pick;
use crate::place::{Admitted, Machine, Miss, Stage, World, miss_by};
use crate::state::Node;

/// GPUs of one kind, each with its rank in the node's spec.
pub(crate) type Group<'s> = Vec<(usize, &'s GpuSpec)>;

impl World<'_> {
    /// The GPUs of a node that a member may stand on, by model, in the order of the spec. Simulated GPUs are a model of
    /// their own: a member has one isolation class.
    pub(crate) fn groups<'s>(&self, spec: &'s NodeSpec, want: &MemberWant) -> Vec<Group<'s>> {
        let mut groups: Vec<Group<'s>> = Vec::new();
        for (rank, gpu) in spec.gpus.iter().enumerate().filter(|(_, gpu)| self.named(want, gpu)) {
            let kind = |gpu: &'s GpuSpec| (&gpu.model, gpu.simulated);
            let known = groups.iter_mut().find(|group| group.first().is_some_and(|(_, one)| kind(one) == kind(gpu)));
            match known {
                Some(group) => group.push((rank, gpu)),
                None => groups.push(alloc::vec![(rank, gpu)]),
            }
        }
        groups
    }

    /// The GPUs of one kind that a member gets now: of those that are idle and meet every requirement so many of the
    /// lowest ask, then the lowest rank; in the order of the spec. The ask that is told is their sum, and that is what
    /// the renter's highest holds for.
    pub(crate) fn several(
        &self,
        (node, spec): (&Node, &NodeSpec),
        machine: &Machine<'_>,
        want: &MemberWant,
        gpus: Group<'_>,
    ) -> Result<(Vec<Pick>, Admitted), Miss> {
        let (need, all) = (usize::from(want.gpus), gpus.len());
        let mut able: Vec<(Rate, usize, &GpuSpec, Admitted)> = Vec::new();
        let mut nearest: Option<Miss> = None;
        for (rank, gpu) in gpus {
            match self.admit(node, spec, machine, gpu, want) {
                Ok(admitted) => able.push((admitted.ask, rank, gpu, admitted)),
                Err(mut miss) => {
                    miss.nearest.gpu = Some(gpu.gpu);
                    nearest = Some(miss.closer(nearest.take()));
                }
            }
        }
        let too_few = |stage, reason, have: usize| miss_by(stage, reason, Resource::Gpus, need as u64, have as u64);
        // Where the machine itself would do, no price and no room make up for GPUs that are not there.
        let would_do = !able.is_empty() || nearest.as_ref().is_some_and(|miss| miss.stage > Stage::Machine);
        if all < need && would_do {
            return Err(too_few(Stage::Machine, Reason::TooFewGpus, all));
        }
        if able.len() < need {
            return Err(nearest.unwrap_or_else(|| too_few(Stage::Machine, Reason::TooFewGpus, all)));
        }
        able.sort_by_key(|(ask, rank, ..)| (*ask, *rank));
        self.costs(able.iter().take(need).map(|(ask, ..)| *ask), Stage::Price)?;
        able.retain(|(_, _, gpu, _)| machine.use_of(gpu) == Use::Idle);
        if able.len() < need {
            return Err(too_few(Stage::Room, Reason::PoolFull, able.len()));
        }
        able.truncate(need);
        let ask = self.costs(able.iter().map(|(ask, ..)| *ask), Stage::Room)?;
        able.sort_by_key(|(_, rank, ..)| *rank);
        let picks = able.iter().map(|(ask, rank, gpu, _)| (*rank, gpu.gpu, *ask)).collect();
        let first = able.into_iter().next().map(|(.., admitted)| Admitted { ask, ..admitted });
        Ok((picks, first.ok_or_else(|| too_few(Stage::Room, Reason::PoolFull, 0))?))
    }

    /// The sum of these asks, if the renter pays so much.
    fn costs(&self, asks: impl Iterator<Item = Rate>, stage: Stage) -> Result<Rate, Miss> {
        let sum = asks.fold(Rate::ZERO, Rate::saturating_add);
        match self.request.max_rate.filter(|max| sum > *max) {
            Some(max) => Err(miss_by(stage, Reason::PriceAboveMax, Resource::Rate, sum.0, max.0)),
            None => Ok(sum),
        }
    }
}
