//! Hints for members that were removed are deleted, a few at a time.
//!
//! ```text
//! members changed, or a start found some ─► page ─► 32 deletes ─ rest ─► 32 deletes ─ rest ─► page ─► …
//!                          the last page ─► once more, HINT_PAUSE_US later ─► nothing to do
//! ```
//!
//! A lost member can leave hundreds of thousands of hints, and the last epoch of its replacement
//! makes all of them orphans at once. Clients' writes wait in the same log as these deletes, and no
//! client waits for a delete. So a member takes a sixteenth of the time for them.
//!
//! Invariants
//! 1. A page, or up to `HINT_WINDOW_MAX` deletes, is under way, and not both. Behind it is a rest
//!    of `HINT_ORPHANS_REST` times as long as it took, at most `PACE_REST_US_MAX`. While the own
//!    store is strained the rest is always that long.
//! 2. Each page is read once in a pass. In memory are the keys of one page, no values.
//! 3. A second pass begins when the first has ended: a hint may have been on its way to the store.
//!    A pass in which the store refused something is repeated.
//! 4. A pass begins anew when members change: an address may have a member again.
//!
//! Not here: hints of members (`hints/mod.rs`), the room that a deleted hint gives back
//! (`hints/room.rs`).
//! See: docs/overload.md.

use super::stored::{self, MEMBER_BYTES};
use crate::desk::{Desk, Order, Turn};
use crate::ledger::NEVER;
use crate::limits::{
    HINT_ORPHANS_REST, HINT_ORPHANS_REST_US_MIN, HINT_PAGE_BYTES_MAX, HINT_PAUSE_US,
    HINT_TIMEOUT_US, HINT_WINDOW_MAX, PACE_REST_US_MAX,
};
use crate::step::{Effect, Paged, StoreFailure, StoreOutcome};
use dendra_base::{Key, Kind, Version};
use std::collections::VecDeque;

/// A hint that is to be deleted.
#[derive(Debug)]
struct Orphan {
    key: Key,
    version: Version,
    bytes: u64,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Orphans {
    /// Passes that are still to be made, the one under way included.
    passes: u8,
    /// Names the pass in answers.
    pass: u32,
    /// Where the next page begins; `None` = the last one was read.
    next: Option<Key>,
    waiting: VecDeque<Orphan>,
    /// A page, or so many deletes.
    open: usize,
    /// The store refused something in this pass.
    is_refused: bool,
    /// When the page or the deletes were ordered.
    ordered_us: u64,
    /// When to go on; `NEVER` while a step is under way, or none is to be done.
    due_us: u64,
}

impl Orphans {
    pub(super) fn new() -> Orphans {
        Orphans {
            passes: 0,
            pass: 0,
            next: None,
            waiting: VecDeque::new(),
            open: 0,
            is_refused: false,
            ordered_us: 0,
            due_us: NEVER,
        }
    }

    /// When to go on.
    pub(super) fn due_us(&self) -> u64 {
        self.due_us
    }

    /// There may be some, and some more may be on their way to the store.
    pub(super) fn seek(&mut self, now_us: u64) {
        self.passes = 2;
        self.begin(now_us);
    }

    fn begin(&mut self, due_us: u64) {
        self.pass = self.pass.wrapping_add(1);
        self.next = Some(stored::start([0; MEMBER_BYTES]));
        self.waiting.clear();
        self.is_refused = false;
        if self.open == 0 {
            self.due_us = due_us;
        }
    }

    /// Time went by.
    pub(super) fn tick(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        let now_us = turn.now.mono_us;
        if now_us < self.due_us {
            return;
        }
        if !desk.hints.is_counted() {
            self.due_us = now_us + HINT_PAUSE_US;
            return;
        }
        (self.due_us, self.ordered_us) = (NEVER, now_us);
        if !self.waiting.is_empty() {
            let count = self.waiting.len().min(HINT_WINDOW_MAX);
            for orphan in self.waiting.drain(..count) {
                let order = Order::OrphanGone {
                    bytes: orphan.bytes,
                };
                stored::delete(desk, turn, order, orphan.key, orphan.version);
            }
            self.open = count;
            return;
        }
        match self.next.take().filter(|_| desk.hints.bytes() > 0) {
            Some(start) => {
                let ticket = desk.order(Order::OrphanPage { pass: self.pass });
                turn.effects.push(Effect::Page {
                    ticket,
                    start,
                    end: None,
                    is_reverse: false,
                    bytes: HINT_PAGE_BYTES_MAX,
                    deadline_us: now_us + HINT_TIMEOUT_US,
                });
                self.open = 1;
            }
            None => {
                self.passes -= u8::from(!self.is_refused);
                if self.passes > 0 {
                    self.begin(now_us + HINT_PAUSE_US);
                }
            }
        }
    }

    /// The store read a page of hints.
    pub(super) fn paged(&mut self, desk: &Desk, turn: &Turn<'_>, pass: u32, result: Paged) {
        match result {
            Ok((hints, next)) if pass == self.pass => {
                let labels = stored::labels(&desk.topology, desk.me);
                let orphans = hints
                    .into_iter()
                    .filter(|(key, hint)| {
                        hint.kind == Kind::Value && stored::is_orphan(&labels, key)
                    })
                    .map(|(key, hint)| Orphan {
                        bytes: stored::size(&key, &hint),
                        version: hint.version,
                        key,
                    });
                self.waiting = orphans.collect();
                self.next = next;
            }
            // Of a pass that was given up.
            Ok(_) => {}
            // Hints after this page are left for the next pass.
            Err(_) => self.is_refused = true,
        }
        self.ended(desk, turn);
    }

    /// One is deleted, or was replaced.
    pub(super) fn gone(
        &mut self,
        desk: &Desk,
        turn: &Turn<'_>,
        bytes: u64,
        result: Result<StoreOutcome, StoreFailure>,
    ) {
        match result {
            Ok(StoreOutcome::Applied { .. }) => desk.hints.give_back(bytes),
            Ok(StoreOutcome::GuardFailed { .. }) => {}
            Err(_) => self.is_refused = true,
        }
        self.ended(desk, turn);
    }

    /// An order has ended. Behind the last one is a rest.
    fn ended(&mut self, desk: &Desk, turn: &Turn<'_>) {
        self.open -= 1;
        if self.open > 0 {
            return;
        }
        let now_us = turn.now.mono_us;
        let took_us = now_us.saturating_sub(self.ordered_us);
        let rest_us = if desk.is_strained {
            PACE_REST_US_MAX
        } else {
            took_us
                .saturating_mul(HINT_ORPHANS_REST)
                .clamp(HINT_ORPHANS_REST_US_MIN, PACE_REST_US_MAX)
        };
        self.due_us = now_us.saturating_add(rest_us);
    }
}
