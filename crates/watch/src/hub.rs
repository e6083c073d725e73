//! All watches of an event loop: the feeds that they share, and the looks at dirty keys.
//!
//! ```text
//! open, more, close ──► Watch ◄── fed: changes of a member's feed, or of a watch that is behind
//! looked ─────────────►   │   ◄── passed: keys of the range, and when their values end
//! link, adopt, tick       ▼
//!                        Work:  Ask a member for changes · Look at a key · Page of keys · Tell a client
//! ```
//!
//! Invariants
//! 1. Each `Ask`, `Look` and `Page` is answered once, perhaps by a failure; an answer to a watch
//!    that is gone is dropped.
//! 2. One question a feed, one look a key and one page a watch are under way, and at most
//!    `LOOKS_MAX` looks.
//! 3. While there is no watch, there is no work.
//! 4. A `Tell` follows a `more`, and only one.
//! 5. Between steps all watches have at most `DIRTY_KEYS_MAX` dirty keys.
//!
//! Not here: what a look and a page are (crate `node`).

use crate::dirty::ChangeOf;
use crate::limits::{
    DIRTY_KEYS_KEPT, DIRTY_KEYS_MAX, FEED_AGAIN_US, FEED_TIMEOUT_US, LOOK_AGAIN_US,
    LOOK_AGAIN_US_MAX, LOOKS_MAX, PAGES_MAX, PASS_DIRTY, READY_KEYS_MAX, WIDE_FROM_TRY,
};
use crate::owners::{FeedId, FeedOwners};
use crate::span::Span;
use crate::token::TokenFeed;
use crate::watch::{Follow, RangeWatch};
use crate::work::{
    Fed, FeedQuestion, From, KeyPage, Looked, PageShows, Passed, QuestionId, WatchId, Work,
};
use bytes::Bytes;
use dendra_base::peer::{Change, FeedCursor};
use dendra_base::{Now, Version};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[derive(Debug, Default)]
struct Feed {
    is_up: bool,
    cursor: Option<FeedCursor>,
    open: Option<OpenFeed>,
    again_us: u64,
    /// All changes before this time were told.
    caught_up_us: u64,
    /// All changes before this epoch were told.
    told_epoch: u64,
}

impl Feed {
    fn of_token(&self) -> Option<TokenFeed> {
        Some(TokenFeed {
            cursor: self.cursor?,
            epoch: self.told_epoch,
        })
    }
}

#[derive(Debug)]
struct OpenFeed {
    id: QuestionId,
    asked_us: u64,
    /// The epoch then.
    epoch: u64,
    span: Span,
}

/// A dirty key, for all watches.
#[derive(Debug, Default)]
struct KeyLook {
    watches: BTreeSet<WatchId>,
    /// Number of the look under way.
    open: Option<u64>,
    tries: u32,
    /// The key stands in `ready`.
    is_ready: bool,
    /// No watch with room wants it now.
    is_parked: bool,
    /// When it stands in `later`.
    later_us: Option<u64>,
}

/// Which watches a hub has to look at for what.
#[derive(Debug, Default)]
struct WatchIndex {
    /// Watches of one key, by it.
    of_key: BTreeMap<Bytes, BTreeSet<WatchId>>,
    /// All others.
    of_ranges: BTreeSet<WatchId>,
    /// By member: watches that are still to learn where its feed is.
    unjoined: BTreeMap<FeedId, BTreeSet<WatchId>>,
    /// Watches that are not live, or follow a member that does not count yet.
    restless: BTreeSet<WatchId>,
    /// Questions of watches that are behind.
    behind: BTreeMap<QuestionId, WatchId>,
    /// Watches with dirty keys, and how many.
    dirty: BTreeMap<WatchId, usize>,
    dirty_keys: usize,
}

/// Pages under way, and watches that wait for one.
#[derive(Debug, Default)]
struct PageLine {
    open: usize,
    waiting: VecDeque<WatchId>,
}

/// When watches want to be looked at.
#[derive(Debug, Default)]
struct Alarms {
    next: BTreeSet<(u64, WatchId)>,
    of: BTreeMap<WatchId, u64>,
}

