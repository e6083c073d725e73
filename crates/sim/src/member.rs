//! One member: a store, a clock, and a decider per event loop. In the real world it is a server's
//! shell.
//!
//! ```text
//! effects Write, Cover ─► queue ─► in flight ── one sync ──► durable, seen, answered
//! ```
//!
//! Invariants
//! 1. A write is in the queue, in flight, or answered. A crash forgets the first two; a write that
//!    was in flight survives or not.
//! 2. The clocks are functions of the world's time: both run on while the member does not.
//!
//! Not here: messages, clients, faults (`world/`).

use crate::decider::Decider;
use crate::door::LaneDoor;
use crate::door::memtables::Memtables;
use crate::pending::PendingWrite;
use crate::process_steward::ProcessSteward;
use crate::store::{Disk, Store, StoreWrite};
use dendra_base::Now;
use dendra_base::peer::Readiness;
use dendra_base::{Cell, Key, Kind, Space};
use dendra_node::step::LostSpan;
use dendra_ownership::Layout;
use dendra_ownership::Membership;
use dendra_ownership::membership::identity::Peer;
use dendra_wire::peer::FrameAge;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Wall time at the beginning of every run: 2026, so that clocks can jump back by years.
const WALL_MS: u64 = 1_767_225_600_000;
/// Monotonic clocks begin at different numbers, as boots do.
const MONO_STEP_US: u64 = 7_777_777;

/// The knowledge of a running member about itself and the others.
pub(crate) struct MemberKnowledge {
    /// Claim of the member.
    pub(crate) claim: Peer,
    pub(crate) membership: Membership,
    /// By member: the largest clock value that it confirmed since this was asked last.
    pub(crate) heard: Vec<u64>,
    /// Versions of notes rise.
    pub(crate) notes: u64,
}

/// A member's clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) offset_ms: i64,
    /// How far it is wrong for a while, beside that.
    pub(crate) wrong_ms: i64,
    pub(crate) drift_ppm: i64,
    pub(crate) zero_us: u64,
}

impl Clock {
    pub(crate) fn new(member: usize, offset_ms: i64, drift_ppm: i64) -> Clock {
        Clock {
            offset_ms,
            wrong_ms: 0,
            drift_ppm,
            zero_us: (member as u64 + 1) * MONO_STEP_US,
        }
    }

    pub(crate) fn now(&self, world_us: u64) -> Now {
        let drifted = world_us.saturating_add_signed(world_us as i64 / 1_000_000 * self.drift_ppm);
        Now {
            mono_us: self.zero_us + drifted,
            wall_ms: (WALL_MS + drifted / 1_000)
                .saturating_add_signed(self.offset_ms + self.wrong_ms),
            wall_part_us: 0,
        }
    }

    /// When the monotonic clock will surely show `mono_us`, on the world's.
    pub(crate) fn when(&self, mono_us: u64, world_us: u64) -> u64 {
        let now = self.now(world_us).mono_us;
        let left = mono_us.saturating_sub(now);
        // A clock that runs slow by a thousandth needs that much longer.
        world_us + left + left / 500 + 1
    }
}

/// An operation that a loop has been told of and that it has not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpenOperation {
    pub(crate) deadline_us: u64,
    /// The client has hung up.
    pub(crate) is_gone: bool,
}

/// One event loop.
pub(crate) struct MemberLoop {
    pub(crate) decider: Box<dyn Decider>,
    /// Members and owners as it knows them.
    pub(crate) layout: Arc<Layout>,
    /// When it gets the layout that was given to it last.
    pub(crate) adopts_us: u64,
    /// When the next turn is due; older turns in the schedule are void.
    pub(crate) turn_us: Option<u64>,
    pub(crate) open: BTreeMap<u64, OpenOperation>,
    /// Until when the loop works on an event.
    pub(crate) busy_until_us: u64,
    /// Messages and requests that wait until it has time.
    pub(crate) waiting: usize,
    /// The state of the store as the decider was told it last: `Event::Pressed`.
    pub(crate) pressed: (Readiness, bool),
    /// The lines in front of it, in plans with a crowd.
    pub(crate) door: Option<Box<LaneDoor>>,
}

