//! Comparing copies: each pair of owners finds the differences between their copies, and repairs
//! them.
//!
//! ```text
//! one of a pair leads. Its walk: records of clients, then promises; a stack of work, in key order
//!   Span      own look ─► fingerprints ─ Compare ─► which differ ─┬─ none: the next page
//!             a differing range ─► Span with ranges of 32 records ┘  or Exchange
//!   Exchange  List ─► own page ─► steps: Send, Fetch, PromiseThere, PromiseHere, Dispute
//!   Hop       own copies cannot be read here ─► List ─► behind the peer's records here
//! both equal ─► Compare without ranges: the peer notes it, too
//! ```
//!
//! Invariants
//! 1. A comparison only repairs: newest wins, and it sends the same questions as operations, with
//!    their checks. So it may end, fail or be repeated at any point.
//! 2. Of two equal members each reads each record once, and the bytes between them do not depend on
//!    the size of values.
//! 3. One walk at a time, one page at a time, `COMPARE_STEPS_MAX` repairs at a time. A member's
//!    limit bounds the bytes a second (`haste.rs`). While its store is behind, no comparison goes
//!    on.
//! 4. A comparison counts as full only if each part was compared and each repair done. A look never
//!    does.
//!
//! Not here: looks of an operator (`look.rs`), a peer's answers (`replica/ranges.rs`), the choice
//! between two cells of one version (`disputes.rs`). Nor damage: a range that cannot be read is
//! left out.
//! See: docs/protocol.md, "Comparing copies".

pub mod findings;
mod haste;
mod look;
mod parts;
pub mod progress;
mod repairs;
pub mod shared;
pub mod survey;
mod walk;

use crate::config::NodeConfig;
use crate::desk::{Desk, Turn};
use crate::ledger::NEVER;
use crate::limits::{
    COMPARE_AGAIN_US, COMPARE_ASK_US, COMPARE_BUSY_US, COMPARE_GRAIN, COMPARE_STEPS_MAX,
    COMPARE_TRIES_MAX,
};
use crate::purpose::Purpose;
use crate::replica::{is_fit, ranges};
use crate::step::StoreFailure;
use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Readiness, Refused};
use dendra_base::{Cell, Key, Space};
use dendra_ownership::member::MemberIndex;
use findings::{LookOrder, LookReport};
use haste::Haste;
use look::{LookRun, NextWork};
use parts::{CompareWork, SpacePart};
use progress::CompareReport;
use repairs::RepairStep;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use survey::{SurveyRange, Surveyed};
use walk::{CompareStage, CompareWalk, again, everything};

/// See the module.
#[derive(Debug)]
pub(crate) struct Comparer {
    haste: Haste,
    pause_us: u64,
    walk: Option<CompareWalk>,
    walks: u64,
    /// When the next comparison with each peer may begin.
    next_us: BTreeMap<MemberIndex, u64>,
    due_us: u64,
    reports: Vec<CompareReport>,
    look: Option<LookRun>,
    /// The own walk, while a look is under way.
    parked: Option<CompareWalk>,
}

impl Comparer {
    /// Comparer of a member that has no links yet.
    pub(crate) fn new(config: &NodeConfig) -> Comparer {
        let told = if config.is_keeper {
            config.compare.bytes_per_second
        } else {
            0
        };
        Comparer {
            haste: Haste::new(told, config.forget_every_us),
            pause_us: config.compare.pause_us,
            walk: None,
            walks: 0,
            next_us: BTreeMap::new(),
            due_us: NEVER,
            reports: Vec::new(),
            look: None,
            parked: None,
        }
    }

    /// When a `Tick` is wanted.
    pub(crate) fn due_us(&self) -> u64 {
        self.due_us
    }

    /// The findings and repairs of comparisons since the last call.
    pub(crate) fn take_reports(&mut self) -> Vec<CompareReport> {
        std::mem::take(&mut self.reports)
    }

