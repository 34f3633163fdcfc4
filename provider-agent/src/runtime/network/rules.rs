//! The rules of a box's packet filter, as `nft` reads them. What passes is listed; the rest is refused at once, so that a
//! command hears of it.

use std::fmt::Display;
use std::net::Ipv4Addr;

use super::{Block, Net};

const fn block(address: [u8; 4], bits: u8) -> Block {
    Block::of(Ipv4Addr::from_octets(address), bits)
}

/// What is nobody's on the internet, and so somebody's here. Source: IANA's registry of special-purpose addresses, those
/// not globally reachable, with multicast and what was never given out.
const NOT_PUBLIC: [Block; 15] = [
    block([0, 0, 0, 0], 8),
    block([10, 0, 0, 0], 8),
    block([100, 64, 0, 0], 10),
    block([127, 0, 0, 0], 8),
    // With the metadata service of most clouds.
    block([169, 254, 0, 0], 16),
    block([172, 16, 0, 0], 12),
    block([192, 0, 0, 0], 24),
    block([192, 0, 2, 0], 24),
    block([192, 88, 99, 0], 24),
    block([192, 168, 0, 0], 16),
    block([198, 18, 0, 0], 15),
    block([198, 51, 100, 0], 24),
    block([203, 0, 113, 0], 24),
    block([224, 0, 0, 0], 4),
    block([240, 0, 0, 0], 4),
];

/// Public addresses at which clouds have services for the machine itself: Azure's, Oracle's DNS is link-local.
const CLOUD: [Block; 1] = [block([168, 63, 129, 16], 32)];

/// Ports of mail that is handed on or handed in.
const MAIL: &str = "25, 465, 587";

const REFUSE: &str = "counter reject with icmpx type admin-prohibited";

/// Rules for a box on a machine whose own addresses and networks are `near`. They replace those that were there, at once.
pub(in crate::runtime) fn rules(net: &Net, near: &[Block]) -> String {
    let mut text = format!("table inet selion\ndelete table inet selion\ntable inet selion {{\n{}", sets(net, near));
    text += &chain("output", &leaving(net));
    text += &chain("input", &arriving(net));
    text += &chain("forward", &[]);
    text + "}\n"
}

fn sets(net: &Net, near: &[Block]) -> String {
    let far = NOT_PUBLIC.iter().chain(&CLOUD).chain(near).chain(&net.outlook.deny);
    let peers = || net.gang.iter().flat_map(|gang| &gang.peers);
    set("forbidden", "ipv4_addr; flags interval; auto-merge", far)
        + &set("resolvers", "ipv4_addr", &net.outlook.resolvers)
        + &set("gang", "ipv4_addr", peers().map(|peer| *peer.ip()))
        + &set("peers", "ipv4_addr . inet_service", peers().map(|peer| format!("{} . {}", peer.ip(), peer.port())))
}

fn set<T: Display>(name: &str, kind: &str, elements: impl IntoIterator<Item = T>) -> String {
    let elements: Vec<String> = elements.into_iter().map(|element| element.to_string()).collect();
    // An empty list does not parse.
    let listed =
        if elements.is_empty() { String::new() } else { format!("elements = {{ {} }}; ", elements.join(", ")) };
    format!("set {name} {{ type {kind}; {listed}}}\n")
}

fn chain(hook: &str, rules: &[String]) -> String {
    let rules: String = rules.iter().map(|rule| format!("{rule}\n")).collect();
    format!("chain {hook}s {{ type filter hook {hook} priority 0; policy drop;\n{rules}}}\n")
}

fn leaving(net: &Net) -> Vec<String> {
    let mut rules = vec!["oifname \"lo\" accept".to_owned(), format!("meta nfproto ipv6 {REFUSE}")];
    rules.extend(rate(net));
    rules.push("ct state established,related accept".into());
    rules.push("meta l4proto { tcp, udp } ip daddr . th dport @peers accept".into());
    if net.internet {
        rules.push("meta l4proto { tcp, udp } ip daddr @resolvers th dport 53 accept".into());
        rules.push(format!("ip daddr @forbidden {REFUSE}"));
        if !net.outlook.smtp {
            rules.push(format!("tcp dport {{ {MAIL} }} {REFUSE}"));
        }
        rules.push("meta l4proto { tcp, udp, icmp } accept".into());
    }
    rules.push(REFUSE.into());
    rules
}

