//! Engines of others behind a front door: etcd and Cassandra, three servers each.
//!
//! ```text
//! dendra serve --store etcd://…        ─► three servers of etcd
//! dendra serve --store cassandra://…   ─► three servers of Cassandra
//! ```
//!
//! Invariants
//! 1. The servers have the same cores as the front door.
//!
//! Not here: fetching the engines (`make outgrow-setup`). Another engine is another `Engine` here
//! and a row in `engines.rs`.
//! See: docs/stores.md.

#[path = "../../../crates/dendra/tests/support/cassandra.rs"]
#[allow(dead_code, reason = "tests kill servers, too")]
mod cassandra;
#[path = "../../../crates/dendra/tests/support/etcd.rs"]
#[allow(dead_code, reason = "tests kill servers, too")]
mod etcd;

use super::{Parts, Server, Store};
use crate::place::{Place, Side};
use cassandra::Cassandra;
use etcd::Etcd;

/// The third number of Cassandra's addresses: tests use others.
const BLOCK: u8 = 91;
/// A small heap, and the compilers and collectors that Java chooses.
pub(crate) const JAVA: [&str; 2] = ["-Xmx512m", "-Xms512m"];

/// The servers of an engine; they are gone when it is dropped.
trait Engine {
    const NAME: &'static str;
    /// What `--store` takes.
    fn store(&self) -> String;
    fn pids(&self) -> Vec<u32>;
}

impl Engine for Etcd {
    const NAME: &'static str = "etcd";

    fn store(&self) -> String {
        Etcd::store(self, "ycsb")
    }

    fn pids(&self) -> Vec<u32> {
        Etcd::pids(self)
    }
}

impl Engine for Cassandra {
    const NAME: &'static str = "Cassandra";

    fn store(&self) -> String {
        Cassandra::store(self, "ycsb", 3)
    }

    fn pids(&self) -> Vec<u32> {
        Cassandra::pids(self)
    }
}

/// An engine, and the front door that is asked. The door ends first.
struct Front<E> {
    door: Server,
    engine: E,
}

impl<E: Engine> Front<E> {
    fn start(place: &Place, start: impl FnOnce() -> Option<E>) -> Result<Box<dyn Store>, String>
    where
        E: 'static,
    {
        let engine = place.on(Side::Server, start)?;
        let missing = || format!("there is no {}: make outgrow-setup", E::NAME);
        let engine = engine.ok_or_else(missing)?;
        let data = place.folder.join(format!("front-{}", E::NAME));
        let door = Server::node(place, &data, &["--store", &engine.store()])?;
        Ok(Box::new(Front { door, engine }))
    }
}

impl<E: Engine> Store for Front<E> {
    fn urls(&self) -> Vec<&str> {
        self.door.urls()
    }

    fn parts(&self) -> Parts {
        vec![
            ("front door", vec![self.door.id()]),
            (E::NAME, self.engine.pids()),
        ]
    }

    fn stop(self: Box<Self>) -> Result<(), String> {
        let Front { door, engine } = *self;
        door.stop()?;
        drop(engine);
        Ok(())
    }
}

/// Three servers of etcd.
pub(crate) fn etcd(place: &Place) -> Result<Box<dyn Store>, String> {
    Front::start(place, || Etcd::start(3))
}

/// Three servers of Cassandra with more lines of its configuration.
pub(crate) fn cassandra(place: &Place, more: &str) -> Result<Box<dyn Store>, String> {
    Front::start(place, || Cassandra::start_with(BLOCK, 3, &JAVA, more))
}
