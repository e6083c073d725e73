//! Crowds in front of loops: arrivals, the turns of a loop's run queue, and what must hold
//! meanwhile.
//!
//! ```text
//! client ─► Asked ─► run queue ─► Run: one entry, and the loop is busy for its cost
//! frame, answer of the store ─► run queue
//! write, and the engine is behind ─► line ─► woken ─► run queue ─► it goes, or waits on
//! ```
//!
//! Invariants
//! 1. Only plans with a crowd have doors: the runs of all other plans do not change.
//!
//! Not here: the machines of one loop (`door/`), the log (`door_store.rs`), what must hold
//! (`door_rules.rs`), draws (`draws/crowd.rs`), phases (`ending.rs`).
//! See: docs/verification.md, docs/overload.md.

use super::names::scan_of;
use super::state::{Happening, World};
use crate::check::Rule;
use crate::door::memtables::Memtables;
use crate::door::{Asking, DoorCounts, LaneDoor, MemberGates, RunEntry};
use crate::draws::next_wish;
use crate::history::{ClientEnd, Wish};
use crate::overload::Crowd;
use dendra_node::standing::{AddressGroup, Called};
use dendra_node::step::Event;
use dendra_node::{Admission, Class, Outcome, RefusedBy, admit};

/// Interval as in the server: the loop sweeps, and looks for clients that have hung up.
const SWEEP_US: u64 = 100_000;
/// A client whose connection the kernel dropped tries again.
const CONNECT_AGAIN_US: u64 = 200_000;
/// The beginning of a crowd: a line has not begun yet.
const BEGINS_US: u64 = 500_000;
/// A client with an address for itself, which waits for as long as the usual deadline, is answered
/// within this time while so many others are.
const STARVED_US: u64 = 2_000_000;
/// See there.
const ANSWERED_MIN: u64 = 200;

