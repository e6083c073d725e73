//! Buffers that the connections of one loop share, one after the other.
//!
//! Invariants
//! 1. No more than `SPARES_MAX` of a kind are kept, and none that grew large.
//!
//! Not here: room for bytes that wait (`waiting/room.rs`).

use crate::limits;
use dendra_wire::KeyBuf;
use std::cell::RefCell;

/// Spare buffers kept for reuse; more than this many are never in use at once without waiting.
const SPARES_MAX: usize = 16;

/// See the module.
#[derive(Default)]
pub(crate) struct Buffers {
    inputs: RefCell<Vec<Vec<u8>>>,
    outputs: RefCell<Vec<Vec<u8>>>,
    /// The key of the request that is looked at: one buffer for all connections of the loop.
    pub(crate) key: RefCell<KeyBuf>,
}

impl Buffers {
    /// A buffer of `READ_BYTES_MAX` initialised bytes to read into.
    pub(crate) fn input(&self) -> Vec<u8> {
        let spare = self.inputs.borrow_mut().pop();
        spare.unwrap_or_else(|| vec![0; limits::READ_BYTES_MAX])
    }

    /// Takes a buffer of `input` back.
    pub(crate) fn reuse_input(&self, buffer: Vec<u8>) {
        debug_assert_eq!(buffer.len(), limits::READ_BYTES_MAX);
        let mut spares = self.inputs.borrow_mut();
        if spares.len() < SPARES_MAX {
            spares.push(buffer);
        }
    }

    /// An empty buffer to write answers into.
    pub(crate) fn output(&self) -> Vec<u8> {
        self.outputs.borrow_mut().pop().unwrap_or_default()
    }

    /// Takes a buffer of `output` back, unless it grew large.
    pub(crate) fn reuse_output(&self, mut buffer: Vec<u8>) {
        let mut spares = self.outputs.borrow_mut();
        if buffer.capacity() <= 2 * limits::ANSWER_BYTES_FLUSH && spares.len() < SPARES_MAX {
            buffer.clear();
            spares.push(buffer);
        }
    }
}
