//! The rules that must hold in every schedule.
//!
//! ```text
//! adopted   one value an epoch; each member's epochs one after the other, by digest
//! voted     only a voter of the epoch before promises, accepts, or proposes
//! admitted  no member answers in an epoch after it answered in a later one, if the owners changed
//! ```
//!
//! Invariants
//! 1. The checks read chosen records and messages alone, never the state of a machine.

use dendra_ownership::epoch::chain::{ChainMessage, ChainPeer};
use dendra_ownership::epoch::record::EpochRecord;
use dendra_ownership::ring::Partition;
use dendra_ownership::ring::table::MemberId;
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct Checks {
    /// The chain as it was chosen.
    pub chain: BTreeMap<u64, Arc<EpochRecord>>,
    /// The highest epoch in which a member has answered for a partition.
    answered: BTreeMap<(MemberId, Partition), u64>,
    pub broken: Option<String>,
}

impl Checks {
    pub(crate) fn fail(&mut self, why: String) {
        self.broken.get_or_insert(why);
    }

    pub(crate) fn newest(&self) -> &Arc<EpochRecord> {
        let (_, newest) = self.chain.last_key_value().expect("the first epoch");
        newest
    }

    pub(crate) fn adopted(&mut self, member: MemberId, before: u64, record: &Arc<EpochRecord>) {
        let epoch = record.epoch();
        if epoch != before + 1 {
            self.fail(format!("{member} adopts epoch {epoch} after {before}"));
        }
        if let Some(chosen) = self.chain.get(&epoch) {
            if chosen != record {
                self.fail(format!("epoch {epoch} has two values, one at {member}"));
            }
            return;
        }
        let previous = self.chain.get(&(epoch - 1)).map(|chosen| chosen.digest());
        if previous != Some(record.previous()) {
            self.fail(format!(
                "epoch {epoch} at {member} does not follow the one before"
            ));
        }
        self.chain.insert(epoch, Arc::clone(record));
    }

    pub(crate) fn sent(&mut self, peer: ChainPeer, message: &ChainMessage) {
        let epoch = match message {
            ChainMessage::Prepare { epoch, .. }
            | ChainMessage::Promise { epoch, .. }
            | ChainMessage::Accepted { epoch, .. } => *epoch,
            ChainMessage::Accept { record, .. } => record.epoch(),
            _ => return,
        };
        let before = self.chain.get(&(epoch - 1));
        let is_voter = before.is_some_and(|record| {
            record.voters().contains(&peer.member) && record.is_member(peer.member, peer.node)
        });
        if !is_voter {
            let member = peer.member;
            self.fail(format!("{member} votes for epoch {epoch} and may not"));
        }
    }

    /// `member` answers a question of epoch `asked`.
    pub(crate) fn admitted(&mut self, member: MemberId, partition: Partition, asked: u64) {
        let last = self.answered.entry((member, partition)).or_insert(asked);
        let highest = *last;
        *last = highest.max(asked);
        let row = |epoch: u64| {
            let owners = self.chain.get(&epoch).map(|record| record.owners());
            owners.map(|owners| (owners.owners(partition), owners.moving(partition)))
        };
        let is_changed = (asked..highest).any(|epoch| row(epoch) != row(epoch + 1));
        if is_changed {
            let partition = partition.0;
            self.fail(format!(
                "{member} answers for partition {partition} in epoch {asked} after {highest}"
            ));
        }
    }
}
