//! An order that waits for its epoch.

use super::draft::PlanStart;
use super::step::OrderTicket;
use crate::ring::table::MemberId;
use dendra_base::LeastSuccessor;

/// The change that it waits for.
#[derive(Clone, Debug)]
pub(super) enum OrderIntent {
    /// A plan that was made for an epoch with these members and owners.
    Begin(Box<PlanStart>),
    Cancel,
    Readdress {
        member: MemberId,
        to: String,
    },
    Rekey,
    Finalize,
    Restored {
        least: LeastSuccessor,
    },
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct PendingOrder {
    /// `None` for a joiner, which asks again.
    pub(super) ticket: Option<OrderTicket>,
    pub(super) intent: OrderIntent,
    pub(super) due_us: u64,
    /// Digest of the record that was proposed for it last.
    pub(super) proposed: Option<u128>,
}
