//! A connection that waits for an outcome of the loop's node, and looks whether its client is still
//! there.
//!
//! Not here: which operations a node may end (crate `node`).
//! See: docs/overload.md, "Clients that hang up".

use crate::exchange::socket::{ConnectionEnd, HangUpReaction, Socket};
use crate::limits;
use crate::member::Agent;
use crate::waiting::seat::{WaitLimit, WakeReason};
use dendra_node::step::{ClientTicket, Event};
use std::rc::Rc;

/// Waits for the outcomes of the node for `clients`, until a little after `deadline_us`.
pub(super) async fn wait(
    agent: &Agent,
    socket: &mut Socket,
    clients: impl Iterator<Item = ClientTicket>,
    deadline_us: u64,
) -> Result<Result<(), WakeReason>, ConnectionEnd> {
    let (lane, seat) = (Rc::clone(socket.lane()), Rc::clone(socket.seat()));
    let abandon = || {
        // The places of the results are those in the list.
        for (place, client) in clients.enumerate() {
            if !seat.has(place) {
                lane.metrics().hung_up.add(1);
                agent.post(Event::Gone { client });
            }
        }
        HangUpReaction::KeepWaiting
    };
    let grace_us = limits::OUTCOME_GRACE.as_micros() as u64;
    let last_us = deadline_us.saturating_add(grace_us);
    socket
        .watch(last_us, WaitLimit::DeadlineOrPoison, abandon)
        .await
}
