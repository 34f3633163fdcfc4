//! Until when nodes and devices are busy, as far as the ends of their leases are known.

use alloc::vec::Vec;

use super::nodes::{Choice, bits};
use super::terms::mig::SLICES;
use super::terms::pace::Pace;

/// An end, in ms, and the MIG slices that are free then; all of them for what is no MIG instance.
type End = (u64, u8);

/// Known ends of everything on one node or device, ascending, and the last of them.
#[derive(Clone, Debug, Default)]
struct Ends {
    last: u64,
    all: Vec<End>,
}

impl Ends {
    fn add(&mut self, end: End) {
        let at = self.all.partition_point(|known| *known <= end);
        self.all.insert(at, end);
        self.last = self.last.max(end.0);
    }

    fn remove(&mut self, end: End) {
        if let Ok(at) = self.all.binary_search(&end) {
            self.all.remove(at);
        }
        self.last = self.all.last().map_or(0, |end| end.0);
    }
}

/// Known ends.
#[derive(Clone, Debug, Default)]
pub(super) struct Busy {
    now: u64,
    pace: Pace,
    nodes: Vec<Ends>,
    /// Where the devices of each node begin.
    firsts: Vec<usize>,
    devices: Vec<Ends>,
}

impl Busy {
    /// For nodes with so many devices each.
    pub fn new(devices: impl Iterator<Item = u8>) -> Self {
        let mut busy = Self::default();
        for count in devices {
            busy.nodes.push(Ends::default());
            busy.firsts.push(busy.devices.len());
            busy.devices.resize(busy.devices.len() + usize::from(count), Ends::default());
        }
        busy
    }

    /// It is `now`, in ms. The clock never goes back.
    pub fn at(&mut self, now: u64) {
        self.now = self.now.max(now);
    }

    /// The clock, in ms.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// True if nothing on the node has an end.
    pub fn idle(&self, rank: u32) -> bool {
        self.nodes.get(rank as usize).is_none_or(|ends| ends.all.is_empty())
    }

    /// Something arrives now.
    pub fn arrive(&mut self) {
        self.pace.arrive(self.now, None);
    }

    /// The mean life of what was taken with an end, in ms; 0 before the first.
    pub fn mean_life(&self) -> u64 {
        self.pace.mean_life_ms()
    }

    /// How many arrivals ahead the slot price should look, as far as the pace is known.
    pub fn horizon(&self) -> Option<u32> {
        self.pace.horizon()
    }

    /// When the node is idle, in ms: at once if nothing with an end is on it.
    pub fn node(&self, rank: u32) -> u64 {
        self.nodes.get(rank as usize).map_or(self.now, |ends| self.now.max(ends.last))
    }

    fn ends(&self, rank: u32, device: usize) -> Option<&Ends> {
        self.devices.get(self.firsts.get(rank as usize)?.checked_add(device)?)
    }

    /// When each MIG slice of the device is idle.
    pub fn slices(&self, rank: u32, device: usize) -> [u64; SLICES as usize] {
        let mut idle = [self.now; SLICES as usize];
        for (end, slices) in self.ends(rank, device).into_iter().flat_map(|ends| &ends.all) {
            for (_, idle) in (0_u8..).zip(&mut idle).filter(|(slice, _)| slices >> slice & 1 == 1) {
                *idle = (*idle).max(*end);
            }
        }
        idle
    }

    fn change(&mut self, choice: &Choice, end: End, change: fn(&mut Ends, End)) {
        if let Some(ends) = self.nodes.get_mut(choice.node as usize) {
            change(ends, end);
        }
        let Some(first) = self.firsts.get(choice.node as usize).copied() else { return };
        for device in bits(choice.devices) {
            if let Some(ends) = self.devices.get_mut(first.saturating_add(device)) {
                change(ends, end);
            }
        }
    }

    /// Something was taken there until `end`, on those slices.
    pub fn take(&mut self, choice: &Choice, end: u64, slices: u8) {
        self.pace.stay(end.saturating_sub(self.now));
        self.change(choice, (end, slices), Ends::add);
    }

    /// What was taken there until `end`, on those slices, is given back.
    pub fn release(&mut self, choice: &Choice, end: u64, slices: u8) {
        self.change(choice, (end, slices), Ends::remove);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_busy_until_its_last_lease_ends_and_idle_ones_until_now() {
        let mut busy = Busy::new([2, 2].into_iter());
        busy.at(100);
        let (one, two) = (Choice { node: 1, devices: 0b01, start: 0 }, Choice { node: 1, devices: 0b11, start: 0 });
        busy.take(&one, 500, 0xff);
        busy.take(&two, 300, 0xff);
        assert_eq!((busy.node(0), busy.node(1)), (100, 500));
        assert_eq!(busy.mean_life(), 300, "of 400 and 200");
        busy.release(&one, 500, 0xff);
        assert_eq!(busy.node(1), 300);
        busy.at(400);
        assert_eq!(busy.node(1), 400, "a lease that overran ends now");
        busy.release(&two, 300, 0xff);
        assert_eq!(busy.node(1), 400);
    }

    #[test]
    fn each_slice_of_a_device_is_busy_until_its_own_last_lease_ends() {
        let mut busy = Busy::new([1].into_iter());
        let choice = Choice { node: 0, devices: 1, start: 0 };
        busy.take(&choice, 50, 0b0000_0011);
        busy.take(&choice, 90, 0b0000_0100);
        busy.at(60);
        assert_eq!(busy.slices(0, 0), [60, 60, 90, 60, 60, 60, 60, 60]);
    }
}
