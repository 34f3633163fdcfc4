//! Who is connected. Connections are bounded for each address and in all; where no place is left, the connection that
//! idles longest makes room, so that idle ones keep nobody out. A busy one is never closed for another.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio_util::sync::CancellationToken;

use crate::network::Network;

/// All open connections; cheap to clone.
#[derive(Clone)]
pub struct Peers {
    inner: Arc<Inner>,
}

struct Inner {
    most: usize,
    most_each: usize,
    /// Orders connections by when they fell idle.
    ticks: AtomicU64,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    next: u64,
    count: usize,
    by_network: HashMap<Network, BTreeMap<u64, Arc<State>>>,
}

#[derive(Default)]
struct State {
    requests: AtomicUsize,
    /// Became something that is no HTTP any more.
    upgraded: AtomicBool,
    idle_since: AtomicU64,
    close: CancellationToken,
}

impl State {
    /// When it fell idle; `None` while it is busy.
    fn idle(&self) -> Option<u64> {
        let busy = self.upgraded.load(Ordering::Acquire) || self.requests.load(Ordering::Acquire) > 0;
        (!busy).then(|| self.idle_since.load(Ordering::Acquire))
    }
}

impl Open {
    fn of(&self, network: &Network) -> usize {
        self.by_network.get(network).map_or(0, BTreeMap::len)
    }

    fn remove(&mut self, network: &Network, id: u64) {
        let Some(connections) = self.by_network.get_mut(network) else { return };
        if connections.remove(&id).is_some() {
            self.count -= 1;
        }
        if connections.is_empty() {
            self.by_network.remove(network);
        }
    }

    /// Closes the connection of `network` that idles longest. `false` if all are busy.
    fn close_idle(&mut self, network: &Network) -> bool {
        let Some(connections) = self.by_network.get(network) else { return false };
        let idle = connections.iter().filter_map(|(id, state)| Some((state.idle()?, *id)));
        let Some((_, id)) = idle.min() else { return false };
        if let Some(state) = connections.get(&id) {
            state.close.cancel();
        }
        self.remove(network, id);
        true
    }

    /// Closes an idle connection of the address that holds most of them.
    fn close_of_most(&mut self) -> bool {
        let mut networks: Vec<(usize, Network)> = self.by_network.iter().map(|(at, all)| (all.len(), *at)).collect();
        networks.sort_unstable_by(|one, other| other.cmp(one));
        networks.iter().any(|(_, network)| self.close_idle(network))
    }
}

impl Peers {
    /// At most `most` connections, and `most_each` of one address.
    pub fn new(most: usize, most_each: usize) -> Self {
        let (ticks, open) = (AtomicU64::new(0), Mutex::default());
        Self { inner: Arc::new(Inner { most: most.max(1), most_each: most_each.max(1), ticks, open }) }
    }

    /// A place for a connection from `ip`; `None` if none is left and nobody idles.
    pub fn admit(&self, ip: IpAddr) -> Option<Connection> {
        let network = Network::of(ip);
        let mut open = self.inner.lock();
        if open.of(&network) >= self.inner.most_each && !open.close_idle(&network) {
            return None;
        }
        if open.count >= self.inner.most && !open.close_of_most() {
            return None;
        }
        let (id, state) = (open.next, Arc::new(State::default()));
        state.idle_since.store(self.inner.tick(), Ordering::Release);
        open.next += 1;
        open.count += 1;
        open.by_network.entry(network).or_default().insert(id, state.clone());
        Some(Connection { place: Arc::new(Place { peers: self.clone(), network, id, state }) })
    }

    /// Closes one connection that idles, if there is one.
    pub fn close_one(&self) {
        self.inner.lock().close_of_most();
    }

    /// Connections that are open.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.inner.lock().count
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tick(&self) -> u64 {
        self.ticks.fetch_add(1, Ordering::AcqRel)
    }
}

/// One connection's place; given back with the last clone.
#[derive(Clone)]
pub struct Connection {
    place: Arc<Place>,
}

struct Place {
    peers: Peers,
    network: Network,
    id: u64,
    state: Arc<State>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.peers.inner.lock().remove(&self.network, self.id);
    }
}

impl Connection {
    /// Cancelled when the connection has to make room.
    pub fn closing(&self) -> CancellationToken {
        self.place.state.close.clone()
    }

    /// A request came: the connection does not idle until the guard is dropped.
    pub fn busy(&self) -> Busy {
        self.place.state.requests.fetch_add(1, Ordering::AcqRel);
        Busy { connection: self.clone() }
    }
}

/// An open request of a connection.
pub struct Busy {
    connection: Connection,
}

impl Busy {
    /// The connection never idles again: it left HTTP.
    pub fn for_good(self) {
        self.connection.place.state.upgraded.store(true, Ordering::Release);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let place = &self.connection.place;
        // The time first: whoever sees it idle sees since when.
        place.state.idle_since.store(place.peers.inner.tick(), Ordering::Release);
        place.state.requests.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn who_idles_longest_makes_room_and_who_is_busy_never_does() {
        let peers = Peers::new(10, 2);
        let (first, second) = (peers.admit(ip("10.0.0.1")).unwrap(), peers.admit(ip("10.0.0.1")).unwrap());
        drop(first.busy());
        let third = peers.admit(ip("10.0.0.1")).unwrap();
        assert!(second.closing().is_cancelled() && !first.closing().is_cancelled(), "the second idles longer");
        let _busy = (first.busy(), third.busy());
        assert!(peers.admit(ip("10.0.0.1")).is_none());
        assert!(peers.admit(ip("10.0.0.2")).is_some(), "another address has its own places");
        assert_eq!(peers.count(), 2, "what was dropped gives its place back");
    }

    #[test]
    fn a_64_of_ipv6_is_one_address() {
        let peers = Peers::new(10, 1);
        let one = peers.admit(ip("2001:db8:1:2::1")).unwrap();
        let _other = peers.admit(ip("2001:db8:1:3::1")).unwrap();
        let _same = peers.admit(ip("2001:db8:1:2:ffff::9")).unwrap();
        assert!(one.closing().is_cancelled());
    }

    #[test]
    fn when_all_places_are_taken_the_greediest_address_gives_one() {
        let peers = Peers::new(4, 3);
        let greedy: Vec<Connection> = (0..3).map(|_| peers.admit(ip("10.0.0.1")).unwrap()).collect();
        let modest = peers.admit(ip("10.0.0.2")).unwrap();
        assert!(peers.admit(ip("10.0.0.3")).is_some());
        assert!(greedy[0].closing().is_cancelled() && !modest.closing().is_cancelled());
    }

    #[test]
    fn an_upgraded_connection_is_not_idle() {
        let peers = Peers::new(10, 1);
        let link = peers.admit(ip("10.0.0.1")).unwrap();
        link.busy().for_good();
        assert!(peers.admit(ip("10.0.0.1")).is_none());
        drop(link);
        assert!(peers.admit(ip("10.0.0.1")).is_some());
    }
}
