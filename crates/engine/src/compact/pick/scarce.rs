//! Which table to write anew when the disk has no room for a merge: a pure choice, too.
//!
//! ```text
//! level 0     [tombstones a ……………………… z]          a merge of all of this needs as much room again
//! level 1     [a…f] [g…m] [n…z]                      one table alone needs less than its own size
//!               └─ without what level 0 hides: what is left of it takes its place
//! ```
//!
//! Invariants
//! 1. Same levels, same notes, same choice.
//! 2. A table is chosen once for each set of newer tables above it, and while values of it expire
//!    once in a while.
//!
//! Not here: how much room there is (`room/`), the rewrite (`compact/run.rs`).

use super::{Plan, PlanReason, bytes, overlapping};
use crate::options::Options;
use crate::table::TableMeta;
use dendra_base::Version;

/// Deletes, or values that end, are worth a rewrite from one record in so many on.
const DEAD_PART_MIN: f64 = 1.0 / 50.0;
/// Newer records of any kind are: they may be overwrites, and most are of other keys.
const HIDDEN_PART_MIN: f64 = 1.0 / 4.0;

/// A table to write anew where it is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Reclaim {
    /// Plan that rewrites that table alone.
    pub(crate) plan: Plan,
    /// The newest version in the tables above it. Rewrites give tables new ids, and no newer
    /// versions.
    pub(crate) newest_above: Version,
}

/// How much of a table newer ones may hide.
#[derive(Clone, Copy)]
struct Above {
    records: f64,
    tombstones: f64,
    newest: Version,
}

impl Above {
    const NOTHING: Above = Above {
        records: 0.0,
        tombstones: 0.0,
        newest: Version::ZERO,
    };
}

/// The table that probably gives back most. `wants` is asked whether it was tried before, by its
/// description and the newest version above it.
pub(crate) fn pick_reclaim(
    levels: &[Vec<&TableMeta>],
    wants: impl Fn(&TableMeta, Version) -> bool,
) -> Option<Reclaim> {
    let mut best: Option<(f64, usize, u64, Version)> = None;
    for (level, tables) in levels.iter().enumerate() {
        for (table, above) in tables.iter().zip(above(levels, level)) {
            let of_all = |part: f64| (part / table.records.max(1) as f64).min(1.0);
            let dead = of_all(above.tombstones + table.expiring as f64);
            let hidden = of_all(above.records);
            let is_worth = dead >= DEAD_PART_MIN || hidden >= HIDDEN_PART_MIN;
            let gain = dead.max(hidden * HIDDEN_PART_MIN) * table.bytes as f64;
            let is_better = best.is_none_or(|(most, ..)| gain > most);
            if is_worth && is_better && wants(table, above.newest) {
                best = Some((gain, level, table.id, above.newest));
            }
        }
    }
    best.map(|(_, level, id, newest_above)| Reclaim {
        plan: Plan {
            inputs: vec![id],
            level,
            is_move: false,
            reason: PlanReason::Reclaim { level },
        },
        newest_above,
    })
}

/// For each table of `level`, the records of newer tables that fall into its range, if those of
/// each table are spread evenly over the tables below it.
fn above(levels: &[Vec<&TableMeta>], level: usize) -> Vec<Above> {
    let tables = &levels[level];
    let mut above = vec![Above::NOTHING; tables.len()];
    let mut add = |places: &[usize], upper: &TableMeta| {
        let below: u64 = places.iter().map(|at| tables[*at].records).sum();
        for at in places {
            let share = tables[*at].records as f64 / below.max(1) as f64;
            let it = &mut above[*at];
            it.records += upper.records as f64 * share;
            it.tombstones += upper.tombstones as f64 * share;
            it.newest = it.newest.max(upper.version_max);
        }
    };
    if level == 0 {
        for upper in tables {
            let mut places: Vec<usize> = Vec::new();
            for (at, table) in tables.iter().enumerate() {
                let is_older = table.version_min < upper.version_max && table.id != upper.id;
                if is_older && upper.smallest <= table.largest && table.smallest <= upper.largest {
                    places.push(at);
                }
            }
            add(&places, upper);
        }
        return above;
    }
    for upper in levels[..level].iter().flatten() {
        let first = tables.partition_point(|t| t.largest < upper.smallest);
        let behind = tables.partition_point(|t| t.smallest <= upper.largest);
        let places: Vec<usize> = (first..behind).collect();
        add(&places, upper);
    }
    above
}

/// Level 0 within `room` bytes, when a merge of all of it would need more: its oldest table alone
/// goes down, or its smallest ones become one.
pub(crate) fn pick_level0_within(
    levels: &[Vec<&TableMeta>],
    options: &Options,
    room: u64,
) -> Option<Plan> {
    let reason = PlanReason::Level0Full {
        tables: levels[0].len(),
    };
    let mut tables = levels[0].clone();
    let oldest = tables.iter().min_by_key(|t| t.id)?;
    let below = overlapping(&levels[1], &oldest.smallest, &oldest.largest);
    if oldest.bytes + bytes(&below) <= room {
        return Some(Plan {
            inputs: std::iter::once(*oldest)
                .chain(below)
                .map(|t| t.id)
                .collect(),
            level: 1,
            is_move: false,
            reason,
        });
    }
    if tables.len() < options.level0_tables_trigger {
        return None;
    }
    tables.sort_by_key(|t| (t.bytes, t.id));
    let mut left = room;
    let fits = |t: &&&TableMeta| match left.checked_sub(t.bytes) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    let inputs: Vec<u64> = tables
        .iter()
        .take(options.level0_inputs_max)
        .take_while(fits)
        .map(|t| t.id)
        .collect();
    (inputs.len() > 1).then_some(Plan {
        inputs,
        level: 0,
        is_move: false,
        reason,
    })
}

/// The most bytes that `plan` writes before its inputs go.
pub(crate) fn room_for(levels: &[Vec<&TableMeta>], plan: &Plan) -> u64 {
    if plan.is_move {
        return 0;
    }
    let inputs = levels.iter().flatten();
    let inputs = inputs.filter(|table| plan.inputs.contains(&table.id));
    inputs.map(|table| table.bytes).sum()
}