    /// A link came up: its member may have missed something.
    pub(crate) fn link_up(&mut self, turn: &Turn<'_>, peer: MemberIndex) {
        if !self.haste.is_on() {
            return;
        }
        let soon_us = turn.now.mono_us + COMPARE_AGAIN_US.min(self.pause_us);
        self.next_us.insert(peer, soon_us);
        if self.walk.is_none() {
            self.due_us = self.due_us.min(soon_us);
        }
    }

    /// Members or owners have changed: the pair shares other records now.
    pub(crate) fn adopt(&mut self, turn: &Turn<'_>) {
        if self.haste.is_on() || self.is_looking() {
            self.walk = None;
            self.parked = None;
            self.due_us = turn.now.mono_us + COMPARE_AGAIN_US.min(self.pause_us);
        }
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        if turn.now.mono_us >= self.due_us {
            self.due_us = NEVER;
            self.go_on(desk, turn);
        }
    }

    fn rest(&mut self, turn: &Turn<'_>, pause_us: u64) {
        let until_us = turn.now.mono_us.saturating_add(pause_us);
        let resting_us = if self.due_us == NEVER { 0 } else { self.due_us };
        self.due_us = until_us.max(resting_us);
    }

    /// So many bytes were read or moved: pauses until the limit of bytes a second allows more.
    fn pay(&mut self, turn: &Turn<'_>, bytes: u64) {
        let bytes_per_second = match &self.look {
            Some(look) if self.is_look_walk() => look.bytes_per_second(),
            _ => self.haste.bytes_per_second(),
        };
        let pause_us = bytes.saturating_mul(1_000_000) / bytes_per_second.max(1);
        if pause_us > 0 {
            self.rest(turn, pause_us);
        }
    }

    /// So many bytes went to the peer, or came from it.
    fn pay_moved(&mut self, desk: &Desk, turn: &Turn<'_>, bytes: u64) {
        desk.comparisons.moved.fetch_add(bytes, Ordering::Relaxed);
        self.pay(turn, bytes);
    }

    /// An operator wants a look, instead of the one under way, or wants it no more.
    pub(crate) fn look(&mut self, turn: &Turn<'_>, order: Option<LookOrder>) {
        if self.is_look_walk() {
            self.walk = self.parked.take();
        }
        self.look = order.map(LookRun::new);
        // With an open question the walk goes on after its answer.
        if self.walk.as_ref().is_none_or(CompareWalk::is_idle) {
            self.due_us = turn.now.mono_us;
        }
    }

    /// The look's findings, if there are new ones.
    pub(crate) fn take_look(&mut self) -> Option<LookReport> {
        let report = self.look.as_mut()?.take_news()?;
        if report.is_over {
            self.look = None;
        }
        Some(report)
    }

    fn is_looking(&self) -> bool {
        self.look.as_ref().is_some_and(|look| !look.is_over())
    }

    /// Is the walk under way one of the look?
    fn is_look_walk(&self) -> bool {
        self.walk.as_ref().is_some_and(|walk| walk.is_look)
    }

    /// The member's own comparison makes room for a look, between two questions.
    fn make_room(&mut self) {
        if self.is_looking() {
            let is_ready = |walk: &mut CompareWalk| !walk.is_look && walk.is_idle();
            self.parked = self.walk.take_if(is_ready).or(self.parked.take());
        }
    }

    /// The next work of the walk, or the next walk.
    fn go_on(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        if self.due_us != NEVER || !(self.haste.is_on() || self.is_looking()) {
            return;
        }
        self.make_room();
        if self.walk.is_none() {
            self.begin_walk(desk, turn);
        }
        let Some(walk) = &mut self.walk else {
            return;
        };
        match &walk.stage {
            CompareStage::Repairing { .. } => self.repair(desk, turn),
            CompareStage::Idle => {
                if desk.readiness != Readiness::Ready {
                    return self.rest(turn, COMPARE_BUSY_US);
                }
                let next = match look_of(&mut self.look, walk) {
                    Some(look) => look.next_work(&mut walk.stack, turn.now.mono_us),
                    None => walk.stack.pop().map_or(NextWork::End, NextWork::Work),
                };
                match next {
                    NextWork::Work(work) => walk.begin(desk, turn, work),
                    NextWork::RestUntil(due_us) => self.due_us = due_us,
                    NextWork::End => self.end_space(desk, turn),
                }
            }
            _ => {}
        }
    }

