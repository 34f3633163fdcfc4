//! The two prices of what one node cannot see: whole-node slots and scarce models.

use alloc::vec::Vec;

use borsh::{BorshDeserialize, BorshSerialize};

use super::grain::MILLI;
use super::group::Group;
use super::ln::ln;
use super::mix::Mix;
use super::stock::gpu_milli;
use super::sums::{MODELS, SLOTS, Sums};
use super::weights::{Capacity, Horizon, Weights};
use crate::engine::view::{Shape, Want};

/// 1 in the fixed point of ratios.
const ONE: u64 = 1 << 16;
/// 1 in the fixed point of the balance of models.
const EVEN: u64 = 1 << 20;
/// How far a model's scarcity may be from even, each way.
const FARTHEST: u64 = 1 << 14;
/// Rounds of the balance.
const ROUNDS: usize = 20;

/// The prices of the moment, in grains.
#[derive(Clone, Debug, PartialEq, Eq, BorshSerialize, BorshDeserialize)]
pub struct Prices {
    slot: [i64; SLOTS],
    model: [i64; MODELS], // per whole GPU
}

impl Default for Prices {
    fn default() -> Self {
        Self { slot: [0; SLOTS], model: [0; MODELS] }
    }
}

impl Prices {
    /// The prices for what arrives (`mix`) and what is left (`sums`).
    #[must_use]
    pub fn of(weights: &Weights, mix: &Mix, sums: &Sums) -> Self {
        Self { slot: slot_prices(weights, mix, sums), model: model_prices(weights, mix, sums) }
    }

    /// Price of placing `want` in `group`, in grains. CPU-only and MIG wants have none.
    #[must_use]
    pub fn of_group(&self, want: &Want, group: Group) -> i64 {
        let gpu = gpu_milli(want);
        if gpu == 0 {
            return 0;
        }
        let slots = group.broken(want).iter().zip(&self.slot).fold(0_i64, |sum, (&broken, &price)| {
            sum.saturating_add(price.saturating_mul(broken.into())) //
        });
        let model = self.model.get(usize::from(group.model())).copied().unwrap_or(0);
        slots.saturating_add(model.saturating_mul(gpu.into()) / 1000)
    }

    /// Price of a slot of 2, 4 or 8 devices (1, 2, 3), in grains.
    #[must_use]
    pub fn slot(&self, size: usize) -> i64 {
        self.slot.get(size.wrapping_sub(1)).copied().unwrap_or(0)
    }

    /// Price of a whole GPU of `model`, in grains.
    #[must_use]
    pub fn model(&self, model: u8) -> i64 {
        self.model.get(usize::from(model)).copied().unwrap_or(0)
    }
}

/// The slot that a want of `num` devices needs: 0 for 2, 1 for 3 and 4, 2 for more.
fn class(want: &Want) -> Option<usize> {
    match want.shape {
        Shape::Whole(2) => Some(0),
        Shape::Whole(3 | 4) => Some(1),
        Shape::Whole(num) if num > 4 => Some(2),
        _ => None,
    }
}

/// Per size: price of one GPU, times the GPUs of the slot, times min(1, demand / supply)^4.
fn slot_prices(weights: &Weights, mix: &Mix, sums: &Sums) -> [i64; SLOTS] {
    let mut counts = [0_u128; SLOTS];
    let mut gpu = 0_u128;
    for (want, count) in mix.kinds() {
        if let Some(sum) = class(want).and_then(|class| counts.get_mut(class)) {
            *sum += u128::from(*count);
        }
        gpu += u128::from(*count) * u128::from(gpu_milli(want));
    }
    // Demand within the horizon is count x ahead / of.
    let (ahead, of) = match weights.horizon {
        Horizon::UntilFull => (u128::from(sums.all_fillable()), gpu),
        Horizon::Arrivals(arrivals) => (u128::from(arrivals), u128::from(mix.total())),
    };
    let mut prices = [0; SLOTS];
    for (size, price) in prices.iter_mut().enumerate() {
        let count = counts.get(size).copied().unwrap_or(0);
        let slots = u128::from(sums.slots.get(size).copied().unwrap_or(0));
        let demand = count.saturating_mul(ahead).saturating_mul(u128::from(ONE));
        let ratio = match demand.checked_div(of.saturating_mul(slots)) {
            Some(ratio) => u64::try_from(ratio).unwrap_or(ONE).min(ONE),
            None => 0, // no arrivals, or no slot to break
        };
        let fourth = power(power(ratio, 1), 1);
        *price = i64::from(weights.slot) * (2 << size) * (MILLI >> 16) * i64::try_from(fourth).unwrap_or(0);
    }
    prices
}

