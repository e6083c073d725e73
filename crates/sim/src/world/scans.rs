//! Clients that walk over many keys: page after page at one member, until the end, a page that
//! stopped, or the end of their member.
//!
//! Invariants
//! 1. A page is asked for once and shown once, not after its deadline's tick, as any operation.
//!
//! Not here: the rules for pages (`check/scans.rs`).

use super::names::{SCAN_TICKET, key_name, key_number, scan_of, value_number};
use super::state::{Happening, WalkUnderWay, World};
use crate::check::Rule;
use crate::history::{ClientScan, ScanPage, SeenValue};
use crate::member::OpenOperation;
use crate::plan::PlannedScan;
use bytes::Bytes;
use dendra_base::peer::Range;
use dendra_base::{Cell, Kind};
use dendra_node::step::{ClientTicket, Event};

impl World<'_> {
    /// Puts a walk into the schedule.
    pub(super) fn plan_scan(&mut self, planned: PlannedScan) {
        let happening = Happening::Scan {
            scan: self.walks.len(),
        };
        self.scans.push(ClientScan {
            member: planned.member,
            is_reverse: planned.is_reverse,
            pages: Vec::new(),
        });
        self.schedule.at(planned.at_us, happening);
        self.walks.push(WalkUnderWay {
            planned,
            lane: 0,
            asked: None,
        });
    }

    /// A walk begins, if its member runs.
    pub(super) fn scan_begins(&mut self, scan: usize) {
        let planned = &self.walks[scan].planned;
        let member = planned.member;
        let range = Range {
            start: key_name(planned.start),
            end: planned.end.map(key_name),
            is_reverse: planned.is_reverse,
            is_keys_only: false,
        };
        if !self.members[member].is_running() {
            return;
        }
        self.walks[scan].lane = self.prng.below(self.members[member].lanes.len() as u64) as usize;
        self.ask_page(scan, range);
    }

    fn ask_page(&mut self, scan: usize, range: Range) {
        let now_us = self.now_us();
        let walk = &mut self.walks[scan];
        let (member, lane) = (walk.planned.member, walk.lane);
        walk.asked = Some((range.clone(), now_us));
        let (bytes, timeout_us) = (walk.planned.bytes, walk.planned.timeout_us);
        let deadline_us = self.members[member].clock.now(now_us).mono_us + timeout_us;
        let client = SCAN_TICKET + scan as u64;
        // A paused member has not heard of it yet, and cannot be late.
        let open = OpenOperation {
            deadline_us: u64::MAX,
            is_gone: false,
        };
        self.lane(member, lane).open.insert(client, open);
        let event = Event::Scan {
            client,
            range,
            bytes,
            deadline_us,
        };
        self.give_later(member, lane, 0, event);
    }

    /// A page is shown.
    pub(super) fn client_is_shown(
        &mut self,
        member: usize,
        lane: usize,
        ticket: ClientTicket,
        records: Vec<(Bytes, Cell)>,
        rest: Option<Range>,
        is_complete: bool,
    ) {
        let shown_us = self.now_us();
        let is_open = self.lane(member, lane).open.remove(&ticket).is_some();
        let scan = scan_of(ticket).filter(|_| is_open);
        let asked = scan.and_then(|scan| self.walks[scan].asked.take());
        let (Some(scan), Some((range, asked_us))) = (scan, asked) else {
            let what = format!("a page for {ticket} at member {member}, which asked for none");
            self.violate(Rule::Answer, what);
            return;
        };
        let mut seen = Vec::with_capacity(records.len());
        for (key, cell) in records {
            let value = value_number(&cell.value).filter(|_| cell.kind == Kind::Value);
            let (Some(number), Some(value)) = (key_number(&key), value) else {
                let what = format!("scan {scan} shows {key:?}, {cell:?}");
                self.violate(Rule::WrongValue, what);
                return;
            };
            let version = cell.version;
            seen.push((number, SeenValue { version, value }));
        }
        self.trace.line(shown_us, || {
            format!("scan {scan}: {seen:?}, rest {rest:?}, complete {is_complete}")
        });
        self.scans[scan].pages.push(ScanPage {
            start: range.start,
            end: range.end,
            asked_us,
            shown_us,
            records: seen,
            rest: rest.clone().map(|rest| (rest.start, rest.end)),
            is_complete,
        });
        // Each page that does not stop comes nearer to the end, which a checker sees to; without it
        // no run would end.
        let is_stuck = self.scans[scan].pages.len() > 2 * self.plan.shape.keys.len() + 2;
        if let Some(rest) = rest.filter(|_| is_complete && !is_stuck) {
            self.ask_page(scan, rest);
        }
    }
}
