//! The real world around one node: sockets, threads, clocks and signals.
//!
//! ```text
//! listener ─► loop (one per core) ─► connections ─┬─► engine, when it cannot block
//!                                                 ├─► store pool ─► engine
//!                                                 └─► batch ─► log thread ─► engine
//! admin plane      flush, compact, scrub: a thread each ─► engine
//!
//! lifecycle/     start, signals, stop            settings/      the operator's decisions
//! clients/       accepting, connections          event_loop/    a loop, its turns and its mailbox
//! exchange/      one connection's bytes          waiting/       gates, rooms, seats, ends
//! measure/       counters, times, profiles
//! peers/         the node, links of members      disk/          threads that may wait for the disk
//! front/         an engine of others behind it   admin/         pages for people and scrapers
//! tls/           sealed connections               rights/        tokens, and their grants
//! start_error.rs why a node did not start        limits.rs      bounds
//! clock.rs, random.rs, secret_file.rs, meter.rs  the ground: time, chance, files, rates
//! ```
//!
//! Invariants
//! 1. An event loop never waits for a disk or for another thread.
//! 2. Every queue is bounded. docs/overload.md tells the effect of a full one.
//!
//! Not here: decisions (crate `node`), bytes of HTTP (crate `wire`), bytes on disk (crate
//! `engine`). See: docs/api.md, docs/overload.md, ARCHITECTURE.md.

mod admin;
mod audit;
mod border;
mod border_watch;
mod clients;
mod clock;
mod disk;
mod event_loop;
mod exchange;
mod front;
#[cfg(test)]
#[path = "../../base/tests/legal/mod.rs"]
mod legal;
mod lifecycle;
pub mod limits;
mod measure;
mod meter;
mod peers;
mod random;
mod retry_after;
mod rights;
mod secret_file;
pub mod settings;
mod start_error;
pub mod tls;
mod waiting;

pub use admin::pages;
pub use border_watch::{BorderState, BorderWatch};
pub use disk::folder;
pub use disk::large::LargeApart;
pub use event_loop::shared::Phase;
pub use front::{StoreFiles, StorePapers};
pub use lifecycle::{ExitReason, Running, Server, serve, serve_front};
pub use measure::profile::SampledAlloc;
pub use secret_file::secret;
pub use settings::{Settings, Timeouts};
pub use start_error::StartError;
