//! AddressStacks beside a twin that looks at everything each time.
//!
//! Not here: when requests wait (`standing/tests.rs`).

use super::*;
use proptest::prelude::*;
use std::collections::HashMap;

/// The same by looking at all of it.
#[derive(Default)]
struct Twin {
    waiting: Vec<(StackPlace, u32)>,
    /// The first round in which a source may be called; without an entry in each.
    due: HashMap<AddressGroup, u64>,
    round: u64,
    late_until_us: u64,
}

impl Twin {
    fn newest_of(&self, source: AddressGroup, until_us: u64) -> Option<StackPlace> {
        let of_it = self.waiting.iter().map(|(place, _)| *place);
        of_it
            .filter(|place| place.source == source && place.came_us < until_us)
            .max()
    }

    fn take(&mut self, place: StackPlace) -> Option<u32> {
        let at = self.waiting.iter().position(|(one, _)| *one == place)?;
        Some(self.waiting.remove(at).1)
    }

    fn due(&self, source: AddressGroup) -> u64 {
        self.due.get(&source).copied().unwrap_or(0).max(self.round)
    }

    fn charge(&mut self, source: AddressGroup, calls: u64) {
        let due = self.due(source) + calls;
        self.due.insert(source, due);
    }

    fn pop(&mut self) -> Option<u32> {
        let sources = self.waiting.iter().map(|(place, _)| place.source);
        let round = sources.clone().map(|source| self.due(source)).min()?;
        let in_turn = sources.filter(|source| self.due(*source) == round);
        let source = in_turn.max_by_key(|source| self.newest_of(*source, u64::MAX))?;
        self.round = round;
        self.due.insert(source, round + 1);
        self.take(self.newest_of(source, u64::MAX)?)
    }

    fn pop_late(&mut self, until_us: u64, which: Late) -> Option<u32> {
        self.late_until_us = self.late_until_us.max(until_us);
        let until_us = self.late_until_us;
        let late = |source: AddressGroup| {
            let of_it = self.waiting.iter().map(|(place, _)| *place);
            of_it.filter(move |place| place.source == source && place.came_us < until_us)
        };
        let sources = self.waiting.iter().map(|(place, _)| place.source);
        let most = sources.clone().map(|source| late(source).count()).max()?;
        let hit = sources.filter(|source| most > 0 && late(*source).count() == most);
        let newest = |source: &AddressGroup| late(*source).max();
        let source = match which {
            Late::Newest => hit.max_by_key(newest),
            Late::Oldest => hit.min_by_key(newest),
        }?;
        let place = match which {
            Late::Newest => late(source).max(),
            Late::Oldest => late(source).min(),
        };
        self.take(place?)
    }
}

proptest! {
    #[test]
    fn stacks_do_what_a_look_at_everything_would(
        steps in prop::collection::vec((0u64..30_000, 0u8..7, 0u32..5, 0u64..60_000), 1..300),
    ) {
        let (mut stacks, mut twin) = (AddressStacks::new(), Twin::default());
        let (mut now_us, mut next, mut places) = (0, 0, Vec::new());
        for (gap_us, what, which, ago_us) in steps {
            now_us += gap_us;
            let late = if which % 2 == 0 { Late::Newest } else { Late::Oldest };
            let until_us = now_us.saturating_sub(ago_us);
            match what {
                0 | 1 => for _ in 0..=which {
                    let source = AddressGroup::of_v4((next * 7 + which) % 5);
                    let place = stacks.push(now_us, source, next);
                    twin.waiting.push((place, next));
                    places.push(place);
                    next += 1;
                },
                2 | 3 => {
                    let popped = stacks.pop().map(|(_, request)| request);
                    prop_assert_eq!(popped, twin.pop());
                }
                4 => {
                    let popped = stacks.pop_late(until_us, late);
                    prop_assert_eq!(popped, twin.pop_late(until_us, late));
                }
                5 => {
                    let source = AddressGroup::of_v4(which);
                    stacks.charge(source, ago_us % 4);
                    twin.charge(source, ago_us % 4);
                }
                _ => if let Some(place) = places.get(ago_us as usize % places.len().max(1)) {
                    prop_assert_eq!(stacks.take(*place), twin.take(*place));
                }
            }
            prop_assert_eq!(stacks.len(), twin.waiting.len());
        }
        let rest: Vec<_> = std::iter::from_fn(|| twin.pop()).collect();
        prop_assert_eq!(stacks.drain(), rest);
        prop_assert!(stacks.stacks.is_empty() && stacks.turns.is_empty() && stacks.late.is_empty());
    }
}

#[test]
fn what_is_remembered_of_sources_is_bounded_and_forgotten_behind_the_round() {
    let mut stacks = AddressStacks::new();
    // It waits, so that the round does not end.
    stacks.push(0, AddressGroup::of_v4(0), 0);
    let sources = 4 * ROUND_SOURCES_MAX as u32;
    for bits in 1..sources {
        stacks.push(1, AddressGroup::of_v4(bits), bits);
        assert_eq!(stacks.pop().map(|(_, request)| request), Some(bits));
        assert!(stacks.away.len() <= ROUND_SOURCES_MAX);
        assert_eq!(stacks.stacks.len(), 1 + stacks.away.len());
    }
    // One of the last ones has had its turn.
    stacks.push(2, AddressGroup::of_v4(sources - 1), 1);
    assert_eq!(stacks.pop().map(|(_, request)| request), Some(0));
    for _ in 0..ROUND_SOURCES_MAX {
        stacks.push(3, AddressGroup::of_v4(0), 0);
        stacks.pop();
    }
    assert!(stacks.away.is_empty(), "of earlier rounds none is left");
}

#[test]
fn a_source_is_called_in_one_round_for_each_call_that_its_work_came_to() {
    let (large, small) = (AddressGroup::of_v4(1), AddressGroup::of_v4(2));
    let mut stacks = AddressStacks::new();
    let mut calls = [0; 2];
    for source in [large, small] {
        (0..200).for_each(|_| _ = stacks.push(0, source, source));
    }
    for _ in 0..100 {
        let (_, source) = stacks.pop().expect("both wait");
        calls[usize::from(source == small)] += 1;
        if source == large {
            stacks.charge(large, 15);
        }
    }
    assert_eq!(
        calls,
        [6, 94],
        "one call of sixteen times the work for sixteen"
    );
    while stacks.pop().is_some_and(|(_, source)| source == small) {}
    assert!(stacks.len() > 0, "alone it waits for no round");
    let left = stacks.len();
    (0..left).for_each(|_| {
        stacks.pop().expect("it waits alone");
        stacks.charge(large, 1_000);
    });
    for bits in 0..2 * ROUND_SOURCES_MAX as u32 {
        stacks.charge(AddressGroup::of_v4(bits), 1);
        assert!(stacks.away.len() <= ROUND_SOURCES_MAX);
    }
}

#[test]
fn a_site_is_one_source() {
    let of = |text: &str| {
        let addr: std::net::Ipv6Addr = text.parse().expect("an address");
        AddressGroup::of_v6(addr.to_bits())
    };
    assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:2:ffff::9"));
    assert_ne!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
    assert_eq!(of("::ffff:127.0.0.1"), AddressGroup::of_v4(0x7f00_0001));
    assert_ne!(of("::1"), AddressGroup::of_v4(0x7f00_0001));
}
