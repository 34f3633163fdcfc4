//! The futures of one epoch, laid out so that filling a node jumps from one draw that fits to the next.
//!
//! Per future, one word has a bit for each pair. For each resource and each amount of it there is the word of the
//! pairs whose draw needs no more than that: their intersection is what fits, its lowest bit the next to be placed.

use alloc::vec;
use alloc::vec::Vec;

use super::device::Device;
use super::draws::{Draw, LENGTH, PAIRS, SEQUENCES, draw};
use super::ladder::Ladder;
use super::mix::Mix;
use super::stock::{self, Stock};
use crate::engine::view::WHOLE;

/// CPU under which a node counts as spent, in thousandths of a core.
const SPENT: u32 = 1000;
const MODELS: usize = 64;

/// The first and the second draws of the pairs of a future, one bit each.
#[derive(Clone, Copy, Debug, Default)]
struct Bits {
    first: u64,
    second: u64,
}

impl Bits {
    fn and(self, other: Self) -> Self {
        Self { first: self.first & other.first, second: self.second & other.second }
    }

    fn or(self, other: Self) -> Self {
        Self { first: self.first | other.first, second: self.second | other.second }
    }
}

/// One draw as the filling reads it.
#[derive(Clone, Copy, Debug)]
struct Step {
    cpu: u32,
    ram: u32,
    milli: u16,
    num: u16,
    whole: i32, // cost of whole devices
}

/// The futures of one epoch.
#[derive(Clone, Debug, Default)]
pub struct Futures {
    steps: Vec<[Step; 2]>, // pair by pair, future by future, or empty
    cpu: Ladder,
    ram: Ladder,
    milli: Ladder,
    nums: usize,
    by_cpu: Vec<Bits>,
    by_ram: Vec<Bits>,
    by_milli: Vec<Bits>, // single-device and CPU-only draws
    by_num: Vec<Bits>,   // draws of several devices
    by_model: Vec<Bits>,
    device: Option<Device>,
}

impl Futures {
    /// The futures of `mix`, CPU-only wants at `host` of [`super::draws::ALL`].
    #[must_use]
    pub fn of(mix: &Mix, host: u32) -> Self {
        let draws = draw(mix, host);
        if draws.is_empty() {
            return Self::default();
        }
        let device = Device::of(mix);
        let cpu = Ladder::new(draws.iter().map(|draw| draw.cpu).collect());
        let ram = Ladder::new(draws.iter().map(|draw| draw.ram).collect());
        let milli = Ladder::new(draws.iter().filter(|draw| draw.num <= 1).map(|draw| draw.milli.into()).collect());
        let nums = draws.iter().map(|draw| usize::from(draw.num)).max().unwrap_or(0) + 1;
        let free = device.left(WHOLE);
        let step = |draw: &Draw| Step {
            cpu: draw.cpu,
            ram: draw.ram,
            milli: draw.milli,
            num: draw.num.into(),
            whole: -i32::from(draw.num) * free,
        };
        Self {
            steps: draws.chunks_exact(2).filter_map(|pair| Some([step(pair.first()?), step(pair.last()?)])).collect(),
            by_cpu: table(&draws, cpu.count() + 1, |draw| Some(cpu.rank(draw.cpu))),
            by_ram: table(&draws, ram.count() + 1, |draw| Some(ram.rank(draw.ram))),
            by_milli: table(&draws, milli.count() + 1, |draw| (draw.num <= 1).then(|| milli.rank(draw.milli.into()))),
            by_num: table(&draws, nums, |draw| (draw.num > 1).then_some(draw.num.into())),
            by_model: by_model(&draws),
            cpu,
            ram,
            milli,
            nums,
            device: Some(device),
        }
    }

    /// What is left of `start`'s GPUs, in milli, summed over all futures that fill it to the end. Without anything to
    /// draw it is 0: nothing is known to be lost.
    #[must_use]
    pub fn left(&self, start: &Stock) -> u32 {
        if start.full.saturating_add(start.count) <= 8 {
            self.sum::<8>(start)
        } else {
            self.sum::<{ stock::MAX_DEVICES }>(start)
        }
    }

    fn sum<const N: usize>(&self, start: &Stock) -> u32 {
        let Some(device) = &self.device else { return 0 };
        let mut parts = [0; N];
        for (to, from) in parts.iter_mut().zip(start.parts()) {
            *to = *from;
        }
        let node = Filling { cpu: start.cpu, ram: start.ram, full: start.full, count: start.count, parts };
        (0..SEQUENCES).fold(0_u32, |sum, number| {
            sum.wrapping_add(self.fill(number, start.model, node, device)) // at most 16 x 64,000
        })
    }

