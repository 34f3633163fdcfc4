//! The tree: what each leaf holds and takes next, and the share of every twig.

use alloc::vec::Vec;

use super::part::{ONE, part, scale};

/// Most twigs from the root, without it, to a leaf, the leaf counted. Of a deeper leaf the upper ones are lost.
pub const DEPTH: usize = 4;

/// The shares of the twigs on the way from the root to a leaf, in 2^-60, over their weights; 0 below the leaf. The
/// leaf with the least path is served next: at each level the twig with the least share goes first.
pub type Path = [u64; DEPTH];

/// A place in a [`Tree`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Twig(usize);

/// A tree of accounts over `R` resources.
#[derive(Clone, Debug)]
pub struct Tree<const R: usize> {
    totals: [u128; R],
    saturated: [bool; R],
    /// The root is the first, and parents stand before their children.
    knots: Vec<Knot<R>>,
}

#[derive(Clone, Debug)]
struct Knot<const R: usize> {
    parent: usize,
    children: Vec<usize>,
    weight: u32,
    /// Greatest common divisor of the children's weights: weights k, k are weights 1, 1 to the last bit.
    divisor: u32,
    /// Parts of each resource: of a leaf what it holds, of an inner twig what its children count as.
    parts: [u64; R],
    /// The dominant one of one next task, over no weight; of an inner twig the least below it. `None`: blocked.
    task: Option<u64>,
    /// Dominant part over weight.
    share: u64,
}

impl<const R: usize> Tree<R> {
    /// A tree without leaves over a fleet that has `totals` of each resource.
    #[must_use]
    pub fn new(totals: [u128; R]) -> Self {
        let root = Knot { parent: 0, children: Vec::new(), weight: 1, divisor: 0, parts: [0; R], task: None, share: 0 };
        Self { totals, saturated: [false; R], knots: alloc::vec![root] }
    }

    /// The root.
    #[must_use]
    pub fn root(&self) -> Twig {
        Twig(0)
    }

    /// Adds a twig that holds nothing and is blocked; a weight of 0 counts as 1. It is a leaf until something is added
    /// under it. [`refresh`](Self::refresh) all after the last one.
    pub fn add(&mut self, parent: Twig, weight: u32) -> Twig {
        let at = self.knots.len();
        let weight = weight.max(1);
        if let Some(above) = self.knots.get_mut(parent.0) {
            above.children.push(at);
            above.divisor = gcd(above.divisor, weight);
        }
        self.knots.push(Knot {
            parent: parent.0,
            children: Vec::new(),
            weight,
            divisor: 0,
            parts: [0; R],
            task: None,
            share: 0,
        });
        Twig(at)
    }

    /// Says what a leaf holds.
    pub fn hold(&mut self, leaf: Twig, held: &[u128; R]) {
        let parts = self.parts_of(held);
        if let Some(knot) = self.knots.get_mut(leaf.0) {
            knot.parts = parts;
        }
    }

    /// Says what a leaf takes next; `None` blocks it: it wants nothing, or nothing that it wants can be had now.
    pub fn ask(&mut self, leaf: Twig, next: Option<&[u128; R]>) {
        let task = next.map(|next| dominant(&self.parts_of(next), &[false; R]));
        if let Some(knot) = self.knots.get_mut(leaf.0) {
            knot.task = task;
        }
    }

    /// Blocks every leaf.
    pub fn block_all(&mut self) {
        for knot in &mut self.knots {
            knot.task = None;
        }
    }

    /// Says of which resources nothing more can be had: they do not count at inner twigs.
    pub fn saturate(&mut self, saturated: [bool; R]) {
        self.saturated = saturated;
    }

    /// Works out all shares again.
    pub fn refresh(&mut self) {
        for at in (0..self.knots.len()).rev() {
            self.work_out(at);
        }
    }

    /// Works out the shares on the way from `leaf` to the root again: enough if only what it holds or asks changed.
    pub fn refresh_path(&mut self, leaf: Twig) {
        let mut at = leaf.0;
        self.work_out(at);
        while let Some(knot) = self.knots.get(at).filter(|_| at != 0) {
            at = knot.parent;
            self.work_out(at);
        }
    }

    /// Dominant part over weight, in 2^-60.
    #[must_use]
    pub fn share(&self, twig: Twig) -> u64 {
        self.knots.get(twig.0).map_or(0, |knot| knot.share)
    }

    /// The shares on the way from the root, without it, to the leaf.
    #[must_use]
    pub fn path(&self, leaf: Twig) -> Path {
        let mut up = [0; DEPTH];
        let (mut at, mut len) = (leaf.0, 0);
        while let (Some(knot), Some(slot)) = (self.knots.get(at).filter(|_| at != 0), up.get_mut(len)) {
            *slot = knot.share;
            at = knot.parent;
            len += 1;
        }
        let mut path = [0; DEPTH];
        for (to, share) in path.iter_mut().zip(up.iter().take(len).rev()) {
            *to = *share;
        }
        path
    }

    fn parts_of(&self, amounts: &[u128; R]) -> [u64; R] {
        let mut parts = [0; R];
        for ((to, amount), total) in parts.iter_mut().zip(amounts).zip(&self.totals) {
            *to = part(*amount, *total);
        }
        parts
    }

    fn work_out(&mut self, at: usize) {
        let Some(knot) = self.knots.get(at) else {
            return;
        };
        let divisor = self.knots.get(knot.parent).map_or(1, |above| above.divisor).max(1);
        let weight = u64::from(knot.weight / divisor).max(1);
        let (parts, task, ignored) = if knot.children.is_empty() {
            (knot.parts, knot.task, [false; R])
        } else {
            let (parts, task) = self.sum(knot);
            (parts, task, self.saturated)
        };
        let share = dominant(&parts, &ignored) / weight;
        if let Some(knot) = self.knots.get_mut(at) {
            knot.parts = parts;
            knot.task = task;
            knot.share = share;
        }
    }

    /// What the children of a twig count as together, and the least task below it.
    fn sum(&self, twig: &Knot<R>) -> ([u64; R], Option<u64>) {
        let children = || twig.children.iter().filter_map(|child| self.knots.get(*child));
        let open = || children().filter_map(|child| Some((child, child.task?)));
        let divisor = twig.divisor.max(1);
        let one_task =
            |(child, task): (&Knot<R>, u64)| child.share.max(task / u64::from(child.weight / divisor).max(1));
        let least = open().map(one_task).min().unwrap_or(ONE);
        let mut parts = [0_u64; R];
        for child in children() {
            for (sum, part) in parts.iter_mut().zip(child.parts) {
                let part = if child.task.is_some() { scale(part, least, child.share) } else { part };
                *sum = sum.saturating_add(part);
            }
        }
        (parts, open().map(|(_, task)| task).min())
    }
}

/// The largest part among the resources that are not ignored.
fn dominant<const R: usize>(parts: &[u64; R], ignored: &[bool; R]) -> u64 {
    let counting = parts.iter().zip(ignored).filter(|(_, ignored)| !**ignored);
    counting.map(|(part, _)| *part).max().unwrap_or(0)
}

fn gcd(a: u32, b: u32) -> u32 {
    let (mut a, mut b) = (a, b);
    while b != 0 {
        (a, b) = (b, a.checked_rem(b).unwrap_or(0));
    }
    a
}
