//! The settings of nodes in tests; a test names those that differ.

use dendra_node::limits::REPAIR_WAIT_US_DEFAULT;
use dendra_node::{CompareConfig, HintRoom, Hlc, NodeConfig, Walls};
use dendra_ownership::limits::{LOAD_BYTES_PER_SECOND_DEFAULT, LOAD_PATIENCE_US_DEFAULT};
use dendra_ownership::{Fence, Layout, MemberIndex};
use dendra_watch::ChangeLog;
use std::sync::Arc;

/// The only loop of `me`: it keeps no hints, compares no records, and works on 16 operations at
/// once.
pub(crate) fn config(layout: &Arc<Layout>, me: MemberIndex, hlc: Arc<Hlc>) -> NodeConfig {
    NodeConfig {
        changes: Arc::new(ChangeLog::new(1, 1 << 20)),
        lane: 0,
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
        compare: CompareConfig::default(),
        foregrounds: Arc::default(),
        forget_every_us: 0,
        repair_wait_us: REPAIR_WAIT_US_DEFAULT,
        seed: 7,
        operations_max: 16,
        value_bytes_max: dendra_base::limits::VALUE_BYTES_MAX_DEFAULT,
    }
}
