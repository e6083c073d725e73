//! Promises and acceptances of one member, for the conditional writes of one key.
//!
//! ```text
//! Prepare(b)   record ── b < promised ───────────────────────────────► Outbid
//!                 └─► stored cell ── b = promised ───────────────────► Promised
//!                          └─► write { promised: b } if unchanged ───► Promised
//! Accept(p)    record ── p.ballot < promised ────────────────────────► Outbid
//!                 └─► write { promised: p.ballot, accepted: p } ─────► Accepted
//! Adopt(r)     record ─► write { promised: the higher, accepted: the later } ► Accepted
//!              a record that is lost: refused, or in a repair written as r is
//! a write whose record was changed in between ─► from the start, a few times; then Busy
//! ```
//!
//! Invariants
//! 1. No answer leaves before its record is durable.
//! 2. The record is read before the stored cell. A proposal that was accepted in between changes
//!    the record, and the guard finds it; one that was stored before is in the stored cell.
//! 3. Records are written only under the condition that they have not changed since they were read.
//!    So two loops of one member cannot lose each other's promises.
//!
//! Not here: whether enough members promised (`coordinator/paxos.rs`), the bytes (`record.rs`).
//! See: docs/protocol.md.

use super::job::{IfLost, ProtocolJob, ProtocolQuestion, StoreStep};
use super::record::Record;
use crate::desk::{Desk, Order, Turn, refused};
use crate::limits::PROTOCOL_TRIES_MAX;
use crate::purpose::Requester;
use crate::step::{StoreFailure, StoreOutcome};
use bytes::Bytes;
use dendra_base::peer::{Answer, Refused};
use dendra_base::{Cell, Condition, Guard, Key, Space, Version};

/// Begins with a question.
pub(crate) fn begin(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    requester: Requester,
    key: Bytes,
    question: ProtocolQuestion,
    deadline_us: u64,
) {
    desk.follow(question.ballot().hlc);
    let job = ProtocolJob {
        requester,
        key,
        question,
        deadline_us,
        step: StoreStep::ReadRecord,
        tries: 0,
        record: Record::default(),
        previous: None,
        stored: None,
    };
    read_record(desk, turn, Box::new(job));
}

fn read_record(desk: &mut Desk, turn: &mut Turn<'_>, mut job: Box<ProtocolJob>) {
    job.step = StoreStep::ReadRecord;
    let (key, deadline_us) = (Key::new(Space::Protocol, &job.key), job.deadline_us);
    desk.read(turn, Order::Protocol(job), key, deadline_us);
}

/// The store read the record, or the stored cell.
pub(crate) fn read(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    mut job: Box<ProtocolJob>,
    result: Result<Option<Cell>, StoreFailure>,
) {
    // Its answer would be refused. So no order of it is stored after the fence: a member that has
    // seen its orders end has none of an earlier epoch left.
    if let Some(why) = desk.stale(job.requester.epoch, job.requester.partition) {
        return desk.reply(turn, job.requester, Answer::Refused(why));
    }
    let cell = match result {
        Ok(cell) => cell,
        Err(StoreFailure::Damaged) => return lost(desk, turn, job),
        Err(failure) => {
            desk.reply(turn, job.requester, Answer::Refused(refused(failure)));
            return;
        }
    };
    if matches!(job.step, StoreStep::ReadStored) {
        job.stored = cell;
        promise(desk, turn, job);
        return;
    }
    job.previous = cell.as_ref().map(|cell| cell.version);
    match cell.map(|cell| Record::decode(&cell.value)) {
        None => job.record = Record::default(),
        Some(Some(record)) => job.record = record,
        // A promise that cannot be read was made all the same.
        Some(None) => return lost(desk, turn, job),
    }
    let ballot = job.question.ballot();
    let is_adopted = matches!(job.question, ProtocolQuestion::Adopt { .. });
    let is_below = ballot < job.record.promised;
    if is_below && !is_adopted {
        let (promised, line) = (job.record.promised, job.record.line());
        desk.reply(turn, job.requester, Answer::Outbid { promised, line });
        return;
    }
    match &job.question {
        ProtocolQuestion::Prepare { .. } => {
            job.step = StoreStep::ReadStored;
            let (key, deadline_us) = (Key::user(&job.key), job.deadline_us);
            desk.read(turn, Order::Protocol(job), key, deadline_us);
        }
        ProtocolQuestion::Accept { proposal } => {
            let record = Record {
                promised: ballot.max(job.record.promised),
                accepted: Some(proposal.clone()),
            };
            write_record(desk, turn, job, record);
        }
        ProtocolQuestion::Adopt { record, .. } => {
            let joined = job.record.clone().joined(record.clone());
            if joined == job.record {
                desk.reply(turn, job.requester, Answer::Accepted);
                return;
            }
            write_record(desk, turn, job, joined);
        }
    }
}