/// `ratio`, at most [`ONE`], squared `times` times.
pub(super) fn power(ratio: u64, times: u32) -> u64 {
    (0..times).fold(ratio.min(ONE), |ratio, _| (ratio * ratio) >> 16)
}

/// Demand per set of models and capacity per model, each in 2^-20 of all.
struct Balance {
    demand: Vec<(u64, u64)>,
    capacity: [u64; MODELS],
    present: u64,
}

fn balance(weights: &Weights, mix: &Mix, sums: &Sums) -> Balance {
    let supply = match weights.capacity {
        Capacity::Fillable => &sums.fillable,
        Capacity::Total => &sums.capacity,
    };
    let all = supply.iter().fold(0_u128, |sum, &part| sum + u128::from(part)).max(1);
    let mut capacity = [0; MODELS];
    let mut present = 0_u64;
    for (model, (share, &part)) in capacity.iter_mut().zip(supply).enumerate() {
        if part > 0 {
            *share = u64::try_from(u128::from(part) * u128::from(EVEN) / all).unwrap_or(EVEN).max(1);
            present |= 1 << model;
        }
    }
    let mut sets: Vec<(u64, u128)> = Vec::new();
    for (want, count) in mix.kinds() {
        let (set, gpu) = (want.models & present, u128::from(*count) * u128::from(gpu_milli(want)));
        if set == 0 || gpu == 0 {
            continue;
        }
        match sets.binary_search_by(|(known, _)| known.cmp(&set)) {
            Ok(at) => sets.get_mut(at).into_iter().for_each(|(_, sum)| *sum += gpu),
            Err(at) => sets.insert(at, (set, gpu)),
        }
    }
    let wanted = sets.iter().fold(0, |sum, (_, gpu)| sum + gpu).max(1);
    let part = |gpu: u128| u64::try_from(gpu * u128::from(EVEN) / wanted).unwrap_or(EVEN);
    Balance { demand: sets.into_iter().map(|(set, gpu)| (set, part(gpu))).collect(), capacity, present }
}

/// Sinkhorn's balance of demand per set of models with capacity per model. With q the attraction of a model per unit
/// of its capacity, a set spreads its demand d over its models by capacity x q; the load per capacity of a model is
/// then q x s, s = the sum over its sets of d / (sum of capacity x q). A round sets q = 1 / s. The price is the
/// logarithm of s over the least s of any model, and stops at its cap.
fn model_prices(weights: &Weights, mix: &Mix, sums: &Sums) -> [i64; MODELS] {
    let Balance { demand, capacity, present } = balance(weights, mix, sums);
    let mut scarcity = [EVEN; MODELS];
    if demand.is_empty() || weights.model == 0 {
        return [0; MODELS];
    }
    for _ in 0..ROUNDS {
        let mut next = [0_u64; MODELS];
        for &(set, gpu) in &demand {
            let pull = |model| {
                let (share, scarce): (u64, u64) = (get(&capacity, model), get(&scarcity, model));
                share.wrapping_mul(EVEN * EVEN / scarce.max(1)) // at most 2^20 x 2^34
            };
            let all = models(set).fold(0_u64, |sum, model| sum.saturating_add(pull(model))).max(1);
            let load = (gpu << 40) / all; // gpu at most 2^20
            for model in models(set) {
                if let Some(sum) = next.get_mut(model) {
                    *sum = sum.saturating_add(load);
                }
            }
        }
        scarcity = next.map(|sum| sum.clamp(EVEN / FARTHEST, EVEN * FARTHEST));
    }
    let least = models(present).map(|model| get(&scarcity, model)).min().unwrap_or(EVEN);
    let cap = i64::from(weights.model_cap) * MILLI;
    let mut prices = [0; MODELS];
    for model in models(present) {
        if let Some(price) = prices.get_mut(model) {
            let rise = ln(get(&scarcity, model)).saturating_sub(ln(least));
            *price = (i64::from(weights.model) * (MILLI >> 16)).saturating_mul(rise).min(cap);
        }
    }
    prices
}

fn get(table: &[u64; MODELS], model: usize) -> u64 {
    table.get(model).copied().unwrap_or(0)
}

/// The models of a set, lowest first.
fn models(mut set: u64) -> impl Iterator<Item = usize> {
    core::iter::from_fn(move || {
        let model = set.trailing_zeros();
        (set != 0).then(|| {
            set &= set.wrapping_sub(1);
            model as usize
        })
    })
}

#[cfg(test)]
#[path = "prices_tests.rs"]
mod tests;
