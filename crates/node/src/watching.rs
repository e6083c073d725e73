//! The watches of this loop: a hub (crate `watch`), and what it needs to go on.
//!
//! ```text
//! hub ─► Ask  ─► a question to a member, perhaps this one ─► Fed
//!     ─► Look ─► an operation without a client ────────────► Looked
//!     ─► Page ─► a scan of keys without a client ──────────► Passed
//!     ─► Tell ─► Effect::Told
//! ```
//!
//! Invariants
//! 1. Each order of the hub gets one answer, in the step in which it is known.
//! 2. Without watches nothing is told to the hub and nothing is asked.
//!
//! Not here: what a watch tells (crate `watch`), carrying the orders out (`node/watches.rs`).

use crate::step::Effect;
use bytes::Bytes;
use dendra_base::Now;
use dendra_base::peer::{Answer, Ask};
use dendra_ownership::layout::Layout;
use dendra_ownership::member::MemberIndex;
use dendra_watch::limits::WRITE_US_DEFAULT;
use dendra_watch::{
    ChangePage, Fed, FeedId, FeedOwners, FeedQuestion, From, Hub, Looked, Passed, QuestionId, Span,
    WatchId, Work,
};
use std::collections::VecDeque;

/// An answer for the hub.
pub(crate) enum HubAnswer {
    Fed(FeedId, QuestionId, Fed),
    Looked(Bytes, Looked),
    Passed(WatchId, QuestionId, Passed),
}

/// See the module.
pub(crate) struct Watching {
    hub: Hub,
    /// Orders of the hub that are not carried out yet.
    work: Vec<Work>,
    answers: VecDeque<HubAnswer>,
}

/// The name of a member's changes; `None` when it was removed.
pub(crate) fn feed_of(layout: &Layout, member: MemberIndex) -> Option<FeedId> {
    layout.id_of(member).map(|id| FeedId(id.0))
}

/// Members and owners of a layout, as watches need them.
fn owners_of(layout: &Layout) -> FeedOwners {
    let copies = usize::from(layout.topology().copies());
    let feed = |member: &MemberIndex| feed_of(layout, *member);
    let row = |partition| {
        let owners = &layout.ring().owners(partition)[..copies];
        owners.iter().filter_map(feed).collect()
    };
    let members = layout.members().filter_map(|it| feed_of(layout, it));
    let rows = layout.ring().all().map(row);
    FeedOwners::new(layout.epoch(), members.collect(), rows)
}

/// A question of the hub in the words of members.
pub(crate) fn ask_of(question: FeedQuestion) -> Ask {
    Ask::Changes {
        cursor: question.cursor,
        start: question.span.start,
        end: question.span.end,
        waits: question.waits,
    }
}

/// A member's answer in the words of the hub.
pub(crate) fn fed_of(answer: Answer) -> Fed {
    match answer {
        Answer::Changes {
            cursor,
            changes,
            is_end,
        } => Fed::Page(ChangePage {
            cursor,
            changes,
            is_end,
        }),
        Answer::ChangesGone { end } => Fed::Gone(end),
        _ => Fed::Failed,
    }
}

impl Watching {
    /// There is no watch.
    pub(crate) fn new() -> Watching {
        Watching {
            hub: Hub::new(FeedOwners::new(0, Vec::new(), []), WRITE_US_DEFAULT),
            work: Vec::new(),
            answers: VecDeque::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.hub.is_empty()
    }

    /// When a tick is wanted.
    pub(crate) fn due_us(&self) -> Option<u64> {
        self.hub.due_us()
    }

    /// A client watches `span`. `is_up`: is there a link to this member, or is it this one?
    pub(crate) fn open(
        &mut self,
        now: Now,
        layout: &Layout,
        is_up: impl Fn(MemberIndex) -> bool,
        (id, span, from, heartbeat_us): (WatchId, Span, &From, u64),
    ) {
        if self.hub.is_empty() {
            self.hub.adopt(now, owners_of(layout), &mut self.work);
            for member in layout.members() {
                self.link(now, layout, member, is_up(member));
            }
        }
        self.hub
            .open(now, id, span, from, heartbeat_us, &mut self.work);
    }

    /// The client takes more events.
    pub(crate) fn more(&mut self, now: Now, id: WatchId) {
        self.hub.more(now, id, &mut self.work);
    }

    /// The client is gone.
    pub(crate) fn close(&mut self, id: WatchId) {
        self.hub.close(id);
    }

    /// A link to a member came up, or went down.
    pub(crate) fn link(&mut self, now: Now, layout: &Layout, member: MemberIndex, is_up: bool) {
        if let Some(source) = feed_of(layout, member) {
            self.hub.link(now, source, is_up, &mut self.work);
        }
    }

    /// A later epoch.
    pub(crate) fn adopt(
        &mut self,
        now: Now,
        (before, layout): (&Layout, &Layout),
        is_up: impl Fn(MemberIndex) -> bool,
    ) {
        self.hub.adopt(now, owners_of(layout), &mut self.work);
        let is_new = |member: &MemberIndex| before.id_of(*member) != layout.id_of(*member);
        for member in layout.members().filter(is_new) {
            self.link(now, layout, member, is_up(member));
        }
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Now) {
        if self
            .hub
            .due_us()
            .is_some_and(|due_us| due_us <= now.mono_us)
        {
            self.hub.tick(now, &mut self.work);
        }
    }

    /// Takes note of an answer.
    pub(crate) fn note(&mut self, answer: HubAnswer) {
        self.answers.push_back(answer);
    }

    /// Tells the hub the answers that came, and takes what is to be done; clients are told here.
    pub(crate) fn take_work(&mut self, now: Now, effects: &mut Vec<Effect>) -> Vec<Work> {
        let work = &mut self.work;
        while let Some(answer) = self.answers.pop_front() {
            match answer {
                HubAnswer::Fed(source, id, fed) => self.hub.fed(now, source, id, &fed, work),
                HubAnswer::Looked(key, looked) => self.hub.looked(now, &key, &looked, work),
                HubAnswer::Passed(watch, id, passed) => {
                    self.hub.passed(now, (watch, id), &passed, work);
                }
            }
        }
        let (told, asked) = std::mem::take(work)
            .into_iter()
            .partition(|it| matches!(it, Work::Tell { .. }));
        let told: Vec<Work> = told;
        for tell in told {
            if let Work::Tell {
                watch,
                events,
                token,
                is_over,
            } = tell
            {
                effects.push(Effect::Told {
                    watch,
                    events,
                    token,
                    is_over,
                });
            }
        }
        asked
    }
}