    /// Chooses the next peer of a look; else the one that has waited longest.
    fn begin_walk(&mut self, desk: &mut Desk, turn: &Turn<'_>) {
        let look = self.look.as_mut();
        if let Some(peer) = look.and_then(|look| look.next_peer(|peer| desk.health.is_up(peer))) {
            return self.start(desk, turn, peer, true);
        }
        self.walk = self.parked.take();
        if self.walk.is_some() || !self.haste.is_on() {
            return;
        }
        let members = desk.layout.members();
        let led = members.filter(|peer| *peer != desk.me && leads(desk, *peer));
        let up = led.filter(|peer| desk.health.is_up(*peer));
        let due = up.map(|peer| (self.next_us.get(&peer).copied().unwrap_or(0), peer));
        let first = due.min();
        self.haste.keep(|peer| leads(desk, peer));
        let Some((next_us, peer)) = first else {
            return;
        };
        if next_us > turn.now.mono_us {
            self.due_us = next_us;
            return;
        }
        self.start(desk, turn, peer, false);
    }

    fn start(&mut self, desk: &mut Desk, turn: &Turn<'_>, peer: MemberIndex, is_look: bool) {
        self.walks += 1;
        self.walk = Some(CompareWalk {
            id: self.walks,
            peer,
            shared: desk.shared_with(peer),
            space: Space::User,
            now_ms: turn.now.wall_ms,
            began_us: turn.now.mono_us,
            stack: vec![everything()],
            stage: CompareStage::Idle,
            busy: 0,
            waiting: 0,
            report: CompareReport {
                peer,
                sent: 0,
                fetched: 0,
                promises: 0,
                failed: 0,
                left_out: 0,
                took_us: 0,
            },
            is_look,
        });
    }

    /// A space is compared to its end.
    fn end_space(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        let Some(walk) = &mut self.walk else {
            return;
        };
        if walk.space == Space::User {
            walk.space = Space::Protocol;
            walk.stack.push(everything());
            return self.go_on(desk, turn);
        }
        self.end_walk(desk, turn, true);
    }

    /// The walk is over, at its end or before it.
    fn end_walk(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, is_at_end: bool) {
        let Some(walk) = self.walk.take() else {
            return;
        };
        if let Some(look) = look_of(&mut self.look, &walk) {
            look.end_walk(&walk.report, is_at_end);
            return self.go_on(desk, turn);
        }
        let now_us = turn.now.mono_us;
        let mut report = walk.report;
        report.took_us = now_us.saturating_sub(walk.began_us);
        let is_full = is_at_end && report.failed == 0 && report.left_out == 0;
        let pause_us = if is_full {
            self.pause_us
        } else {
            COMPARE_AGAIN_US.min(self.pause_us)
        };
        self.next_us.insert(walk.peer, now_us + pause_us);
        let found = report.sent + report.fetched + report.promises;
        if found + report.failed + report.left_out > 0 && self.reports.len() < COMPARE_STEPS_MAX {
            self.reports.push(report);
        }
        if is_full {
            self.haste.found(walk.peer, walk.waiting);
            desk.comparisons
                .note_full(walk.peer, now_us, desk.layout.epoch());
            let news = Ask::Compare {
                space: Space::User,
                start: Bytes::new(),
                ranges: Vec::new(),
                now_ms: walk.now_ms,
            };
            let deadline_us = now_us + COMPARE_ASK_US;
            desk.ask(turn, walk.peer, Purpose::Unneeded, news, deadline_us);
        }
        self.go_on(desk, turn);
    }

