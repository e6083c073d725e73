//! What the watches of this loop need, carried out by the node's other machines.
//!
//! Invariants
//! 1. A look and a page have deadlines of their own; one that fails is ordered again by the hub.
//!
//! Not here: what watches need (`watching.rs`), the machines.

use super::Node;
use crate::coordinator::scan::ScanOp;
use crate::coordinator::{Breadth, Op};
use crate::desk::Turn;
use crate::limits::{WATCH_PATIENCE_US, WATCH_READ_TIMEOUT_US};
use crate::purpose::Purpose;
use crate::watching::{self, HubAnswer};
use bytes::Bytes;
use dendra_base::peer::{Answer, Refused};
use dendra_ownership::ring::table::MemberId;
use dendra_watch::limits::FEED_TIMEOUT_US;
use dendra_watch::{FeedId, FeedQuestion, QuestionId, Work};

impl Node {
    /// Carries out what watches need, until nothing is left to do in this step.
    pub(super) fn serve_watches(&mut self, turn: &mut Turn<'_>) {
        loop {
            let work = self.watching.take_work(turn.now, turn.effects);
            if work.is_empty() {
                return;
            }
            let deadline_us = turn.now.mono_us + WATCH_READ_TIMEOUT_US;
            for order in work {
                match order {
                    Work::Ask {
                        source,
                        id,
                        question,
                    } => self.ask_changes(turn, source, id, question),
                    Work::Look { key, is_wide } => self.look(turn, key, is_wide, deadline_us),
                    Work::Page {
                        watch,
                        id,
                        span,
                        is_patient,
                    } => {
                        let mut scan = ScanOp::of_watch((watch, id), span, deadline_us);
                        if is_patient {
                            scan.be_patient(WATCH_PATIENCE_US);
                        }
                        self.scan(turn, scan);
                    }
                    Work::Tell { .. } => unreachable!("clients were told"),
                }
            }
            self.empty_inbox(turn);
        }
    }

    fn ask_changes(
        &mut self,
        turn: &mut Turn<'_>,
        source: FeedId,
        question: QuestionId,
        asks: FeedQuestion,
    ) {
        let purpose = Purpose::Feed { source, question };
        match self.desk.layout.index_of(MemberId(source.0)) {
            Some(member) => {
                let deadline_us = turn.now.mono_us + FEED_TIMEOUT_US;
                let ask = watching::ask_of(asks);
                self.desk.ask(turn, member, purpose, ask, deadline_us);
                self.ask_own(turn);
            }
            None => self.route(turn, purpose, Answer::Refused(Refused::NotOwner)),
        }
    }

    /// Reads a key for watches.
    fn look(&mut self, turn: &mut Turn<'_>, key: Bytes, is_wide: bool, deadline_us: u64) {
        if self.ops.len() >= self.operations_max {
            return self.watching.note(HubAnswer::Looked(key, None));
        }
        let breadth = if is_wide {
            Breadth::All
        } else {
            Breadth::Enough
        };
        let partition = self.desk.ring().partition(&key);
        let quorum = self.usual_quorum();
        self.enter(
            turn,
            Op::of_look(key, partition, breadth, quorum, deadline_us),
        );
    }
}
