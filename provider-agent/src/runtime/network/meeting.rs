//! Where the members of a gang find each other from within their boxes.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use selion_api::agent::Peer;

use super::{GATEWAY, Gang};

/// The peers by addresses that a box can use, and the gang that it is let to meet. Names are looked up here, once: a box may
/// have nobody to ask. What is on the machine's loopback is at the box's gateway.
///
/// # Errors
///
/// In words, naming the peer, if it has no IPv4 address or this member is not among them.
pub async fn meet(peers: &[Peer], rank: u16) -> Result<(Vec<Peer>, Gang), String> {
    let mut met = Vec::with_capacity(peers.len());
    let mut all = Vec::with_capacity(peers.len());
    for peer in peers {
        let address = seen(find(&peer.address).await?);
        met.push(Peer { address: address.to_string(), ..peer.clone() });
        all.push(address);
    }
    let own = peers.iter().position(|peer| peer.rank == rank).and_then(|at| all.get(at).copied());
    let own = own.ok_or_else(|| format!("rank {rank} is not among its peers"))?;
    Ok((met, Gang { own, peers: all }))
}

async fn find(address: &str) -> Result<SocketAddrV4, String> {
    let mut found =
        tokio::net::lookup_host(address).await.map_err(|error| format!("peer {address} is not found: {error}"))?;
    let found = found.find_map(|address| match address {
        SocketAddr::V4(address) => Some(address),
        SocketAddr::V6(_) => None,
    });
    found.ok_or_else(|| format!("peer {address} has no IPv4 address; a box reaches no other"))
}

fn seen(address: SocketAddrV4) -> SocketAddrV4 {
    let ip: &Ipv4Addr = address.ip();
    if ip.is_loopback() { SocketAddrV4::new(GATEWAY, address.port()) } else { address }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(rank: u16, address: &str) -> Peer {
        Peer { rank, address: address.into(), attempt: 3 }
    }

    #[tokio::test]
    async fn a_peer_on_the_machines_loopback_is_at_the_gateway_and_another_where_it_is() {
        let peers = [peer(1, "127.0.0.1:20001"), peer(0, "10.0.0.7:20000")];
        let (met, gang) = meet(&peers, 0).await.unwrap();
        assert_eq!(met, [peer(1, "192.0.0.2:20001"), peer(0, "10.0.0.7:20000")]);
        assert_eq!(gang.own, "10.0.0.7:20000".parse().unwrap());
        assert!(!gang.is_at_home() && meet(&peers, 1).await.unwrap().1.is_at_home());
        assert!(meet(&peers, 2).await.unwrap_err().contains("rank 2"));
        assert!(meet(&[peer(0, "[::1]:1")], 0).await.unwrap_err().contains("no IPv4 address"));
    }
}
