//! One comparison with one peer: its stack of work, and its open questions.
//!
//! ```text
//! Span      survey ─► Compare ─► compared: further spans, exchanges
//! Exchange  List ─► own page ─► meet: repairs, and the rest as another exchange
//! Hop       List ─► behind it: a span
//! ```
//!
//! Invariants
//! 1. One question, or one order to the own store, is under way at a time; of repairs at most
//!    `COMPARE_STEPS_MAX`.
//! 2. The stack is in key order, the next part on top. It holds the ranges of one page, those of
//!    one split range, and the rest.
//!
//! Not here: when a walk goes on, and its limits (`compare/mod.rs`).
//! See: docs/protocol.md, "Comparing copies".

use super::look::LookRun;
use super::parts::{CompareWork, SpacePart};
use super::progress::CompareReport;
use super::repairs::{RepairStep, of_promises, of_records};
use super::shared::{PairMember, SharedRecords};
use super::survey::{RangesBy, Survey, SurveyRange};
use crate::desk::{Desk, Order, Turn};
use crate::ledger::NEVER;
use crate::limits::{
    COMPARE_ASK_US, COMPARE_GRAIN, COMPARE_GRAIN_LAST, COMPARE_LIST_BYTES, COMPARE_PAGE_BYTES,
    COMPARE_STEPS_MAX,
};
use crate::purpose::{Purpose, Recipient, Requester};
use crate::replica::job::ProtocolQuestion;
use crate::replica::protocol;
use crate::step::Effect;
use bytes::Bytes;
use dendra_base::peer::{Ask, RangePrint};
use dendra_base::{Cell, Guard, Key, Space};
use dendra_ownership::member::MemberIndex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The question, or the order to the own store, that is under way.
#[derive(Debug)]
pub(super) enum CompareStage {
    Idle,
    /// The first question of this work: a look of the own store, or a list of the peer.
    Asked(CompareWork),
    /// The peer compares.
    Comparing {
        part: SpacePart,
        grain: u32,
        ranges: Vec<SurveyRange>,
    },
    /// The own store reads the same part.
    Paging {
        part: SpacePart,
        listed: Vec<(Bytes, Cell)>,
        next: Option<Bytes>,
    },
    /// Repairs: those to come, and those under way.
    Repairing {
        to_come: Vec<RepairStep>,
        under_way: BTreeMap<u32, RepairStep>,
    },
}

/// One comparison with one peer.
#[derive(Debug)]
pub(super) struct CompareWalk {
    pub(super) id: u64,
    pub(super) peer: MemberIndex,
    pub(super) shared: Arc<SharedRecords>,
    pub(super) space: Space,
    pub(super) now_ms: u64,
    pub(super) began_us: u64,
    pub(super) stack: Vec<CompareWork>,
    pub(super) stage: CompareStage,
    /// How often in a row the peer, or the own store, was too busy to answer.
    pub(super) busy: u32,
    /// Bytes that wait for a horizon, as far as own looks have found them.
    pub(super) waiting: u64,
    pub(super) report: CompareReport,
    /// An operator looks: differences are counted, and not repaired.
    pub(super) is_look: bool,
}

impl CompareWalk {
    pub(super) fn take_stage(&mut self) -> CompareStage {
        std::mem::replace(&mut self.stage, CompareStage::Idle)
    }

