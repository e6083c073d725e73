//! One event loop: its turns, and how other threads hand it results.
//!
//! ```text
//! thread/        one event loop                  handover.rs   results that go back to a connection
//! parts.rs       the parts of a node              delay.rs      how late the loop begins its work
//! giving_way.rs  reads that come behind others   write_lines.rs writes that wait for the batch
//! turn_batch.rs  the writes of one turn          loop_rooms.rs  a loop's shares of the node's room
//! buffers.rs     buffers of its connections      loop_clock.rs  its clocks
//! watches.rs     its watches, and where they wait for events
//! ```
//!
//! Not here: the mailbox of a loop, and all loops together (`lanes/`), a connection's turn
//! (`clients/`), the node's turn (`member/agent.rs`).
//! See: ARCHITECTURE.md, docs/overload.md.

mod buffers;
pub(crate) mod delay;
pub(crate) mod giving_way;
pub(crate) mod handover;
mod loop_clock;
mod loop_rooms;
pub(crate) mod parts;
pub(crate) mod thread;
mod turn_batch;
pub(crate) mod watches;
mod write_lines;
