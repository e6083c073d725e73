//! One watch: the keys that it has to look at, and what its client gets next.
//!
//! ```text
//! follows each member:  Absent ─► Joined            before the pass begins: it counts
//!                       Absent ─► Young ─► Joined   later: when the others told what it had missed
//!                       Behind ─► Joined            from a token's cursor to where the feed is
//! events:               pass over the range ─► dirty keys ─► Put …  ─► Live
//!                       changes, ends       ─► dirty keys ─► Put, Delete, Expire …
//! ```
//!
//! Invariants
//! 1. Members that count have told all their changes since the pass began, or will: those of their
//!    feed, from its cursor on. They meet every majority, or the watch begins anew.
//! 2. A token names the members that count alone, and for each the first change that is still a
//!    dirty key here, or else the next one.
//! 3. Dirty keys, ends, what was told and what waits are bounded.
//!
//! Not here: feeds and looks, which all watches of a node share (`hub.rs`).

use crate::dirty::{ChangeOf, DirtyKeys};
use crate::ends::Ends;
use crate::event::{EndReason, WatchEvent};
use crate::limits::{CLOCKS_APART_MS, DIRTY_MAX, TOKEN_AGE_MS_MAX, TOLD_MAX};
use crate::outbox::EventQueue;
use crate::owners::{FeedId, FeedOwners};
use crate::span::Span;
use crate::token::{TokenFeed, WatchToken};
use crate::told::{State, Told};
use crate::work::{LookFound, QuestionId};
use bytes::Bytes;
use dendra_base::peer::FeedCursor;
use dendra_base::{Cell, Kind, Now, Version, clock};
use std::collections::BTreeMap;

/// How the watch follows the changes of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    /// Not at all: it does not count.
    Absent,
    /// From this time on. What it did before is told by the others.
    Young { since_us: u64 },
    /// By questions of its own, from a token's cursor on.
    Behind {
        cursor: FeedCursor,
        /// Before the cursor the member had told all changes before this epoch.
        told_epoch: u64,
        open: Option<QuestionId>,
        again_us: u64,
        /// Where the feed has taken over.
        until: Option<u64>,
    },
    /// By the node's feed, since the beginning.
    Joined,
}

impl Follow {
    fn counts(self) -> bool {
        matches!(self, Follow::Behind { .. } | Follow::Joined)
    }
}

/// A pass over the range.
#[derive(Debug)]
pub(crate) struct Pass {
    /// Where it goes on.
    pub(crate) rest: Span,
    /// Keys are told. Else it looks for values that end alone.
    pub(crate) is_loud: bool,
    /// The page that is under way.
    pub(crate) open: Option<QuestionId>,
    pub(crate) again_us: u64,
    /// The page before lacked a member that is needed.
    pub(crate) is_patient: bool,
    /// Does it stand in line for its next page?
    pub(crate) is_waiting: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct RangeWatch {
    pub(crate) span: Span,
    pub(crate) follows: BTreeMap<FeedId, Follow>,
    pub(crate) pass: Option<Pass>,
    pub(crate) dirty: DirtyKeys,
    pub(crate) out: EventQueue,
    told: Told,
    ends: Ends,
    /// All that happened since the members that count were followed is told, or will be.
    is_anchored: bool,
    is_live: bool,
    /// The client does not want the state that is there already.
    wants_changes_alone: bool,
    /// Looks up to this one had begun before the watch, or before its pass: its client may have
    /// seen later states, and a page that says nothing of a key was later.
    first_look: u64,
}

impl RangeWatch {
    pub(crate) fn new(now: Now, span: Span, heartbeat_us: u64, last_look: u64) -> RangeWatch {
        RangeWatch {
            span,
            follows: BTreeMap::new(),
            pass: None,
            dirty: DirtyKeys::default(),
            out: EventQueue::new(now, heartbeat_us),
            told: Told::new(TOLD_MAX),
            ends: Ends::new(now),
            is_anchored: false,
            is_live: false,
            wants_changes_alone: false,
            first_look: last_look,
        }
    }

