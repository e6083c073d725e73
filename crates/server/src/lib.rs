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
//! connection/    requests, answers, scans        socket.rs       the client's side of it
//! backend.rs     what carries operations out     alone.rs        the own store of a node alone
//! finished.rs    how an operation ended          answers.rs      from there to the answer's bytes
//! body.rs        bodies that arrive slowly       scan_job.rs     a scan in the store pool
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

mod admin;
mod alone;
mod answers;
mod backend;
mod body;
mod clock;
mod connection;
mod delay;
mod exposition;
mod finished;
pub mod folder;
mod handover;
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
mod room;
mod scan_job;
mod seat;
pub mod settings;
mod shared;
mod socket;
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