    /// The store looked at own copies.
    pub(crate) fn surveyed(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        walk: u64,
        result: Result<Surveyed, StoreFailure>,
    ) {
        let Some(under_way) = self.walk.as_mut().filter(|it| it.id == walk) else {
            return;
        };
        let CompareStage::Asked(CompareWork::Span { part, grain }) = under_way.take_stage() else {
            return;
        };
        match result {
            Ok(seen) => {
                let bytes = seen.bytes;
                under_way.busy = 0;
                under_way.waiting += seen.waiting;
                desk.comparisons.add_read(bytes);
                match look_of(&mut self.look, under_way) {
                    Some(look) => look.read(bytes),
                    None => {
                        self.haste.sees(under_way.peer, under_way.waiting);
                        desk.comparisons.note_speed(self.haste.bytes_per_second());
                    }
                }
                desk.comparisons
                    .note_strays(&seen.strays, desk.layout.epoch());
                under_way.compare(desk, turn, part, grain, seen.ranges);
                self.pay(turn, bytes);
            }
            Err(StoreFailure::Damaged) if grain == COMPARE_GRAIN => {
                under_way.stack.push(CompareWork::Hop { part });
                self.go_on(desk, turn);
            }
            Err(StoreFailure::Damaged) => {
                under_way.leave_out(desk);
                self.go_on(desk, turn);
            }
            Err(_) => {
                under_way.stack.push(CompareWork::Span { part, grain });
                self.is_busy(desk, turn);
            }
        }
    }

    /// A question had no answer, or the own store was too busy. The walk tries again after
    /// `COMPARE_BUSY_US`, at most `COMPARE_TRIES_MAX` times.
    fn is_busy(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        let Some(walk) = &mut self.walk else {
            return;
        };
        walk.busy += 1;
        if walk.busy > COMPARE_TRIES_MAX || !desk.health.is_up(walk.peer) {
            return self.end_walk(desk, turn, false);
        }
        self.rest(turn, COMPARE_BUSY_US);
    }

    /// The own store read the records of a range that differs.
    pub(crate) fn paged(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        walk: u64,
        result: Result<(Vec<(Key, Cell)>, Option<Key>), StoreFailure>,
    ) {
        let Some(under_way) = self.walk.as_mut().filter(|it| it.id == walk) else {
            return;
        };
        let CompareStage::Paging { part, listed, next } = under_way.take_stage() else {
            return;
        };
        match result {
            Ok((cells, own_next)) => {
                let bytes = cells
                    .iter()
                    .map(|(key, cell)| ranges::size(key, cell))
                    .sum();
                desk.comparisons.add_read(bytes);
                let own_next = own_next.map(|key| Bytes::copy_from_slice(key.raw()));
                let look = look_of(&mut self.look, under_way);
                under_way.meet(desk, turn, look, part, cells, own_next, listed, next);
                self.pay(turn, bytes);
                self.repair(desk, turn);
            }
            Err(StoreFailure::Damaged) => {
                under_way.leave_out(desk);
                if let Some(start) = next {
                    let part = SpacePart { start, ..part };
                    under_way.stack.push(CompareWork::Exchange { part });
                }
                self.go_on(desk, turn);
            }
            Err(_) => {
                under_way.stack.push(CompareWork::Exchange { part });
                self.is_busy(desk, turn);
            }
        }
    }

