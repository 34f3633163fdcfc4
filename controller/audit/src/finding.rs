//! What a check says.

use std::fmt::Display;

/// Something that is not as it should be, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The first entry that shows it, if it is about one.
    pub entry: Option<u64>,
    /// What is wrong, with both readings.
    pub detail: String,
}

impl Finding {
    /// A finding at an entry.
    pub fn at(entry: u64, detail: impl Into<String>) -> Self {
        Self { entry: Some(entry), detail: detail.into() }
    }

    /// A finding that no single entry shows.
    pub fn plain(detail: impl Into<String>) -> Self {
        Self { entry: None, detail: detail.into() }
    }
}

/// One check and its result.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Check {
    /// Stable name, snake_case.
    pub name: String,
    /// True if what is claimed holds.
    pub ok: bool,
    /// What was checked, or what is wrong.
    pub detail: String,
    /// The first entry that is wrong, if one is.
    pub entry: Option<u64>,
}

impl Check {
    /// The result of a check: what was checked, or the finding.
    pub fn of(name: &str, result: Result<impl Display, Finding>) -> Self {
        let (ok, detail, entry) = match result {
            Ok(said) => (true, said.to_string(), None),
            Err(finding) => (false, finding.detail, finding.entry),
        };
        Self { name: name.into(), ok, detail, entry }
    }
}
