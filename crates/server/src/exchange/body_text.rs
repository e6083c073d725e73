//! A body that is worked on while it arrives: the part of it that was read and is not used yet.
//!
//! ```text
//! socket ─► more ─► text ─► (items of a batch) ─► consume
//! ```
//!
//! Invariants
//! 1. While it waits it holds an item that is not whole yet, and nothing else. Beyond 4 KiB of one,
//!    room for twice the bytes is taken at the bytes gate before they are read: the item is taken
//!    apart beside them.
//! 2. The body keeps the pace of every body. The time in which the node works on it does not count.
//! 3. Nothing is read unless the caller asks for more.
//!
//! Not here: bodies that are collected whole (`body.rs`), items (crate `wire`, `batch/`).
//! See: docs/overload.md.

use super::body::{BodyPace, BodyProgress, BodyReader, NoBody, stand_for_room};
use crate::exchange::socket::{ConnectionEnd, Expecting, Socket};
use crate::limits;
use crate::measure::metrics::RefusalCause;
use crate::waiting::room::{Room, Turnover};
use crate::waiting::status;
use dendra_wire::Refusal;
use std::rc::Rc;

/// Room is taken in such steps.
const STEP_BYTES: usize = 256 << 10;

/// See the module.
pub(crate) struct BodyText {
    reader: BodyReader,
    bytes: Vec<u8>,
    /// So many of `bytes` are used.
    used: usize,
    is_all: bool,
    /// Why nothing comes behind what is here.
    fault: Option<Refusal>,
    room: Option<Room>,
    pace: BodyPace,
    /// When the caller got the last bytes.
    left_us: u64,
}

impl BodyText {
    /// Nothing has arrived yet.
    pub(crate) fn new(reader: BodyReader, now_us: u64) -> BodyText {
        BodyText {
            reader,
            bytes: Vec::new(),
            used: 0,
            is_all: false,
            fault: None,
            room: None,
            pace: BodyPace::new(now_us),
            left_us: now_us,
        }
    }

    /// The bytes that are here and not used.
    pub(crate) fn text(&self) -> &[u8] {
        &self.bytes[self.used..]
    }

    /// Comes nothing behind them?
    pub(crate) fn is_all(&self) -> bool {
        self.is_all
    }

    /// The first `n` bytes are used.
    pub(crate) fn consume(&mut self, n: usize) {
        self.used += n;
        assert!(self.used <= self.bytes.len(), "more was used than came");
    }

    /// Waits for more of the body, or for its end.
    pub(crate) async fn more(&mut self, socket: &mut Socket) -> Result<(), NoBody> {
        let lane = Rc::clone(socket.lane());
        self.bytes.drain(..self.used);
        self.used = 0;
        if self.bytes.len() <= limits::UNCOUNTED_BYTES_MAX {
            self.bytes.shrink_to_fit();
            self.room = None;
        }
        self.pace.pause(lane.now_us().saturating_sub(self.left_us));
        if self.take(socket)? {
            return Ok(());
        }
        let mut turnover = Turnover::new(lane.now_us());
        let timeout = lane.parts.settings.timeouts.body;
        loop {
            self.make_room(socket).await?;
            let deadline_us = self.pace.deadline_us(timeout);
            let holds = self.room.is_some();
            socket.seat().arm(if holds {
                deadline_us.min(turnover.due_us())
            } else {
                deadline_us
            });
            let before = socket.unread_len();
            let filled = socket.fill(Expecting::Body).await;
            turnover.note(socket.unread_len() - before);
            let now_us = lane.now_us();
            // A sender may be slow for as long as no other request needs its room.
            if holds && turnover.is_slow(now_us) && lane.rooms.bytes.is_short() {
                let why = "others waited for the room that the body held, and it came too slowly";
                return Err(NoBody::Refused(Refusal::too_slow(why)));
            }
            match filled {
                Ok(()) => {}
                Err(ConnectionEnd::TooSlow) if now_us < deadline_us => continue,
                Err(ConnectionEnd::TooSlow) => {
                    let refusal = Refusal::too_slow("the body did not arrive in time");
                    return Err(NoBody::Refused(refusal));
                }
                Err(end) => return Err(NoBody::Ended(end)),
            }
            if self.take(socket)? {
                return Ok(());
            }
        }
    }

    /// Takes what the socket has; has anything come, or the end?
    fn take(&mut self, socket: &mut Socket) -> Result<bool, NoBody> {
        if let Some(refusal) = self.fault.take() {
            return Err(NoBody::Refused(refusal));
        }
        let (before, unread) = (self.bytes.len(), socket.unread_len());
        let bytes = &mut self.bytes;
        let reader = &mut self.reader;
        let taken = reader.take(socket.input(), |data| bytes.extend_from_slice(data));
        self.pace.note(unread - socket.unread_len());
        self.left_us = socket.lane().now_us();
        let has_come = self.bytes.len() > before;
        match taken {
            Ok(progress) => self.is_all = progress == BodyProgress::All,
            // What came in front of the fault is good.
            Err(refusal) if has_come => self.fault = Some(refusal),
            Err(refusal) => return Err(NoBody::Refused(refusal)),
        }
        Ok(self.is_all || has_come)
    }

    /// Has room for what is here and one more read, when that is more than a connection may hold.
    async fn make_room(&mut self, socket: &mut Socket) -> Result<(), NoBody> {
        if self.bytes.len() <= limits::UNCOUNTED_BYTES_MAX {
            return Ok(());
        }
        let wanted = 2 * (self.bytes.len() + limits::READ_BYTES_MAX);
        if self
            .room
            .as_ref()
            .is_some_and(|room| room.bytes() >= wanted)
        {
            return Ok(());
        }
        // In large steps, so that the room of a long item is asked for a few times.
        let wanted = wanted.next_multiple_of(STEP_BYTES);
        let lane = Rc::clone(socket.lane());
        self.room = None;
        let room = match lane.rooms.bytes.offer_in_turn(socket.source(), wanted) {
            Some(room) => Some(room),
            None => {
                let timeout = lane.parts.settings.timeouts.body;
                let asked_us = lane.now_us();
                let room = stand_for_room(socket, &lane.rooms.bytes, wanted, timeout).await;
                // The wait for room was not the sender's delay.
                self.pace.pause(lane.now_us().saturating_sub(asked_us));
                room
            }
        };
        self.room = Some(
            room.ok_or_else(|| NoBody::Refused(status::refused(RefusalCause::Bytes).closing()))?,
        );
        Ok(())
    }
}
