//! One event loop: its turns, and how other threads hand it results.
//!
//! ```text
//! thread/        one event loop                  handover.rs   results that go back to a connection
//! mailbox.rs     results of other threads        delay.rs      how late the loop begins its work
//! shared.rs      state of all threads            giving_way.rs reads that come behind others
//! overload.rs    how pressed all loops are
//! ```
//!
//! Not here: a connection's turn (`clients/`), the node's turn (`peers/agent.rs`).
//! See: ARCHITECTURE.md, docs/overload.md.

pub(crate) mod delay;
pub(crate) mod giving_way;
pub(crate) mod handover;
pub(crate) mod mailbox;
pub(crate) mod overload;
pub(crate) mod shared;
pub(crate) mod thread;
