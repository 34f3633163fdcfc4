//! Fragmentation: FGD's expected GPU that the usual wants cannot use on a node, and what a placement changes of it.
//!
//! A want that needs no GPU, or that the node cannot host, leaves all that is left on the node unused; one that the
//! node can host leaves the devices that are too small for it. Summed over the usual wants, a device with `l` left is
//! of use to a share of the wants that depends on `l`, the model and the CPU left alone. So the sum is one look-up per
//! device in a table built at each epoch, and no node state needs to be remembered.

use alloc::vec;
use alloc::vec::Vec;

use super::ladder::Ladder;
use super::mix::Mix;
use super::stock::Stock;
use crate::engine::view::{Shape, WHOLE, Want};

/// The weights of the usual wants add up to this: fragmentation is in 2^-16 of a milli.
pub const UNIT: u32 = 1 << 16;
/// Percent of the arrivals that the usual wants cover.
const COVER: u64 = 95;
const MODELS: usize = 64;

/// One usual want: how often it comes and what it needs.
#[derive(Clone, Copy, Debug)]
struct Usual {
    want: Want,
    weight: u32,
}

/// The table of one mix.
#[derive(Clone, Debug)]
pub struct Frag {
    cpu: Ladder,
    milli: Ladder,
    /// Which table row family each model uses.
    family: [u8; MODELS],
    /// By family, CPU rank, milli rank: weight of the hosted wants of one device.
    single: Vec<u32>,
    /// By family, CPU rank, devices wholly free: weight of the hosted wants of several devices.
    multi: Vec<u32>,
    nums: usize,
}

impl Default for Frag {
    fn default() -> Self {
        Self::of(&Mix::default())
    }
}

/// The tables of one model at one CPU left.
#[derive(Clone, Copy)]
struct Row<'a> {
    single: &'a [u32],
    multi: &'a [u32],
}

impl Frag {
    /// The tables of `mix`: its commonest wants until they cover 95 % of the arrivals. MIG wants are judged elsewhere.
    #[must_use]
    pub fn of(mix: &Mix) -> Self {
        let usual = usual(mix);
        let cpu = Ladder::new(usual.iter().map(|usual| usual.want.cpu).collect());
        let milli = Ladder::new(usual.iter().filter_map(|usual| single_milli(&usual.want)).map(u32::from).collect());
        let nums = usual.iter().filter_map(|usual| several(&usual.want)).max().map_or(1, |most| usize::from(most) + 1);
        let (family, families) = families(&usual);
        let rows = families.len() * (cpu.count() + 1);
        let mut frag =
            Self { single: vec![0; rows * (milli.count() + 1)], multi: vec![0; rows * nums], cpu, milli, family, nums };
        for (number, &model) in families.iter().enumerate() {
            frag.fill_family(number, model, &usual);
        }
        frag
    }

    /// Writes the rows of one family: each type at its own rank, then sums over both ranks.
    fn fill_family(&mut self, number: usize, model: usize, usual: &[Usual]) {
        let (width, height) = (self.milli.count() + 1, self.cpu.count() + 1);
        for &Usual { want, weight } in usual {
            if want.models >> model & 1 == 0 {
                continue;
            }
            let row = number * height + self.cpu.rank(want.cpu);
            let cell = if let Some(milli) = single_milli(&want) {
                self.single.get_mut(row * width + self.milli.rank(milli.into()))
            } else if let Some(num) = several(&want) {
                self.multi.get_mut(row * self.nums + usize::from(num))
            } else {
                None
            };
            if let Some(cell) = cell {
                *cell = cell.saturating_add(weight);
            }
        }
        for row in 0..height {
            sum_row(&mut self.single, number * height + row, width, row > 0);
            sum_row(&mut self.multi, number * height + row, self.nums, row > 0);
        }
    }

    #[inline]
    fn row(&self, model: u8, cpu: u32) -> Row<'_> {
        let family = usize::from(self.family.get(usize::from(model)).copied().unwrap_or(0));
        let row = family * (self.cpu.count() + 1) + self.cpu.rank(cpu);
        let width = self.milli.count() + 1;
        Row {
            single: self.single.get(row * width..(row + 1) * width).unwrap_or(&[]),
            multi: self.multi.get(row * self.nums..(row + 1) * self.nums).unwrap_or(&[]),
        }
    }

    /// Milli of a device with `left` that the usual wants of one device can use, times [`UNIT`].
    #[inline]
    fn useful(&self, row: Row<'_>, left: u16) -> i64 {
        let weight = row.single.get(self.milli.rank(left.into())).copied().unwrap_or(0);
        i64::from(left).wrapping_mul(weight.into()) // at most 1000 x 2^16
    }

    /// What `full` wholly free devices are of use for.
    #[inline]
    fn useful_full(&self, row: Row<'_>, full: u8) -> i64 {
        let several = row.multi.get(usize::from(full).min(self.nums.wrapping_sub(1))).copied().unwrap_or(0);
        let one = row.single.last().copied().unwrap_or(0);
        i64::from(full).wrapping_mul(WHOLE.into()).wrapping_mul(i64::from(one).wrapping_add(several.into()))
    }

    #[inline]
    fn useful_parts(&self, row: Row<'_>, stock: &Stock) -> i64 {
        stock.parts().iter().fold(0_i64, |sum, &left| sum.wrapping_add(self.useful(row, left)))
    }

    /// Fragmentation of `stock`: 0 to all that is left on it, in 2^-16 milli.
    #[must_use]
    pub fn value(&self, stock: &Stock) -> i64 {
        let row = self.row(stock.model, stock.cpu);
        let useful = self.useful_parts(row, stock).wrapping_add(self.useful_full(row, stock.full));
        (i64::from(stock.total()) * i64::from(UNIT)).wrapping_sub(useful)
    }

    /// What placing `want` on `stock` does, to be asked per device.
    #[must_use]
    pub fn drops<'a>(&'a self, stock: &'a Stock, want: &Want) -> Drops<'a> {
        let row = self.row(stock.model, stock.cpu.saturating_sub(want.cpu));
        let used = self.useful_parts(row, stock).wrapping_add(self.useful_full(row, stock.full));
        let all = i64::from(stock.total()) * i64::from(UNIT);
        Drops { frag: self, stock, row, host: self.value(stock).wrapping_sub(all).wrapping_add(used) }
    }
}

