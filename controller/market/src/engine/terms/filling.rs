//! A node while a future fills it.

use super::device::Device;
use super::stock::{self, Stock};
use crate::engine::view::WHOLE;

/// One draw as the filling reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub cpu: u32,
    pub ram: u32,
    pub milli: u16,
    pub num: u16,
    /// What whole devices cost.
    pub whole: i32,
}

/// A node while a future fills it.
#[derive(Clone, Copy)]
pub(super) struct Filling<const N: usize> {
    pub cpu: u32,
    pub ram: u32,
    pub full: u8,
    count: u8,
    parts: [u16; N],
}

impl<const N: usize> Filling<N> {
    /// The node before anything is placed; of partly free devices the first `N` count.
    pub fn of(stock: &Stock) -> Self {
        let mut parts = [0; N];
        for (to, from) in parts.iter_mut().zip(stock.parts()) {
            *to = *from;
        }
        Self { cpu: stock.cpu, ram: stock.ram, full: stock.full, count: stock.count, parts }
    }

    /// The most that any device has left; none where nothing is left.
    #[inline]
    pub fn top(&self) -> Option<u16> {
        if self.full > 0 {
            return Some(WHOLE);
        }
        self.parts.get(usize::from(self.count).wrapping_sub(1)).copied()
    }

    #[inline]
    pub fn left(&self) -> u32 {
        let parts = self.parts.iter().take(self.count.into()).fold(0_u32, |sum, &left| sum.wrapping_add(left.into()));
        parts.wrapping_add(u32::from(self.full).wrapping_mul(WHOLE.into()))
    }

    /// The fullest device that has room, by index, and what it has left. Past the last one: a wholly free one.
    #[inline]
    pub fn tightest(&self, milli: u16) -> (usize, u16) {
        let count = usize::from(self.count);
        let parts = self.parts.iter().take(count).copied().enumerate();
        parts.into_iter().find(|&(_, left)| left >= milli).unwrap_or((count, WHOLE))
    }

    #[inline]
    pub fn host(&mut self, step: &Step) {
        self.cpu = self.cpu.saturating_sub(step.cpu);
        self.ram = self.ram.saturating_sub(step.ram);
    }

    /// Places a draw. A share goes on the device of that index, which has so much left.
    #[inline]
    pub fn place(&mut self, step: &Step, (index, left): (usize, u16)) {
        self.host(step);
        if step.milli >= WHOLE {
            self.full = self.full.saturating_sub(step.num as u8);
            return;
        }
        if index == usize::from(self.count) {
            self.full = self.full.saturating_sub(1);
            self.count = self.count.wrapping_add(1); // one of the free ones, so there is room for it
        }
        let rest = left.saturating_sub(step.milli);
        if rest == 0 {
            return stock::remove(&mut self.parts, &mut self.count, index);
        }
        // It has less left than before: it goes down to its place, and those above it move up.
        let mut at = index;
        while let Some(&before) = self.parts.get(at.wrapping_sub(1)).filter(|before| **before > rest) {
            self.parts.get_mut(at).into_iter().for_each(|part| *part = before);
            at = at.wrapping_sub(1);
        }
        self.parts.get_mut(at).into_iter().for_each(|part| *part = rest);
    }
}

/// What a fitting draw costs on the device that has so much left: how much more is expected to be left over.
#[inline]
pub(super) fn cost(step: &Step, (_, left): (usize, u16), device: &Device) -> i32 {
    if step.milli >= WHOLE {
        return step.whole;
    }
    device.left(left.saturating_sub(step.milli)).wrapping_sub(device.left(left))
}
