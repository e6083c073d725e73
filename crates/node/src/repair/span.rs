//! One span under repair: the sources that were walked, and those that have a gap in it.
//!
//! ```text
//! a ─────────────── m ── gap of h2 ── p ─────── z     the span
//! walk of h1   walked to z
//! walk of h2   a to m, and again from m on after 1 s, 2 s, 4 s … 30 s
//! ```
//!
//! Invariants
//! 1. A source is walked once each of its pages is durable here, from the first key to the last.
//! 2. Pages in front of a gap are not asked for again, unless the members change.
//! 3. A span waits once each source that is missing is away, or has a gap, for `REPAIR_STUCK_US`.
//!
//! Not here: which span is next (`mod.rs`), which sources are enough (`enough.rs`).

use crate::limits::{REPAIR_GAP_PAUSE_US_MAX, REPAIR_PAUSE_US, REPAIR_STUCK_US};
use crate::step::LostSpan;
use bytes::Bytes;
use dendra_base::Space;
use dendra_ownership::loss::WalkPart;
use dendra_ownership::member::MemberIndex;
use dendra_ownership::ring::table::MemberId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A span under repair.
#[derive(Debug)]
pub(super) struct Repair {
    pub(super) block: u64,
    pub(super) parts: VecDeque<WalkPart>,
    pub(super) since_us: u64,
    /// Sources that were walked to their ends.
    pub(super) walked: BTreeSet<MemberIndex>,
    /// Sources that could not be read to their ends when they were asked last.
    pub(super) gaps: BTreeMap<MemberIndex, Gap>,
    /// The number of its last walk.
    pub(super) tried: u64,
    pub(super) is_told: bool,
    /// Since when no source that is missing can be read; `None` = one can.
    stuck_since_us: Option<u64>,
    /// The members for which it waits, as the world knows it.
    waits_for: BTreeSet<MemberId>,
}

/// A source that is damaged between the same keys.
#[derive(Debug)]
pub(super) struct Gap {
    /// From the gap on.
    left: VecDeque<WalkPart>,
    pause_us: u64,
    /// When it is asked again.
    until_us: u64,
}

impl Repair {
    /// Repair of a span that is lost since now; `None` when it holds notes of the node itself.
    pub(super) fn of(span: &LostSpan, now_us: u64) -> Option<Repair> {
        Some(Repair {
            block: span.block,
            parts: parts(span)?,
            since_us: now_us,
            walked: BTreeSet::new(),
            gaps: BTreeMap::new(),
            tried: 0,
            is_told: false,
            stuck_since_us: None,
            waits_for: BTreeSet::new(),
        })
    }

    /// The pages so far may be of other owners.
    pub(super) fn begin_anew(&mut self) {
        self.walked.clear();
        self.gaps.clear();
    }

    /// The part of the span that a walk of `source` has not shown yet.
    pub(super) fn left_at(&self, source: MemberIndex) -> VecDeque<WalkPart> {
        let gap = self.gaps.get(&source);
        gap.map_or(&self.parts, |gap| &gap.left).clone()
    }

    /// Is it time to ask `source`, again if it has a gap?
    pub(super) fn may_ask(&self, source: MemberIndex, now_us: u64) -> bool {
        let gap = self.gaps.get(&source);
        gap.is_none_or(|gap| now_us >= gap.until_us)
    }

    /// The source cannot read what comes next.
    pub(super) fn met_gap(&mut self, source: MemberIndex, left: VecDeque<WalkPart>, now_us: u64) {
        let before = self.gaps.get(&source);
        let pause_us = before.map_or(REPAIR_PAUSE_US, |gap| {
            (2 * gap.pause_us).min(REPAIR_GAP_PAUSE_US_MAX)
        });
        let gap = Gap {
            left,
            pause_us,
            until_us: now_us + pause_us,
        };
        self.gaps.insert(source, gap);
    }

    /// The source was walked to its end.
    pub(super) fn reached_end(&mut self, source: MemberIndex) {
        self.gaps.remove(&source);
        self.walked.insert(source);
    }

    /// No source that is missing can be read but these, or one can: `of` is empty. What the world
    /// has to know, if it does not yet.
    pub(super) fn waits(
        &mut self,
        of: BTreeSet<MemberId>,
        now_us: u64,
    ) -> Option<BTreeSet<MemberId>> {
        if of.is_empty() {
            self.stuck_since_us = None;
        } else {
            let since_us = *self.stuck_since_us.get_or_insert(now_us);
            if now_us < since_us + REPAIR_STUCK_US {
                return None;
            }
        }
        let is_news = of != self.waits_for;
        self.waits_for.clone_from(&of);
        is_news.then_some(of)
    }
}

/// The parts to walk for the span; `None` when it holds notes of the node itself. Hints are left
/// out: they are copies of writes that other owners have confirmed.
fn parts(span: &LostSpan) -> Option<VecDeque<WalkPart>> {
    if part(span, Space::Meta).is_some() {
        return None;
    }
    let spaces = [Space::Protocol, Space::User].into_iter();
    Some(spaces.filter_map(|space| part(span, space)).collect())
}

/// The part of the span that lies in `space`.
fn part(span: &LostSpan, space: Space) -> Option<WalkPart> {
    let (first, last) = (span.first.as_ref(), span.last.as_ref());
    // No key of a space is empty.
    let lowest = [space.byte(), 0];
    if last < &lowest[..] || first.first()? > &space.byte() {
        return None;
    }
    let raw = |key: &[u8]| Bytes::copy_from_slice(&key[1..]);
    let is_here = |key: &[u8]| key.first() == Some(&space.byte());
    Some(WalkPart {
        space,
        start: if is_here(first) {
            raw(first)
        } else {
            Bytes::new()
        },
        last: is_here(last).then(|| raw(last)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(first: &'static [u8], last: &'static [u8]) -> LostSpan {
        LostSpan {
            id: 1,
            block: 1,
            first: Bytes::from_static(first),
            last: Bytes::from_static(last),
        }
    }

    #[test]
    fn a_span_is_walked_space_by_space() {
        let all = parts(&span(b"\x02a", b"\x10k")).expect("no notes are in it");
        let wanted = [
            WalkPart {
                space: Space::Protocol,
                start: Bytes::from_static(b"a"),
                last: None,
            },
            WalkPart {
                space: Space::User,
                start: Bytes::new(),
                last: Some(Bytes::from_static(b"k")),
            },
        ];
        assert_eq!(all, wanted);
        let hints = parts(&span(b"\x03a", b"\x10")).expect("no notes are in it");
        assert_eq!(hints, [], "a separator is no key");
        assert_eq!(parts(&span(b"\x01clock", b"\x02")), None);
        assert_eq!(parts(&span(b"\x01", b"\x10k")), None);
        let clients = parts(&span(b"\x10a\0", b"\x10b")).expect("no notes are in it");
        assert_eq!(clients.len(), 1);
    }
}
