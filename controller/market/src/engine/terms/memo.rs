//! A bounded memory of values: a flat table, one place per key, the newer one stays.
//!
//! A value is a function of its key within an epoch, so a forgotten one is computed again and nothing else changes.

use alloc::vec;
use alloc::vec::Vec;

use super::stock::Stock;

/// Partly free devices that a key holds; nodes with more are not remembered.
const PARTS: usize = 8;
/// CPU is rounded down to this, in thousandths of a core.
pub const CPU_STEP: u32 = 1000;
/// Memory is rounded down to this, in MiB.
pub const RAM_STEP: u32 = 8 << 10;

/// A stock rounded to what the value looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key([u64; 3]);

impl Key {
    /// The key of `stock`, rounded; none if it has too many partly free devices.
    #[must_use]
    pub fn of(stock: &Stock) -> Option<Self> {
        let parts = stock.parts();
        if parts.len() > PARTS {
            return None;
        }
        let pack = |half: &[u16]| half.iter().fold(0_u64, |word, &left| word << 16 | u64::from(left));
        let (low, high) = parts.split_at(parts.len().min(PARTS / 2));
        // CPU 23 bits, memory 19 bits, model 6, free devices 7.
        let host = u64::from(stock.cpu / CPU_STEP) << 32
            | u64::from(stock.ram / RAM_STEP) << 13
            | u64::from(stock.model) << 7
            | u64::from(stock.full);
        Some(Self([host, pack(low), pack(high)]))
    }

    fn place(&self) -> u64 {
        let mut hash = 0_u64;
        for word in self.0 {
            hash = (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            hash ^= hash >> 29;
        }
        hash
    }
}

/// `stock` as the value looks at it: CPU rounded down to a core, memory to 8 GiB.
#[must_use]
pub fn rounded(stock: &Stock) -> Stock {
    let mut stock = *stock;
    stock.cpu -= stock.cpu % CPU_STEP;
    stock.ram -= stock.ram % RAM_STEP;
    stock
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    key: Key,
    epoch: u32, // 0: none
    value: u32,
}

/// The remembered values of one epoch.
#[derive(Clone, Debug)]
pub struct Memo {
    entries: Vec<Entry>,
    epoch: u32,
}

impl Memo {
    /// Room for at least `places` values, 32 bytes each; a power of two of 16 to 2^20.
    #[must_use]
    pub fn new(places: usize) -> Self {
        let places = places.clamp(16, 1 << 20).next_power_of_two();
        Self { entries: vec![Entry { key: Key([0; 3]), epoch: 0, value: 0 }; places], epoch: 1 }
    }

    /// Forgets everything.
    pub fn forget(&mut self) {
        self.epoch = self.epoch.wrapping_add(1);
        if self.epoch == 0 {
            self.entries.iter_mut().for_each(|entry| entry.epoch = 0);
            self.epoch = 1;
        }
    }

    /// The value of `key`, from memory or from `compute`.
    #[inline]
    pub fn get(&mut self, key: Key, compute: impl FnOnce() -> u32) -> u32 {
        let mask = self.entries.len().wrapping_sub(1);
        let Some(entry) = self.entries.get_mut(key.place() as usize & mask) else { return compute() };
        if entry.epoch != self.epoch || entry.key != key {
            *entry = Entry { key, epoch: self.epoch, value: compute() };
        }
        entry.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::view::View;

    fn key(cpu: u32, ram: u32, left: &[u16]) -> Option<Key> {
        Key::of(&Stock::of(&View { model: 5, cpu, ram, left }))
    }

    #[test]
    fn nodes_have_one_key_when_they_differ_by_less_than_a_core_and_8_gib() {
        assert_eq!(key(4999, 8191, &[5, 1000]), key(4000, 0, &[1000, 5]));
        assert_ne!(key(5000, 0, &[5, 1000]), key(4000, 0, &[1000, 5]));
        assert_ne!(key(4000, 8192, &[5, 1000]), key(4000, 0, &[1000, 5]));
        assert_ne!(key(4000, 0, &[5]), key(4000, 0, &[1000, 5]));
        assert_ne!(key(4000, 0, &[5, 6]), key(4000, 0, &[6]));
    }

    #[test]
    fn the_largest_amounts_do_not_run_into_one_another() {
        let most = key(u32::MAX, u32::MAX, &[999; 8]);
        assert_ne!(most, key(u32::MAX, u32::MAX - 8192, &[999; 8]));
        assert_ne!(most, key(u32::MAX - 1000, u32::MAX, &[999; 8]));
        assert_eq!(key(0, 0, &[999; 9]), None, "nine parts have no key");
        assert!(key(0, 0, &[1000; 64]).is_some());
    }

    #[test]
    fn a_value_is_computed_once_until_all_is_forgotten_or_its_place_is_taken() {
        let mut memo = Memo::new(16);
        let key = |cpu| key(cpu, 0, &[5]).unwrap_or(Key([0; 3]));
        assert_eq!(memo.get(key(1000), || 7), 7);
        assert_eq!(memo.get(key(1000), || 8), 7);
        memo.forget();
        assert_eq!(memo.get(key(1000), || 9), 9);
        for cpu in 0..1000 {
            assert_eq!(memo.get(key(cpu * 1000), || cpu), if cpu == 1 { 9 } else { cpu }, "never another's value");
            memo.forget();
            assert_eq!(memo.get(key(1000), || 9), 9);
        }
    }
}
