//! Requests that wait for one event loop: a stack for each source, and turns among the sources.
//!
//! ```text
//! source ─► stack: newest on top ─┐   not called in this round, then the newest on top
//! source ─► stack                ─┼─► pop
//! source ─► stack                ─┘   most that wait beyond the target ─► pop_late
//! ```
//!
//! Among sources that were not called in this round the newest request goes first, too. With one
//! connection for each source, the order of arrival would serve every request late. A round ends
//! when each source that waits was called in it: no clock ends it, so it has room for any number of
//! sources. A call that turned out to be the work of several takes as many rounds from its source
//! (`charge`).
//!
//! Invariants
//! 1. A request that is in is popped once, or leaves.
//! 2. A source that waits, and was not charged, is popped before any other one is popped twice.
//!    Sources that were not called in this round come before it while they are newer: an endless
//!    stream of new ones keeps older ones waiting.
//! 3. With one source for all requests the order is that of one stack.
//! 4. It holds an entry for each request that waits. Of the sources that were called in this round,
//!    or charged for later ones, and do not wait it remembers `ROUND_SOURCES_MAX`: one that is
//!    forgotten has its turn again if it comes back at once. A step is logarithmic in both.
//! 5. A source that waits alone is popped, also when it was charged: the loop does not rest.
//!
//! Not here: when requests wait, and how many are refused (`standing/`).
//! See: docs/overload.md, "When the processor is what runs out".

use crate::limits::ROUND_SOURCES_MAX;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Where requests come from: an IPv4 address, or the first half of an IPv6 address, which one site
/// has for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AddressGroup(u64);

impl AddressGroup {
    /// Group of an IPv4 address.
    pub const fn of_v4(bits: u32) -> AddressGroup {
        AddressGroup(bits as u64)
    }

    /// Group of an IPv6 address; one that stands for an IPv4 address is that one.
    pub fn of_v6(bits: u128) -> AddressGroup {
        match bits >> 32 {
            0xffff => AddressGroup::of_v4(bits as u32),
            // Below 2^32 no network begins, so no IPv4 address is taken for one.
            _ => AddressGroup((bits >> 64) as u64),
        }
    }
}

/// The position of a request among all that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StackPlace {
    came_us: u64,
    number: u64,
    source: AddressGroup,
}

impl StackPlace {
    /// When it came.
    pub(crate) fn came_us(self) -> u64 {
        self.came_us
    }
}

/// In front of every place.
const FIRST: StackPlace = StackPlace {
    came_us: 0,
    number: 0,
    source: AddressGroup(0),
};

/// Behind every place of `came_us` and before.
fn end_of(came_us: u64) -> StackPlace {
    StackPlace {
        came_us,
        number: u64::MAX,
        source: AddressGroup(u64::MAX),
    }
}

/// Which of the requests that wait beyond the target is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Late {
    Newest,
    Oldest,
}

#[derive(Debug)]
struct Stack<T> {
    waiting: BTreeMap<StackPlace, T>,
    /// The first round in which it may be popped.
    due: u64,
    /// The number of its last pop among all; orders the sources that are remembered.
    called: u64,
    /// How many of `waiting` are beyond the target: the first ones.
    late: usize,
}

impl<T> Default for Stack<T> {
    fn default() -> Stack<T> {
        Stack {
            waiting: BTreeMap::new(),
            due: 0,
            called: 0,
            late: 0,
        }
    }
}

impl<T> Stack<T> {
    fn newest(&self) -> Option<StackPlace> {
        self.waiting.last_key_value().map(|(place, _)| *place)
    }

    fn newest_late(&self, until: StackPlace) -> Option<StackPlace> {
        let mut late = self.waiting.range(..until);
        late.next_back().map(|(place, _)| *place)
    }

