//! Looks of an operator: comparisons that count differences, and repair none.
//!
//! ```text
//! LookOrder ─► a walk with each named peer in turn ─► LookReport
//!   first look    a record differs: it is a suspect, with the copy that lags
//!   LOOK_AGAIN_US later, the same part once more
//!   second look   the same member lags, with the same copy ─► counted
//!                 anything else was a write under way
//! ```
//!
//! Invariants
//! 1. A look writes no record, here or at a peer. It asks `Compare` and `List`, and `Read` for a
//!    record that the peer need not list.
//! 2. A difference is counted if one copy lagged behind another one for `LOOK_AGAIN_US` at least.
//! 3. Suspects take at most about `LOOK_SUSPECT_BYTES` of memory. Beyond that the walk waits for
//!    second looks.
//! 4. While a look is under way, the member's own comparison rests. It goes on from its place.
//!
//! Not here: the walk, its pauses and failures (`walk.rs`, `mod.rs`).
//! See: docs/operating.md, "Copies that differ".

use super::findings::{CopyDifference, LookOrder, LookReport, PairLook, PairState};
use super::parts::{CompareWork, SpacePart};
use super::progress::CompareReport;
use super::repairs::RepairStep;
use super::shared::SharedRecords;
use crate::desk::Turn;
use crate::limits::{COMPARE_YOUNG_MS, LOOK_AGAIN_US, LOOK_SUSPECT_BYTES};
use crate::replica::record::Record;
use bytes::Bytes;
use dendra_base::peer::Answer;
use dendra_base::{Cell, Version};
use dendra_ownership::member::MemberIndex;
use std::collections::{BTreeMap, VecDeque};

/// A record that differs: how, and the copy that lags, if there is one.
type Suspect = (CopyDifference, Option<Version>);

/// Records that differed at the first look.
#[derive(Debug)]
struct SuspectPart {
    part: SpacePart,
    suspects: BTreeMap<Bytes, Suspect>,
    bytes: usize,
    due_us: u64,
}

/// The work of a walk.
#[derive(Debug)]
pub(super) enum NextWork {
    Work(CompareWork),
    RestUntil(u64),
    End,
}

/// A look under way.
#[derive(Debug)]
pub(super) struct LookRun {
    report: LookReport,
    bytes_per_second: u64,
    /// Which pair is looked at.
    at: usize,
    is_news: bool,
    waiting: VecDeque<SuspectPart>,
    waiting_bytes: usize,
    /// The suspects that are looked at once more, until the stack is as low as this again.
    second: Option<(usize, BTreeMap<Bytes, Suspect>)>,
}

impl LookRun {
    pub(super) fn new(order: LookOrder) -> LookRun {
        LookRun {
            report: LookReport::of(&order),
            bytes_per_second: order.bytes_per_second,
            at: 0,
            is_news: true,
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            second: None,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.report.is_over
    }

    /// The findings, if there are new ones.
    pub(super) fn take_news(&mut self) -> Option<LookReport> {
        std::mem::take(&mut self.is_news).then(|| self.report.clone())
    }

    /// The next peer that can be reached: a walk with it begins.
    pub(super) fn next_peer(&mut self, is_up: impl Fn(MemberIndex) -> bool) -> Option<MemberIndex> {
        while !self.report.is_over {
            let peer = self.pair().peer;
            *self.pair() = PairLook::new(peer);
            if is_up(peer) {
                self.pair().state = PairState::UnderWay;
                self.waiting.clear();
                self.waiting_bytes = 0;
                self.second = None;
                return Some(peer);
            }
            self.end_pair(PairState::Unreached);
        }
        None
    }

    pub(super) fn bytes_per_second(&self) -> u64 {
        self.bytes_per_second
    }

    /// The pair under way, which changes.
    fn pair(&mut self) -> &mut PairLook {
        self.is_news = true;
        &mut self.report.pairs[self.at]
    }

    /// So many bytes of own copies were looked at.
    pub(super) fn read(&mut self, bytes: u64) {
        self.pair().bytes += bytes;
    }

    /// The walk with the pair under way is over.
    pub(super) fn end_walk(&mut self, report: &CompareReport, is_at_end: bool) {
        self.pair().left_out = report.left_out;
        self.end_pair(if is_at_end && report.failed == 0 {
            PairState::Compared
        } else {
            PairState::Unreached
        });
    }

    fn end_pair(&mut self, state: PairState) {
        self.pair().state = state;
        self.at += 1;
        self.report.is_over = self.at == self.report.pairs.len();
    }

    /// Second looks first, once they are due.
    pub(super) fn next_work(&mut self, stack: &mut Vec<CompareWork>, now_us: u64) -> NextWork {
        if self
            .second
            .as_ref()
            .is_some_and(|(low, _)| stack.len() <= *low)
        {
            self.second = None;
        }
        if self.second.is_none()
            && let Some(first) = self.waiting.front()
        {
            let is_full = self.waiting_bytes >= LOOK_SUSPECT_BYTES || stack.is_empty();
            if now_us < first.due_us && is_full {
                return NextWork::RestUntil(first.due_us);
            }
            if let Some(due) = self.waiting.pop_front_if(|next| now_us >= next.due_us) {
                self.waiting_bytes -= due.bytes;
                self.second = Some((stack.len(), due.suspects));
                return NextWork::Work(CompareWork::Exchange { part: due.part });
            }
        }
        stack.pop().map_or(NextWork::End, NextWork::Work)
    }

    /// Takes the repairs that a comparison would make of `part`. Those that stay are questions
    /// that a second look asks.
    pub(super) fn weigh(
        &mut self,
        turn: &Turn<'_>,
        part: SpacePart,
        steps: Vec<RepairStep>,
        lists: [&[(Bytes, Cell)]; 2],
        shared: &SharedRecords,
    ) -> Vec<RepairStep> {
        let now_ms = turn.now.wall_ms;
        let mut questions = Vec::new();
        let mut suspects = BTreeMap::new();
        let mut bytes = 0;
        for step in steps {
            let Some((key, suspect)) = suspect(&step, lists, shared, now_ms) else {
                continue;
            };
            match &self.second {
                None => {
                    bytes += key.len() + size_of::<(Bytes, Suspect)>();
                    suspects.insert(key, suspect);
                }
                Some((_, known)) if known.get(&key) != Some(&suspect) => {}
                Some(_) if matches!(step, RepairStep::Meet { .. }) => questions.push(step),
                Some(_) => self.pair().found(key, suspect.0),
            }
        }
        if !suspects.is_empty() {
            self.waiting_bytes += bytes;
            self.waiting.push_back(SuspectPart {
                part,
                suspects,
                bytes,
                due_us: turn.now.mono_us + LOOK_AGAIN_US,
            });
        }
        questions
    }

    /// The peer was asked for a record that it does not list. `false` = it did not answer.
    pub(super) fn met(&mut self, key: Bytes, own: &Cell, answer: &Answer, now_ms: u64) -> bool {
        let difference = match answer {
            Answer::Same => return true,
            Answer::Cell(None) => CopyDifference::MissingThere,
            Answer::Cell(Some(theirs)) if own.version == theirs.version => CopyDifference::Content,
            Answer::Cell(Some(theirs)) if own.is_newer_than(theirs) => CopyDifference::NewerHere,
            Answer::Cell(Some(theirs)) => {
                // It was not seen before: a write of now is no difference.
                if theirs.version.wall_ms().abs_diff(now_ms) < COMPARE_YOUNG_MS {
                    return true;
                }
                CopyDifference::NewerThere
            }
            _ => return false,
        };
        self.pair().found(key, difference);
        true
    }
}

fn held<'a>(list: &'a [(Bytes, Cell)], key: &Bytes) -> Option<&'a Cell> {
    let at = list.binary_search_by(|(other, _)| other.cmp(key)).ok()?;
    Some(&list[at].1)
}