    /// Goes on from a token, if that is possible with these owners.
    pub(crate) fn resume(&mut self, now: Now, owners: &FeedOwners, token: &WatchToken) {
        for (source, feed) in &token.feeds {
            if owners.members().contains(source) {
                let behind = Follow::Behind {
                    cursor: feed.cursor,
                    told_epoch: feed.epoch,
                    open: None,
                    again_us: 0,
                    until: None,
                };
                self.follows.insert(*source, behind);
            }
        }
        // Other owners may have confirmed changes meanwhile: then all members have to tell theirs.
        let is_sure = if token.epoch == owners.epoch() {
            self.is_covered(owners)
        } else {
            let known: Vec<FeedId> = token.feeds.keys().copied().collect();
            known == owners.members()
        };
        self.wants_changes_alone = true;
        self.ends.resume(token.wall_ms);
        let is_young = now.wall_ms.saturating_sub(token.wall_ms) <= TOKEN_AGE_MS_MAX;
        if is_sure && is_young {
            self.anchor();
        } else {
            self.reset();
        }
    }

    /// Tells changes from now on alone.
    pub(crate) fn skip_state(&mut self) {
        self.wants_changes_alone = true;
    }

    pub(crate) fn is_live(&self) -> bool {
        self.is_live
    }

    /// The members that count meet every majority of each key's owners.
    fn is_covered(&self, owners: &FeedOwners) -> bool {
        owners.meet_every_majority(|source| self.follow(source).counts())
    }

    fn has_joined(&self, owners: &FeedOwners) -> bool {
        owners.meet_every_majority(|source| self.follow(source) == Follow::Joined)
    }

    fn follow(&self, source: FeedId) -> Follow {
        self.follows.get(&source).copied().unwrap_or(Follow::Absent)
    }

    fn anchor(&mut self) {
        self.is_anchored = true;
        self.begin_pass(!self.wants_changes_alone);
    }

    fn begin_pass(&mut self, is_loud: bool) {
        self.pass = Some(Pass {
            rest: self.span.clone(),
            is_loud,
            open: None,
            again_us: 0,
            is_patient: false,
            is_waiting: false,
        });
    }

    /// Begins anew with the whole state.
    fn reset(&mut self) {
        if self.out.has_end() {
            return;
        }
        for follow in self.follows.values_mut() {
            *follow = match follow {
                Follow::Absent | Follow::Behind { .. } => Follow::Absent,
                Follow::Young { .. } | Follow::Joined => Follow::Joined,
            };
        }
        (self.is_anchored, self.is_live) = (false, false);
        self.wants_changes_alone = false;
        self.pass = None;
        self.dirty.clear();
        self.told.clear();
        self.ends.clear();
        self.out.clear();
        self.out.push(WatchEvent::Reset);
    }

    /// The node's feed of a member tells its changes in the range from this number on.
    pub(crate) fn join(&mut self, now: Now, source: FeedId, next: u64) {
        let is_anchored = self.is_anchored;
        let follow = self.follows.entry(source).or_insert(Follow::Absent);
        match follow {
            Follow::Absent if is_anchored => {
                let since_us = now.mono_us;
                *follow = Follow::Young { since_us };
            }
            Follow::Absent => *follow = Follow::Joined,
            Follow::Behind { until, .. } if until.is_none() => *until = Some(next),
            Follow::Behind { .. } | Follow::Young { .. } | Follow::Joined => {}
        }
    }

    /// Changes of a member are lost. The others tell what it confirmed, if the owners since
    /// `feed_epoch`, up to which it had told all, are those of now.
    pub(crate) fn lose(&mut self, source: FeedId, feed_epoch: u64, owners: &FeedOwners) {
        let before = self.follows.insert(source, Follow::Absent);
        let told_epoch = match before {
            Some(Follow::Behind { told_epoch, .. }) => told_epoch,
            Some(Follow::Joined) => feed_epoch,
            Some(Follow::Young { .. } | Follow::Absent) | None => return,
        };
        if self.is_anchored && told_epoch != owners.epoch() {
            self.reset();
        }
    }

