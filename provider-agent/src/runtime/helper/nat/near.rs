//! What is near the machine: its own addresses, and the networks that it reaches without its default route.

use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::Trouble;
use crate::runtime::network::Block;

/// A route with fewer bits is a way to the internet: a VPN that takes all of it in halves, say.
const WIDEST: u8 = 8;

/// As of one look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Near {
    /// The machine's own addresses.
    pub(super) own: Vec<Ipv4Addr>,
    /// They and all networks near it.
    pub(super) blocks: Vec<Block>,
}

impl Near {
    /// Looks. For a process in the machine's network.
    pub(super) fn look() -> Result<Self, Trouble> {
        let addresses = addresses()?;
        let routes = fs::read_to_string("/proc/self/net/route").map_err(|error| format!("read the routes: {error}"))?;
        let mut blocks: Vec<Block> = addresses.iter().map(|(address, _)| Block::one(*address)).collect();
        blocks.extend(addresses.iter().filter(|(_, bits)| *bits >= WIDEST).map(|(own, bits)| Block::of(*own, *bits)));
        blocks.extend(routed(&routes));
        blocks.sort_unstable();
        blocks.dedup();
        Ok(Self { own: addresses.into_iter().map(|(address, _)| address).collect(), blocks })
    }
}

/// The networks in the text of a `/proc/PID/net/route`, without ways to the internet.
fn routed(text: &str) -> impl Iterator<Item = Block> + '_ {
    let read = |line: &str| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        // As the kernel has them in memory: in the order of the network, read as a number of the machine.
        let number = |at: usize| Some(u32::from_str_radix(fields.get(at)?, 16).ok()?.to_ne_bytes());
        let (base, mask) = (Ipv4Addr::from(number(1)?), Ipv4Addr::from(number(7)?));
        Some(Block::of(base, mask.to_bits().leading_ones().try_into().ok()?))
    };
    text.lines().skip(1).filter_map(read).filter(|block| block.bits() >= WIDEST)
}

/// Every IPv4 address of the machine, with the bits of its network.
fn addresses() -> Result<Vec<(Ipv4Addr, u8)>, Trouble> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the pointer lives through the call, which fills it in.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(format!("list the machine's addresses: {}", std::io::Error::last_os_error()));
    }
    let mut found = Vec::new();
    let mut at = first;
    while !at.is_null() {
        // SAFETY: an element of the list, which is freed below.
        let one = unsafe { &*at };
        if let Some(address) = ipv4(one.ifa_addr) {
            let bits = ipv4(one.ifa_netmask).map_or(32, |mask| mask.to_bits().leading_ones());
            found.push((address, u8::try_from(bits).unwrap_or(32)));
        }
        at = one.ifa_next;
    }
    // SAFETY: the list of the call above, which nothing points into any more.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

fn ipv4(address: *const libc::sockaddr) -> Option<Ipv4Addr> {
    // SAFETY: null, or an address whose family tells its size.
    let family = i32::from(unsafe { address.as_ref() }?.sa_family);
    // SAFETY: of this family it is a `sockaddr_in`; read as it lies, wherever that is.
    let read = || unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
    (family == libc::AF_INET).then(|| Ipv4Addr::from(read().sin_addr.s_addr.to_ne_bytes()))
}

/// A socket that can be read when addresses or routes have changed.
pub(super) fn watch() -> Result<OwnedFd, Trouble> {
    let failed = || format!("watch the machine's addresses: {}", std::io::Error::last_os_error());
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory is passed.
    let socket = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
    if socket < 0 {
        return Err(failed());
    }
    // SAFETY: opened just now, for us alone.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // SAFETY: all zero is a valid address.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::sa_family_t::try_from(libc::AF_NETLINK).unwrap_or_default();
    address.nl_groups = (libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV4_ROUTE).cast_unsigned();
    let size = libc::socklen_t::try_from(size_of_val(&address)).unwrap_or_default();
    // SAFETY: the address lives through the call and has this size.
    if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size) } != 0 {
        return Err(failed());
    }
    Ok(socket)
}

/// Takes what the socket has to say; what it is, a look tells.
pub(super) fn drain(socket: &OwnedFd) {
    let mut buffer = [0_u8; 4096];
    loop {
        // SAFETY: the buffer lives through the call and has this size.
        let got = unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        // Messages that were lost for want of room are one error, and more may follow.
        if got <= 0 && std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOBUFS) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_with_a_route_are_near_and_ways_to_the_internet_are_not() {
        let hex = |text: &str| format!("{:08X}", u32::from_ne_bytes(text.parse::<Ipv4Addr>().unwrap().octets()));
        let line =
            |base: &str, mask: &str| format!("eth0\t{}\t00000000\t0001\t0\t0\t0\t{}\t0\t0\t0\n", hex(base), hex(mask));
        let text = format!(
            "Iface\tDestination\n{}{}{}{}",
            line("0.0.0.0", "0.0.0.0"),
            line("128.0.0.0", "128.0.0.0"),
            line("130.60.0.0", "255.255.0.0"),
            line("1.2.3.4", "255.255.255.255")
        );
        let blocks: Vec<String> = routed(&text).map(|block| block.to_string()).collect();
        assert_eq!(blocks, ["130.60.0.0/16", "1.2.3.4/32"]);
    }

    #[test]
    fn this_machine_is_near_itself() {
        let near = Near::look().unwrap();
        assert!(near.own.contains(&Ipv4Addr::LOCALHOST));
        assert!(near.blocks.iter().any(|block| block.to_string() == "127.0.0.0/8"), "{near:?}");
    }
}
