//! Scores the ways to place one member on one node: by the engine's terms under the learned mix. The scan and the index
//! ask the same functions.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;
use core::cmp::Reverse;

use selion_api::slice::{GpuSpec, NodeSpec};
use selion_api::{MemberWant, Rate, Slot, TimeMs};

use crate::baseline::Draw;
use crate::busy::Busy;
use crate::engine::Weighting;
use crate::engine::terms::Group;
use crate::engine::terms::fill::Fill;
use crate::engine::terms::grain;
use crate::engine::terms::stock::Stock;
use crate::engine::view::{Shape, View, Want};
use crate::geometry::{Fit, Use};
use crate::learned::{Learned, mib, share_milli};
use crate::look::Pick;
use crate::scoring::{Mig, Scoring, left_of};
use crate::state::State;

/// Values that one look over the nodes remembers.
const REMEMBERED: usize = 512;

/// What a way to place a member is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    /// What its price depends on, with the shape.
    pub group: Group,
    pub shape: Shape,
    /// What the node gains before prices and charges, the higher the better.
    pub key: i32,
    /// Of equal keys on one node the lowest is the best.
    pub tie: u32,
    pub spot: Spot,
    /// It is not the best of its kind on its node: it counts only after all that are.
    pub spare: bool,
}

/// Where on a node a way is. Slices are taken only of a GPU of at most eight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub gpu_rank: u8,
    pub start: u8,
    pub slices: u8,
}

impl Spot {
    /// The spot of a slot.
    pub fn of(gpu_rank: usize, gpu: &GpuSpec, slot: &Slot) -> Self {
        let spot = Self { gpu_rank: u8::try_from(gpu_rank).unwrap_or(u8::MAX), ..Self::default() };
        let few = gpu.mig.as_ref().is_some_and(|table| table.mem_slices <= 8);
        match *slot {
            Slot::Mig { start, size, .. } => Self { start, slices: if few { size } else { 0 }, ..spot },
            Slot::Whole | Slot::Share { .. } => spot,
        }
    }

    /// As a number for the index: six bits for the GPU, three for the start, four for the slices.
    pub fn note(self) -> u16 {
        u16::from(self.gpu_rank & 63) << 7 | u16::from(self.start & 7) << 4 | u16::from(self.slices & 15)
    }

    pub fn noted(note: u16) -> Self {
        let bits = |shift: u16, mask: u16| u8::try_from(note >> shift & mask).unwrap_or(0);
        Self { gpu_rank: bits(7, 63), start: bits(4, 7), slices: bits(0, 15) }
    }
}

/// What a way costs now by the prices of its model and slots, in the unit of its key.
pub(crate) fn price(state: &State, shape: Shape, group: Group) -> i32 {
    let want = Want { shape, cpu: 0, ram: 0, models: u64::MAX };
    grain::round(state.learned.prices.of_group(&want, group), state.policy.weighting.weights().bucket)
}

/// What a way costs for keeping its GPU and node busy until `end`, in the unit of its key: never less than 0.
pub(crate) fn charge(state: &State, busy: &Busy, times: (TimeMs, TimeMs), shape: Shape, spot: Spot) -> i32 {
    let weights = state.policy.weighting.weights();
    busy.charge(&weights, times, shape, spot, state.learned.pace.mean_life_ms()).max(0)
}

/// Marks all but the best way of each kind, two kinds at most, of the lowest ask on a node.
pub(crate) fn choose<'a>(ways: impl Iterator<Item = (Rate, &'a mut Way)>) {
    let mut ways: Vec<(Rate, &mut Way)> = ways.collect();
    ways.sort_by_key(|(rate, way)| (*rate, Reverse(way.key), way.tie, way.spot));
    let least = ways.first().map(|(rate, _)| *rate);
    let mut kinds: Vec<(Group, Shape)> = Vec::new();
    for (rate, way) in &mut ways {
        let kind = (way.group, way.shape);
        way.spare = Some(*rate) != least || kinds.contains(&kind) || kinds.len() >= 2;
        if !way.spare {
            kinds.push(kind);
        }
    }
}

/// What a slot is to the terms. Of a MIG instance the profile does not matter any more.
pub(crate) fn shape_of(gpu: &GpuSpec, gpus: &[Pick], slot: &Slot) -> Shape {
    match slot {
        Slot::Share { compute_permille, mem_bytes } => Shape::Share(share_milli(gpu, *compute_permille, *mem_bytes)),
        Slot::Whole => Shape::Whole(count_of(gpus)),
        Slot::Mig { .. } => Shape::Mig { table: 0, profile: 0 },
    }
}

fn count_of(gpus: &[Pick]) -> u8 {
    u8::try_from(gpus.len()).unwrap_or(u8::MAX)
}

/// One node for one member.
pub(crate) struct Bench<'a> {
    pub scoring: &'a Scoring,
    pub learned: &'a Learned,
    pub weighting: Weighting,
    /// What chance says, where it does.
    pub draw: Option<Draw>,
    pub desk: &'a RefCell<Option<Fill>>,
    pub spec: &'a NodeSpec,
    /// What is taken on each GPU, in the order of the spec.
    pub uses: Vec<Use<'a>>,
    /// CPU, in thousandths of a core, and memory, in bytes, that are left.
    pub beside: (u64, u64),
    pub want: &'a MemberWant,
}