    /// The owners change. A member that goes may have confirmed what it has not told yet.
    pub(crate) fn adopt(&mut self, before: &FeedOwners, owners: &FeedOwners) {
        let follows = self.follows.len();
        self.follows
            .retain(|source, _| owners.members().contains(source));
        if self.is_anchored && self.follows.len() < follows && !self.is_covered(before) {
            self.reset();
        }
    }

    /// Is it still to learn where the node's feed of this member is?
    pub(crate) fn wants_join(&self, source: FeedId) -> bool {
        match self.follow(source) {
            Follow::Absent => true,
            Follow::Behind { until, .. } => until.is_none(),
            Follow::Young { .. } | Follow::Joined => false,
        }
    }

    /// Is it a version that no write under way had when the member was followed late? A member that
    /// loads copies tells of many: others told of them when they were written.
    pub(crate) fn is_old_news(
        &self,
        now: Now,
        source: FeedId,
        version: Version,
        write_us_max: u64,
    ) -> bool {
        let Follow::Young { since_us } = self.follow(source) else {
            return false;
        };
        let since_ms = now
            .wall_ms
            .saturating_sub(now.mono_us.saturating_sub(since_us) / 1_000);
        // That of a conditional write shows when its base was written, if any time at all.
        let is_time = version.rmw == 0 && version.hlc >= clock::CLOCK_MIN;
        let written_ms = clock::date_ms(version.hlc).filter(|_| is_time);
        written_ms.is_some_and(|ms| ms + write_us_max / 1_000 + CLOCKS_APART_MS < since_ms)
    }

    /// Are there members that do not count yet?
    pub(crate) fn may_grow(&self) -> bool {
        let mut follows = self.follows.values();
        follows.any(|follow| matches!(follow, Follow::Young { .. }))
    }

    /// Members that were followed late count once all others have told what came before, and no
    /// write of that time is under way any more. The others must be enough by themselves: what came
    /// before has no other witness.
    pub(crate) fn grow(
        &mut self,
        owners: &FeedOwners,
        write_us_max: u64,
        caught_up_us: impl Fn(FeedId) -> u64,
    ) {
        if !self.is_covered(owners) {
            return;
        }
        let counted = self.follows.iter().filter(|(_, follow)| follow.counts());
        let told = |(source, follow): (&FeedId, &Follow)| match follow {
            Follow::Joined => caught_up_us(*source),
            Follow::Absent | Follow::Young { .. } | Follow::Behind { .. } => 0,
        };
        let told_us = counted.map(told).min().unwrap_or(0);
        for follow in self.follows.values_mut() {
            if matches!(follow, Follow::Young { since_us } if *since_us + write_us_max < told_us) {
                *follow = Follow::Joined;
            }
        }
    }

    /// The watch has what it needs from its members: the pass may begin, or is of use.
    pub(crate) fn go_on(&mut self, owners: &FeedOwners, last_look: u64) {
        if !self.is_anchored {
            if self.has_joined(owners) {
                self.first_look = last_look;
                self.anchor();
            }
        } else if !self.is_covered(owners) {
            self.reset();
        } else if !self.is_live
            && !self.out.has_end()
            && self.pass.is_none()
            && !self.dirty.has_of_pass()
            && self.has_joined(owners)
        {
            self.is_live = true;
            self.out.push(WatchEvent::Live);
        }
    }

    /// A member changed a key of the range.
    pub(crate) fn changed(
        &mut self,
        now: Now,
        change: ChangeOf,
        key: &Bytes,
        version: Version,
        last_look: u64,
    ) {
        let told = self.told.of(key);
        let is_told = told.is_some_and(|told| !version.is_newer_than(told.version));
        // A pass does not find what is gone, so nothing is told before it begins.
        let is_followed = self.is_anchored && self.follow(change.source) != Follow::Absent;
        if !is_told && is_followed && !self.out.has_end() {
            self.dirty.change(now, change, key, version, last_look);
        }
    }

    /// The pass found a key, or a value may have ended.
    pub(crate) fn suspect(
        &mut self,
        now: Now,
        key: &Bytes,
        (floor, is_of_pass): (Version, bool),
        last_look: u64,
    ) {
        if !self.out.has_end() {
            self.dirty.suspect(now, key, (floor, is_of_pass), last_look);
        }
    }