    /// The peer, or the own acceptor, answered.
    pub(crate) fn answered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        walk: u64,
        slot: u32,
        answer: Answer,
    ) {
        let Some(under_way) = self.walk.as_mut().filter(|it| it.id == walk) else {
            return;
        };
        if slot > 0 {
            return self.repaired(desk, turn, slot, answer);
        }
        if let Answer::Refused(why) = answer {
            return self.refused(desk, turn, why);
        }
        under_way.busy = 0;
        match (under_way.take_stage(), answer) {
            (
                CompareStage::Comparing {
                    part,
                    grain,
                    ranges,
                },
                Answer::Compared { looked, differing },
            ) if is_sound(&ranges, looked, &differing) => {
                under_way.compared(part, grain, &ranges, usize::from(looked), &differing);
                self.go_on(desk, turn);
            }
            (CompareStage::Asked(CompareWork::Hop { part }), Answer::Listed { records, next }) => {
                under_way.leave_out(desk);
                let start = next.filter(|next| *next > part.start);
                under_way.go_on_behind(start, part.end, COMPARE_GRAIN);
                self.pay_moved(desk, turn, size_of_list(&records));
                self.go_on(desk, turn);
            }
            (
                CompareStage::Asked(CompareWork::Exchange { part }),
                Answer::Listed { records, next },
            ) if next.as_ref().is_none_or(|next| *next > part.start) => {
                let moved = size_of_list(&records);
                under_way.page(desk, turn, part, records, next);
                self.pay_moved(desk, turn, moved);
            }
            // No member that keeps to the protocol answers so.
            _ => self.end_walk(desk, turn, false),
        }
    }

    /// The peer does not answer the walk's question.
    fn refused(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, why: Refused) {
        let Some(walk) = &mut self.walk else {
            return;
        };
        let stage = walk.take_stage();
        match (why, stage) {
            (Refused::Busy | Refused::Late, stage) => {
                walk.stack.extend(again(stage));
                self.is_busy(desk, turn);
            }
            (Refused::Damaged, CompareStage::Comparing { part, ranges, .. })
                if ranges.len() > 1 =>
            {
                // Smaller parts: one of them is the damaged one.
                let half = &ranges[ranges.len() / 2 - 1].end;
                let last = ranges.last().and_then(|range| range.end.clone());
                let grain = COMPARE_GRAIN;
                if let Some(middle) = half.clone() {
                    walk.go_on_behind(last.clone(), part.end.clone(), grain);
                    walk.go_on_behind(Some(middle.clone()), last.or(part.end), grain);
                    walk.go_on_behind(Some(part.start), Some(middle), grain);
                }
                self.go_on(desk, turn);
            }
            (Refused::Damaged, CompareStage::Comparing { part, ranges, .. }) => {
                walk.leave_out(desk);
                let start = ranges.last().and_then(|range| range.end.clone());
                walk.go_on_behind(start, part.end, COMPARE_GRAIN);
                self.go_on(desk, turn);
            }
            (Refused::Damaged, CompareStage::Asked(CompareWork::Exchange { .. })) => {
                walk.leave_out(desk);
                self.go_on(desk, turn);
            }
            (Refused::Stale { epoch }, _) => {
                let peer = walk.peer;
                desk.learn(turn, peer, epoch);
                self.end_walk(desk, turn, false);
            }
            _ => self.end_walk(desk, turn, false),
        }
    }

    /// Begins repairs, as many as may be under way at once.
    fn repair(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        let is_resting = self.due_us != NEVER;
        let Some(walk) = &mut self.walk else {
            return;
        };
        let mut moved = 0;
        while !is_resting && let Some((slot, step)) = walk.next_step() {
            moved += walk.do_step(desk, turn, slot, step);
        }
        let is_over = walk.are_repairs_over();
        self.pay_moved(desk, turn, moved);
        if is_over {
            if let Some(over) = &mut self.walk {
                over.stage = CompareStage::Idle;
            }
            self.go_on(desk, turn);
        }
    }

    /// One repair was answered.
    fn repaired(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, slot: u32, answer: Answer) {
        let Some(walk) = &mut self.walk else {
            return;
        };
        let Some(step) = walk.take_step(slot) else {
            return;
        };
        let mut moved = 0;
        if let Some(look) = look_of(&mut self.look, walk) {
            let is_answered = match step {
                RepairStep::Meet { key, cell } => look.met(key, &cell, &answer, turn.now.wall_ms),
                _ => false,
            };
            walk.report.failed += u64::from(!is_answered);
            return self.repair(desk, turn);
        }
        match (step, answer) {
            // The peer took it, or had got a newer one meanwhile: the answer does not tell which.
            (RepairStep::Send { .. }, Answer::Written(_)) => {
                walk.report.sent += 1;
                desk.comparisons.add_sent(walk.peer);
            }
            (RepairStep::Meet { .. }, Answer::Same) => {}
            (RepairStep::Meet { key, cell }, Answer::Cell(theirs)) => {
                match theirs.filter(|theirs| theirs.is_newer_than(&cell)) {
                    None => walk.add_step(RepairStep::Send { key, cell }),
                    Some(theirs) if is_fit(desk, &key, &theirs) => {
                        moved = (key.len() + theirs.value.len()) as u64;
                        let over = walk.copies_of(&cell);
                        let keep = walk.keep(key, theirs, over, desk.hlc.last());
                        walk.add_step(keep);
                    }
                    Some(_) => walk.report.failed += 1,
                }
            }
            (RepairStep::Fetch { key, over }, Answer::Cell(Some(cell)))
                if is_fit(desk, &key, &cell) =>
            {
                moved = (key.len() + cell.value.len()) as u64;
                let keep = walk.keep(key, cell, over, desk.hlc.last());
                walk.add_step(keep);
            }
            (
                RepairStep::PromiseThere { .. } | RepairStep::PromiseHere { .. },
                Answer::Promised { .. } | Answer::Outbid { .. },
            ) => {
                walk.report.promises += 1;
                desk.comparisons.promises.fetch_add(1, Ordering::Relaxed);
            }
            _ => walk.report.failed += 1,
        }
        self.pay_moved(desk, turn, moved);
        self.repair(desk, turn);
    }

    /// The own store wrote a record that the peer had.
    pub(crate) fn wrote(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        walk: u64,
        slot: u32,
        is_written: bool,
    ) {
        let Some(under_way) = self.walk.as_mut().filter(|it| it.id == walk) else {
            return;
        };
        if under_way.take_step(slot).is_none() {
            return;
        }
        if is_written {
            under_way.report.fetched += 1;
            desk.comparisons.add_fetched(under_way.peer);
        } else {
            under_way.report.failed += 1;
        }
        self.repair(desk, turn);
    }
}

