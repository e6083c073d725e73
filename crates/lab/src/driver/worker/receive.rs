//! The reading half of a thread of the driver: from a ready socket to an accounted answer.
//!
//! ```text
//! ready ─► receive ─► answers (pieces are held until whole) ─► answer ─► recorder, free connection ─► the request that waits
//!                                                              ╲─► second half: write behind a read
//! ```
//!
//! Invariants
//! 1. Answers are taken in the order of the requests on their connection.
//! 2. An answer is done when its last byte came, not when it was read, where the kernel says so.
//!    Its connection is free when it was read. Reading all that came at once from a full target is
//!    no lag of a request that waits for room.
//! 3. An answer without a request, or whose length is in doubt, ends its connection.
//!
//! Not here: sending, timeouts (`worker/`), stamps of the kernel (`arrival.rs`), the shape of
//! answers (`answer.rs`). See: RFC 9112, section 9.

use super::{DriverWorker, reads_first};
use crate::driver::answer::{FoundAnswer, Whole};
use crate::driver::connection::{PendingRequest, Wrote};
use crate::recorder::{Ended, RequestEnd};
use crate::template::Fill;
use dendra_base::workload::RequestKind;
use rustix::event::epoll::{Event, EventFlags};
use rustix::io::Errno;

/// So much of a refusal's text is kept.
const QUOTE_BYTES_MAX: usize = 200;

/// Does this status say that the request was not done?
fn is_refusal(status: u16) -> bool {
    status >= 400 && !matches!(status, 404 | 412)
}

/// The status of an answer that ends with `bytes`, and the first line of its body where that is
/// text.
fn quote(bytes: &[u8], whole: Whole) -> String {
    let status = whole.status;
    let body = usize::try_from(whole.body_bytes).ok();
    let body = body.and_then(|len| bytes.len().checked_sub(len));
    let line = body.and_then(|at| bytes[at..].split(|&b| b == b'\n').next());
    let line = line.unwrap_or_default().trim_ascii();
    let line = &line[..line.len().min(QUOTE_BYTES_MAX)];
    match str::from_utf8(line) {
        Ok(text) if !text.is_empty() && !text.contains(char::is_control) => {
            format!("{status}, {text:?}")
        }
        _ => status.to_string(),
    }
}

