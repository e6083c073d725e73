//! The plan of a soak of deletes: one cluster, simulated years, and a member that is away for
//! months in nearly every season.
//!
//! Invariants
//! 1. The plan has no operations of its own: the world draws them, season by season.
//! 2. Clocks are apart, and do not drift: no member corrects them in all these years.
//!
//! Not here: the seasons (`world/seasons/`).
//! See: docs/verification.md, "Soaks".

use crate::changes::Changes;
use crate::plan::{KeyClass, RunPlan, RunShape, StoreKind, pick};
use dendra_base::Prng;

/// One day.
pub const DAY_US: u64 = 86_400_000_000;
/// Later than any soak ends.
const NEVER_US: u64 = u64::MAX / 4;

impl RunPlan {
    /// The cluster of a soak of deletes.
    pub fn draw_deletes(seed: u64) -> RunPlan {
        let prng = &mut Prng::named(seed, "deletes: shape");
        let mut shape = RunShape::draw(prng);
        shape.members = pick(prng, &[3, 3, 3, 4, 5]);
        shape.copies = if shape.members == 5 {
            pick(prng, &[3, 5])
        } else {
            3
        };
        shape.store = StoreKind::Map;
        shape.keys = vec![KeyClass::Strong];
        shape.delay_spread_us = 1_000;
        shape.tail = (5, 100_000);
        shape.loss_permille = 1;
        shape.repeat_permille = 5;
        shape.sync_us = 2_000;
        shape.read_us = 200;
        shape.skew_ms = (0..shape.members).map(|_| prng.below(400) as i64).collect();
        shape.drift_ppm = vec![0; shape.members];
        shape.timeout_us = 1_000_000;
        shape.hint_bytes = pick(prng, &[0, 2_000, 1 << 20]);
        shape.compares = Some((1 << 30, 4 * DAY_US));
        shape.stranger_permille = 0;
        shape.chaos_us = NEVER_US;
        let changes = Changes {
            partitions: pick(prng, &[1, 8]),
            side_by_side: 8,
            load_bytes_per_second: 1 << 20,
            load_patience_us: 2_000_000,
            forget_every_us: pick(prng, &[1, DAY_US]),
            deeds: Vec::new(),
            reads_us: 0,
            meets: false,
            loss: None,
        };
        let nothing = (Vec::new(), Vec::new());
        RunPlan::of_changes(seed, shape, nothing, Vec::new(), changes)
    }
}