    /// Where it stands among those that are popped next.
    fn turn(&self) -> Option<(u64, Reverse<StackPlace>)> {
        Some((self.due, Reverse(self.newest()?)))
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct AddressStacks<T> {
    stacks: BTreeMap<AddressGroup, Stack<T>>,
    len: usize,
    next_number: u64,
    /// Sources with requests, the next one to be called first.
    turns: BTreeSet<(u64, Reverse<StackPlace>)>,
    /// Requests that are not beyond the target yet, and up to where they are.
    fresh: BTreeSet<StackPlace>,
    late_until: StackPlace,
    /// Sources with requests beyond the target: how many, and the newest of them.
    late: BTreeSet<(usize, StackPlace)>,
    round: u64,
    calls: u64,
    /// Sources without requests that were called in this round, or in an earlier one and are not
    /// forgotten yet: the round they are due in, their last call.
    away: BTreeSet<(u64, u64, AddressGroup)>,
}

impl<T> AddressStacks<T> {
    pub(crate) fn new() -> AddressStacks<T> {
        AddressStacks {
            stacks: BTreeMap::new(),
            len: 0,
            next_number: 0,
            turns: BTreeSet::new(),
            fresh: BTreeSet::new(),
            late_until: FIRST,
            late: BTreeSet::new(),
            round: 0,
            calls: 0,
            away: BTreeSet::new(),
        }
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A request came. Requires: `now_us` does not go back.
    pub(crate) fn push(&mut self, now_us: u64, source: AddressGroup, request: T) -> StackPlace {
        let place = StackPlace {
            came_us: now_us,
            number: self.next_number,
            source,
        };
        self.next_number += 1;
        self.change(source, |stacks| {
            let stack = stacks.stacks.entry(source).or_default();
            stack.due = stack.due.max(stacks.round);
            stack.waiting.insert(place, request);
            stacks.fresh.insert(place);
            stacks.len += 1;
        });
        place
    }

    /// The work for `source` came to that of so many calls more than it was called: it has no turn
    /// in as many rounds.
    pub(crate) fn charge(&mut self, source: AddressGroup, calls: u64) {
        self.change(source, |stacks| {
            let stack = stacks.stacks.entry(source).or_default();
            stack.due = stack.due.max(stacks.round).saturating_add(calls);
        });
        self.forget_some();
    }

    /// Takes a request out, if it is in.
    pub(crate) fn take(&mut self, place: StackPlace) -> Option<T> {
        self.change(place.source, |stacks| stacks.remove(place))
    }

    fn remove(&mut self, place: StackPlace) -> Option<T> {
        let stack = self.stacks.get_mut(&place.source)?;
        let request = stack.waiting.remove(&place)?;
        if !self.fresh.remove(&place) {
            stack.late -= 1;
        }
        self.len -= 1;
        Some(request)
    }

    /// The next request in turn.
    pub(crate) fn pop(&mut self) -> Option<(StackPlace, T)> {
        let (due, Reverse(place)) = *self.turns.first()?;
        // Above it: each source that waits was called in the round.
        self.round = due;
        self.calls += 1;
        self.forget_some();
        self.change(place.source, |stacks| {
            if let Some(stack) = stacks.stacks.get_mut(&place.source) {
                (stack.due, stack.called) = (stacks.round + 1, stacks.calls);
            }
            stacks.remove(place)
        })
        .map(|request| (place, request))
    }

    /// Does one wait that came at `until_us` or later? Requires: `until_us` does not go back.
    pub(crate) fn has_newer(&mut self, until_us: u64) -> bool {
        self.age(until_us);
        !self.fresh.is_empty()
    }

    /// Takes out one of the source with the most that came before `until_us`, and of those sources
    /// the one with the newest or the oldest such request.
    pub(crate) fn pop_late(&mut self, until_us: u64, which: Late) -> Option<T> {
        let place = self.late_place(until_us, which)?;
        self.take(place)
    }

    /// The place of that request.
    pub(crate) fn late_place(&mut self, until_us: u64, which: Late) -> Option<StackPlace> {
        self.age(until_us);
        let (most, newest) = *self.late.last()?;
        let source = match which {
            Late::Newest => newest.source,
            Late::Oldest => self.late.range((most, FIRST)..).next()?.1.source,
        };
        let stack = self.stacks.get(&source)?;
        match which {
            Late::Newest => stack.newest_late(self.late_until),
            Late::Oldest => stack.waiting.first_key_value().map(|(place, _)| *place),
        }
    }

    /// Everything that waits, in turn. No source is remembered.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        let all = std::iter::from_fn(|| self.pop())
            .map(|(_, request)| request)
            .collect();
        self.away.clear();
        self.stacks.clear();
        all
    }

    /// Marks requests as late: those that came before `until_us` are beyond the target from now on.
    fn age(&mut self, until_us: u64) {
        let until = end_of(until_us.saturating_sub(1));
        if until_us == 0 || until <= self.late_until {
            return;
        }
        let fresh = self.fresh.split_off(&until);
        let aged = std::mem::replace(&mut self.fresh, fresh);
        for place in &aged {
            // Where its source stood among the late ones is computed with the boundary of that
            // time.
            self.change_late(place.source, |stack| stack.late += 1, *place);
        }
        self.late_until = until;
    }

    /// One more of a source is late: the newest of them, because they come in order.
    fn change_late(
        &mut self,
        source: AddressGroup,
        change: impl FnOnce(&mut Stack<T>),
        newest: StackPlace,
    ) {
        let Some(stack) = self.stacks.get_mut(&source) else {
            return;
        };
        if stack.late > 0
            && let Some((before, _)) = stack.waiting.range(..newest).next_back()
        {
            self.late.remove(&(stack.late, *before));
        }
        change(stack);
        self.late.insert((stack.late, newest));
    }

    /// Changes the stack of `source` and its entries in `turns` and `fresh`.
    fn change<R>(
        &mut self,
        source: AddressGroup,
        change: impl FnOnce(&mut AddressStacks<T>) -> R,
    ) -> R {
        self.unlist(source);
        let done = change(self);
        self.list(source);
        done
    }

    fn unlist(&mut self, source: AddressGroup) {
        let Some(stack) = self.stacks.get(&source) else {
            return;
        };
        match stack.turn() {
            Some(turn) => _ = self.turns.remove(&turn),
            None => _ = self.away.remove(&(stack.due, stack.called, source)),
        }
        if stack.late > 0
            && let Some(newest) = stack.newest_late(self.late_until)
        {
            self.late.remove(&(stack.late, newest));
        }
    }

    fn list(&mut self, source: AddressGroup) {
        let Some(stack) = self.stacks.get(&source) else {
            return;
        };
        match stack.turn() {
            Some(turn) => _ = self.turns.insert(turn),
            None if stack.due > self.round => {
                self.away.insert((stack.due, stack.called, source));
            }
            None => {
                self.stacks.remove(&source);
                return;
            }
        }
        if stack.late > 0
            && let Some(newest) = stack.newest_late(self.late_until)
        {
            self.late.insert((stack.late, newest));
        }
    }

    /// Forgets sources that are away: those of an earlier round, two at each call so that the end
    /// of a round costs no more than a call, and those beyond the bound.
    fn forget_some(&mut self) {
        for _ in 0..2 {
            match self.away.first().copied() {
                Some(first) if first.0 <= self.round || self.away.len() >= ROUND_SOURCES_MAX => {
                    self.away.remove(&first);
                    self.stacks.remove(&first.2);
                }
                _ => return,
            }
        }
    }
}

#[cfg(test)]
mod tests;
