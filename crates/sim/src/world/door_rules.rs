//! What holds while crowds stand in front of loops, and when they have gone.
//!
//! Invariants
//! 1. Each bound is counted here, too, beside the machine that keeps it.
//!
//! Not here: turns of sources and shares of bytes (`door/ledgers.rs`), lone clients (`doors.rs`).
//! See: docs/verification.md.

use super::state::World;
use crate::check::Rule;
use crate::door::LaneDoor;
use crate::door::memtables::Memtables;
use crate::pending::PendingWrite;

/// Least share, in hundredths, of a loop's time on a crowd's requests that goes to requests whose
/// clients get what they asked for, where nothing else is wrong.
const USEFUL_PERCENT_MIN: u64 = 50;
/// Behind a gate that is narrower than this a loop is not what runs out.
const GATE_JUDGED_MIN: u64 = 16;
/// Less time than this proves nothing.
const SPENT_US_MIN: u64 = 200_000;

impl World<'_> {
    /// No queue, no gate and no memory is beyond its bound.
    pub(super) fn check_doors(&mut self, member: usize) {
        let Some(bounds) = self.crowd().map(|it| it.bounds) else {
            return;
        };
        let it = &self.members[member];
        let doors = || it.lanes.iter().filter_map(|lane| lane.door.as_deref());
        let operations: u64 = doors().map(LaneDoor::operations).sum();
        let orders: u64 = doors().map(LaneDoor::orders).sum();
        let log: usize = it.queue.iter().map(PendingWrite::bytes).sum();
        let is_one = it.queue.len() <= 1;
        let memory = it.memtables.as_ref().map_or(0, Memtables::used);
        // What was let in before it stopped.
        let memory_max = bounds.memory_bytes + 4 * bounds.log_bytes_max as u64;
        let rows = [
            (
                "connections",
                it.connections as u64,
                bounds.connections_max as u64,
            ),
            ("operations", operations, bounds.requests_max),
            ("orders", orders, bounds.orders_max),
            (
                "bytes in the log's queue",
                log as u64,
                if is_one {
                    u64::MAX
                } else {
                    bounds.log_bytes_max as u64
                },
            ),
            ("bytes in memory", memory, memory_max),
        ];
        let beyond = rows.iter().find(|(_, is, most)| is > most);
        let beyond = beyond.map(|(what, is, most)| format!("{is} {what}, and {most} is the bound"));
        let beyond = beyond.or_else(|| doors().find_map(LaneDoor::beyond_bounds));
        if let Some(what) = beyond {
            self.violate(Rule::Bound, format!("m{member}: {what}"));
        }
    }

    /// The clients of the crowd close their connections.
    pub(super) fn crowd_leaves(&mut self) {
        for client in 0..self.clients.len() {
            if let Some(member) = self.clients[client].connected.take() {
                self.disconnect(member);
            }
        }
    }

    /// The overload has been over for a while: nothing of it is left.
    pub(super) fn judge_recovered(&mut self) {
        if self.crowd().is_none() {
            return;
        }
        for member in 0..self.members.len() {
            for lane in 0..self.members[member].lanes.len() {
                let remains = self.door(member, lane).and_then(|it| it.remains());
                if let Some(what) = remains {
                    self.violate(
                        Rule::NotRecovered,
                        format!("m{member}.{lane} has {what} left of the overload"),
                    );
                }
            }
            if self.pressure(member).stop.is_some() {
                self.violate(
                    Rule::NotRecovered,
                    format!("m{member} is stopped by its memory"),
                );
            }
        }
    }

    /// Nothing is going on: every line is empty, and all room is back.
    pub(super) fn judge_doors(&mut self) {
        for member in 0..self.members.len() {
            for lane in 0..self.members[member].lanes.len() {
                let left = self.door(member, lane).and_then(|it| it.leftovers());
                if let Some(what) = left {
                    self.violate(Rule::Leak, format!("m{member}.{lane} still holds {what}"));
                }
            }
        }
    }

    /// While the crowd asked, the time of each loop went to requests that helped their clients.
    pub(super) fn judge_goodput(&mut self) {
        let is_judged = self
            .crowd()
            .is_some_and(|it| it.bounds.requests_max >= GATE_JUDGED_MIN);
        if !is_judged || !self.plan.faults.is_empty() {
            return;
        }
        for member in 0..self.members.len() {
            for lane in 0..self.members[member].lanes.len() {
                let spent = self.door(member, lane).map(|door| {
                    (
                        door.spent_us.saturating_sub(door.unspent_us),
                        door.useful_us,
                    )
                });
                let Some((spent_us, useful_us)) = spent else {
                    continue;
                };
                if spent_us < SPENT_US_MIN {
                    continue;
                }
                let percent = useful_us * 100 / spent_us;
                let least = self.useful_percent.map_or(percent, |it| it.min(percent));
                self.useful_percent = Some(least);
                if percent < USEFUL_PERCENT_MIN {
                    self.violate(
                        Rule::Goodput,
                        format!(
                            "m{member}.{lane} spent {spent_us} us on requests of the crowd, and \
                             {useful_us} us of them to the end"
                        ),
                    );
                }
            }
        }
    }
}