impl Bench<'_> {
    /// What a way is worth that `fit` says, on each of these GPUs of one model.
    pub fn way(&self, gpus: &[Pick], fit: &Fit) -> Option<Way> {
        let gpu_rank = gpus.first().map(|(gpu_rank, ..)| *gpu_rank)?;
        let (gpu, used) = (self.spec.gpus.get(gpu_rank)?, self.uses.get(gpu_rank)?);
        if !matches!(self.weighting, Weighting::Market | Weighting::Fill) {
            return self.baseline(gpus, fit);
        }
        let (spot, shape) = (Spot::of(gpu_rank, gpu, &fit.slot), shape_of(gpu, gpus, &fit.slot));
        let model = self.learned.model(&gpu.model);
        let opened = if *used == Use::Idle { count_of(gpus) } else { 0 };
        if let Slot::Mig { .. } = fit.slot {
            let key = self.mig_key(gpu, used, fit);
            return Some(Way { group: Group::of(model, 0, opened), shape, key, tie: 0, spot, spare: false });
        }
        let mut after = used.clone();
        after.take(gpu, &fit.slot);
        let rest = left_of(gpu, &after);
        let (stock, mut gain) = self.gain(gpus, model, rest)?;
        // Nothing else can stand on them as MIG then.
        for gpu in gpus.iter().filter_map(|(rank, ..)| self.spec.gpus.get(*rank)).filter(|_| opened > 0) {
            gain = gain.saturating_sub(gpu.mig.as_ref().map_or(0, |table| self.mig(table).part));
        }
        let key = grain::floor(gain, self.weighting.weights().bucket);
        Some(Way { group: Group::of(model, stock.full, opened), shape, key, tie: 0, spot, spare: false })
    }

    pub fn mig(&self, table: &selion_api::slice::MigTable) -> Arc<Mig> {
        self.scoring.mig(table, self.learned)
    }

    /// In thousandths of a slice. Where masks are too wide for tables: what becomes impossible, in slices.
    fn mig_key(&self, gpu: &GpuSpec, used: &Use<'_>, fit: &Fit) -> i32 {
        self.mig_worth(gpu, used, &fit.slot).map_or_else(
            || i32::try_from(fit.frag).unwrap_or(i32::MAX).saturating_neg(),
            |worth| grain::floor(worth, 1),
        )
    }

    /// What a GPU gains by an instance, in grains of a slice; `None` if its masks are too wide.
    pub fn mig_worth(&self, gpu: &GpuSpec, used: &Use<'_>, slot: &Slot) -> Option<i64> {
        let mut after = used.clone();
        after.take(gpu, slot);
        let mask = |used: &Use<'_>| match used {
            Use::Mig(used) => used.mask,
            _ => 0,
        };
        self.mig(gpu.mig.as_ref()?).worth(&self.weighting.weights(), mask(used), mask(&after))
    }

    /// What is left on the node's GPUs of that model, and which of them are those.
    pub fn lefts(&self, gpus: &[Pick], model: u8) -> (Vec<u16>, Vec<usize>) {
        let mut left = Vec::new();
        let mut taken = Vec::new();
        for (rank, (gpu, used)) in self.spec.gpus.iter().zip(&self.uses).enumerate() {
            if gpus.iter().any(|(taken, ..)| *taken == rank) {
                taken.push(left.len());
            }
            if self.learned.model(&gpu.model) == model {
                left.push(left_of(gpu, used));
            }
        }
        (left, taken)
    }

    /// What is left on the node's GPUs of that model, and what it gains, in grains, if `rest` is left of each of `gpus`.
    fn gain(&self, gpus: &[Pick], model: u8, rest: u16) -> Option<(Stock, i64)> {
        let (mut left, taken) = self.lefts(gpus, model);
        let (cpu, ram) = self.beside;
        let view = |cpu: u64, ram: u64, left: &[u16]| {
            let cpu = u32::try_from(cpu).unwrap_or(u32::MAX);
            Stock::of(&View { model, cpu, ram: mib(ram), left })
        };
        let before = view(cpu, ram, &left);
        for at in taken {
            *left.get_mut(at)? = rest;
        }
        let cpu = cpu.saturating_sub(self.want.cpu_milli.into());
        let after = view(cpu, ram.saturating_sub(self.want.ram_bytes), &left);
        Some((before, self.worth(&before, &after)))
    }

    /// What going from one stock to the other gains, in grains: the drop of what is expected to stay unused, the drop of
    /// fragmentation, less what is left open.
    fn worth(&self, before: &Stock, after: &Stock) -> i64 {
        let Some(tables) = self.scoring.tables() else {
            return 0;
        };
        let mut desk = self.desk.borrow_mut();
        let fill = desk.get_or_insert_with(|| tables.fill.sharing(REMEMBERED));
        let lost = i64::from(fill.lost(before)).saturating_sub(fill.lost(after).into());
        let drop = tables.frag.value(before).saturating_sub(tables.frag.value(after));
        self.weighting.weights().gain(lost, drop, after.total())
    }
}
