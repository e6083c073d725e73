//! Stewards: scripts of orders and refusals, and a search for schedules in which changes get stuck
//! or go wrong.
//!
//! ```text
//! DENDRA_STEWARD_SEEDS=100000 cargo test -p dendra-ownership --test steward no_seed     a long search
//! DENDRA_STEWARD_FIRST=17     …                                                    from this seed on
//! ```
//!
//! Invariants
//! 1. A seed gives the same run for ever.
//! 2. The search itself is searched: each planted fault is found within its published seeds.
//!
//! Not here: votes (`tests/chain`), clients' operations while positions move (`tests/twin`).

mod losses;
mod progress;
mod rising;
mod rotten;
mod scripts;
mod search;
mod town;
mod waits;
mod walks;