impl DriverWorker<'_> {
    /// Sockets have events. A request that waits for room leaves as soon as there is some. After a
    /// full target's other answers it would be late by the time of reading them.
    pub(super) fn take_events(&mut self, events: &[Event], buffer: &mut [u8]) {
        for event in events {
            self.ready(event.data.u64() as usize, event.flags, buffer);
            if self.is_waiting() {
                self.dispatch(self.now_ns());
                self.flush();
            }
        }
    }

    /// Something happened to a socket.
    fn ready(&mut self, slot: usize, flags: EventFlags, buffer: &mut [u8]) {
        if self.connections[slot].is_opening() {
            let now_ns = self.now_ns();
            match self.connections[slot].opened(&self.epoll, now_ns) {
                Ok(()) if self.connections[slot].is_opening() => {}
                Ok(()) => {
                    self.recorder.reconnected(now_ns);
                    self.list(slot);
                }
                Err(error) => self.note(|| error.to_string()),
            }
            return;
        }
        if flags.contains(EventFlags::OUT)
            && let Wrote::Failed(errno) = self.connections[slot].write(&self.epoll)
        {
            let now_ns = self.now_ns();
            self.broke(slot, &std::io::Error::from(errno).to_string(), now_ns);
            return;
        }
        if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
            self.receive(slot, buffer);
        }
    }

    fn receive(&mut self, slot: usize, buffer: &mut [u8]) {
        loop {
            let Some(socket) = self.connections[slot].socket() else {
                return;
            };
            let read = match self.reads.read(socket, buffer) {
                Ok(read) => read,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return,
                Err(errno) => {
                    let now_ns = self.now_ns();
                    self.broke(slot, &std::io::Error::from(errno).to_string(), now_ns);
                    return;
                }
            };
            if read.len == 0 {
                let now_ns = self.now_ns();
                self.ended(slot, now_ns);
                return;
            }
            // The bytes that filled the buffer may begin a segment whose stamp is that of the one
            // before.
            let age_ns = read.age_ns.filter(|_| read.len < buffer.len());
            let came_ns = self.came_ns(age_ns);
            self.answer_bytes_max = self.answer_bytes_max.max(read.len as u64);
            let mut plain = std::mem::take(&mut self.plain);
            match self.connections[slot].unseal(&buffer[..read.len], &mut plain) {
                Ok(false) => self.answers(slot, &buffer[..read.len], came_ns),
                Ok(true) => self.answers(slot, &plain, came_ns),
                Err(error) => {
                    let now_ns = self.now_ns();
                    self.broke(slot, &error.to_string(), now_ns);
                }
            }
            self.plain = plain;
            // A read that did not fill the buffer emptied the socket: asking again would be wasted.
            if read.len < buffer.len() {
                return;
            }
        }
    }

    /// When bytes came that are this old now. The wall clock may be set while they wait. Bytes that
    /// the last look would have seen did not come before it.
    fn came_ns(&mut self, age_ns: Option<u64>) -> u64 {
        let now_ns = self.now_ns();
        self.is_stamped = age_ns.is_some();
        self.read_ns = now_ns;
        now_ns
            .saturating_sub(age_ns.unwrap_or(0))
            .max(self.looks.since_ns())
    }

    /// The peer closed its side.
    fn ended(&mut self, slot: usize, came_ns: u64) {
        self.read_ns = came_ns;
        if let Some(whole) = self.connections[slot].reader.close() {
            self.reads_at_once = true;
            self.answer(slot, whole, came_ns);
        }
        if self.connections[slot].in_flight.is_empty() {
            // Idle connections may be closed at any time; the next one is made at once.
            self.connections[slot].close(came_ns, false);
            self.reopen(slot, came_ns);
        } else if self.connections[slot].reader.is_between() {
            self.broke(slot, "the connection was closed before the answer", came_ns);
        } else {
            self.broke(
                slot,
                "the connection was closed inside of an answer",
                came_ns,
            );
        }
    }

    /// Reads answers from bytes that came.
    fn answers(&mut self, slot: usize, bytes: &[u8], came_ns: u64) {
        let mut held = std::mem::take(&mut self.connections[slot].held);
        let is_held = !held.is_empty();
        if is_held {
            held.extend_from_slice(bytes);
        }
        let all = if is_held { &held[..] } else { bytes };
        let Some(at) = self.answers_in(slot, all, came_ns) else {
            return;
        };
        if is_held {
            held.drain(..at);
        } else {
            held.extend_from_slice(&bytes[at..]);
        }
        self.connections[slot].held = held;
    }

    /// How many of the bytes are done with; none when the connection is gone.
    fn answers_in(&mut self, slot: usize, all: &[u8], came_ns: u64) -> Option<usize> {
        let mut at = 0;
        loop {
            match self.connections[slot].reader.read(&all[at..]) {
                FoundAnswer::Need(consumed) => return Some(at + consumed),
                FoundAnswer::Whole(consumed, whole) => {
                    if is_refusal(whole.status) && self.refusal.is_none() {
                        self.refusal = Some(quote(&all[at..at + consumed], whole));
                    }
                    at += consumed;
                    if !self.answer(slot, whole, came_ns) {
                        return None;
                    }
                }
                FoundAnswer::Bad(sentence) => {
                    self.broke(slot, sentence, came_ns);
                    return None;
                }
            }
        }
    }

    /// An answer is whole; false when its connection is gone.
    fn answer(&mut self, slot: usize, whole: Whole, came_ns: u64) -> bool {
        let connection = &mut self.connections[slot];
        let target = connection.target;
        let Some(mut pending) = connection.in_flight.pop_front() else {
            self.broke(slot, "an answer came that nobody had asked for", came_ns);
            return false;
        };
        connection.is_well();
        let has_read = matches!(whole.status, 200..=299 | 404);
        if reads_first(pending.operation) && !pending.is_second && has_read && whole.keep_alive {
            pending.received_bytes = whole.bytes;
            self.append_second(slot, pending);
            return true;
        }
        if connection.in_flight.len() + 1 == self.plan.pipeline as usize {
            connection.free_since_ns = self.read_ns;
        }
        self.in_flight -= 1;
        self.answered += 1;
        self.answer_bytes_max = self.answer_bytes_max.max(whole.bytes);
        if is_refusal(whole.status) {
            self.errors += 1;
            self.keep_failure(pending.index);
        }
        self.patience.note(came_ns.saturating_sub(pending.sent_ns));
        self.recorder.ended(&Ended {
            operation: pending.operation,
            target,
            due_ns: pending.due_ns,
            sent_ns: pending.sent_ns,
            // The wall clock may have been set.
            done_ns: came_ns.max(pending.sent_ns),
            received_bytes: whole.bytes + pending.received_bytes,
            body_bytes: whole.body_bytes,
            scanned: whole.records,
            end: RequestEnd::Answer(whole.status),
        });
        if whole.keep_alive {
            self.list(slot);
            return true;
        }
        if self.connections[slot].in_flight.is_empty() {
            self.connections[slot].close(came_ns, false);
            self.reopen(slot, came_ns);
        } else {
            self.broke(slot, "the server closed behind an answer", came_ns);
        }
        false
    }

    /// The write of an operation that has read.
    fn append_second(&mut self, slot: usize, mut pending: PendingRequest) {
        let ask = self.plan.source.ask(pending.index, &mut self.key);
        let condition = match (pending.operation, self.connections[slot].reader.etag()) {
            (RequestKind::CompareAndSet, b"") => b"If-None-Match: *".to_vec(),
            (RequestKind::CompareAndSet, etag) => [b"If-Match: ", etag].concat(),
            _ => Vec::new(),
        };
        let connection = &mut self.connections[slot];
        let template = self.plan.targets[connection.target].templates.second();
        let fill = Fill {
            key: &self.key,
            value: self.plan.source.value(&ask),
            limit: 0,
            condition: &condition,
        };
        let out = connection.out();
        let before = out.len();
        template.render(&fill, out);
        pending.bytes = (out.len() - before) as u64;
        pending.is_second = true;
        connection.in_flight.push_back(pending);
        self.mark_dirty(slot);
    }
}
