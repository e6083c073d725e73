//! How a node starts, waits and stops.
//!
//! ```text
//! start   settings ─► addresses ─► admin (not ready) ─► folder, log replay ─► a wait, if the clock is far ahead
//!         ─► the other members let it in ─► threads ─► each loop's links to them ─► data sockets
//!         ─► their links ─► Serving
//! stop    Draining: readiness off ─► stop_delay_ms ─► sockets close ─► in flight, at most drain_ms ─► loops, pool,
//!         log, maintenance end ─► engine closed ─► Stopped
//! exit    0 stopped    2 settings    3 folder, disowned folder    4 address    1 the rest
//!
//! doors.rs, starting.rs, pulse.rs ◄─ running.rs ◄─ start.rs ◄─ serving.rs
//! ```
//!
//! Invariants
//! 1. No client is accepted before the folder is open, its log replayed, and every member that can
//!    be asked has let it in. By then every loop has tried to open its links to those.
//! 2. Every thread that was started is joined before `stop` returns.
//! 3. A poisoned engine refuses to be closed: its folder is left as the failure found it, and the
//!    exit code is not 0.
//!
//! Not here: options and logs (crate `dendra`).
//! See: docs/api.md, section "Exit codes and signals".

mod doors;
mod pulse;
mod running;
mod serving;
mod start;
mod starting;

pub use pulse::LoopPulse;
pub use running::Running;
pub use serving::{ExitReason, serve, serve_front};
pub use start::Server;
#[cfg(test)]
pub(crate) use start::parts_for_tests;
