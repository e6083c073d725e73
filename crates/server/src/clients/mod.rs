//! Clients' side: accepting, connections, requests and the bytes of answers.
//!
//! ```text
//! listener.rs    accepting                       room.rs       memory for bodies and answers
//! socket.rs      the client's side of it         input.rs      bytes that came and are not parsed yet
//! connection/    requests, answers, scans        body.rs       bodies that arrive slowly
//! seat.rs        where a connection waits        finished.rs   how an operation ended
//! answers.rs     from there to an answer         status.rs     outcome to HTTP
//! doorway.rs     TLS before the first request    unproven.rs   handshakes under way
//! accept_pace.rs pauses and backlogs          address_gate.rs  connections of each address
//! connection_gate.rs  all connections, and members' beyond
//! turn_work.rs   the work of a connection, in calls
//! source_requests.rs  waiting requests of each address
//! ```
//!
//! Not here: carrying out an operation (`backend.rs`), bytes of HTTP (crate `wire`).
//! See: ARCHITECTURE.md, docs/overload.md.

mod accept_pace;
pub(crate) mod address_gate;
pub(crate) mod answers;
pub(crate) mod body;
pub(crate) mod connection;
pub(crate) mod connection_gate;
pub(crate) mod doorway;
pub(crate) mod finished;
pub(crate) mod input;
pub(crate) mod listener;
pub(crate) mod pages;
pub(crate) mod room;
pub(crate) mod seat;
pub(crate) mod socket;
pub(crate) mod source_requests;
pub(crate) mod status;
pub(crate) mod turn_work;
pub(crate) mod unproven;
