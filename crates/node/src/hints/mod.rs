//! Hints: writes that this member keeps for members that did not confirm them, and delivers later.
//!
//! ```text
//! a write is over ─► owners without a confirmation ─ room? ─► own store, | Space::Hint | member 8 | raw key |
//!                        an older hint is there ─► read it ─► the newer one takes its place, its bytes are given back
//! keeper: link up, or some seconds later ─► page by page ─► WRITE ─ Written ─► hint deleted, if it is still that one
//!                                                               ─ refused ─► later
//!         a member was removed ─► its hints are deleted, a few at a time
//! ```
//!
//! Invariants
//! 1. A hint never counts as a copy: it makes repair quick, and no promise depends on it.
//! 2. The bytes of hints are bounded; without room a hint is dropped and counted. The room counts
//!    hints that are stored or on their way there, to the byte. So every hint is written under the
//!    condition that it replaces the hint that was counted for it. Until the hints of an earlier
//!    life are counted, the room is not known: new hints are dropped, and none is delivered.
//! 3. A newer hint for the same key and member takes the place of an older one. A hint is deleted
//!    only under the condition that it is the one that was delivered.
//! 4. A hint is deleted without being delivered when its member was removed, has another address,
//!    or does not own the key any more. A comparison brings the record to its owners then.
//! 5. One loop of a member delivers, one member after the other, a few writes at a time.
//!    Hints of removed members do not hold that up.
//!
//! Not here: which owners confirmed (`coordinator/write.rs`), the room itself (`hints/room.rs`),
//! hints of removed members (`hints/orphans.rs`).
//! See: docs/format/cluster.md, docs/protocol.md, docs/overload.md.

mod orphans;
pub(crate) mod room;
mod stored;

pub use room::HintRoom;

use crate::desk::{Desk, Order, Turn};
use crate::ledger::NEVER;
use crate::limits::{
    HINT_PAGE_BYTES_MAX, HINT_PAUSE_US, HINT_TIMEOUT_US, HINT_TRIES_MAX, HINT_WINDOW_MAX,
    ORDERS_MAX,
};
use crate::places::Places;
use crate::purpose::Purpose;
use crate::step::{Effect, Paged, StoreFailure, StoreOutcome};
use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Refused};
use dendra_base::{Cell, CellRef, Condition, Guard, Key, Kind};
use dendra_ownership::member::MemberIndex;
use dendra_ownership::topology::Topology;
use orphans::Orphans;
use room::Keeping;
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use stored::{MEMBER_BYTES, following, hint, is_orphan, label, labels, size};

/// Keeps a write for a member that did not confirm it.
pub(crate) fn keep(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    member: MemberIndex,
    raw_key: &[u8],
    cell: &Cell,
) {
    let room = &desk.hints;
    if desk.orders.len() >= ORDERS_MAX {
        room.dropped.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let (key, hint) = hint(label(&desk.topology, member), raw_key, cell);
    let bytes = size(&key, &hint);
    if !room.take(bytes) {
        return;
    }
    let keeping = Keeping {
        key,
        hint,
        hinted: cell.version,
        over: None,
        tries: 0,
    };
    put(desk, turn, Box::new(keeping));
}

/// Orders the write, under the condition that the record in its place is still the known one.
fn put(desk: &mut Desk, turn: &mut Turn<'_>, keeping: Box<Keeping>) {
    let (key, cell) = (keeping.key.clone(), keeping.hint.clone());
    let guard = Guard::If(Condition::unchanged(
        keeping.over.map(|(version, _)| version),
    ));
    desk.write(turn, Order::HintKept(keeping), key, cell, guard);
}

/// The store took a hint, or found another one, or failed.
pub(crate) fn kept(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    mut keeping: Box<Keeping>,
    result: Result<StoreOutcome, StoreFailure>,
) {
    match result {
        Ok(StoreOutcome::Applied { .. }) => {
            let freed = keeping.over.map_or(0, |(_, bytes)| bytes);
            desk.hints.give_back(freed);
            desk.hints.kept.fetch_add(1, Ordering::Relaxed);
        }
        Ok(StoreOutcome::GuardFailed { .. }) if keeping.tries < HINT_TRIES_MAX => {
            keeping.tries += 1;
            let (key, deadline_us) = (keeping.key.clone(), turn.now.mono_us + HINT_TIMEOUT_US);
            desk.read(turn, Order::HintKept(keeping), key, deadline_us);
        }
        Ok(StoreOutcome::GuardFailed { .. }) | Err(_) => drop_hint(desk, &keeping),
    }
}

/// The store read the place of a hint that is to be kept.
pub(crate) fn found(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    mut keeping: Box<Keeping>,
    result: Result<Option<Cell>, StoreFailure>,
) {
    let Ok(there) = result else {
        drop_hint(desk, &keeping);
        return;
    };
    let there = there.filter(|cell| cell.kind == Kind::Value);
    let hinted = |cell: &Cell| CellRef::decode(&cell.value).map(|cell| cell.version);
    if there.as_ref().and_then(hinted) >= Some(keeping.hinted) {
        // As new, or newer: this one is not needed.
        desk.hints.give_back(size(&keeping.key, &keeping.hint));
        return;
    }
    keeping.over = there.map(|cell| (cell.version, size(&keeping.key, &cell)));
    put(desk, turn, keeping);
}

fn drop_hint(desk: &Desk, keeping: &Keeping) {
    desk.hints.give_back(size(&keeping.key, &keeping.hint));
    desk.hints.dropped.fetch_add(1, Ordering::Relaxed);
}

/// A hint on its way.
#[derive(Debug)]
struct Delivery {
    key: Key,
    hint: Cell,
}

/// The purpose of a walk through hints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WalkFor {
    /// To count those of all members: the first walk of a life.
    Count,
    /// To deliver those of this member.
    Member(MemberIndex),
}

