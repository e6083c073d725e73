//! Turns of sources and bytes of classes, counted beside the machines that decide them.
//!
//! ```text
//! SourceTurns   a source waits: how many requests of others were served since
//! ByteShares    two classes of sizes wait: how many bytes more of the one than of the other went
//! LineGaps      a write of each line may go: how many bytes of one went since one of the other did
//! ```
//!
//! Invariants
//! 1. They see what happened and never ask a machine.
//!
//! Not here: the machines (crate `node`, `standing/`, `stacks/`, `admission/`).
//! See: docs/verification.md.

use dendra_node::LineOf;
use dendra_node::standing::AddressGroup;
use std::collections::{BTreeMap, BTreeSet};

/// Turns of sources in one line of requests.
#[derive(Debug, Default)]
pub(crate) struct SourceTurns {
    /// Requests that stand, by source, and requests of others served since the last turn.
    waiting: BTreeMap<AddressGroup, (u64, u64)>,
    /// Sources that stood since none did.
    seen: BTreeSet<AddressGroup>,
}

impl SourceTurns {
    /// A request stands in line.
    pub(crate) fn join(&mut self, source: AddressGroup) {
        let (count, _) = self.waiting.entry(source).or_default();
        *count += 1;
        self.seen.insert(source);
    }

    /// One of `source` was called in its turn.
    pub(crate) fn turn(&mut self, source: AddressGroup) -> Result<(), String> {
        self.leave(source);
        if let Some((_, passed)) = self.waiting.get_mut(&source) {
            *passed = 0;
        }
        let most = 2 * self.seen.len() as u64;
        let mut others = self.waiting.iter_mut().filter(|(it, _)| **it != source);
        let starved = others.find_map(|(it, (_, passed))| {
            *passed += 1;
            (*passed > most).then_some((*it, *passed))
        });
        starved.map_or(Ok(()), |(it, passed)| {
            let sources = self.seen.len();
            Err(format!(
                "{it:?} stands in line while {passed} requests of others have their turns, of {sources} \
                 sources"
            ))
        })
    }

    /// One of `source` goes without a turn: it is refused for others, or all are let go.
    pub(crate) fn leave(&mut self, source: AddressGroup) {
        if let Some((count, _)) = self.waiting.get_mut(&source) {
            *count -= 1;
            if *count == 0 {
                self.waiting.remove(&source);
            }
        }
        if self.waiting.is_empty() {
            self.seen.clear();
        }
    }
}

/// Up to 4 KiB, then each four times as large: the classes that docs/overload.md promises.
const CLASSES: usize = 6;

/// Shares of one line of writes.
#[derive(Debug, Default)]
pub(crate) struct ByteShares {
    waiting: [u64; CLASSES],
    largest: [u64; CLASSES],
    /// For two classes that wait: bytes of the first less bytes of the second that went since both
    /// do; now, and the least and the most of it.
    apart: [[(i64, i64, i64); CLASSES]; CLASSES],
    /// Bytes of the two that went past the line since it was empty.
    passed: [[u64; CLASSES]; CLASSES],
}

/// How a write goes to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogPath {
    FromLine,
    PastLine,
}

fn class(bytes: u64) -> usize {
    let above = (0..CLASSES - 1).take_while(|class| bytes > 4_096 << (2 * class));
    above.count()
}

impl ByteShares {
    /// A write waits.
    pub(crate) fn join(&mut self, bytes: u64) {
        let class = class(bytes);
        if self.waiting[class] == 0 {
            self.forget(class);
        }
        self.waiting[class] += 1;
        self.largest[class] = self.largest[class].max(bytes);
    }

    /// A write that waited goes on, or is taken back.
    pub(crate) fn leave(&mut self, bytes: u64) {
        let class = class(bytes);
        self.waiting[class] -= 1;
        if self.waiting[class] == 0 {
            self.forget(class);
        }
    }

    /// A write goes to the log. Those that go past the line are paid for later: they count, and may
    /// be as many bytes more.
    pub(crate) fn go(&mut self, bytes: u64, way: LogPath) -> Result<(), String> {
        let own = class(bytes);
        self.largest[own] = self.largest[own].max(bytes);
        for other in (0..CLASSES).filter(|other| *other != own) {
            if way == LogPath::PastLine {
                self.passed[own][other] += bytes;
                self.passed[other][own] += bytes;
            }
            if self.waiting[own] == 0 || self.waiting[other] == 0 {
                continue;
            }
            for (a, b, by) in [(own, other, bytes as i64), (other, own, -(bytes as i64))] {
                let (now, least, most) = &mut self.apart[a][b];
                *now += by;
                (*least, *most) = ((*least).min(*now), (*most).max(*now));
                let bound = self.largest[a] + self.largest[b] + self.passed[a][b];
                if *most - *least > bound as i64 {
                    return Err(format!(
                        "while writes of classes {a} and {b} wait, {} bytes more of one of them \
                         went, and {bound} is the bound",
                        *most - *least
                    ));
                }
            }
        }
        Ok(())
    }

