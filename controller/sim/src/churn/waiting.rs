//! Who waits, oldest first, by class.

use std::collections::{BTreeSet, VecDeque};

use selion_market::engine::{ClassId, Shape, View, WHOLE, Want};

/// Offers that wait, by number; a lower number is older.
#[derive(Clone, Debug, Default)]
pub struct Waiting {
    by_class: Vec<VecDeque<usize>>,
    /// The oldest of each class.
    heads: BTreeSet<(usize, u32)>,
    count: usize,
}

impl Waiting {
    /// How many wait.
    pub fn count(&self) -> usize {
        self.count
    }

    /// `offer`, the youngest, waits from now on.
    pub fn push(&mut self, class: ClassId, offer: usize) {
        let at = class.0 as usize;
        if self.by_class.len() <= at {
            self.by_class.resize(at + 1, VecDeque::new());
        }
        if self.by_class[at].is_empty() {
            self.heads.insert((offer, class.0));
        }
        self.by_class[at].push_back(offer);
        self.count += 1;
    }

    /// The oldest of every class that has any, oldest first.
    pub fn heads(&self) -> impl Iterator<Item = (usize, ClassId)> {
        self.heads.iter().map(|(offer, class)| (*offer, ClassId(*class)))
    }

    /// All that wait in a class, oldest first.
    pub fn of(&self, class: ClassId) -> impl Iterator<Item = usize> {
        self.by_class.get(class.0 as usize).into_iter().flatten().copied()
    }

    /// `offer` waits no more.
    pub fn remove(&mut self, class: ClassId, offer: usize) {
        let Some(queue) = self.by_class.get_mut(class.0 as usize) else { return };
        let Some(at) = queue.iter().position(|waiting| *waiting == offer) else { return };
        queue.remove(at);
        self.count -= 1;
        if at == 0 {
            self.heads.remove(&(offer, class.0));
            if let Some(next) = queue.front() {
                self.heads.insert((*next, class.0));
            }
        }
    }
}

/// Whether a node with this left has room for one.
pub fn fits(view: &View<'_>, want: &Want) -> bool {
    let room = match want.shape {
        Shape::None => true,
        Shape::Share(milli) => view.left.iter().any(|left| *left >= milli),
        Shape::Whole(count) => view.left.iter().filter(|left| **left == WHOLE).count() >= usize::from(count),
        Shape::Mig { .. } => false,
    };
    room && view.cpu >= want.cpu && view.ram >= want.ram && want.models >> view.model & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_every_class_come_oldest_first() {
        let mut waiting = Waiting::default();
        for (offer, class) in [(3, 1), (4, 0), (5, 1), (9, 0)] {
            waiting.push(ClassId(class), offer);
        }
        assert_eq!(waiting.heads().map(|(offer, _)| offer).collect::<Vec<_>>(), [3, 4]);
        waiting.remove(ClassId(1), 3);
        assert_eq!(waiting.heads().map(|(offer, _)| offer).collect::<Vec<_>>(), [4, 5]);
        waiting.remove(ClassId(0), 9);
        waiting.remove(ClassId(0), 9);
        assert_eq!(waiting.count(), 2);
        assert_eq!(waiting.of(ClassId(0)).collect::<Vec<_>>(), [4]);
    }
}