/// How much the fragmentation of one stock falls with one want on it, by device, in 2^-16 milli. Positive: it falls.
pub struct Drops<'a> {
    frag: &'a Frag,
    stock: &'a Stock,
    row: Row<'a>,
    host: i64,
}

impl Drops<'_> {
    /// With the CPU gone and no device touched.
    #[must_use]
    pub fn host(&self) -> i64 {
        self.host
    }

    /// With `milli` on the device that has `left` of at least as much.
    #[must_use]
    pub fn share(&self, left: u16, milli: u16) -> i64 {
        let rest = left.min(WHOLE).saturating_sub(milli);
        let gone = if left >= WHOLE {
            let full = self.stock.full;
            self.frag.useful_full(self.row, full).wrapping_sub(self.frag.useful_full(self.row, full.saturating_sub(1)))
        } else {
            self.frag.useful(self.row, left)
        };
        let taken = i64::from(milli) * i64::from(UNIT);
        self.host.wrapping_add(taken).wrapping_sub(gone).wrapping_add(self.frag.useful(self.row, rest))
    }

    /// With `num` wholly free devices taken.
    #[must_use]
    pub fn whole(&self, num: u8) -> i64 {
        let rest = self.stock.full.saturating_sub(num);
        let used = self.frag.useful_full(self.row, rest).wrapping_sub(self.frag.useful_full(self.row, self.stock.full));
        let taken = i64::from(num) * i64::from(WHOLE) * i64::from(UNIT);
        self.host.wrapping_add(taken).wrapping_add(used)
    }
}

fn single_milli(want: &Want) -> Option<u16> {
    match want.shape {
        Shape::Share(milli) => Some(milli.min(WHOLE)),
        Shape::Whole(1) => Some(WHOLE),
        _ => None,
    }
}

fn several(want: &Want) -> Option<u8> {
    match want.shape {
        Shape::Whole(num) if num > 1 => Some(num),
        _ => None,
    }
}

/// Adds to each cell what is left of it, and what is in the row before.
fn sum_row(table: &mut [u32], row: usize, width: usize, has_before: bool) {
    let mut left = 0_u32; // of this row's own
    for column in 0..width {
        let at = row * width + column;
        let before = if has_before { table.get(at.wrapping_sub(width)).copied().unwrap_or(0) } else { 0 };
        let Some(cell) = table.get_mut(at) else { return };
        left = left.saturating_add(*cell);
        *cell = left.saturating_add(before);
    }
}

/// The commonest wants up to [`COVER`] percent, memory ignored, with weights that add up to [`UNIT`].
fn usual(mix: &Mix) -> Vec<Usual> {
    let mut kinds: Vec<(Want, u64)> = mix
        .kinds()
        .iter()
        .filter(|(want, _)| !matches!(want.shape, Shape::Mig { .. }))
        .map(|&(want, count)| (Want { ram: 0, ..want }, count))
        .collect();
    kinds.sort_unstable_by_key(|kind| kind.0);
    kinds.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        if same {
            kept.1 = kept.1.saturating_add(next.1);
        }
        same
    });
    let all: u128 = kinds.iter().map(|kind| u128::from(kind.1)).sum();
    kinds.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut sum = 0_u128;
    let mut keep = 0;
    for (_, count) in &kinds {
        if sum * 100 >= all * u128::from(COVER) {
            break;
        }
        sum += u128::from(*count);
        keep += 1;
    }
    kinds.truncate(keep);
    let mut reached = 0_u128;
    let mut weighed = 0_u32;
    let mut usual = Vec::with_capacity(keep);
    for (want, count) in kinds {
        reached += u128::from(count);
        let edge = u32::try_from(reached * u128::from(UNIT) / sum.max(1)).unwrap_or(UNIT);
        usual.push(Usual { want, weight: edge.saturating_sub(weighed) });
        weighed = edge;
    }
    usual
}

/// Models that the same usual wants allow share one family: the family of each model, and one model of each family.
fn families(usual: &[Usual]) -> ([u8; MODELS], Vec<usize>) {
    let mut sets: Vec<u64> = usual.iter().map(|usual| usual.want.models).collect();
    sets.sort_unstable();
    sets.dedup();
    let mut family = [0_u8; MODELS];
    let mut first: Vec<usize> = Vec::new();
    for (model, number) in family.iter_mut().enumerate() {
        let alike = |&other: &usize| sets.iter().all(|set| set >> model & 1 == set >> other & 1);
        let found = first.iter().position(alike).unwrap_or_else(|| {
            first.push(model);
            first.len() - 1
        });
        *number = u8::try_from(found).unwrap_or(0);
    }
    (family, first)
}

#[cfg(test)]
#[path = "frag_tests.rs"]
mod tests;
