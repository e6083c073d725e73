//! One node of a development cluster: its addresses, its process, its proxy.
//!
//! Not here: starting and stopping it (`mod.rs`).

use super::addresses::{Addresses, ReservedAddresses};
use super::proxy::{Faults, Proxy};
use std::io;
use std::process::Child;
use std::sync::Arc;

/// The state of one node, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeState {
    Up,
    Paused,
    Down,
    /// By itself, with this code; `None` = by a signal that `dev` did not send.
    Ended(Option<i32>),
}

pub(super) struct DevNode {
    pub(super) addresses: Addresses,
    pub(super) url: String,
    pub(super) child: Option<Child>,
    pub(super) state: NodeState,
    /// A plan that makes it leave was begun.
    pub(super) is_leaving: bool,
    _proxy: Proxy,
}

impl DevNode {
    /// The node `index`, which does not run yet, and the proxy in front of it.
    pub(super) fn start(
        index: usize,
        doors: ReservedAddresses,
        faults: &Arc<Faults>,
    ) -> io::Result<DevNode> {
        let (addresses, faults) = (doors.addresses, Arc::clone(faults));
        Ok(DevNode {
            addresses,
            url: url_of(&addresses),
            child: None,
            state: NodeState::Down,
            is_leaving: false,
            _proxy: Proxy::start(doors.proxy, index, addresses.listen, faults)?,
        })
    }

    /// Does it run as a member?
    pub(super) fn is_running(&self) -> bool {
        self.state == NodeState::Up && !self.addresses.life.has_left
    }
}

/// Under which address the other members know a node.
pub(super) fn url_of(addresses: &Addresses) -> String {
    format!("http://{}", addresses.known_as)
}
