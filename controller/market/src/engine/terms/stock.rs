//! What is left on a node, in the one form in which equal nodes are equal: devices by size, not by number.

use crate::engine::view::{Shape, View, WHOLE, Want};

/// Most devices of a node that the terms look at. The rest count as busy.
pub const MAX_DEVICES: usize = 64;

/// What is left on a node.
#[derive(Clone, Copy, Debug)]
pub struct Stock {
    /// Interned model, below 64.
    pub model: u8,
    /// CPU left, in thousandths of a core.
    pub cpu: u32,
    /// Memory left, in MiB.
    pub ram: u32,
    /// Devices wholly free.
    pub full: u8,
    /// How many entries of `parts` count.
    pub count: u8,
    /// Thousandths left on the partly free devices, smallest first; each is 1..=999.
    pub parts: [u16; MAX_DEVICES],
}

impl PartialEq for Stock {
    fn eq(&self, other: &Self) -> bool {
        (self.model, self.cpu, self.ram, self.full) == (other.model, other.cpu, other.ram, other.full)
            && self.parts() == other.parts()
    }
}

impl Eq for Stock {}

impl Stock {
    /// What `view` shows.
    #[must_use]
    pub fn of(view: &View<'_>) -> Self {
        let mut stock =
            Self { model: view.model & 63, cpu: view.cpu, ram: view.ram, full: 0, count: 0, parts: [0; MAX_DEVICES] };
        for &left in view.left.iter().take(MAX_DEVICES) {
            if left >= WHOLE {
                stock.full = stock.full.wrapping_add(1); // at most 64
            } else if left > 0 {
                insert(&mut stock.parts, &mut stock.count, left);
            }
        }
        stock
    }

    /// The partly free devices, smallest first.
    #[must_use]
    pub fn parts(&self) -> &[u16] {
        self.parts.get(..usize::from(self.count)).unwrap_or(&[])
    }

    /// Thousandths left on all devices together.
    #[must_use]
    pub fn total(&self) -> u32 {
        let parts: u32 = self.parts().iter().map(|&left| u32::from(left)).sum();
        parts.wrapping_add(u32::from(self.full).wrapping_mul(WHOLE.into())) // at most 64,000
    }

    /// What is left once `want` is placed: a share on a device that has `left`, whole devices on wholly free ones.
    #[must_use]
    pub fn after(&self, want: &Want, left: u16) -> Self {
        let mut after = *self;
        after.cpu = after.cpu.saturating_sub(want.cpu);
        after.ram = after.ram.saturating_sub(want.ram);
        match want.shape {
            Shape::Share(milli) => after.take_share(left, milli),
            Shape::Whole(num) => after.full = after.full.saturating_sub(num),
            Shape::None | Shape::Mig { .. } => {}
        }
        after
    }

    /// Takes `milli` of a device that has `left`; nothing where there is none such.
    fn take_share(&mut self, left: u16, milli: u16) {
        let rest = left.min(WHOLE).saturating_sub(milli);
        if left >= WHOLE {
            if self.full == 0 {
                return;
            }
            self.full = self.full.wrapping_sub(1);
        } else {
            let Some(at) = self.parts().iter().position(|&part| part == left) else { return };
            remove(&mut self.parts, &mut self.count, at);
        }
        if rest > 0 {
            insert(&mut self.parts, &mut self.count, rest);
        }
    }
}

/// True if `want` has room on the node that `view` shows: model, CPU, memory and devices. A MIG want never has.
#[must_use]
pub fn fits(view: &View<'_>, want: &Want) -> bool {
    if want.models >> (view.model & 63) & 1 == 0 || view.cpu < want.cpu || view.ram < want.ram {
        return false;
    }
    let mut devices = view.left.iter().take(MAX_DEVICES);
    match want.shape {
        Shape::None => true,
        Shape::Share(milli) => devices.any(|&left| left >= milli),
        Shape::Whole(num) => devices.filter(|&&left| left >= WHOLE).count() >= usize::from(num),
        Shape::Mig { .. } => false,
    }
}

