//! Where versions come from: one hybrid clock for all event loops of this node.
//!
//! ```text
//! wall ms ─► Hlc::tick ─► Version { hlc, origin, rmw: 0 }
//!               └─ needs_ceiling ─► engine: carried by the commit of the write that asked
//! ```
//!
//! Invariants
//! 1. A version is newer than every version handed out before it, on any loop. A write that began
//!    after another one was acknowledged never loses against it.
//! 2. A raised ceiling is told to the engine before the write that needs it is submitted.
//!
//! Not here: the clock itself (crate `node`), the order of versions (crate `base`), the floor
//! after a restart (crate `engine`, kept in its log).

use dendra_base::Version;
use dendra_engine::Engine;
use dendra_node::{Hlc, Implausible};

/// The clock of this node's versions.
#[derive(Debug)]
pub(crate) struct VersionClock {
    hlc: Hlc,
    origin: u32,
}

impl VersionClock {
    /// A clock above everything that `engine` may have handed out in an earlier life: above `last`,
    /// where that is known, or the engine's floor.
    pub(crate) fn above(engine: &Engine, last: Option<u64>, wall_ms: u64) -> VersionClock {
        VersionClock {
            hlc: Hlc::resume(last, engine.hlc_floor(), wall_ms),
            origin: engine.identity().origin,
        }
    }

    /// The largest value so far.
    pub(crate) fn last(&self) -> u64 {
        self.hlc.last()
    }

    /// Takes note of a clock value: later versions are above it.
    pub(crate) fn observe(&self, hlc: u64) -> Result<(), Implausible> {
        self.hlc.observe(hlc)
    }

    /// The next version at wall time `wall_ms`. The write that gets it must be submitted after this
    /// call, so that its commit carries a ceiling that was raised for it.
    pub(crate) fn next(&self, engine: &Engine, wall_ms: u64) -> Version {
        let hlc = self.hlc.tick(wall_ms);
        if let Some(ceiling) = self.hlc.needs_ceiling(wall_ms) {
            engine.raise_hlc_ceiling(ceiling);
        }
        Version {
            hlc,
            origin: self.origin,
            rmw: 0,
        }
    }
}
