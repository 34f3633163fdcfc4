//! The baselines in the pool: what a way is worth to a weighting that is no sum of terms. Nothing has a price or an end
//! there, so the ways of a node are of one group, and of those with its best key one counts.

use selion_api::{LeaseRequest, NodeId, Slot};

use crate::bench::{Bench, Spot, Way, shape_of};
use crate::engine::Weighting;
use crate::engine::fgd::Frag;
use crate::engine::fleet::splitmix64;
use crate::engine::rule::{PARTS, mig_score, parts};
use crate::engine::score::{best_fit, best_fit_mig};
use crate::engine::sigmoid::Sigmoid;
use crate::engine::terms::{Group, Mix};
use crate::engine::view::{Shape, View, Want};
use crate::geometry::{Fit, Use};
use crate::learned::mib;
use crate::look::Pick;
use crate::scoring::left_of;
use crate::state::State;

/// Binary digits of a draw: as many as a key has below 0.
const DRAW_BITS: u32 = 19;

/// The published gradient under one mix.
pub(crate) struct Published {
    frag: Frag,
    sigmoid: Sigmoid,
}

impl Published {
    pub fn of(mix: &Mix) -> Self {
        // For whatever models there may be: which nodes there are is not part of the mix.
        Self { frag: Frag::new(mix.kinds(), u64::MAX), sigmoid: Sigmoid::new(PARTS.cast_unsigned()) }
    }
}

/// What chance says of one request in one entry: drawn from the entry's number and the request's key, so that a replay
/// draws the same. All members of a gang draw alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Draw(u64);

impl Draw {
    /// `None` unless the pool's weighting draws.
    pub fn of(state: &State, request: &LeaseRequest) -> Option<Self> {
        let draws = state.policy.weighting == Weighting::Random;
        draws.then(|| Self(state.next_seq).with(&request.idem.0))
    }

    /// A charge for a node: which of them is least is all alike.
    pub fn of_node(self, node: NodeId) -> i32 {
        i32::try_from(self.with(&node.0).0 >> (u64::BITS - DRAW_BITS)).unwrap_or(0)
    }

    fn with(self, bytes: &[u8]) -> Self {
        let mix = |word: u64, byte: &u8| splitmix64(word ^ u64::from(*byte));
        Self(bytes.iter().fold(self.0, mix))
    }
}

impl Bench<'_> {
    /// What a way is worth that `fit` says, on each of these GPUs of one model, to a weighting that is no sum of terms.
    pub(crate) fn baseline(&self, gpus: &[Pick], fit: &Fit) -> Option<Way> {
        let gpu_rank = gpus.first().map(|(gpu_rank, ..)| *gpu_rank)?;
        let gpu = self.spec.gpus.get(gpu_rank)?;
        let (spot, shape) = (Spot::of(gpu_rank, gpu, &fit.slot), shape_of(gpu, gpus, &fit.slot));
        let (key, tie) = match self.weighting {
            Weighting::Fgd => (self.published(gpus, shape, fit)?, 0),
            Weighting::BestFit => self.tightest(gpus, shape)?,
            _ => {
                let draw = self.draw?.with(&gpu.gpu.0).with(&[spot.start]);
                (0, u32::try_from(draw.0 >> u32::BITS).unwrap_or(0))
            }
        };
        Some(Way { group: Group::of(0, 0, 0), shape, key, tie, spot, spare: false })
    }

    /// The published score of the gradient.
    fn published(&self, gpus: &[Pick], shape: Shape, fit: &Fit) -> Option<i32> {
        let gpu_rank = gpus.first().map(|(gpu_rank, ..)| *gpu_rank)?;
        let (gpu, used) = (self.spec.gpus.get(gpu_rank)?, self.uses.get(gpu_rank)?);
        let tables = self.scoring.tables()?.published.as_ref()?;
        let model = self.learned.model(&gpu.model);
        let (left, taken) = self.lefts(gpus, model);
        let at = *taken.first()?;
        let (cpu, ram) = self.beside;
        let view = View { model, cpu: u32::try_from(cpu).unwrap_or(u32::MAX), ram: mib(ram), left: &left };
        let want = Want { shape, cpu: self.want.cpu_milli, ram: 0, models: u64::MAX };
        let Slot::Mig { .. } = fit.slot else {
            return Some(tables.frag.score(tables.frag.gradient(&view, &want, at)?));
        };
        let Some(worth) = self.mig_worth(gpu, used, &fit.slot) else {
            return Some(i32::try_from(fit.frag).unwrap_or(i32::MAX).saturating_neg());
        };
        let opened = *used == Use::Idle;
        let opening = if opened { tables.frag.gradient(&view, &want, at)? } else { 0 };
        let slices = gpu.mig.as_ref().map_or(1, |table| table.mem_slices);
        Some(mig_score(&tables.sigmoid, worth, slices, parts(opening.into(), tables.frag.weight())))
    }

    /// By what is left of the node's GPUs of that model and of its CPU; of those devices that with least left first.
    fn tightest(&self, gpus: &[Pick], shape: Shape) -> Option<(i32, u32)> {
        let gpu_rank = gpus.first().map(|(gpu_rank, ..)| *gpu_rank)?;
        let (gpu, used) = (self.spec.gpus.get(gpu_rank)?, self.uses.get(gpu_rank)?);
        let taken = match shape {
            Shape::Mig { .. } => {
                let slices = gpu.mig.as_ref().map_or(0, |table| u64::from(table.mem_slices));
                let taken = if let Use::Mig(used) = used { used.mask.count_ones() } else { 0 };
                return Some((best_fit_mig(slices.saturating_sub(taken.into())), 0));
            }
            Shape::Share(milli) => milli,
            Shape::Whole(count) => u16::from(count).saturating_mul(crate::engine::WHOLE),
            Shape::None => 0,
        };
        let (left, _) = self.lefts(gpus, self.learned.model(&gpu.model));
        let all = left.iter().fold(0_u16, |sum, left| sum.saturating_add(*left));
        let cpu = self.beside.0.saturating_sub(self.want.cpu_milli.into());
        let key = best_fit(u32::try_from(cpu).unwrap_or(u32::MAX), all.saturating_sub(taken));
        Some((key, left_of(gpu, used).into()))
    }
}
