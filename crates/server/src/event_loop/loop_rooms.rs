//! One loop's shares of the node's room: for requests and orders, for bytes, and for connections
//! that have proven nothing.
//!
//! Invariants
//! 1. Requests waiting and bytes held are counted here and never exceed this loop's share.
//!
//! Not here: the room of all loops (`waiting/budgets.rs`, `waiting/entrance.rs`).
//! See: docs/overload.md.

use crate::event_loop::parts::NodeParts;
use crate::limits;
use crate::waiting::room::Rooms;
use crate::waiting::seat::Seat;
use crate::waiting::source_requests::{RequestPermit, SourceGate};
use crate::waiting::unproven::Unproven;
use dendra_node::{Gate, LocalGate};
use std::cell::Cell;
use std::net::{IpAddr, Ipv6Addr};
use std::rc::Rc;
use std::sync::Arc;

/// Room that is given back at once is free.
pub(super) const NO_SOURCE: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// See the module.
pub(crate) struct LoopRooms {
    pub(super) requests: Rc<SourceGate>,
    /// Room for orders of the node: peers do not pass the clients' gate.
    orders: Rc<LocalGate<Arc<Gate>>>,
    pub(crate) bytes: Rc<Rooms>,
    pub(crate) scan_bytes: Rc<Rooms>,
    pub(crate) value_bytes: Rc<Rooms>,
    /// Unwanted bytes that may still be read before the next sweep.
    discard_left: Cell<usize>,
    /// Connections in the middle of their TLS handshake.
    pub(crate) handshakes: Unproven,
    /// Connections beyond the gate whose other side is not known to be a member.
    pub(crate) beyond: Unproven,
}

impl LoopRooms {
    /// The share of one loop of the room in `parts`.
    pub(super) fn new(parts: &NodeParts) -> LoopRooms {
        let (loops, budgets) = (parts.lanes.len(), &parts.budgets);
        let local = |gate: &Arc<Gate>| Rc::new(LocalGate::new(Arc::clone(gate), loops));
        LoopRooms {
            requests: Rc::new(SourceGate::new(local(&budgets.requests), loops)),
            orders: local(&budgets.orders),
            bytes: Rc::new(Rooms::new(&budgets.bytes, loops)),
            scan_bytes: Rc::new(Rooms::new(&budgets.scan_bytes, loops)),
            value_bytes: Rc::new(Rooms::new(&budgets.value_bytes, loops)),
            discard_left: Cell::new(limits::DISCARD_BYTES_PER_SWEEP),
            handshakes: Unproven::new(limits::HANDSHAKES_MAX, loops, &parts.entrance.handshakes),
            beyond: Unproven::new(
                limits::CONNECTIONS_BEYOND_UNPROVEN_MAX,
                loops,
                &Arc::default(),
            ),
        }
    }

    /// Bytes of requests that stand in line for room.
    pub(super) fn bytes_waiting(&self) -> u64 {
        self.bytes.waiting() + self.scan_bytes.waiting() + self.value_bytes.waiting()
    }

    /// At each sweep of the loop.
    pub(super) fn sweep(&self) {
        self.discard_left.set(limits::DISCARD_BYTES_PER_SWEEP);
        self.bytes.sweep();
        self.scan_bytes.sweep();
        self.value_bytes.sweep();
    }

    /// Would `bytes` more fit now?
    pub(crate) fn has_room_for(&self, bytes: usize) -> bool {
        self.bytes.offer(NO_SOURCE, bytes).is_some()
    }

    /// May this many unwanted bytes be read before the next sweep?
    pub(crate) fn may_discard(&self, bytes: usize) -> bool {
        let left = self.discard_left.get();
        self.discard_left.set(left.saturating_sub(bytes));
        left > 0
    }

    /// Room for one operation of a client that waits.
    pub(crate) fn hold_request(&self, seat: &Seat) -> Option<RequestPermit> {
        self.requests.offer(seat.source())
    }

    /// Room for an order of the node.
    pub(super) fn hold_order(&self) -> Option<RequestPermit> {
        LocalGate::offer(Rc::clone(&self.orders), 1).map(RequestPermit::of_node)
    }
}