    /// A write that waited is taken back: its bytes count as if they had gone, until none of its
    /// class waits.
    pub(crate) fn take_back(&mut self, bytes: u64) {
        let own = class(bytes);
        for other in 0..CLASSES {
            self.passed[own][other] += bytes;
            self.passed[other][own] += bytes;
        }
        self.leave(bytes);
    }

    fn forget(&mut self, class: usize) {
        self.apart[class] = Default::default();
        for other in 0..CLASSES {
            self.apart[other][class] = Default::default();
        }
        if self.waiting == [0; CLASSES] {
            self.passed = Default::default();
        }
        self.largest[class] = 0;
    }
}

/// Gaps between the turns of the orders and the clients of one loop that wait for the engine's
/// room.
#[derive(Debug)]
pub(crate) struct LineGaps {
    turn_bytes: u64,
    /// Largest of all writes that went.
    largest: u64,
    /// The line that went last, and its bytes while a write of the other one might go.
    last: Option<LineOf>,
    bytes: u64,
}

impl LineGaps {
    /// Gaps of lines that take turns of so many bytes.
    pub(crate) fn new(turn_bytes: u32) -> LineGaps {
        LineGaps {
            turn_bytes: u64::from(turn_bytes),
            largest: 0,
            last: None,
            bytes: 0,
        }
    }

    /// A write of this line goes. So might one of the other line, or not.
    pub(crate) fn went(
        &mut self,
        line: LineOf,
        bytes: u64,
        is_other_ready: bool,
    ) -> Result<(), String> {
        self.largest = self.largest.max(bytes);
        if self.last != Some(line) || !is_other_ready {
            self.bytes = 0;
        }
        self.last = Some(line);
        self.bytes += if is_other_ready { bytes } else { 0 };
        // A turn, what the other one took beyond its own turn, and the last write.
        let bound = self.turn_bytes + 2 * self.largest;
        if self.bytes > bound {
            return Err(format!(
                "{} bytes of {line:?} went while a write of the other line might go, and {bound} \
                 is the bound",
                self.bytes
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_takes_the_turns_of_the_other_one_is_seen() {
        let [orders, clients] = [LineOf::Orders, LineOf::Clients];
        let mut gaps = LineGaps::new(1_000);
        for _ in 0..100 {
            assert_eq!(gaps.went(orders, 500, false), Ok(()), "it is alone");
        }
        for _ in 0..10 {
            for line in [orders, orders, orders, clients] {
                assert_eq!(gaps.went(line, 500, true), Ok(()));
            }
        }
        let went: Vec<_> = (0..5).map(|_| gaps.went(orders, 500, true)).collect();
        assert!(went[..4].iter().all(Result::is_ok) && went[4].is_err());
        assert_eq!(gaps.went(clients, 500, true), Ok(()));
    }

    #[test]
    fn a_source_that_is_passed_by_too_often_is_seen() {
        let [one, two] = [1, 2].map(AddressGroup::of_v4);
        let mut turns = SourceTurns::default();
        turns.join(one);
        for _ in 0..4 {
            turns.join(two);
            assert_eq!(turns.turn(two), Ok(()));
        }
        turns.join(two);
        assert!(turns.turn(two).is_err());
        turns.leave(one);
        turns.join(one);
        turns.join(two);
        assert_eq!(turns.turn(two), Ok(()), "it left meanwhile");
    }

    #[test]
    fn a_class_that_gets_more_bytes_is_seen() {
        let mut shares = ByteShares::default();
        for _ in 0..100 {
            shares.join(100);
            shares.join(20_000);
        }
        let fair = (0..100).map(|_| shares.go(100, LogPath::FromLine));
        assert!(fair.into_iter().all(|went| went.is_ok()));
        assert!(shares.go(20_000, LogPath::FromLine).is_ok());
        shares.leave(20_000);
        assert!(
            shares.go(20_000, LogPath::FromLine).is_err(),
            "twice for 10 KB of the others"
        );
    }
}
