//! What one peer may have of what is there for all.
//!
//! A peer is the address that a connection comes from: without authentication a user name is only a claim. Addresses of
//! IPv6 count as one peer within their /64, because one machine has all of it.
//!
//! A limit is not divided among peers beforehand. One peer may have a part of what the others leave ([`fair_max`]), so
//! a peer that is alone has half of all, and however much the others ask for, a newcomer finds something. Of what goes by itself
//! after a while, calls and their bytes, a peer has nearly all until another one finds no room (`queues/wanting.rs`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;

use parking_lot::Mutex;

use crate::CallClass;
use crate::queues::Wanting;

/// However small the machine is, a second peer does not wait for the first one's cells.
const UNPACKING_MIN: usize = 2;

/// What one of several may have of `max` while the others have `others`: the part `share` of what they leave, and at
/// least one. With a share of 1 only `max` itself is a limit.
pub fn fair_max(max: usize, others: usize, share: f64) -> usize {
    let left = max.saturating_sub(others);
    // A share is between 0 and 1, so the product fits; a fraction is cut off.
    ((left as f64 * share) as usize).max(1).min(left)
}

/// The peer that an address belongs to.
pub fn peer_of(address: IpAddr) -> IpAddr {
    const IPV6_NETWORK: u128 = !(u64::MAX as u128);
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            IpAddr::V6((u128::from(address) & IPV6_NETWORK).into())
        }
        address => address,
    }
}

/// Connections by their peers, with a limit for all. *Thread safety*: one lock, held for a hash probe.
#[derive(Debug)]
pub struct Peers {
    connections_max: usize,
    share: f64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    connections: usize,
    by_address: HashMap<IpAddr, Arc<Peer>>,
}

/// What the connections of one peer hold together. Counters only; [`crate::Queues`] compares them with the limits.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Process-unique.
    pub number: u64,
    /// Open connections; changed under the lock of [`Peers`].
    connections: AtomicUsize,
    /// Bytes of small frames that are arriving.
    pub arriving_bytes: AtomicUsize,
    /// Bytes of large frames that are arriving, and of unpacked cells, by class.
    pub class_bytes: [AtomicUsize; CallClass::COUNT],
    /// Likewise, what is beyond that of a request with which it counts in its class.
    pub beyond_bytes: [AtomicUsize; CallClass::COUNT],
    /// Calls that wait for their answer, and the bytes that they are counted with, by class.
    pub waiting_calls: [AtomicUsize; CallClass::COUNT],
    pub waiting_bytes: [AtomicUsize; CallClass::COUNT],
    /// Of its connections, those that found no room lately.
    pub wanting: Wanting,
}

impl Default for Peer {
    fn default() -> Peer {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Peer {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            connections: AtomicUsize::new(0),
            arriving_bytes: AtomicUsize::new(0),
            class_bytes: Default::default(),
            beyond_bytes: Default::default(),
            waiting_calls: Default::default(),
            waiting_bytes: Default::default(),
            wanting: Wanting::default(),
        }
    }
}

/// Calls of a server whose cells are unpacked beside the event loops at a time: a quarter of the machine.
pub(crate) fn unpacking_max() -> usize {
    static MAX: OnceLock<usize> = OnceLock::new();
    *MAX.get_or_init(|| (available_parallelism().map_or(1, NonZeroUsize::get) / 4).max(UNPACKING_MIN))
}

/// The place of one connection, until dropped.
#[derive(Debug)]
pub struct PeerPlace {
    peers: Arc<Peers>,
    address: IpAddr,
    peer: Arc<Peer>,
}

impl Peers {
    /// `share`: the part of what others leave that one peer may have, between 0 and 1.
    pub fn new(connections_max: usize, share: f64) -> Arc<Peers> {
        Arc::new(Peers { connections_max, share, state: Mutex::default() })
    }

    /// A place for a connection from this address; `None` if its peer has all that it may have.
    pub fn enter(self: &Arc<Self>, address: IpAddr) -> Option<PeerPlace> {
        use std::sync::atomic::Ordering::Relaxed;
        let address = peer_of(address);
        let mut state = self.state.lock();
        let own = state.by_address.get(&address).map_or(0, |peer| peer.connections.load(Relaxed));
        if own >= fair_max(self.connections_max, state.connections - own, self.share) {
            return None;
        }
        state.connections += 1;
        let peer = Arc::clone(state.by_address.entry(address).or_default());
        peer.connections.fetch_add(1, Relaxed);
        drop(state);
        Some(PeerPlace { peers: Arc::clone(self), address, peer })
    }

    /// Open connections of all peers.
    pub fn connections(&self) -> usize {
        self.state.lock().connections
    }
}

impl PeerPlace {
    pub(crate) fn peer(&self) -> &Arc<Peer> {
        &self.peer
    }

    /// The peer, as it is counted.
    pub fn address(&self) -> IpAddr {
        self.address
    }
}

impl Drop for PeerPlace {
    fn drop(&mut self) {
        let mut state = self.peers.state.lock();
        state.connections -= 1;
        let before = self.peer.connections.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
        assert!(before > 0, "a connection that ends was counted for its peer");
        if before == 1 {
            state.by_address.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_what_the_others_leave() {
        assert_eq!(fair_max(100, 0, 0.5), 50);
        assert_eq!(fair_max(100, 50, 0.5), 25);
        assert_eq!(fair_max(100, 99, 0.5), 1, "the last place is somebody's");
        assert_eq!(fair_max(100, 100, 0.5), 0);
        assert_eq!(fair_max(100, 120, 0.5), 0);
        assert_eq!(fair_max(100, 30, 1.0), 70);
        assert_eq!(fair_max(100, 30, 0.0), 1);
    }

    #[test]
    fn no_peer_takes_all_connections_and_places_come_back() {
        let peers = Peers::new(8, 0.5);
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let mut places = Vec::new();
        let mut taken = Vec::new();
        for last in 0..5 {
            let before = places.len();
            places.extend(std::iter::from_fn(|| peers.enter(address(last))));
            taken.push(places.len() - before);
        }
        assert_eq!(taken, [4, 2, 1, 1, 0]);
        assert_eq!(peers.connections(), 8);
        places.clear();
        assert_eq!((peers.connections(), peers.state.lock().by_address.len()), (0, 0));
        assert!(peers.enter(address(9)).is_some());
    }

    #[test]
    fn machines_with_many_addresses_are_one_peer() {
        let peer = |text: &str| peer_of(text.parse().unwrap());
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:2"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
        assert_eq!(peer("::1"), "::1".parse::<IpAddr>().unwrap());
    }
}
