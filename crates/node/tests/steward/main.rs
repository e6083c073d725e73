//! Stewards: scripts of orders and refusals.
//!
//! Not here: votes (`tests/chain`), clients' operations while positions move (`tests/twin`).

mod scripts;
mod town;
