//! How many connections each address of a client has.
//!
//! ```text
//! accepted ─► enter(address) ─► a place, kept with the connection ─► leave
//!                  │ at the bound: the connection has no place, is counted, and named in the log
//! ```
//!
//! Invariants
//! 1. No address has more places than the bound.
//! 2. An address without a connection takes no room.
//! 3. Without a bound nothing is counted.
//!
//! Not here: the gate of all connections (`connection_gate.rs`).
//! See: docs/overload.md.

use crate::admin::profile::Lock;
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

    /// One more connection; `None` when its address has as many as it may have.
    pub(crate) fn enter(
        self: &Arc<AddressGate>,
        address: IpAddr,
        now: Instant,
    ) -> Option<AddressPlace> {
        if self.most == 0 {
            return Some(AddressPlace(None));
        }
        let client = client_of(address);
        {
            let mut places = self.places.hold();
            let taken = places.entry(client).or_insert(0);
            if *taken < self.most {
                *taken += 1;
                return Some(AddressPlace(Some((Arc::clone(self), client))));
            }
        }
        self.refused.fetch_add(1, Ordering::Relaxed);
        let mut said_at = self.said_at.hold();
        if said_at.is_none_or(|at| now - at >= SAY_EVERY) {
            *said_at = Some(now);
            tracing::warn!(
                %address,
                most = self.most,
                "a connection has no place among the clients': its address has as many as --connections-per-address-max allows"
            );
        }
        None
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

/// The address that a client is counted under.
fn client_of(address: IpAddr) -> IpAddr {
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
pub(crate) struct AddressPlace(Option<(Arc<AddressGate>, IpAddr)>);

impl Drop for AddressPlace {
    fn drop(&mut self) {
        if let Some((addresses, client)) = self.0.take() {
            addresses.leave(client);
        }
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
        let enter = |text| addresses.enter(address(text), now);
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
        let _first = addresses.enter(address("2001:db8::1"), now);
        assert!(addresses.enter(address("2001:db8::ffff:2"), now).is_none());
        assert!(addresses.enter(address("2001:db8:0:1::1"), now).is_some());
    }

    #[test]
    fn an_address_that_left_takes_no_room() {
        let addresses = Arc::new(AddressGate::new(1));
        let now = Instant::now();
        let places: Vec<_> = (0..100)
            .map(|n| addresses.enter(IpAddr::from([10, 0, 0, n]), now))
            .collect();
        assert_eq!(addresses.places.hold().len(), 100);
        drop(places);
        assert_eq!(addresses.places.hold().capacity(), 0);
    }

    #[test]
    fn without_a_bound_nothing_is_counted() {
        let addresses = Arc::new(AddressGate::new(0));
        let _place = addresses.enter(address("10.0.0.1"), Instant::now());
        assert!(addresses.places.hold().is_empty());
    }
}
