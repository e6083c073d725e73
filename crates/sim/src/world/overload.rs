//! Slow processors: each event that a loop handles takes time, and later events wait in its
//! mailbox.
//!
//! ```text
//! message, request, turn ─► is the loop busy? ─ no ─► handled; busy for `event_us` from now on
//!                                             ─ yes ─► mailbox ─ has its turn when the loop has time
//!                                mailbox full ─► the client is refused, the frame is lost
//! ```
//!
//! Invariants
//! 1. At most `MAILBOX_LEN_MAX` messages and requests wait for a loop. The events of its own member
//!    come on top, one for each of its orders.
//! 2. A loop that is quick is never busy: runs without such a fault do not change.
//!
//! Not here: when processors are slow (`draws/wishes.rs`).

use super::state::{Happening, World};
use crate::check::Rule;
use crate::limits::MAILBOX_LEN_MAX;
use dendra_node::step::Event;
use dendra_node::{Outcome, RefusedBy};

impl World<'_> {
    /// The loop that handles it, where one does.
    fn lane_of(&self, happening: &Happening) -> Option<(usize, usize)> {
        match happening {
            Happening::Turn { member, lane, .. }
            | Happening::Give { member, lane, .. }
            | Happening::Waited { member, lane, .. } => Some((*member, *lane)),
            Happening::Arrive(envelope) => {
                let lanes = self.members[envelope.to].lanes.len();
                Some((envelope.to, envelope.lane % lanes))
            }
            _ => None,
        }
    }

    /// The happening, if it may happen now: `None` when it waits, or was refused.
    pub(super) fn has_time_for(&mut self, happening: Happening) -> Option<Happening> {
        let Some((member, lane)) = self.lane_of(&happening) else {
            return Some(happening);
        };
        if self.members[member].lanes[lane].door.is_some() {
            return self.queue_at_door(member, lane, happening);
        }
        let now_us = self.now_us();
        let event_us = self.members[member].event_us;
        let incarnation = self.members[member].incarnation;
        let it = &mut self.members[member].lanes[lane];
        let is_busy = it.busy_until_us > now_us;
        match happening {
            Happening::Waited { .. } if is_busy => {
                self.schedule.at(it.busy_until_us, happening);
                None
            }
            Happening::Waited { happening, .. } => {
                if counts(&happening) {
                    it.waiting -= 1;
                }
                it.busy_until_us = now_us + event_us;
                Some(*happening)
            }
            happening if !is_busy => {
                it.busy_until_us = now_us + event_us;
                Some(happening)
            }
            happening if counts(&happening) && it.waiting >= MAILBOX_LEN_MAX => {
                self.refuse_at_door(member, lane, happening);
                None
            }
            happening => {
                if counts(&happening) {
                    it.waiting += 1;
                    if it.waiting > MAILBOX_LEN_MAX {
                        let what = format!("{} wait at m{member}.{lane}", it.waiting);
                        self.violate(Rule::Leak, what);
                        return None;
                    }
                }
                let at_us = self.members[member].lanes[lane].busy_until_us;
                let happening = Box::new(happening);
                self.schedule.at(
                    at_us,
                    Happening::Waited {
                        member,
                        lane,
                        incarnation,
                        happening,
                    },
                );
                None
            }
        }
    }

    /// A mailbox is full.
    fn refuse_at_door(&mut self, member: usize, lane: usize, happening: Happening) {
        let Happening::Give { event, .. } = happening else {
            let now_us = self.now_us();
            self.trace.line(now_us, || {
                format!("lost at m{member}.{lane}: {happening:?}")
            });
            return;
        };
        if let Event::Begin { client, .. } = *event {
            let refusal = RefusedBy::Requests;
            let outcome = Outcome::Overloaded { refusal };
            self.client_is_told(member, lane, client, outcome, None);
        }
    }
}

/// Does it come from outside? The loop's orders bound the events of its own member.
fn counts(happening: &Happening) -> bool {
    match happening {
        Happening::Arrive(_) => true,
        Happening::Give { event, .. } => matches!(**event, Event::Begin { .. }),
        _ => false,
    }
}
