//! Which tables to merge next: a pure choice over the tables' descriptions.
//!
//! ```text
//! level 0      score = tables / trigger            whole ones without overlap are moved; or else
//!                                                  the oldest ones + those that they overlap in 1
//! level n ≥ 1  score = bytes / target(n)           the table that rewrites least below + overlaps
//! target(n)  = level1_bytes × fanout^(n-1)         the highest score of at least 1 wins
//! ```
//!
//! Invariants
//! 1. Same levels, same policy, same plan.
//! 2. A plan's inputs from the output level are exactly those that overlap the others.
//! 3. A move has no input in the output level and no record that a rewrite could drop.
//! 4. Where the disk is short of room, choices that need little of it are in `scarce.rs`.
//! 5. Damage is not known here: tables that are set aside are not shown (`background.rs`).
//!
//! Not here: reading or writing anything.

pub(crate) mod scarce;

use crate::options::Options;
use crate::table::TableMeta;
use dendra_base::{Space, Version};

/// Why a plan was chosen; for logs and reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PlanReason {
    /// A memtable is full.
    Flush,
    /// Level 0 has too many tables.
    Level0Full {
        /// How many.
        tables: usize,
    },
    /// A level holds more than its target.
    LevelFull {
        /// Which.
        level: usize,
        /// Bytes it holds.
        bytes: u64,
        /// Bytes it should hold.
        target: u64,
    },
    /// A table has damage that two jobs failed on: it goes to level 0, out of the way.
    Damaged {
        /// Which level it leaves.
        level: usize,
    },
    /// A table has damaged blocks, and the records that were in them are repaired.
    Mend {
        /// How many spots are damaged.
        spots: usize,
    },
    /// A table may hold records that a damaged block has hidden.
    Hole {
        /// Which level.
        level: usize,
    },
    /// Level 0 is not full, and the engine has been quiet.
    Settle {
        /// How many tables there are.
        tables: usize,
    },
    /// A table may hold records that belong to other folders now.
    Foreign {
        /// Which level.
        level: usize,
    },
    /// A table is mostly tombstones and expired cells that could go.
    Garbage {
        /// Which level.
        level: usize,
    },
    /// Newer tables hide records of a table, and the disk has no room for merges.
    Reclaim {
        /// Which level.
        level: usize,
    },
}

/// The tables to merge, or to move as they are, and their target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Ids of the tables that are replaced, from both levels.
    pub inputs: Vec<u64>,
    /// Level of the new tables.
    pub level: usize,
    /// The inputs, all of the level above, can be moved down as they are.
    pub is_move: bool,
    /// Why.
    pub reason: PlanReason,
}

/// Bytes that `level` (from 1) should hold.
pub(crate) fn target_bytes(options: &Options, level: usize) -> u64 {
    let growth = options
        .level_fanout
        .saturating_pow(u32::try_from(level - 1).unwrap_or(u32::MAX));
    options.level1_bytes.saturating_mul(growth)
}

/// The most urgent compaction; `None` when every level is within its target.
pub(crate) fn pick(levels: &[Vec<&TableMeta>], options: &Options) -> Option<Plan> {
    let mut best: Option<(f64, usize)> = None;
    for (level, tables) in levels.iter().enumerate().take(levels.len() - 1) {
        let score = if level == 0 {
            tables.len() as f64 / options.level0_tables_trigger as f64
        } else {
            bytes(tables) as f64 / target_bytes(options, level) as f64
        };
        if score >= 1.0 && best.is_none_or(|(highest, _)| score > highest) {
            best = Some((score, level));
        }
    }
    match best {
        Some((_, 0)) => Some(pick_level0(levels, options)),
        Some((_, level)) => pick_sorted(levels, level, options),
        None => pick_garbage(levels),
    }
}

fn bytes(tables: &[&TableMeta]) -> u64 {
    tables.iter().map(|t| t.bytes).sum()
}

/// Ids of `tables` that overlap the key range `smallest ..= largest`.
fn overlapping<'a>(
    tables: &[&'a TableMeta],
    smallest: &[u8],
    largest: &[u8],
) -> Vec<&'a TableMeta> {
    let overlaps =
        |t: &&&TableMeta| t.smallest.as_slice() <= largest && smallest <= t.largest.as_slice();
    tables.iter().filter(overlaps).copied().collect()
}

/// Does a rewrite of `table` gain no space? Tombstones and expiring cells may go when rewritten.
fn is_clean(table: &TableMeta) -> bool {
    table.tombstones == 0 && table.expiring == 0
}

fn pick_level0(levels: &[Vec<&TableMeta>], options: &Options) -> Plan {
    // Oldest first, so that under steady load no table stays for ever.
    let mut inputs: Vec<&TableMeta> = levels[0].clone();
    inputs.sort_by_key(|t| t.id);
    inputs.truncate(options.level0_inputs_max);
    // Small tables are merged all the same: many of them would make each choice dear.
    let is_whole = |table: &TableMeta| table.bytes * 2 >= options.table_bytes as u64;
    let movable: Vec<u64> = inputs
        .iter()
        .filter(|table| is_whole(table) && is_clean(table) && is_alone(table, &levels[..2]))
        .map(|table| table.id)
        .collect();
    let reason = PlanReason::Level0Full {
        tables: levels[0].len(),
    };
    if !movable.is_empty() {
        return Plan {
            inputs: movable,
            level: 1,
            is_move: true,
            reason,
        };
    }
    let smallest = inputs
        .iter()
        .map(|t| t.smallest.as_slice())
        .min()
        .unwrap_or_default();
    let largest = inputs
        .iter()
        .map(|t| t.largest.as_slice())
        .max()
        .unwrap_or_default();
    let below = overlapping(&levels[1], smallest, largest);
    let ids = inputs.iter().chain(&below).map(|t| t.id).collect();
    let is_move = below.is_empty() && matches!(&inputs[..], [only] if is_clean(only));
    Plan {
        inputs: ids,
        level: 1,
        is_move,
        reason,
    }
}

