//! The state of a run: members, clients, messages, and the schedule of events.
//!
//! ```text
//! RunSetup, RunPlan ─► World ─┬─ Schedule of Happening          the next event
//!                             ├─ SimulatedMember, Envelope      the cluster
//!                             ├─ SimulatedClient, WalkUnderWay  the askers
//!                             └─ RunPhase, Image                where the run is
//! ```
//!
//! Invariants
//! 1. No code here decides: the other files of this folder change it, each in its own `impl World`.
//!
//! Not here: the effects of a happening (`mod.rs` and its parts).

use crate::check::Violation;
use crate::check::linear::Searches;
use crate::decider::MakeDeciders;
use crate::door::DoorCounts;
use crate::history::{ClientOp, ClientScan, SeenValue};
use crate::machines::Town;
use crate::member::SimulatedMember;
use crate::passed::PassedTime;
use crate::plan::{CutLinks, PlannedOp, PlannedScan, RunPlan};
use crate::planted::ShellBug;
use crate::schedule::Schedule;
use crate::store::Disk;
use crate::trace::{Trace, Tracing};
use crate::watchers::Watchers;
use bytes::Bytes;
use dendra_base::Prng;
use dendra_base::peer::Range;
use dendra_node::step::{Effect, Event};
use dendra_ownership::Layout;
use dendra_ownership::membership::identity::Peer;
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::steward::face::DraftId;
use dendra_ownership::topology::Topology;
use dendra_wire::peer::{self, Seal};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

/// How a run is made, besides its plan.
#[derive(Clone, Copy)]
pub struct RunSetup {
    /// Makes the parts that decide.
    pub make_deciders: MakeDeciders,
    /// A mistake of the shell.
    pub bug: Option<ShellBug>,
    /// The use of the trace.
    pub tracing: Tracing,
}

/// Where a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunPhase {
    Chaos,
    Calm,
    Quiet,
    Wrong,
    Others,
    Right,
    Probes,
    Images,
    Settle,
    Reads(u8),
    Rest,
    Over,
}

/// One client.
#[derive(Debug, Default)]
pub(crate) struct SimulatedClient {
    pub(crate) todo: VecDeque<PlannedOp>,
    /// The operation that it waits for.
    pub(crate) waits_for: Option<u32>,
    /// By key: the value that it saw last.
    pub(super) seen: BTreeMap<usize, SeenValue>,
    /// Number of the habit of a crowd's client, and its draws.
    pub(super) habit: Option<(usize, Prng)>,
    /// To which member it has a connection, in plans with a crowd.
    pub(super) connected: Option<usize>,
    /// For a lone client: when its last request succeeded, and how many requests of the crowd had
    /// been answered by then.
    pub(super) answered: Option<(u64, u64)>,
}

impl SimulatedClient {
    pub(crate) fn new(todo: &[PlannedOp]) -> SimulatedClient {
        SimulatedClient {
            todo: todo.iter().cloned().collect(),
            ..SimulatedClient::default()
        }
    }
}

/// One walk under way.
#[derive(Debug)]
pub(crate) struct WalkUnderWay {
    pub(super) planned: PlannedScan,
    pub(super) lane: usize,
    /// The part that was asked for, and when.
    pub(super) asked: Option<(Range, u64)>,
}

/// The image of one member's disk.
pub(crate) struct Image {
    pub(super) taken: Option<Disk>,
    /// While the member is about to start on the image.
    pub(super) aside: Option<Disk>,
    /// Claims that are known and not noted when the restarts begin: by which member, in which life,
    /// of which one.
    pub(super) due: Vec<(usize, u64, usize, Peer)>,
    /// `[by][of]`: the start and the clock value of a member that another one has noted.
    pub(super) noted: Vec<Vec<(u64, u64)>>,
}

impl Image {
    pub(super) fn new(members: usize) -> Image {
        Image {
            taken: None,
            aside: None,
            due: Vec::new(),
            noted: vec![vec![(0, 0); members]; members],
        }
    }
}

/// A message under way.
#[derive(Clone)]
pub(crate) struct Envelope {
    pub(crate) from: usize,
    pub(crate) to: usize,
    /// The loop that asks, or asked.
    pub(crate) lane: usize,
    /// The life of the member that asks, or asked.
    pub(crate) incarnation: u64,
    /// One frame of the wire.
    pub(crate) frame: Bytes,
}

impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Envelope {
            from,
            to,
            lane,
            frame,
            ..
        } = self;
        write!(
            f,
            "m{from} -> m{to}.{lane}: {:?}",
            peer::decode(frame, &mut Seal::plain())
        )
    }
}

