//! Signed words at the door: whether it is the account that says so, now, and for the first time. Nothing is said twice
//! in the log, so that whoever audits may hold a word that stands there twice against the controller.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use futures::TryStreamExt;
use selion_api::commit::PoolId;
use selion_api::rest::Word;
use selion_api::said::{SAID_WITHIN_MS, Said};
use selion_api::{Hash32, TimeMs};
use selion_log::Entry;
use selion_market::Input;

use super::Problem;
use super::recover::signed_by;
use crate::App;
use crate::store::{StoreError, entry};

/// Most words that are remembered: those of ten minutes.
const MOST: usize = 1 << 18;

/// What was said lately. A word that is older is refused for its age.
#[derive(Debug, Default)]
pub struct Heard(Mutex<Words>);

#[derive(Debug, Default)]
struct Words {
    /// By time and digest.
    said: BTreeSet<(TimeMs, Hash32)>,
    /// What was said then or before may be forgotten. Whoever read a clock before that, or one that was set back, would
    /// find such a word new.
    forgotten: TimeMs,
}

/// Why a word is not heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deaf {
    Stale,
    Repeated,
    Full,
}

impl Heard {
    /// With the words of the newest entries of the log.
    ///
    /// # Errors
    ///
    /// Of the database, or of an entry that does not decode.
    pub async fn load(log: &sqlx::SqlitePool, pool: &PoolId, now: TimeMs) -> Result<Self, StoreError> {
        let mut words = Words::default();
        let mut newest = entry::backwards(log);
        while let Some(bytes) = newest.try_next().await? {
            let corrupt = |what: String| StoreError::Corrupt(format!("the newest entries of the log: {what}"));
            let read = Entry::read(&bytes).map_err(|error| corrupt(error.to_string()))?;
            if now.since(read.at_ms) > SAID_WITHIN_MS * 2 {
                words.forgotten = read.at_ms.plus(SAID_WITHIN_MS);
                break;
            }
            let input: Input = borsh::from_slice(&read.input).map_err(|error| corrupt(error.to_string()))?;
            let digest = input.word().and_then(|word| word.digest(pool));
            words.said.extend(input.said().map(|said| said.said_ms).zip(digest));
        }
        Ok(Self(Mutex::new(words)))
    }

    /// How many words are remembered.
    #[cfg(test)]
    pub fn remembered(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).said.len()
    }

    /// Notes a word that was not heard before. What came of it is not asked: one that was lost on its way is said anew.
    fn hear(&self, said_ms: TimeMs, digest: Hash32, now: TimeMs) -> Result<(), Deaf> {
        let mut words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((old, _)) = words.said.first().copied().filter(|(old, _)| now.since(*old) > SAID_WITHIN_MS) {
            words.said.pop_first();
            words.forgotten = words.forgotten.max(old);
        }
        if said_ms <= words.forgotten {
            return Err(Deaf::Stale);
        }
        if words.said.len() >= MOST {
            return Err(Deaf::Full);
        }
        if words.said.insert((said_ms, digest)) { Ok(()) } else { Err(Deaf::Repeated) }
    }
}

/// When and by whom a word is said to be signed.
///
/// # Errors
///
/// [`Problem::Fields`] if one of the two is missing.
pub(super) fn said(word: Word) -> Result<Option<Said>, Problem> {
    match (word.said_ms, word.signature) {
        (Some(said_ms), Some(signature)) => Ok(Some(Said { said_ms, signature })),
        (None, None) => Ok(None),
        (None, Some(_)) => {
            let why = "a signed word names the time that it was signed with";
            Err(Problem::field("/said_ms", "missing_field", why))
        }
        (Some(_), None) => {
            let why = "a time is said with the signature over it, or not at all";
            Err(Problem::field("/signature", "missing_field", why))
        }
    }
}