/// Does no other table of `levels` overlap it?
fn is_alone(table: &TableMeta, levels: &[Vec<&TableMeta>]) -> bool {
    levels.iter().all(|level| {
        let overlapping = overlapping(level, &table.smallest, &table.largest);
        overlapping.iter().all(|other| other.id == table.id)
    })
}

fn pick_sorted(levels: &[Vec<&TableMeta>], level: usize, options: &Options) -> Option<Plan> {
    let cost = |table: &TableMeta| {
        let below = bytes(&overlapping(
            &levels[level + 1],
            &table.smallest,
            &table.largest,
        ));
        below as f64 / table.bytes.max(1) as f64
    };
    let table = levels[level]
        .iter()
        .min_by(|a, b| cost(a).total_cmp(&cost(b)).then_with(|| a.id.cmp(&b.id)))?;
    let reason = PlanReason::LevelFull {
        level,
        bytes: bytes(&levels[level]),
        target: target_bytes(options, level),
    };
    Some(push_down(levels, level, table, reason))
}

fn push_down(
    levels: &[Vec<&TableMeta>],
    level: usize,
    table: &TableMeta,
    reason: PlanReason,
) -> Plan {
    let below = overlapping(&levels[level + 1], &table.smallest, &table.largest);
    let inputs = std::iter::once(table.id)
        .chain(below.iter().map(|t| t.id))
        .collect();
    let is_move = below.is_empty() && is_clean(table);
    Plan {
        inputs,
        level: level + 1,
        is_move,
        reason,
    }
}

/// When no level is too full: a table of a sorted level that is at least half tombstones goes down.
/// So deletes give their space back without waiting for new writes.
fn pick_garbage(levels: &[Vec<&TableMeta>]) -> Option<Plan> {
    let deepest = levels.iter().rposition(|tables| !tables.is_empty())?;
    for level in (1..deepest).rev() {
        let garbage = levels[level].iter().find(|t| t.tombstones * 2 > t.records);
        if let Some(table) = garbage {
            return Some(push_down(
                levels,
                level,
                table,
                PlanReason::Garbage { level },
            ));
        }
    }
    None
}

/// When there is no other work and no write came for a while: the tables of level 0 go down. So
/// reads look at one level less, and deletes give their space back without waiting for new writes.
pub(crate) fn pick_settle(levels: &[Vec<&TableMeta>], options: &Options) -> Option<Plan> {
    if levels[0].is_empty() {
        return None;
    }
    Some(Plan {
        reason: PlanReason::Settle {
            tables: levels[0].len(),
        },
        ..pick_level0(levels, options)
    })
}

/// When no level is too full: a table that may hold records of other folders is rewritten in place.
/// The oldest records lie in the deepest level mostly, and those that hide them wait for them.
pub(crate) fn pick_foreign(
    levels: &[Vec<&TableMeta>],
    wants: impl Fn(&TableMeta) -> bool,
) -> Option<Plan> {
    levels.iter().enumerate().rev().find_map(|(level, tables)| {
        let table = tables.iter().rev().find(|table| wants(table))?;
        Some(Plan {
            inputs: vec![table.id],
            level,
            is_move: false,
            reason: PlanReason::Foreign { level },
        })
    })
}

/// When there is no other work: a table of the deepest level is rewritten where it is. At least
/// half of it must be tombstones, all of which may go now. No table above may hold older cells: the
/// rewrite would change no record, and would be chosen for ever.
///
/// Ages of cells are not in the metas of tables, so a horizon of ages may allow less than it seems
/// to. Then only tables below the id `first_new` are rewritten, those that were there when it rose:
/// each once. 0 = all of them.
pub(crate) fn pick_purge(
    levels: &[Vec<&TableMeta>],
    horizon: Version,
    first_new: u64,
) -> Option<Plan> {
    let deepest = levels.iter().rposition(|tables| !tables.is_empty())?;
    let is_purgeable = |table: &&&TableMeta| {
        let is_newer = |above: &&TableMeta| above.version_min > table.version_max;
        // Promises are no tombstones, and go by their age all the same.
        let is_of_protocol =
            first_new > 0 && table.largest.first() == Some(&Space::Protocol.byte());
        (is_of_protocol || table.tombstones * 2 > table.records)
            && (first_new == 0 || table.id < first_new)
            && table.version_max <= horizon
            && levels[..deepest].iter().all(|above| {
                let overlapping = overlapping(above, &table.smallest, &table.largest);
                overlapping.iter().all(is_newer)
            })
    };
    let sorted = levels[deepest].iter().filter(|_| deepest > 0);
    let table = sorted.into_iter().find(is_purgeable)?;
    Some(Plan {
        inputs: vec![table.id],
        level: deepest,
        is_move: false,
        reason: PlanReason::Garbage { level: deepest },
    })
}

#[cfg(test)]
mod tests;