/// Puts `left` in its place among the first `count` of `parts`. Does nothing where there is no room.
#[inline]
pub fn insert<const N: usize>(parts: &mut [u16; N], count: &mut u8, left: u16) {
    let mut at = usize::from(*count);
    if at >= N {
        return;
    }
    while at > 0 {
        let Some(&before) = parts.get(at.wrapping_sub(1)) else { return };
        if before <= left {
            break;
        }
        if let Some(slot) = parts.get_mut(at) {
            *slot = before;
        }
        at = at.wrapping_sub(1);
    }
    if let Some(slot) = parts.get_mut(at) {
        *slot = left;
    }
    *count = count.wrapping_add(1);
}

/// Takes the entry at `at` out of the first `count` of `parts`.
#[inline]
pub fn remove<const N: usize>(parts: &mut [u16; N], count: &mut u8, at: usize) {
    let end = usize::from(*count);
    if at >= end || end > N {
        return;
    }
    for index in at.wrapping_add(1)..end {
        let Some(&next) = parts.get(index) else { return };
        if let Some(slot) = parts.get_mut(index.wrapping_sub(1)) {
            *slot = next;
        }
    }
    *count = count.wrapping_sub(1);
}

/// GPU that a want takes, in milli. A MIG instance counts none: its device is judged by its own table.
#[must_use]
pub fn gpu_milli(want: &Want) -> u32 {
    match want.shape {
        Shape::None | Shape::Mig { .. } => 0,
        Shape::Share(milli) => u32::from(milli),
        Shape::Whole(num) => u32::from(num).wrapping_mul(u32::from(WHOLE)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(left: &[u16]) -> View<'_> {
        View { model: 3, cpu: 8000, ram: 4096, left }
    }

    #[test]
    fn nodes_with_the_same_leftovers_in_another_order_are_equal() {
        assert_eq!(Stock::of(&view(&[300, 1000, 0, 200])), Stock::of(&view(&[0, 200, 300, 1000])));
        assert_ne!(Stock::of(&view(&[300, 200])), Stock::of(&view(&[300, 201])));
    }

    fn want(shape: Shape) -> Want {
        Want { shape, cpu: 8000, ram: 4096, models: 1 << 3 }
    }

    #[test]
    fn taking_a_share_moves_the_device_to_its_new_place() {
        let stock = Stock::of(&view(&[300, 1000, 500]));
        let spent = |left| Stock { cpu: 0, ram: 0, ..Stock::of(&view(left)) };
        assert_eq!(stock.after(&want(Shape::Share(600)), 1000), spent(&[300, 400, 500]));
        assert_eq!(stock.after(&want(Shape::Share(300)), 500), spent(&[300, 1000, 200]));
        assert_eq!(stock.after(&want(Shape::Share(300)), 300), spent(&[0, 1000, 500]));
        assert_eq!(stock.after(&want(Shape::Share(1)), 77), spent(&[300, 1000, 500]), "no device has 77 left");
        assert_eq!(stock.after(&want(Shape::Whole(1)), 0), spent(&[300, 500]));
        assert_eq!(stock.after(&want(Shape::Whole(9)), 0), spent(&[300, 500]));
    }

    #[test]
    fn a_want_fits_only_with_model_cpu_memory_and_devices() {
        let left = [300, 1000];
        let view = view(&left);
        let want = want(Shape::Share(301));
        assert!(fits(&view, &want));
        assert!(!fits(&view, &Want { models: !(1 << 3), ..want }));
        assert!(!fits(&view, &Want { cpu: 8001, ..want }));
        assert!(!fits(&view, &Want { ram: 4097, ..want }));
        assert!(!fits(&view, &Want { shape: Shape::Whole(2), ..want }));
        assert!(!fits(&View { left: &[300], ..view }, &want));
    }

    #[test]
    fn sixty_four_devices_are_counted_and_more_are_not() {
        let many = [999_u16; 70];
        let stock = Stock::of(&view(&many));
        assert_eq!((stock.count, stock.total()), (64, 64 * 999));
        assert_eq!(Stock::of(&view(&[u16::MAX; 70])).total(), 64_000);
    }
}
