//! The steps of holes: one edit of the manifest, or one table to write anew, at a time.
//!
//! ```text
//! tend_holes   repaired ─► gone      a horizon rose ─► again      all dropped ─► is_dropped
//!              repaired for the first time, and there is a horizon ─► again
//!              a damaged block that cannot be mended, or that waits beside one that can ─► a hole
//! drop_plan    the next table that a drop waits for
//! ```
//!
//! Invariants
//! 1. Only the lane of compactions changes the list of holes.
//! 2. A table with damage that no hole stands for is left alone: its repair comes first.
//!
//! Not here: the idea of a hole (`mod.rs`), the drop of cells (`compact/run.rs`).

use super::state::Left;
use super::{HOLES_MAX, Hole};
use crate::Result;
use crate::compact::pick::{Plan, PlanReason};
use crate::damage::{DamagedSpan, LossySpot, SpotFate};
use crate::engine::Engine;
use crate::table::{KeySpan, TableMeta};
use crate::tree::Tree;
use crate::tree::edit::{Edit, Fact};
use crate::waits::hold;
use dendra_base::{Space, Version};
use std::sync::Arc;

impl Engine {
    /// One step of one hole; `false` when there is none to be made. The lane of compactions calls
    /// it.
    pub(crate) fn tend_holes(&self) -> Result<bool> {
        let view = self.view();
        for hole in view.holes.iter() {
            let is_repaired = self.holes.is_repaired(hole);
            let has_risen = self.age_horizon().clock > hole.clock;
            // Nothing is dropped before the records were here once.
            if has_risen && (is_repaired || hole.clock > 0) {
                let again = Hole {
                    clock: self.age_horizon().clock,
                    is_dropped: false,
                    ..hole.clone()
                };
                return self.change_holes(&[again], None).map(|()| true);
            }
            if is_repaired {
                return self.change_holes(&[], Some(hole)).map(|()| true);
            }
            if !hole.is_dropped && self.is_drop_over(hole, &view.tree) {
                let dropped = Hole {
                    is_dropped: true,
                    ..hole.clone()
                };
                return self.change_holes(&[dropped], None).map(|()| true);
            }
        }
        let new = self.wanted_holes(&view.tree, &view.holes);
        if new.is_empty() {
            return Ok(false);
        }
        self.change_holes(&new, None).map(|()| true)
    }

    fn is_drop_over(&self, hole: &Hole, tree: &Tree) -> bool {
        let log_floor = hold(&self.ledger).folder.log_floor;
        let tables = tree.tables().map(|(_, table)| table.meta());
        self.holes.left(hole, log_floor, tables) == Left::Nothing
    }

    /// Holes of one table, in the place of blocks that were repaired and cannot go, and of blocks
    /// that wait while others of the table do not.
    fn wanted_holes(&self, tree: &Tree, holes: &[Hole]) -> Vec<Hole> {
        let ages = self.age_horizon();
        let wants = |id: u64, spot: &LossySpot| {
            let is_known = holes.iter().any(|hole| hole.is_of(id, spot.offset));
            !is_known
                && match spot.fate {
                    SpotFate::Waits => true,
                    SpotFate::Lost => false,
                    // The other folders that hold the records, or no record could be fetched.
                    SpotFate::Repaired => {
                        let has_others = ages.clock > 0 && ages.copies > 1;
                        has_others && self.may_reappear(tree, id, &spot.span)
                    }
                }
        };
        let is_wanted = |id: u64, spots: &[LossySpot]| {
            let is_open = |spot: &LossySpot| {
                let is_known = holes.iter().any(|hole| hole.is_of(id, spot.offset));
                spot.fate == SpotFate::Lost && !is_known
            };
            let count = spots.iter().filter(|spot| wants(id, spot)).count();
            count > 0 && holes.len() + count <= HOLES_MAX && !spots.iter().any(is_open)
        };
        let Some((id, spots)) = self.damage.mendable(is_wanted) else {
            return Vec::new();
        };
        let Some((_, table)) = tree.tables().find(|(_, t)| t.meta().id == id) else {
            return Vec::new();
        };
        let wanted = spots.into_iter().filter(|spot| wants(id, spot));
        let hole = |spot: LossySpot| Hole {
            table: id,
            offset: spot.offset,
            first: spot.span.first,
            last: spot.span.last,
            below: table.meta().version_max,
            clock: match spot.fate {
                SpotFate::Repaired => ages.clock,
                SpotFate::Waits | SpotFate::Lost => 0,
            },
            is_dropped: false,
        };
        wanted.map(hole).collect()
    }

    /// A table that can be written anew: each of its damaged blocks was repaired and may go, or has
    /// a hole. One with holes alone waits for their drop (`drop_plan`).
    pub(crate) fn mend_plan(&self, tree: &Tree, holes: &[Hole]) -> Option<(Plan, Vec<KeySpan>)> {
        let may_go = |id: u64, spots: &[LossySpot]| {
            let Some((_, table)) = tree.tables().find(|(_, t)| t.meta().id == id) else {
                return false;
            };
            let meta = table.meta();
            let has_none =
                |spot: &&LossySpot| !holes.iter().any(|it| it.stands_for(meta, &spot.span));
            let mut left = spots.iter().filter(has_none).peekable();
            let is_of_others = spots.is_empty() || left.peek().is_some();
            is_of_others
                && left.all(|spot| {
                    spot.fate == SpotFate::Repaired && !self.may_reappear(tree, id, &spot.span)
                })
        };
        let (id, spots) = self.damage.mendable(may_go)?;
        let (level, _) = tree.tables().find(|(_, t)| t.meta().id == id)?;
        let plan = Plan {
            inputs: vec![id],
            level,
            is_move: false,
            reason: PlanReason::Mend { spots: spots.len() },
        };
        Some((plan, spots.into_iter().map(|spot| spot.span).collect()))
    }

