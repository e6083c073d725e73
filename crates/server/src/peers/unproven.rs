//! Links whose asker has not proven yet that it knows the secret: few, small, and never in the way of members.
//!
//! ```text
//! 101 ─► enter ─► the asker's proof ─► leave, the link is a member's
//!          │ full: the oldest of the loop ends      │ wrong, late, or the asker hung up: leave, counted
//! ```
//!
//! Invariants
//! 1. A loop has at most its share of `LINKS_UNPROVEN_MAX` of them. A member proves within a round trip, so the oldest
//!    is the one that a stranger holds: it makes room, and a member is let in beside any number of strangers.
//! 2. Such a link keeps its place in the gate of connections, so that descriptors of the engine are none of its.
//! 3. It holds no buffer: exactly the bytes of a proof are read.
//!
//! Not here: what a proof is (crate `wire`), hellos over plain HTTP (`session.rs`).
//! See: docs/overload.md, docs/peer.md.

use crate::limits;
use dendra_wire::peer::PROOF_FRAME_BYTES;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;

/// Links without a proof, of all loops together.
#[derive(Debug, Default)]
pub(crate) struct UnprovenGauges {
    /// Now.
    pub(crate) now: AtomicU64,
    /// Those that ended so.
    pub(crate) ended: AtomicU64,
}

/// Those of one loop, the oldest first.
pub(crate) struct Unproven {
    waiting: RefCell<VecDeque<(u64, Rc<Notify>)>>,
    so_far: Cell<u64>,
    most: usize,
    gauges: Arc<UnprovenGauges>,
}

impl Unproven {
    /// For one of `loops` loops.
    pub(crate) fn new(loops: u16, gauges: &Arc<UnprovenGauges>) -> Unproven {
        let share = limits::LINKS_UNPROVEN_MAX / usize::from(loops).max(1);
        Unproven {
            waiting: RefCell::default(),
            so_far: Cell::new(0),
            most: share.max(1),
            gauges: Arc::clone(gauges),
        }
    }

    /// One more; the oldest ends if they are too many.
    pub(super) fn enter(&self) -> Place<'_> {
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
        Place {
            unproven: self,
            number,
            evicted,
            is_proven: false,
        }
    }
}

/// A link among the unproven ones, however its task ends.
pub(super) struct Place<'a> {
    unproven: &'a Unproven,
    number: u64,
    evicted: Rc<Notify>,
    is_proven: bool,
}

impl Place<'_> {
    /// The bytes of the first frame, if they come in time and while there is room.
    pub(super) async fn first_frame(
        &self,
        stream: &mut TcpStream,
    ) -> io::Result<[u8; PROOF_FRAME_BYTES]> {
        let mut frame = [0; PROOF_FRAME_BYTES];
        let reading = tokio::time::timeout(limits::LINK_OPEN_TIMEOUT, async {
            stream.read_exact(&mut frame).await
        });
        tokio::select! {
            biased;
            read = reading => {
                read.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
                Ok(frame)
            }
            () = self.evicted.notified() => Err(io::ErrorKind::ConnectionAborted.into()),
        }
    }

    /// It is a member's link from here on.
    pub(super) fn prove(mut self) {
        self.is_proven = true;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut waiting = self.unproven.waiting.borrow_mut();
        waiting.retain(|(number, _)| *number != self.number);
        self.unproven.gauges.now.fetch_sub(1, Ordering::Relaxed);
        if !self.is_proven {
            self.unproven.gauges.ended.fetch_add(1, Ordering::Relaxed);
        }
    }
}