impl WatchIndex {
    fn enter(&mut self, id: WatchId, span: &Span) {
        match span.only_key() {
            Some(key) => drop(self.of_key.entry(key.clone()).or_default().insert(id)),
            None => drop(self.of_ranges.insert(id)),
        }
    }

    fn leave(&mut self, id: WatchId, span: &Span) {
        if let Some(key) = span.only_key()
            && let Some(of_key) = self.of_key.get_mut(key)
        {
            of_key.remove(&id);
            if of_key.is_empty() {
                self.of_key.remove(key);
            }
        }
        self.of_ranges.remove(&id);
        self.restless.remove(&id);
        for unjoined in self.unjoined.values_mut() {
            unjoined.remove(&id);
        }
        self.count_dirty(id, 0);
    }

    fn count_dirty(&mut self, id: WatchId, len: usize) {
        let before = match len {
            0 => self.dirty.remove(&id),
            _ => self.dirty.insert(id, len),
        };
        self.dirty_keys = self.dirty_keys - before.unwrap_or(0) + len;
    }

    /// Watches whose span may have this key.
    fn may_have(&self, key: &Bytes) -> Vec<WatchId> {
        let of_key = self.of_key.get(key).into_iter().flatten();
        of_key.chain(&self.of_ranges).copied().collect()
    }

