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
//! lanes/         what threads hand to loops      waiting/       gates, rooms, seats, ends
//! exchange/      one connection's bytes
//! measure/       counters, times, profiles
//! member/        the node of a member            peers/         links to other members
//! disk/          threads that may wait for the disk
//! front/         an engine of others behind it   admin/         pages for people and scrapers
//! tls/           sealed connections               rights/        tokens, and their grants
//! health/, health_watch.rs   what is wrong with the node
//! start_error.rs why a node did not start        limits.rs      bounds
//! phase.rs       where in its life a node is
//! clock.rs, random.rs, secret_file.rs, meter.rs  the ground: time, chance, files, rates
//! ```
//!
//! Invariants
//! 1. An event loop never waits for a disk or for another thread.
//! 2. Every queue is bounded. docs/overload.md tells the effect of a full one.
//!
//! Not here: decisions (crate `node`), bytes of HTTP (crate `wire`), bytes on disk (crate
//! `engine`). See: docs/api.md, docs/overload.md, ARCHITECTURE.md.

#![cfg_attr(not(test), deny(clippy::shadow_unrelated))]

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
mod health;
mod health_watch;
mod lanes;
#[cfg(test)]
#[path = "../../base/tests/legal/mod.rs"]
mod legal;
mod lifecycle;
pub mod limits;
mod measure;
mod member;
mod meter;
mod peers;
mod phase;
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
pub use front::{StoreFiles, StorePapers};
pub use health::{HealthKind, Severity};
pub use lifecycle::{ExitReason, LoopPulse, Running, Server, serve, serve_front};
pub use measure::profile::SampledAlloc;
pub use phase::Phase;
pub use secret_file::secret;
pub use settings::{Settings, Timeouts};
pub use start_error::StartError;
