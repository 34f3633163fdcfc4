//! The published fragmentation gradient (FGD; Weng et al., USENIX ATC 2023), exactly, in integers, in a form that
//! costs a few table look-ups a device however many types the mix has.
//!
//! `Frag(n)` is the sum over typical types `m` of weight times `f(n, m)`: all that is left on the node's devices (`T`)
//! if the node cannot host `m`, else what is left on devices that are too small for it. So `f = T - R`, with `R` what
//! is left on devices that are large enough, 0 where `m` cannot be hosted. For a type of one device `R` is a sum over
//! devices of `left * [left >= milli]`, so all such types together are one table by (CPU step, step of `left`); for a
//! type of several whole devices `R` depends on the number of free devices alone.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::nodes::{MAX_DEVICES, Node};
use super::sigmoid::Sigmoid;
use super::view::{Shape, View, WHOLE, Want};

/// The share of all arrivals, in percent, that the typical types cover.
const COVER_PERCENT: u128 = 95;
/// Weights are scaled down to sum to at most this, so that no product overflows.
const MOST_WEIGHT: u128 = 1 << 32;
const FREE_COUNTS: usize = MAX_DEVICES as usize + 1;

/// What the typical types make of one GPU model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Model {
    /// The distinct CPU demands, ascending.
    cpus: Vec<u32>,
    /// By CPU step, then step of what is left: weight of the one-device types that both allow.
    lone: Vec<i64>,
    /// By CPU step, then free devices: `R` of the types of several devices, times weight.
    wide: Vec<i64>,
}

/// The fragmentation under one mix.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frag {
    /// Sum of the weights of the typical types.
    weight: i64,
    /// Step of each amount left, 0..=1000: how many distinct demands it covers.
    steps: Vec<u8>,
    width: usize,
    models: Vec<Model>,
    sigmoid: Sigmoid,
}

/// The most popular requests that make up 95 % of all, with their counts. Memory is ignored; CPU-only requests are in
/// it; MIG instances are not: their fragmentation is a matter of masks.
#[must_use]
pub fn typical(counts: &[(Want, u64)]) -> Vec<(Want, u64)> {
    let mut types: BTreeMap<Want, u64> = BTreeMap::new();
    for (want, count) in counts.iter().filter(|(want, count)| *count > 0 && !matches!(want.shape, Shape::Mig { .. })) {
        let sum = types.entry(Want { ram: 0, ..*want }).or_default();
        *sum = sum.saturating_add(*count);
    }
    let mut types: Vec<(Want, u64)> = types.into_iter().collect();
    types.sort_by_key(|(want, count)| (core::cmp::Reverse(*count), *want));
    let all: u128 = types.iter().map(|(_, count)| u128::from(*count)).sum();
    let mut covered = 0_u128;
    types.retain(|(_, count)| {
        let wanted = covered * 100 < all * COVER_PERCENT;
        covered += u128::from(*count);
        wanted
    });
    types
}

/// Devices and thousandths of each that a type needs.
fn demand(shape: Shape) -> (usize, u16) {
    match shape {
        Shape::None | Shape::Mig { .. } => (0, 0),
        Shape::Share(milli) => (1, milli),
        Shape::Whole(count) => (usize::from(count), WHOLE),
    }
}

impl Frag {
    /// For a mix, how often each request came, and the models that the fleet has, one bit each.
    #[must_use]
    pub fn new(counts: &[(Want, u64)], present: u64) -> Self {
        let mut types = typical(counts);
        let all: u128 = types.iter().map(|(_, count)| u128::from(*count)).sum();
        if all > MOST_WEIGHT {
            for (_, count) in &mut types {
                *count = u64::try_from(u128::from(*count) * MOST_WEIGHT / all).unwrap_or(0);
            }
        }
        let weight: u64 = types.iter().map(|(_, count)| *count).sum();
        let mut millis: Vec<u16> = types.iter().map(|(want, _)| demand(want.shape)).filter_map(one_device).collect();
        millis.sort_unstable();
        millis.dedup();
        let step = |left: u16| u8::try_from(millis.partition_point(|milli| *milli <= left)).unwrap_or(u8::MAX);
        let steps: Vec<u8> = (0..=WHOLE).map(step).collect();
        let width = millis.len() + 1;
        let of = |model: u32| match present >> model & 1 {
            0 => Model::default(),
            _ => Model::new(&types, model, &steps, width),
        };
        let models = (0..64 - present.leading_zeros()).map(of).collect();
        Self { weight: i64::try_from(weight).unwrap_or(i64::MAX), steps, width, models, sigmoid: Sigmoid::new(weight) }
    }

    /// Sum of the weights: gradients are in milli times this.
    #[must_use]
    pub fn weight(&self) -> i64 {
        self.weight
    }

    fn lone(&self, left: u16, row: &[i64]) -> i64 {
        let step = self.steps.get(usize::from(left)).copied().unwrap_or(0);
        i64::from(left) * row.get(usize::from(step)).copied().unwrap_or(0)
    }

