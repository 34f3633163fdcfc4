//! How far a node is: the time from a message over its link to the answer, least of the last ones.
//!
//! The message carries random bytes that only its receiver can give back, so nobody is measured nearer than he answers
//! from; a busy machine or a full link is measured farther. What differs from what the log has by a step enters it.

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

/// The measure of one link.
pub(super) struct Distance {
    /// When the next question is due.
    pub due: Instant,
    /// The question that is not answered yet.
    asked: Option<(Hash32, Instant)>,
    /// Microseconds, the latest last.
    samples: VecDeque<u32>,
    /// What the log has of this link.
    entered: Option<u32>,
}

impl Distance {
    pub(super) fn new(now: Instant) -> Self {
        Self { due: now + FIRST, asked: None, samples: VecDeque::new(), entered: None }
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
        let told = round_up(least);
        // Farther at once, since the bound must hold; nearer only by two steps, so that it does not go to and fro.
        let differs = self.entered.is_none_or(|entered| least > entered || round_up(told.saturating_add(1)) < entered);
        if !differs {
            return None;
        }
        self.entered = Some(told);
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
        let mut distance = Distance::new(start);
        distance.ask(Hash32([1; 32]), start);
        assert_eq!(distance.due, start + EVERY);
        let slow = start + Duration::from_secs(2);
        assert_eq!(distance.answer(Hash32([1; 32]), slow), None);
        assert_eq!((distance.samples.back(), distance.due), (Some(&2_000_000), slow + FIRST));
    }

    /// Answers after so many microseconds each; what entered the log.
    fn entered(took: impl IntoIterator<Item = u64>) -> Vec<u32> {
        let start = Instant::now();
        let mut distance = Distance::new(start);
        let mut told = Vec::new();
        for (at, took) in (0_u8..).zip(took) {
            let nonce = Hash32([at; 32]);
            distance.ask(nonce, start);
            assert_eq!(distance.answer(Hash32([99; 32]), start), None, "that is not the answer");
            told.extend(distance.answer(nonce, start + Duration::from_micros(took)));
            assert_eq!(distance.answer(nonce, start), None, "it was given already");
        }
        told
    }

    #[test]
    fn the_least_of_the_last_answers_enters_once_and_again_when_it_is_a_step_away() {
        assert!(entered([900, 800, 5_000]).is_empty(), "too few");
        assert_eq!(entered([900, 800, 5_000, 1_024]), [round_up(800)]);
        let calm = [1_000, 1_020, 1_010, 1_005, 1_024, 990, 1_003, 1_001, 1_020, 1_010, 1_015, 1_024];
        assert_eq!(entered(calm), [1_024]);
        // A slow answer alone changes nothing; when all of them are slow, the node is farther.
        assert_eq!(entered(calm.into_iter().chain([9_000; 7])), [1_024]);
        assert_eq!(entered(calm.into_iter().chain([9_000; 9])), [1_024, round_up(9_000)]);
        assert_eq!(entered(calm.into_iter().chain([850])), [1_024], "one step nearer is none");
        assert_eq!(entered(calm.into_iter().chain([500])), [1_024, 512]);
    }
}