    /// Makes these holes true, or one of them gone: in the manifest, and then for reads and jobs.
    fn change_holes(&self, set: &[Hole], gone: Option<&Hole>) -> Result<()> {
        let gone_fact = gone.map(|hole| Fact::HoleGone {
            table: hole.table,
            offset: hole.offset,
        });
        let facts = set.iter().cloned().map(Fact::Hole).chain(gone_fact);
        let edit = Edit {
            facts: facts.collect(),
        };
        self.install(edit, |view| {
            let mut holes = view.holes.to_vec();
            let is_other = |hole: &Hole| {
                let mut changed = set.iter().chain(gone);
                changed.all(|it| !it.is_of(hole.table, hole.offset))
            };
            holes.retain(is_other);
            holes.extend_from_slice(set);
            view.holes = Arc::from(holes);
        })?;
        for hole in set.iter().filter(|hole| !hole.is_dropped) {
            self.holes.begin(hole);
        }
        if let Some(hole) = gone {
            self.holes.end(hole);
        }
        Ok(())
    }

    /// The next table that a drop waits for, and the damaged spans of it that may be left out.
    pub(crate) fn drop_plan(&self, tree: &Tree, holes: &[Hole]) -> Option<(Plan, Vec<KeySpan>)> {
        let is_wanted = |table: &TableMeta| {
            let mut holes = holes.iter();
            holes.any(|hole| self.holes.wants(hole, table))
        };
        let spans_of = |table: &TableMeta| -> Vec<KeySpan> {
            let known = self.damage.spans_of(table.id);
            let stand_in = |span: &KeySpan| holes.iter().any(|it| it.stands_for(table, span));
            known.into_iter().filter(stand_in).collect()
        };
        let is_readable =
            |table: &TableMeta, spans: &[KeySpan]| self.damage.is_readable_without(table.id, spans);
        let mut tables = tree.tables().filter(|(_, table)| is_wanted(table.meta()));
        tables.find_map(|(level, table)| {
            let spans = spans_of(table.meta());
            is_readable(table.meta(), &spans).then(|| {
                let plan = Plan {
                    inputs: vec![table.meta().id],
                    level,
                    is_move: false,
                    reason: PlanReason::Hole { level },
                };
                (plan, spans)
            })
        })
    }

    /// Could a record that the other owners have purged come back when the damaged block of the
    /// table in this span goes? The block may hold the tombstone that hides it here.
    ///
    /// A live value hides older ones, too. But a record above it that all owners purged is a
    /// delete. This folder has that in another table, where it stays as long as this table is
    /// there.
    fn may_reappear(&self, tree: &Tree, id: u64, span: &KeySpan) -> bool {
        let ages = self.age_horizon().clock;
        let horizon = self.purge_horizon().max(Version {
            hlc: ages,
            origin: u32::MAX,
            rmw: u32::MAX,
        });
        if horizon.hlc == 0 {
            return false;
        }
        let Some((_, damaged)) = tree.tables().find(|(_, t)| t.meta().id == id) else {
            return false;
        };
        let damaged = damaged.meta();
        let has_deletes = damaged.tombstones > 0 || damaged.expiring > 0;
        let hides = has_deletes || span.first.first() < Some(&Space::User.byte());
        let is_older =
            |oldest: Version| oldest <= horizon && damaged.version_max.is_newer_than(oldest);
        let may_hold = |table: &TableMeta| {
            table.id != id
                && is_older(table.version_min)
                && table.smallest <= span.last
                && span.first <= table.largest
        };
        // A memtable, or the log, may hold older records than any table.
        let in_memory = is_older(self.segments.version_min());
        hides && (in_memory || tree.tables().any(|(_, t)| may_hold(t.meta())))
    }

    /// Spans of keys in which records of this folder are lost. Two scrubs could not read them, or a
    /// lost record may have hidden them there. A span is listed until it is whole.
    pub fn damaged_spans(&self) -> Vec<DamagedSpan> {
        let holes = Arc::clone(&self.view().holes);
        let mut spans = self.damage.spans();
        spans.retain(|span| {
            let mut holes = holes.iter();
            !holes.any(|hole| hole.is_of(span.table, span.offset))
        });
        spans.extend(holes.iter().map(Hole::as_lost));
        spans
    }

    /// Notes that the store holds again each record that `span` has lost, or a newer one. The
    /// damaged blocks are of no use any more. A later `maintain(Compact)` writes the table without
    /// them. If they may hide records that the other owners have purged, it makes a hole of the
    /// span instead. That is a damaged span under another id, and wants another repair.
    ///
    /// A caller that says so too early loses those records for good.
    pub fn repaired(&self, span: &DamagedSpan) {
        let view = self.view();
        let hole = view.holes.iter().find(|hole| hole.as_lost().id == span.id);
        match hole {
            // Under a later horizon others may have purged records that this drop has left. One
            // that has dropped nothing yet does so next.
            Some(hole)
                if hole.is_dropped
                    && (hole.clock == 0 || self.age_horizon().clock <= hole.clock) =>
            {
                self.holes.repaired(hole);
            }
            Some(_) => {}
            None => self.damage.repaired(span),
        }
    }

    /// The repair of `span` waits: owners that it needs cannot be asked. Once another damaged block
    /// of its table is repaired, a hole takes the place of this one, and the table is written anew
    /// without both. The span stays damaged, under another id, until it is repaired.
    pub fn repair_waits(&self, span: &DamagedSpan) {
        self.damage.waits(span, true);
    }

    /// The repair of `span` waits no more.
    pub fn repair_goes_on(&self, span: &DamagedSpan) {
        self.damage.waits(span, false);
    }
}
