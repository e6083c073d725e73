//! HTTP/1.1, both directions, as far as Dendra speaks it.
//!
//! ```text
//! request/     parse_head    bytes -> Head, strict
//! chunk/       ChunkDecoder  a chunked body, piece by piece
//! accept.rs    Accepted      which framing of a scan the client wants
//! response/                  answers -> bytes
//! lines.rs                   lines of the answer to a batch
//! events.rs                  events of a watch
//! records/                   records of a scan -> bytes, and back
//! ```
//!
//! Invariants
//! 1. Where the standard leaves a choice that two programs in a row could take differently, the
//!    request is refused and the connection closes.
//!
//! Not here: the meaning of paths and parameters (`route/`).
//! See: RFC 9110, RFC 9112.

pub mod accept;
pub mod chunk;
pub mod events;
pub mod lines;
pub mod records;
pub mod request;
pub mod response;

pub use accept::{Accepted, EventFraming, Framing};
pub use chunk::{ChunkDecoder, ChunkItem};
pub use request::{
    Body, ConnectionFate, Expect, Field, FieldLines, Head, Limits, Method, Parsed, parse_head,
};
