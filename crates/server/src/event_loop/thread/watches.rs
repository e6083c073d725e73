//! The orders of the hub of a node alone, carried out on the own store.
//!
//! ```text
//! Ask   the changes of the process ─► at once │ none yet: parked ─► Changed, or FEED_WAIT_US
//! Look  engine, Wait::Never        ─► at once │ would block: store pool ─► answered
//! Page  store pool ─► answered
//! Tell  the watch's seat
//! ```
//!
//! Invariants
//! 1. Each order is answered once. Orders that follow from an answer are carried out in the same
//!    turn, as far as they need not wait: a client that does not ask for more bounds them.
//! 2. Without a watch there is no task and no timer.
//!
//! Not here: which orders (crate `watch`), the watches of a member (crate `node`).
//! See: docs/watch.md.

use super::{EventLoop, Target};
use crate::event_loop::watches::{LONE_FEED, LoneHub, ParkedQuestion, WatchRead};
use crate::lanes::page::Page;
use crate::lanes::work::{PoolAnswer, StoreWork};
use bytes::Bytes;
use dendra_base::{Cell, Key, Kind};
use dendra_engine::vfs::Wait;
use dendra_engine::{Error, Lookup};
use dendra_node::step::{Paged, StoreFailure};
use dendra_watch::limits::{FEED_BYTES, FEED_WAIT_US, WRITE_US_DEFAULT};
use dendra_watch::{
    Fed, FeedOwners, From, Hub, KeyPage, LookFound, Looked, PageShows, Passed, Span, WatchId, Work,
};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// Bytes of records in one page of a range.
const PAGE_BYTES: usize = 32 << 10;
/// A read that waits in the store pool for longer is given up, and begun anew.
const READ_US: u64 = 1_000_000;
/// The shortest pause between two looks at the clock.
const TICK_US: u64 = 1_000;

/// The found state, unless its bytes are not those that were written.
fn found(key: &Key, cell: Option<Cell>) -> Looked {
    let is_intact = |it: &Cell| it.as_ref().is_intact(key.as_stored());
    cell.as_ref().is_none_or(is_intact).then_some(LookFound {
        cell,
        is_complete: true,
    })
}

fn shown(paged: Paged) -> Result<Passed, StoreFailure> {
    let (records, rest) = match paged {
        Ok(page) => page,
        Err(StoreFailure::Damaged) => return Err(StoreFailure::Damaged),
        Err(_) => return Ok(None),
    };
    let values = records.iter().filter(|(_, cell)| cell.kind == Kind::Value);
    let keys = values.map(|(key, cell)| {
        let expiry_ms = cell.expiry_ms;
        let raw = Bytes::copy_from_slice(key.raw());
        (raw, PageShows::Value { expiry_ms })
    });
    Ok(Some(KeyPage {
        keys: keys.collect(),
        rest: rest.map(|key| Bytes::copy_from_slice(key.raw())),
        missing: Vec::new(),
    }))
}

impl EventLoop {
    /// A client watches `span` of a node alone.
    pub(crate) fn open_watch(
        self: &Rc<EventLoop>,
        id: WatchId,
        span: Span,
        from: &From,
        heartbeat_us: u64,
    ) {
        self.refresh();
        self.with_hub(|hub, now, work| hub.open(now, id, span, from, heartbeat_us, work));
    }

    /// The client of a watch takes more events.
    pub(crate) fn want_events(self: &Rc<EventLoop>, id: WatchId) {
        self.with_hub(|hub, now, work| hub.more(now, id, work));
    }

    /// The client of a watch is gone.
    pub(crate) fn close_watch(self: &Rc<EventLoop>, id: WatchId) {
        self.with_hub(|hub, _, _| hub.close(id));
    }