    fn rows(&self, model: u8, cpu: u32) -> (&[i64], &[i64]) {
        let Some(model) = self.models.get(usize::from(model)) else { return (&[], &[]) };
        // A sum over all: shorter than a search, for the two dozen steps there are.
        let step = model.cpus.iter().map(|least| usize::from(*least <= cpu)).sum::<usize>();
        let lone = model.lone.get(step * self.width..(step + 1) * self.width).unwrap_or(&[]);
        let wide = model.wide.get(step * FREE_COUNTS..(step + 1) * FREE_COUNTS).unwrap_or(&[]);
        (lone, wide)
    }

    /// What the node can host, `T - Frag(n)` times weight: equal for all requests, so it is worth keeping by node.
    pub(super) fn hosted(&self, node: &Node, lefts: &[u16]) -> i64 {
        let (lone, wide) = self.rows(node.model, node.cpu);
        lefts.iter().map(|left| self.lone(*left, lone)).sum::<i64>() + at(wide, node.free)
    }

    /// `Frag(n) - Frag(n after)` times weight for every way to place the request, in order: for a share each device
    /// that has enough left, else once with device 0. The caller has checked CPU, memory and model. A MIG instance
    /// counts as taking a whole free device, which is what opening one for it does. `hosted` is that of the node.
    pub(super) fn gradients(
        &self,
        node: &Node,
        lefts: &[u16],
        hosted: i64,
        want: &Want,
        mut tell: impl FnMut(u8, i64),
    ) {
        let (lone, wide) = self.rows(node.model, node.cpu.saturating_sub(want.cpu));
        let after: i64 = lefts.iter().map(|left| self.lone(*left, lone)).sum();
        let wholes = |count: u8| {
            let gone = i64::from(count) * self.lone(WHOLE, lone);
            let rest = after - gone + at(wide, node.free.saturating_sub(count));
            i64::from(count) * i64::from(WHOLE) * self.weight - hosted + rest
        };
        match want.shape {
            Shape::None => tell(0, wholes(0)),
            Shape::Whole(count) => tell(0, wholes(count)),
            Shape::Mig { .. } => tell(0, wholes(1)),
            Shape::Share(milli) => {
                let taken = i64::from(milli) * self.weight - hosted + after;
                for (device, left) in (0_u8..).zip(lefts.iter().copied()) {
                    let Some(rest) = left.checked_sub(milli) else { continue };
                    let free = node.free.saturating_sub((left == WHOLE).into());
                    tell(device, taken - self.lone(left, lone) + self.lone(rest, lone) + at(wide, free));
                }
            }
        }
    }

    /// The gradient of placing `want` on device `device` of a node as it is seen; a device without enough left is none.
    #[must_use]
    pub fn gradient(&self, view: &View<'_>, want: &Want, device: usize) -> Option<i64> {
        let node = Node::seen(view);
        let mut found = None;
        self.gradients(&node, view.left, self.hosted(&node, view.left), want, |at, gradient| {
            if !matches!(want.shape, Shape::Share(_)) || usize::from(at) == device {
                found = Some(gradient);
            }
        });
        found
    }

    /// The published score, 0 to 99, of a gradient.
    #[must_use]
    pub fn score(&self, gradient: i64) -> i32 {
        self.sigmoid.score(gradient)
    }

    /// The least gradient of that score.
    #[must_use]
    pub fn least(&self, score: i32) -> i64 {
        self.sigmoid.least(score)
    }
}

fn at(row: &[i64], free: u8) -> i64 {
    row.get(usize::from(free)).copied().unwrap_or(0)
}

fn one_device((count, milli): (usize, u16)) -> Option<u16> {
    (count == 1).then_some(milli)
}

impl Model {
    fn new(types: &[(Want, u64)], model: u32, steps: &[u8], width: usize) -> Self {
        let here = || types.iter().filter(|(want, _)| want.models >> model & 1 == 1 && demand(want.shape).0 > 0);
        let mut cpus: Vec<u32> = here().map(|(want, _)| want.cpu).collect();
        cpus.sort_unstable();
        cpus.dedup();
        let mut lone = alloc::vec![0; (cpus.len() + 1) * width];
        let mut wide = alloc::vec![0; (cpus.len() + 1) * FREE_COUNTS];
        for (want, count) in here() {
            let count = i64::try_from(*count).unwrap_or(i64::MAX);
            let first = cpus.partition_point(|cpu| *cpu < want.cpu) + 1;
            let (devices, milli) = demand(want.shape);
            for step in first..=cpus.len() {
                if devices == 1 {
                    let least = steps.get(usize::from(milli)).copied().unwrap_or(0);
                    let row = lone.get_mut(step * width + usize::from(least)..(step + 1) * width);
                    row.into_iter().flatten().for_each(|sum| *sum += count);
                } else {
                    let row = wide.get_mut(step * FREE_COUNTS..(step + 1) * FREE_COUNTS);
                    for (free, sum) in (0_i64..).zip(row.into_iter().flatten()) {
                        let able = usize::try_from(free).is_ok_and(|free| free >= devices);
                        *sum += if able { count * free * i64::from(WHOLE) } else { 0 };
                    }
                }
            }
        }
        Self { cpus, lone, wide }
    }
}