/// One walk through hints.
#[derive(Debug)]
struct HintWalk {
    of: WalkFor,
    /// Bytes of the hints that were counted so far.
    counted: u64,
    /// Some of these are for members that were removed.
    has_orphans: bool,
    /// Where the next page begins; `None` = this was the last one.
    next: Option<Key>,
    waiting: VecDeque<Delivery>,
    under_way: Vec<Option<Delivery>>,
    open: usize,
    /// The member refused a write: no more of its hints for now.
    is_refused: bool,
}

/// Delivers hints: on one loop of a member.
#[derive(Debug)]
pub(crate) struct Keeper {
    is_keeper: bool,
    /// Members to walk for.
    wanted: Places,
    orphans: Orphans,
    walk: Option<HintWalk>,
    /// Names the walk in answers.
    walks: u32,
    /// When to look again for hints of members that have links; 0 = at once.
    again_us: u64,
}

impl Keeper {
    pub(crate) fn new(is_keeper: bool) -> Keeper {
        Keeper {
            is_keeper,
            wanted: Places::NONE,
            orphans: Orphans::new(),
            walk: None,
            walks: 0,
            again_us: if is_keeper { 0 } else { NEVER },
        }
    }

    /// When to look again.
    pub(crate) fn due_us(&self) -> u64 {
        match self.again_us {
            // Hints are counted first.
            0 => 0,
            again_us => again_us.min(self.orphans.due_us()),
        }
    }

    /// Members have changed; `before` are those of the epoch before.
    pub(crate) fn adopt(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, before: &Topology) {
        if self.is_keeper && before.members() != desk.topology.members() {
            self.orphans.seek(turn.now.mono_us);
            self.orphans.tick(desk, turn);
        }
    }

    /// A link came up: its member may have missed writes.
    pub(crate) fn link_up(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, member: MemberIndex) {
        if self.is_keeper && member != desk.me {
            self.wanted.insert(member.0);
            self.next_walk(desk, turn);
        }
    }

    /// Time went by: hints that were kept although there is a link are tried again.
    pub(crate) fn tick(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        if !self.is_keeper {
            return;
        }
        self.orphans.tick(desk, turn);
        if turn.now.mono_us < self.again_us {
            return;
        }
        self.again_us = turn.now.mono_us + HINT_PAUSE_US;
        if !desk.hints.is_counted() {
            if self.walk.is_none() {
                self.begin_walk(desk, turn, WalkFor::Count);
            }
            return;
        }
        if desk.hints.bytes() == 0 {
            return;
        }
        let members = (0..desk.topology.len()).map(MemberIndex);
        for member in members.filter(|m| *m != desk.me && desk.health.is_up(*m)) {
            self.wanted.insert(member.0);
        }
        self.next_walk(desk, turn);
    }

    fn next_walk(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        if self.walk.is_some() || !desk.hints.is_counted() {
            return;
        }
        let Some(member) = self.wanted.iter().next() else {
            return;
        };
        self.wanted.remove(member);
        self.begin_walk(desk, turn, WalkFor::Member(MemberIndex(member)));
    }

    fn begin_walk(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, of: WalkFor) {
        let first = match of {
            WalkFor::Member(member) => label(&desk.topology, member),
            WalkFor::Count => [0; MEMBER_BYTES],
        };
        self.walks = self.walks.wrapping_add(1);
        self.walk = Some(HintWalk {
            of,
            counted: 0,
            has_orphans: false,
            next: Some(stored::start(first)),
            waiting: VecDeque::new(),
            under_way: Vec::new(),
            open: 0,
            is_refused: false,
        });
        self.go_on(desk, turn);
    }