/// The record, or the stored cell, cannot be read. Its promises count all the same, so no question
/// is answered. But a repair, which has the promises of the other owners, writes the record anew.
fn lost(desk: &mut Desk, turn: &mut Turn<'_>, mut job: Box<ProtocolJob>) {
    let record = match (&job.question, &job.step) {
        (ProtocolQuestion::Adopt { record, if_lost }, StoreStep::ReadRecord)
            if *if_lost == IfLost::WriteAnew =>
        {
            record
        }
        _ => {
            desk.reply(turn, job.requester, Answer::Refused(Refused::Damaged));
            return;
        }
    };
    // Above any version that the lost record can have: versions of records count from 1, and clocks
    // are far above that.
    let above = Version {
        hlc: desk.hlc.last(),
        origin: desk.origin,
        rmw: 0,
    };
    let key = Key::new(Space::Protocol, &job.key);
    let cell = aged(record, record.to_cell(&key, Some(above), desk.origin));
    job.step = StoreStep::WriteRecord;
    desk.write(turn, Order::Protocol(job), key, cell, Guard::Newest);
}

/// The stored cell is known, and the record read before it allows the promise.
fn promise(desk: &mut Desk, turn: &mut Turn<'_>, mut job: Box<ProtocolJob>) {
    let ballot = job.question.ballot();
    job.record
        .shed_value(job.stored.as_ref().map(|cell| cell.version));
    // A delete that another owner may have purged already counts as absent, here as there.
    let copies = desk.layout.copies_to_forget();
    let horizons = *desk.layout.horizons();
    job.stored
        .take_if(|cell| horizons.forgets_delete(cell, copies));
    if ballot == job.record.promised {
        // Asked twice: the promise stands already.
        promised(desk, turn, &mut job);
        return;
    }
    let record = Record {
        promised: ballot,
        accepted: job.record.accepted.clone(),
    };
    write_record(desk, turn, job, record);
}

fn promised(desk: &mut Desk, turn: &mut Turn<'_>, job: &mut ProtocolJob) {
    let answer = Answer::Promised {
        stored: job.stored.take(),
        accepted: job.record.accepted.take(),
    };
    desk.reply(turn, job.requester, answer);
}

/// A record is as old as the youngest ballot in it.
fn aged(record: &Record, cell: Cell) -> Cell {
    Cell {
        born: record.age(),
        ..cell
    }
}

fn write_record(desk: &mut Desk, turn: &mut Turn<'_>, mut job: Box<ProtocolJob>, record: Record) {
    let key = Key::new(Space::Protocol, &job.key);
    // Above all records of the key that may be gone: a compaction has purged the newest of them,
    // perhaps, and not yet an older one.
    let purge = desk.layout.horizons().purge();
    let gone = (purge > 0).then_some(Version {
        hlc: purge,
        ..Version::ZERO
    });
    let cell = record.to_cell(&key, job.previous.max(gone), desk.origin);
    let cell = aged(&record, cell);
    let guard = Guard::If(Condition::unchanged(job.previous));
    job.step = StoreStep::WriteRecord;
    desk.write(turn, Order::Protocol(job), key, cell, guard);
}

/// The store wrote the record, or found that it had changed.
pub(crate) fn wrote(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    mut job: Box<ProtocolJob>,
    result: Result<StoreOutcome, StoreFailure>,
) {
    match result {
        Ok(StoreOutcome::Applied { .. }) => match job.question {
            ProtocolQuestion::Prepare { .. } => promised(desk, turn, &mut job),
            ProtocolQuestion::Accept { .. } | ProtocolQuestion::Adopt { .. } => {
                desk.reply(turn, job.requester, Answer::Accepted);
            }
        },
        Ok(StoreOutcome::GuardFailed { .. }) if job.tries < PROTOCOL_TRIES_MAX => {
            job.tries += 1;
            read_record(desk, turn, job);
        }
        Ok(StoreOutcome::GuardFailed { .. }) => {
            desk.reply(turn, job.requester, Answer::Refused(Refused::Busy));
        }
        Err(failure) => desk.reply(turn, job.requester, Answer::Refused(refused(failure))),
    }
}
