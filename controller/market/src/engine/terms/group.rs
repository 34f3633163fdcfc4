//! What a price depends on beside the want: the model, and the slots that the placement breaks.

use super::sums::SLOTS;
use crate::engine::view::{Shape, Want};

/// The node's model and which slots more than the least possible a placement breaks: candidates of one want in one
/// group have one price, so that a price is an offset per group and touches no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Group(u16);

impl Group {
    /// One more than the highest [`Self::number`].
    pub const COUNT: usize = 64 << SLOTS;

    /// The group of a placement on a node of `model` that opens `opened` of its `full` wholly free devices.
    #[must_use]
    pub fn of(model: u8, full: u8, opened: u8) -> Self {
        let rest = full.saturating_sub(opened);
        let mut bits = 0;
        for size in 1..=SLOTS as u16 {
            let broken = (full >> size).wrapping_sub(rest >> size);
            bits |= u16::from(broken > opened >> size) << (size - 1);
        }
        Self(u16::from(model & 63) << SLOTS | bits)
    }

    /// A small number for tables: below [`Self::COUNT`].
    #[must_use]
    pub fn number(self) -> usize {
        self.0.into()
    }

    /// The group of that [`Self::number`].
    #[must_use]
    pub fn numbered(number: u16) -> Option<Self> {
        (usize::from(number) < Self::COUNT).then_some(Self(number))
    }

    /// The node's model.
    #[must_use]
    pub fn model(self) -> u8 {
        (self.0 >> SLOTS) as u8
    }

    /// How many slots of 2, 4 and 8 devices a placement of `want` in this group breaks.
    #[must_use]
    pub fn broken(self, want: &Want) -> [u8; SLOTS] {
        let opened = match want.shape {
            Shape::Whole(num) => num,
            _ => 0, // a share breaks at most the slots that its bits say
        };
        let mut broken = [0; SLOTS];
        for (size, count) in (1_u16..).zip(&mut broken) {
            *count = (opened >> size) + u8::from(self.0 >> (size - 1) & 1 == 1);
        }
        broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_says_exactly_which_slots_are_broken() {
        for full in 0_u8..=64 {
            for opened in 1..=full {
                let want = Want { shape: Shape::Whole(opened), cpu: 0, ram: 0, models: u64::MAX };
                let rest = full - opened;
                let broken = [1, 2, 3].map(|size| (full >> size) - (rest >> size));
                let group = Group::of(63, full, opened);
                assert_eq!((group.broken(&want), group.model()), (broken, 63), "{opened} of {full}");
                assert!(group.number() < Group::COUNT);
            }
            let share = Want { shape: Shape::Share(1), cpu: 0, ram: 0, models: u64::MAX };
            assert_eq!(Group::of(1, full, 0).broken(&share), [0; 3]);
            if full > 0 {
                let broken = [1, 2, 3].map(|size| (full >> size) - ((full - 1) >> size));
                assert_eq!(Group::of(1, full, 1).broken(&share), broken);
            }
        }
    }
}