    /// The next page, the next walk, or a wait.
    fn go_on(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        let Some(walk) = &mut self.walk else {
            return;
        };
        while walk.open < HINT_WINDOW_MAX
            && !walk.is_refused
            && let Some(delivery) = walk.waiting.pop_front()
        {
            deliver(desk, turn, walk, self.walks, delivery);
        }
        if walk.open > 0 {
            return;
        }
        match walk.next.take().filter(|_| !walk.is_refused) {
            Some(start) => {
                let end = match walk.of {
                    WalkFor::Member(member) => following(&label(&desk.topology, member)),
                    WalkFor::Count => None,
                };
                let deadline_us = turn.now.mono_us + HINT_TIMEOUT_US;
                let ticket = desk.order(Order::HintPage { walk: self.walks });
                turn.effects.push(Effect::Page {
                    ticket,
                    start,
                    end: end.map(stored::start),
                    is_reverse: false,
                    bytes: HINT_PAGE_BYTES_MAX,
                    deadline_us,
                });
                walk.open = 1;
            }
            None => {
                // Without an answer of the store there is no result: the count is begun again.
                if walk.of == WalkFor::Count && !walk.is_refused {
                    desk.hints.count(walk.counted);
                    if walk.has_orphans {
                        self.orphans.seek(turn.now.mono_us);
                    }
                }
                self.walk = None;
                self.next_walk(desk, turn);
            }
        }
    }

    /// The store read a page of hints.
    pub(crate) fn paged(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        walk_number: u32,
        result: Paged,
    ) {
        let Some(walk) = self.walk.as_mut().filter(|_| walk_number == self.walks) else {
            return;
        };
        walk.open = 0;
        match result {
            Ok((hints, next)) => {
                walk.next = next;
                let kept = hints
                    .into_iter()
                    .filter(|(_, hint)| hint.kind == Kind::Value);
                match walk.of {
                    WalkFor::Member(_) => {
                        walk.waiting = kept.map(|(key, hint)| Delivery { key, hint }).collect();
                    }
                    WalkFor::Count => {
                        let labels = labels(&desk.topology, desk.me);
                        for (key, hint) in kept {
                            walk.counted += size(&key, &hint);
                            walk.has_orphans |= is_orphan(&labels, &key);
                        }
                    }
                }
            }
            // The hints stay where they are; another walk will find them.
            Err(_) => walk.is_refused = true,
        }
        self.go_on(desk, turn);
    }

    /// The store read a page for the hints of removed members.
    pub(crate) fn orphans_paged(&mut self, desk: &Desk, turn: &Turn<'_>, pass: u32, result: Paged) {
        self.orphans.paged(desk, turn, pass, result);
    }

    /// The hint of a removed member is deleted, or was replaced.
    pub(crate) fn orphan_gone(
        &mut self,
        desk: &Desk,
        turn: &Turn<'_>,
        bytes: u64,
        result: Result<StoreOutcome, StoreFailure>,
    ) {
        self.orphans.gone(desk, turn, bytes, result);
    }

    /// A member answered the delivery of a hint.
    pub(crate) fn delivered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        walk_number: u32,
        slot: u16,
        answer: &Answer,
    ) {
        let Some(walk) = self.walk.as_mut().filter(|_| walk_number == self.walks) else {
            return;
        };
        let Some(delivery) = walk.under_way[usize::from(slot)].take() else {
            return;
        };
        walk.open -= 1;
        match answer {
            Answer::Written(_) => {
                desk.hints.delivered.fetch_add(1, Ordering::Relaxed);
                delete(desk, turn, &delivery);
            }
            Answer::Refused(Refused::NotOwner) => delete(desk, turn, &delivery),
            _ => walk.is_refused = true,
        }
        self.go_on(desk, turn);
    }
}

fn deliver(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    walk: &mut HintWalk,
    walk_number: u32,
    delivery: Delivery,
) {
    let WalkFor::Member(member) = walk.of else {
        return;
    };
    let raw_key = Bytes::copy_from_slice(&delivery.key.raw()[MEMBER_BYTES..]);
    let Some(cell) = CellRef::decode(&delivery.hint.value).map(|cell| cell.to_owned()) else {
        // This release cannot read it as a hint: it is of no use to any member.
        delete(desk, turn, &delivery);
        return;
    };
    let free = walk.under_way.iter().position(Option::is_none);
    let slot = free.unwrap_or_else(|| {
        walk.under_way.push(None);
        walk.under_way.len() - 1
    });
    walk.under_way[slot] = Some(delivery);
    walk.open += 1;
    let purpose = Purpose::Hint {
        walk: walk_number,
        slot: u16::try_from(slot).expect("the window is small"),
    };
    let ask = Ask::Write { key: raw_key, cell };
    let deadline_us = turn.now.mono_us + HINT_TIMEOUT_US;
    desk.ask(turn, member, purpose, ask, deadline_us);
}

/// Deletes a hint, unless a newer one took its place.
fn delete(desk: &mut Desk, turn: &mut Turn<'_>, delivery: &Delivery) {
    let bytes = size(&delivery.key, &delivery.hint);
    let order = Order::HintGone { bytes };
    stored::delete(
        desk,
        turn,
        order,
        delivery.key.clone(),
        delivery.hint.version,
    );
}

/// A hint is deleted, or was replaced.
pub(crate) fn gone(desk: &Desk, bytes: u64, result: Result<StoreOutcome, StoreFailure>) {
    if let Ok(StoreOutcome::Applied { .. }) = result {
        desk.hints.give_back(bytes);
    }
}
