//! The bytes between members of a cluster: the handshake and the frames after it.
//!
//! ```text
//! asker                                                             acceptor
//!   GET /v0/peer, Upgrade: dendra-peer/1, Dendra-Peer: <hello> ─────────►
//!   ◄───────────────────────────────────────── 101, Dendra-Peer: <hello>
//!   | Proof | Hail | ───────────────────────────────────────────────────►
//!   ◄────────────────────────────────────────────────────── | Welcome |
//!   | Probe | Ask | Ask | Ask | …  ─────────────────────────────────────►
//!   ◄─────────────────────────────────── | Alive | Answer | Answer | …
//! frame.rs   lengths, checksums, ids            hello.rs   the speakers, and may they talk
//! body.rs    questions and answers              proof.rs   the secret of the cluster
//! age.rs     how long a frame was on its way   seal.rs    the checksums of frames, keyed by the secret
//! hop.rs     the same as plain HTTP
//! ```
//!
//! Invariants
//! 1. No bytes panic, and none make more memory than they are long themselves.
//! 2. Decoded frames are within the limits of the store: keys, values and cells need no check after
//!    this module.
//! 3. Keys and values of a decoded frame are slices of its receive buffer, not copies.
//!
//! Not here: sockets, windows, deadlines (crate `server`, `peers/`); the meaning of an answer
//! (crate `node`).
//! See: docs/peer.md.

mod age;
mod body;
mod frame;
pub mod hello;
pub mod hop;
mod proof;
mod seal;
mod shape;
#[cfg(test)]
mod tests;

pub use age::FrameAge;
pub use frame::{
    Message, PROOF_FRAME_BYTES, Question, decode, encode_alive, encode_answer, encode_ask,
    encode_enrol, encode_enrolment, encode_farewell, encode_hail, encode_probe, encode_proof,
    encode_steward, encode_welcome, encode_withdraw, frame_len,
};
pub use hello::{Hello, agree};
pub use proof::{Nonce, Proof, Role};
pub use seal::{Seal, SessionKeys};
pub use shape::Malformed;
