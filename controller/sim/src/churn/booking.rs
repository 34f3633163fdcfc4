//! Bookings (EASY backfill): the oldest waiting tasks of several GPUs each hold a node from a known time on. Others
//! may start there only where they do not delay it.

use std::collections::BTreeMap;

use selion_market::engine::{Choice, ClassId};

use super::future::{Then, possible};
use super::run::World;

/// A node that is kept for `offer`, which can start there at `at` at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Booking {
    offer: usize,
    at: u64,
}

/// All bookings: at most one a node, at most `limit` in all.
#[derive(Clone, Debug)]
pub(super) struct Bookings {
    limit: usize,
    by_node: BTreeMap<u32, Booking>,
    /// The node of each offer that holds one; older offers first.
    holders: BTreeMap<usize, u32>,
    /// Bookings made.
    pub made: u64,
    /// Bookings whose task started later than promised.
    pub late: u64,
}

impl Bookings {
    /// None yet.
    pub fn new(limit: usize) -> Self {
        Self { limit, by_node: BTreeMap::new(), holders: BTreeMap::new(), made: 0, late: 0 }
    }

    /// Room has come free on `node`: who has booked it comes first, then the others.
    pub fn freed(&mut self, world: &mut World<'_>, node: u32, now: u64) {
        let mut open = vec![node];
        while let Some(node) = open.pop() {
            let Some(booking) = self.by_node.get(&node).copied() else {
                let before = world.waiting.count();
                world.fill(node, now);
                if world.waiting.count() < before {
                    open.extend(self.drop_started(world, now));
                }
                continue;
            };
            world.fleet.close(node, false);
            if let Some(choice) = world.choose_on(booking.offer, node, now) {
                self.remove(node, now);
                world.start_waiting(booking.offer, choice, now);
                open.extend(self.move_up(world, node, now));
                open.push(node);
                continue;
            }
            self.backfill_waiting(world, node, booking, now);
            world.fleet.close(node, true);
        }
    }

    /// Bookings of tasks that have started elsewhere end; their nodes are open again.
    fn drop_started(&mut self, world: &mut World<'_>, now: u64) -> Vec<u32> {
        let started = self.holders.iter().filter(|(offer, _)| world.running[**offer].is_some());
        let open: Vec<u32> = started.map(|(_, node)| *node).collect();
        for node in &open {
            self.remove(*node, now);
            world.fleet.close(*node, false);
        }
        open
    }

    fn remove(&mut self, node: u32, now: u64) {
        if let Some(booking) = self.by_node.remove(&node) {
            self.late += u64::from(now > booking.at);
            self.holders.remove(&booking.offer);
        }
    }

    /// `node` is booked no more: the oldest that would start there earlier takes it over, which opens the node that it
    /// had, and so on. The nodes that end up open.
    fn move_up(&mut self, world: &mut World<'_>, node: u32, now: u64) -> Vec<u32> {
        let mut opened = Vec::new();
        let mut next = Some(node);
        while let Some(node) = next.take() {
            for (offer, old) in &self.holders {
                let Some(at) = self.by_node.get(old).map(|booking| booking.at) else { continue };
                let want = world.fleet.want(world.class(*offer));
                let Some(sooner) = want.and_then(|want| possible(world, want, node, now, at)) else { continue };
                // Each move makes one booking earlier, so this ends.
                let (offer, old) = (*offer, *old);
                self.by_node.remove(&old);
                self.by_node.insert(node, Booking { offer, at: sooner });
                self.holders.insert(offer, node);
                world.fleet.close(node, true);
                world.fleet.close(old, false);
                next = Some(old);
                break;
            }
            opened.extend(next);
        }
        opened.retain(|node| !self.by_node.contains_key(node));
        opened
    }

    /// The oldest that fit on a booked node, open for the moment, start there if they do not delay its booking.
    fn backfill_waiting(&mut self, world: &mut World<'_>, node: u32, booking: Booking, now: u64) {
        let heads: Vec<(usize, ClassId)> = world.waiting.heads().collect();
        for (offer, _) in heads {
            let mut next = Some(offer);
            while let Some(offer) = next.filter(|offer| !self.holders.contains_key(offer)) {
                let Some(choice) = harmless(world, offer, node, booking, now) else { break };
                world.start_waiting(offer, choice, now);
                next = world.waiting.of(world.class(offer)).next();
            }
        }
    }

    /// A place for an arrival on some booked node, if nothing else is left for it. The node is open then, until
    /// [`Bookings::taken`].
    pub fn backfill(&self, world: &mut World<'_>, offer: usize, now: u64) -> Option<Choice> {
        for (node, booking) in &self.by_node {
            if !world.fits(offer, *node) {
                continue;
            }
            world.fleet.close(*node, false);
            if let Some(choice) = harmless(world, offer, *node, *booking, now) {
                return Some(choice);
            }
            world.fleet.close(*node, true);
        }
        None
    }

    /// Something was taken on `node`: if it is booked, it is closed as before.
    pub fn taken(&self, world: &mut World<'_>, node: u32) {
        if self.by_node.contains_key(&node) {
            world.fleet.close(node, true);
        }
    }

    /// The run ends at `now`: what should have started by then is late.
    pub fn end(&mut self, now: u64) {
        self.late += self.by_node.values().filter(|booking| booking.at < now).count() as u64;
    }

    /// The oldest waiting tasks of several GPUs book, each the node where it can start first, up to the limit.
    pub fn renew(&mut self, world: &mut World<'_>, now: u64) {
        if self.holders.len() >= self.limit {
            return;
        }
        for offer in candidates(world, self.limit) {
            if self.holders.len() >= self.limit {
                return;
            }
            if self.holders.contains_key(&offer) {
                continue;
            }
            let Some(want) = world.fleet.want(world.class(offer)) else { continue };
            let mut earliest: Option<(u64, u32)> = None;
            for node in (0..world.fleet.nodes().len()).filter(|node| !self.by_node.contains_key(node)) {
                let before = earliest.map_or(u64::MAX, |(at, _)| at);
                if let Some(at) = possible(world, want, node, now, before) {
                    earliest = Some((at, node));
                }
            }
            if let Some((at, node)) = earliest {
                self.by_node.insert(node, Booking { offer, at });
                self.holders.insert(offer, node);
                self.made += 1;
                world.fleet.close(node, true);
            }
        }
    }
}

/// A place for `offer` on `node`, open for the moment, that leaves its booking possible at its time.
fn harmless(world: &mut World<'_>, offer: usize, node: u32, booking: Booking, now: u64) -> Option<Choice> {
    if !world.fits(offer, node) {
        return None;
    }
    let choice = world.choose_on(offer, node, now)?;
    if world.end(offer, now) <= booking.at {
        return Some(choice);
    }
    let (booked, added) = (world.fleet.want(world.class(booking.offer))?, world.fleet.want(world.class(offer))?);
    Then::at(world, node, booking.at)?.has_room_beside(booked, added, choice).then_some(choice)
}

/// The oldest waiting tasks of several GPUs.
fn candidates(world: &World<'_>, limit: usize) -> Vec<usize> {
    let classes = world.waiting.heads().filter(|(offer, _)| world.task(*offer).gpus > 1);
    let mut offers: Vec<usize> = classes.flat_map(|(_, class)| world.waiting.of(class).take(limit)).collect();
    offers.sort_unstable();
    offers.truncate(limit);
    offers
}
