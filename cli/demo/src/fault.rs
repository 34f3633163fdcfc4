//! A step that did not hold: what was expected, and what was found.

use std::fmt::Display;
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// Pause between two looks at something that changes without telling.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Why a step does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// What should have been.
    pub expected: String,
    /// What was.
    pub found: String,
}

/// What a step, or a part of one, comes to.
pub(crate) type Told<T = ()> = Result<T, Fault>;

impl Fault {
    pub fn new(expected: impl Into<String>, found: impl Display) -> Self {
        Self { expected: expected.into(), found: found.to_string() }
    }
}

/// An error that nobody put into words: the call should have worked.
impl<E: std::error::Error> From<E> for Fault {
    fn from(error: E) -> Self {
        Self::new("the call to succeed", chain(&error))
    }
}

/// An error with its causes, in one line; a cause that the text before it repeats already is left out.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = inner.source();
    }
    text
}

/// Puts into words what an error or an absence stands in the way of.
pub(crate) trait Expecting<T> {
    /// The value, or a fault that expected `what`.
    fn expecting(self, what: &str) -> Told<T>;
}

impl<T, E: std::error::Error> Expecting<T> for Result<T, E> {
    fn expecting(self, what: &str) -> Told<T> {
        self.map_err(|error| Fault::new(what, chain(&error)))
    }
}

impl<T> Expecting<T> for Option<T> {
    fn expecting(self, what: &str) -> Told<T> {
        self.ok_or_else(|| Fault::new(what, "nothing"))
    }
}

/// A fault unless `holds`.
pub(crate) fn expect(holds: bool, expected: impl Into<String>, found: impl Display) -> Told {
    if holds { Ok(()) } else { Err(Fault::new(expected, found)) }
}

/// Looks until there is something to see. `look` answers the thing, or what is there instead.
///
/// # Errors
///
/// A fault that names what was there last, after `patience`; a fault of `look` at once.
pub(crate) async fn until<T, F>(patience: Duration, expected: &str, mut look: F) -> Told<T>
where
    F: AsyncFnMut() -> Told<Result<T, String>>,
{
    let end = Instant::now() + patience;
    loop {
        match look().await? {
            Ok(thing) => return Ok(thing),
            Err(found) if Instant::now() >= end => {
                return Err(Fault::new(format!("{expected}, within {} s", patience.as_secs_f32()), found));
            }
            Err(_) => sleep(LOOK_AGAIN).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_never_comes_is_told_with_what_was_there_last() {
        let mut seen = 0;
        let fault = until(Duration::from_millis(120), "the number 100", async || {
            seen += 1;
            Ok(if seen == 100 { Ok(seen) } else { Err(format!("the number {seen}")) })
        });
        let fault = fault.await.unwrap_err();
        assert!(fault.expected.starts_with("the number 100, within"), "{fault:?}");
        assert!(fault.found.starts_with("the number ") && seen > 1, "{fault:?}");
    }

    #[tokio::test]
    async fn a_thing_that_comes_late_is_found() {
        let mut left = 3;
        let found = until(Duration::from_secs(5), "three looks", async || {
            left -= 1;
            Ok(if left == 0 { Ok("here") } else { Err(String::new()) })
        });
        assert_eq!(found.await, Ok("here"));
    }

    #[test]
    fn an_absence_names_what_was_expected() {
        let fault = None::<u8>.expecting("a byte").unwrap_err();
        assert_eq!((fault.expected.as_str(), fault.found.as_str()), ("a byte", "nothing"));
        assert!(expect(true, "", "").is_ok());
        assert_eq!(expect(false, "a", "b"), Err(Fault::new("a", "b")));
    }
}
