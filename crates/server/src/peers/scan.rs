//! Scans over the whole cluster: a page from the node, sent, then the next one.
//!
//! ```text
//! Scan { range } ─► node asks all members ─► Scanned { records, rest } ─► chunks ─► socket took them ─► Scan { rest }
//! ```
//!
//! Invariants
//! 1. A scan holds one page, for any size of the answer; the next is asked for when the client has
//!    taken this one. While it is asked for, room is held for all that the members may send.
//! 2. The head is sent with the first page, so that a failure before has a status.
//! 3. The trailer says `complete` exactly when the node said so of every page.
//! 4. The receipt says `eventual`: the scan does not wait until a majority holds the cells.
//!
//! Not here: merging and counting members (crate `node`), the records of a page as bytes
//! (`clients/pages.rs`), scans of one node's store (`disk/alone.rs`).
//! See: docs/api.md, section "Many keys".

use super::{Agent, waiting};
use crate::admin::metrics::RefusalCause;
use crate::clients::finished::Finished;
use crate::clients::pages::PageWalk;
use crate::clients::socket::Socket;
use crate::event_loop::handover::{ChunkTerms, NoChunk, ScanChunk};
use crate::limits;
use dendra_base::peer::Range;
use dendra_node::step::Event;
use dendra_wire::route::Scan as Query;
use std::rc::Rc;

/// A scan of the cluster between two pages.
pub(crate) struct ClusterWalk {
    agent: Rc<Agent>,
    pages: PageWalk,
}

impl ClusterWalk {
    /// A scan of `query`'s range.
    pub(super) fn new(agent: Rc<Agent>, query: &Query) -> ClusterWalk {
        ClusterWalk {
            agent,
            pages: PageWalk::new(query),
        }
    }

    /// Where it goes on, in the client's words.
    pub(crate) fn next_key(&self) -> Vec<u8> {
        self.pages.next_key()
    }

    /// The next page, after the earlier content of `out`.
    pub(crate) async fn next(
        &mut self,
        socket: &mut Socket,
        out: Vec<u8>,
        turn: ChunkTerms,
    ) -> Result<ScanChunk, NoChunk> {
        let finished = match self.pages.rest() {
            None => None,
            Some(range) => Some(self.ask(socket, range, turn).await),
        };
        let chunk = self.pages.take(out, finished, turn)?;
        socket.keep_scan_room(chunk.out.len());
        Ok(chunk)
    }

    /// Asks the node for a page; `None` when it did not say in time.
    async fn ask(&self, socket: &mut Socket, range: Range, turn: ChunkTerms) -> Option<Finished> {
        let lane = Rc::clone(socket.lane());
        // The bytes that the members may send for it: each a page, and one record more.
        let longest = limits::SCAN_PAGE_BYTES + lane.shared.settings.value_bytes_max;
        let most = longest * usize::from(lane.routes().nodes);
        if !socket.wait_for_scan_room(most, turn.deadline_us).await {
            return Some(Finished::Refused(RefusalCause::Bytes));
        }
        let seat = Rc::clone(socket.seat());
        let Some(permit) = lane.hold_request(&seat) else {
            return Some(Finished::Refused(RefusalCause::Requests));
        };
        let client = self.agent.ticket(&seat, permit);
        self.agent.post(Event::Scan {
            client,
            range,
            bytes: limits::SCAN_PAGE_BYTES as u32,
            deadline_us: turn.deadline_us,
        });
        let clients = std::iter::once(client);
        // A wait that ends early leaves the place empty: that is `None`, too.
        let _waited = waiting::wait(&self.agent, socket, clients, turn.deadline_us).await;
        let finished = seat.take(0);
        seat.next_round();
        lane.refresh();
        finished
    }
}
