//! The real world around one node: sockets, threads, clocks and signals.
//!
//! ```text
//! listener ─► loop (one per core) ─► connections ─┬─► engine, when it cannot block
//!                                                 ├─► store pool ─► engine
//!                                                 └─► batch ─► log thread ─► engine
//! admin plane      maintenance, 2 threads ─► engine
//!
//! settings.rs    what an operator decides        lifecycle.rs   start, signals, stop
//! listener.rs    accepting                       lane.rs        one event loop
//! connection.rs  read, answer, write             requests.rs    what a request means
//! body.rs        bodies that arrive slowly       scan.rs        streamed scans
//! input.rs seat.rs mailbox.rs                    what a connection and a loop hold
//! status.rs      outcome to HTTP                 versions.rs    the node's clock
//! notes.rs       is this the member's folder         folder.rs     files beside the engine's
//! last_clock.rs  where the clock ended at a stop
//! store_pool.rs wal_thread.rs maintenance.rs     threads that may wait for the disk
//! admin.rs exposition.rs metrics.rs stages.rs    what a person and a scraper see
//! peers/                                        the node, links between members
//! profile/                                      what its threads do, when somebody asks
//! large.rs       memory for large pieces
//! limits.rs clock.rs shared.rs                   bounds, time, what all threads share
//! ```
//!
//! Invariants
//! 1. An event loop never waits for a disk or for another thread.
//! 2. Every queue is bounded, and what happens when it is full is written in docs/overload.md.
//!
//! Not here: decisions (crate `node`), bytes of HTTP (crate `wire`), bytes on disk (crate `engine`).
//! See: docs/api.md, docs/overload.md, ARCHITECTURE.md.

mod abandon;
mod admin;
mod body;
mod clock;
mod connection;
mod delay;
mod exposition;
pub mod folder;
mod input;
mod lane;
mod large;
mod last_clock;
mod lifecycle;
pub mod limits;
mod listener;
mod mailbox;
mod maintenance;
mod metrics;
mod notes;
mod peers;
mod profile;
mod requests;
mod room;
mod scan;
mod seat;
pub mod settings;
mod shared;
mod stages;
mod status;
mod store_pool;
mod versions;
mod wal_thread;

pub use large::LargeApart;
pub use lifecycle::{ExitReason, Running, Server, StartError, serve};
pub use profile::SampledAlloc;
pub use settings::{Settings, Timeouts};
pub use shared::Phase;
