//! Clients: one operation at a time each, and a note of their answers.
//!
//! ```text
//! value   | operation 4 | filler that follows from the operation … |     names its writer
//! ```
//!
//! Invariants
//! 1. A client waits for an outcome, for the end of its patience, or for the end of its member.
//! 2. Every outcome is for an operation that is open, comes once, and not behind its deadline's
//!    tick.
//!
//! Not here: the rules for outcomes (`check/`).

use super::names::{key_name, scan_of, value_bytes, value_number};
use super::state::{Happening, World};
use crate::check::Rule;
use crate::history::{ClientEnd, ClientOp, Promise, SeenCondition, SeenValue, Wish};
use crate::member::OpenOperation;
use crate::plan::{KeyClass, PlannedCondition, PlannedKind, PlannedOp};
use dendra_base::peer::{Condition, Operation};
use dendra_base::{Cell, Consistency, Kind, Quorum};
use dendra_node::step::{ClientTicket, Event};
use dendra_node::{Known, Outcome};

impl World<'_> {
    /// A client begins its next operation, if it has one.
    pub(super) fn client_begins(&mut self, client: usize) {
        if self.clients[client].waits_for.is_some() {
            return;
        }
        self.draw_wish(client);
        let Some(planned) = self.clients[client].todo.pop_front() else {
            return;
        };
        let count = self.members.len();
        let reachable = (0..count).map(|step| (planned.member + step) % count);
        let Some(member) = reachable
            .into_iter()
            .find(|&m| self.members[m].is_running())
        else {
            // No member listens: the client tries the next wish a little later.
            self.schedule
                .after(planned.think_us.max(1_000), Happening::Begin { client });
            return;
        };
        if !self.has_connection(client, member) {
            self.clients[client].todo.push_front(planned);
            return;
        }
        self.send_operation(client, member, &planned);
    }

    /// The number of the next operation.
    fn next_number(&self) -> u32 {
        self.forgotten_ops + self.history.len() as u32 + 1
    }

    /// An operation that the history still has.
    pub(super) fn op(&self, number: u32) -> &ClientOp {
        &self.history[(number - self.forgotten_ops) as usize - 1]
    }

    pub(super) fn op_mut(&mut self, number: u32) -> &mut ClientOp {
        &mut self.history[(number - self.forgotten_ops) as usize - 1]
    }

    /// The class of a key; a soak has more keys than its plan names, all of the first one's class.
    pub(super) fn class_of(&self, key: usize) -> KeyClass {
        let keys = &self.plan.shape.keys;
        *keys.get(key).unwrap_or(&keys[0])
    }

    fn send_operation(&mut self, client: usize, member: usize, planned: &PlannedOp) {
        let number = self.next_number();
        let (quorum, copies, nodes) = self.quorum(member, planned);
        let (ack, from) = (quorum.ack(), quorum.from());
        let promise = match quorum.level(copies, nodes) {
            Consistency::Linearizable => Promise::Linearizable,
            Consistency::Eventual => Promise::Eventual,
        };
        let base = match (planned.base, self.clients[client].seen.get(&planned.key)) {
            (PlannedCondition::Present, _) => SeenCondition::Present,
            (PlannedCondition::Absent, _) => SeenCondition::Absent,
            (PlannedCondition::MatchesLast, Some(seen)) => SeenCondition::Matches(*seen),
            (PlannedCondition::DiffersLast, Some(seen)) => SeenCondition::Differs(*seen),
            _ => SeenCondition::Any,
        };
        let wish = match planned.kind {
            PlannedKind::Get => Wish::Get,
            PlannedKind::Put => Wish::Put {
                value: number,
                base,
            },
            PlannedKind::Delete => Wish::Delete { base },
            PlannedKind::Touch => match base {
                SeenCondition::Matches(seen) => Wish::Touch { seen },
                _ => Wish::Get,
            },
        };
        let now = self.members[member].clock.now(self.now_us());
        let operation = operation(wish, planned, now.wall_ms);
        self.history.push(ClientOp {
            number,
            client,
            key: planned.key,
            wish,
            ack,
            from,
            promise,
            is_fleeting: self.class_of(planned.key) == KeyClass::Fleeting,
            expiry_ms: match &operation {
                Operation::Put { expiry_ms, .. } => *expiry_ms,
                Operation::Touch { expiry_ms, .. } => Some(*expiry_ms),
                _ => None,
            },
            wall_ms: (now.wall_ms, u64::MAX),
            passed_ms: u64::MAX,
            member,
            begun_us: self.now_us(),
            ended_us: u64::MAX,
            end: ClientEnd::Unknown,
        });
        self.clients[client].waits_for = Some(number);
        if let Some(patience_us) = planned.patience_us {
            self.schedule
                .after(patience_us, Happening::HangUp { number });
        }
        let lanes = self.members[member].lanes.len();
        let lane = match &self.clients[client].habit {
            // A connection belongs to one loop.
            Some(_) => client % lanes,
            None => self.prng.below(lanes as u64) as usize,
        };
        let deadline_us = now.mono_us + planned.timeout_us;
        // A paused member has not got it yet, and cannot be late.
        let open = OpenOperation {
            deadline_us: u64::MAX,
            is_gone: false,
        };
        self.lane(member, lane).open.insert(u64::from(number), open);
        let event = Event::Begin {
            client: u64::from(number),
            key: key_name(planned.key),
            operation,
            quorum,
            deadline_us,
        };
        if self.plan.overload.is_some() {
            return self.send_to_door(client, member, lane, event);
        }
        // Through the schedule: a paused member takes it up when it goes on.
        self.give_later(member, lane, 0, event);
    }

    /// How many copies, how many answers; and the usual copies and the members, as the process that
    /// is asked knows them.
    fn quorum(&self, member: usize, planned: &PlannedOp) -> (Quorum, u8, u8) {
        let (usual_ack, usual_from) = self.plan.shape.usual();
        let (ack, from) = planned.quorum.unwrap_or((usual_ack, usual_from));
        let valid = |answers: u8, copies: u8, nodes| {
            let quorum = Quorum::new(u32::from(answers), u32::from(copies), nodes);
            quorum.expect("plans draw valid quorums")
        };
        let Some(home) = &self.members[member].home else {
            let nodes = self.members.len() as u8;
            return (valid(ack, from, nodes), self.plan.shape.copies as u8, nodes);
        };
        let topology = home.topology();
        let (copies, nodes) = (topology.copies(), topology.live());
        if self.class_of(planned.key) == KeyClass::Weak && from <= nodes {
            return (valid(ack, from, nodes), copies, nodes);
        }
        let least = copies / 2 + 1;
        let ack = (least + ack.saturating_sub(usual_ack)).min(copies);
        (valid(ack, copies, nodes), copies, nodes)
    }

    /// The client of operation `number` is told, and begins the next after a while.
    pub(super) fn client_learns(&mut self, number: u32, end: ClientEnd) {
        let now_us = self.now_us();
        let member = self.op(number).member;
        let wall_ms = self.members[member].clock.now(now_us).wall_ms;
        self.note_passed();
        let passed_ms = self.passed.most_ms();
        let ended = self.op_mut(number);
        ended.wall_ms.1 = wall_ms;
        ended.passed_ms = passed_ms;
        ended.ended_us = now_us;
        ended.end = end;
        let (client, key) = (ended.client, ended.key);
        self.note_answer(client, end);
        let told = self.op(number);
        let seen = match (end, told.wish) {
            (ClientEnd::Found(seen), _) => Some(seen),
            (ClientEnd::Written(version), Wish::Put { value, .. }) => {
                Some(SeenValue { version, value })
            }
            (ClientEnd::Written(version), Wish::Touch { seen }) => {
                Some(SeenValue { version, ..seen })
            }
            _ => None,
        };
        self.trace
            .line(now_us, || format!("c{client} #{number} {end:?}"));
        let it = &mut self.clients[client];
        if let Some(seen) = seen {
            it.seen.insert(key, seen);
        }
        it.waits_for = None;
        self.draw_wish(client);
        let next = &self.clients[client];
        let think_us = next.todo.front().map_or(0, |planned| planned.think_us);
        self.schedule.after(think_us, Happening::Begin { client });
    }

    pub(super) fn client_is_told(
        &mut self,
        member: usize,
        lane: usize,
        ticket: ClientTicket,
        outcome: Outcome,
        cell: Option<Cell>,
    ) {
        let Some(open) = self.lane(member, lane).open.remove(&ticket) else {
            let what =
                format!("{outcome:?} for operation {ticket}, which is not open at member {member}");
            self.violate(Rule::Answer, what);
            return;
        };
        let is_useful = !open.is_gone && !matches!(outcome, Outcome::Overloaded { .. });
        if self.plan.overload.is_some() {
            let is_full = matches!(outcome, Outcome::Overloaded { .. });
            self.note_told(member, lane, ticket, is_useful, is_full);
        }
        if open.is_gone {
            if outcome == Outcome::Abandoned {
                // Its client learnt no outcome, and the checkers hold the member to it.
                self.op_mut(ticket as u32).end = ClientEnd::NotApplied;
            }
            return;
        }
        if outcome == Outcome::Abandoned {
            let what = format!("operation {ticket} was abandoned by a client that waits");
            self.violate(Rule::Answer, what);
            return;
        }
        let number = ticket as u32;
        match self.end(outcome, cell.as_ref()) {
            Ok(end) => {
                self.client_learns(number, end);
                self.check_held(number, lane);
            }
            Err(what) => self.violate(Rule::WrongValue, format!("operation {number}: {what}")),
        }
    }

    fn end(&self, outcome: Outcome, cell: Option<&Cell>) -> Result<ClientEnd, String> {
        Ok(match outcome {
            Outcome::Found { version, .. } | Outcome::Unchanged { version } => {
                let cell = cell.ok_or("found, and no cell")?;
                if cell.version != version || cell.kind != Kind::Value {
                    return Err(format!("found {version}, and the cell is {cell:?}"));
                }
                let value = value_number(&cell.value);
                let value = value.ok_or_else(|| format!("bytes of no client: {:?}", cell.value))?;
                ClientEnd::Found(SeenValue { version, value })
            }
            // An expired value's version is no tombstone's.
            Outcome::Missing => ClientEnd::Missing(
                cell.filter(|cell| cell.kind == Kind::Tombstone)
                    .map(|cell| cell.version),
            ),
            Outcome::Stored { version }
            | Outcome::Deleted { version }
            | Outcome::Touched { version, .. } => ClientEnd::Written(version),
            Outcome::ConditionFailed { current } => ClientEnd::Refused { current },
            Outcome::Overloaded { .. }
            | Outcome::Unreachable { .. }
            | Outcome::Abandoned
            | Outcome::DeadlinePassed => ClientEnd::NotApplied,
            Outcome::NotEnough {
                known: Known::NotApplied,
                ..
            } => ClientEnd::NotApplied,
            Outcome::NotEnough {
                known: Known::Unknown,
                ..
            }
            | Outcome::Overtaken { .. } => ClientEnd::Unknown,
        })
    }

    pub(super) fn client_hangs_up(&mut self, number: u32) {
        let op = self.op(number);
        let (client, member) = (op.client, op.member);
        if self.clients[client].waits_for != Some(number) {
            return;
        }
        let ticket = u64::from(number);
        let mut is_begun = true;
        for lane in 0..self.members[member].lanes.len() {
            if let Some(open) = self.lane(member, lane).open.get_mut(&ticket) {
                open.is_gone = true;
                is_begun = open.deadline_us != u64::MAX;
                if self.plan.overload.is_some() && !is_begun {
                    // The loop has not read it: it sees that when it calls the request.
                    continue;
                }
                self.give_later(member, lane, 0, Event::Gone { client: ticket });
            }
        }
        self.hangs_up_at_door(client, is_begun);
        self.client_learns(number, ClientEnd::Unknown);
    }

    /// The member of these operations is no more.
    pub(super) fn clients_lose(&mut self, tickets: Vec<(u64, OpenOperation)>) {
        for (ticket, open) in tickets {
            if !open.is_gone && scan_of(ticket).is_none() {
                self.client_learns(ticket as u32, ClientEnd::Unknown);
            }
        }
    }

    /// All clocks as they are now, before one of them is set. Of members that come and go each one
    /// counts as a majority.
    pub(super) fn note_passed(&mut self) {
        let now_us = self.now_us();
        let walls = self.members.iter().map(|it| it.clock.now(now_us).wall_ms);
        let walls: Vec<u64> = walls.collect();
        let others = match self.town {
            Some(_) => 0,
            None => walls.len() / 2,
        };
        self.passed.note(now_us, &walls, others);
    }

    /// Behind a tick no operation is open beyond its deadline.
    pub(super) fn check_deadlines(&mut self, member: usize, lane: usize) {
        let now = self.members[member].clock.now(self.now_us());
        let open = &self.lane(member, lane).open;
        let late = open
            .iter()
            .find(|(_, op)| !op.is_gone && op.deadline_us <= now.mono_us);
        if let Some((ticket, op)) = late {
            let what = format!(
                "operation {ticket} has no outcome at member {member}, {} us behind its deadline",
                now.mono_us - op.deadline_us
            );
            self.violate(Rule::Answer, what);
        }
    }
}

fn operation(wish: Wish, planned: &PlannedOp, wall_ms: u64) -> Operation {
    let condition = match wish.base() {
        SeenCondition::Any => Condition::None,
        SeenCondition::Present => Condition::Present,
        SeenCondition::Absent => Condition::Absent,
        SeenCondition::Matches(seen) => Condition::Matches(seen.version),
        SeenCondition::Differs(seen) => Condition::Differs(seen.version),
    };
    match wish {
        Wish::Get => Operation::Get,
        Wish::Put { value, .. } => Operation::Put {
            value: value_bytes(value, planned.value_bytes),
            expiry_ms: planned.ttl_ms.map(|ttl_ms| wall_ms + ttl_ms),
            condition,
        },
        Wish::Delete { .. } => Operation::Delete { condition },
        Wish::Touch { .. } => Operation::Touch {
            expiry_ms: wall_ms + planned.ttl_ms.expect("a touch was drawn with an end"),
            condition,
        },
    }
}
