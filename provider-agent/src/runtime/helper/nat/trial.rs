//! Whether a box's rules stand: tried from within, each time, before a command runs.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::near::Near;
use super::{Trouble, child, space};
use crate::runtime::network::{GATEWAY, Net};

/// Longest wait for an answer that must come at once.
const WITHIN: Duration = Duration::from_millis(500);
/// Most addresses of the machine that are tried.
const MOST: usize = 8;
/// A port that no member of a gang is given.
const PORT: u16 = 1;

/// Fails, in words, unless whatever no box may reach is refused.
pub(super) fn stand(net: BorrowedFd<'_>, near: &Near, of: &Net) -> Result<(), Trouble> {
    // The box has addresses of its own in this block.
    let own = near.own.iter().copied().filter(|address| !address.is_loopback()).take(MOST);
    let metadata = Ipv4Addr::new(169, 254, 169, 254);
    let mut targets: Vec<SocketAddr> =
        own.chain([GATEWAY, metadata]).map(|address| SocketAddr::new(IpAddr::V4(address), PORT)).collect();
    targets.push(SocketAddr::new(IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254)), PORT));
    let meets = |target: &SocketAddr| of.gang.iter().flat_map(|gang| &gang.peers).any(|peer| *target == (*peer).into());
    targets.retain(|target| !meets(target));
    child::done_by(|| {
        space::enter(net).map_err(|error| format!("enter the network: {error}"))?;
        targets.iter().try_for_each(refused)
    })
}

fn refused(target: &SocketAddr) -> Result<(), Trouble> {
    let by_tcp = TcpStream::connect_timeout(target, WITHIN).map(drop);
    let from = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let by_udp = UdpSocket::bind(from).and_then(|socket| socket.send_to(&[0], target)).map(drop);
    for (kind, said) in [("TCP", by_tcp), ("UDP", by_udp)] {
        if !said.as_ref().is_err_and(is_refusal) {
            return Err(format!("the rules do not stand: {kind} to {target} was answered with {said:?}"));
        }
    }
    Ok(())
}

/// What the kernel says where a rule refuses or no way leads.
fn is_refusal(error: &io::Error) -> bool {
    let kinds = [ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable, ErrorKind::PermissionDenied];
    // A kernel without IPv6 has no such address or family.
    kinds.contains(&error.kind()) || matches!(error.raw_os_error(), Some(libc::EADDRNOTAVAIL | libc::EAFNOSUPPORT))
}
