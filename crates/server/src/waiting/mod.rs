//! Where requests, connections and bytes wait for room, and how operations end.
//!
//! ```text
//! address_gate.rs     connections of each address        room.rs       memory for bodies and answers
//! connection_gate.rs  all connections, members' beyond   unproven.rs   handshakes under way
//! source_requests.rs  waiting requests of each address   seat.rs       where a connection waits
//! finished.rs         how an operation ended             status.rs     outcome to HTTP
//! scan_job.rs         a scan between two chunks     engine_look.rs  a read that tells how it went
//! entrance.rs         the places, and the listener that waits for one
//! budgets.rs          room for requests and bytes of all loops
//! ```
//!
//! Not here: a socket's bytes (`exchange/`), a loop's own lines (`event_loop/`).
//! See: docs/overload.md.

pub(crate) mod address_gate;
pub(crate) mod budgets;
pub(crate) mod connection_gate;
pub(crate) mod engine_look;
pub(crate) mod entrance;
pub(crate) mod finished;
pub(crate) mod room;
pub(crate) mod scan_job;
pub(crate) mod seat;
pub(crate) mod source_requests;
pub(crate) mod status;
pub(crate) mod unproven;
