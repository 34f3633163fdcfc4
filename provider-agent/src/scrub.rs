//! Keeps secrets out of what an owner hands on.

use std::collections::BTreeSet;
use std::path::Path;

use crate::config::Config;

/// What stands in the place of a secret.
pub(crate) const LEFT_OUT: &str = "[left out]";
/// A shorter part of a URL is no secret: a word as `v3`.
const SHORTEST: usize = 6;
/// Keys of a state directory.
const KEYS: [&str; 2] = ["node.key", "provider.key"];

/// Scheme, host and port of a URL: what may be shown of it. A URL may carry a password or a key in every other part.
#[must_use]
pub(crate) fn origin(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return LEFT_OUT.into() };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}")
}

/// The configuration as it may be shown: every setting but what a URL carries beside its host.
pub(crate) fn config(config: &Config) -> Config {
    let chain_rpc = match config.chain_rpc.strip_prefix('@') {
        Some(_) => config.chain_rpc.clone(),
        None => origin(&config.chain_rpc),
    };
    Config { controller: origin(&config.controller), chain_rpc, ..config.clone() }
}

/// The secrets that an agent's settings and state directory hold: no text that is handed on may have one.
#[derive(Debug, Default)]
pub(crate) struct Secrets(BTreeSet<String>);

impl Secrets {
    pub(crate) fn of(config: &Config) -> Self {
        let mut this = Self::default();
        for url in [&config.controller, &config.chain_rpc] {
            match url.strip_prefix('@') {
                Some(file) => this.add_url(std::fs::read_to_string(file).unwrap_or_default().trim()),
                None => this.add_url(url),
            }
        }
        for key in KEYS {
            this.add_key(&config.state_dir.join(key));
        }
        this
    }

    fn add_url(&mut self, url: &str) {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let person = authority.rsplit_once('@').map_or("", |(person, _)| person);
        let parts = person.split(':').chain(path.split(['/', '?', '#', '&', '=']));
        self.0.extend(parts.filter(|part| part.len() >= SHORTEST).map(str::to_owned));
    }

    fn add_key(&mut self, path: &Path) {
        let text = std::fs::read_to_string(path).unwrap_or_default();
        let digits = text.trim().trim_start_matches("0x");
        if !digits.is_empty() {
            self.0.insert(digits.to_owned());
        }
    }

    /// The text without any of them.
    pub(crate) fn strike(&self, text: &str) -> String {
        // The longest first: one may be part of another.
        let mut secrets: Vec<&String> = self.0.iter().collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets.into_iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), LEFT_OUT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_url_only_scheme_host_and_port_are_shown() {
        let shown = [
            ("https://user:word@node.example:8545/v3/0123456789abcdef?key=k#f", "https://node.example:8545"),
            ("http://127.0.0.1:7070", "http://127.0.0.1:7070"),
            ("https://[::1]:1/x", "https://[::1]:1"),
            ("0123456789abcdef", LEFT_OUT),
        ];
        shown.iter().for_each(|(url, seen)| assert_eq!(origin(url), *seen));
    }

    #[test]
    fn every_secret_part_of_a_url_and_every_key_is_struck_from_a_text() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("node.key"), format!("0x{}\n", "ab".repeat(32))).unwrap();
        let file = dir.path().join("url");
        std::fs::write(&file, "https://node.example/secret-in-a-file\n").unwrap();
        let config = Config {
            controller: "https://owner:passw0rd@pool.example/tok-123456".into(),
            chain_rpc: format!("@{}", file.display()),
            state_dir: dir.path().to_owned(),
            ..Config::default()
        };
        let text = format!("passw0rd tok-123456 secret-in-a-file {} pool.example v3", "ab".repeat(32));
        let struck = Secrets::of(&config).strike(&text);
        assert_eq!(struck, format!("{0} {0} {0} {0} pool.example v3", LEFT_OUT));
    }
}
