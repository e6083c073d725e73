//! Scans of an engine of others: a page from its desk, sent, then the next one.
//!
//! Invariants
//! 1. A scan holds one page, for any size of the answer, and room for it before it is asked for.
//!
//! Not here: the records of a page as bytes (`exchange/pages.rs`).
//! See: docs/stores.md, docs/api.md, section "Many keys".

use crate::event_loop::handover::ChunkTerms;
use crate::exchange::pages::{PagedBackend, PagedScan};
use crate::exchange::socket::{HangUpReaction, Socket};
use crate::front::desk::{FrontDesk, FrontWork, not_offered};
use crate::limits;
use crate::measure::metrics::RefusalCause;
use crate::waiting::finished::Finished;
use crate::waiting::seat::WaitLimit;
use dendra_base::peer::Range;
use dendra_stores::PageRead;
use dendra_wire::Refusal;
use dendra_wire::route::{Scan as Query, Scope};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A scan between two pages.
pub(crate) type FrontWalk = PagedScan<FrontPages>;

/// The pages of an engine of others.
pub(crate) struct FrontPages {
    desk: Arc<FrontDesk>,
    refusal: Option<Refusal>,
}

/// A scan of `query`'s range.
pub(super) fn walk(desk: Arc<FrontDesk>, query: &Query) -> FrontWalk {
    let refusal = (query.scope == Scope::Local).then(|| {
        let why = "this front door holds no keys of its own: leave scope=local away";
        not_offered(why.to_owned())
    });
    PagedScan::new(FrontPages { desk, refusal }, query)
}

impl PagedBackend for FrontPages {
    fn take_refusal(&mut self) -> Option<Refusal> {
        self.refusal.take()
    }

    async fn ask(
        &self,
        socket: &mut Socket,
        range: Range,
        wanted: usize,
        turn: ChunkTerms,
    ) -> Result<(), Finished> {
        let lane = Rc::clone(socket.lane());
        let most = limits::FRONT_PAGE_BYTES_MAX + lane.parts.settings.wrapped_value_bytes_max();
        if !socket.wait_for_scan_room(most, turn.deadline_us).await {
            return Err(Finished::Refused(RefusalCause::Bytes));
        }
        let seat = Rc::clone(socket.seat());
        let work = FrontWork::Page(PageRead {
            range,
            bytes_max: limits::SCAN_PAGE_BYTES,
            records_max: wanted,
            left: Duration::ZERO,
        });
        let offered = lane.offer_front(&self.desk, &seat, turn.deadline_us, work);
        let slot = offered.map_err(Finished::Refused)?;
        let grace_us = limits::OUTCOME_GRACE.as_micros() as u64;
        let last_us = turn.deadline_us.saturating_add(grace_us);
        let take_back = || {
            if lane.withdraw_front(&self.desk, slot) {
                lane.metrics().abandoned.add(1);
            }
            HangUpReaction::EndConnection
        };
        // A wait that ends early leaves the place empty: that is no page in time.
        let _waited = socket.watch(last_us, WaitLimit::Deadline, take_back).await;
        Ok(())
    }
}
