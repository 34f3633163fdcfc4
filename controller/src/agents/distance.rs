//! How far a node is: the time from a message over its link to the answer, least of the last ones.
//!
//! The message carries random bytes that only its receiver can give back, so nobody is measured nearer than he answers
//! from; a busy machine or a full link is measured farther. What differs from what the log has by a step enters it; below
//! a millisecond all are equally near, since there load decides and not distance. So an idle pool enters nothing.

use std::collections::VecDeque;
use std::time::Duration;

use selion_api::Hash32;
use tokio::time::Instant;

/// Between two questions; one that was not answered until then is forgotten.
const EVERY: Duration = Duration::from_secs(5);
/// After an answer, until there are [`SAMPLES`].
const FIRST: Duration = Duration::from_millis(200);
/// So many answers are looked at.
const SAMPLES: usize = 8;
/// With fewer than these nothing is said.
const ENOUGH: usize = 4;
/// The least that is told, in microseconds.
const NEAR_US: u32 = 1_000;
/// A nearer measure enters this long after the last one at the earliest, so that a node cannot go to and fro: a farther
/// one takes [`SAMPLES`] slow answers.
const NEARER_AFTER: Duration = Duration::from_secs(60);

/// The measure of one link.
pub(super) struct Distance {
    /// When the next question is due.
    pub due: Instant,
    /// The question that is not answered yet.
    asked: Option<(Hash32, Instant)>,
    /// Microseconds, the latest last.
    samples: VecDeque<u32>,
    /// What the log has of this node.
    entered: Option<u32>,
    /// Since when.
    entered_at: Instant,
}

impl Distance {
    /// Of a node of which the log has `entered`, if anything.
    pub(super) fn new(now: Instant, entered: Option<u32>) -> Self {
        Self { due: now + FIRST, asked: None, samples: VecDeque::new(), entered, entered_at: now }
    }

    /// A question leaves.
    pub(super) fn ask(&mut self, nonce: Hash32, now: Instant) {
        self.asked = Some((nonce, now));
        self.due = now + EVERY;
    }

    /// An answer came. Tells the measure that is to enter the log, if any.
    pub(super) fn answer(&mut self, nonce: Hash32, now: Instant) -> Option<u32> {
        let (_, at) = self.asked.take_if(|(asked, _)| *asked == nonce)?;
        let took_us = now.saturating_duration_since(at).as_micros();
        self.samples.push_back(u32::try_from(took_us).unwrap_or(u32::MAX));
        if self.samples.len() > SAMPLES {
            self.samples.pop_front();
        }
        if self.samples.len() < SAMPLES {
            self.due = now + FIRST;
        }
        let least = self.samples.iter().min().copied().filter(|_| self.samples.len() >= ENOUGH)?;
        let told = round_up(least).max(NEAR_US);
        // Farther at once, since the bound must hold; nearer only by two steps and not at once.
        let may_near = now.saturating_duration_since(self.entered_at) >= NEARER_AFTER;
        let nearer = |entered| may_near && round_up(told.saturating_add(1)) < entered;
        if !self.entered.is_none_or(|entered| least > entered || nearer(entered)) {
            return None;
        }
        (self.entered, self.entered_at) = (Some(told), now);
        self.entered
    }

    /// The measure could not be entered: it is told again with the next answer.
    pub(super) fn not_entered(&mut self) {
        self.entered = None;
    }
}

