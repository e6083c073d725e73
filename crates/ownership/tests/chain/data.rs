//! One number for each partition, kept by its owners: writes keep the larger one, reads take the
//! largest. The least that shows whether quorums of different epochs meet.
//!
//! ```text
//! row        [a, b, c → d]     a majority of [a, b, c] and one of [a, b, d]
//! load of d  answers of a majority of [a, b, c] in the epoch in which the move began, or later
//! ```
//!
//! Invariants
//! 1. A read that begins after a write was acknowledged sees it, or a larger number.

use crate::faults::Planted;
use dendra_ownership::epoch::drive::MoveArrived;
use dendra_ownership::epoch::record::EpochRecord;
use dendra_ownership::ring::Partition;
use dendra_ownership::ring::table::{MemberId, Move};
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Write(u64),
    Read,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Write(u64),
    /// Must see this number, or a larger one.
    Read(u64),
    Load(MoveArrived),
}

#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub asker: MemberId,
    pub partition: Partition,
    pub epoch: u64,
    pub purpose: Purpose,
    /// A majority of each is needed.
    rows: Vec<Vec<MemberId>>,
    answers: BTreeMap<MemberId, u64>,
    needs_one: bool,
}

impl Operation {
    pub(crate) fn new(
        asker: MemberId,
        partition: Partition,
        record: &EpochRecord,
        purpose: Purpose,
        planted: Option<Planted>,
    ) -> Operation {
        let old = record.owners().owners(partition).to_vec();
        let mut rows = vec![old];
        let is_load = matches!(purpose, Purpose::Load(_));
        let is_joint = planted != Some(Planted::OldOwnersAlone);
        if record.moving(partition).is_some() && !is_load && is_joint {
            let mut after = record.owners().clone();
            after.settle(partition).expect("it moves");
            rows.push(after.owners(partition).to_vec());
        }
        Operation {
            asker,
            partition,
            epoch: record.epoch(),
            purpose,
            rows,
            answers: BTreeMap::new(),
            needs_one: is_load && planted == Some(Planted::LoadedFromOne),
        }
    }

    pub(crate) fn question(&self) -> Question {
        match self.purpose {
            Purpose::Write(value) => Question::Write(value),
            Purpose::Read(_) | Purpose::Load(_) => Question::Read,
        }
    }

    pub(crate) fn asked(&self) -> Vec<MemberId> {
        let mut all: Vec<MemberId> = self.rows.iter().flatten().copied().collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The largest number, once there are enough answers.
    pub(crate) fn answered(&mut self, by: MemberId, value: u64) -> Option<u64> {
        self.answers.insert(by, value);
        let is_enough = |row: &Vec<MemberId>| {
            let count = row.iter().filter(|owner| self.answers.contains_key(owner));
            2 * count.count() > row.len()
        };
        let is_done = self.needs_one || self.rows.iter().all(is_enough);
        is_done.then(|| self.answers.values().copied().max().unwrap_or(0))
    }
}

/// The positions that are moving to `member`, as reports of their arrival.
pub(crate) fn loading(record: &EpochRecord, member: MemberId) -> Vec<MoveArrived> {
    let Some(plan) = record.plan() else {
        return Vec::new();
    };
    let moving = record.owners().all().filter_map(|p| record.moving(p));
    let mine = moving.filter(|step: &Move| step.moving.to == Some(member));
    let report = mine.map(|step| MoveArrived {
        plan: plan.id,
        step,
    });
    report.collect()
}
