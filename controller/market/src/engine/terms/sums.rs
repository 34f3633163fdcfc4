//! What the whole fleet has left, kept by the difference that each changed node makes.

use alloc::vec::Vec;

use super::draws::SEQUENCES;
use super::stock::Stock;
use crate::engine::view::WHOLE;

/// Models that are told apart.
pub const MODELS: usize = 64;
/// Sizes of slots: 2, 4 and 8 whole devices of one node.
pub const SLOTS: usize = 3;

/// One node's part of the sums.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    model: u8,
    full: u8,
    capacity: u32,
    fillable: u32, // over all futures
    cpu: u32,
}

/// The sums.
#[derive(Clone, Debug)]
pub struct Sums {
    parts: Vec<Part>,
    /// Devices of each model, in milli.
    pub capacity: [u64; MODELS],
    /// GPU of each model that can still be filled, in milli times [`SEQUENCES`].
    pub fillable: [u64; MODELS],
    /// Slots of 2, 4 and 8 free devices: `full / 2`, `full / 4`, `full / 8` over the nodes.
    pub slots: [u64; SLOTS],
    /// CPU left, in thousandths of a core.
    pub cpu: u64,
}

impl Default for Sums {
    fn default() -> Self {
        Self { parts: Vec::new(), capacity: [0; MODELS], fillable: [0; MODELS], slots: [0; SLOTS], cpu: 0 }
    }
}

impl Sums {
    /// Node `rank` now has `devices` devices and `stock` on them, `lost` milli (over all futures) of which is expected
    /// to stay unused; `None`: it is not there.
    pub fn set(&mut self, rank: u32, now: Option<(&Stock, usize, u32)>) {
        let at = rank as usize;
        if at >= self.parts.len() {
            self.parts.resize(at.saturating_add(1), Part::default());
        }
        let part = now.map_or_else(Part::default, |(stock, devices, lost)| {
            let all = stock.total().saturating_mul(SEQUENCES as u32);
            Part {
                model: stock.model,
                full: stock.full,
                capacity: u32::try_from(devices).unwrap_or(u32::MAX).saturating_mul(WHOLE.into()),
                fillable: all.saturating_sub(lost),
                cpu: stock.cpu,
            }
        });
        let Some(slot) = self.parts.get_mut(at) else { return };
        let before = core::mem::replace(slot, part);
        self.count(before, u64::wrapping_sub);
        self.count(part, u64::saturating_add);
    }

    fn count(&mut self, part: Part, change: fn(u64, u64) -> u64) {
        let model = usize::from(part.model);
        if let (Some(capacity), Some(fillable)) = (self.capacity.get_mut(model), self.fillable.get_mut(model)) {
            *capacity = change(*capacity, part.capacity.into());
            *fillable = change(*fillable, part.fillable.into());
        }
        for (slots, size) in self.slots.iter_mut().zip(1_u32..) {
            *slots = change(*slots, u64::from(part.full >> size));
        }
        self.cpu = change(self.cpu, part.cpu.into());
    }

    /// GPU that can still be filled, in milli.
    #[must_use]
    pub fn all_fillable(&self) -> u64 {
        self.fillable.iter().fold(0_u64, |sum, &part| sum.saturating_add(part)) / SEQUENCES as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::view::View;

    #[test]
    fn the_sums_follow_every_change_and_return_to_nothing() {
        let mut sums = Sums::default();
        let stock = |model, left| Stock::of(&View { model, cpu: 5000, ram: 0, left });
        sums.set(2, Some((&stock(1, &[1000; 7]), 7, 16 * 500)));
        sums.set(0, Some((&stock(0, &[1000, 1000, 300]), 4, 0)));
        assert_eq!((sums.capacity[1], sums.capacity[0]), (7000, 4000));
        assert_eq!(sums.slots, [4, 1, 0]);
        assert_eq!((sums.all_fillable(), sums.cpu), (8800, 10_000));
        sums.set(2, Some((&stock(1, &[0, 1000]), 7, 0)));
        assert_eq!((sums.slots, sums.all_fillable()), ([1, 0, 0], 3300));
        sums.set(2, None);
        sums.set(0, None);
        sums.set(0, None);
        assert_eq!((sums.slots, sums.all_fillable(), sums.cpu, sums.capacity), ([0; 3], 0, 0, [0; MODELS]));
    }
}
