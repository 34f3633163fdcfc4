//! Work that runs, by its end. Its own cost is in every rate, so it is kept small: the queue holds an end and a place.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use selion_market::engine::{Choice, ClassId};

/// Class, GPU in milli, and where it is.
pub type Task = (ClassId, u64, Choice);

/// What runs.
#[derive(Default)]
pub struct Live {
    ends: BinaryHeap<Reverse<(u64, u32)>>,
    tasks: Vec<Option<Task>>,
    free: Vec<u32>,
}

impl Live {
    /// A task runs until `end`.
    pub fn push(&mut self, end: u64, task: Task) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.tasks.push(None);
            u32::try_from(self.tasks.len() - 1).unwrap_or(u32::MAX)
        });
        self.tasks[place as usize] = Some(task);
        self.ends.push(Reverse((end, place)));
    }

    /// The next that ends by `now`, taken out, with its end.
    pub fn pop_until(&mut self, now: u64) -> Option<(u64, Task)> {
        let Reverse((end, place)) = self.ends.peek().copied().filter(|next| next.0.0 <= now)?;
        self.ends.pop();
        self.free.push(place);
        Some((end, self.tasks.get_mut(place as usize)?.take()?))
    }

    /// The next that ends, taken out, with its end.
    pub fn pop(&mut self) -> Option<(u64, Task)> {
        self.pop_until(u64::MAX)
    }

    /// How many run.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// All that run with their ends, in no order that matters.
    pub fn all(&self) -> impl Iterator<Item = (u64, &Task)> {
        self.ends.iter().filter_map(|Reverse((end, place))| Some((*end, self.tasks.get(*place as usize)?.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ends_first_leaves_first_and_its_place_is_used_again() {
        let task = |gpu| (ClassId(0), gpu, Choice { node: 0, devices: 0, start: 0 });
        let mut live = Live::default();
        live.push(30, task(3));
        live.push(10, task(1));
        assert_eq!(live.pop_until(9), None);
        assert_eq!(live.pop_until(30), Some((10, task(1))));
        live.push(20, task(2));
        assert_eq!(live.tasks.len(), 2);
        assert_eq!(live.all().map(|(_, task)| task.1).sum::<u64>(), 5);
        assert_eq!(live.len(), 2);
        assert_eq!((live.pop_until(30), live.pop_until(30)), (Some((20, task(2))), Some((30, task(3)))));
        assert_eq!(live.pop(), None);
    }
}
