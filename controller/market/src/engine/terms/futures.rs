//! The futures of one epoch, laid out so that filling a node jumps from one draw that fits to the next.
//!
//! Per future, one word has a bit for each pair. For each resource and each amount of it there is the word of the
//! pairs whose draw needs no more than that: their intersection is what fits, its lowest bit the next to be placed.

use alloc::vec;
use alloc::vec::Vec;

use super::device::Device;
use super::draws::{Draw, LENGTH, PAIRS, SEQUENCES, draw};
use super::filling::{Filling, Step, cost};
use super::ladder::Ladder;
use super::mix::Mix;
use super::most::Most;
use super::stock::{self, Stock};
use crate::engine::view::WHOLE;

/// CPU under which a node counts as spent, in thousandths of a core.
pub(super) const SPENT: u32 = 1000;
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
    most: Most,
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
            most: Most::of(&draws),
        }
    }

    /// The part of `start` that the futures can touch, and what is left of the rest, summed over them: what is left of
    /// both parts is what is left of all. So nodes with plenty of room are all alike.
    #[must_use]
    pub fn touched(&self, start: &Stock) -> (Stock, u32) {
        if self.device.is_none() {
            return (*start, 0);
        }
        let Most { cpu, ram, full } = self.most;
        let touched = Stock { cpu: start.cpu.min(cpu), ram: start.ram.min(ram), full: start.full.min(full), ..*start };
        let rest = u32::from(start.full.saturating_sub(touched.full)).wrapping_mul(WHOLE.into());
        (touched, rest.wrapping_mul(SEQUENCES as u32)) // at most 16 x 64,000
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
        let node = Filling::<N>::of(start);
        if node.cpu < SPENT {
            return node.left().wrapping_mul(SEQUENCES as u32); // no future places anything
        }
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
        let mut cpu = Allowed::new(&self.by_cpu, &self.cpu, number, node.cpu);
        let mut ram = Allowed::new(&self.by_ram, &self.ram, number, node.ram);
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
            let fits = cpu.by(node.cpu).and(ram.by(node.ram)).and(devices);
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
            let place = has_first.then(|| node.tightest(first.milli));
            let other = has_second.then(|| node.tightest(second.milli));
            match (place, other) {
                (Some(place), Some(other)) if cost(second, other, device) < cost(first, place, device) => {
                    node.place(second, other);
                }
                (Some(place), _) => node.place(first, place),
                (None, Some(other)) => node.place(second, other),
                (None, None) => {}
            }
        }
        node.left()
    }
}

/// What an amount allows in one future, and the least amount that allows the same: it only ever falls, so that hardly
/// any change of it has to be looked up.
struct Allowed<'a> {
    row: &'a [Bits],
    ladder: &'a Ladder,
    bits: Bits,
    least: u32,
}

impl<'a> Allowed<'a> {
    #[inline]
    fn new(table: &'a [Bits], ladder: &'a Ladder, number: usize, amount: u32) -> Self {
        let row = table.get(number.wrapping_mul(ladder.count() + 1)..).unwrap_or(&[]);
        let mut new = Self { row, ladder, bits: Bits::default(), least: 0 };
        new.look(amount);
        new
    }

    #[inline]
    fn look(&mut self, amount: u32) {
        let rank = self.ladder.rank(amount);
        (self.bits, self.least) = (self.row.get(rank).copied().unwrap_or_default(), self.ladder.step(rank));
    }

    #[inline]
    fn by(&mut self, amount: u32) -> Bits {
        if amount < self.least {
            self.look(amount);
        }
        self.bits
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
