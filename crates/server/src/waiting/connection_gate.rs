//! The gate of connections, and the few places beyond it where members come in.
//!
//! ```text
//! accepted ─► room below connections_max, and in its address's bound? ─ yes ─► Client
//!                └─ no, and the node is a member ─► Beyond: may ask as a member only
//! ```
//!
//! Invariants
//! 1. At most `connections_max` connections are clients', and `CONNECTIONS_BEYOND_MAX` beyond. A
//!    node by itself has none beyond.
//! 2. A place is free when it is dropped.
//!
//! Not here: which requests are served beyond (`connection/requests.rs`), which of these
//! connections make room (`unproven.rs`). See: docs/overload.md.

use crate::waiting::address_gate::{AddressGate, AddressPlace};
use dendra_node::{Gate, Permit};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// The places of all connections.
#[derive(Debug)]
pub(crate) struct ConnectionGate {
    clients: Arc<Gate>,
    beyond: Arc<Gate>,
    addresses: Arc<AddressGate>,
}

/// The place of one connection, free again when this goes.
#[derive(Debug)]
pub(crate) struct ConnectionPlace {
    _permit: Permit<Arc<Gate>>,
    /// Among those of its address. `None` = beyond the gate.
    address: Option<AddressPlace>,
}

impl ConnectionPlace {
    /// Has it no place among the clients'? Then only a member's requests are served on it.
    pub(crate) fn is_beyond(&self) -> bool {
        self.address.is_none()
    }
}

impl ConnectionGate {
    /// Places for `most` connections, `beyond` of them more for members, within the bounds of
    /// `addresses`.
    pub(crate) fn new(most: usize, beyond: usize, addresses: Arc<AddressGate>) -> ConnectionGate {
        ConnectionGate {
            clients: Arc::new(Gate::new(most as u64)),
            beyond: Arc::new(Gate::new(beyond as u64)),
            addresses,
        }
    }

    /// Is there a place for one more connection?
    pub(crate) fn has_place(&self) -> bool {
        [&self.clients, &self.beyond]
            .iter()
            .any(|gate| gate.used() < gate.limit())
    }

    /// Places of clients that are free.
    fn free(&self) -> u64 {
        self.clients.limit().saturating_sub(self.clients.used())
    }

    /// Connections beyond the clients' places now.
    pub(crate) fn beyond(&self) -> u64 {
        self.beyond.used()
    }

    /// A connection of `address` was accepted. `None` = there is no place for it.
    pub(crate) fn enter(&self, address: IpAddr, now: Instant) -> Option<ConnectionPlace> {
        if let Some(permit) = Gate::offer(Arc::clone(&self.clients), 1)
            && let Some(place) = self.addresses.enter(address, self.free() + 1, now)
        {
            return Some(ConnectionPlace {
                _permit: permit,
                address: Some(place),
            });
        }
        let permit = Gate::offer(Arc::clone(&self.beyond), 1)?;
        Some(ConnectionPlace {
            _permit: permit,
            address: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(most: usize, beyond: usize, of_address: usize) -> ConnectionGate {
        ConnectionGate::new(most, beyond, Arc::new(AddressGate::new(of_address)))
    }

    #[test]
    fn a_full_gate_and_a_full_address_have_places_beyond_them() {
        let (gate, now) = (gate(3, 2, 2), Instant::now());
        let one = IpAddr::from([10, 0, 0, 1]);
        let enter = |address| gate.enter(address, now);
        let clients = [enter(one), enter(one)];
        let is_beyond =
            |place: &Option<ConnectionPlace>| place.as_ref().map(ConnectionPlace::is_beyond);
        let is_client = |place: &Option<ConnectionPlace>| is_beyond(place) == Some(false);
        assert!(clients.iter().all(is_client));
        let beyond = enter(one);
        assert_eq!(is_beyond(&beyond), Some(true));
        let other = enter(IpAddr::from([10, 0, 0, 2]));
        assert!(
            is_client(&other),
            "what is beyond takes no place of clients"
        );
        let last = enter(IpAddr::from([10, 0, 0, 3]));
        assert_eq!(is_beyond(&last), Some(true));
        assert!(!gate.has_place() && gate.beyond() == 2);
        assert!(enter(one).is_none());
        drop(other);
        assert!(gate.has_place());
        drop((clients, beyond, last));
        assert!(is_client(&enter(one)) && gate.beyond() == 0);
    }

    #[test]
    fn one_address_leaves_places_to_others() {
        let gate = gate(34, 0, 0);
        let enter = |n| gate.enter(IpAddr::from([10, 0, 0, n]), Instant::now());
        let of_one: Vec<_> = (0..34).filter_map(|_| enter(1)).collect();
        assert_eq!(of_one.len(), 32);
        let others = [enter(2), enter(3)];
        assert!(others.iter().all(Option::is_some) && !gate.has_place());
    }

    #[test]
    fn a_node_by_itself_has_no_place_beyond() {
        let gate = gate(1, 0, 0);
        let address = IpAddr::from([10, 0, 0, 1]);
        let _only = gate.enter(address, Instant::now());
        assert!(!gate.has_place());
        assert!(gate.enter(address, Instant::now()).is_none());
    }
}
