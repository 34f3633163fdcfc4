//! One run of the MIG experiment: Poisson arrivals, exponential lives, what does not fit is refused.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::table::PROFILES;
use crate::random::Random;

/// Ticks of the mean life.
pub const LIFE: u64 = 1_000_000;

/// An arrival: when and until when, in ticks, and the number of its profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: u64,
    /// Its end, if it is placed.
    pub end: u64,
    /// Number of its profile in [`PROFILES`].
    pub profile: usize,
}

/// What places instances: the engine or a baseline.
pub trait Placer {
    /// What `release` takes back.
    type Held;
    /// Places one, if it fits.
    fn place(&mut self, arrival: &Arrival) -> Option<Self::Held>;
    /// It has ended at `now`.
    fn release(&mut self, held: Self::Held, now: u64);
}

/// What a run counted after its first fifth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Counted {
    /// Slices placed of slices asked, from 0 to 1.
    pub accepted: f64,
    /// Slices taken of all slices, mean over time, from 0 to 1.
    pub used: f64,
}

/// `count` arrivals of `weights` (one a profile) that make `load` on so many slices.
pub fn arrivals(count: usize, weights: &[u32; PROFILES.len()], load: f64, slices: u64, seed: u64) -> Vec<Arrival> {
    let mut random = Random::new(seed, 1);
    let sum: u32 = weights.iter().sum();
    let asked: u32 = PROFILES.iter().zip(weights).map(|(profile, weight)| u32::from(profile.size) * weight).sum();
    let rate = load * slices as f64 * f64::from(sum) / f64::from(asked);
    let ticks = |lives: f64| (lives * LIFE as f64) as u64;
    let mut at = 0.0;
    let mut draw = |_| {
        at += random.exponential() / rate;
        let mut drawn = random.below(sum as usize) as u32;
        let profile = weights.iter().position(|weight| match drawn.checked_sub(*weight) {
            Some(rest) => {
                drawn = rest;
                false
            }
            None => true,
        });
        let life = ticks(random.exponential()).max(1);
        Arrival { at: ticks(at), end: ticks(at) + life, profile: profile.unwrap_or(0) }
    };
    (0..count).map(&mut draw).collect()
}

/// Offers `arrivals` to `placer` on so many slices. The first fifth is not counted.
pub fn run<P: Placer>(arrivals: &[Arrival], slices: u64, placer: &mut P) -> Counted {
    let mut held: Vec<Option<P::Held>> = Vec::with_capacity(arrivals.len());
    let mut ends = BinaryHeap::new();
    let from = arrivals.len() / 5;
    let size = |profile: usize| u64::from(PROFILES[profile].size);
    let (mut asked, mut placed, mut taken, mut area, mut clock) = (0, 0, 0u64, 0u128, 0);
    for (at, arrival) in arrivals.iter().enumerate() {
        while let Some(&Reverse((end, which))) = ends.peek()
            && end <= arrival.at
        {
            ends.pop();
            area += u128::from(taken) * u128::from(end - clock);
            clock = end;
            let which: usize = which;
            taken -= size(arrivals[which].profile);
            if let Some(instance) = held[which].take() {
                placer.release(instance, end);
            }
        }
        area += u128::from(taken) * u128::from(arrival.at - clock);
        clock = arrival.at;
        if at == from {
            area = 0;
        }
        let instance = placer.place(arrival);
        let slices = size(arrival.profile);
        if at >= from {
            asked += slices;
        }
        if instance.is_some() {
            taken += slices;
            placed += if at >= from { slices } else { 0 };
            ends.push(Reverse((arrival.end, at)));
        }
        held.push(instance);
    }
    let span = clock - arrivals.get(from).map_or(0, |first| first.at);
    Counted { accepted: placed as f64 / asked.max(1) as f64, used: area as f64 / (span.max(1) as f64 * slices as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One GPU that takes anything as long as its slices are not all taken.
    struct Count(u64);

    impl Placer for Count {
        type Held = u64;
        fn place(&mut self, arrival: &Arrival) -> Option<u64> {
            let size = u64::from(PROFILES[arrival.profile].size);
            (self.0 + size <= 8).then(|| self.0 += size).map(|()| size)
        }
        fn release(&mut self, held: u64, _: u64) {
            self.0 -= held;
        }
    }

    fn arrival(at: u64, end: u64, profile: usize) -> Arrival {
        Arrival { at, end, profile }
    }

    #[test]
    fn what_ends_makes_room_for_what_comes_at_that_moment() {
        // Five arrivals: the first is the uncounted fifth; of the others' 8 + 8 + 1 + 4 slices 8 + 4 find room.
        let arrivals =
            [arrival(0, 10, 5), arrival(10, 20, 5), arrival(15, 30, 5), arrival(19, 40, 0), arrival(20, 30, 3)];
        let counted = run(&arrivals, 8, &mut Count(0));
        assert!((counted.accepted - 12.0 / 21.0).abs() < 1e-9, "{counted:?}");
        assert!((counted.used - 1.0).abs() < 1e-9, "{counted:?}");
    }

    #[test]
    fn the_arrivals_make_the_load() {
        let arrivals = arrivals(50_000, &[10, 5, 15, 30, 20, 20], 1.3, 800, 1);
        let work: f64 = arrivals.iter().map(|a| f64::from(PROFILES[a.profile].size) * (a.end - a.at) as f64).sum();
        let load = work / (800.0 * arrivals.last().map_or(1.0, |last| last.at as f64));
        assert!((load - 1.3).abs() < 0.03, "{load}");
        let sevens = arrivals.iter().filter(|arrival| arrival.profile == 5).count() as f64 / 50_000.0;
        assert!((sevens - 0.2).abs() < 0.01, "{sevens}");
    }
}
