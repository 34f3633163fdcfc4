//! MIG devices: what a mask of taken memory slices is worth under the learned mix, by exact tables of 256.

use alloc::vec;
use alloc::vec::Vec;

use super::ends::longer;
use super::grain::MILLI;
use super::mix::Mix;
use super::weights::Weights;
use crate::engine::view::Shape;

/// Most memory slices of a table: a mask is a byte.
pub const SLICES: u8 = 8;
/// The weights of the profiles add up to this; values are in 2^-16 of a slice.
const UNIT: u64 = 1 << 16;
const MASKS: usize = 1 << SLICES;

/// A profile: so many memory slices, at these starts (one bit each).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Memory slices.
    pub size: u8,
    /// Where an instance may start.
    pub starts: u8,
}

/// The geometry of one family of devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Memory slices of a device, at most [`SLICES`].
    pub slices: u8,
    /// Its profiles, by number.
    pub profiles: Vec<Profile>,
}

/// A place for an instance on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// First memory slice.
    pub start: u8,
    /// The mask with it.
    pub mask: u8,
    /// What the device gains, in grains of a slice (a thousandth of a slice is [`MILLI`]): higher is better.
    pub worth: i64,
}

impl Layout {
    /// Slices that an instance of `profile` takes at `start`, if it may start there.
    #[must_use]
    pub fn taken(&self, profile: u8, start: u8) -> Option<u8> {
        let profile = self.profiles.get(usize::from(profile))?;
        let end = start.checked_add(profile.size).filter(|&end| end <= self.slices.min(SLICES))?;
        let allowed = profile.size > 0 && start < SLICES && profile.starts >> start & 1 == 1;
        let run = (1_u16 << end).wrapping_sub(1_u16 << start); // end at most 8
        allowed.then(|| u8::try_from(run).ok()).flatten()
    }

    /// Every way to put `profile` beside `mask`: start and mask with it, lowest start first.
    pub fn ways(&self, profile: u8, mask: u8) -> impl Iterator<Item = (u8, u8)> {
        (0..SLICES).filter_map(move |start| {
            let taken = self.taken(profile, start)?;
            (taken & mask == 0).then_some((start, mask | taken))
        })
    }

    /// Free slices beside `mask`.
    #[must_use]
    pub fn free(&self, mask: u8) -> u64 {
        u64::from(self.slices.min(SLICES)).saturating_sub(mask.count_ones().into())
    }
}

/// The tables of one layout and mix.
#[derive(Clone, Debug)]
pub struct Table {
    layout: Layout,
    frag: Vec<u64>,
    left: Vec<u64>,
}

impl Table {
    /// The tables of `layout`, number `table`, as `mix` asks for its profiles.
    #[must_use]
    pub fn of(layout: &Layout, table: u8, mix: &Mix) -> Self {
        let weights = profile_weights(layout, table, mix);
        let frag = (0..=u8::MAX).map(|mask| fragmentation(layout, &weights, mask)).collect();
        Self { frag, left: leftovers(layout, &weights), layout: layout.clone() }
    }

    /// Expected slices that the mix cannot use on a device with `mask` taken, in 2^-16.
    #[must_use]
    pub fn frag(&self, mask: u8) -> u64 {
        self.frag.get(usize::from(mask)).copied().unwrap_or(0)
    }

    /// Expected slices that stay free when the mix fills the device to the end, in 2^-16.
    #[must_use]
    pub fn left(&self, mask: u8) -> u64 {
        self.left.get(usize::from(mask)).copied().unwrap_or(0)
    }

    /// What a device gains by going from one mask to another, in grains of a slice.
    #[must_use]
    pub fn worth(&self, weights: &Weights, before: u8, after: u8) -> i64 {
        let drop = |before: u64, after: u64| (before as i64).wrapping_sub(after as i64); // at most 8 x 2^16
        let fill = i64::from(weights.mig_fill.min(10));
        let blend =
            drop(self.left(before), self.left(after)) * fill + drop(self.frag(before), self.frag(after)) * (10 - fill);
        blend * 100 * (MILLI >> 16)
    }

    /// Every place for `profile` beside `mask`, lowest start first.
    pub fn places(&self, weights: &Weights, profile: u8, mask: u8) -> impl Iterator<Item = Place> {
        self.layout.ways(profile, mask).map(move |(start, after)| Place {
            start,
            mask: after,
            worth: self.worth(weights, mask, after),
        })
    }

