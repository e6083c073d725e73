//! The changes of this member, as watches of all nodes ask for them.
//!
//! ```text
//! asked ─┬─ some, or it does not wait ─► answered
//!        └─ none ─► held ─┬─ changed ──────────► answered when there are some in its span
//!                         └─ FEED_WAIT_US later ─► answered without any
//! ```
//!
//! Invariants
//! 1. At most `HELD_FEEDS_MAX` questions are held: others are answered at once.
//!
//! Not here: which are held (`feeds.rs`), what a watch makes of the answers (crate `watch`).

use crate::desk::{Desk, Turn};
use crate::feeds::HeldFeed;
use crate::limits::HELD_FEEDS_MAX;
use crate::purpose::Requester;
use dendra_base::peer::{Answer, FeedCursor};
use dendra_watch::limits::{FEED_BYTES, FEED_WAIT_US};
use dendra_watch::{FeedQuestion, Span};

/// A question about changes.
pub(crate) fn asked(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    requester: Requester,
    question: FeedQuestion,
) {
    let due_us = if question.waits && desk.feeds.held.len() < HELD_FEEDS_MAX {
        turn.now.mono_us + FEED_WAIT_US
    } else {
        turn.now.mono_us
    };
    look(
        desk,
        turn,
        requester,
        (question.cursor, question.span),
        due_us,
    );
}

/// Answers a question, or holds it until `due_us`.
fn look(
    desk: &mut Desk,
    turn: &mut Turn<'_>,
    requester: Requester,
    (cursor, span): (Option<FeedCursor>, Span),
    due_us: u64,
) {
    let feeds = &mut desk.feeds;
    let may_wait = cursor.is_some() && turn.now.mono_us < due_us;
    let waiter = may_wait.then_some(feeds.lane);
    let bounds = (&span, FEED_BYTES);
    let answer = match feeds
        .changes
        .since(turn.now.mono_us, cursor, bounds, waiter)
    {
        Ok(page) if may_wait && page.is_end && page.changes.is_empty() => {
            return feeds.held.push(HeldFeed {
                requester,
                cursor: page.cursor,
                span,
                due_us,
            });
        }
        Ok(page) => Answer::Changes {
            cursor: page.cursor,
            changes: page.changes,
            is_end: page.is_end,
        },
        Err(end) => Answer::ChangesGone { end },
    };
    desk.reply(turn, requester, answer);
}

/// There are changes, or time has passed.
pub(crate) fn look_again(desk: &mut Desk, turn: &mut Turn<'_>) {
    for held in std::mem::take(&mut desk.feeds.held) {
        let place = (Some(held.cursor), held.span);
        look(desk, turn, held.requester, place, held.due_us);
    }
}
