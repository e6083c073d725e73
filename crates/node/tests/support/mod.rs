//! The settings of nodes in tests; a test names those that differ.

use dendra_node::limits::REPAIR_WAIT_US_DEFAULT;
use dendra_node::{HintRoom, Hlc, NodeConfig, Walls};
use dendra_ownership::limits::{LOAD_BYTES_PER_SECOND_DEFAULT, LOAD_PATIENCE_US_DEFAULT};
use dendra_ownership::{Fence, Layout, MemberIndex};
use std::sync::Arc;

/// The only loop of `me`: it keeps no hints, compares no records, and works on 16 operations at
/// once.
pub(crate) fn config(layout: &Arc<Layout>, me: MemberIndex, hlc: Arc<Hlc>) -> NodeConfig {
    NodeConfig {
        fence: Arc::new(Fence::at(layout)),
        layout: Arc::clone(layout),
        me,
        origin: 1,
        hlc,
        walls: Arc::new(Walls::new(me, usize::from(layout.topology().len()))),
        hints: Arc::new(HintRoom::new(0)),
        is_keeper: false,
        is_watch: false,
        load_bytes_per_second: LOAD_BYTES_PER_SECOND_DEFAULT,
        load_patience_us: LOAD_PATIENCE_US_DEFAULT,
        comparisons: Arc::default(),
        foregrounds: Arc::default(),
        compare_bytes_per_second: 0,
        compare_pause_us: 0,
        forget_every_us: 0,
        repair_wait_us: REPAIR_WAIT_US_DEFAULT,
        seed: 7,
        operations_max: 16,
        value_bytes_max: dendra_base::limits::VALUE_BYTES_MAX_DEFAULT,
    }
}
