//! The newest epochs that a member knows, in a few words each.
//!
//! Invariants
//! 1. At most `HISTORY_ENTRIES_MAX` of them are kept; the folder has them all.
//!
//! Not here: records (`topology/record/mod.rs`).

use super::face::HistoryEntry;
use crate::limits::HISTORY_ENTRIES_MAX;
use crate::topology::record::{EpochChange, EpochMember, EpochRecord};
use std::collections::VecDeque;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The oldest first.
    entries: VecDeque<HistoryEntry>,
}

impl History {
    /// `after` was learnt; it follows `before`, if that is known.
    pub(super) fn learnt(
        &mut self,
        before: Option<&EpochRecord>,
        after: &EpochRecord,
        learnt_ms: u64,
        why: Option<String>,
    ) {
        let other = |one: &EpochRecord, other: Option<&EpochRecord>| -> Vec<String> {
            let is_new =
                |member: &&EpochMember| other.is_none_or(|other| other.member(member.id).is_none());
            let members = one.members().iter().filter(is_new);
            members.map(|member| member.place.url.clone()).collect()
        };
        let (mut begun, mut settled) = (0, 0);
        if let Some(before) = before {
            for partition in after.owners().all() {
                match (before.moving(partition), after.moving(partition)) {
                    (None, Some(_)) => begun += 1,
                    (Some(_), None) if after.change() == EpochChange::Moved => settled += 1,
                    _ => {}
                }
            }
        }
        let plan = |record: &EpochRecord| record.plan().map(|plan| plan.id);
        if self.entries.len() == HISTORY_ENTRIES_MAX {
            self.entries.pop_front();
        }
        self.entries.push_back(HistoryEntry {
            epoch: after.epoch(),
            change: after.change(),
            learnt_ms,
            plan: plan(after).or(before.and_then(plan)),
            came: other(after, before),
            went: before.map_or(Vec::new(), |before| other(before, Some(after))),
            begun,
            settled,
            why,
        });
    }

    /// The newest entries, the newest first.
    pub(super) fn newest(&self, entries: usize) -> Vec<HistoryEntry> {
        self.entries.iter().rev().take(entries).cloned().collect()
    }

    /// Why the newest epoch stopped a plan without an order.
    pub(super) fn newest_why(&self) -> Option<&str> {
        self.entries.back()?.why.as_deref()
    }

    /// When this member learnt of an epoch.
    pub(super) fn learnt_ms(&self, epoch: u64) -> Option<u64> {
        let mut entries = self.entries.iter();
        let entry = entries.find(|entry| entry.epoch == epoch);
        entry.map(|entry| entry.learnt_ms)
    }
}
