//! Paging: a size, and an opaque token that says after which row the next page begins.

use std::fmt::Display;
use std::str::FromStr;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::Problem;

/// Rows of a page that names no size.
const DEFAULT: u32 = 50;
/// Most rows of a page.
pub const MAX: u32 = 500;

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
        let after = token.map(|token| {
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
    pub fn cut<T, D: Display>(&self, list: &str, rows: &mut Vec<T>, at: impl Fn(&T) -> D) -> Option<String> {
        let size = self.size as usize;
        if rows.len() <= size {
            return None;
        }
        rows.truncate(size);
        rows.last().map(|last| token(list, at(last)))
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
    fn a_token_that_this_list_did_not_give_is_refused() {
        let other = token("leases", 7);
        for bad in ["", "%%%", "bm9uc2Vuc2U", other.as_str()] {
            let got = Page::<u32>::read("n", None, Some(bad));
            assert!(matches!(got, Err(Problem::Query(_))), "{bad}");
        }
        for size in [0, 501] {
            assert!(matches!(Page::<u32>::read("n", Some(size), None), Err(Problem::Query(_))));
        }
    }
}