    /// What is left of `node` when future `number` has filled it.
    #[inline]
    fn fill<const N: usize>(&self, number: usize, model: u8, mut node: Filling<N>, device: &Device) -> u32 {
        let models = at(&self.by_model, number, MODELS, model.into());
        let steps = self.steps.get(number.wrapping_mul(PAIRS)..).unwrap_or(&[]);
        let (mut seen, mut devices) = ((0, 0), Bits::default());
        let mut unread = u64::MAX;
        while let Some(top) = node.top()
            && node.cpu >= SPENT
        {
            if (top, node.full) != seen {
                seen = (top, node.full);
                devices = at(&self.by_milli, number, self.milli.count() + 1, self.milli.rank(top.into()))
                    .or(at(&self.by_num, number, self.nums, usize::from(node.full).min(self.nums.wrapping_sub(1))))
                    .and(models);
            }
            let fits = at(&self.by_cpu, number, self.cpu.count() + 1, self.cpu.rank(node.cpu))
                .and(at(&self.by_ram, number, self.ram.count() + 1, self.ram.rank(node.ram)))
                .and(devices);
            let any = (fits.first | fits.second) & unread;
            if any == 0 {
                break;
            }
            let pair = any.trailing_zeros();
            unread = (u64::MAX << pair) << 1;
            let Some([first, second]) = steps.get(pair as usize) else { break };
            let mut has_first = fits.first >> pair & 1 == 1;
            let mut has_second = fits.second >> pair & 1 == 1;
            if has_first && first.num == 0 {
                node.host(first);
                has_first = false;
                has_second = has_second && node.cpu >= second.cpu && node.ram >= second.ram;
            }
            if has_first && has_second {
                has_first = node.cost(first, device) <= node.cost(second, device);
            }
            if has_first {
                node.place(first);
            } else if has_second {
                node.place(second);
            }
        }
        node.left()
    }
}

/// A node while a future fills it.
#[derive(Clone, Copy)]
struct Filling<const N: usize> {
    cpu: u32,
    ram: u32,
    full: u8,
    count: u8,
    parts: [u16; N],
}

impl<const N: usize> Filling<N> {
    /// The most that any device has left; none where nothing is left.
    #[inline]
    fn top(&self) -> Option<u16> {
        if self.full > 0 {
            return Some(WHOLE);
        }
        self.parts.get(usize::from(self.count).wrapping_sub(1)).copied()
    }

    #[inline]
    fn left(&self) -> u32 {
        let parts = self.parts.iter().take(self.count.into()).fold(0_u32, |sum, &left| sum.wrapping_add(left.into()));
        parts.wrapping_add(u32::from(self.full).wrapping_mul(WHOLE.into()))
    }

    /// The fullest device that has room: its index, or none: a wholly free one.
    #[inline]
    fn tightest(&self, milli: u16) -> Option<(usize, u16)> {
        self.parts.iter().take(self.count.into()).copied().enumerate().find(|&(_, left)| left >= milli)
    }

    /// What the best place of a fitting draw costs: how much more is expected to be left over.
    #[inline]
    fn cost(&self, step: &Step, device: &Device) -> i32 {
        if step.milli >= WHOLE {
            return step.whole;
        }
        let left = self.tightest(step.milli).map_or(WHOLE, |(_, left)| left);
        device.left(left.saturating_sub(step.milli)).wrapping_sub(device.left(left))
    }

    #[inline]
    fn host(&mut self, step: &Step) {
        self.cpu = self.cpu.saturating_sub(step.cpu);
        self.ram = self.ram.saturating_sub(step.ram);
    }

    #[inline]
    fn place(&mut self, step: &Step) {
        self.host(step);
        if step.milli >= WHOLE {
            self.full = self.full.saturating_sub(step.num as u8);
            return;
        }
        let left = if let Some((index, left)) = self.tightest(step.milli) {
            stock::remove(&mut self.parts, &mut self.count, index);
            left
        } else {
            self.full = self.full.saturating_sub(1);
            WHOLE
        };
        let rest = left.saturating_sub(step.milli);
        if rest > 0 {
            stock::insert(&mut self.parts, &mut self.count, rest);
        }
    }
}

/// The word of a future at a rank.
#[inline]
fn at(table: &[Bits], number: usize, width: usize, rank: usize) -> Bits {
    table.get(number.wrapping_mul(width).wrapping_add(rank)).copied().unwrap_or_default()
}

fn mark(bits: &mut Bits, at: usize) {
    let (place, second) = (at % LENGTH, at % 2 == 1);
    let bit = 1_u64 << (place / 2 % PAIRS);
    if second {
        bits.second |= bit;
    } else {
        bits.first |= bit;
    }
}

/// Per future and model, the draws that allow it.
fn by_model(draws: &[Draw]) -> Vec<Bits> {
    let mut table = vec![Bits::default(); SEQUENCES * MODELS];
    for (place, draw) in draws.iter().enumerate() {
        for model in (0..MODELS).filter(|model| draw.models >> model & 1 == 1) {
            if let Some(bits) = table.get_mut(place / LENGTH * MODELS + model) {
                mark(bits, place);
            }
        }
    }
    table
}

/// Per future and rank, the draws whose own rank is no higher. A CPU-only draw in second place is never read.
fn table(draws: &[Draw], width: usize, rank: impl Fn(&Draw) -> Option<usize>) -> Vec<Bits> {
    let mut table = vec![Bits::default(); SEQUENCES * width];
    for (place, draw) in draws.iter().enumerate() {
        if draw.num == 0 && place % 2 == 1 {
            continue;
        }
        if let Some(bits) = rank(draw).and_then(|rank| table.get_mut(place / LENGTH * width + rank)) {
            mark(bits, place);
        }
    }
    for row in table.chunks_mut(width) {
        let mut sum = Bits::default();
        for bits in row {
            sum = sum.or(*bits);
            *bits = sum;
        }
    }
    table
}

#[cfg(test)]
#[path = "futures_tests.rs"]
mod tests;
