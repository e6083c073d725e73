//! Orders of a hub to the world, and the answers to them.
//!
//! ```text
//! Ask  ─► Fed       the changes of a member
//! Look ─► Looked    a key, read at the default level
//! Page ─► Passed    keys of a range
//! Tell              events for a client
//! ```
//!
//! Invariants
//! 1. Each order but `Tell` is answered once, perhaps by a failure.
//!
//! Not here: the hub that gives the orders (`hub.rs`), and how they are carried out (crate `node`).

use crate::changes::ChangePage;
use crate::event::WatchEvent;
use crate::owners::FeedId;
use crate::span::Span;
use crate::token::WatchToken;
use bytes::Bytes;
use dendra_base::peer::FeedCursor;
use dendra_base::{Cell, Version};

/// The world's name of a watch.
pub type WatchId = u64;
/// The hub's name of a question to a member.
pub type QuestionId = u64;

/// Where a watch begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum From {
    /// With the state now.
    State,
    /// With the changes from now on.
    Now,
    /// With the states that a token does not cover.
    Token(WatchToken),
}

/// A question to a member about its changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeedQuestion {
    /// From where on; `None` = where is the end?
    pub cursor: Option<FeedCursor>,
    /// Keys of this range alone.
    pub span: Span,
    /// Answer when there are some, `FEED_WAIT_US` later at the latest. Else at once.
    pub waits: bool,
}

/// An answer about changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fed {
    /// The changes.
    Page(ChangePage),
    /// Changes from the cursor on are not known any more; here is the end.
    Gone(FeedCursor),
    /// There is no answer.
    Failed,
}

/// The state of a key that a look found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookFound {
    /// The newest cell, tombstones and ended values included. A majority holds it.
    pub cell: Option<Cell>,
    /// All owners have answered.
    pub is_complete: bool,
}

/// The answer to a look; `None` = it failed.
pub type Looked = Option<LookFound>;

/// What a page shows of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageShows {
    /// A value is there, or one was that has ended; all answers agree.
    Value {
        /// Wall milliseconds when it ends, if it does.
        expiry_ms: Option<u64>,
    },
    /// Answers differ: the newest copy is perhaps not the one that a read shows, or not yet. It may
    /// be a deletion.
    Unsure {
        /// The newest version.
        newest: Version,
    },
}

/// A page of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyPage {
    /// The keys, in their order. Those that all answers show as deleted are left out.
    pub keys: Vec<(Bytes, PageShows)>,
    /// Where the range goes on; `None` = this was its end.
    pub rest: Option<Bytes>,
    /// Members that have not answered. All others showed their copies.
    pub missing: Vec<FeedId>,
}

/// The answer to a page; `None` = it failed.
pub type Passed = Option<KeyPage>;

/// Orders to the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Ask a member about its changes; answered by `fed`.
    Ask {
        /// The member.
        source: FeedId,
        /// Comes back with the answer.
        id: QuestionId,
        /// The question.
        question: FeedQuestion,
    },
    /// Read a key at the default level; answered by `looked`.
    Look {
        /// Raw key.
        key: Bytes,
        /// Ask all owners, and wait for those that answer soon.
        is_wide: bool,
    },
    /// Find keys of a range; answered by `passed`.
    Page {
        /// Whose range it is.
        watch: WatchId,
        /// Comes back with the answer.
        id: QuestionId,
        /// The rest of the range.
        span: Span,
        /// The page before was of no use, for want of a member that is needed: wait longer for it.
        is_patient: bool,
    },
    /// Give events to a client.
    Tell {
        /// The watch.
        watch: WatchId,
        /// In this order.
        events: Vec<WatchEvent>,
        /// Behind all of them; `None` while the state is not told to its end.
        token: Option<WatchToken>,
        /// The watch is closed.
        is_over: bool,
    },
}