    /// Has the hub do something, and carries out its orders.
    fn with_hub(
        self: &Rc<EventLoop>,
        act: impl FnOnce(&mut Hub, dendra_base::Now, &mut Vec<Work>),
    ) {
        let (now, mut work) = (self.now(), Vec::new());
        let mut lone = self.watches().lone.borrow_mut();
        let lone = &mut *lone;
        let hub = lone.hub.get_or_insert_with(|| {
            let mut hub = Hub::new(FeedOwners::alone(LONE_FEED), WRITE_US_DEFAULT);
            hub.link(now, LONE_FEED, true, &mut work);
            hub
        });
        act(hub, now, &mut work);
        self.carry_out(lone, work);
        self.keep_time(lone);
    }

    fn carry_out(&self, lone: &mut LoneHub, work: Vec<Work>) {
        let now = self.now();
        let mut orders = VecDeque::from(work);
        let mut next = Vec::new();
        while let Some(order) = orders.pop_front() {
            let Some(hub) = &mut lone.hub else { return };
            match order {
                Work::Ask {
                    source,
                    id,
                    question,
                } => {
                    let parked = ParkedQuestion {
                        source,
                        id,
                        question,
                        until_us: now.mono_us + FEED_WAIT_US,
                    };
                    if let Some((parked, fed)) = self.ask(lone, parked)
                        && let Some(asker) = &mut lone.hub
                    {
                        asker.fed(now, parked.source, parked.id, &fed, &mut next);
                    }
                }
                Work::Look { key, .. } => {
                    if let Some(looked) = self.look(&key) {
                        hub.looked(now, &key, &looked, &mut next);
                    }
                }
                Work::Page {
                    watch, id, span, ..
                } => {
                    let page = Page {
                        start: Key::user(&span.start),
                        end: span.end.as_deref().map(Key::user),
                        is_reverse: false,
                        bytes: PAGE_BYTES,
                    };
                    let target = Target::Watch(WatchRead::Page(watch, id));
                    let read = StoreWork::Page(Box::new(page));
                    let deadline_us = now.mono_us + READ_US;
                    if self.offer_order(target, deadline_us, read).is_err() {
                        hub.passed(now, (watch, id), &None, &mut next);
                    }
                }
                Work::Tell {
                    watch,
                    events,
                    token,
                    is_over,
                } => self.watches().told(watch, events, token, is_over),
            }
            orders.extend(next.drain(..));
        }
    }

    /// Answers a question about changes, or parks it.
    fn ask(&self, lone: &mut LoneHub, mut parked: ParkedQuestion) -> Option<(ParkedQuestion, Fed)> {
        let question = &mut parked.question;
        let may_wait = question.waits && self.now_us() < parked.until_us;
        let waiter = may_wait.then_some(self.index);
        let asked = (&question.span, FEED_BYTES);
        let changes = &self.parts.store.changes;
        let fed = match changes.since(self.now_us(), question.cursor, asked, waiter) {
            Ok(page) if may_wait && page.changes.is_empty() && page.is_end => {
                question.cursor = Some(page.cursor);
                lone.parked.push(parked);
                return None;
            }
            Ok(page) => Fed::Page(page),
            Err(end) => Fed::Gone(end),
        };
        Some((parked, fed))
    }

    /// Looks again at the questions that wait for changes.
    fn ask_again(self: &Rc<EventLoop>, lone: &mut LoneHub) {
        let now = self.now();
        let mut work = Vec::new();
        for parked in std::mem::take(&mut lone.parked) {
            if lone.hub.as_ref().is_some_and(Hub::is_empty) {
                continue;
            }
            if let Some((parked, fed)) = self.ask(lone, parked)
                && let Some(hub) = &mut lone.hub
            {
                hub.fed(now, parked.source, parked.id, &fed, &mut work);
            }
        }
        self.carry_out(lone, work);
    }

    /// There are changes that this loop asked to be told of.
    pub(super) fn take_changes(self: &Rc<EventLoop>) {
        let mut lone = self.watches().lone.borrow_mut();
        self.ask_again(&mut lone);
        self.keep_time(&mut lone);
    }

