//! Events and effects: the whole interface between a node's decisions and a world.
//!
//! ```text
//!              Begin Gone Scan        Asked Withdrawn    Answered Link        Read Wrote Paged …      Tick
//! world ─────► clients                peers ask          peers answer Alive   the store answers       time, Pressed
//!                                          step(now, event, &mut effects)
//! world ◄───── Outcome ScanOutcome    Reply              Ask Withdraw         Read Write Page Cancel  due_us()
//! ```
//!
//! Invariants
//! 1. Every `Begin` and `Explain` gets exactly one `Outcome`, and every `Scan` exactly one
//!    `Scanned`. It comes at the latest with the first `Tick` at or after the deadline, even if the
//!    world never answers.
//! 2. Every store effect carries a ticket and gets exactly one event with that ticket, or the node
//!    is gone. The order among different tickets is free.
//! 3. `Wrote { Ok }` and the cells of `Read` are durable: the world shows no record before its
//!    sync.
//! 4. Messages may be lost, repeated, late and out of order; a lost link may or may not be told.
//! 5. When its client is `Gone`, an operation ends as `Abandoned` if it has sent no question of its
//!    own that changes the key. A write that has sent one goes on to its outcome.
//! 6. `Withdraw`, `Withdrawn` and `Cancel` only save work: each may be lost, or late, or may name
//!    something that is done.
//!
//! Not here: the machines (`node/` routes, `coordinator/`, `replica/`), bytes (crate `wire`).
//! See: docs/protocol.md, ARCHITECTURE.md.

use crate::account::ReadAccount;
use crate::compare::findings::LookOrder;
use crate::compare::survey::{Survey, Surveyed};
use crate::outcome::Outcome;
use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Operation, Range, Readiness, Stamp};
use dendra_base::{Cell, Guard, Key, Quorum, Version};
use dendra_ownership::layout::Layout;
use dendra_ownership::member::MemberIndex;
use dendra_ownership::ring::Partition;
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::steward::face::AcceptedLoss;
use dendra_watch::{From, Span, WatchEvent, WatchId, WatchToken};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The world's mark for a client's operation.
pub type ClientTicket = u64;
/// The node's mark for an order to the store.
pub type StoreTicket = u64;
/// The node's mark for a question to a peer; unique for the life of the node.
pub type AskId = u64;

/// Where the answer to a peer's question goes: the world's mark, opaque to the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The member that asks.
    pub member: MemberIndex,
    /// Which of its links; opaque.
    pub link: u64,
    /// The question's number on that link; the answer repeats it.
    pub id: AskId,
}

/// Why the store has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreFailure {
    /// A queue in front of the store is full; no work was done.
    Busy,
    /// The disk has no room; no work was done.
    DiskFull,
    /// The stored bytes do not match their checksum.
    Damaged,
    /// The time was over before the work was begun; no work was done.
    Late,
    /// An error came before the log; no work was done.
    NotApplied,
    /// The log failed: the fate of the write is unknown, and this node is about to end.
    Poisoned,
}

/// A page of a space: stored keys with their cells, tombstones included, and where to go on.
pub type Paged = Result<(Vec<(Key, Cell)>, Option<Key>), StoreFailure>;

/// The fate of a write to the own store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreOutcome {
    /// Durable. `version` is the written one, raised only under a condition.
    Applied {
        /// The version.
        version: Version,
    },
    /// The guard did not hold; the record did not change.
    GuardFailed {
        /// The live version, if there is one.
        current: Option<Version>,
    },
}

/// Records of this member are lost: those between two stored keys, both included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostSpan {
    /// The world's mark; comes back with `Repaired`.
    pub id: u64,
    /// The world's mark of the damaged block: the same in both stages of its repair, and of no
    /// other block or span.
    pub block: u64,
    /// The first stored key.
    pub first: Bytes,
    /// The last stored key.
    pub last: Bytes,
}

