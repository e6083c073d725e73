//! The bytes a connection has read and not yet understood.
//!
//! ```text
//! | done with | data ............ | room |      a loop's shared buffer while requests are parsed
//!             | data |                         a copy of exactly that size while something is waited for
//! ```
//!
//! Invariants
//! 1. A connection that waits holds no more memory than its unread bytes. Ten thousand slow clients
//!    cost ten thousand half heads, not ten thousand read buffers.
//!
//! Not here: reading from the socket (`socket.rs`).

use crate::event_loop::thread::EventLoop;
use crate::limits;

/// Bytes read and not yet understood.
#[derive(Debug, Default)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    is_shared: bool,
}

impl Input {
    /// The unread bytes.
    pub(crate) fn data(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Number of unread bytes.
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    /// Drops the first `n` unread bytes.
    pub(crate) fn consume(&mut self, n: usize) {
        self.start += n;
        assert!(self.start <= self.end, "more was consumed than was read");
    }

    /// Moves the unread bytes to the front of `buffer`, after which `n` new bytes stand already at
    /// `len()`, and keeps `buffer`.
    pub(crate) fn adopt(&mut self, lane: &EventLoop, mut buffer: Vec<u8>, n: usize) {
        let held = self.len();
        buffer[..held].copy_from_slice(self.data());
        self.release(lane);
        *self = Input {
            bytes: buffer,
            start: 0,
            end: held + n,
            is_shared: true,
        };
    }

    /// Gives the shared buffer back and keeps a copy of the unread bytes.
    pub(crate) fn settle(&mut self, lane: &EventLoop) {
        if self.len() == 0 {
            self.release(lane);
        } else if self.is_shared {
            let rest = self.data().to_vec();
            self.release(lane);
            self.end = rest.len();
            self.bytes = rest;
        }
    }

    /// Do the unread bytes count as bytes under way?
    pub(crate) fn is_large(&self) -> bool {
        self.len() > limits::UNCOUNTED_BYTES_MAX
    }

    fn release(&mut self, lane: &EventLoop) {
        let Input {
            bytes, is_shared, ..
        } = std::mem::take(self);
        if is_shared {
            lane.buffers.reuse_input(bytes);
        }
    }
}
