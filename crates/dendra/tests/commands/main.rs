//! Commands of the binary, with one node or none.
//!
//! One binary, for each one links all that the tests have in common.
//!
//! Not here: clusters (`clusters`).

mod cert;
mod client;
mod compare;
mod config;
mod conform;
mod copy;
mod full_disk;
mod health;
mod node;
mod ownership;
mod profile;
mod streams;
mod supervisor;
#[path = "../support/mod.rs"]
mod support;
mod token;
