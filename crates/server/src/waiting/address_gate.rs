//! How many connections each address of a client has.
//!
//! ```text
//! accepted ─► enter(address) ─► a place, kept with the connection ─► leave
//!                  │ at a bound: the connection has no place, is counted, and named in the log
//! ```
//!
//! Invariants
//! 1. No address has more places than the bound that was asked for.
//! 2. No address gets one more when it has `ADDRESS_SHARE_OF_FREE` times as many as are free. So
//!    one address leaves a seventeenth of them to others, and an address without a connection has
//!    a place as long as one is free.
//! 3. An address without a connection takes no room.
//!
//! Not here: the gate of all connections (`connection_gate.rs`).
//! See: docs/overload.md.

use crate::limits;
use crate::measure::profile::Lock;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Between two lines of the log about addresses at their bound.
const SAY_EVERY: Duration = Duration::from_secs(60);
/// A client of IPv6 has all addresses of such a network.
const CLIENT_BITS_V6: u32 = 64;

/// The connections of all addresses.
#[derive(Debug)]
pub(crate) struct AddressGate {
    /// Zero: as many as come.
    most: usize,
    places: Lock<HashMap<IpAddr, usize>>,
    refused: AtomicU64,
    said_at: Lock<Option<Instant>>,
}

impl AddressGate {
    /// Places for `most` connections of each address; zero means no bound.
    pub(crate) fn new(most: usize) -> AddressGate {
        AddressGate {
            most,
            places: Lock::new(HashMap::new()),
            refused: AtomicU64::new(0),
            said_at: Lock::new(None),
        }
    }

    /// Connections that had no place because their address had too many.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// One more connection, while `free` places of all clients are free, its own included. `None`
    /// when its address has as many as it may have.
    pub(crate) fn enter(
        self: &Arc<AddressGate>,
        address: IpAddr,
        free: u64,
        now: Instant,
    ) -> Option<AddressPlace> {
        let client = client_of(address);
        let bound = {
            let mut places = self.places.hold();
            let taken = places.entry(client).or_insert(0);
            match self.bound(*taken, free) {
                None => {
                    *taken += 1;
                    return Some(AddressPlace(Arc::clone(self), client));
                }
                Some(bound) => bound,
            }
        };
        self.refused.fetch_add(1, Ordering::Relaxed);
        let mut said_at = self.said_at.hold();
        if said_at.is_none_or(|at| now - at >= SAY_EVERY) {
            *said_at = Some(now);
            tracing::warn!(
                %address,
                bound,
                "a connection has no place among the clients': its address has as many as it may have"
            );
        }
        None
    }

    /// The bound that an address with `taken` places is at.
    fn bound(&self, taken: usize, free: u64) -> Option<&'static str> {
        if self.most > 0 && taken >= self.most {
            Some("--connections-per-address-max")
        } else if is_at_share(taken as u64, free) {
            Some("its share of --connections-max")
        } else {
            None
        }
    }

    fn leave(&self, client: IpAddr) {
        let mut places = self.places.hold();
        let Some(taken) = places.get_mut(&client) else {
            return;
        };
        *taken -= 1;
        if *taken == 0 {
            places.remove(&client);
            // The table of a storm from many addresses goes with the storm.
            if places.is_empty() {
                places.shrink_to_fit();
            }
        }
    }
}

/// Has an address that holds `taken` places as many as it may have while `free` are free?
pub(crate) fn is_at_share(taken: u64, free: u64) -> bool {
    taken >= limits::ADDRESS_SHARE_OF_FREE * free
}

/// The address that a client is counted under.
pub(crate) fn client_of(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => {
            let network = u128::MAX << (u128::BITS - CLIENT_BITS_V6);
            IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & network))
        }
    }
}

/// The place of one connection, free again when this goes.
#[derive(Debug)]
pub(crate) struct AddressPlace(Arc<AddressGate>, IpAddr);

impl Drop for AddressPlace {
    fn drop(&mut self) {
        self.0.leave(self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_has_so_many_places_and_others_have_theirs() {
        let addresses = Arc::new(AddressGate::new(2));
        let now = Instant::now();
        let enter = |text| addresses.enter(address(text), 1_000, now);
        let first = enter("10.0.0.1").expect("a place");
        let _second = enter("10.0.0.1").expect("a place");
        assert!(enter("10.0.0.1").is_none());
        let _other = enter("10.0.0.2").expect("another address");
        assert_eq!(addresses.refused(), 1);
        drop(first);
        assert!(enter("10.0.0.1").is_some());
    }

    #[test]
    fn a_network_of_ipv6_is_one_client() {
        let addresses = Arc::new(AddressGate::new(1));
        let now = Instant::now();
        let _first = addresses.enter(address("2001:db8::1"), 1_000, now);
        assert!(
            addresses
                .enter(address("2001:db8::ffff:2"), 1_000, now)
                .is_none()
        );
        assert!(
            addresses
                .enter(address("2001:db8:0:1::1"), 1_000, now)
                .is_some()
        );
    }

    #[test]
    fn an_address_that_left_takes_no_room() {
        let addresses = Arc::new(AddressGate::new(1));
        let now = Instant::now();
        let places: Vec<_> = (0..100)
            .map(|n| addresses.enter(IpAddr::from([10, 0, 0, n]), 1_000, now))
            .collect();
        assert_eq!(addresses.places.hold().len(), 100);
        drop(places);
        assert_eq!(addresses.places.hold().capacity(), 0);
    }

    #[test]
    fn one_address_leaves_places_to_others_and_each_new_one_has_its_first() {
        const MOST: u64 = 1_700;
        let addresses = Arc::new(AddressGate::new(0));
        let mut places = Vec::new();
        let fill = |text: &str, places: &mut Vec<_>| {
            let before = places.len();
            while let Some(place) =
                addresses.enter(address(text), MOST - places.len() as u64, Instant::now())
            {
                places.push(place);
            }
            places.len() - before
        };
        assert_eq!(fill("10.0.0.1", &mut places), 1_600);
        assert_eq!(fill("10.0.0.1", &mut places), 0);
        assert_eq!(
            fill("10.0.0.2", &mut places),
            95,
            "of the hundred that are free"
        );
        assert_eq!(fill("10.0.0.3", &mut places), 5, "the last one, too");
        assert_eq!(places.len() as u64, MOST);
        assert_eq!(addresses.refused(), 4);
    }

    #[test]
    fn a_gate_of_few_places_may_be_one_address_s() {
        let addresses = Arc::new(AddressGate::new(0));
        let most = limits::ADDRESS_SHARE_OF_FREE;
        let enter = |taken| addresses.enter(address("10.0.0.1"), most - taken, Instant::now());
        let places: Vec<_> = (0..most).map(enter).collect();
        assert!(places.iter().all(Option::is_some));
    }
}
