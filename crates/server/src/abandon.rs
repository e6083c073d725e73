//! Requests whose client has gone while they waited: they are not begun.
//!
//! ```text
//! line of the loop, line for the log, delay ─► called ─► gone? ─► the connection ends
//! store queue ─ each 100 ms ─► gone? ─► the job is taken out, its room is free, the connection ends
//! node of the loop ─ each 100 ms ─► gone? ─► the node is told and ends what may end; its answer comes
//! ```
//!
//! Invariants
//! 1. A look costs no call to the system: the loop's poll of the sockets has the news already.
//! 2. A request that did not wait is not looked at: a client may close its sending side behind it.
//!
//! Not here: work that has begun, which goes on to its end; what a node may end (crate `node`).
//! See: docs/overload.md, "Classes and their shares" and "Clients that hang up".

use crate::connection::{Connection, End};
use crate::limits;
use crate::seat::Due;
use crate::store_pool::PoolAnswer;
use dendra_node::step::{ClientTicket, Event};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use tokio::io::Interest;

impl Connection {
    /// Has the client closed its side?
    pub(crate) fn is_client_gone(&self) -> bool {
        let mut ready = pin!(self.stream.ready(Interest::READABLE));
        match ready.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(ready)) => ready.is_read_closed(),
            Poll::Ready(Err(_)) => true,
            Poll::Pending => false,
        }
    }

    /// Ends when the client has closed its side: it waits for nothing any more.
    pub(crate) fn expect_client(&self) -> Result<(), End> {
        if !self.is_client_gone() {
            return Ok(());
        }
        if self.input.len() > 0 || matches!(self.stream.try_read(&mut [0]), Ok(1)) {
            self.lane.metrics().abandoned.add(1);
        }
        Err(End::HungUp)
    }

    /// Waits for the store pool's answer to the job in `slot`, which it was offered last.
    pub(crate) async fn pooled(
        &mut self,
        slot: u32,
        deadline_us: u64,
    ) -> Result<Result<PoolAnswer, Due>, End> {
        let sweep_us = limits::SWEEP.as_micros() as u64;
        loop {
            let look_us = self.lane.now_us() + sweep_us;
            self.seat.arm(deadline_us.min(look_us));
            let answer = self.seat.answer().await;
            self.lane.refresh();
            if answer.is_ok() || self.lane.now_us() >= deadline_us {
                self.seat.next_round();
                return Ok(answer);
            }
            if self.is_client_gone() {
                self.seat.next_round();
                if self.lane.withdraw(slot) {
                    self.lane.metrics().abandoned.add(1);
                }
                return Err(End::HungUp);
            }
        }
    }
    /// Waits for what the loop's node comes to, `last_us` at the latest. Each `CLIENT_LOOK` it
    /// looks whether the client is still there. If not, it tells the node, and waits for its
    /// outcomes all the same. `page` is a page of a scan, where the connection waits for one
    /// instead of operations.
    pub(crate) async fn wait_for_node(
        &mut self,
        page: Option<ClientTicket>,
        last_us: u64,
    ) -> Result<(), Due> {
        let mut is_watched = true;
        loop {
            let look_us = self.deadline_us(limits::CLIENT_LOOK);
            self.seat.arm(match is_watched {
                true => last_us.min(look_us),
                false => last_us,
            });
            let waited = self.seat.all_finished().await;
            self.lane.refresh();
            if waited != Err(Due::Deadline) || self.lane.now_us() >= last_us {
                return waited;
            }
            if is_watched && self.is_client_gone() {
                is_watched = false;
                self.abandon(page);
            }
        }
    }

    fn abandon(&self, page: Option<ClientTicket>) {
        let Some(agent) = self.lane.agent() else {
            return;
        };
        // The places of the results are those in the list.
        let operations = self.operations.iter().map(|waiting| waiting.client);
        for (place, client) in operations.chain(page).enumerate() {
            if !self.seat.has_finished(place) {
                self.lane.metrics().hung_up.add(1);
                agent.post(Event::Gone { client });
            }
        }
    }
}
