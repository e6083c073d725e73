//! Stories of one node: the test is the world around it, and gives the answers of others and of the
//! store.
//!
//! Not here: conversations of some nodes (`conversations`, `compare.rs`), drawn ones (`twin`).

mod accepted_loss;
mod bounds;
mod ended;
mod epochs;
mod hints;
mod layouts;
mod loading;
mod moving;
mod moving_scans;
mod narrowing;
mod repair;
mod rounds;
mod scans;
#[path = "../support/mod.rs"]
mod support;
mod world;
