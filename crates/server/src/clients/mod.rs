//! Clients' side: accepting, connections, requests and the bytes of answers.
//!
//! ```text
//! listener.rs    accepting                       accept_pace.rs pauses and backlogs
//! doorway.rs     TLS before the first request    connection/    requests, answers, scans
//! backend/       who carries an operation out    answers.rs     from its end to an answer
//! keep_rights.rs the table of tokens, read again and again
//! ```
//!
//! Not here: one request's bytes (`exchange/`), gates and rooms (`waiting/`), carrying out an
//! operation (behind `backend/`), bytes of HTTP (crate `wire`).
//! See: ARCHITECTURE.md, docs/overload.md.

mod accept_pace;
pub(crate) mod answers;
pub(crate) mod backend;
pub(crate) mod connection;
pub(crate) mod doorway;
mod keep_rights;
pub(crate) mod listener;

pub(crate) use keep_rights::keep_rights;