impl World<'_> {
    pub(super) fn crowd(&self) -> Option<&Crowd> {
        self.plan.overload.as_ref()
    }

    pub(super) fn door(&mut self, member: usize, lane: usize) -> Option<&mut LaneDoor> {
        self.members[member].lanes[lane].door.as_deref_mut()
    }

    /// The doors of a member that starts.
    pub(super) fn open_doors(&mut self, member: usize) {
        let Some(overload) = &self.plan.overload else {
            return;
        };
        let it = &mut self.members[member];
        let gates = MemberGates::new(&overload.bounds);
        let lanes = it.lanes.len();
        for lane in &mut it.lanes {
            lane.door = Some(Box::new(LaneDoor::new(overload, &gates, lanes)));
        }
        it.memtables = Some(Memtables::new(overload.bounds.memory_bytes));
    }

    /// What the doors of a member that ends have counted.
    pub(super) fn close_doors(&mut self, member: usize) {
        let it = &mut self.members[member];
        for lane in &it.lanes {
            if let Some(door) = &lane.door {
                self.door_counts.add(door.counts);
            }
        }
        it.connections = 0;
        self.held.retain(|_, (at, _)| *at != member);
        for client in &mut self.clients {
            client.connected = client.connected.filter(|at| *at != member);
        }
    }

    /// The numbers of all doors.
    pub(super) fn door_counts(&self) -> DoorCounts {
        let mut sum = self.door_counts;
        let lanes = self.members.iter().flat_map(|it| &it.lanes);
        for door in lanes.filter_map(|lane| lane.door.as_deref()) {
            sum.add(door.counts);
        }
        sum
    }

    // Clients.

    /// Clients of the crowd draw their next wish, as long as it asks.
    pub(super) fn draw_wish(&mut self, client: usize) {
        let Some(overload) = &self.plan.overload else {
            return;
        };
        let keys = self.plan.shape.keys.len();
        let now_us = self.schedule.now_us();
        let it = &mut self.clients[client];
        if it.todo.is_empty()
            && now_us < overload.until_us
            && let Some((habit, prng)) = &mut it.habit
        {
            let wish = next_wish(&overload.habits[*habit], keys, prng);
            it.todo.push_back(wish);
        }
    }

    /// Has the client a connection to the member, or is there one for it? Otherwise it tries again.
    pub(super) fn has_connection(&mut self, client: usize, member: usize) -> bool {
        let Some(most) = self.crowd().map(|it| it.bounds.connections_max) else {
            return true;
        };
        let own = self.clients[client].connected;
        if own == Some(member) {
            return true;
        }
        if self.members[member].connections >= most {
            self.schedule
                .after(CONNECT_AGAIN_US, Happening::Begin { client });
            return false;
        }
        if let Some(other) = own {
            self.disconnect(other);
        }
        self.clients[client].connected = Some(member);
        self.members[member].connections += 1;
        true
    }

    pub(super) fn disconnect(&mut self, member: usize) {
        self.members[member].connections -= 1;
    }

    /// A client has hung up. The loop sees that when it calls a request that it has not begun.
    pub(super) fn hangs_up_at_door(&mut self, client: usize, is_begun: bool) {
        if self.plan.overload.is_none() {
            return;
        }
        let connected = self.clients[client].connected.take();
        if let (Some(member), true) = (connected, is_begun) {
            self.disconnect(member);
        }
    }

    /// A request is on its way to the loop of its connection.
    pub(super) fn send_to_door(&mut self, client: usize, member: usize, lane: usize, begin: Event) {
        let incarnation = self.members[member].incarnation;
        self.schedule.after(
            0,
            Happening::Asked {
                member,
                lane,
                incarnation,
                client,
                begin: Box::new(begin),
            },
        );
    }

    /// The source of a client: its habit's, or one for itself.
    fn source_of(&self, client: usize) -> AddressGroup {
        let habit = self.clients[client].habit.as_ref();
        let habits = self.crowd().map(|it| &it.habits);
        let own = AddressGroup::of_v4(1 << 20 | client as u32);
        match (habit, habits) {
            (Some((habit, _)), Some(habits)) => AddressGroup::of_v4(habits[*habit].source),
            _ => own,
        }
    }

    pub(super) fn asked(&mut self, member: usize, lane: usize, client: usize, begin: Event) {
        let source = self.source_of(client);
        let Event::Begin {
            client: ticket,
            deadline_us,
            ..
        } = begin
        else {
            return;
        };
        let op = self.op(ticket as u32);
        let class = match op.wish {
            Wish::Get => Class::Read,
            Wish::Put { .. } | Wish::Touch { .. } => Class::Write,
            Wish::Delete { .. } => Class::Delete,
        };
        let bytes = match &begin {
            Event::Begin {
                operation: dendra_base::peer::Operation::Put { value, .. },
                ..
            } => value.len() as u64,
            _ => 0,
        };
        if let Some(door) = self.door(member, lane) {
            door.asking.insert(
                ticket,
                Asking {
                    source,
                    class,
                    bytes,
                    deadline_us,
                    begin,
                    has_paused: false,
                    is_called: false,
                    is_woken: false,
                    has_stood: false,
                },
            );
            door.push(RunEntry::Asked(ticket));
        }
        self.see_to_run(member, lane);
    }

    /// Has the client of a request hung up?
    fn is_gone(&mut self, member: usize, lane: usize, ticket: u64) -> bool {
        let open = self.members[member].lanes[lane].open.get(&ticket);
        open.is_none_or(|open| open.is_gone)
    }

    // The loop.

    /// A happening of a loop with a door waits in its run queue; `None` = it does.
    pub(super) fn queue_at_door(
        &mut self,
        member: usize,
        lane: usize,
        happening: Happening,
    ) -> Option<Happening> {
        let now_us = self.now_us();
        let most = self.crowd().map_or(0, |it| it.bounds.events_max);
        let is_frame = matches!(happening, Happening::Arrive(_));
        let cost_us = self.event_cost_us(member, &happening);
        let it = &mut self.members[member].lanes[lane];
        let Some(door) = it.door.as_deref_mut() else {
            return Some(happening);
        };
        if it.busy_until_us <= now_us && door.is_idle() {
            it.busy_until_us = now_us + cost_us;
            return Some(happening);
        }
        if is_frame && door.events >= most {
            self.trace.line(now_us, || {
                format!("lost at m{member}.{lane}: {happening:?}")
            });
            return None;
        }
        // Numbers only tell apart what is held at one time, in the order in which it came.
        let number = self.held.last_key_value().map_or(1, |(last, _)| last + 1);
        door.push(RunEntry::Event(number));
        self.held.insert(number, (member, happening));
        self.see_to_run(member, lane);
        None
    }

    fn event_cost_us(&self, member: usize, happening: &Happening) -> u64 {
        let slow_us = self.members[member].event_us;
        match happening {
            Happening::Turn { .. } => 0,
            _ => slow_us + self.crowd().map_or(0, |it| it.costs.event_us),
        }
    }

    /// The next entry of the run queue is taken when the loop has time.
    pub(super) fn see_to_run(&mut self, member: usize, lane: usize) {
        let incarnation = self.members[member].incarnation;
        let it = &mut self.members[member].lanes[lane];
        let busy_until_us = it.busy_until_us;
        let Some(door) = it.door.as_deref_mut() else {
            return;
        };
        if door.is_due || door.is_idle() {
            return;
        }
        door.is_due = true;
        self.schedule.at(
            busy_until_us,
            Happening::Run {
                member,
                lane,
                incarnation,
            },
        );
    }

    /// The loop takes the next entry.
    pub(super) fn run_entry(&mut self, member: usize, lane: usize) {
        let now_us = self.now_us();
        let incarnation = self.members[member].incarnation;
        let was_standing = self.door(member, lane).is_some_and(|it| it.is_standing());
        let Some(door) = self.door(member, lane) else {
            return;
        };
        door.is_due = false;
        let Some(entry) = door.pop() else {
            return;
        };
        door.look(now_us);
        let is_read = match entry {
            RunEntry::Asked(ticket) | RunEntry::Called(ticket, _) => {
                let asking = door.asking.get(&ticket);
                asking.is_some_and(|asking| asking.class == Class::Read)
            }
            _ => false,
        };
        let cost_us = self.take_entry(member, lane, entry);
        if self.members[member].incarnation != incarnation {
            return;
        }
        self.members[member].lanes[lane].busy_until_us = now_us + cost_us;
        if is_read {
            self.note_spent(member, lane, cost_us);
        }
        self.see_to_run(member, lane);
        let is_standing = self.door(member, lane).is_some_and(|it| it.is_standing());
        if is_standing && !was_standing {
            self.sweep_later(member, lane);
        }
        self.check_doors(member);
    }

    /// Does the crowd ask, and has a line had the time to begin?
    fn is_judged(&self) -> bool {
        let now_us = self.now_us();
        self.crowd()
            .is_some_and(|it| now_us > it.from_us + BEGINS_US && now_us < it.until_us)
    }

    fn note_spent(&mut self, member: usize, lane: usize, cost_us: u64) {
        if self.is_judged()
            && let Some(door) = self.door(member, lane)
        {
            door.spent_us += cost_us;
        }
    }

    fn note_unspent(&mut self, member: usize, lane: usize, cost_us: u64) {
        if let Some(door) = self.door(member, lane) {
            door.unspent_us += cost_us;
        }
    }

    fn sweep_later(&mut self, member: usize, lane: usize) {
        let incarnation = self.members[member].incarnation;
        self.schedule.after(
            SWEEP_US,
            Happening::SweepDoor {
                member,
                lane,
                incarnation,
            },
        );
    }

    pub(super) fn sweep_door(&mut self, member: usize, lane: usize) {
        let Some(door) = self.door(member, lane) else {
            return;
        };
        if door.is_standing() {
            door.ring_porter();
            self.see_to_run(member, lane);
            self.sweep_later(member, lane);
        }
    }

    /// What it costs.
    fn take_entry(&mut self, member: usize, lane: usize, entry: RunEntry) -> u64 {
        let now_us = self.now_us();
        let is_standing = self.door(member, lane).is_some_and(|it| it.is_standing());
        match entry {
            RunEntry::Asked(ticket) if is_standing => {
                if let Some(door) = self.door(member, lane) {
                    door.stand(now_us, ticket);
                }
                0
            }
            RunEntry::Asked(ticket) => self.serve(member, lane, ticket),
            RunEntry::Called(ticket, what) => {
                if self.is_gone(member, lane, ticket) {
                    self.drop_request(member, lane, ticket)
                } else if what == Called::Refuse {
                    self.refuse(member, lane, ticket)
                } else {
                    self.serve(member, lane, ticket)
                }
            }
            RunEntry::Again(ticket) => {
                if self.is_gone(member, lane, ticket) {
                    let cost_us = self.drop_request(member, lane, ticket);
                    self.submit(member);
                    cost_us
                } else if self.go_on(member, lane, ticket) {
                    self.serve(member, lane, ticket)
                } else {
                    self.crowd().map_or(0, |it| it.costs.gone_us)
                }
            }
            RunEntry::Probe => {
                if let Some(door) = self.door(member, lane) {
                    door.probe(now_us);
                }
                0
            }
            RunEntry::Porter => {
                let fair = self.door(member, lane).map_or(Ok(()), |it| it.call(now_us));
                self.judge_fair(Rule::Starved, member, lane, fair);
                0
            }
            RunEntry::Event(number) => match self.held.remove(&number) {
                Some((_, happening)) => {
                    let cost_us = self.event_cost_us(member, &happening);
                    self.happen_now(happening);
                    cost_us
                }
                None => 0,
            },
        }
    }

    /// A request was woken: does it wait in line no longer?
    fn go_on(&mut self, member: usize, lane: usize, ticket: u64) -> bool {
        let room = self.write_room(member);
        let Some(door) = self.door(member, lane) else {
            return false;
        };
        let (goes, fair) = door.go_client(ticket, room);
        self.judge_fair(Rule::Starved, member, lane, fair);
        if !goes {
            // What orders waited for it may go on.
            self.submit(member);
        }
        goes
    }

    pub(super) fn judge_fair(
        &mut self,
        rule: Rule,
        member: usize,
        lane: usize,
        fair: Result<(), String>,
    ) {
        if let Err(what) = fair {
            self.violate(rule, format!("m{member}.{lane}: {what}"));
        }
    }

    /// The client of a request that was not begun has gone: nothing was done.
    fn drop_request(&mut self, member: usize, lane: usize, ticket: u64) -> u64 {
        let Some(door) = self.door(member, lane) else {
            return 0;
        };
        if door.asking.remove(&ticket).is_none() {
            // It was looked at meanwhile.
            return 0;
        }
        door.forgo_engine(ticket);
        door.counts.gone += 1;
        self.disconnect(member);
        self.members[member].lanes[lane].open.remove(&ticket);
        // Its client learnt nothing, and the checkers hold the member to it.
        self.op_mut(ticket as u32).end = ClientEnd::NotApplied;
        self.crowd().map_or(0, |it| it.costs.gone_us)
    }

    fn refuse(&mut self, member: usize, lane: usize, ticket: u64) -> u64 {
        if self.is_gone(member, lane, ticket) {
            return self.drop_request(member, lane, ticket);
        }
        if let Some(door) = self.door(member, lane) {
            door.asking.remove(&ticket);
            door.counts.refused += 1;
        }
        let refusal = RefusedBy::Requests;
        let outcome = Outcome::Overloaded { refusal };
        self.client_is_told(member, lane, ticket, outcome, None);
        self.crowd().map_or(0, |it| it.costs.refusal_us)
    }

    /// A request is read: it is begun, pauses, waits for the engine, or is refused.
    fn serve(&mut self, member: usize, lane: usize, ticket: u64) -> u64 {
        let Some(costs) = self.crowd().map(|it| it.costs) else {
            return 0;
        };
        let mono_us = self.members[member].clock.now(self.now_us()).mono_us;
        let pressure = self.pressure(member);
        let slow_us = self.members[member].event_us;
        let Some(door) = self.door(member, lane) else {
            return 0;
        };
        let Some(asking) = door.asking.get(&ticket) else {
            return 0;
        };
        let (class, bytes, is_called) = (asking.class, asking.bytes, asking.is_called);
        let left_us = asking.deadline_us.saturating_sub(mono_us);
        if left_us == 0 {
            let cost_us = self.refuse(member, lane, ticket);
            self.submit(member);
            return cost_us;
        }
        match admit(pressure, class) {
            Admission::Delayed { us } if !asking.has_paused => {
                let us = door.pause_us(us, bytes, pressure);
                if us > 0 {
                    if let Some(delayed) = door.asking.get_mut(&ticket) {
                        (delayed.has_paused, delayed.is_called) = (true, false);
                    }
                    self.again_after(member, lane, ticket, us.min(left_us));
                    self.submit(member);
                    return costs.gone_us;
                }
            }
            Admission::Refused {
                refusal: RefusedBy::EngineBehind,
            } if !is_called => {
                door.wait_for_engine(ticket, bytes);
                self.excuse(ticket);
                self.again_after(member, lane, ticket, left_us);
                return costs.gone_us;
            }
            Admission::Refused { .. } => {
                let cost_us = self.refuse(member, lane, ticket);
                self.submit(member);
                return cost_us;
            }
            Admission::Granted | Admission::Delayed { .. } => {}
        }
        let Some(admitting) = self.door(member, lane) else {
            return 0;
        };
        if !admitting.hold(ticket) {
            let cost_us = self.refuse(member, lane, ticket);
            self.submit(member);
            // That the gate is full is not the fault of the line. It is fair to no source.
            self.excuse(ticket);
            if class == Class::Read && self.is_judged() {
                self.note_unspent(member, lane, cost_us);
            }
            return cost_us;
        }
        let Some(admitted) = admitting.asking.remove(&ticket) else {
            return 0;
        };
        if class == Class::Write {
            admitting.note_write(bytes);
        }
        admitting.counts.begun += 1;
        let is_gone = self.is_gone(member, lane, ticket);
        self.give(member, lane, admitted.begin);
        if is_gone {
            self.disconnect(member);
            self.give_later(member, lane, SWEEP_US, Event::Gone { client: ticket });
        }
        self.call_client(member, lane);
        costs.request_us + slow_us
    }

    /// A full gate and an engine that is stopped are fair to no source: a lone client's time begins
    /// anew.
    fn excuse(&mut self, ticket: u64) {
        let client = self.op(ticket as u32).client;
        let since = (self.now_us(), self.answered);
        if let Some(answered) = &mut self.clients[client].answered {
            *answered = since;
        }
    }

    /// A request is looked at again after a while.
    fn again_after(&mut self, member: usize, lane: usize, ticket: u64, us: u64) {
        let incarnation = self.members[member].incarnation;
        self.schedule.after(
            us,
            Happening::Again {
                member,
                lane,
                incarnation,
                ticket,
            },
        );
    }

    /// Goes on with a request whose pause is over, or its time in line for the engine.
    pub(super) fn again(&mut self, member: usize, lane: usize, ticket: u64) {
        let Some(door) = self.door(member, lane) else {
            return;
        };
        let waited = door.forgo_engine(ticket);
        let Some(asking) = door.asking.get(&ticket) else {
            return;
        };
        // One that was woken is in the run queue already.
        if !asking.is_woken && (waited || !asking.is_called) {
            door.push(RunEntry::Again(ticket));
            self.see_to_run(member, lane);
        }
        if waited {
            self.submit(member);
        }
    }

    /// A client was told by the node, or an operation has ended without it.
    /// That a gate or the node is full is not the fault of the line.
    pub(super) fn note_told(
        &mut self,
        member: usize,
        lane: usize,
        ticket: u64,
        is_useful: bool,
        is_full: bool,
    ) {
        let request_us = self.crowd().map_or(0, |it| it.costs.request_us);
        let slow_us = self.members[member].event_us;
        let is_judged = self.is_judged();
        let is_read = scan_of(ticket).is_none() && self.op(ticket as u32).wish == Wish::Get;
        let Some(door) = self.door(member, lane) else {
            return;
        };
        let was_begun = door.release(ticket);
        if is_full && was_begun && is_judged && is_read {
            door.unspent_us += request_us + slow_us;
        }
        if is_useful && is_judged && is_read {
            door.useful_us += request_us + slow_us;
        }
    }

    /// A client of the crowd learns its answer.
    pub(super) fn note_answer(&mut self, client: usize, end: ClientEnd) {
        let Some((habit, _)) = self.clients[client].habit.as_ref() else {
            return;
        };
        let Some((habit, until_us)) = self
            .crowd()
            .and_then(|it| Some((it.habits.get(*habit)?, it.until_us)))
        else {
            return;
        };
        let (is_lone, from_us) = (habit.is_lone, habit.from_us);
        let is_good = !matches!(end, ClientEnd::NotApplied | ClientEnd::Unknown);
        let now_us = self.now_us();
        if is_lone {
            let answered = self.answered;
            let (since_us, before) = *self.clients[client].answered.get_or_insert((from_us, 0));
            let gap_us = now_us.min(until_us).saturating_sub(since_us);
            let is_passed = answered - before > ANSWERED_MIN;
            if is_passed {
                self.unanswered_us = self.unanswered_us.max(gap_us);
            }
            if is_passed && gap_us > STARVED_US && self.plan.faults.is_empty() {
                let what = format!(
                    "client {client} has an address for itself, and got nothing for {gap_us} us, \
                     while {} others were answered",
                    answered - before
                );
                self.violate(Rule::Starved, what);
            }
            if is_good {
                self.clients[client].answered = Some((now_us, answered));
            }
        }
        self.answered += u64::from(is_good && !is_lone);
    }
}