fn arriving(net: &Net) -> Vec<String> {
    let mut rules = vec!["iifname \"lo\" accept".to_owned()];
    rules.extend(rate(net));
    rules.push("ct state established,related accept".into());
    if let Some(gang) = &net.gang {
        rules.push(format!("meta l4proto {{ tcp, udp }} ip saddr @gang th dport {} accept", gang.own.port()));
    }
    rules
}

/// Drops what is beyond the rate, in each direction; a tenth of a second of it may come at once.
fn rate(net: &Net) -> Option<String> {
    // Megabits to kilobytes.
    let kbytes = u64::from(net.mbps?.max(1)) * 125;
    // Less would drop the largest packet, which is 64 KiB between the box and its NAT.
    let burst = (kbytes / 10).max(256);
    Some(format!("limit rate over {kbytes} kbytes/second burst {burst} kbytes counter drop"))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV4;

    use super::super::{Gang, Outlook};
    use super::*;

    fn net() -> Net {
        let peer = |last, port| SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, last), port);
        Net {
            internet: true,
            gang: Some(Gang { own: peer(1, 20_001), peers: vec![peer(1, 20_001), peer(2, 20_002)] }),
            mbps: Some(8),
            outlook: Outlook { resolvers: vec![Ipv4Addr::new(10, 0, 0, 53)], ..Outlook::default() },
            folder: "/".into(),
        }
    }

    /// The rules of a chain, as one text.
    fn of<'a>(text: &'a str, chain: &str) -> &'a str {
        let (_, rest) = text.split_once(&format!("chain {chain}s {{")).unwrap();
        rest.split_once("\n}").unwrap().0
    }

    #[test]
    fn what_a_gang_and_the_resolver_need_passes_before_what_is_near_is_refused_and_all_else_is_refused_last() {
        let text = rules(&net(), &[block([130, 60, 0, 0], 16)]);
        let leaving = of(&text, "output");
        let at = |rule: &str| leaving.find(rule).unwrap();
        let order = [at("ipv6"), at("@peers"), at("@resolvers"), at("@forbidden"), at("587"), at("tcp, udp, icmp")];
        assert!(order.is_sorted(), "{leaving}");
        assert!(leaving.trim_end().ends_with(REFUSE), "{leaving}");
        assert!(
            text.contains("10.0.0.2 . 20002") && text.contains("130.60.0.0/16") && text.contains("1000 kbytes/second")
        );
        assert!(of(&text, "input").contains("ip saddr @gang th dport 20001 accept"));
        assert_eq!(text.matches("policy drop").count(), 3);
    }

    #[test]
    fn a_gang_without_the_internet_has_its_peers_and_nothing_else() {
        let text = rules(&Net { internet: false, mbps: None, ..net() }, &[]);
        let leaving: Vec<&str> = of(&text, "output").lines().skip(1).filter(|rule| rule.ends_with("accept")).collect();
        assert_eq!(
            leaving,
            [
                "oifname \"lo\" accept",
                "ct state established,related accept",
                "meta l4proto { tcp, udp } ip daddr . th dport @peers accept"
            ]
        );
        assert!(!text.contains("limit"));
        let alone = rules(&Net { gang: None, ..net() }, &[]);
        assert!(
            !of(&alone, "input").contains("dport") && alone.contains("set peers { type ipv4_addr . inet_service; }")
        );
    }

    #[test]
    fn every_address_that_is_not_public_is_in_one_of_the_blocks() {
        for text in [
            "127.0.0.1",
            "127.0.0.53",
            "10.9.8.7",
            "172.31.0.1",
            "192.168.0.1",
            "169.254.169.254",
            "100.100.100.200",
            "100.127.255.255",
            "192.0.0.192",
            "224.0.0.251",
            "239.255.255.250",
            "255.255.255.255",
            "0.0.0.0",
        ] {
            let address: Ipv4Addr = text.parse().unwrap();
            assert!(NOT_PUBLIC.iter().any(|block| block.holds(address)), "{text}");
        }
        for text in ["1.1.1.1", "9.9.9.9", "100.128.0.1", "172.32.0.1", "192.0.1.1", "223.255.255.255"] {
            let address: Ipv4Addr = text.parse().unwrap();
            assert!(!NOT_PUBLIC.iter().any(|block| block.holds(address)), "{text}");
        }
    }
}
