//! The server's use of the node: a member of a cluster as its event loops see it, and its links.
//!
//! ```text
//! client's request  ─► operation.rs ─► Begin ─┐             ┌─► Outcome ─► the connection's seat
//! accepted link     ─► accept.rs    ─► Asked ─┤  agent.rs   ├─► Reply   ─► askers.rs: its link, its seat
//! request of a peer ─► hop.rs       ─► Asked ─┼─► Node ─────┤
//! link to a peer    ─► link.rs   ─► Answered ─┤   per loop  ├─► Ask     ─► own_link.rs: conduit or pool
//! store, log        ─► thread/ ─► Read, Wrote┘             └─► Read, Write, Page, Cover ─► store.rs
//! handshake.rs the asker's half of a handshake         cluster.rs   state of all loops
//! frame_link.rs, conduit.rs   a link with frames       turns.rs     the tasks of a loop for its agent
//! http_link.rs, pool.rs, carrier.rs   over plain HTTP  session.rs   the peers that ask over plain HTTP
//! scan.rs      scans over the whole cluster            meeting.rs   a start asks and waits
//! notes.rs     records about other members, to the log
//! home.rs      the steward, on the first loop           door.rs      the ways to it
//! horizons.rs  horizons held back, and strays     former.rs   members that do not know their move yet
//! join.rs      a process asks to become a member        hello_maker.rs   which process made a hello
//! orders.rs    orders of operators, to the steward      secrets.rs   the secrets that are valid
//! strangers.rs  warnings about processes that are not let in
//! link_log.rs   one line of the log for an event of a peer, however many loops see it
//! limits of all this: `limits.rs` of the crate
//! ```
//!
//! Invariants
//! 1. Every loop has its own node and its own link to every peer. An answer comes back to the loop
//!    that asked, and no operation crosses a thread except to the disk.
//! 2. A node by itself (no `--cluster`) has no agent: its requests never come here.
//! 3. No request waits for a peer that is down: questions to it are refused here, at once.
//!
//! Not here: decisions about requests (crate `node`) and about members (crate `ownership`), bytes
//! of frames (crate `wire`).
//! See: docs/peer.md, docs/overload.md.

mod accept;
mod agent;
mod askers;
mod carrier;
mod cluster;
mod conduit;
mod door;
mod former;
mod frame_link;
mod handshake;
mod hello_maker;
mod home;
mod hop;
mod horizons;
mod http_link;
mod join;
mod link;
mod link_log;
mod looks;
mod meeting;
mod notes;
mod operation;
mod orders;
mod own_link;
mod plan_watch;
mod pool;
mod scan;
mod secrets;
mod session;
mod store;
mod strangers;
mod turns;
mod waiting;

pub(crate) use accept::{PendingLink, accept_link, serve};
pub(crate) use agent::Agent;
pub(crate) use cluster::{Cluster, PeerGauges, StartGate, routes};
pub(crate) use home::settle;
pub(crate) use hop::{Answered, PendingAsk, answer, answer_hello, read_ask};
pub(crate) use join::join;
pub(crate) use looks::{LookSeen, LookState};
pub(crate) use meeting::ask_members;
pub(crate) use notes::note_at_stop;
pub(crate) use operation::ClusterBackend;
pub(crate) use orders::{NoSteward, Orders};
pub(crate) use scan::ClusterWalk;
pub(crate) use turns::{link, sweep, turns};
