//! `WWW-Authenticate`: how a registry wants to know who asks.

/// What it asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    /// A token from the host of `realm`.
    Bearer {
        realm: String,
        service: Option<String>,
    },
    /// Something else, by its scheme.
    Other(String),
}

impl Challenge {
    /// The best of what the headers say: a token, else a password, else what is not known here.
    pub fn of<'a>(headers: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut best: Option<Self> = None;
        for one in headers.into_iter().flat_map(Self::all) {
            let rank = |challenge: &Self| match challenge {
                Self::Bearer { .. } => 2,
                Self::Basic => 1,
                Self::Other(_) => 0,
            };
            if best.as_ref().is_none_or(|known| rank(&one) > rank(known)) {
                best = Some(one);
            }
        }
        best
    }

    fn all(header: &str) -> Vec<Self> {
        let mut challenges = Vec::new();
        let mut words = Words(header);
        let mut scheme = None;
        let mut pairs: Vec<(String, String)> = Vec::new();
        while let Some(word) = words.next_word() {
            match word {
                Word::Scheme(name) => {
                    challenges.extend(scheme.replace(name).map(|scheme| Self::made(&scheme, &pairs)));
                    pairs.clear();
                }
                Word::Pair(name, value) => pairs.push((name, value)),
            }
        }
        challenges.extend(scheme.map(|scheme| Self::made(&scheme, &pairs)));
        challenges
    }

    fn made(scheme: &str, pairs: &[(String, String)]) -> Self {
        let value =
            |key: &str| pairs.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|pair| pair.1.clone());
        match (scheme.to_ascii_lowercase().as_str(), value("realm")) {
            ("basic", _) => Self::Basic,
            ("bearer", Some(realm)) => Self::Bearer { realm, service: value("service") },
            _ => Self::Other(crate::image::shown(scheme.as_bytes())),
        }
    }
}

enum Word {
    Scheme(String),
    Pair(String, String),
}

/// Schemes, and `name=value` or `name="value"` between commas and spaces.
struct Words<'a>(&'a str);

impl Words<'_> {
    fn next_word(&mut self) -> Option<Word> {
        let rest = self.0.trim_start_matches([' ', ',', '\t']);
        let end = rest.find([' ', ',', '=', '\t']).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        if name.is_empty() {
            self.0 = "";
            return None;
        }
        let Some(value) = after.strip_prefix('=') else {
            self.0 = after;
            return Some(Word::Scheme(name.to_owned()));
        };
        let (value, rest) = match value.strip_prefix('"') {
            Some(quoted) => unquoted(quoted),
            None => {
                let (value, rest) = value.split_at(value.find([' ', ',', '\t']).unwrap_or(value.len()));
                (value.to_owned(), rest)
            }
        };
        self.0 = rest;
        Some(Word::Pair(name.to_owned(), value))
    }
}

fn unquoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((index, one)) = chars.next() {
        match one {
            '"' => return (value, &text[index + 1..]),
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            one => value.push(one),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_preferred_and_values_may_hold_commas_and_quotes() {
        let bearer = r#"Bearer realm="https://auth.example/t?a=1,2",service="r \"x\"",scope="repository:a:pull,push""#;
        let wanted =
            Challenge::Bearer { realm: "https://auth.example/t?a=1,2".to_owned(), service: Some("r \"x\"".to_owned()) };
        assert_eq!(Challenge::of([bearer]), Some(wanted));
        let both = Challenge::of([r#"Basic realm="x", Bearer realm=https://t"#]);
        assert_eq!(both, Some(Challenge::Bearer { realm: "https://t".to_owned(), service: None }));
        assert_eq!(Challenge::of(["basic realm=\"x\""]), Some(Challenge::Basic));
        assert_eq!(Challenge::of(["Negotiate"]), Some(Challenge::Other("Negotiate".to_owned())));
        assert_eq!(Challenge::of(["Bearer service=\"x\""]), Some(Challenge::Other("Bearer".to_owned())));
        assert_eq!(Challenge::of([""]), None);
        assert_eq!(Challenge::of(["=\"", "\"", "Bearer realm=\"\\"]).map(drop), Some(()));
    }
}
