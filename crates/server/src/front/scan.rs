//! Scans of an engine of others: a page from its desk, sent, then the next one.
//!
//! Invariants
//! 1. A scan holds one page, for any size of the answer, and room for it before it is asked for.
//!
//! Not here: the records of a page as bytes (`clients/pages.rs`).
//! See: docs/stores.md, docs/api.md, section "Many keys".

use super::desk::{FrontDesk, FrontWork, not_offered};
use crate::admin::metrics::RefusalCause;
use crate::clients::finished::Finished;
use crate::clients::pages::PageWalk;
use crate::clients::seat::WaitLimit;
use crate::clients::socket::{HangUpReaction, Socket};
use crate::event_loop::handover::{ChunkTerms, NoChunk, ScanChunk};
use crate::limits;
use dendra_base::peer::Range;
use dendra_stores::PageRead;
use dendra_wire::Refusal;
use dendra_wire::route::{Scan as Query, Scope};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A scan between two pages.
pub(crate) struct FrontWalk {
    desk: Arc<FrontDesk>,
    pages: PageWalk,
    /// Why the engine cannot do such a scan; given to the client instead of the first page.
    refusal: Option<Refusal>,
}

impl FrontWalk {
    /// A scan of `query`'s range.
    pub(super) fn new(desk: Arc<FrontDesk>, query: &Query) -> FrontWalk {
        let refusal = (query.scope == Scope::Local).then(|| {
            let why = "this front door holds no keys of its own: leave scope=local away";
            not_offered(why.to_owned())
        });
        FrontWalk {
            desk,
            pages: PageWalk::new(query),
            refusal,
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
        if let Some(refusal) = self.refusal.take() {
            return Err(NoChunk::ended(Finished::Told(Box::new(refusal))));
        }
        let finished = match self.pages.rest() {
            None => None,
            Some(range) => Some(self.ask(socket, range, turn).await),
        };
        let chunk = self.pages.take(out, finished, turn)?;
        socket.keep_scan_room(chunk.out.len());
        Ok(chunk)
    }

    /// Asks for a page; `None` when it did not come in time.
    async fn ask(&self, socket: &mut Socket, range: Range, turn: ChunkTerms) -> Option<Finished> {
        let lane = Rc::clone(socket.lane());
        let most = limits::FRONT_PAGE_BYTES_MAX + lane.shared.settings.value_bytes_max;
        if !socket.wait_for_scan_room(most, turn.deadline_us).await {
            return Some(Finished::Refused(RefusalCause::Bytes));
        }
        let seat = Rc::clone(socket.seat());
        let work = FrontWork::Page(PageRead {
            range,
            bytes_max: limits::SCAN_PAGE_BYTES,
            records_max: self.pages.wanted(),
            left: Duration::ZERO,
        });
        let slot = match lane.offer_front(&self.desk, &seat, turn.deadline_us, work) {
            Ok(slot) => slot,
            Err(refused) => return Some(Finished::Refused(refused)),
        };
        let grace_us = limits::OUTCOME_GRACE.as_micros() as u64;
        let last_us = turn.deadline_us.saturating_add(grace_us);
        let take_back = || {
            if lane.withdraw_front(&self.desk, slot) {
                lane.metrics().abandoned.add(1);
            }
            HangUpReaction::EndConnection
        };
        // A wait that ends early leaves the place empty: that is `None`, too.
        let _waited = socket.watch(last_us, WaitLimit::Deadline, take_back).await;
        let finished = seat.take(0);
        seat.next_round();
        lane.refresh();
        finished
    }
}
