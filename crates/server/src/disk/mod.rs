//! Threads that may wait for the disk, and files beside the engine's.
//!
//! ```text
//! store.rs       what these threads share        versions.rs    the node's clock
//! store_pool.rs  reads that would block: queue   readers.rs     their threads
//! orders.rs      answers in the node's words
//! wal_thread.rs  group commit                    bell.rs        how it is woken
//! maintenance.rs flushes and compactions         poke.rs        how they are woken
//! notes.rs       is this the member's folder     folder.rs      files beside the engine's
//! changes.rs     the last writes, for watches
//! scrub.rs       tables checked at a rate       lost.rs        names for lost records
//! stored.rs      what each token stores
//! last_clock.rs  where the clock ended at a stop large.rs       memory for large pieces
//! owners.rs      other owners of records
//! epochs.rs      records of epochs, past damage  mark.rs        `REFUSED`, `DOUBTED`
//! ```
//!
//! Not here: bytes on the disk (crate `engine`).
//! See: ARCHITECTURE.md, docs/overload.md.

pub(crate) mod bell;
pub(crate) mod changes;
pub(crate) mod checkpoint_readers;
pub(crate) mod checkpoints;
pub(crate) mod epochs;
pub mod folder;
pub(crate) mod import;
pub(crate) mod large;
pub(crate) mod last_clock;
pub(crate) mod lost;
pub(crate) mod maintenance;
pub(crate) mod mark;
pub(crate) mod notes;
pub(crate) mod orders;
pub(crate) mod owners;
pub(crate) mod poke;
pub(crate) mod readers;
pub(crate) mod scrub;
pub(crate) mod store;
pub(crate) mod store_pool;
mod stored;
pub(crate) mod versions;
pub(crate) mod wal_thread;