/// Which difference a repair is for; `None` if the two members need not hold the same there.
fn suspect(
    step: &RepairStep,
    [own, peer]: [&[(Bytes, Cell)]; 2],
    shared: &SharedRecords,
    now_ms: u64,
) -> Option<(Bytes, Suspect)> {
    let promised = |cell: Option<&Cell>| {
        let promised = Record::decode(&cell?.value)?.promised;
        Some(Version {
            hlc: promised.hlc,
            origin: promised.origin,
            rmw: 0,
        })
    };
    match step {
        RepairStep::Send { key, .. }
        | RepairStep::Meet { key, .. }
        | RepairStep::Fetch { key, .. }
        | RepairStep::Dispute { key, .. } => {
            let (here, there) = (held(own, key), held(peer, key));
            let (difference, lags, newest) = match (step, here, there) {
                (RepairStep::Dispute { .. }, ..) => (CopyDifference::Content, here, here),
                (RepairStep::Fetch { .. }, None, _) => (CopyDifference::MissingHere, None, there),
                (RepairStep::Fetch { .. }, ..) => (CopyDifference::NewerThere, here, there),
                (_, _, None) => (CopyDifference::MissingThere, None, here),
                _ => (CopyDifference::NewerHere, there, here),
            };
            // One of them may have purged it, or is no owner of either copy.
            let newest = newest?.as_ref();
            let copies = [here, there].into_iter().flatten();
            let copies = copies.map(|cell| shared.copies_of(&cell.as_ref())).max()?;
            let is_wanted = !shared.forgets(&newest, now_ms) && shared.has(key, copies);
            let lag = lags.map(|cell| cell.version);
            is_wanted.then(|| (key.clone(), (difference, lag)))
        }
        RepairStep::PromiseThere { key, ballot } | RepairStep::PromiseHere { key, ballot } => {
            let is_there = matches!(step, RepairStep::PromiseThere { .. });
            let lag = promised(held(if is_there { peer } else { own }, key));
            (!shared.forgets_ballot(*ballot)).then(|| (key.clone(), (CopyDifference::Promise, lag)))
        }
        RepairStep::Keep { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part() -> SpacePart {
        SpacePart {
            start: Bytes::new(),
            end: None,
        }
    }

    /// A look that has suspects of so many bytes, due at 100, and one span to go.
    fn next_work(bytes: usize, now_us: u64) -> NextWork {
        let mut look = LookRun::new(LookOrder {
            id: 1,
            peers: vec![MemberIndex(1)],
            bytes_per_second: 1,
        });
        look.waiting_bytes = bytes;
        look.waiting.push_back(SuspectPart {
            part: part(),
            suspects: BTreeMap::new(),
            bytes,
            due_us: 100,
        });
        let span = CompareWork::Span {
            part: part(),
            grain: 1,
        };
        look.next_work(&mut vec![span], now_us)
    }

    #[test]
    fn a_walk_with_its_memory_full_waits_for_second_looks() {
        let full = next_work(LOOK_SUSPECT_BYTES, 99);
        assert!(matches!(full, NextWork::RestUntil(100)), "{full:?}");
        let has_room = next_work(LOOK_SUSPECT_BYTES - 1, 99);
        let is_span = matches!(has_room, NextWork::Work(CompareWork::Span { .. }));
        assert!(is_span, "{has_room:?}");
        let due = next_work(LOOK_SUSPECT_BYTES, 100);
        let is_second = matches!(due, NextWork::Work(CompareWork::Exchange { .. }));
        assert!(is_second, "{due:?}");
    }
}
