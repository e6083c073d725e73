//! The server's part in horizons. Strays are dropped in the background. If members hold horizons
//! back for long, the log names them once a day.
//!
//! ```text
//! DropStrays ─► the engine drops them ─► nothing left ─► the copies are compared once more
//!                     └── a later epoch ─► given up
//! ```
//!
//! Invariants
//! 1. The engine keeps everything again before a later epoch is in force here (`home.rs`).
//!
//! Not here: when horizons rise (crate `ownership`, `steward/rising.rs`), which records the engine
//! drops then (`Cluster::adopt`).
//! See: docs/operating.md.

use crate::event_loop::thread::EventLoop;
use crate::limits::HORIZON_PATIENCE_US;
use crate::member::cluster::Cluster;
use dendra_base::Space;
use dendra_ownership::Layout;
use dendra_ownership::epoch::record::EpochChange;
use dendra_ownership::steward::face::HorizonState;
use std::sync::Arc;

/// See the module.
#[derive(Debug)]
pub(super) struct HorizonWatch {
    /// The horizons rose at this time, as far as this process knows.
    risen_us: u64,
    /// The log said at this time that they are held back.
    said_us: u64,
    /// Strays are being dropped.
    is_dropping: bool,
}

impl HorizonWatch {
    pub(super) fn new(now_us: u64) -> HorizonWatch {
        HorizonWatch {
            risen_us: now_us,
            said_us: 0,
            is_dropping: false,
        }
    }

    /// An epoch is about to be adopted. The engine keeps everything again.
    pub(super) fn adopted(&mut self, now_us: u64, change: EpochChange) {
        self.is_dropping = false;
        if change == EpochChange::Forgot {
            self.risen_us = now_us;
            self.said_us = 0;
        }
    }

    /// Drops the records of clients of which this member is no owner.
    pub(super) fn drop_strays(&mut self, lane: &EventLoop, cluster: &Cluster, layout: Arc<Layout>) {
        let (me, epoch) = (cluster.own.me, layout.epoch());
        let seen = cluster.upkeep.comparisons.foreign_in(epoch);
        tracing::info!(epoch, "records that other members own are dropped here");
        self.is_dropping = true;
        lane.parts
            .store
            .engine
            .drop_foreign(Arc::new(move |stored_key, cell| {
                let Some((space, raw_key)) = stored_key.split_first() else {
                    return false;
                };
                *space == Space::User.byte() && layout.drops(me, raw_key, cell, &seen)
            }));
    }

    /// Have all strays gone?
    pub(super) fn look_at_strays(&mut self, lane: &EventLoop, cluster: &Cluster) {
        let engine = &lane.parts.store.engine;
        if self.is_dropping && engine.foreign_left() == Some(0) {
            self.is_dropping = false;
            engine.keep_foreign();
            cluster.upkeep.comparisons.dropped_strays();
            tracing::info!("records that other members own are gone from this folder");
        }
    }

    /// Says so when the horizons have not risen for long.
    pub(super) fn warn(&mut self, now_us: u64, state: &HorizonState) {
        let patience_us = HORIZON_PATIENCE_US.max(2 * state.every_us);
        let is_late = now_us >= self.risen_us + patience_us;
        let is_said = self.said_us > 0 && now_us < self.said_us + HORIZON_PATIENCE_US;
        let Some(first) = state.held.first().filter(|_| is_late && !is_said) else {
            return;
        };
        self.said_us = now_us;
        let hours = (now_us - self.risen_us) / 3_600_000_000;
        let (member, why, members) = (&first.url, &first.why, state.held.len());
        tracing::warn!(
            member,
            why,
            members,
            hours,
            "what was deleted does not give its space back: a member holds the horizon back"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dendra_ownership::ring::table::MemberId;
    use dendra_ownership::steward::face::HorizonHeld;

    fn held() -> HorizonState {
        HorizonState {
            narrowing_steps_left: 0,
            every_us: 600_000_000,
            held: vec![HorizonHeld {
                member: MemberId(1),
                url: "http://h1:1".to_owned(),
                code: "away",
                why: "it cannot be reached from here".to_owned(),
            }],
            ..HorizonState::default()
        }
    }

    #[test]
    fn the_log_says_once_a_day_what_holds_the_horizon_back_for_longer_than_a_day() {
        const DAY_US: u64 = HORIZON_PATIENCE_US;
        let mut watch = HorizonWatch::new(1);
        let mut said = 0;
        let mut hours = |watch: &mut HorizonWatch, from: u64, to: u64, state: &HorizonState| {
            for hour in from..to {
                watch.warn(hour * 3_600_000_000 + 2, state);
                let now = watch.said_us;
                if now > 0 && now == hour * 3_600_000_000 + 2 {
                    said += 1;
                }
            }
            std::mem::take(&mut said)
        };
        assert_eq!(hours(&mut watch, 0, 24, &held()), 0, "not yet a day");
        assert_eq!(hours(&mut watch, 24, 24 * 4, &held()), 3);
        assert_eq!(
            hours(&mut watch, 24 * 4, 24 * 6, &HorizonState::default()),
            0
        );
        watch.adopted(6 * DAY_US, EpochChange::Forgot);
        assert_eq!(hours(&mut watch, 24 * 6, 24 * 7, &held()), 0, "it rose");
        watch.adopted(7 * DAY_US, EpochChange::Finalized);
        assert_eq!(hours(&mut watch, 24 * 7, 24 * 8, &held()), 1);
    }
}
