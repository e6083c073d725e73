//! The tasks of an event loop for its agent: turns, links, and a look once per sweep.
//!
//! Not here: the turn itself (`member/agent.rs`), the life of a link (`link.rs`).

use super::link::keep;
use super::notes::note_rising;
use super::store::cover;
use crate::event_loop::thread::EventLoop;
use crate::member::agent::{self, Agent};
use dendra_ownership::MemberIndex;
use std::rc::Rc;

/// Starts the turns of the loop's agent.
pub(crate) fn turns(lane: &Rc<EventLoop>, agent: Rc<Agent>) {
    tokio::task::spawn_local(agent::run(Rc::clone(lane), agent));
}

/// Keeps a link to `member` up from now on.
pub(crate) fn link(lane: &Rc<EventLoop>, agent: &Rc<Agent>, member: MemberIndex) {
    tokio::task::spawn_local(keep(Rc::clone(lane), Rc::clone(agent), member));
}

/// Looks after the agent and the operations that wait for it.
pub(crate) fn sweep(lane: &Rc<EventLoop>, agent: &Rc<Agent>) {
    agent.sweep(lane.now_us());
    note_rising(lane, agent);
    lane.metrics().operations.set(agent.operations() as u64);
    agent.show(lane.metrics());
    if let Some(hlc) = lane.take_uncovered() {
        cover(lane, hlc);
    }
}
