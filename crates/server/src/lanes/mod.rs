//! The event loops of a node as its other threads see them, and what is handed between them.
//!
//! ```text
//! lane.rs      one loop, and all of them        mailbox.rs   results of other threads
//! work.rs      a read that would block, and its answer
//! page.rs      a part of a range, for the node  overload.rs  how pressed all loops are
//! ```
//!
//! Not here: a loop seen from its own thread (`event_loop/`), the threads that do the work
//! (`disk/`, `front/`). See: docs/overload.md.

pub(crate) mod lane;
pub(crate) mod mailbox;
pub(crate) mod overload;
pub(crate) mod page;
pub(crate) mod work;
