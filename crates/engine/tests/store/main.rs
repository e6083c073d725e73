//! The engine from outside: each module says in its header which promise it holds.
//!
//! One binary, for each one links the whole engine.

mod crash;
mod damage;
mod door;
mod explain;
mod extent;
mod faults;
mod folder;
mod full_disk;
mod ingest;
mod model;
mod order;
mod promises;
mod room;
mod scrub;
mod space;
#[path = "../support/mod.rs"]
mod support;
mod touch;