/// The look of which this is a walk, if it is one of a look.
fn look_of<'a>(look: &'a mut Option<LookRun>, walk: &CompareWalk) -> Option<&'a mut LookRun> {
    if !walk.is_look {
        return None;
    }
    Some(
        look.as_mut()
            .expect("a walk of a look ends before the look"),
    )
}

/// Bytes of records that the peer has listed.
fn size_of_list(records: &[(Bytes, Cell)]) -> u64 {
    let size = |(key, cell): &(Bytes, Cell)| (key.len() + cell.as_ref().encoded_len()) as u64;
    records.iter().map(size).sum()
}

/// Is this an answer to the question about these ranges?
fn is_sound(ranges: &[SurveyRange], looked: u16, differing: &[u16]) -> bool {
    let is_looked = (1..=ranges.len()).contains(&usize::from(looked));
    let is_rising = differing.is_sorted_by(|a, b| a < b);
    is_looked && is_rising && differing.last().is_none_or(|last| *last < looked)
}

/// Does this member lead comparisons with `peer`? One of each pair does, and each member leads
/// about half of its pairs. Numbers of members are the same at all of them.
fn leads(desk: &Desk, peer: MemberIndex) -> bool {
    let Some((me, peer)) = desk.layout.id_of(desk.me).zip(desk.layout.id_of(peer)) else {
        return false;
    };
    ((me.0 ^ peer.0) & 1 == 0) == (me.0 < peer.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_names_ranges_that_were_asked_for_in_their_order() {
        let range = SurveyRange {
            end: None,
            print: 0,
            records: 0,
        };
        let ranges = vec![range; 3];
        let rows: [(u16, &[u16], bool); 9] = [
            (3, &[], true),
            (3, &[0, 2], true),
            (2, &[0, 1], true),
            (0, &[], false),
            (4, &[], false),
            (3, &[3], false),
            (2, &[2], false),
            (3, &[1, 0], false),
            (3, &[1, 1], false),
        ];
        for (looked, differing, expected) in rows {
            let sound = is_sound(&ranges, looked, differing);
            assert_eq!(sound, expected, "{looked} {differing:?}");
        }
    }
}
