//! Frauds with what parties said: a word is made up, altered, entered again, or kept back until it harms.

use selion_api::TimeMs;
use selion_api::commit::PoolId;
use selion_api::said::{Reclaim, SAID_WITHIN_MS, Said, Statement};
use selion_market::{Answer, Input};

use super::frauds::missing;
use super::{Book, Lie, RehearseError};

/// For so long a request's key is remembered, and somewhat longer.
const LONGER_MS: u64 = 25 * 3_600_000;

type Told = Result<Lie, RehearseError>;

/// Plants each of them in a copy of its own.
pub(super) fn all(book: &Book, pool: &PoolId) -> Result<Vec<Lie>, RehearseError> {
    Ok(vec![
        forged_release(book, pool)?,
        forged_reclaim(book, pool)?,
        altered_resume(book)?,
        altered_hello(book)?,
        again("repeated_release", "a release", book, is_release)?,
        again("repeated_pause", "a pause that is over", book, is_pause)?,
        again("repeated_hello", "a hello", book, is_hello)?,
        late_pause(book)?,
        repeated_request(book)?,
    ])
}

fn lie(fraud: &'static str, (check, entry): (&'static str, usize), planted: String, book: &Book) -> Told {
    let (anchors, proofs, promises) = (Vec::new(), Vec::new(), Vec::new());
    Ok(Lie { fraud, planted, check, entry: Some(entry), log: book.seal()?, anchors, proofs, promises, chain: None })
}

fn is_release(input: &Input) -> bool {
    matches!(input, Input::Release { said: Some(_), .. })
}

fn is_pause(input: &Input) -> bool {
    matches!(input, Input::SetPaused { paused: true, said: Some(_), .. })
}

fn is_resume(input: &Input) -> bool {
    matches!(input, Input::SetPaused { paused: false, said: Some(_), .. })
}

fn is_request(input: &Input) -> bool {
    matches!(input, Input::Request(asked) if asked.signature.is_some())
}

fn is_hello(input: &Input) -> bool {
    matches!(input, Input::Linked(_))
}

/// The story's, which are the last of the log.
fn last(book: &Book, which: fn(&Input) -> bool) -> Result<(usize, Input), RehearseError> {
    let found = book.drafts.iter().enumerate().rfind(|(_, draft)| which(&draft.input));
    found.map(|(entry, draft)| (entry, draft.input.clone())).ok_or_else(|| missing("word of a party"))
}

/// The same history with an input changed: right in itself.
fn with_input(book: &Book, entry: usize, change: impl FnOnce(&mut Input)) -> Book {
    book.again(|inputs| {
        if let Some((_, input)) = inputs.get_mut(entry) {
            change(input);
        }
    })
}

fn forged_release(book: &Book, pool: &PoolId) -> Told {
    let (entry, word) = last(book, is_release)?;
    let digest = word.word().and_then(|word| word.digest(pool)).ok_or_else(|| missing("release"))?;
    let forged = book.cast.authority.sign_text(&digest.0)?;
    let other = with_input(book, entry, |input| {
        if let Input::Release { said: Some(said), .. } = input {
            said.signature = forged;
        }
    });
    let planted = "the controller signs a renter's release with a key of its own".to_owned();
    lie("forged_release", ("signatures", entry), planted, &other)
}

fn forged_reclaim(book: &Book, pool: &PoolId) -> Told {
    let (mut other, spec) = (book.clone(), book.cast.spec());
    let (provider, node, said_ms) = (spec.provider, spec.node, TimeMs(book.now));
    let word = Reclaim { provider, node, gpu: None, notice_ms: 0, said_ms };
    let signature = book.cast.authority.sign_text(&word.digest(pool).0)?;
    let entry = other.drafts.len();
    other.enter(Input::Reclaim { provider, node, gpu: None, notice_ms: 0, said: Some(Said { said_ms, signature }) });
    let planted = format!("the controller takes node {node} back in its owner's name");
    lie("forged_reclaim", ("signatures", entry), planted, &other)
}

fn altered_resume(book: &Book) -> Told {
    let (entry, _) = last(book, is_resume)?;
    let other = with_input(book, entry, |input| {
        if let Input::SetPaused { paused, .. } = input {
            *paused = true;
        }
    });
    let planted = "an owner's signed resume is entered as a pause, and the rest is right in itself".to_owned();
    lie("altered_resume", ("signatures", entry), planted, &other)
}

fn altered_hello(book: &Book) -> Told {
    let (entry, _) = last(book, is_hello)?;
    let other = with_input(book, entry, |input| {
        if let Input::Linked(signed) = input {
            signed.hello.spec.cpu_milli /= 2;
        }
    });
    let planted = "a node's signed hello is entered with half of its cores".to_owned();
    lie("altered_hello", ("signatures", entry), planted, &other)
}

fn again(fraud: &'static str, what: &str, book: &Book, which: fn(&Input) -> bool) -> Told {
    let ((first, input), mut other) = (last(book, which)?, book.clone());
    let entry = other.drafts.len();
    other.enter(input);
    let planted = format!("{what} of entry {first} is entered once more, with the signature that it has");
    lie(fraud, ("said_once", entry), planted, &other)
}

/// A renter's request is entered again once its key is forgotten: it makes another lease, which the renter pays.
fn repeated_request(book: &Book) -> Told {
    let ((first, input), mut other) = (last(book, is_request)?, book.clone());
    other.now += LONGER_MS;
    let entry = other.drafts.len();
    match other.enter(input) {
        Answer::Created(_) => {}
        answer => return Err(RehearseError::Story(format!("a request after a day was answered with {answer:?}"))),
    }
    let planted =
        format!("the request of entry {first} makes a lease again a day later, with the signature that it has");
    lie("repeated_request", ("said_once", entry), planted, &other)
}

/// The pause takes effect when the owner's word does not count any more: as if it came when it was signed.
fn late_pause(book: &Book) -> Told {
    let (entry, late) = last(book, is_pause)?;
    let Input::SetPaused { provider, node, paused, said: Some(said) } = late else {
        return Err(missing("pause"));
    };
    let mut other = book.again(|inputs| {
        inputs.truncate(entry + 1);
        if let Some((stamp, input)) = inputs.last_mut() {
            stamp.at_ms = said.said_ms.plus(SAID_WITHIN_MS + 1);
            *input = Input::SetPaused { provider, node, paused, said: None };
        }
    });
    if let Some(draft) = other.drafts.last_mut() {
        draft.input = late;
    }
    let planted = "an owner's signed pause is kept back, and takes effect when it is too old".to_owned();
    lie("late_pause", ("decisions_checked", entry), planted, &other)
}