    /// Members have not answered a page: a write that is under way at them would be missed. So they
    /// count no more. Is the page of use all the same?
    pub(crate) fn go_without(
        &mut self,
        owners: &FeedOwners,
        missing: &[FeedId],
        feed_epoch: impl Fn(FeedId) -> u64,
    ) -> bool {
        let is_met = owners.meet_every_majority(|source| {
            self.follow(source).counts() && !missing.contains(&source)
        });
        if !is_met {
            return false;
        }
        for source in missing {
            self.lose(*source, feed_epoch(*source), owners);
        }
        self.is_anchored
    }

    /// A page showed a value that ends.
    pub(crate) fn note_end(&mut self, key: &Bytes, expiry_ms: Option<u64>) {
        self.ends.note_of_page(key, expiry_ms);
    }

    /// There are more dirty keys than the reader may leave behind: the watch ends.
    pub(crate) fn end_if_slow(
        &mut self,
        owners: &FeedOwners,
        feed: impl Fn(FeedId) -> Option<TokenFeed>,
    ) {
        if self.dirty.len() > DIRTY_MAX {
            self.end_as_slow(owners, feed);
        }
    }

    /// The reader leaves too much behind: it may go on from a token.
    pub(crate) fn end_as_slow(
        &mut self,
        owners: &FeedOwners,
        feed: impl Fn(FeedId) -> Option<TokenFeed>,
    ) {
        if !self.out.has_end() {
            let token = self.token(owners, feed);
            self.pass = None;
            self.dirty.clear();
            self.out.end(EndReason::SlowReader, token);
        }
    }

    /// A look showed the state of a dirty key. Is the key settled?
    pub(crate) fn looked(
        &mut self,
        now: Now,
        key: &Bytes,
        found: &LookFound,
        (look, write_us_max): (u64, u64),
    ) -> bool {
        let Some(reason) = self.dirty.reason(key) else {
            return true;
        };
        if look <= self.first_look {
            return false;
        }
        let (floor, is_of_pass) = (reason.floor, reason.is_of_pass);
        self.tell(now, key, found, floor, is_of_pass);
        self.dirty.settle(now, key, found, (look, write_us_max))
    }

    fn tell(&mut self, now: Now, key: &Bytes, found: &LookFound, floor: Version, is_of_pass: bool) {
        let is_live = |cell: &&Cell| cell.as_ref().is_live(now.wall_ms);
        let live = found.cell.as_ref().filter(is_live);
        if let Some(cell) = live {
            self.ends.note(key, cell.expiry_ms);
        }
        let is_value = |cell: &Cell| cell.kind == Kind::Value;
        let is_ended = live.is_none() && found.cell.as_ref().is_some_and(is_value);
        let version = match &found.cell {
            Some(cell) => cell.version,
            // A deletion that is purged already.
            None if found.is_complete && floor.is_newer_than(Version::ZERO) => floor,
            None => return,
        };
        let state = State { version, is_ended };
        let told = self.told.of(key);
        // The state of a range has no line for what is not there.
        let is_passed = is_of_pass && told.is_none() && floor == Version::ZERO && live.is_none();
        if is_passed || told.is_some_and(|told| told >= state) {
            return;
        }
        // A version that no owner holds any more is no bound for others.
        if found.cell.is_some() {
            self.told.note(key, state);
        }
        let key = key.clone();
        self.out.push(match live {
            Some(cell) => WatchEvent::Put {
                key,
                version,
                value: cell.value.clone(),
                expiry_ms: cell.expiry_ms,
            },
            None if is_ended => WatchEvent::Expire { key, version },
            None => WatchEvent::Delete { key, version },
        });
    }

    /// Keys whose value has ended by now.
    pub(crate) fn take_ended(&mut self, now: Now) -> Vec<Bytes> {
        let mut ended = Vec::new();
        if !self.is_anchored {
            return ended;
        }
        if !self.dirty.has_suspects() && self.pass.is_none() {
            self.ends.note_told(now);
        }
        while self.out.has_room()
            && self.dirty.len() + ended.len() < DIRTY_MAX
            && let Some(key) = self.ends.pop(now)
        {
            ended.push(key);
        }
        if self.is_live && self.pass.is_none() && self.ends.begin_pass(now) {
            self.begin_pass(false);
        }
        ended
    }

