//! The newest epochs that a member knows, in a few words each.
//!
//! Invariants
//! 1. At most `HISTORY_ENTRIES_MAX` of them are kept.
//! 2. Of epochs that only raised horizons the last few are kept, here and in the folder. When such
//!    an epoch is chosen, each member has the one before: none asks for an earlier record.
//!
//! Not here: records (`epoch/record/mod.rs`).

use super::face::HistoryEntry;
use crate::epoch::record::{EpochChange, EpochMember, EpochRecord};
use crate::limits::{HISTORY_ENTRIES_MAX, HORIZON_EPOCHS_KEPT};
use std::collections::VecDeque;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct History {
    /// The oldest first.
    entries: VecDeque<HistoryEntry>,
}

impl History {
    /// `after` was learnt; it follows `before`, if that is known. Returns the epochs that no member
    /// will ask for any more: their records may be dropped.
    pub(super) fn learnt(
        &mut self,
        before: Option<&EpochRecord>,
        after: &EpochRecord,
        learnt_ms: u64,
        why: Option<String>,
    ) -> Vec<u64> {
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
        if after.change() != EpochChange::Forgot {
            return Vec::new();
        }
        let is_over = |entry: &HistoryEntry| {
            entry.change == EpochChange::Forgot
                && entry.epoch + HORIZON_EPOCHS_KEPT <= after.epoch()
        };
        let over = self.entries.iter().filter(|entry| is_over(entry));
        let over: Vec<u64> = over.map(|entry| entry.epoch).collect();
        self.entries.retain(|entry| !is_over(entry));
        over
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
