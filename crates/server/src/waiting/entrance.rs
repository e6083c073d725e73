//! The places of all connections, and the listener that waits for one.
//!
//! ```text
//! listener: no place ─► wait_for_place ─► … a loop: note_ended ─► looks again
//! ```
//!
//! Invariants
//! 1. The listener looks for a place again after its flag is up: a connection that closed in
//!    between is seen by one of the two.
//!
//! Not here: who is accepted when (`clients/listener.rs`).
//! See: docs/overload.md.

use super::address_gate::AddressGate;
use super::connection_gate::ConnectionGate;
use super::unproven::UnprovenGauges;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use tokio::sync::Notify;

/// See the module.
pub(crate) struct Entrance {
    /// The connections of each address.
    pub(crate) addresses: Arc<AddressGate>,
    /// The places of all connections.
    pub(crate) gate: ConnectionGate,
    /// TLS handshakes under way.
    pub(crate) handshakes: Arc<UnprovenGauges>,
    /// Told by a loop when a connection closed while the listener waits for room.
    room: Notify,
    /// The listener waits for a connection to close.
    listener_waits: AtomicBool,
}

impl Entrance {
    /// Places for so many connections, and for members beyond those.
    pub(crate) fn new(connections_max: usize, beyond: usize, per_address: usize) -> Entrance {
        let addresses = Arc::new(AddressGate::new(per_address));
        Entrance {
            gate: ConnectionGate::new(connections_max, beyond, Arc::clone(&addresses)),
            addresses,
            handshakes: Arc::default(),
            room: Notify::new(),
            listener_waits: AtomicBool::new(false),
        }
    }

    /// Waits until there is a place for one more connection.
    pub(crate) async fn wait_for_place(&self) {
        while !self.gate.has_place() {
            let room = self.room.notified();
            self.listener_waits.store(true, Ordering::SeqCst);
            // The gate's counter is read relaxed: not in front of the flag.
            fence(Ordering::SeqCst);
            // A connection may have closed before the flag was up.
            if !self.gate.has_place() {
                room.await;
            }
        }
    }

    /// A connection has ended and has given its place up.
    pub(crate) fn note_ended(&self) {
        // The place in the gate was given back relaxed: not after this look at the flag.
        fence(Ordering::SeqCst);
        if self.listener_waits.swap(false, Ordering::SeqCst) {
            self.room.notify_waiters();
        }
    }
}
