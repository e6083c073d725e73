//! Writes kept for members that did not confirm them, and how they get there.
//!
//! ```text
//! a write is over ─► owners without a confirmation ─ room? ─► own store, | Space::Hint | member 8 | raw key |
//! keeper: link up, or some seconds later ─► page by page ─► WRITE ─ Written ─► hint deleted, if it is still that one
//!                                                               ─ refused ─► later
//! ```
//!
//! Invariants
//! 1. A hint never counts as a copy: it makes repair quick, and nothing depends on it.
//! 2. What hints hold is bounded; without room a hint is dropped and counted.
//! 3. A newer hint for the same key and member takes the place of an older one, by the one merge rule. A
//!    hint is deleted only under the condition that it is the one that was delivered.
//! 4. One loop of a member delivers, one member after the other, a few writes at a time.
//!
//! Not here: which owners confirmed (`coordinator/write.rs`).
//! See: docs/format/cluster.md, docs/consistency.md, docs/overload.md.

use crate::desk::{Desk, Order, Purpose, Turn};
use crate::ledger::NEVER;
use crate::limits::{
    HINT_PAGE_BYTES_MAX, HINT_PAUSE_US, HINT_TIMEOUT_US, HINT_WINDOW_MAX, ORDERS_MAX,
};
use crate::member::MemberIndex;
use crate::places::Places;
use crate::planted::{Bug, is_planted};
use crate::step::{Effect, StoreFailure, StoreGuard, StoreOutcome};
use crate::topology::Topology;
use bytes::Bytes;
use dendra_base::limits::KEY_BYTES_MAX;
use dendra_base::peer::{Answer, Ask};
use dendra_base::{Cell, CellRef, Key, Kind, Space};
use siphasher::sip::SipHasher13;
use std::collections::VecDeque;
use std::hash::Hasher;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes in front of the raw key: which member.
const MEMBER_BYTES: usize = 8;

/// Room for the hints of one member, shared by its loops, and what became of them.
///
/// The orderings are relaxed: these are counters, and no other memory hangs on them.
#[derive(Debug)]
pub struct HintRoom {
    bytes_max: u64,
    bytes: AtomicU64,
    kept: AtomicU64,
    dropped: AtomicU64,
    delivered: AtomicU64,
}

impl HintRoom {
    /// Room for about `bytes_max` bytes of keys and cells; 0 = keep no hints.
    pub fn new(bytes_max: u64) -> HintRoom {
        HintRoom {
            bytes_max,
            bytes: AtomicU64::new(0),
            kept: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
        }
    }

