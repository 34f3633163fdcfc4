//! Whether others on the way can read and change what is said to a URL.

use std::net::IpAddr;

/// Whether `url` is without TLS and leads beyond this machine. Tokens, commands and data go there in the clear then, and
/// whoever is on the way can answer in the place of the one that was meant.
#[must_use]
pub fn is_exposed(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    if !["http", "ws"].iter().any(|plain| scheme.eq_ignore_ascii_case(plain)) {
        return false;
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(bracketed) => bracketed.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_loopback = host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    !is_loopback && !host.eq_ignore_ascii_case("localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stays_on_this_machine_may_go_without_tls() {
        for good in [
            "http://127.0.0.1:7070",
            "http://127.9.9.9/x",
            "http://localhost:1",
            "ws://[::1]:2/v1/link",
            "https://pool.example.org",
            "wss://pool.example.org",
        ] {
            assert!(!is_exposed(good), "{good}");
        }
        for bad in [
            "http://pool.example.org",
            "HTTP://10.0.0.1:7070",
            "ws://[2001:db8::1]:2",
            "http://127.0.0.1@evil.example:7070/",
            "http://127.0.0.1.evil.example",
            "http://localhost.evil.example",
            "http://0.0.0.0:7070",
        ] {
            assert!(is_exposed(bad), "{bad}");
        }
    }
}
