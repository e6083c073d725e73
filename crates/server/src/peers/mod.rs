//! The links of a member: how questions of its loops reach the other members, and theirs reach it.
//!
//! ```text
//! client's request  ─► operation.rs ─► Begin ─┐             ┌─► Outcome ─► the connection's seat
//! accepted link     ─► accept.rs    ─► Asked ─┤  member/    ├─► Reply   ─► askers.rs: its link, its seat
//! request of a peer ─► hop.rs       ─► Asked ─┼─► Node ─────┤
//! link to a peer    ─► link.rs   ─► Answered ─┤   per loop  ├─► Ask     ─► own_link.rs: conduit or pool
//! store, log        ─► thread/ ─► Read, Wrote┘             └─► Read, Write, Page, Cover ─► store.rs
//! frame_link.rs   a link with frames           http_link.rs   a link over plain HTTP
//! scan.rs         scans over the whole cluster turns.rs       the tasks of a loop for its agent
//! notes.rs        records about other members, to the log
//! meeting.rs      a start asks and waits       waiting.rs     waits of a connection for its member
//! home.rs         the steward, on the first loop
//! horizons.rs     horizons held back, and strays
//! limits of all this: `limits.rs` of the crate
//! ```
//!
//! Invariants
//! 1. Every loop has its own node and its own link to every peer. An answer comes back to the loop
//!    that asked, and no operation crosses a thread except to the disk.
//! 2. A node by itself (no `--cluster`) has no agent: its requests never come here.
//! 3. No request waits for a peer that is down: questions to it are refused here, at once.
//!
//! Not here: the member itself (`member/`), decisions about requests (crate `node`) and about
//! members (crate `ownership`), bytes of frames (crate `wire`).
//! See: docs/peer.md, docs/overload.md.

mod accept;
mod explain;
mod frame_link;
mod home;
mod hop;
mod horizons;
mod http_link;
mod link;
mod meeting;
mod notes;
mod operation;
mod scan;
mod store;
mod turns;
mod waiting;

pub(crate) use accept::{PendingLink, accept_link, serve};
pub(crate) use home::settle;
pub(crate) use hop::{Answered, PendingAsk, answer, answer_hello, read_ask};
pub(crate) use meeting::ask_members;
pub(crate) use notes::note_at_stop;
pub(crate) use operation::ClusterBackend;
pub(crate) use scan::ClusterWalk;
pub(crate) use turns::{link, sweep, turns};
