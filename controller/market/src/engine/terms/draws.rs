//! The fixed futures: the same uniform numbers in every epoch and for every node, read through the learned mix.
//!
//! Common random numbers make the difference between two nodes far less noisy than the value of either.

use alloc::vec::Vec;

use super::mix::Mix;
use super::stock::gpu_milli;
use crate::engine::view::{Shape, WHOLE};

/// Futures that a node is filled with.
pub const SEQUENCES: usize = 16;
/// Draws of one future, read in pairs.
pub const LENGTH: usize = 96;
/// Pairs of one future: each has a bit in a word.
pub const PAIRS: usize = LENGTH / 2;
/// Weight of a CPU-only want at full: see [`draw`].
pub const ALL: u32 = 1 << 16;
/// Where the generator of the uniform numbers starts. Changing it changes every decision. Six were tried on four
/// public lists: they differ by up to 0.3 points where most work is shares; this one is within 0.1 of the best on each.
const SEED: u64 = 2;

/// One draw: what it takes of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Draw {
    /// CPU, in thousandths of a core.
    pub cpu: u32,
    /// Memory, in MiB.
    pub ram: u32,
    /// Thousandths of one device; 1000 for each of `num` whole ones; 0 for CPU and memory only.
    pub milli: u16,
    /// Devices.
    pub num: u8,
    /// Models allowed.
    pub models: u64,
}

/// The fixed uniform numbers: the upper halves of splitmix64 from a fixed seed.
pub fn uniform() -> impl Iterator<Item = u32> {
    let mut state = SEED;
    core::iter::repeat_with(move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 32) as u32
    })
}

/// Draws every future from `mix` by cumulative counts, CPU-only wants at `host` of [`ALL`] of their count. MIG wants
/// are not drawn. Empty without anything to draw; else [`SEQUENCES`] times [`LENGTH`], future by future.
#[must_use]
pub fn draw(mix: &Mix, host: u32) -> Vec<Draw> {
    let mut edges: Vec<(u128, Draw)> = Vec::with_capacity(mix.kinds().len());
    let mut sum = 0_u128;
    for &(want, count) in mix.kinds() {
        let (milli, num) = match want.shape {
            Shape::Mig { .. } => continue,
            Shape::Share(milli) => (milli.min(WHOLE), 1),
            Shape::Whole(num) if num > 0 => (WHOLE, num),
            Shape::None | Shape::Whole(_) => (0, 0),
        };
        let weight = if gpu_milli(&want) > 0 { ALL } else { host.min(ALL) };
        sum += u128::from(count) * u128::from(weight);
        edges.push((sum, Draw { cpu: want.cpu, ram: want.ram, milli, num, models: want.models }));
    }
    if sum == 0 {
        return Vec::new();
    }
    let pick = |number: u32| {
        let at = (u128::from(number) * sum) >> 32;
        let kind = edges.partition_point(|(edge, _)| *edge <= at);
        edges.get(kind).map_or_else(Draw::default, |(_, draw)| *draw)
    };
    uniform().take(SEQUENCES * LENGTH).map(pick).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::view::Want;

    #[test]
    fn the_uniform_numbers_are_these() {
        let first: Vec<u32> = uniform().take(3).collect();
        assert_eq!(first, [2_539_140_574, 3_217_573_392, 2_558_246_079]);
        let mean = uniform().take(1536).map(u64::from).sum::<u64>() / 1536;
        assert!(mean.abs_diff(1 << 31) < 1 << 27, "{mean}");
    }

    #[test]
    fn draws_follow_the_counts_and_cpu_only_wants_count_as_told() {
        let want = |shape, cpu| Want { shape, cpu, ram: 0, models: u64::MAX };
        let kinds = [(want(Shape::None, 1), 2), (want(Shape::Share(300), 2), 1), (want(Shape::Whole(2), 3), 1)];
        let mix = Mix::oracle(&kinds);
        let half = draw(&mix, ALL);
        assert_eq!(half.len(), SEQUENCES * LENGTH);
        let hosts = half.iter().filter(|draw| draw.num == 0).count();
        assert!(hosts.abs_diff(768) < 80, "{hosts}");
        assert!(draw(&mix, 0).iter().all(|draw| draw.num > 0));
        let twos = draw(&mix, 0).iter().filter(|draw| draw.num == 2 && draw.milli == WHOLE).count();
        assert!(twos.abs_diff(768) < 80, "{twos}");
    }

    #[test]
    fn nothing_is_drawn_from_an_empty_mix_or_from_mig_alone() {
        assert!(draw(&Mix::default(), ALL).is_empty());
        let mig = Want { shape: Shape::Mig { table: 0, profile: 0 }, cpu: 0, ram: 0, models: u64::MAX };
        assert!(draw(&Mix::oracle(&[(mig, 5)]), ALL).is_empty());
    }
}
