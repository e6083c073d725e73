//! The work of a member for its records that its loops share: hints, comparisons, repairs.
//!
//! Invariants
//! 1. Each bound here is for all loops together.
//!
//! Not here: the work itself (crate `node`).

use super::looks::LookOffice;
use crate::disk::lost::WaitingRepairs;
use crate::settings::ClusterSettings;
use dendra_node::hints::HintRoom;
use dendra_node::limits::{COMPARE_PAUSE_US_DEFAULT, HINT_BYTES_MAX_DEFAULT};
use dendra_node::{Comparisons, Foregrounds};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Upkeep {
    pub(crate) hints: Arc<HintRoom>,
    /// How far comparisons with other members are.
    pub(crate) comparisons: Arc<Comparisons>,
    /// Repairs of damaged blocks that wait for other members.
    pub(crate) repairs: WaitingRepairs,
    /// The look for copies that differ.
    pub(crate) looks: LookOffice,
    /// The rounds of the clients of this member.
    pub(crate) foregrounds: Arc<Foregrounds>,
    /// For all of them together; 0 = none.
    pub(crate) compare_bytes_per_second: u64,
    pub(crate) forget_every_us: u64,
    /// Members that held the horizons back when the first loop looked last; 0 = none.
    pub(crate) horizon_held: AtomicU64,
}

impl Upkeep {
    /// Nothing is done yet.
    pub(super) fn new(settings: &ClusterSettings) -> Upkeep {
        Upkeep {
            hints: Arc::new(HintRoom::new(HINT_BYTES_MAX_DEFAULT)),
            comparisons: Arc::default(),
            repairs: WaitingRepairs::default(),
            looks: LookOffice::default(),
            foregrounds: Arc::default(),
            compare_bytes_per_second: settings.compare_bytes_per_second,
            forget_every_us: settings.forget_every_us,
            horizon_held: AtomicU64::new(0),
        }
    }

    /// How long comparisons rest between two of one peer: no longer than horizons, which wait for
    /// them.
    pub(crate) fn compare_pause_us(&self) -> u64 {
        match self.forget_every_us {
            0 => COMPARE_PAUSE_US_DEFAULT,
            every_us => COMPARE_PAUSE_US_DEFAULT.min(every_us),
        }
    }
}
