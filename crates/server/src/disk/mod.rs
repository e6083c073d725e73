//! Threads that may wait for the disk, and files beside the engine's.
//!
//! ```text
//! alone.rs       the own store of a node alone   versions.rs    the node's clock
//! store_pool.rs  reads that would block: queue   readers.rs     their threads
//! work.rs        such a read, and its answer     page.rs        a part of a range, for the node
//! orders.rs      answers in the node's words
//! wal_thread.rs  group commit                    bell.rs        how it is woken
//! maintenance.rs flushes and compactions         poke.rs        how they are woken
//! notes.rs       is this the member's folder     folder.rs      files beside the engine's
//! scrub.rs       tables checked at a rate       lost.rs        names for lost records
//! stored.rs      what each token stores
//! last_clock.rs  where the clock ended at a stop large.rs       memory for large pieces
//! epochs.rs      records of epochs, past damage  mark.rs        `REFUSED`, `DOUBTED`
//! ```
//!
//! Not here: bytes on the disk (crate `engine`).
//! See: ARCHITECTURE.md, docs/overload.md.

pub(crate) mod alone;
pub(crate) mod bell;
pub(crate) mod checkpoint_readers;
pub(crate) mod checkpoints;
pub(crate) mod epochs;
pub mod folder;
pub(crate) mod fullness;
pub(crate) mod import;
pub(crate) mod large;
pub(crate) mod last_clock;
pub(crate) mod lost;
pub(crate) mod maintenance;
pub(crate) mod mark;
pub(crate) mod notes;
pub(crate) mod orders;
pub(crate) mod page;
pub(crate) mod poke;
pub(crate) mod readers;
pub(crate) mod scrub;
pub(crate) mod store_pool;
mod stored;
pub(crate) mod versions;
pub(crate) mod wal_thread;
pub(crate) mod work;
