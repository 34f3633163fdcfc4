//! Which addresses a stranger's image may make this machine call.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::RegistryRules;
use crate::image::RegistryError;

/// What the rules say of a URL.
#[derive(Debug)]
pub(super) struct Reach {
    plain_http: Vec<String>,
    private: Vec<String>,
}

impl Reach {
    pub fn new(rules: &RegistryRules) -> Self {
        Self { plain_http: rules.plain_http.clone(), private: rules.private.clone() }
    }

    /// `http` for the hosts that the rules name, else `https`.
    pub fn scheme(&self, host: &str) -> &'static str {
        if self.plain_http.iter().any(|known| known.eq_ignore_ascii_case(host)) { "http" } else { "https" }
    }

    /// Whether its scheme is allowed for its host.
    pub fn scheme_fits(&self, url: &Url) -> bool {
        url.scheme() == "https" || (url.scheme() == "http" && self.scheme(&with_port(url)) == "http")
    }

    /// Refuses a written address of a private network. Names are looked at when they are resolved.
    pub fn address_fits(&self, url: &Url) -> Result<(), RegistryError> {
        let host = url.host_str().unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let written = bare.parse::<IpAddr>();
        if written.is_ok_and(|address| !is_public(address)) && !names(&self.private, bare) {
            return Err(RegistryError::PrivateAddress { host: bare.to_owned() });
        }
        Ok(())
    }
}

/// Host and, where one is written, port.
pub(super) fn with_port(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn names(list: &[String], host: &str) -> bool {
    list.iter().any(|known| known.eq_ignore_ascii_case(host))
}

/// Resolves names to public addresses only, but for hosts that the rules name.
pub(super) struct PublicOnly {
    private: Vec<String>,
}

impl PublicOnly {
    pub fn new(private: &[String]) -> Self {
        Self { private: private.to_vec() }
    }
}

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        let any = names(&self.private, name.as_str());
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let good: Vec<SocketAddr> = found.iter().filter(|one| any || is_public(one.ip())).copied().collect();
            if good.is_empty() && !found.is_empty() {
                return Err(PrivateName(name.as_str().to_owned()).into());
            }
            Ok(Box::new(good.into_iter()) as Addrs)
        })
    }
}

/// A name that has addresses of private networks only.
#[derive(Debug)]
pub(super) struct PrivateName(pub String);

impl fmt::Display for PrivateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} has addresses of private networks only", self.0)
    }
}

impl std::error::Error for PrivateName {}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let shared = a == 100 && (64..128).contains(&b);
    let special = a == 0 || a >= 240 || (a == 192 && b == 0 && c == 0) || (a == 198 && (18..20).contains(&b));
    !(address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_multicast()
        || address.is_documentation()
        || shared
        || special)
}

/// Also the addresses in which one of version 4 is wrapped.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    let wrapped = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match parts {
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => wrapped(high, low),
        [0x2002, high, low, ..] => wrapped(high, low),
        [0x2001, 0xdb8, ..] | [0x2001, 0, ..] => false,
        // What is given out to the world; all else is of a machine, a link, a site, or many.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_machines_links_and_sites_are_not_public() {
        let public = |text: &str| is_public(text.parse().unwrap());
        for good in ["1.1.1.1", "140.82.112.33", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"] {
            assert!(public(good), "{good}");
        }
        let bad = [
            "127.0.0.1",
            "10.0.0.1",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.2.1",
            "198.18.0.1",
            "::1",
            "::",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "2002:a00:1::1",
            "2001:db8::1",
        ];
        for bad in bad {
            assert!(!public(bad), "{bad}");
        }
    }

    #[test]
    fn plain_http_is_for_named_hosts_and_their_port() {
        let rules = RegistryRules { plain_http: vec!["lan:5000".to_owned()], ..RegistryRules::default() };
        let reach = Reach::new(&rules);
        let fits = |url: &str| reach.scheme_fits(&url.parse().unwrap());
        assert!(fits("http://lan:5000/v2/") && fits("https://any/"));
        assert!(!fits("http://lan/v2/") && !fits("http://lan:5001/") && !fits("ftp://lan:5000/"));
        let private = reach.address_fits(&"https://[::1]/".parse().unwrap());
        assert!(matches!(private, Err(RegistryError::PrivateAddress { host }) if host == "::1"));
    }
}