    /// What [`end_charge`] says of an instance of a profile at a start.
    #[must_use]
    pub fn end_charge(
        &self,
        weights: &Weights,
        place: (u8, u8),
        ends: &[u64; SLICES as usize],
        new: u64,
        mean_life_ms: u64,
    ) -> i64 {
        let (profile, start) = place;
        let taken = self.layout.taken(profile, start).unwrap_or(0);
        end_charge(weights, taken, ends, new, mean_life_ms)
    }
}

/// The charge for a lease that ends at `new` on the slices `taken` of a device whose slices end at `ends` (`now` where
/// idle), in grains of a slice: for each block of 2, 4 and 8 slices around the instance, its part of 8 slices times how
/// much longer it stays busy, a mean life at most.
#[must_use]
pub fn end_charge(weights: &Weights, taken: u8, ends: &[u64; SLICES as usize], new: u64, mean_life_ms: u64) -> i64 {
    if taken == 0 {
        return 0;
    }
    let start = u8::try_from(taken.trailing_zeros()).unwrap_or(0);
    [2_u8, 4, 8].into_iter().fold(0_i64, |sum, block| {
        let first = start - start % block;
        let inside = (((1_u16 << block) - 1) << first) as u8;
        if taken & !inside != 0 {
            return sum;
        }
        let slices = usize::from(first)..usize::from(first + block).min(SLICES.into());
        let last = ends.get(slices).and_then(|ends| ends.iter().max()).copied().unwrap_or(0);
        let busy = longer(new, last, mean_life_ms).saturating_mul(weights.mig_end.into());
        sum.saturating_add(busy.saturating_mul(block.into()) / i64::from(SLICES))
    })
}

/// How often each profile is asked for: parts of [`UNIT`], or nothing.
fn profile_weights(layout: &Layout, table: u8, mix: &Mix) -> Vec<u64> {
    let mut counts = vec![0_u128; layout.profiles.len()];
    for &(want, count) in mix.kinds() {
        if let Shape::Mig { table: of, profile } = want.shape
            && of == table
            && let Some(sum) = counts.get_mut(usize::from(profile))
        {
            *sum += u128::from(count);
        }
    }
    let all = counts.iter().sum::<u128>().max(1);
    let part = |count: u128| u64::try_from(count * u128::from(UNIT) / all).unwrap_or(UNIT);
    counts.into_iter().map(part).collect()
}

/// For each profile by its weight: the free slices that no instance of it beside `mask` could cover.
fn fragmentation(layout: &Layout, weights: &[u64], mask: u8) -> u64 {
    (0_u8..).zip(weights).fold(0, |sum, (profile, weight)| {
        let usable = layout.ways(profile, mask).fold(0_u8, |cover, (_, after)| cover | (after & !mask));
        sum + weight * layout.free(mask).saturating_sub(u64::from(usable.count_ones()))
    })
}

/// The exact value of every mask, fullest first. Profiles are drawn in pairs; of those that fit, the one whose best
/// start leads to the least value is placed; a pair of which none fits is passed over. A mask where none fits keeps
/// what is free.
fn leftovers(layout: &Layout, weights: &[u64]) -> Vec<u64> {
    let mut left = vec![0_u64; MASKS];
    for mask in (0..=u8::MAX).rev() {
        // A way only adds slices, so that its mask is a higher number and already done.
        let best = |profile| {
            layout.ways(profile, mask).map(|(_, after)| left.get(usize::from(after)).copied().unwrap_or(0)).min()
        };
        let mut fits: Vec<(u64, u64)> = (0_u8..)
            .zip(weights)
            .filter(|(_, weight)| **weight > 0)
            .filter_map(|(profile, &weight)| best(profile).map(|value| (value, weight)))
            .collect();
        fits.sort_unstable();
        let total: u64 = weights.iter().sum();
        let mut above = total; // weight of draws no better than the present one, those that do not fit among them
        let (mut sum, mut chance) = (0_u64, 0_u64);
        for (value, weight) in fits {
            let rest = above.saturating_sub(weight);
            let pair = above * above - rest * rest; // the better of two draws is this one
            sum += value * (pair >> 16); // a value is at most 2^19, a chance at most 2^16
            chance += pair >> 16;
            above = rest;
        }
        let value = sum.checked_div(chance).unwrap_or(layout.free(mask) * UNIT);
        if let Some(slot) = left.get_mut(usize::from(mask)) {
            *slot = value;
        }
    }
    left
}

#[cfg(test)]
#[path = "mig_tests.rs"]
mod tests;