/// Judges the signature of a word, if it has one, and notes it. Called last before it enters.
///
/// # Errors
///
/// [`Problem::Fields`] of a word of another time or one that was heard before; [`Problem::BadSignature`];
/// [`Problem::Overloaded`].
pub(super) fn hear(app: &App, input: &Input) -> Result<(), Problem> {
    let Some((said, word)) = input.said().zip(input.word()) else {
        return Ok(());
    };
    // The time that its entry would have now.
    let now = app.log.read(|state| state.now).max((app.clock)());
    if !said.is_near(now) {
        return Err(stale(said.said_ms, now));
    }
    let digest = word.digest(&app.pool).filter(|digest| signed_by(word.who, digest, &said.signature));
    let digest = digest.ok_or(Problem::BadSignature("/signature"))?;
    app.heard.hear(said.said_ms, digest, now).map_err(|deaf| match deaf {
        Deaf::Stale => stale(said.said_ms, now),
        Deaf::Repeated => {
            let detail =
                format!("the same {} of {} was said before: sign anew, for another time", word.what, said.said_ms.0);
            Problem::field("/said_ms", "repeated", detail)
        }
        Deaf::Full => Problem::Overloaded,
    })
}

fn stale(said_ms: TimeMs, now: TimeMs) -> Problem {
    let (said, minutes) = (said_ms.0, SAID_WITHIN_MS / 60_000);
    let detail = format!(
        "it was said at {said}, here it is {}: a signed word counts for {minutes} minutes; set the clock of your \
         machine, and sign anew",
        now.0
    );
    Problem::field("/said_ms", "stale", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_heard_once_and_forgotten_when_its_age_would_refuse_it() {
        let (heard, digest) = (Heard::default(), Hash32([1; 32]));
        let now = TimeMs(10 * SAID_WITHIN_MS);
        let ahead = now.plus(SAID_WITHIN_MS);
        assert_eq!(heard.hear(now, digest, now), Ok(()));
        assert_eq!(heard.hear(ahead, digest, now), Ok(()), "of another time it is another word");
        for later in [now, now.plus(SAID_WITHIN_MS)] {
            assert_eq!(heard.hear(now, digest, later), Err(Deaf::Repeated));
        }
        assert_eq!(heard.hear(ahead, digest, now.plus(2 * SAID_WITHIN_MS)), Err(Deaf::Repeated));
        assert_eq!(heard.0.lock().unwrap().said.len(), 1, "the first is of no use any more");
    }

    #[test]
    fn a_repeat_that_read_the_time_before_its_word_was_forgotten_is_not_let_in() {
        let (heard, digest) = (Heard::default(), Hash32([1; 32]));
        let now = TimeMs(10 * SAID_WITHIN_MS);
        assert_eq!(heard.hear(now, digest, now), Ok(()));
        let last = now.plus(SAID_WITHIN_MS);
        // Another's call, a millisecond later, overtakes the repeat while that waits for the lock.
        assert_eq!(heard.hear(last, Hash32([2; 32]), last.plus(1)), Ok(()));
        assert_eq!(heard.hear(now, digest, last), Err(Deaf::Stale));
        // So it is where a clock is set back; what is said anew is heard.
        assert_eq!(heard.hear(now, digest, now), Err(Deaf::Stale));
        assert_eq!(heard.hear(now.plus(1), digest, now), Ok(()));
    }

    #[test]
    fn the_words_that_are_remembered_are_bounded() {
        let (heard, now) = (Heard::default(), TimeMs(SAID_WITHIN_MS));
        let many = (0..MOST as u64).map(|at| (now.plus(at % 7), selion_api::commit::sha256_of(&at)));
        heard.0.lock().unwrap().said.extend(many);
        assert_eq!(heard.hear(now, Hash32([1; 32]), now), Err(Deaf::Full));
        let later = now.plus(7);
        assert_eq!(heard.hear(later, Hash32([1; 32]), later.plus(SAID_WITHIN_MS)), Ok(()), "later there is room");
    }
}
