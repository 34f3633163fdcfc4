//! One run: arrivals, departures, and, where there is a queue, who starts when room comes free.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use selion_market::engine::{Choice, ClassId, Fleet};

use super::booking::Bookings;
use super::lives::Offer;
use super::tally::{Measured, Tally, UNTIL};
use super::waiting::{Waiting, fits};
use super::{Discipline, lives::LIFE};
use crate::trace::Task;

/// A task that runs: where, and until when in ticks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    pub choice: Choice,
    pub end: u64,
}

/// The cluster and everyone at it.
pub(super) struct World<'a> {
    pub fleet: Fleet,
    tasks: &'a [Task],
    classes: &'a [ClassId],
    offers: &'a [Offer],
    /// By offer.
    pub running: Vec<Option<Running>>,
    /// Offers that run on each node.
    pub on_node: Vec<Vec<usize>>,
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    pub waiting: Waiting,
    gpu_waits: usize,
    tally: Tally,
    decisions: u64,
}

/// Offers everything to `fleet` and measures; with the number of decisions. `classes` are of the rows of `tasks`.
pub(super) fn run(
    fleet: Fleet,
    tasks: &[Task],
    classes: &[ClassId],
    offers: &[Offer],
    discipline: Discipline,
) -> (Measured, u64) {
    let nodes = fleet.nodes().len() as usize;
    let mut world = World {
        tally: Tally::new(fleet.nodes().capacity_milli()),
        fleet,
        tasks,
        classes,
        offers,
        running: vec![None; offers.len()],
        on_node: vec![Vec::new(); nodes],
        ends: BinaryHeap::new(),
        waiting: Waiting::default(),
        gpu_waits: 0,
        decisions: 0,
    };
    let mut bookings = Bookings::new(discipline.bookings());
    for (offer, at) in offers.iter().map(|offer| offer.at).enumerate() {
        world.until(at, discipline, &mut bookings);
        world.offer(offer, discipline, &mut bookings);
    }
    let until = (UNTIL * LIFE as f64) as u64;
    world.until(until, discipline, &mut bookings);
    bookings.end(until);
    let World { mut tally, waiting, decisions, .. } = world;
    for (_, class) in waiting.heads() {
        for offer in waiting.of(class) {
            tally.waits_still(&tasks[offers[offer].task], offers[offer].at);
        }
    }
    let measured = Measured { booked: bookings.made, late: bookings.late, ..tally.measured() };
    (measured, decisions)
}

impl World<'_> {
    pub fn task(&self, offer: usize) -> &Task {
        &self.tasks[self.offers[offer].task]
    }

    pub fn class(&self, offer: usize) -> ClassId {
        self.classes[self.offers[offer].task]
    }

    /// When `offer` would end if it started at `now`.
    pub fn end(&self, offer: usize, now: u64) -> u64 {
        now + self.offers[offer].life
    }

    /// Every departure until `now`.
    fn until(&mut self, now: u64, discipline: Discipline, bookings: &mut Bookings) {
        while let Some(Reverse((end, offer))) = self.ends.peek().copied().filter(|next| next.0.0 <= now) {
            self.ends.pop();
            self.fleet.at(end);
            self.tally.advance(end, self.waiting.count(), self.gpu_waits);
            let Some(running) = self.running[offer].take() else { continue };
            self.tally.ended(&self.tasks[self.offers[offer].task]);
            let node = running.choice.node;
            self.on_node[node as usize].retain(|other| *other != offer);
            // It was taken as it is given back, so it is there.
            let _ = self.fleet.release(self.class(offer), &running.choice, Some(running.end));
            if discipline != Discipline::Loss {
                bookings.freed(self, node, end);
                bookings.renew(self, end);
            }
        }
        self.tally.advance(now, self.waiting.count(), self.gpu_waits);
    }

    /// One arrival: it starts where the engine puts it, and else waits or is lost.
    fn offer(&mut self, offer: usize, discipline: Discipline, bookings: &mut Bookings) {
        let (class, at) = (self.class(offer), self.offers[offer].at);
        self.tally.offered(&self.tasks[self.offers[offer].task], at);
        self.fleet.at(at);
        self.fleet.arrive(class);
        let choice = self.choose(offer, at).or_else(|| bookings.backfill(self, offer, at));
        if let Some(choice) = choice {
            self.start(offer, choice, at);
            bookings.taken(self, choice.node);
        } else if discipline != Discipline::Loss {
            self.waiting.push(class, offer);
            self.gpu_waits += usize::from(self.task(offer).gpus > 0);
            bookings.renew(self, at);
        }
    }

    fn choose(&mut self, offer: usize, now: u64) -> Option<Choice> {
        self.decisions += 1;
        self.fleet.choose(self.class(offer), Some(self.end(offer, now)))
    }

    /// Whether a node has room for `offer` now, open or not.
    pub fn fits(&self, offer: usize, node: u32) -> bool {
        let fitting = self.fleet.view(node).zip(self.fleet.want(self.class(offer)));
        fitting.is_some_and(|(view, want)| fits(&view, want))
    }

    /// The best place on one node.
    pub fn choose_on(&mut self, offer: usize, node: u32, now: u64) -> Option<Choice> {
        self.fleet.choose_on(self.class(offer), node, Some(self.end(offer, now)))
    }

    fn start(&mut self, offer: usize, choice: Choice, now: u64) {
        let end = self.end(offer, now);
        if self.fleet.take(self.class(offer), &choice, Some(end)).is_err() {
            return;
        }
        self.tally.started(&self.tasks[self.offers[offer].task], self.offers[offer].at, now);
        self.running[offer] = Some(Running { choice, end });
        self.on_node[choice.node as usize].push(offer);
        self.ends.push(Reverse((end, offer)));
    }

    /// One that waited starts.
    pub fn start_waiting(&mut self, offer: usize, choice: Choice, now: u64) {
        self.waiting.remove(self.class(offer), offer);
        self.gpu_waits -= usize::from(self.task(offer).gpus > 0);
        self.start(offer, choice, now);
    }

    /// Room has come free on `node`: the oldest that fits starts, until none does. Who waits fitted nowhere else.
    pub fn fill(&mut self, node: u32, now: u64) {
        loop {
            let Some((offer, _)) = self.waiting.heads().find(|(offer, _)| self.fits(*offer, node)) else { return };
            let Some(choice) = self.choose(offer, now) else { return };
            self.start_waiting(offer, choice, now);
        }
    }
}
