//! The verdict on a season: its answers, and the stores at its end.
//!
//! Invariants
//! 1. Stores are looked at past every protocol; answers are judged by the checkers of all runs.
//!
//! Not here: the course of a season (`mod.rs`), the rules for answers (`check/`).

use super::{DeletesReport, SoakKeys};
use crate::check::linear::PendingRule;
use crate::check::store::OwnerCopy;
use crate::check::{self, Disks, Rule, Violation};
use crate::history::{ClientEnd, ClientOp, Wish};
use crate::store::Store;
use crate::world::names::key_number;
use crate::world::state::World;
use bytes::Bytes;
use dendra_base::{Key, Kind, Space};

impl DeletesReport {
    fn count(&mut self, history: &[ClientOp]) {
        for op in history {
            match (op.wish, op.end) {
                (_, ClientEnd::NotApplied | ClientEnd::Unknown) => self.unknown += 1,
                (Wish::Put { .. }, ClientEnd::Written(_)) => self.creations += 1,
                (Wish::Delete { .. }, ClientEnd::Written(_)) => self.deletes += 1,
                (Wish::Get, _) => self.reads += 1,
                _ => {}
            }
        }
    }
}

impl World<'_> {
    /// A record that is not of a kept key, or of the protocol: where, and whether it is a value.
    pub(super) fn left(&self, keys: &SoakKeys) -> Option<Violation> {
        let of_store = |(at, store): (usize, &Store)| {
            let kept = |key: &Key| {
                let name = Bytes::copy_from_slice(key.raw());
                key_number(&name).is_some_and(|number| keys.kept.contains_key(&number))
            };
            let user = store.cells(Space::User).find(|(key, _)| !kept(key));
            let space = [Space::Protocol, Space::Hint].into_iter();
            let other = || space.clone().find_map(|space| store.cells(space).next());
            let (key, cell) = user.or_else(other)?;
            let is_back = user.is_some() && cell.kind == Kind::Value;
            let rule = if is_back {
                Rule::Resurrected
            } else {
                Rule::Leak
            };
            let name = Bytes::copy_from_slice(key.raw());
            let ops = self.history.iter();
            let ops = ops.filter(|op| Some(op.key) == key_number(&name) && op.wish.is_write());
            let ops: Vec<&ClientOp> = ops.collect();
            let what = format!("m{at} still has {key:?}: {cell:?}, behind {ops:?}");
            Some(Violation::new(rule, what))
        };
        let stores = self.members.iter().enumerate();
        let mut stores = stores.filter_map(|(at, it)| Some((at, it.store.as_ref()?)));
        stores.find_map(of_store)
    }

    /// Judges the season, and forgets its history.
    pub(super) fn judge_season(&mut self, keys: &mut SoakKeys, report: &mut DeletesReport) {
        if !self.violations.is_empty() {
            return;
        }
        let running = self.members.iter().filter(|it| it.is_running()).count();
        if running < self.members.len() {
            self.violate(Rule::NotAvailable, "a member does not come back");
        }
        let left = self.left(keys);
        self.violations.extend(left);
        self.judge_kept(keys);
        let history = std::mem::take(&mut self.history);
        self.forgotten_ops += history.len() as u32;
        for client in &mut self.clients {
            client.seen.clear();
        }
        self.judge_versions(keys, &history);
        report.count(&history);
        let first = history.first().map_or(0, |op| op.number);
        let kept = keys.kept.values().filter(|op| op.number < first);
        let all: Vec<ClientOp> = kept.cloned().chain(history).collect();
        self.violations
            .extend(check::versions::check(&all, Disks::Whole));
        let (found, searches) = check::linear::check(&all, PendingRule::StaysOpen);
        self.violations.extend(found);
        report.searches.add(searches);
    }

    /// Each version of the season is newer than all of the seasons before it.
    fn judge_versions(&mut self, keys: &mut SoakKeys, history: &[ClientOp]) {
        let before = keys.newest;
        for op in history {
            let ClientEnd::Written(version) = op.end else {
                continue;
            };
            keys.newest = keys.newest.max(version);
            if version <= before {
                let what = format!("{before} was told in an earlier season, and {op:?}");
                self.violate(Rule::VersionOrder, what);
            }
        }
    }

    /// Each kept record is at all its owners, as it was written.
    fn judge_kept(&mut self, keys: &SoakKeys) {
        // There are further owners beyond those of the replication factor.
        let lost = keys.kept.iter().find_map(|(key, op)| {
            let ClientEnd::Written(version) = op.end else {
                return None;
            };
            let wanted = OwnerCopy::Cell(version, Some(op.number));
            let owners = &self.owners(*key)[..usize::from(op.from)];
            let copies: Vec<OwnerCopy> = owners.iter().map(|at| self.copy(*at, *key)).collect();
            let is_lost = copies.iter().any(|copy| *copy != wanted);
            is_lost.then(|| format!("key {key}: {op:?} is not at all of {owners:?}: {copies:?}"))
        });
        if let Some(what) = lost {
            self.violate(Rule::Lost, what);
        }
    }
}
