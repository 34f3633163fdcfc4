//! What owners may call things: printable, bounded, and nothing that a terminal, a file of lines or a shell takes for more
//! than a word.

use alloc::format;
use alloc::string::String;
use core::net::{Ipv4Addr, Ipv6Addr};

/// Longest model, region, rack or profile name in bytes.
pub const MAX_NAME: usize = 64;
/// Longest host name in bytes. Source: RFC 1035, section 2.3.4, without the final dot.
pub const MAX_HOST: usize = 253;
/// Longest part of a host name between two dots. Source: RFC 1035, section 2.3.4.
const MAX_LABEL: usize = 63;

/// Whether the text is a name: at most [`MAX_NAME`] printable ASCII characters, no blank at either end. The empty name says
/// nothing and is one.
#[must_use]
pub fn is_name(text: &str) -> bool {
    text.len() <= MAX_NAME && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && text.trim() == text
}

/// Whether the text is an address at which others reach a machine: a host name, an IPv4 or an IPv6 address. Members have
/// ports of their own, so there is none in it.
#[must_use]
pub fn is_host(text: &str) -> bool {
    if text.parse::<Ipv4Addr>().is_ok() || text.parse::<Ipv6Addr>().is_ok() {
        return true;
    }
    let is_label = |label: &str| {
        let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !label.is_empty() && label.len() <= MAX_LABEL && label.bytes().all(good) && !label.starts_with('-')
    };
    text.len() <= MAX_HOST && text.split('.').all(is_label)
}

/// `host:port`, with an IPv6 address in brackets.
#[must_use]
pub fn host_port(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_name_or_an_ip_and_nothing_that_a_line_or_a_terminal_takes_for_more() {
        for good in ["127.0.0.1", "::1", "2001:db8::7", "gpu-1", "gpu_1.lab.example.org", "a"] {
            assert!(is_host(good), "{good}");
        }
        let long = "a.".repeat(127) + "a";
        let label = "a".repeat(64);
        for bad in [
            "",
            "203.0.113.9:1 1\n0 attacker.example",
            "host:22",
            "[::1]",
            "a b",
            "a..b",
            ".a",
            "-o",
            "a/b",
            "\u{1b}]0;owned\u{7}",
            "h\u{f6}st",
            &long,
            &label,
        ] {
            assert!(!is_host(bad), "{bad:?}");
        }
    }

    #[test]
    fn a_name_is_short_and_printable() {
        for good in ["", "H100 80GB", "1g.10gb+me", "eu-west/1", &"x".repeat(64)] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["\u{1b}]0;owned\u{7}\u{1b}[2J", "a\nb", "a\tb", " a", "a ", "caf\u{e9}", &"x".repeat(65)] {
            assert!(!is_name(bad), "{bad:?}");
        }
    }

    #[test]
    fn an_ip_of_the_sixth_version_stands_in_brackets_before_its_port() {
        assert_eq!(host_port("::1", 80), "[::1]:80");
        assert_eq!(host_port("gpu-1", 80), "gpu-1:80");
    }
}
