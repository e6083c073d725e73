//! Watches: clients follow the state of all keys of a range, through failures of members.
//!
//! ```text
//! member   write is durable ─► Changes: the last changed keys, by number                 changes.rs
//! node     feeds: one cursor into the changes of each member ─► dirty keys                hub.rs
//!          dirty key ─► look (a read at the default level) ─► event of each watch
//!          Watch: dirty keys, what was told, values that end, a pass over the range       watch.rs
//! client   events, each with a token: how far each member's changes are told              token.rs
//! ```
//!
//! A change names a key, and never a state: each state that a client sees is the answer of a read
//! at the default level. So events cannot show what no read shows, and all that makes a key dirty
//! may come late, twice or in any order: a change, a page of the range, the end of a value.
//!
//! Invariants
//! 1. A state that is acknowledged was applied, and so noted as a change, by a majority of the
//!    key's owners. The feeds that count include one of every majority; else all watches begin
//!    anew with `reset`.
//! 2. A dirty key stays dirty until a look shows the version of its change or a newer one, or has
//!    the answers of all owners, or no write of that time can still be acknowledged.
//! 3. At any time at most one look at a key is under way. So later events show later states.
//! 4. No clock, no socket, no thread: time and answers are arguments.
//!
//! Not here: reads, pages and questions themselves (crates `node`, `server`), bytes for clients.
//! See: docs/decisions/0052-watches-look.md.

#![forbid(unsafe_code)]
#![deny(clippy::shadow_unrelated)]

mod changes;
mod dirty;
mod ends;
mod event;
mod hub;
pub mod limits;
mod outbox;
mod owners;
mod span;
mod token;
mod told;
mod watch;
mod work;

pub use changes::{ChangeLog, ChangePage};
pub use dendra_base::peer::{Change, FeedCursor};
pub use event::{EndReason, WatchEvent};
pub use hub::Hub;
pub use owners::{FeedId, FeedOwners};
pub use span::Span;
pub use token::{TokenFault, TokenFeed, WatchToken};
pub use work::{
    Fed, FeedQuestion, From, KeyPage, LookFound, Looked, PageShows, Passed, QuestionId, WatchId,
    Work,
};