/// The events that a node takes.
#[derive(Clone, Debug)]
pub enum Event {
    /// A client's operation enters.
    Begin {
        /// Comes back with the outcome.
        client: ClientTicket,
        /// Raw user key.
        key: Bytes,
        /// To read, to write, or to write under a condition.
        operation: Operation,
        /// How many copies and answers; checked against the topology.
        quorum: Quorum,
        /// On the monotonic clock.
        deadline_us: u64,
    },
    /// A client's read enters that is to be explained: its outcome comes with an account.
    Explain {
        /// Comes back with the outcome.
        client: ClientTicket,
        /// Raw user key.
        key: Bytes,
        /// How many copies and answers; checked against the topology.
        quorum: Quorum,
        /// On the monotonic clock.
        deadline_us: u64,
    },
    /// A client's scan over the whole cluster wants its next page.
    Scan {
        /// Comes back with the page.
        client: ClientTicket,
        /// The part of the scan that is still to come.
        range: Range,
        /// About how many bytes of keys and values the page may have; at least one record comes.
        bytes: u32,
        /// On the monotonic clock.
        deadline_us: u64,
    },
    /// The client hung up. With the next `Tick` the node ends its operation, if that may end.
    Gone {
        /// The client that hung up.
        client: ClientTicket,
    },
    /// A peer asks.
    Asked {
        /// Where the answer goes.
        asker: Asker,
        /// Cluster, epoch, time left.
        stamp: Stamp,
        /// The question.
        ask: Ask,
    },
    /// A peer waits no more for the answers to some of its questions.
    Withdrawn {
        /// The peer.
        member: MemberIndex,
        /// The link over which it asked them; opaque.
        link: u64,
        /// The questions' numbers on that link.
        ids: Vec<AskId>,
    },
    /// A peer answers.
    Answered {
        /// The peer that answered.
        member: MemberIndex,
        /// Which question.
        id: AskId,
        /// The answer.
        answer: Answer,
    },
    /// A link to a peer came up, or all links to it went down: its open questions get no answer.
    Link {
        /// The peer at the other end.
        member: MemberIndex,
        /// Up or down.
        is_up: bool,
    },
    /// A peer opened a link of its own, so it is alive. If this member has no link to it, one is
    /// about to come up.
    Alive {
        /// The peer.
        member: MemberIndex,
    },
    /// The store read.
    Read {
        /// Ticket of the order.
        ticket: StoreTicket,
        /// The newest cell, tombstones included, or why there is none to be had.
        result: Result<Option<Cell>, StoreFailure>,
    },
    /// The store wrote.
    Wrote {
        /// Ticket of the order.
        ticket: StoreTicket,
        /// The fate of the write.
        result: Result<StoreOutcome, StoreFailure>,
    },
    /// The store read a page of a range.
    Paged {
        /// Ticket of the order.
        ticket: StoreTicket,
        /// The page, or why there is none.
        result: Paged,
    },
    /// The store looked at a part of a space.
    Surveyed {
        /// Ticket of the order.
        ticket: StoreTicket,
        /// The result of the look.
        result: Result<Surveyed, StoreFailure>,
    },
    /// A clock ceiling that was asked for is durable.
    Covered {
        /// The ceiling.
        hlc: u64,
    },
    /// The own store's answer to a write from now on. A node that got no such event believes that
    /// the store is ready.
    Pressed {
        /// The store's readiness, for values and for deletions.
        readiness: Readiness,
        /// True when the store has so much to catch up with that loads rest.
        is_strained: bool,
    },
    /// All spans in which this member has lost records that are not repaired, whenever that
    /// changes. Reads and pages of these keys fail as damaged until `Repaired`.
    Lost {
        /// The spans.
        spans: Vec<LostSpan>,
    },
    /// An operator accepts that records are lost. The spans of these blocks are repaired without
    /// the named members, for as long as a plan takes those away and they do not answer.
    AcceptLoss {
        /// Blocks of the damage, as in `LostSpan`.
        blocks: Vec<u64>,
        /// The lost members.
        without: Vec<MemberId>,
    },
    /// A later epoch is durable at this member, and its fence is advanced (`Fence::advance`). All
    /// loops get each layout, in the order of the epochs; one may be left out.
    Layout {
        /// Members and owners from now on.
        layout: Arc<Layout>,
    },
    /// An operator looks for copies that differ, instead of the look under way. To be told to the
    /// keeper.
    Look {
        /// `None` = no look is wanted any more.
        order: Option<LookOrder>,
    },
    /// A client watches the keys of a span from now on.
    WatchOpen {
        /// Comes back with its events; no other open watch of this loop has it.
        watch: WatchId,
        /// The keys.
        span: Span,
        /// Where it begins.
        from: From,
        /// How long it may be silent, in microseconds.
        heartbeat_us: u64,
    },
    /// The client of a watch takes more events.
    WatchMore {
        /// Which watch.
        watch: WatchId,
    },
    /// The client of a watch is gone.
    WatchClose {
        /// Which watch.
        watch: WatchId,
    },
    /// A key was written since a question about changes was held here.
    Changed,
    /// Load at most about so many bytes a second from now on, if this loop loads.
    Throttle {
        /// At least 1.
        bytes_per_second: u64,
    },
    /// The world's loop ends its turn, or `due_us` has come. Questions that waited to be sent
    /// together go out; late ones end.
    Tick,
}

/// What the first loop is told of a loss that was accepted.
impl std::convert::From<&AcceptedLoss> for Event {
    fn from(loss: &AcceptedLoss) -> Event {
        Event::AcceptLoss {
            blocks: loss.blocks.clone(),
            without: loss.without.iter().map(|(id, _)| *id).collect(),
        }
    }
}