/// Something that happens.
#[derive(Debug)]
pub(crate) enum Happening {
    /// A client begins its next operation.
    Begin { client: usize },
    /// A client begins a scan.
    Scan { scan: usize },
    /// A client sees whether its watch goes on.
    Watch { watcher: usize },
    /// A client hangs up.
    HangUp { number: u32 },
    /// A message arrives.
    Arrive(Envelope),
    /// A loop's turn ends, or its alarm is due.
    Turn {
        member: usize,
        lane: usize,
        incarnation: u64,
    },
    /// A loop is told something by its own member.
    Give {
        member: usize,
        lane: usize,
        incarnation: u64,
        event: Box<Event>,
    },
    /// Something that waited in a loop's mailbox may have its turn.
    Waited {
        member: usize,
        lane: usize,
        incarnation: u64,
        happening: Box<Happening>,
    },
    /// The sync of a member's log is over.
    Commit { member: usize, incarnation: u64 },
    /// A slice of background work.
    Slice { member: usize, incarnation: u64 },
    /// A slice of a scrub, at a member with flipped bits on its disk.
    Scrub { member: usize, incarnation: u64 },
    /// A member notices that a link came up or went down.
    Notice {
        member: usize,
        peer: usize,
        is_up: bool,
        incarnation: u64,
    },
    /// A fault begins.
    Fault { number: usize },
    /// A fault is over.
    Over { number: usize },
    /// A member starts again.
    Start { member: usize, incarnation: u64 },
    /// An image is made of a disk.
    Image,
    /// A member is restarted.
    Restart { member: usize },
    /// The image takes the place of the disk.
    Restore,
    /// A member looks whether it has something to note.
    Sweep { member: usize, incarnation: u64 },
    /// A loop gets the layout of an epoch.
    Adopt {
        member: usize,
        lane: usize,
        incarnation: u64,
        layout: Arc<Layout>,
    },
    /// Time passes for a steward.
    Look { member: usize, incarnation: u64 },
    /// A note of a steward that could not be written is tried again.
    NoteAgain { member: usize, incarnation: u64 },
    /// Links from a member that was removed are closed.
    Close {
        member: usize,
        gone: MemberId,
        incarnation: u64,
    },
    /// A link that was refused is tried again.
    LinkAgain {
        member: usize,
        peer: usize,
        incarnation: u64,
    },
    /// A process ends for ever.
    End { member: usize, incarnation: u64 },
    /// A process ends on a folder that some members refuse.
    EndDoubted { member: usize, incarnation: u64 },
    /// A process that is no member yet asks one.
    Knock { joiner: usize },
    /// The question of a process that is no member yet arrives.
    Knocked {
        joiner: usize,
        host: usize,
        frame: Bytes,
    },
    /// And the answer.
    Answered { joiner: usize, frame: Bytes },
    /// The operator does something.
    Deed { number: usize },
    /// A member is lost beside damage of another one, and the steps that follow.
    Loss(LossStep),
    /// The operator has read a plan.
    Apply {
        member: usize,
        draft: DraftId,
        /// For which epoch it was made.
        epoch: u64,
    },
    /// The operator looks whether something waits for it.
    Operator,
    /// The next phase begins.
    Phase(RunPhase),
    /// A request of a client is there to be read, at a loop with a door.
    Asked {
        member: usize,
        lane: usize,
        incarnation: u64,
        client: usize,
        begin: Box<Event>,
    },
    /// A loop with a door takes the next entry of its run queue.
    Run {
        member: usize,
        lane: usize,
        incarnation: u64,
    },
    /// A loop sweeps while a line stands.
    SweepDoor {
        member: usize,
        lane: usize,
        incarnation: u64,
    },
    /// A request is looked at again.
    Again {
        member: usize,
        lane: usize,
        incarnation: u64,
        ticket: u64,
    },
    /// A flush of a member's made-up engine is over.
    Flushed { member: usize, incarnation: u64 },
}

/// The steps around a loss that the operator accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossStep {
    /// The third member goes.
    Away,
    /// One of the two others is lost.
    Lose,
    /// The operator removes it.
    Remove,
    /// A block of the other one is damaged.
    Rot { number: u64 },
    /// The operator asks that one for the loss.
    Ask,
    /// The operator confirms the loss that was shown.
    Confirm { id: u64 },
    /// The operator gives an order once more.
    Repeat { id: u64 },
    /// The damaged member ends.
    End,
    /// The operator stops the plan.
    Cancel,
}

/// A run.
pub(crate) struct World<'a> {
    pub(super) plan: &'a RunPlan,
    pub(super) setup: RunSetup,
    pub(super) prng: Prng,
    pub(super) schedule: Schedule<Happening>,
    pub(super) topology: Arc<Topology>,
    /// Members and owners where they never change.
    pub(super) layout: Arc<Layout>,
    /// Where they do.
    pub(super) town: Option<Town>,
    pub(super) members: Vec<SimulatedMember>,
    pub(super) clients: Vec<SimulatedClient>,
    pub(super) history: Vec<ClientOp>,
    /// Operations before those, which a soak has judged and dropped.
    pub(super) forgotten_ops: u32,
    pub(super) walks: Vec<WalkUnderWay>,
    pub(super) scans: Vec<ClientScan>,
    /// The links that are cut, by the number of the fault.
    pub(super) cuts: Vec<(usize, CutLinks)>,
    pub(super) watchers: Watchers,
    pub(super) phase: RunPhase,
    /// When the last reads began.
    pub(super) reads_us: u64,
    /// From when to when clocks were wrong while everything else was well.
    pub(super) wrong_us: (u64, u64),
    /// In runs with one.
    pub(super) image: Option<Image>,
    pub(super) violations: Vec<Violation>,
    pub(super) searches: Searches,
    pub(super) trace: Trace,
    pub(super) effects: Vec<Effect>,
    /// Happenings that wait in run queues, by number: of which member.
    pub(super) held: BTreeMap<u64, (usize, Happening)>,
    /// The numbers of doors that are no more.
    pub(super) door_counts: DoorCounts,
    /// Requests of the crowd that succeeded.
    pub(super) answered: u64,
    /// The longest time in which no request of a lone client succeeded.
    pub(super) unanswered_us: u64,
    pub(super) passed: PassedTime,
    /// The least share of a loop's time that helped clients, in hundredths.
    pub(super) useful_percent: Option<u64>,
}
