//! Judging one want on one node: its best places, by group.

use core::cmp::Reverse;

use super::Terms;
use super::fill::Fill;
use super::frag::Drops;
use super::grain;
use super::group::Group;
use super::stock::{self, Stock};
use super::weights::Weights;
use crate::engine::view::{Shape, View, WHOLE, Want};

/// A place for a want on a node, and what it is worth before prices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// `floor(x / bucket)`: higher is better.
    pub bucket: i32,
    /// What its price depends on.
    pub group: Group,
    /// The device of a share; the first of a want of whole devices (the next free ones follow); 0 without a GPU.
    pub device: u8,
}

impl Candidate {
    /// The higher bucket; of equals the lower device.
    fn or(self, other: Self) -> Self {
        if (other.bucket, Reverse(other.device)) > (self.bucket, Reverse(self.device)) { other } else { self }
    }
}

/// The best place in each group, at most two: on a device in use, and on a wholly free one. Without room: none.
pub type Verdict = [Option<Candidate>; 2];

/// One want on one node.
struct Bench<'a> {
    view: &'a View<'a>,
    want: &'a Want,
    stock: &'a Stock,
    total: u32,
    before: u32,
    drops: Option<Drops<'a>>,
    weights: &'a Weights,
    fill: &'a mut Fill,
}

impl Terms {
    /// Judges `want` on the node that `view` shows. A MIG want is never placed here: MIG devices have their own tables.
    #[must_use]
    pub fn judge(&mut self, view: &View<'_>, want: &Want) -> Verdict {
        if !stock::fits(view, want) {
            return [None, None];
        }
        let stock = Stock::of(view);
        let Self { weights, frag, fill, .. } = self;
        let before = fill.lost(&stock);
        let drops = (weights.frag > 0).then(|| frag.drops(&stock, want));
        let mut bench = Bench { view, want, stock: &stock, total: stock.total(), before, drops, weights, fill };
        match want.shape {
            Shape::None | Shape::Whole(0) => [Some(bench.host()), None],
            Shape::Whole(num) => [Some(bench.whole(num)), None],
            Shape::Share(milli) => bench.share(milli),
            Shape::Mig { .. } => [None, None],
        }
    }

    /// The price of `want` in `group` now, in buckets: a candidate's score is its bucket less this.
    #[must_use]
    pub fn price(&self, want: &Want, group: Group) -> i32 {
        grain::round(self.prices.of_group(want, group), self.weights.bucket)
    }
}

impl Bench<'_> {
    fn host(&mut self) -> Candidate {
        let drop = self.drops.as_ref().map_or(0, Drops::host);
        let bucket = self.bucket(0, 0, drop);
        Candidate { bucket, group: Group::of(self.stock.model, self.stock.full, 0), device: 0 }
    }

    fn whole(&mut self, num: u8) -> Candidate {
        let drop = self.drops.as_ref().map_or(0, |drops| drops.whole(num));
        let bucket = self.bucket(WHOLE, u32::from(num) * u32::from(WHOLE), drop);
        Candidate { bucket, group: Group::of(self.stock.model, self.stock.full, num), device: self.device(WHOLE) }
    }

    /// The best device in use, and a wholly free one; the better of them if they have one price.
    fn share(&mut self, milli: u16) -> Verdict {
        let mut used: Option<Candidate> = None;
        let parts = self.stock;
        let mut last = 0;
        for &left in parts.parts().iter().filter(|&&left| left >= milli) {
            if left != last {
                last = left;
                let next = self.part(left, milli, 0);
                used = Some(used.map_or(next, |used| used.or(next)));
            }
        }
        if self.stock.full == 0 {
            return [used, None];
        }
        let fresh = self.part(WHOLE, milli, 1);
        match used {
            Some(used) if used.group == fresh.group => [Some(used.or(fresh)), None],
            used => [used, Some(fresh)],
        }
    }

    fn part(&mut self, left: u16, milli: u16, opened: u8) -> Candidate {
        let drop = self.drops.as_ref().map_or(0, |drops| drops.share(left, milli));
        let bucket = self.bucket(left, milli.into(), drop);
        Candidate { bucket, group: Group::of(self.stock.model, self.stock.full, opened), device: self.device(left) }
    }

    /// The lowest device with so much left.
    fn device(&self, left: u16) -> u8 {
        let at = self.view.left.iter().position(|&device| device.min(WHOLE) == left);
        at.and_then(|at| u8::try_from(at).ok()).unwrap_or(0)
    }

    /// What the node gains by a placement of `taken` milli on a device with `left`, in buckets.
    fn bucket(&mut self, left: u16, taken: u32, frag_drop: i64) -> i32 {
        let fill = if self.fill.wanted() {
            let after = self.stock.after(self.want, left);
            i64::from(self.before).wrapping_sub(self.fill.lost(&after).into())
        } else {
            0
        };
        let packed = self.want.shape != Shape::None;
        let open = if packed { self.total.saturating_sub(taken) } else { 0 };
        grain::floor(self.weights.gain(fill, frag_drop, open), self.weights.bucket)
    }
}
