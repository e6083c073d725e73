//! Bytes to requests and outcomes to bytes: the HTTP contract as pure functions of slices.
//!
//! ```text
//!            read buffer                                            write buffer
//! bytes --> http::parse_head --> Head --> route --> Route ... outcome --> http::response --> bytes
//!            http::ChunkDecoder (bodies)     |                            http::records (scans)
//!                                            +--> Refusal ----------------^
//! hosts.rs   is the request meant for this node, and not a foreign page's?
//! batch/     many operations in one request: items in, lines out
//! client/    the other side of the same bytes, for our command line and our lab
//! meta/      metadata of values, inside the stored bytes
//! peer/      frames between members, and their handshake
//! restore.rs one page of records with the versions that they had
//! ```
//!
//! Invariants
//! 1. No code here does I/O, waits, reads a clock or keeps state between requests, except the
//!    decoder of one chunked body, which its owner keeps.
//! 2. No input panics, and no input makes more memory than the limits in `limits.rs` name.
//! 3. A request that reaches `Route` is completely checked: no code after it validates again.
//!
//! Not here: sockets and deadlines (crate `server`), the meaning of a write (crate `node`).
//! See: docs/api.md, docs/openapi.yaml.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::shadow_unrelated))]

pub mod batch;
pub mod client;
mod condition;
pub mod hosts;
pub mod http;
#[cfg(test)]
#[path = "../../base/tests/legal/mod.rs"]
mod legal;
pub mod limits;
pub mod meta;
pub mod peer;
pub mod percent;
mod refusal;
pub mod restore;
pub mod rights;
pub mod route;

pub use condition::Condition;
pub use hosts::{HostRule, Hosts, OriginRule};
pub use refusal::{Known, Refusal};
pub use route::{EntityOp, KeyBuf, RequestRules, Route, route};
