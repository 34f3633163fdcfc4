//! Which nodes changed, newest first: every node stands in the list once, at its last change. A reader keeps the
//! stamp up to which it has read, and walks back to it. So a change costs O(1), a node that changed a hundred times
//! is read once, and nothing is ever compacted.

use alloc::vec::Vec;

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Link {
    stamp: u64,
    newer: u32,
    older: u32,
}

/// Ranks in the order of their last change.
#[derive(Clone, Debug)]
pub struct Recent {
    links: Vec<Link>,
    newest: u32,
    stamp: u64,
}

impl Recent {
    /// For ranks below `ranks`, none of which has changed yet.
    #[must_use]
    pub fn new(ranks: u32) -> Self {
        let links = (0..ranks).map(|_| Link { stamp: 0, newer: NONE, older: NONE }).collect();
        Self { links, newest: NONE, stamp: 0 }
    }

    /// How many ranks there are.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        u32::try_from(self.links.len()).unwrap_or(NONE)
    }

    /// The stamp of the last change: a reader that has read everything stands here.
    #[must_use]
    pub fn stamp(&self) -> u64 {
        self.stamp
    }

    fn link(&mut self, rank: u32) -> Option<&mut Link> {
        self.links.get_mut(rank as usize)
    }

    /// Notes that the node of that rank changed. An unknown rank is ignored.
    pub fn touch(&mut self, rank: u32) {
        let newest = self.newest;
        let stamp = self.stamp.saturating_add(1);
        let Some(link) = self.link(rank) else { return };
        let Link { newer, older, .. } = *link;
        if newest == rank {
            link.stamp = stamp;
        } else {
            *link = Link { stamp, newer: NONE, older: newest };
            if let Some(link) = self.link(newer) {
                link.older = older;
            }
            if let Some(link) = self.link(older) {
                link.newer = newer;
            }
            if let Some(link) = self.link(newest) {
                link.newer = rank;
            }
            self.newest = rank;
        }
        self.stamp = stamp;
    }

    /// The ranks that changed after `since`, newest first, each once.
    pub fn since(&self, since: u64) -> impl Iterator<Item = u32> + '_ {
        let mut next = self.newest;
        core::iter::from_fn(move || {
            let link = self.links.get(next as usize).filter(|link| link.stamp > since)?;
            let rank = next;
            next = link.older;
            Some(rank)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(recent: &Recent, since: u64) -> Vec<u32> {
        recent.since(since).collect()
    }

    #[test]
    fn a_node_that_changed_often_is_read_once_and_newest_first() {
        let mut recent = Recent::new(4);
        for rank in [2, 0, 2, 2, 1, 0, 9] {
            recent.touch(rank);
        }
        assert_eq!(read(&recent, 0), [0, 1, 2]);
    }

    #[test]
    fn a_reader_sees_only_what_changed_after_it_last_read() {
        let mut recent = Recent::new(3);
        recent.touch(0);
        recent.touch(1);
        let read_up_to = recent.stamp();
        assert_eq!(read(&recent, read_up_to), [0; 0]);
        recent.touch(0);
        assert_eq!(read(&recent, read_up_to), [0]);
        recent.touch(0);
        assert_eq!(read(&recent, read_up_to), [0]);
        assert_eq!(read(&recent, 0), [0, 1]);
    }
}
