//! Engines of others behind one trait: the front door asks, and a driver translates.
//!
//! ```text
//! crate server ─► OuterStore ◄─┬─ etcd/       its HTTP/JSON gateway           feature `etcd`
//!                         ├─ cassandra/  CQL, by the crate `scylla`      feature `cassandra`
//!                         └─ map.rs      a map in memory, for tests
//! place.rs   etcd://HOST:PORT,…/PREFIX ─► which driver, where
//! store.rs   the trait and its nouns       envelope.rs   a record as bytes of a foreign value
//! dial.rs    connections, in clear or sealed, and the user
//! hedge.rs   a second server for a read that takes long
//! ```
//!
//! Invariants
//! 1. No driver knows HTTP requests of clients, and the front door knows no driver.
//! 2. A driver says `Known::NotApplied` only where the engine cannot have taken the write.
//!
//! Not here: queues, deadlines and answers (crate `server`, `front/`).
//! See: docs/stores.md.

#![cfg_attr(not(test), deny(clippy::shadow_unrelated))]

#[cfg(feature = "cassandra")]
mod cassandra;
mod clock;
mod dial;
#[cfg(any(feature = "etcd", feature = "cassandra"))]
mod envelope;
#[cfg(feature = "etcd")]
mod etcd;
#[cfg(any(feature = "etcd", feature = "cassandra"))]
mod hedge;
#[cfg(test)]
#[path = "../../base/tests/legal/mod.rs"]
mod legal;
mod map;
mod place;
mod store;

pub use dial::{ClearDial, Dialing, EngineDial, EngineFace, EngineLink, EngineLogin, StoreAccess};
pub use map::DumbStore;
pub use place::{OuterEngine, StorePlace};
pub use store::{
    Doing, OuterFailure, OuterStore, PageRead, PointRead, RecordWrite, ShownPage, StoreShape,
    StoreUpkeep, WriteEnd,
};

use std::sync::Arc;

/// The driver for `place`. No server is connected yet: [`OuterStore::open`] does that.
///
/// # Errors
/// This build has no such driver: the sentence names the build that has it.
#[cfg_attr(
    not(any(feature = "etcd", feature = "cassandra")),
    expect(unused_variables, reason = "no driver reaches anything")
)]
pub fn driver(place: &StorePlace, access: &StoreAccess) -> Result<Arc<dyn OuterStore>, String> {
    match place.engine {
        #[cfg(feature = "etcd")]
        OuterEngine::Etcd => Ok(Arc::new(etcd::EtcdStore::new(place, access))),
        #[cfg(not(feature = "etcd"))]
        OuterEngine::Etcd => Err(not_built("etcd")),
        #[cfg(feature = "cassandra")]
        OuterEngine::Cassandra => Ok(Arc::new(cassandra::CassandraStore::new(place, access))),
        #[cfg(not(feature = "cassandra"))]
        OuterEngine::Cassandra => Err(not_built("cassandra")),
    }
}

#[cfg(not(all(feature = "etcd", feature = "cassandra")))]
fn not_built(feature: &str) -> String {
    format!(
        "this build has no driver for {feature}: build one with `cargo build --release -p dendra --features {feature}`"
    )
}
