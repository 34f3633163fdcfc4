//! How much of a node any future can take.

use super::draws::{Draw, LENGTH};
use super::futures::SPENT;
use super::memo;
use crate::engine::view::WHOLE;

/// The most that any future takes of a node: whatever more there is stays.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Most {
    /// CPU, in thousandths of a core.
    pub cpu: u32,
    /// Memory, in MiB.
    pub ram: u32,
    /// Devices that were wholly free.
    pub full: u8,
}

impl Most {
    /// Of both draws of a pair the dearer one counts, in each resource; a CPU-only draw in first place counts beside
    /// the second.
    pub fn of(draws: &[Draw]) -> Self {
        draws.chunks(LENGTH).map(Self::of_future).fold(Self::default(), |most, next| Self {
            cpu: most.cpu.max(next.cpu),
            ram: most.ram.max(next.ram),
            full: most.full.max(next.full),
        })
    }

    fn of_future(draws: &[Draw]) -> Self {
        let (mut cpu, mut ram, mut whole, mut parts, mut largest) = (SPENT, 0_u32, 0_u32, 0_u32, 0);
        for (first, second) in draws.chunks_exact(2).filter_map(|pair| Some((pair.first()?, pair.last()?))) {
            let of_pair = |of: fn(&Draw) -> u32| {
                let (one, two) = (of(first), of(second));
                if first.num == 0 { one.saturating_add(two) } else { one.max(two) }
            };
            cpu = cpu.saturating_add(of_pair(|draw| draw.cpu));
            ram = ram.saturating_add(of_pair(|draw| draw.ram));
            whole = whole.saturating_add(of_pair(|draw| if draw.milli >= WHOLE { draw.num.into() } else { 0 }));
            parts = parts.saturating_add(of_pair(|draw| if draw.milli >= WHOLE { 0 } else { draw.milli.into() }));
            largest = [first, second]
                .into_iter()
                .map(|draw| draw.milli)
                .filter(|milli| *milli < WHOLE)
                .fold(largest, u16::max);
        }
        // A share opens a device only when none in use has room for it: then less is left on each that was opened
        // before than the largest share takes.
        let opened = parts.div_ceil(u32::from(WHOLE.saturating_sub(largest)).saturating_add(1));
        let full = whole.saturating_add(opened);
        // A node is looked at with its CPU and memory rounded down.
        let (cpu, ram) = (cpu.saturating_add(memo::CPU_STEP), ram.saturating_add(memo::RAM_STEP));
        Self { cpu, ram, full: u8::try_from(full).unwrap_or(u8::MAX) }
    }
}
