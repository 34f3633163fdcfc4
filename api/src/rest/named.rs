//! What a renter calls a lease. The log knows nothing of it.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use crate::id::LeaseId;

/// Longest name, key and value in bytes.
pub const MAX_NAME: usize = 63;
/// Most labels of a lease.
pub const MAX_LABELS: usize = 16;

/// Name and labels of a lease, private to its account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Called {
    /// Of the live leases of an account only one has it.
    pub name: Option<String>,
    /// Values by key.
    pub labels: BTreeMap<String, String>,
}

/// True for 1 to 63 letters, digits, `.`, `_` and `-`, the first a letter or digit.
fn is_word(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.len())
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
}

/// True if a lease may be called so: a word that does not look like the id of one.
#[must_use]
pub fn is_lease_name(text: &str) -> bool {
    let looks_like_id = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    is_word(text) && !text.strip_prefix("lease-").is_some_and(looks_like_id)
}

impl Called {
    /// The first fault: its JSON pointer, and what is wrong.
    ///
    /// # Errors
    ///
    /// That.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if let Some(name) = self.name.as_ref().filter(|name| !is_lease_name(name)) {
            let form = "1 to 63 letters, digits, `.`, `_` and `-`, the first a letter or digit, and not like an id";
            return Err(("/name", alloc::format!("`{name}` is not a name for a lease: {form}")));
        }
        if self.labels.len() > MAX_LABELS {
            let count = self.labels.len();
            return Err(("/labels", alloc::format!("a lease has at most {MAX_LABELS} labels, not {count}")));
        }
        for (key, value) in &self.labels {
            if !is_word(key) {
                let form = "1 to 63 letters, digits, `.`, `_` and `-`, the first a letter or digit";
                return Err(("/labels", alloc::format!("`{key}` is not the key of a label: {form}")));
            }
            if value.len() > MAX_NAME || !value.chars().all(crate::outputs::is_printable) {
                let why = "at most 63 bytes that can be printed";
                return Err(("/labels", alloc::format!("the value of the label `{key}` is not one: {why}")));
            }
        }
        Ok(())
    }
}

/// A lease by its id, or by the name that its renter gave it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum LeaseRef {
    /// `lease-SEQ-INDEX`.
    Id(LeaseId),
    /// A name.
    Name(String),
}

impl FromStr for LeaseRef {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(id) => Ok(Self::Id(id)),
            Err(_) if is_lease_name(text) => Ok(Self::Name(text.into())),
            Err(_) => {
                Err(alloc::format!("`{text}` is neither the id of a lease, lease-NUMBER-NUMBER, nor a name of one"))
            }
        }
    }
}

impl TryFrom<String> for LeaseRef {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<LeaseRef> for String {
    fn from(lease: LeaseRef) -> Self {
        lease.to_string()
    }
}

impl From<LeaseId> for LeaseRef {
    fn from(id: LeaseId) -> Self {
        Self::Id(id)
    }
}

impl fmt::Display for LeaseRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Id(id) => id.fmt(f),
            Self::Name(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_named_by_its_id_or_by_a_word_that_is_like_none() {
        let id = LeaseId { seq: 12, index: 3 };
        assert_eq!("lease-12-3".parse(), Ok(LeaseRef::Id(id)));
        for name in ["train", "v1.2_b-c", "7", "lease-of-life", "lease", &"a".repeat(63)] {
            assert_eq!(name.parse(), Ok(LeaseRef::Name(name.into())), "{name}");
        }
        for bad in ["", ".", "..", "-a", "_a", "a b", "a/b", "ä", "lease-", "lease-12", "lease-01-0", &"a".repeat(64)]
        {
            assert!(bad.parse::<LeaseRef>().is_err(), "{bad}");
        }
    }

    #[test]
    fn labels_are_few_and_short_and_can_be_printed() {
        let of = |key: &str, value: &str| Called { name: None, labels: BTreeMap::from([(key.into(), value.into())]) };
        for good in [of("team", "vision"), of("team", ""), of("team", "a = b: ü"), of("t", &"x".repeat(63))] {
            assert_eq!(good.check(), Ok(()));
        }
        for bad in [of("", "a"), of("a:b", "a"), of("a=b", "a"), of("a", &"x".repeat(64)), of("a", "\u{1b}[2J")] {
            assert_eq!(bad.check().unwrap_err().0, "/labels", "{bad:?}");
        }
        let many = (0..17).map(|at| (alloc::format!("k{at}"), String::new())).collect();
        assert_eq!(Called { name: None, labels: many }.check().unwrap_err().0, "/labels");
    }
}