/// The next of four steps to each power of two.
fn round_up(us: u32) -> u32 {
    let octave = u64::from(us.max(1));
    let base = 1_u64 << octave.ilog2();
    let steps = [1_000, 1_189, 1_414, 1_682, 2_000].map(|milli| (base * milli).div_ceil(1_000));
    let next = steps.into_iter().find(|step| *step >= u64::from(us)).unwrap_or(u64::MAX);
    u32::try_from(next).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_measure_is_rounded_up_by_less_than_a_fifth() {
        for us in (1..5_000).chain([u32::MAX / 2, u32::MAX - 1, u32::MAX]) {
            let told = round_up(us);
            assert!(told >= us && u64::from(told) <= u64::from(us) * 12 / 10 + 1, "{us} became {told}");
            assert_eq!(round_up(told), told, "a step is one");
        }
    }

    #[test]
    fn a_far_node_has_time_to_answer_and_a_near_one_is_asked_more_often_at_first() {
        let start = Instant::now();
        let mut distance = Distance::new(start, None);
        distance.ask(Hash32([1; 32]), start);
        assert_eq!(distance.due, start + EVERY);
        let slow = start + Duration::from_secs(2);
        assert_eq!(distance.answer(Hash32([1; 32]), slow), None);
        assert_eq!((distance.samples.back(), distance.due), (Some(&2_000_000), slow + FIRST));
    }

    /// Answers after so many microseconds each, a question every [`EVERY`]; what entered the log.
    fn entered(distance: &mut Distance, took: impl IntoIterator<Item = u64>) -> Vec<u32> {
        let mut now = distance.due;
        let mut told = Vec::new();
        for (at, took) in (0_u64..).zip(took) {
            let mut nonce = Hash32([0; 32]);
            nonce.0[..8].copy_from_slice(&at.to_le_bytes());
            distance.ask(nonce, now);
            assert_eq!(distance.answer(Hash32([99; 32]), now), None, "that is not the answer");
            told.extend(distance.answer(nonce, now + Duration::from_micros(took)));
            assert_eq!(distance.answer(nonce, now), None, "it was given already");
            now += EVERY;
        }
        told
    }

    fn fresh(took: impl IntoIterator<Item = u64>) -> Vec<u32> {
        entered(&mut Distance::new(Instant::now(), None), took)
    }

    #[test]
    fn the_least_of_the_last_answers_enters_once_and_again_when_it_is_a_step_away() {
        assert!(fresh([9_000, 8_000, 50_000]).is_empty(), "too few");
        assert_eq!(fresh([9_000, 8_000, 50_000, 10_240]), [round_up(8_000)]);
        let calm = [8_000, 8_020, 8_010, 8_005, 8_192, 7_990, 8_003, 8_001, 8_020, 8_010, 8_015, 8_192];
        assert_eq!(fresh(calm), [8_192]);
        // A slow answer alone changes nothing; when all of them are slow, the node is farther.
        assert_eq!(fresh(calm.into_iter().chain([90_000; 7])), [8_192]);
        assert_eq!(fresh(calm.into_iter().chain([90_000; 9])), [8_192, round_up(90_000)]);
        assert_eq!(fresh(calm.into_iter().chain([6_850; 5])), [8_192], "one step nearer is none");
        assert_eq!(fresh(calm.into_iter().chain([4_000; 5])), [8_192, 4_096]);
        assert_eq!(fresh([8_000, 8_000, 8_000, 8_000, 4_000]), [8_192], "nearer only after a minute");
    }

    #[test]
    fn an_hour_of_an_idle_pool_enters_nothing_after_the_first_measure_and_nothing_after_a_reconnect() {
        // Loopback, or one rack, under changing load: 50 to 950 microseconds.
        let noise = (0_u64..720).map(|at| 50 + at * 7_919 % 900);
        let mut distance = Distance::new(Instant::now(), None);
        assert_eq!(entered(&mut distance, noise.clone()), [NEAR_US]);
        assert!(entered(&mut Distance::new(Instant::now(), Some(NEAR_US)), noise).is_empty());
        // A way of 21 ms that is up to a tenth longer at times.
        let far = (0_u64..720).map(|at| 21_000 + at * 7_919 % 2_100);
        assert_eq!(fresh(far).len(), 1);
    }

    #[test]
    fn an_agent_that_answers_late_and_early_in_turn_enters_two_measures_a_minute_at_most() {
        let swing = (0_u64..720).map(|at| if at % 16 < 8 { 500_000 } else { 2_000 });
        assert!(fresh(swing).len() <= 120, "in an hour");
    }
}