/// One member of the cluster.
pub(crate) struct SimulatedMember {
    pub(crate) clock: Clock,
    /// Counted up at every start and at every crash: events of an earlier life are void.
    pub(crate) incarnation: u64,
    pub(crate) disk: Disk,
    /// `None` while it does not run.
    pub(crate) store: Option<Store>,
    pub(crate) lanes: Vec<MemberLoop>,
    pub(crate) queue: Vec<PendingWrite>,
    pub(crate) in_flight: Vec<PendingWrite>,
    /// Ceilings that wait for the next log write: the loop that asked, and the value.
    pub(crate) covers: Vec<(usize, u64)>,
    pub(crate) covers_in_flight: Vec<(usize, u64)>,
    pub(crate) is_committing: bool,
    pub(crate) paused_until_us: u64,
    pub(crate) slow_times: u64,
    /// The processor time of one event.
    pub(crate) event_us: u64,
    /// The disk is gone for good.
    pub(crate) is_lost: bool,
    /// Something on the disk was damaged.
    pub(crate) is_rotten: bool,
    /// A block was damaged that other owners mend: scrubs look for it, and no loss is excused.
    pub(crate) is_scrubbed: bool,
    /// A block rots when the next horizon rises here, where this draw says.
    pub(crate) rot_under_horizon: Option<u64>,
    /// The spans that its first loop was told to be lost.
    pub(crate) lost: Vec<LostSpan>,
    /// Peers to which the links were told to be up.
    pub(crate) links_up: BTreeSet<usize>,
    /// When it started last.
    pub(crate) began_us: u64,
    /// The largest clock value of a version that it confirmed to another member, in all its lives.
    pub(crate) confirmed: u64,
    /// Knowledge of the member about itself and the others, in runs with an image.
    pub(crate) knowledge: Option<MemberKnowledge>,
    /// Steward of the process and the steward's events, while it runs in a cluster with members
    /// that change.
    pub(crate) home: Option<ProcessSteward>,
    /// True while the store drops records of other members.
    pub(crate) is_dropping: bool,
    /// By key of a client: the newest delete that its store has taken. It stays here when the store
    /// has purged it.
    pub(crate) deletes: BTreeMap<Key, Cell>,
    /// How long frames are under way, by asking member and link.
    pub(crate) ages: BTreeMap<(usize, u64), FrameAge>,
    /// The memory that the writes of a crowd take, in plans with one.
    pub(crate) memtables: Option<Memtables>,
    /// Connections that clients hold, in plans with a crowd.
    pub(crate) connections: usize,
}

impl SimulatedMember {
    /// Up to when values have ended for everybody, as its merges are told.
    pub(crate) fn ended_ms(&mut self, now: Now) -> u64 {
        let first = self.lanes.first_mut();
        first.map_or(0, |lane| lane.decider.ended_ms(now))
    }

    /// A machine that was never started.
    pub(crate) fn new(clock: Clock, disk: Disk) -> SimulatedMember {
        SimulatedMember {
            clock,
            incarnation: 0,
            disk,
            store: None,
            lanes: Vec::new(),
            queue: Vec::new(),
            in_flight: Vec::new(),
            covers: Vec::new(),
            covers_in_flight: Vec::new(),
            is_committing: false,
            paused_until_us: 0,
            slow_times: 1,
            event_us: 0,
            is_lost: false,
            is_rotten: false,
            is_scrubbed: false,
            rot_under_horizon: None,
            lost: Vec::new(),
            links_up: BTreeSet::new(),
            ages: BTreeMap::new(),
            began_us: 0,
            confirmed: 0,
            knowledge: None,
            home: None,
            is_dropping: false,
            deletes: BTreeMap::new(),
            memtables: None,
            connections: 0,
        }
    }

    /// Notes a write that the store has taken.
    pub(crate) fn note_delete(&mut self, StoreWrite { key, cell, .. }: &StoreWrite) {
        let is_of_client = key.as_stored()[0] == Space::User.byte();
        if cell.kind != Kind::Tombstone || !is_of_client {
            return;
        }
        let noted = self.deletes.get(key);
        if noted.is_none_or(|noted| noted.version <= cell.version) {
            self.deletes.insert(key.clone(), cell.clone());
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.store.is_some()
    }

    /// Is there something for the log?
    pub(crate) fn has_writes(&self) -> bool {
        !self.queue.is_empty() || !self.covers.is_empty()
    }

    /// The writes that a commit would make.
    pub(crate) fn writes_in_flight(&self) -> Vec<StoreWrite> {
        self.in_flight.iter().map(|p| p.write.clone()).collect()
    }

    /// The newest cell of a key among those that are not durable yet: the answer of a store that
    /// shows it.
    pub(crate) fn undurable(&self, key: &Key) -> Option<Cell> {
        let writes = self.in_flight.iter().chain(&self.queue);
        writes
            .filter(|pending| pending.write.key == *key)
            .map(|pending| pending.write.cell.clone())
            .max_by_key(|cell| cell.version)
    }
}
