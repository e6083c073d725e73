//! Connections with another side that has proven nothing yet: few, small, and never in the way of
//! those that have.
//!
//! ```text
//! a link, 101 ─► enter ─► the asker's proof       ─► leave, the link is a member's
//! a client    ─► enter ─► the handshake of TLS    ─► leave, the connection has a session
//! beyond the gate ─► enter ─► a member's proof    ─► leave, over frames or plain HTTP
//!                  │ full: the oldest of the loop ends      │ wrong, late, or the other side hung up: leave, counted
//! ```
//!
//! Invariants
//! 1. A loop has at most its share of `LINKS_UNPROVEN_MAX` links, of `HANDSHAKES_MAX` handshakes,
//!    and of `CONNECTIONS_BEYOND_UNPROVEN_MAX` connections beyond the gate. A proof takes a round
//!    trip or two, so the oldest one is most likely a stranger's: it makes room. So a member is let
//!    in beside any number of strangers.
//! 2. Such a connection keeps its place in the gate of connections, or beyond it, so that
//!    descriptors of the engine are none of its.
//! 3. A link holds no buffer: exactly the bytes of a proof are read (`peers/accept.rs`).
//!
//! Not here: the bytes of a proof (crate `wire`), hellos over plain HTTP (`member/session.rs`).
//! See: docs/overload.md, docs/peer.md.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// Connections without a proof, of all loops together.
#[derive(Debug, Default)]
pub(crate) struct UnprovenGauges {
    /// Now.
    pub(crate) now: AtomicU64,
    /// Connections that ended without a proof.
    pub(crate) ended: AtomicU64,
}

/// Unproven connections of one loop, the oldest first.
pub(crate) struct Unproven {
    waiting: RefCell<VecDeque<(u64, Rc<Notify>)>>,
    so_far: Cell<u64>,
    most: usize,
    gauges: Arc<UnprovenGauges>,
}

impl Unproven {
    /// The share of one of `loops` loops in `most`.
    pub(crate) fn new(most: usize, loops: usize, gauges: &Arc<UnprovenGauges>) -> Unproven {
        let share = most / loops.max(1);
        Unproven {
            waiting: RefCell::default(),
            so_far: Cell::new(0),
            most: share.max(1),
            gauges: Arc::clone(gauges),
        }
    }

    /// One more; the oldest ends if they are too many.
    pub(crate) fn enter(&self) -> UnprovenPlace<'_> {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() >= self.most
            && let Some((_, oldest)) = waiting.pop_front()
        {
            oldest.notify_one();
        }
        let number = self.so_far.get();
        self.so_far.set(number + 1);
        let evicted = Rc::new(Notify::new());
        waiting.push_back((number, Rc::clone(&evicted)));
        self.gauges.now.fetch_add(1, Ordering::Relaxed);
        UnprovenPlace {
            unproven: self,
            number,
            evicted,
            is_proven: false,
        }
    }
}

impl Unproven {
    /// The one with this number has proven itself, and makes room for no other from now on. It is
    /// served on under its place.
    pub(crate) fn prove(&self, number: u64) {
        let mut waiting = self.waiting.borrow_mut();
        waiting.retain(|(known, _)| *known != number);
    }
}

/// A connection among the unproven ones, however its task ends.
pub(crate) struct UnprovenPlace<'a> {
    unproven: &'a Unproven,
    number: u64,
    evicted: Rc<Notify>,
    is_proven: bool,
}

impl UnprovenPlace<'_> {
    /// Waits for the proof while there is room.
    ///
    /// # Errors
    /// It had to make room.
    pub(crate) async fn unless_evicted<T>(&self, proof: impl Future<Output = T>) -> io::Result<T> {
        tokio::select! {
            biased;
            proven = proof => Ok(proven),
            () = self.evicted.notified() => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    /// Gives the place up: the connection has proven itself.
    pub(crate) fn prove(mut self) {
        self.is_proven = true;
    }

    /// Mark of the connection, for [`Unproven::prove`].
    pub(crate) fn number(&self) -> u64 {
        self.number
    }
}

impl Drop for UnprovenPlace<'_> {
    fn drop(&mut self) {
        let mut waiting = self.unproven.waiting.borrow_mut();
        waiting.retain(|(number, _)| *number != self.number);
        self.unproven.gauges.now.fetch_sub(1, Ordering::Relaxed);
        if !self.is_proven {
            self.unproven.gauges.ended.fetch_add(1, Ordering::Relaxed);
        }
    }
}