    /// When the watch wants to be looked at.
    pub(crate) fn due_us(&self, now: Now) -> Option<u64> {
        let in_us = |ms: u64| now.mono_us + ms.saturating_sub(now.wall_ms).saturating_mul(1_000);
        let (end_ms, pass_ms) = self.ends.due_ms();
        let end = end_ms.filter(|_| self.out.has_room()).map(in_us);
        let next_pass = pass_ms.filter(|_| self.is_live && self.pass.is_none());
        let page = self.pass.as_ref().filter(|pass| pass.open.is_none());
        let again = page.map(|pass| pass.again_us);
        let behind = self.follows.values().filter_map(|follow| match follow {
            Follow::Behind {
                again_us,
                open: None,
                ..
            } => Some(*again_us),
            _ => None,
        });
        let is_later = |at: &u64| *at > now.mono_us;
        let later = again.into_iter().chain(behind).filter(is_later);
        let all = end.into_iter().chain(next_pass.map(in_us)).chain(later);
        let all = all.chain(self.out.heartbeat_due_us());
        all.min().map(|at| at.max(now.mono_us + 1_000))
    }

    /// A batch of events for the client, if it waits and there are some.
    pub(crate) fn take_batch(
        &mut self,
        now: Now,
        owners: &FeedOwners,
        feed: impl Fn(FeedId) -> Option<TokenFeed>,
    ) -> Option<(Vec<WatchEvent>, Option<WatchToken>)> {
        let (events, last) = self.out.take(now)?;
        Some((events, last.unwrap_or_else(|| self.token(owners, feed))))
    }

    fn token(
        &self,
        owners: &FeedOwners,
        feed: impl Fn(FeedId) -> Option<TokenFeed>,
    ) -> Option<WatchToken> {
        let is_loud = self.pass.as_ref().is_some_and(|pass| pass.is_loud);
        if !self.is_anchored || is_loud || self.dirty.has_of_pass() {
            return None;
        }
        let of_follow = |(source, follow): (&FeedId, &Follow)| {
            let feed = match follow {
                Follow::Behind {
                    cursor, told_epoch, ..
                } => Some(TokenFeed {
                    cursor: *cursor,
                    epoch: *told_epoch,
                }),
                Follow::Joined => feed(*source),
                Follow::Absent | Follow::Young { .. } => None,
            };
            Some((*source, feed?))
        };
        let mut feeds: BTreeMap<_, _> = self.follows.iter().filter_map(of_follow).collect();
        self.dirty.hold_back(&mut feeds).then(|| WatchToken {
            epoch: owners.epoch(),
            wall_ms: self.ends.told_ms(),
            feeds,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_write_of_long_ago_is_old_news_and_a_conditional_one_never_is() {
        let wall_ms = 1_900_000_000_000;
        let now = |seconds: u64| Now {
            mono_us: seconds * 1_000_000,
            wall_ms: wall_ms + seconds * 1_000,
            wall_part_us: 0,
        };
        let version = |ago_s: u64, rmw| Version {
            hlc: (wall_ms - ago_s * 1_000) << 16,
            origin: 1,
            rmw,
        };
        let (young, joined) = (FeedId(1), FeedId(2));
        let mut watch = RangeWatch::new(now(0), Span::of_prefix(b""), 1, 0);
        watch.follows.insert(young, Follow::Young { since_us: 0 });
        watch.follows.insert(joined, Follow::Joined);
        let is_old = |source, it| watch.is_old_news(now(50), source, it, 90_000_000);
        assert!(is_old(young, version(151, 0)));
        assert!(!is_old(young, version(149, 0)), "it may be under way");
        assert!(!is_old(young, version(86_400, 1)), "its base is old");
        let created = Version {
            hlc: 7,
            origin: 1,
            rmw: 1 << 24,
        };
        assert!(!is_old(young, created));
        assert!(!is_old(joined, version(86_400, 0)), "it counts");
    }
}
