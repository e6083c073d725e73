//! The requests of each address of clients that wait on one loop, and the share that it may have.
//!
//! ```text
//! connection ─► source(address) ─► ClientSource, one for all connections of the address on this loop
//! request ────► offer(source): its share? the node's gate? ── no ──► refused
//!                    └─ yes: a permit, given back once, when the request ends
//! ```
//!
//! Invariants
//! 1. No source gets one more when it would have `ADDRESS_SHARE_OF_FREE` times as many as are free
//!    if it had as many on each loop. So one source leaves a seventeenth of the gate to others.
//! 2. The usual request costs plain additions: no cache line is shared among loops for it.
//! 3. A source without a connection takes no room.
//!
//! Not here: the gate of all requests (crate `node`, `admission`), connections of an address
//! (`address_gate.rs`). See: docs/overload.md.

use crate::waiting::address_gate::{client_of, is_at_share};
use dendra_node::{Gate, LocalGate, LocalPermit};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;

/// Room in one of the node's gates, taken on one loop.
pub(crate) type RoomPermit = LocalPermit<Rc<LocalGate<Arc<Gate>>>, Arc<Gate>>;

/// The gate of requests on one loop.
#[derive(Debug)]
pub(crate) struct SourceGate {
    gate: Rc<LocalGate<Arc<Gate>>>,
    loops: u64,
    sources: RefCell<HashMap<IpAddr, Weak<ClientSource>>>,
}

/// An address of clients with connections on this loop.
#[derive(Debug)]
pub(crate) struct ClientSource {
    of: Rc<SourceGate>,
    client: IpAddr,
    waiting: Cell<u64>,
}

/// The room of one request, given back when this goes.
#[derive(Debug)]
#[must_use = "a permit that is dropped gives its room back at once"]
pub(crate) struct RequestPermit {
    _room: RoomPermit,
    /// `None` = an order of the node, or a request of its own.
    source: Option<Rc<ClientSource>>,
}

impl SourceGate {
    /// The door of one of `loops` loops in the gate of requests.
    pub(crate) fn new(gate: Rc<LocalGate<Arc<Gate>>>, loops: usize) -> SourceGate {
        SourceGate {
            gate,
            loops: loops.max(1) as u64,
            sources: RefCell::default(),
        }
    }

    /// The source that a new connection belongs to.
    pub(crate) fn source(self: &Rc<SourceGate>, address: IpAddr) -> Rc<ClientSource> {
        let client = client_of(address);
        let mut sources = self.sources.borrow_mut();
        if let Some(known) = sources.get(&client).and_then(Weak::upgrade) {
            return known;
        }
        let source = Rc::new(ClientSource {
            of: Rc::clone(self),
            client,
            waiting: Cell::new(0),
        });
        sources.insert(client, Rc::downgrade(&source));
        source
    }

    /// Requests of clients that wait on this loop.
    pub(crate) fn used(&self) -> u64 {
        self.gate.used()
    }

    /// Room for one request of `source`.
    pub(crate) fn offer(&self, source: Option<&Rc<ClientSource>>) -> Option<RequestPermit> {
        if source.is_some_and(|source| self.is_at_share(source)) {
            return None;
        }
        let room = LocalGate::offer(Rc::clone(&self.gate), 1)?;
        if let Some(source) = source {
            source.waiting.set(source.waiting.get() + 1);
        }
        Some(RequestPermit {
            _room: room,
            source: source.map(Rc::clone),
        })
    }

    /// Has the source as many as it may have?
    pub(crate) fn is_at_share(&self, source: &ClientSource) -> bool {
        let everywhere = source.waiting.get() * self.loops;
        // What this loop leased is free for it without a look at the shared counter.
        is_at_share(everywhere, self.gate.idle()) && is_at_share(everywhere, self.gate.free())
    }

    fn forget(&self, client: IpAddr) {
        let mut sources = self.sources.borrow_mut();
        sources.remove(&client);
        // The table of a storm from many addresses goes with the storm.
        if sources.is_empty() {
            sources.shrink_to_fit();
        }
    }
}

impl RequestPermit {
    /// The room of an order, which no source asked for.
    pub(crate) fn of_node(room: RoomPermit) -> RequestPermit {
        RequestPermit {
            _room: room,
            source: None,
        }
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        if let Some(source) = &self.source {
            source.waiting.set(source.waiting.get() - 1);
        }
    }
}

impl Drop for ClientSource {
    fn drop(&mut self) {
        self.of.forget(self.client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gate(most: u64, loops: usize) -> (Arc<Gate>, Vec<Rc<SourceGate>>) {
        let shared = Arc::new(Gate::new(most));
        let gates = (0..loops)
            .map(|_| Rc::new(LocalGate::new(Arc::clone(&shared), loops)))
            .map(|local| Rc::new(SourceGate::new(local, loops)))
            .collect();
        (shared, gates)
    }

    fn take(gate: &SourceGate, source: &Rc<ClientSource>) -> Vec<RequestPermit> {
        std::iter::from_fn(|| gate.offer(Some(source))).collect()
    }

    fn address(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn one_source_leaves_a_seventeenth_to_others() {
        let (_shared, gates) = gate(340, 1);
        let greedy = gates[0].source(address(1));
        let of_greedy = take(&gates[0], &greedy);
        assert_eq!(of_greedy.len(), 320);
        let other = gates[0].source(address(2));
        let of_other = take(&gates[0], &other);
        assert!(!of_other.is_empty(), "an address that has none has room");
        assert!(gates[0].offer(Some(&greedy)).is_none());
        drop((of_greedy, of_other));
        assert_eq!((greedy.waiting.get(), gates[0].used()), (0, 0));
    }

    #[test]
    fn a_source_that_is_on_all_loops_leaves_as_much() {
        let (_shared, gates) = gate(340, 2);
        let greedy = [0, 1].map(|at: usize| gates[at].source(address(1)));
        let mut held = Vec::new();
        loop {
            let one = [0, 1].map(|at: usize| gates[at].offer(Some(&greedy[at])));
            if one.iter().all(Option::is_none) {
                break;
            }
            held.extend(one.into_iter().flatten());
        }
        assert!((300..=320).contains(&held.len()), "{}", held.len());
        for gate in &gates {
            let other = gate.source(address(2));
            assert!(gate.offer(Some(&other)).is_some());
        }
    }

    #[test]
    fn a_small_gate_may_be_one_sources() {
        for loops in [1, 4] {
            let (_shared, gates) = gate(4, loops);
            let only = gates[0].source(address(1));
            assert_eq!(take(&gates[0], &only).len(), 4);
        }
    }

    #[test]
    fn connections_of_an_address_share_a_source_and_the_last_one_takes_it_away() {
        let (_shared, gates) = gate(4, 1);
        let network = |last: &str| {
            format!("2001:db8::{last}")
                .parse::<IpAddr>()
                .expect("it is one")
        };
        let [one, same] = ["1", "2"].map(|last| gates[0].source(network(last)));
        assert!(Rc::ptr_eq(&one, &same));
        drop(one);
        assert_eq!(gates[0].sources.borrow().len(), 1);
        drop(same);
        assert!(gates[0].sources.borrow().is_empty());
        let again = gates[0].source(network("3"));
        assert!(gates[0].offer(Some(&again)).is_some());
    }

    #[test]
    fn requests_of_the_node_have_no_share() {
        let (_shared, gates) = gate(34, 1);
        let all: Vec<_> = std::iter::from_fn(|| gates[0].offer(None)).collect();
        assert_eq!(all.len(), 34);
    }
}