    /// The state of a key; `None` = the store pool reads it.
    fn look(&self, key: &Bytes) -> Option<Looked> {
        let stored = Key::user(key);
        let engine = &self.parts.store.engine;
        match engine.get(stored.as_stored(), Wait::Never, |cell| cell.to_owned()) {
            Ok(Lookup::Cell(cell)) => return Some(found(&stored, Some(cell))),
            Ok(Lookup::Nothing) => return Some(found(&stored, None)),
            Ok(Lookup::WouldBlock) => {}
            Err(error) if error.would_block() => {}
            Err(Error::Damaged { .. }) => return Some(None),
            Err(error) => {
                tracing::error!(%error, "a read for a watch failed");
                return Some(None);
            }
        }
        let target = Target::Watch(WatchRead::Look(key.clone()));
        let deadline_us = self.now_us() + READ_US;
        let offered = self.offer_order(target, deadline_us, StoreWork::Get(stored));
        offered.is_err().then_some(None)
    }

    /// The store pool has read something for watches.
    pub(super) fn take_watch_read(self: &Rc<EventLoop>, read: WatchRead, answer: PoolAnswer) {
        match (read, answer) {
            (WatchRead::Look(key), PoolAnswer::Cell(cell)) => {
                let looked = found(&Key::user(&key), cell.map(|cell| *cell));
                self.with_hub(|hub, now, work| hub.looked(now, &key, &looked, work));
            }
            (WatchRead::Look(key), _) => {
                self.with_hub(|hub, now, work| hub.looked(now, &key, &None, work));
            }
            (WatchRead::Page(watch, id), answer) => {
                let paged = match answer {
                    PoolAnswer::Page(paged) => shown(paged),
                    _ => Ok(None),
                };
                match paged {
                    Ok(passed) => {
                        self.with_hub(|hub, now, work| hub.passed(now, (watch, id), &passed, work));
                    }
                    Err(_damaged) => {
                        self.watches().stop(watch);
                        // The order is answered all the same: others wait for their pages.
                        self.with_hub(|hub, now, work| hub.passed(now, (watch, id), &None, work));
                    }
                }
            }
        }
    }

    /// Sees to it that the hub is looked at when it is due.
    fn keep_time(self: &Rc<EventLoop>, lone: &mut LoneHub) {
        let Some(due_us) = lone.due_us() else {
            lone.parked.clear();
            return;
        };
        match lone.ticks_us {
            None => {
                lone.ticks_us = Some(due_us);
                tokio::task::spawn_local(tick(Rc::clone(self)));
            }
            Some(ticks_us) if due_us < ticks_us => {
                lone.ticks_us = Some(due_us);
                self.watches().sooner.ring();
            }
            Some(_) => {}
        }
    }

    /// Does what is due by now, and says when to come again: `None` without a watch.
    fn tick_watches(self: &Rc<EventLoop>) -> Option<u64> {
        let (now, mut work) = (self.now(), Vec::new());
        let mut lone = self.watches().lone.borrow_mut();
        let lone = &mut *lone;
        if lone
            .parked
            .iter()
            .any(|parked| parked.until_us <= now.mono_us)
        {
            self.ask_again(lone);
        }
        if let Some(hub) = &mut lone.hub
            && hub.due_us().is_some_and(|due_us| due_us <= now.mono_us)
        {
            hub.tick(now, &mut work);
            self.carry_out(lone, work);
        }
        lone.ticks_us = lone.due_us().map(|us| us.max(now.mono_us + TICK_US));
        lone.ticks_us
    }
}

/// The clock of the watches, while there are some.
async fn tick(lane: Rc<EventLoop>) {
    loop {
        lane.refresh();
        let Some(due_us) = lane.tick_watches() else {
            return;
        };
        let rest = Duration::from_micros(due_us.saturating_sub(lane.now_us()));
        // It ends early when something is due sooner.
        let _rung = tokio::time::timeout(rest, lane.watches().sooner.rung()).await;
    }
}