    /// Bytes that hints hold, about: one that took another's place counts twice until all are gone.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Hints that were kept.
    pub fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    /// Hints for which there was no room, or which the store did not take.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Hints that their members confirmed.
    pub fn delivered(&self) -> u64 {
        self.delivered.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = before.saturating_add(bytes) <= self.bytes_max;
        if !fits {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        fits
    }

    fn give_back(&self, bytes: u64) {
        let less = |held: u64| Some(held.saturating_sub(bytes));
        // A count that drifted ends at nothing, never below it.
        let _ = self
            .bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

/// What a hint is filed under: a member keeps it through changes of the member list.
fn label(topology: &Topology, member: MemberIndex) -> [u8; MEMBER_BYTES] {
    let mut hasher = SipHasher13::new_with_key(&topology.hash_key());
    hasher.write(topology.member(member).url.as_bytes());
    hasher.finish().to_be_bytes()
}

/// About what a hint takes.
fn size(key: &Key, cell: &Cell) -> u64 {
    (key.as_stored().len() + cell.as_ref().encoded_len()) as u64
}

/// Keeps a write for a member that did not confirm it.
pub(crate) fn keep(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    member: MemberIndex,
    raw_key: &[u8],
    cell: &Cell,
) {
    let room = &desk.hints;
    let is_crowded = desk.orders.len() >= ORDERS_MAX;
    if is_crowded || raw_key.len() + MEMBER_BYTES > KEY_BYTES_MAX {
        room.dropped.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let mut key = Vec::with_capacity(MEMBER_BYTES + raw_key.len());
    key.extend_from_slice(&label(&desk.topology, member));
    key.extend_from_slice(raw_key);
    let key = Key::new(Space::Hint, &key);
    let mut value = Vec::with_capacity(cell.as_ref().encoded_len());
    cell.as_ref().encode(&mut value);
    let hint = CellRef::value(key.as_stored(), cell.version, &value).to_owned();
    let bytes = size(&key, &hint);
    if !room.take(bytes) {
        return;
    }
    let ticket = desk.order(Order::HintKept { bytes });
    turn.effects.push(Effect::Write {
        ticket,
        key,
        cell: hint,
        guard: StoreGuard::Newest,
    });
}

/// The store took a hint, or did not.
pub(crate) fn kept(desk: &Desk, bytes: u64, result: Result<StoreOutcome, StoreFailure>) {
    if result.is_ok() {
        desk.hints.kept.fetch_add(1, Ordering::Relaxed);
    } else {
        desk.hints.give_back(bytes);
        desk.hints.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// A hint on its way.
#[derive(Debug)]
struct Delivery {
    key: Key,
    hint: Cell,
}

/// One walk through the hints of one member; the first one of a life counts the hints of all.
#[derive(Debug)]
struct Walk {
    member: Option<MemberIndex>,
    /// Where the next page begins; `None` = this was the last one.
    next: Option<Key>,
    waiting: VecDeque<Delivery>,
    under_way: Vec<Option<Delivery>>,
    open: usize,
    /// Somebody refused: no more of this member for now.
    is_refused: bool,
}

/// Delivers hints: on one loop of a member.
#[derive(Debug)]
pub(crate) struct Keeper {
    is_keeper: bool,
    /// Members to walk for.
    wanted: Places,
    walk: Option<Walk>,
    /// Names the walk in answers.
    walks: u32,
    /// When to look again for hints of members that have links.
    again_us: u64,
    /// Hints kept so far when the last round began; `None` = what is there was not counted yet.
    seen: Option<u64>,
}

impl Keeper {
    pub(crate) fn new(is_keeper: bool) -> Keeper {
        Keeper {
            is_keeper,
            wanted: Places::NONE,
            walk: None,
            walks: 0,
            again_us: NEVER,
            seen: None,
        }
    }

    /// When to look again.
    pub(crate) fn due_us(&self) -> u64 {
        self.again_us
    }

    /// A link came up: whoever is there may have missed something.
    pub(crate) fn link_up(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, member: MemberIndex) {
        if self.is_keeper && member != desk.me {
            self.wanted.insert(member.0);
            self.next_walk(desk, turn);
        }
    }

    /// Time went by: hints that were kept although there is a link are tried again.
    pub(crate) fn tick(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        if !self.is_keeper || (self.seen.is_some() && turn.now.mono_us < self.again_us) {
            return;
        }
        self.again_us = turn.now.mono_us + HINT_PAUSE_US;
        let kept = desk.hints.kept();
        if self.seen.replace(kept).is_none() {
            self.begin_walk(desk, turn, None);
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
        if self.walk.is_some() {
            return;
        }
        let Some(member) = self.wanted.iter().next() else {
            return;
        };
        self.wanted.remove(member);
        self.begin_walk(desk, turn, Some(MemberIndex(member)));
    }

    fn begin_walk(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, member: Option<MemberIndex>) {
        let first = member.map_or([0; MEMBER_BYTES], |member| label(&desk.topology, member));
        self.walks = self.walks.wrapping_add(1);
        self.walk = Some(Walk {
            member,
            next: Some(Key::new(Space::Hint, &first)),
            waiting: VecDeque::new(),
            under_way: Vec::new(),
            open: 0,
            is_refused: false,
        });
        self.go_on(desk, turn);
    }

    /// The next page, the next walk, or nothing to do but wait.
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
                let end = walk
                    .member
                    .and_then(|member| following(&label(&desk.topology, member)));
                let deadline_us = turn.now.mono_us + HINT_TIMEOUT_US;
                let ticket = desk.order(Order::HintPage { walk: self.walks });
                turn.effects.push(Effect::Page {
                    ticket,
                    start,
                    end: end.map(|end| Key::new(Space::Hint, &end)),
                    is_reverse: false,
                    bytes: HINT_PAGE_BYTES_MAX,
                    deadline_us,
                });
                walk.open = 1;
            }
            None => {
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
        result: Result<(Vec<(Key, Cell)>, Option<Key>), StoreFailure>,
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
                if walk.member.is_some() {
                    walk.waiting = kept.map(|(key, hint)| Delivery { key, hint }).collect();
                } else {
                    let bytes = kept.map(|(key, hint)| size(&key, &hint)).sum();
                    desk.hints.bytes.fetch_add(bytes, Ordering::Relaxed);
                }
            }
            // The hints stay where they are; another walk will find them.
            Err(_) => walk.is_refused = true,
        }
        self.go_on(desk, turn);
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
        if matches!(answer, Answer::Written(_)) {
            desk.hints.delivered.fetch_add(1, Ordering::Relaxed);
            delete(desk, turn, &delivery);
        } else {
            walk.is_refused = true;
        }
        self.go_on(desk, turn);
    }
}

fn deliver(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    walk: &mut Walk,
    walk_number: u32,
    delivery: Delivery,
) {
    let Some(member) = walk.member else {
        return;
    };
    let raw_key = Bytes::copy_from_slice(&delivery.key.raw()[MEMBER_BYTES..]);
    let Some(cell) = CellRef::decode(&delivery.hint.value).map(|cell| cell.to_owned()) else {
        // Not a hint that this release can read: it is of no use to anybody.
        delete(desk, turn, &delivery);
        return;
    };
    if is_planted(Bug::HintDroppedEarly) {
        delete(desk, turn, &delivery);
    }
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
    let ticket = desk.order(Order::HintGone { bytes });
    let version = delivery.hint.version;
    let cell = CellRef::tombstone(delivery.key.as_stored(), version.successor()).to_owned();
    turn.effects.push(Effect::Write {
        ticket,
        key: delivery.key.clone(),
        cell,
        guard: StoreGuard::Is(Some(version)),
    });
}

/// A hint is deleted, or was replaced.
pub(crate) fn gone(desk: &Desk, bytes: u64, result: Result<StoreOutcome, StoreFailure>) {
    if let Ok(StoreOutcome::Applied { .. }) = result {
        desk.hints.give_back(bytes);
    }
}

/// The first label behind one.
fn following(label: &[u8; MEMBER_BYTES]) -> Option<[u8; MEMBER_BYTES]> {
    let next = u64::from_be_bytes(*label).checked_add(1)?;
    Some(next.to_be_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_room_drops_and_counts_until_something_left() {
        let room = HintRoom::new(100);
        assert!(room.take(60) && room.take(40) && !room.take(1));
        assert_eq!((room.bytes(), room.dropped()), (100, 1));
        room.give_back(60);
        assert!(room.take(60));
        room.give_back(1_000);
        assert_eq!(room.bytes(), 0, "a count that drifted ends at nothing");
        assert!(!HintRoom::new(0).take(1), "no room keeps no hint");
    }

    #[test]
    fn the_labels_of_members_do_not_overlap() {
        assert_eq!(
            following(&[0, 0, 0, 0, 0, 0, 0, 255]),
            Some([0, 0, 0, 0, 0, 0, 1, 0])
        );
        assert_eq!(following(&[255; 8]), None, "the end of the space");
    }
}