/// The effects that a node orders.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Tell the client.
    Outcome {
        /// The client that waits.
        client: ClientTicket,
        /// The result of its operation.
        outcome: Outcome,
        /// Replicas that answered: `acks=` of the receipt.
        acks: u8,
        /// The cell of a read that found one.
        cell: Option<Cell>,
        /// How a read was found, for a client that wants it explained.
        account: Option<Box<ReadAccount>>,
    },
    /// Give the client a page of its scan.
    Scanned {
        /// The client that waits.
        client: ClientTicket,
        /// Live records, newest versions, each key once, in the order of the walk.
        records: Vec<(Bytes, Cell)>,
        /// The rest of the range; `None` when it was shown to its end.
        rest: Option<Range>,
        /// Why the scan stops here, and `rest` says where; `None` = it goes on, or is at its end.
        failure: Option<Outcome>,
    },
    /// Give the client of a watch these events. None follow before its next `WatchMore`.
    Told {
        /// Which watch.
        watch: WatchId,
        /// In this order.
        events: Vec<WatchEvent>,
        /// Behind all of them; `None` while the state is not told to its end.
        token: Option<WatchToken>,
        /// The watch is closed.
        is_over: bool,
    },
    /// Answer a peer.
    Reply {
        /// The peer that asked.
        asker: Asker,
        /// The answer.
        answer: Answer,
    },
    /// Ask a peer.
    Ask {
        /// The peer to ask.
        member: MemberIndex,
        /// Mark of the answer.
        id: AskId,
        /// Cluster, epoch, time left.
        stamp: Stamp,
        /// The question.
        ask: Ask,
    },
    /// Tell a peer that the answers to these questions are not needed any more.
    Withdraw {
        /// The peer that was asked.
        member: MemberIndex,
        /// Marks of questions that it was asked.
        ids: Vec<AskId>,
    },
    /// The answers to these orders are of no use any more: those that were not begun need not be.
    /// Each gets its event all the same.
    Cancel {
        /// Tickets of the orders.
        tickets: Vec<StoreTicket>,
    },
    /// Read the newest cell of a stored key.
    Read {
        /// Mark of the event.
        ticket: StoreTicket,
        /// Space and raw key.
        key: Key,
        /// Not begun later than this.
        deadline_us: u64,
    },
    /// Write a cell.
    Write {
        /// Mark of the event.
        ticket: StoreTicket,
        /// Space and raw key.
        key: Key,
        /// With its version.
        cell: Cell,
        /// The condition under which the write is carried out.
        guard: Guard,
    },
    /// Read a part of a space.
    Page {
        /// Mark of the event.
        ticket: StoreTicket,
        /// From this stored key on (for a reverse walk: down from below this key), inclusive.
        start: Key,
        /// To this stored key, exclusive (for a reverse walk: down to this key, inclusive); never
        /// beyond the space of `start`.
        end: Option<Key>,
        /// From the end towards the start.
        is_reverse: bool,
        /// At most about this many bytes of keys and values; at least one record.
        bytes: u32,
        /// Not begun later than this.
        deadline_us: u64,
    },
    /// Look at a part of a space. The world begins the look, shows it each record of the part in
    /// key order until it has seen enough, and finishes it.
    Survey {
        /// Mark of the event.
        ticket: StoreTicket,
        /// The part of a space, and the machine that looks at it.
        look: Box<Survey>,
        /// Not begun later than this.
        deadline_us: u64,
    },
    /// Another member knows an epoch that this loop does not. The world learns it from that member,
    /// unless this process knows it already, and sends `Layout`.
    Learn {
        /// The member that knows it.
        member: MemberIndex,
        /// The epoch.
        epoch: u64,
    },
    /// The store holds again each version that a majority of the span's owners confirmed, or all
    /// but those of an accepted loss. The damaged block may be dropped.
    Repaired {
        /// Id of the span.
        id: u64,
    },
    /// The repair of a span waits for these members: each owner that it needs is away, or is
    /// damaged between the same keys. Other blocks of the same table need not wait for it. Empty =
    /// it waits no more.
    RepairWaits {
        /// Id of the span.
        id: u64,
        /// The members.
        of: BTreeSet<MemberId>,
    },
    /// Copies of positions that move to this member have been loaded.
    Loaded {
        /// The epoch of the layout for which they were loaded.
        epoch: u64,
        /// Partitions of the positions.
        partitions: Vec<Partition>,
    },
    /// Persist a clock ceiling with the next log write, and write one if none comes; then tell
    /// `Covered`.
    Cover {
        /// The ceiling.
        hlc: u64,
    },
}
