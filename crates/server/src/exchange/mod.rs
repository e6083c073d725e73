//! One connection's bytes on a loop, for all who answer requests: clients' and members' alike.
//!
//! ```text
//! socket.rs      the client's side of it         input.rs      bytes that came and are not parsed yet
//! body.rs        bodies that arrive slowly       pages.rs      scans in pages
//! body_text.rs   bodies that are worked on while they arrive
//! turn_work.rs   the work of a connection, in calls
//! explain.rs     how a read was found
//! ```
//!
//! Not here: which request it is (`clients/connection/`), bytes of HTTP (crate `wire`).
//! See: docs/overload.md.

pub(crate) mod body;
pub(crate) mod body_text;
pub(crate) mod explain;
pub(crate) mod input;
pub(crate) mod pages;
pub(crate) mod socket;
pub(crate) mod turn_work;
