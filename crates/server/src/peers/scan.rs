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
//! (`exchange/pages.rs`), scans of one node's store (`clients/backend/alone.rs`).
//! See: docs/api.md, section "Many keys".

use super::waiting;
use crate::event_loop::handover::ChunkTerms;
use crate::exchange::pages::{PagedBackend, PagedScan};
use crate::exchange::socket::Socket;
use crate::limits;
use crate::measure::metrics::RefusalCause;
use crate::member::Agent;
use crate::waiting::finished::Finished;
use dendra_base::peer::Range;
use dendra_node::step::Event;
use dendra_wire::route::Scan as Query;
use std::rc::Rc;

/// A scan of the cluster between two pages.
pub(crate) type ClusterWalk = PagedScan<ClusterPages>;

/// The pages of the loop's node.
pub(crate) struct ClusterPages {
    agent: Rc<Agent>,
}

/// A scan of `query`'s range.
pub(super) fn walk(agent: Rc<Agent>, query: &Query) -> ClusterWalk {
    PagedScan::new(ClusterPages { agent }, query)
}

impl PagedBackend for ClusterPages {
    async fn ask(
        &self,
        socket: &mut Socket,
        range: Range,
        _wanted: usize,
        turn: ChunkTerms,
    ) -> Result<(), Finished> {
        let lane = Rc::clone(socket.lane());
        // The bytes that the members may send for it: each a page, and one record more.
        let longest = limits::SCAN_PAGE_BYTES + lane.parts.settings.wrapped_value_bytes_max();
        let most = longest * usize::from(lane.routes().nodes);
        if !socket.wait_for_scan_room(most, turn.deadline_us).await {
            return Err(Finished::Refused(RefusalCause::Bytes));
        }
        let seat = Rc::clone(socket.seat());
        let Some(permit) = lane.rooms.hold_request(&seat) else {
            return Err(Finished::Refused(RefusalCause::Requests));
        };
        let client = self.agent.ticket(&seat, permit);
        self.agent.post(Event::Scan {
            client,
            range,
            bytes: limits::SCAN_PAGE_BYTES as u32,
            deadline_us: turn.deadline_us,
        });
        let clients = std::iter::once(client);
        // A wait that ends early leaves the place empty: that is no page in time.
        let _waited = waiting::wait(&self.agent, socket, clients, turn.deadline_us).await;
        Ok(())
    }
}