    /// Is no question under way, and no repair?
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.stage, CompareStage::Idle)
    }

    /// Compares the records after `start`, if there may be some.
    pub(super) fn go_on_behind(&mut self, start: Option<Bytes>, end: Option<Bytes>, grain: u32) {
        let Some(start) = start else {
            return;
        };
        let part = SpacePart { start, end };
        if part.has_behind(&part.start) {
            self.stack.push(CompareWork::Span { part, grain });
        }
    }

    pub(super) fn key(&self, raw: &[u8]) -> Key {
        Key::new(self.space, raw)
    }

    /// A part cannot be read.
    pub(super) fn leave_out(&mut self, desk: &Desk) {
        self.report.left_out += 1;
        desk.comparisons.left_out.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn begin(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, work: CompareWork) {
        match &work {
            CompareWork::Span { part, grain } => {
                let look = Survey {
                    start: self.key(&part.start),
                    end: part.end.as_ref().map(|end| self.key(end)),
                    shared: Arc::clone(&self.shared),
                    now_ms: self.now_ms,
                    by: RangesBy::Grain(*grain),
                    bytes_max: COMPARE_PAGE_BYTES,
                };
                let ticket = desk.order(Order::OwnSurvey { walk: self.id });
                turn.effects.push(Effect::Survey {
                    ticket,
                    look: Box::new(look),
                    deadline_us: turn.now.mono_us + COMPARE_ASK_US,
                });
            }
            CompareWork::Exchange { part } | CompareWork::Hop { part } => {
                let ask = Ask::List {
                    space: self.space,
                    start: part.start.clone(),
                    end: part.end.clone(),
                    bytes: COMPARE_LIST_BYTES,
                };
                self.ask(desk, turn, 0, ask);
            }
        }
        self.stage = CompareStage::Asked(work);
    }

    pub(super) fn ask(&self, desk: &mut Desk, turn: &mut Turn<'_>, slot: u32, ask: Ask) {
        let purpose = Purpose::Compare {
            walk: self.id,
            slot,
        };
        let deadline_us = turn.now.mono_us + COMPARE_ASK_US;
        desk.ask(turn, self.peer, purpose, ask, deadline_us);
    }

    /// Asks the peer for the ranges that were looked at here.
    pub(super) fn compare(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        part: SpacePart,
        grain: u32,
        ranges: Vec<SurveyRange>,
    ) {
        let prints = ranges.iter().map(|range| RangePrint {
            end: range.end.clone(),
            print: range.print,
        });
        let prints: Vec<RangePrint> = prints.collect();
        let bounds = prints.iter().flat_map(|print| &print.end).map(Bytes::len);
        let moved = (bounds.sum::<usize>() + 15 * prints.len() + 80) as u64;
        desk.comparisons.moved.fetch_add(moved, Ordering::Relaxed);
        let ask = Ask::Compare {
            space: self.space,
            start: part.start.clone(),
            ranges: prints,
            now_ms: self.now_ms,
        };
        self.stage = CompareStage::Comparing {
            part,
            grain,
            ranges,
        };
        self.ask(desk, turn, 0, ask);
    }

    /// The peer has compared the first `looked` ranges of a part.
    pub(super) fn compared(
        &mut self,
        part: SpacePart,
        grain: u32,
        ranges: &[SurveyRange],
        looked: usize,
        differing: &[u16],
    ) {
        let start = ranges[looked - 1].end.clone();
        self.go_on_behind(start, part.end.clone(), grain);
        let are_many = looked > 2 && differing.len() * 2 > looked;
        let start_of = |at: usize| match at {
            0 => part.start.clone(),
            at => ranges[at - 1].end.clone().expect("only the last has none"),
        };
        for at in differing.iter().rev().map(|at| usize::from(*at)) {
            let range = &ranges[at];
            let whole = SpacePart {
                start: start_of(at),
                end: range.end.clone(),
            };
            let is_small = grain <= COMPARE_GRAIN_LAST || range.records <= COMPARE_GRAIN_LAST;
            match self.stack.last_mut() {
                // Neighbours that differ are listed together.
                Some(CompareWork::Exchange { part: listed })
                    if are_many && whole.end.as_ref() == Some(&listed.start) =>
                {
                    listed.start = whole.start;
                }
                _ if are_many || is_small => self.stack.push(CompareWork::Exchange { part: whole }),
                _ => self.stack.push(CompareWork::Span {
                    part: whole,
                    grain: COMPARE_GRAIN_LAST,
                }),
            }
        }
    }

    /// Reads the own records beside those that the peer has listed.
    pub(super) fn page(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        part: SpacePart,
        listed: Vec<(Bytes, Cell)>,
        next: Option<Bytes>,
    ) {
        let end = next.as_ref().or(part.end.as_ref());
        let ticket = desk.order(Order::OwnPage { walk: self.id });
        turn.effects.push(Effect::Page {
            ticket,
            start: self.key(&part.start),
            end: end.map(|end| self.key(end)),
            is_reverse: false,
            bytes: COMPARE_LIST_BYTES,
            deadline_us: turn.now.mono_us + COMPARE_ASK_US,
        });
        self.stage = CompareStage::Paging { part, listed, next };
    }

    /// Both lists are here: takes the repairs that follow from them, as far as both reach.
    #[expect(clippy::too_many_arguments, reason = "two lists, each with its end")]
    pub(super) fn meet(
        &mut self,
        desk: &mut Desk,
        turn: &Turn<'_>,
        look: Option<&mut LookRun>,
        part: SpacePart,
        cells: Vec<(Key, Cell)>,
        own_next: Option<Bytes>,
        mut listed: Vec<(Bytes, Cell)>,
        next: Option<Bytes>,
    ) {
        // The own page ends where the list does, if not before it.
        let reach = own_next.or(next);
        if let Some(reach) = &reach {
            listed.retain(|(key, _)| key < reach);
        }
        let own = cells.into_iter();
        let own = own.map(|(key, cell)| (Bytes::copy_from_slice(key.raw()), cell));
        // A newer record of fewer copies is for a peer, too, that holds an older one.
        let is_user = self.space == Space::User;
        let is_shared = |(key, cell): &(Bytes, Cell)| {
            let copies = self.copies_of(cell);
            if is_user {
                !self.shared.gives_back(key, &cell.as_ref())
            } else {
                self.shared.may_have(key, copies)
            }
        };
        let own: Vec<(Bytes, Cell)> = own.filter(is_shared).collect();
        let steps = match self.space {
            Space::Protocol => of_promises(&own, &listed, &self.shared),
            _ => {
                let clock = desk.hlc.last();
                // No write is too young for a look: it looks twice.
                let now_ms = match look {
                    None => turn.now.wall_ms,
                    Some(_) => u64::MAX,
                };
                Some(of_records(&own, &listed, &self.shared, now_ms, clock))
            }
        };
        let mut steps = steps.unwrap_or_else(|| {
            self.leave_out(desk);
            Vec::new()
        });
        if let Some(look) = look {
            let (start, end) = (part.start.clone(), reach.clone().or(part.end.clone()));
            let seen = SpacePart { start, end };
            steps = look.weigh(turn, seen, steps, [&own, &listed], &self.shared);
        }
        steps.retain(|step| match step {
            RepairStep::Dispute { key, version } => {
                desk.disputes.noticed(turn.now.mono_us, key, *version);
                false
            }
            _ => true,
        });
        if let Some(start) = reach.filter(|reach| part.has_behind(reach)) {
            let part = SpacePart { start, ..part };
            self.stack.push(CompareWork::Exchange { part });
        }
        steps.reverse();
        self.stage = CompareStage::Repairing {
            to_come: steps,
            under_way: BTreeMap::new(),
        };
    }

    /// The next repair, with its slot, if one more may be under way.
    pub(super) fn next_step(&mut self) -> Option<(u32, RepairStep)> {
        let CompareStage::Repairing { to_come, under_way } = &mut self.stage else {
            return None;
        };
        if under_way.len() >= COMPARE_STEPS_MAX {
            return None;
        }
        let step = to_come.pop()?;
        let slot = (1..).find(|slot| !under_way.contains_key(slot))?;
        under_way.insert(slot, step.clone());
        Some((slot, step))
    }

    /// How many copies the record has in this epoch.
    pub(super) fn copies_of(&self, cell: &Cell) -> u8 {
        self.shared.copies_of(&cell.as_ref())
    }

    /// The own store is to take this newer record of the peer over one of `over` copies.
    pub(super) fn keep(&self, key: Bytes, cell: Cell, over: u8, clock: u64) -> RepairStep {
        let cell = self.shared.over(cell, over, PairMember::Own, &key, clock);
        RepairStep::Keep { key, cell }
    }

    pub(super) fn add_step(&mut self, step: RepairStep) {
        if let CompareStage::Repairing { to_come, .. } = &mut self.stage {
            to_come.push(step);
        }
    }

    pub(super) fn take_step(&mut self, slot: u32) -> Option<RepairStep> {
        let CompareStage::Repairing { under_way, .. } = &mut self.stage else {
            return None;
        };
        under_way.remove(&slot)
    }

    pub(super) fn are_repairs_over(&self) -> bool {
        match &self.stage {
            CompareStage::Repairing { to_come, under_way } => {
                to_come.is_empty() && under_way.is_empty()
            }
            _ => false,
        }
    }

    /// Begins a repair; returns how many bytes leave with it.
    pub(super) fn do_step(
        &self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        slot: u32,
        step: RepairStep,
    ) -> u64 {
        match step {
            RepairStep::Send { key, cell } => {
                let bytes = (key.len() + cell.value.len()) as u64;
                self.ask(desk, turn, slot, Ask::Write { key, cell });
                bytes
            }
            RepairStep::Meet { key, cell } => {
                let known = Some(cell.id());
                self.ask(desk, turn, slot, Ask::Read { key, known });
                0
            }
            RepairStep::Fetch { key, .. } => {
                let known = None;
                self.ask(desk, turn, slot, Ask::Read { key, known });
                0
            }
            RepairStep::Keep { key, cell } => {
                desk.follow(cell.version.hlc);
                let order = Order::Fetched {
                    walk: self.id,
                    slot,
                };
                desk.write(turn, order, Key::user(&key), cell, Guard::Newest);
                0
            }
            RepairStep::PromiseThere { key, ballot } => {
                self.ask(desk, turn, slot, Ask::Prepare { key, ballot });
                0
            }
            RepairStep::PromiseHere { key, ballot } => {
                let requester = Requester {
                    to: Recipient::Own(Purpose::Compare {
                        walk: self.id,
                        slot,
                    }),
                    epoch: desk.layout.epoch(),
                    partition: Some(desk.ring().partition(&key)),
                };
                let question = ProtocolQuestion::Prepare { ballot };
                protocol::begin(desk, turn, requester, key, question, NEVER);
                0
            }
            RepairStep::Dispute { .. } => 0,
        }
    }
}

pub(super) fn everything() -> CompareWork {
    let (start, end) = (Bytes::new(), None);
    CompareWork::Span {
        part: SpacePart { start, end },
        grain: COMPARE_GRAIN,
    }
}

/// The work of a stage that got no answer: it is to be done again.
pub(super) fn again(stage: CompareStage) -> Option<CompareWork> {
    match stage {
        CompareStage::Asked(work) => Some(work),
        CompareStage::Comparing { part, grain, .. } => Some(CompareWork::Span { part, grain }),
        CompareStage::Paging { part, .. } => Some(CompareWork::Exchange { part }),
        CompareStage::Idle | CompareStage::Repairing { .. } => None,
    }
}
