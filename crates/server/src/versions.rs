//! Where versions come from: one hybrid clock for all event loops of this node.
//!
//! ```text
//! wall ms ─┐
//! last  ───┴─► max(last + 1, wall << 16) ─► Version { hlc, origin, rmw: 0 }
//! ceiling      raised a minute ahead and written by the commit that carries the version
//! ```
//!
//! Invariants
//! 1. A version is newer than every version handed out before it, on whichever loop: a write that
//!    began after another was acknowledged can never lose against it.
//! 2. No version above the raised ceiling leaves this file, so that after a crash the clock starts
//!    above everything that may have been seen, even when the wall clock went back.
//!
//! Not here: the order of versions (crate `base`), the floor (crate `engine`, kept in its log).

use crate::limits;
use dendra_base::Version;
use dendra_engine::Engine;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of the counter below the wall milliseconds.
const COUNTER_BITS: u32 = 16;

/// The hybrid clock of this node.
#[derive(Debug)]
pub(crate) struct Versions {
    last: AtomicU64,
    ceiling: AtomicU64,
    origin: u32,
}

impl Versions {
    /// A clock above everything that `engine` may have handed out in an earlier life.
    pub(crate) fn above(engine: &Engine) -> Versions {
        let floor = engine.hlc_floor();
        Versions {
            last: AtomicU64::new(floor),
            ceiling: AtomicU64::new(floor),
            origin: engine.identity().origin,
        }
    }

    /// The next version at wall time `wall_ms`. The write that gets it must be submitted after this
    /// call, so that its commit carries the raised ceiling.
    pub(crate) fn next(&self, engine: &Engine, wall_ms: u64) -> Version {
        let wall = wall_ms << COUNTER_BITS;
        let above = |last: u64| (last + 1).max(wall);
        let last = self
            .last
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| {
                Some(above(last))
            })
            .expect("the closure always gives a value");
        let hlc = above(last);
        if hlc > self.ceiling.load(Ordering::Relaxed) {
            self.raise(engine, hlc);
        }
        Version {
            hlc,
            origin: self.origin,
            rmw: 0,
        }
    }

    #[cold]
    fn raise(&self, engine: &Engine, hlc: u64) {
        let ceiling = hlc + (limits::HLC_AHEAD_MS << COUNTER_BITS);
        // The engine first: a loop that reads the new ceiling must find it raised there.
        engine.raise_hlc_ceiling(ceiling);
        self.ceiling.fetch_max(ceiling, Ordering::Release);
    }
}
