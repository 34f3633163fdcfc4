//! Paging: a size, and an opaque token that says after which row the next page begins.

use std::fmt::Display;
use std::io;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;

use super::Problem;

/// Rows of a page that names no size.
const DEFAULT: u32 = 50;
/// Most rows of a page.
pub const MAX: u32 = 500;
/// Bytes of JSON after which a page ends, though it has fewer rows than were asked for: 1 MiB.
pub const MAX_BYTES: usize = 1 << 20;

/// What page is asked for. `C` is the cursor: what identifies a row in the list's order.
#[derive(Debug, PartialEq, Eq)]
pub struct Page<C> {
    /// Rows wanted.
    pub size: u32,
    /// The last row of the page before.
    pub after: Option<C>,
}

impl<C: FromStr> Page<C> {
    /// Reads `page_size` and `page_token` of the list `list`.
    ///
    /// # Errors
    ///
    /// [`Problem::Query`] for a size out of range and for a token that this list did not give.
    pub fn read(list: &str, size: Option<u32>, token: Option<&str>) -> Result<Self, Problem> {
        let size = size.unwrap_or(DEFAULT);
        if !(1..=MAX).contains(&size) {
            return Err(Problem::Query(format!("page_size is 1 to {MAX}, not {size}")));
        }
        // A loop that begins with an empty token begins at the first page.
        let after = token.filter(|token| !token.is_empty()).map(|token| {
            cursor(list, token).ok_or_else(|| {
                Problem::Query("page_token was not given by this list; leave it out to start again".to_owned())
            })
        });
        Ok(Self { size, after: after.transpose()? })
    }

    /// How many rows to fetch: one more than are shown, to know whether there is a next page.
    pub fn fetch(&self) -> u32 {
        self.size + 1
    }

    /// Cuts what was fetched to the page and makes the token of the next one.
    pub fn cut<T: Serialize, D: Display>(&self, list: &str, rows: &mut Vec<T>, at: impl Fn(&T) -> D) -> Option<String> {
        let size = fitting(rows, MAX_BYTES).min(self.size as usize);
        if rows.len() <= size {
            return None;
        }
        rows.truncate(size);
        rows.last().map(|last| token(list, at(last)))
    }
}

/// How many of `rows` have at most `most` bytes of JSON together: at least one, so that every list has an end.
pub fn fitting(rows: &[impl Serialize], most: usize) -> usize {
    let mut bytes = Counter(0);
    let fit = rows.iter().take_while(|row| serde_json::to_writer(&mut bytes, row).is_ok() && bytes.0 <= most).count();
    fit.max(1)
}

/// Counts what is written.
struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The token of the page after `cursor`.
pub fn token(list: &str, cursor: impl Display) -> String {
    URL_SAFE_NO_PAD.encode(format!("{list}:{cursor}"))
}

fn cursor<C: FromStr>(list: &str, token: &str) -> Option<C> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(token).ok()?).ok()?;
    text.strip_prefix(list)?.strip_prefix(':')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_joined_by_their_tokens_are_the_list() {
        let all: Vec<u32> = (0..7).collect();
        let (mut seen, mut next) = (Vec::new(), None);
        loop {
            let page = Page::<u32>::read("n", Some(3), next.as_deref()).unwrap();
            let rest = all.iter().copied().filter(|n| page.after.is_none_or(|after| *n > after));
            let mut rows: Vec<u32> = rest.take(page.fetch() as usize).collect();
            next = page.cut("n", &mut rows, |n| *n);
            seen.extend(rows);
            if next.is_none() {
                break;
            }
        }
        assert_eq!(seen, all);
    }

    #[test]
    fn a_page_ends_when_it_is_long_and_the_next_goes_on_there() {
        let long = "x".repeat(MAX_BYTES / 4);
        let mut rows: Vec<(u32, String)> = (0..9).map(|n| (n, long.clone())).collect();
        let page = Page::<u32>::read("n", Some(8), None).unwrap();
        let next = page.cut("n", &mut rows, |row| row.0);
        assert_eq!(rows.len(), 3);
        assert_eq!(Page::<u32>::read("n", None, next.as_deref()).unwrap().after, Some(2));
        assert_eq!(fitting(&[long.repeat(9)], MAX_BYTES), 1, "one row is always shown");
    }

    #[test]
    fn a_token_that_this_list_did_not_give_is_refused() {
        let other = token("leases", 7);
        assert_eq!(Page::<u32>::read("n", None, Some("")).unwrap().after, None, "an empty token is the first page");
        for bad in ["%%%", "bm9uc2Vuc2U", other.as_str()] {
            let got = Page::<u32>::read("n", None, Some(bad));
            assert!(matches!(got, Err(Problem::Query(_))), "{bad}");
        }
        for size in [0, 501] {
            assert!(matches!(Page::<u32>::read("n", Some(size), None), Err(Problem::Query(_))));
        }
    }
}
