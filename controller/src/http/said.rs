//! Signed words at the door: whether it is the account that says so, now, and for the first time. Nothing is said twice
//! in the log, so that whoever audits may hold a word that stands there twice against the controller.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use futures::TryStreamExt;
use selion_api::commit::PoolId;
use selion_api::rest::Word;
use selion_api::said::{SAID_WITHIN_MS, Said};
use selion_api::{Account, Hash32, TimeMs};
use selion_log::Entry;
use selion_market::Input;

use super::Problem;
use super::recover::signed_by;
use crate::App;
use crate::store::{StoreError, entry};

/// Most words that are remembered: those of ten minutes.
const MOST: usize = 1 << 18;
/// Most of them that are one account's: who says more than that takes nobody else's place.
const MOST_EACH: usize = 1 << 12;

/// What was said lately. A word that is older is refused for its age.
#[derive(Debug, Default)]
pub struct Heard(Mutex<Words>);

#[derive(Debug, Default)]
struct Words {
    /// By time and digest, whose they are.
    said: BTreeMap<(TimeMs, Hash32), Account>,
    /// How many are whose.
    each: BTreeMap<Account, usize>,
    /// What was said then or before may be forgotten. Whoever read a clock before that, or one that was set back, would
    /// find such a word new.
    forgotten: TimeMs,
}

/// Why a word is not heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deaf {
    Stale,
    Repeated,
    /// The account said too much.
    Loud,
    Full,
}

impl Words {
    /// False if it was noted before.
    fn note(&mut self, said_ms: TimeMs, digest: Hash32, who: Account) -> bool {
        let is_new = self.said.insert((said_ms, digest), who).is_none();
        if is_new {
            *self.each.entry(who).or_default() += 1;
        }
        is_new
    }

    /// Forgets those that are refused for their age.
    fn forget(&mut self, now: TimeMs) {
        while let Some(first) = self.said.first_entry().filter(|first| now.since(first.key().0) > SAID_WITHIN_MS) {
            let ((old, _), who) = first.remove_entry();
            self.forgotten = self.forgotten.max(old);
            if let Some(count) = self.each.get_mut(&who) {
                *count -= 1;
                if *count == 0 {
                    self.each.remove(&who);
                }
            }
        }
    }
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
            if let Some((said, word)) = input.said().zip(input.word())
                && let Some(digest) = word.digest(pool)
            {
                words.note(said.said_ms, digest, word.who);
            }
        }
        Ok(Self(Mutex::new(words)))
    }

    /// How many words are remembered.
    #[cfg(test)]
    pub fn remembered(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).said.len()
    }

    /// Notes a word that was not heard before. What came of it is not asked: one that was lost on its way is said anew.
    fn hear(&self, said_ms: TimeMs, digest: Hash32, who: Account, now: TimeMs) -> Result<(), Deaf> {
        let mut words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        words.forget(now);
        if said_ms <= words.forgotten {
            return Err(Deaf::Stale);
        }
        if words.each.get(&who).is_some_and(|count| *count >= MOST_EACH) {
            return Err(Deaf::Loud);
        }
        if words.said.len() >= MOST {
            return Err(Deaf::Full);
        }
        if words.note(said_ms, digest, who) { Ok(()) } else { Err(Deaf::Repeated) }
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
/// [`Problem::RateLimited`] for an account that says very much; [`Problem::Overloaded`].
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
    app.heard.hear(said.said_ms, digest, word.who, now).map_err(|deaf| match deaf {
        Deaf::Stale => stale(said.said_ms, now),
        Deaf::Repeated => {
            let detail =
                format!("the same {} of {} was said before: sign anew, for another time", word.what, said.said_ms.0);
            Problem::field("/said_ms", "repeated", detail)
        }
        Deaf::Loud => Problem::RateLimited(SAID_WITHIN_MS / 1_000),
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

    const WHO: Account = Account([7; 20]);

    #[test]
    fn a_word_is_heard_once_and_forgotten_when_its_age_would_refuse_it() {
        let (heard, digest) = (Heard::default(), Hash32([1; 32]));
        let now = TimeMs(10 * SAID_WITHIN_MS);
        let ahead = now.plus(SAID_WITHIN_MS);
        assert_eq!(heard.hear(now, digest, WHO, now), Ok(()));
        assert_eq!(heard.hear(ahead, digest, WHO, now), Ok(()), "of another time it is another word");
        for later in [now, now.plus(SAID_WITHIN_MS)] {
            assert_eq!(heard.hear(now, digest, WHO, later), Err(Deaf::Repeated));
        }
        assert_eq!(heard.hear(ahead, digest, WHO, now.plus(2 * SAID_WITHIN_MS)), Err(Deaf::Repeated));
        assert_eq!(heard.0.lock().unwrap().said.len(), 1, "the first is of no use any more");
    }

    #[test]
    fn a_repeat_that_read_the_time_before_its_word_was_forgotten_is_not_let_in() {
        let (heard, digest) = (Heard::default(), Hash32([1; 32]));
        let now = TimeMs(10 * SAID_WITHIN_MS);
        assert_eq!(heard.hear(now, digest, WHO, now), Ok(()));
        let last = now.plus(SAID_WITHIN_MS);
        // Another's call, a millisecond later, overtakes the repeat while that waits for the lock.
        assert_eq!(heard.hear(last, Hash32([2; 32]), WHO, last.plus(1)), Ok(()));
        assert_eq!(heard.hear(now, digest, WHO, last), Err(Deaf::Stale));
        // So it is where a clock is set back; what is said anew is heard.
        assert_eq!(heard.hear(now, digest, WHO, now), Err(Deaf::Stale));
        assert_eq!(heard.hear(now.plus(1), digest, WHO, now), Ok(()));
    }

    #[test]
    fn the_words_that_are_remembered_are_bounded() {
        let (heard, now) = (Heard::default(), TimeMs(SAID_WITHIN_MS));
        let word = |at: u64| (now.plus(at % 7), selion_api::commit::sha256_of(&at));
        let account = |number: u64| Account(std::array::from_fn(|at| number.to_be_bytes()[at % 8]));
        for at in 0..MOST as u64 {
            let (said_ms, digest) = word(at);
            assert_eq!(heard.hear(said_ms, digest, account(at / MOST_EACH as u64), now), Ok(()));
        }
        // Of an account whose words are many nothing more is heard, and of the others while all are very many.
        let (said_ms, digest) = word(MOST as u64);
        assert_eq!(heard.hear(said_ms, digest, account(0), now), Err(Deaf::Loud));
        assert_eq!(heard.hear(now, Hash32([1; 32]), WHO, now), Err(Deaf::Full));
        let later = now.plus(7);
        assert_eq!(heard.hear(later, Hash32([1; 32]), WHO, later.plus(SAID_WITHIN_MS)), Ok(()), "later there is room");
        let words = heard.0.lock().unwrap();
        assert_eq!((words.said.len(), words.each.len()), (1, 1));
    }
}