    /// A watch may have changed what it waits for.
    fn see(&mut self, id: WatchId, watch: &RangeWatch, members: &[FeedId]) {
        self.count_dirty(id, watch.dirty.len());
        if watch.may_grow() || !watch.is_live() {
            self.restless.insert(id);
        } else {
            self.restless.remove(&id);
        }
        for member in members {
            let unjoined = self.unjoined.entry(*member).or_default();
            if watch.wants_join(*member) {
                unjoined.insert(id);
            } else {
                unjoined.remove(&id);
            }
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Hub {
    owners: FeedOwners,
    watches: BTreeMap<WatchId, RangeWatch>,
    feeds: BTreeMap<FeedId, Feed>,
    /// Span of all watches.
    hull: Option<Span>,
    looks: BTreeMap<Bytes, KeyLook>,
    ready: VecDeque<Bytes>,
    later: BTreeSet<(u64, Bytes)>,
    open_looks: usize,
    index: WatchIndex,
    pages: PageLine,
    /// When each watch wants to be looked at.
    alarms: Alarms,
    /// Watches to look at in this step.
    touched: BTreeSet<WatchId>,
    questions: QuestionId,
    /// Number of the last look that was begun.
    last_look: u64,
    write_us_max: u64,
}

impl Hub {
    /// A hub without watches. No member has a link yet.
    ///
    /// No write is under way for longer than `write_us_max`.
    pub fn new(owners: FeedOwners, write_us_max: u64) -> Hub {
        let mut hub = Hub {
            owners: FeedOwners::new(0, Vec::new(), []),
            watches: BTreeMap::new(),
            feeds: BTreeMap::new(),
            hull: None,
            looks: BTreeMap::new(),
            ready: VecDeque::new(),
            later: BTreeSet::new(),
            open_looks: 0,
            index: WatchIndex::default(),
            pages: PageLine::default(),
            alarms: Alarms::default(),
            touched: BTreeSet::new(),
            questions: 0,
            last_look: 0,
            write_us_max,
        };
        hub.set_owners(owners);
        hub
    }

    /// How many watches there are.
    pub fn len(&self) -> usize {
        self.watches.len()
    }

    /// Is there no watch?
    pub fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    /// When `tick` is wanted at the latest.
    pub fn due_us(&self) -> Option<u64> {
        if self.watches.is_empty() {
            return None;
        }
        let alarm = self.alarms.next.first().map(|(at, _)| *at);
        let later = self.later.first().map(|(at, _)| *at);
        let may_ask = self.may_ask();
        let feeds = self.feeds.values();
        let feeds = feeds.filter(|feed| feed.is_up && (may_ask || feed.open.is_some()));
        let feeds = feeds.map(|feed| match &feed.open {
            Some(open) => open.asked_us + FEED_TIMEOUT_US,
            None => feed.again_us,
        });
        feeds.chain(alarm).chain(later).min()
    }

    /// A client watches `span`.
    pub fn open(
        &mut self,
        now: Now,
        id: WatchId,
        span: Span,
        from: &From,
        heartbeat_us: u64,
        work: &mut Vec<Work>,
    ) {
        let mut watch = RangeWatch::new(now, span, heartbeat_us, self.last_look);
        match from {
            From::State => {}
            From::Now => watch.skip_state(),
            From::Token(token) => watch.resume(now, &self.owners, token),
        }
        let hull = match &self.hull {
            Some(hull) => hull.hull(&watch.span),
            None => watch.span.clone(),
        };
        self.hull = Some(hull);
        for (source, feed) in &self.feeds {
            if let (Some(open), Some(cursor)) = (&feed.open, feed.cursor)
                && open.span.covers(&watch.span)
            {
                watch.join(now, *source, cursor.next);
            }
        }
        self.index.enter(id, &watch.span);
        self.watches.insert(id, watch);
        self.touched.insert(id);
        self.work(now, work);
    }

    /// Do looks keep up with the changes that were told?
    fn may_ask(&self) -> bool {
        self.ready.len() < READY_KEYS_MAX
    }

    /// The client takes more events.
    pub fn more(&mut self, now: Now, id: WatchId, work: &mut Vec<Work>) {
        let Some(watch) = self.watches.get_mut(&id) else {
            return;
        };
        watch.out.is_wanted = true;
        self.touched.insert(id);
        self.work(now, work);
    }

    /// The client is gone.
    pub fn close(&mut self, id: WatchId) {
        let Some(watch) = self.watches.remove(&id) else {
            return;
        };
        self.index.leave(id, &watch.span);
        self.touched.remove(&id);
        if let Some(at) = self.alarms.of.remove(&id) {
            self.alarms.next.remove(&(at, id));
        }
        for key in watch.dirty.keys() {
            self.unwant(key, id);
        }
        if self.watches.is_empty() {
            self.hull = None;
            for feed in self.feeds.values_mut() {
                (feed.cursor, feed.open) = (None, None);
            }
        }
    }

    /// A link to a member came up, or went down.
    pub fn link(&mut self, now: Now, source: FeedId, is_up: bool, work: &mut Vec<Work>) {
        let Some(feed) = self.feeds.get_mut(&source) else {
            return;
        };
        feed.is_up = is_up;
        feed.again_us = 0;
        feed.open = None;
        for (id, watch) in &mut self.watches {
            if let Some(Follow::Behind { open, again_us, .. }) = watch.follows.get_mut(&source) {
                (*open, *again_us) = (None, 0);
                self.touched.insert(*id);
            }
        }
        self.work(now, work);
    }

    /// Members or owners have changed.
    pub fn adopt(&mut self, now: Now, owners: FeedOwners, work: &mut Vec<Work>) {
        for watch in self.watches.values_mut() {
            watch.adopt(&self.owners, &owners);
        }
        self.set_owners(owners);
        self.touched.extend(self.watches.keys());
        self.work(now, work);
    }

    fn set_owners(&mut self, owners: FeedOwners) {
        self.feeds
            .retain(|source, _| owners.members().contains(source));
        for source in owners.members() {
            self.feeds.entry(*source).or_default();
        }
        self.owners = owners;
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Now, work: &mut Vec<Work>) {
        while let Some((at, _)) = self.later.first()
            && *at <= now.mono_us
            && let Some((_, key)) = self.later.pop_first()
        {
            let Some(look) = self.looks.get_mut(&key) else {
                continue;
            };
            look.later_us = None;
            if !look.is_ready {
                look.is_ready = true;
                self.ready.push_back(key);
            }
        }
        while let Some((at, id)) = self.alarms.next.first().copied()
            && at <= now.mono_us
        {
            self.alarms.next.remove(&(at, id));
            self.alarms.of.remove(&id);
            self.touched.insert(id);
        }
        for feed in self.feeds.values_mut() {
            let is_late = |open: &mut OpenFeed| now.mono_us >= open.asked_us + FEED_TIMEOUT_US;
            feed.open.take_if(is_late);
        }
        self.work(now, work);
    }

    /// A member answered a question about its changes.
    pub fn fed(
        &mut self,
        now: Now,
        source: FeedId,
        id: QuestionId,
        fed: &Fed,
        work: &mut Vec<Work>,
    ) {
        if let Some(feed) = self.feeds.get_mut(&source)
            && let Some(open) = feed.open.take_if(|open| open.id == id)
        {
            self.feed_answered(now, source, &open, fed);
        } else {
            self.behind_answered(now, source, id, fed);
        }
        self.work(now, work);
    }

    fn feed_answered(&mut self, now: Now, source: FeedId, open: &OpenFeed, fed: &Fed) {
        let Some(feed) = self.feeds.get_mut(&source) else {
            return;
        };
        match fed {
            Fed::Failed => feed.again_us = now.mono_us + FEED_AGAIN_US,
            Fed::Gone(end) => {
                feed.cursor = Some(*end);
                for watch in self.watches.values_mut() {
                    watch.lose(source, feed.told_epoch, &self.owners);
                }
                feed.told_epoch = self.owners.epoch();
                self.touched.extend(self.watches.keys());
            }
            Fed::Page(page) => {
                self.take_changes(now, source, &page.changes, None);
                let Some(told) = self.feeds.get_mut(&source) else {
                    return;
                };
                if told.cursor.replace(page.cursor).is_none() {
                    told.told_epoch = self.owners.epoch();
                } else if page.is_end {
                    (told.caught_up_us, told.told_epoch) = (open.asked_us, open.epoch);
                }
                self.touched.extend(&self.index.restless);
            }
        }
    }

    /// A watch that is behind has its own questions.
    fn behind_answered(&mut self, now: Now, source: FeedId, id: QuestionId, fed: &Fed) {
        let Some(watch_id) = self.index.behind.remove(&id) else {
            return;
        };
        let is_open = self.watches.get(&watch_id).is_some_and(|watch| {
            let follow = watch.follows.get(&source);
            matches!(follow, Some(Follow::Behind { open: Some(open), .. }) if *open == id)
        });
        if !is_open {
            return;
        }
        self.touched.insert(watch_id);
        if let Fed::Page(page) = fed {
            self.take_changes(now, source, &page.changes, Some(watch_id));
        }
        let Some(watch) = self.watches.get_mut(&watch_id) else {
            return;
        };
        let Some(follow) = watch.follows.get_mut(&source) else {
            return;
        };
        let Follow::Behind {
            cursor,
            open,
            again_us,
            until,
            ..
        } = follow
        else {
            return;
        };
        *open = None;
        match fed {
            Fed::Failed => *again_us = now.mono_us + FEED_AGAIN_US,
            Fed::Gone(_) => watch.lose(source, 0, &self.owners),
            Fed::Page(page) => {
                *cursor = page.cursor;
                if until.is_some_and(|until| page.cursor.next >= until) {
                    *follow = Follow::Joined;
                } else if page.is_end {
                    // The feed takes over with its next question.
                    *again_us = now.mono_us + FEED_AGAIN_US;
                }
            }
        }
    }

    fn take_changes(&mut self, now: Now, source: FeedId, changes: &[Change], of: Option<WatchId>) {
        for change in changes {
            let ids = match of {
                Some(alone) => vec![alone],
                None => self.index.may_have(&change.key),
            };
            // Of its own: the key of an answer keeps all bytes of it in memory.
            let mut key = None;
            for id in ids {
                let Some(watch) = self.watches.get_mut(&id) else {
                    continue;
                };
                if !watch.span.has(&change.key)
                    || watch.is_old_news(now, source, change.version, self.write_us_max)
                {
                    continue;
                }
                let key = key.get_or_insert_with(|| Bytes::copy_from_slice(&change.key));
                let last_look = self.last_look;
                let told_epoch = match watch.follows.get(&source) {
                    Some(Follow::Behind { told_epoch, .. }) => *told_epoch,
                    _ => self.feeds.get(&source).map_or(0, |feed| feed.told_epoch),
                };
                let of_member = ChangeOf {
                    source,
                    number: change.number,
                    told_epoch,
                };
                watch.changed(now, of_member, key, change.version, last_look);
                if watch.dirty.has(key) {
                    let look = self.looks.entry(key.clone()).or_default();
                    look.tries = 0;
                    want(&mut self.ready, look, key, id);
                }
                let feeds = &self.feeds;
                watch.end_if_slow(&self.owners, |member| feeds.get(&member)?.of_token());
                self.touched.insert(id);
            }
        }
    }

    /// A look has ended.
    pub fn looked(&mut self, now: Now, key: &Bytes, looked: &Looked, work: &mut Vec<Work>) {
        let Some(look) = self.looks.get_mut(key) else {
            return;
        };
        let Some(number) = look.open.take() else {
            return;
        };
        self.open_looks -= 1;
        let mut is_waited_for = false;
        if let Some(found) = looked {
            let watches = &mut self.watches;
            let (touched, write_us_max) = (&mut self.touched, self.write_us_max);
            look.watches.retain(|id| {
                let Some(watch) = watches.get_mut(id) else {
                    return false;
                };
                if !watch.out.has_room() {
                    return true;
                }
                touched.insert(*id);
                let is_settled = watch.looked(now, key, found, (number, write_us_max));
                is_waited_for |= !is_settled;
                !is_settled
            });
        }
        if look.watches.is_empty() {
            self.looks.remove(key);
        } else if looked.is_some() && !is_waited_for {
            look.is_parked = true;
        } else {
            let pause_us = LOOK_AGAIN_US << look.tries.min(20);
            look.tries += 1;
            let at = now.mono_us + pause_us.min(LOOK_AGAIN_US_MAX);
            if let Some(before) = look.later_us.replace(at) {
                self.later.remove(&(before, key.clone()));
            }
            self.later.insert((at, key.clone()));
        }
        self.work(now, work);
    }

    fn unwant(&mut self, key: &Bytes, id: WatchId) {
        if let Some(look) = self.looks.get_mut(key) {
            look.watches.remove(&id);
            if look.watches.is_empty() && look.open.is_none() {
                self.looks.remove(key);
            }
        }
    }

    /// A page of a watch's range.
    pub fn passed(
        &mut self,
        now: Now,
        (id, page): (WatchId, QuestionId),
        passed: &Passed,
        work: &mut Vec<Work>,
    ) {
        self.pages.open = self.pages.open.saturating_sub(1);
        let Some(watch) = self.watches.get_mut(&id) else {
            return self.work(now, work);
        };
        self.touched.insert(id);
        // A page of an earlier pass is of no use.
        let Some(pass) = watch.pass.as_mut().filter(|pass| pass.open == Some(page)) else {
            return self.work(now, work);
        };
        pass.open = None;
        pass.is_patient = true;
        pass.again_us = now.mono_us + FEED_AGAIN_US;
        let feeds = &self.feeds;
        let feed_epoch = |source| feeds.get(&source).map_or(0, |feed| feed.told_epoch);
        if let Some(keys) = passed
            && watch.go_without(&self.owners, &keys.missing, feed_epoch)
        {
            self.take_page(now, id, keys);
        }
        self.work(now, work);
    }

    fn take_page(&mut self, now: Now, id: WatchId, page: &KeyPage) {
        let Some(watch) = self.watches.get_mut(&id) else {
            return;
        };
        let Some(pass) = &mut watch.pass else {
            return;
        };
        let is_loud = pass.is_loud;
        (pass.again_us, pass.is_patient) = (0, false);
        match &page.rest {
            Some(start) => pass.rest.start = start.clone(),
            None => watch.pass = None,
        }
        for (shown, shows) in &page.keys {
            let key = &Bytes::copy_from_slice(shown);
            let floor = match shows {
                PageShows::Value { expiry_ms } if !is_loud => {
                    watch.note_end(key, *expiry_ms);
                    continue;
                }
                PageShows::Value { .. } => Version::ZERO,
                PageShows::Unsure { newest } => *newest,
            };
            watch.suspect(now, key, (floor, is_loud), self.last_look);
            let look = self.looks.entry(key.clone()).or_default();
            want(&mut self.ready, look, key, id);
        }
    }

    /// Gives out all work that can be given out.
    fn work(&mut self, now: Now, work: &mut Vec<Work>) {
        self.ask_feeds(now, work);
        self.work_on_touched(now, work);
        if self.index.dirty_keys > DIRTY_KEYS_MAX {
            self.end_slowest();
            self.work_on_touched(now, work);
        }
        self.start_looks(work);
    }

    fn work_on_touched(&mut self, now: Now, work: &mut Vec<Work>) {
        while let Some(id) = self.touched.pop_first().or_else(|| self.next_for_page()) {
            self.work_on(now, id, work);
        }
    }

    /// All watches together have too many dirty keys: those end whose clients do not read, and
    /// then others, the one with most keys first.
    fn end_slowest(&mut self) {
        let mut slowest = Vec::new();
        for (id, len) in &self.index.dirty {
            let has_room = self.watches.get(id).is_some_and(|it| it.out.has_room());
            slowest.push((!has_room, *len, *id));
        }
        slowest.sort_unstable();
        let mut left = self.index.dirty_keys;
        let feeds = &self.feeds;
        while left > DIRTY_KEYS_KEPT
            && let Some((_, len, id)) = slowest.pop()
        {
            if let Some(watch) = self.watches.get_mut(&id) {
                watch.end_as_slow(&self.owners, |member| feeds.get(&member)?.of_token());
            }
            self.touched.insert(id);
            left -= len;
        }
    }

    /// The next watch in line for a page, if there may be one more. It may not want it any more.
    fn next_for_page(&mut self) -> Option<WatchId> {
        if self.pages.open >= PAGES_MAX {
            return None;
        }
        let next = self.pages.waiting.pop_front()?;
        if let Some(pass) = self.watches.get_mut(&next).and_then(|it| it.pass.as_mut()) {
            pass.is_waiting = false;
        }
        Some(next)
    }

    fn ask_feeds(&mut self, now: Now, work: &mut Vec<Work>) {
        let may_ask = self.may_ask();
        let Some(hull) = self.hull.as_ref().filter(|_| may_ask) else {
            return;
        };
        for (source, feed) in &mut self.feeds {
            if !feed.is_up || feed.open.is_some() || now.mono_us < feed.again_us {
                continue;
            }
            self.questions += 1;
            feed.open = Some(OpenFeed {
                id: self.questions,
                asked_us: now.mono_us,
                epoch: self.owners.epoch(),
                span: hull.clone(),
            });
            if let Some(cursor) = feed.cursor {
                for id in self.index.unjoined.remove(source).unwrap_or_default() {
                    if let Some(watch) = self.watches.get_mut(&id) {
                        watch.join(now, *source, cursor.next);
                        self.touched.insert(id);
                    }
                }
            }
            work.push(Work::Ask {
                source: *source,
                id: self.questions,
                question: FeedQuestion {
                    cursor: feed.cursor,
                    span: hull.clone(),
                    waits: feed.cursor.is_some(),
                },
            });
        }
    }

    fn work_on(&mut self, now: Now, id: WatchId, work: &mut Vec<Work>) {
        let Some(watch) = self.watches.get_mut(&id) else {
            return;
        };
        let feeds = &self.feeds;
        watch.grow(&self.owners, self.write_us_max, |source| {
            feeds.get(&source).map_or(0, |feed| feed.caught_up_us)
        });
        watch.go_on(&self.owners, self.last_look);
        for key in watch.take_ended(now) {
            watch.suspect(now, &key, (Version::ZERO, false), self.last_look);
            let look = self.looks.entry(key.clone()).or_default();
            want(&mut self.ready, look, &key, id);
        }
        let had_room = watch.out.has_room();
        let batch = watch.take_batch(now, &self.owners, |member| feeds.get(&member)?.of_token());
        let is_over = watch.out.is_over();
        if let Some((events, token)) = batch {
            work.push(Work::Tell {
                watch: id,
                events,
                token,
                is_over,
            });
        }
        if !had_room && watch.out.has_room() {
            for key in watch.dirty.keys() {
                if let Some(look) = self.looks.get_mut(key).filter(|look| look.is_parked) {
                    (look.is_parked, look.is_ready) = (false, true);
                    self.ready.push_back(key.clone());
                }
            }
        }
        if let Some(pass) = &mut watch.pass
            && pass.open.is_none()
            && now.mono_us >= pass.again_us
            && watch.dirty.len() < PASS_DIRTY
            && self.pages.open >= PAGES_MAX
        {
            if !std::mem::replace(&mut pass.is_waiting, true) {
                self.pages.waiting.push_back(id);
            }
        } else if let Some(pass) = &mut watch.pass
            && pass.open.is_none()
            && now.mono_us >= pass.again_us
            && watch.dirty.len() < PASS_DIRTY
        {
            self.questions += 1;
            self.pages.open += 1;
            (pass.open, pass.is_waiting) = (Some(self.questions), false);
            work.push(Work::Page {
                watch: id,
                id: self.questions,
                span: pass.rest.clone(),
                is_patient: pass.is_patient,
            });
        }
        for (source, follow) in &mut watch.follows {
            let is_up = self.feeds.get(source).is_some_and(|feed| feed.is_up);
            if let Follow::Behind {
                cursor,
                open,
                again_us,
                ..
            } = follow
                && is_up
                && open.is_none()
                && now.mono_us >= *again_us
                && watch.dirty.len() < PASS_DIRTY
            {
                self.questions += 1;
                *open = Some(self.questions);
                self.index.behind.insert(self.questions, id);
                work.push(Work::Ask {
                    source: *source,
                    id: self.questions,
                    question: FeedQuestion {
                        cursor: Some(*cursor),
                        span: watch.span.clone(),
                        waits: false,
                    },
                });
            }
        }
        let dropped = watch.dirty.take_dropped();
        self.index.see(id, watch, self.owners.members());
        let due_us = watch.due_us(now);
        if let Some(at) = self.alarms.of.remove(&id) {
            self.alarms.next.remove(&(at, id));
        }
        if let Some(at) = due_us {
            self.alarms.of.insert(id, at);
            self.alarms.next.insert((at, id));
        }
        for key in dropped {
            self.unwant(&key, id);
        }
        if is_over {
            self.close(id);
        }
    }

    fn start_looks(&mut self, work: &mut Vec<Work>) {
        while self.open_looks < LOOKS_MAX
            && let Some(key) = self.ready.pop_front()
        {
            let Some(look) = self.looks.get_mut(&key) else {
                continue;
            };
            look.is_ready = false;
            if look.open.is_some() {
                continue;
            }
            let watches = &self.watches;
            let has_room = |id: &WatchId| watches.get(id).is_some_and(|watch| watch.out.has_room());
            if !look.watches.iter().any(has_room) {
                look.is_parked = true;
                continue;
            }
            self.last_look += 1;
            look.open = Some(self.last_look);
            look.is_parked = false;
            self.open_looks += 1;
            work.push(Work::Look {
                key,
                is_wide: look.tries >= WIDE_FROM_TRY,
            });
        }
    }
}

/// A watch has to look at the key.
fn want(ready: &mut VecDeque<Bytes>, look: &mut KeyLook, key: &Bytes, id: WatchId) {
    look.watches.insert(id);
    look.is_parked = false;
    // A key that waits for its next try is looked at sooner: there is news.
    if look.open.is_none() && !look.is_ready {
        look.is_ready = true;
        ready.push_back(key.clone());
    }
}
