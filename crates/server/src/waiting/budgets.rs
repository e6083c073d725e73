//! The room of a node for requests and bytes that wait, and for watches, of all loops together.
//!
//! Invariants
//! 1. The bounds are the operator's, and do not change.
//!
//! Not here: a loop's share of them (`source_requests.rs`, `room.rs`).
//! See: docs/overload.md.

use super::room::RoomBudget;
use crate::limits;
use crate::settings::Settings;
use dendra_node::Gate;
use std::sync::Arc;

/// See the module.
pub(crate) struct Budgets {
    /// Requests that wait for the log or the store pool.
    pub(crate) requests: Arc<Gate>,
    /// Orders of nodes that wait for the log or the store pool.
    pub(crate) orders: Arc<Gate>,
    /// Bytes of bodies that arrive and of answers that leave.
    pub(crate) bytes: Arc<RoomBudget>,
    /// The share of them that scans may have.
    pub(crate) scan_bytes: Arc<RoomBudget>,
    /// Room for the large values that a member has begun to write.
    pub(crate) value_bytes: Arc<RoomBudget>,
    /// Watches of clients.
    pub(crate) watches: Arc<Gate>,
}

impl Budgets {
    /// The room that the settings give.
    pub(crate) fn new(settings: &Settings) -> Budgets {
        let most = settings.body_bytes_inflight_max;
        Budgets {
            requests: Arc::new(Gate::new(settings.requests_inflight_max as u64)),
            orders: Arc::new(Gate::new(limits::ORDERS_INFLIGHT_MAX as u64)),
            bytes: Arc::new(RoomBudget::new(most)),
            scan_bytes: {
                let bytes = most / limits::SCAN_BYTES_SHARE;
                Arc::new(RoomBudget::new(bytes).with_line(bytes * limits::SCAN_LINE_ROOMS))
            },
            watches: Arc::new(Gate::new(settings.watches_max as u64)),
            value_bytes: Arc::new(
                RoomBudget::new(limits::MEMBER_VALUE_BYTES_MAX.min(most)).with_line(most),
            ),
        }
    }
}
