//! A front door: the same HTTP before an engine of others, which keeps everything.
//!
//! ```text
//! client's request ─► clients/backend/front.rs ─► desk.rs: bounded queue ─► threads.rs: its runtime ─► OuterStore
//!                                                                  │ deadline kept here
//! connection's seat ◄─ loop's mailbox ◄────────────────────────────┘
//! dial.rs     sealed connections for drivers      papers.rs   certificates and logins, renewed
//! gauges.rs   what is noted of the engine: times, and whether it answers
//! ```
//!
//! Invariants
//! 1. The front door has no record of its own: its folder is in memory, and empty.
//! 2. It knows the trait of crate `stores` alone, and no engine by its name.
//!
//! Not here: the engines (crate `stores`), the bytes of answers (`clients/`).
//! See: docs/stores.md, docs/overload.md.

pub(crate) mod desk;
mod dial;
pub(crate) mod gauges;
mod papers;
mod threads;

pub(crate) use desk::FrontDesk;
pub use papers::{StoreFiles, StorePapers};
pub(crate) use threads::FrontThreads;
