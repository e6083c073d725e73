//! The dirty keys of a watch: those that it has to look at.
//!
//! Invariants
//! 1. `of_pass` and `suspects` count the keys with these marks.
//! 2. A key that a change made dirty is settled by its version, or by all owners. One that is dirty
//!    for another reason is settled by a look that began later.
//!
//! Not here: looks, which all watches share (`hub.rs`).

use crate::owners::FeedId;
use crate::token::TokenFeed;
use crate::work::LookFound;
use bytes::Bytes;
use dendra_base::{Now, Version};
use std::collections::BTreeMap;

/// A change of a member.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChangeOf {
    pub(crate) source: FeedId,
    pub(crate) number: u64,
    /// Before it the member had told all changes before this epoch.
    pub(crate) told_epoch: u64,
}

/// Why a key is dirty.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reason {
    /// A look has to show this version, or a newer one.
    pub(crate) floor: Version,
    /// The first change of each member that made it dirty: its number, and the epoch up to which
    /// the member had told all.
    first: BTreeMap<FeedId, (u64, u64)>,
    /// When the last reason came.
    since_us: u64,
    /// The last look that had begun before it: only a later one shows all that was there.
    behind_look: u64,
    /// A page found the key, or its value may have ended: that is no change.
    is_suspect: bool,
    /// The loud pass over the range found it.
    pub(crate) is_of_pass: bool,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct DirtyKeys {
    keys: BTreeMap<Bytes, Reason>,
    of_pass: usize,
    suspects: usize,
    /// Keys that are dirty no more, and that the hub does not know of yet.
    dropped: Vec<Bytes>,
}

impl DirtyKeys {
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &Bytes> {
        self.keys.keys()
    }

    pub(crate) fn has(&self, key: &Bytes) -> bool {
        self.keys.contains_key(key)
    }

    pub(crate) fn reason(&self, key: &Bytes) -> Option<&Reason> {
        self.keys.get(key)
    }

    /// Are keys of the loud pass among them?
    pub(crate) fn has_of_pass(&self) -> bool {
        self.of_pass > 0
    }

    /// Are keys among them that no change made dirty?
    pub(crate) fn has_suspects(&self) -> bool {
        self.suspects > 0
    }

    /// A member changed the key.
    pub(crate) fn change(
        &mut self,
        now: Now,
        change: ChangeOf,
        key: &Bytes,
        version: Version,
        last_look: u64,
    ) {
        let reason = self.keys.entry(key.clone()).or_default();
        if version.is_newer_than(reason.floor) {
            reason.floor = version;
        }
        let first = (change.number, change.told_epoch);
        reason.first.entry(change.source).or_insert(first);
        (reason.since_us, reason.behind_look) = (now.mono_us, last_look);
    }

    /// The key may have changed without a change.
    pub(crate) fn suspect(
        &mut self,
        now: Now,
        key: &Bytes,
        (floor, is_of_pass): (Version, bool),
        last_look: u64,
    ) {
        let reason = self.keys.entry(key.clone()).or_default();
        if floor.is_newer_than(reason.floor) {
            reason.floor = floor;
        }
        (reason.since_us, reason.behind_look) = (now.mono_us, last_look);
        self.suspects += usize::from(!reason.is_suspect);
        reason.is_suspect = true;
        if is_of_pass && !reason.is_of_pass {
            reason.is_of_pass = true;
            self.of_pass += 1;
        }
    }

    /// A look showed the key. Is it settled?
    pub(crate) fn settle(
        &mut self,
        now: Now,
        key: &Bytes,
        found: &LookFound,
        (look, write_us_max): (u64, u64),
    ) -> bool {
        let Some(reason) = self.keys.get(key) else {
            return true;
        };
        let version = found
            .cell
            .as_ref()
            .map_or(Version::ZERO, |cell| cell.version);
        let is_later = look > reason.behind_look;
        let is_unseen = now.mono_us.saturating_sub(reason.since_us) > write_us_max;
        let is_shown = !reason.floor.is_newer_than(version);
        let is_final = is_later && (found.is_complete || is_unseen);
        let is_settled = if reason.is_suspect {
            is_final || (is_later && is_shown)
        } else {
            is_final || is_shown
        };
        if is_settled {
            self.of_pass -= usize::from(reason.is_of_pass);
            self.suspects -= usize::from(reason.is_suspect);
            self.keys.remove(key);
        }
        is_settled
    }

    /// No key is dirty any more.
    pub(crate) fn clear(&mut self) {
        self.dropped
            .extend(std::mem::take(&mut self.keys).into_keys());
        (self.of_pass, self.suspects) = (0, 0);
    }

    /// Keys that `clear` took, since the last call.
    pub(crate) fn take_dropped(&mut self) -> Vec<Bytes> {
        let mut dropped = std::mem::take(&mut self.dropped);
        dropped.retain(|key| !self.keys.contains_key(key));
        dropped
    }

    /// Puts cursors back to the first change that is still dirty here. Is each changed key behind
    /// one of them? The member that told of it may not count any more.
    pub(crate) fn hold_back(&self, feeds: &mut BTreeMap<FeedId, TokenFeed>) -> bool {
        self.keys.values().all(|reason| {
            let mut is_held = reason.first.is_empty();
            for (source, (number, epoch)) in &reason.first {
                if let Some(feed) = feeds.get_mut(source) {
                    feed.cursor.next = feed.cursor.next.min(*number);
                    feed.epoch = feed.epoch.min(*epoch);
                    is_held = true;
                }
            }
            is_held
        })
    }
}
