//! What one member knows of another: who it was when it was met last, which links to it are up, and how far its
//! folder goes.
//!
//! ```text
//! claim ─► judge ─┬─ Known ───────────────────────────────► linked … unlinked
//!                 ├─ Learn ─► claimed ─ note durable ─► remember ─┘
//!                 └─ Refuse
//! confirmed ─► rose, unnoted, unnoted_at_stop ─ note durable ─► noted
//! ```
//!
//! Invariants
//! 1. Nothing counts before its note is durable, but how far the folder goes: no answer waits for that.
//! 2. Of two claims that come at once only the first is learned.
//! 3. A note never says more than the folder of the other member holds.
//! 4. As long as links to one process are up, another one is not let in, whatever it shows.
//!
//! Not here: the rules of a claim (`identity.rs`); links, notes and their bytes (crate `server`).
//! See: docs/operating.md, section "When a member's folder is lost".

use crate::identity::{Peer, Verdict, judge};
use crate::limits::PEER_NOTE_PAUSE_US;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct Acquaintance {
    /// Who it was when it was met last: durable.
    noted: Option<Peer>,
    /// Whose note is being written.
    claimed: Option<Peer>,
    /// Own links that are up.
    links: u32,
    /// To which life.
    linked: u64,
    /// Does that one keep what it confirms?
    is_for_good: bool,
    /// What of `noted` is in the log: its clock.
    noted_clock: u64,
    /// When that may be written again while links are up, on the monotonic clock.
    note_due_us: u64,
}

impl Acquaintance {
    /// With a member of whom there is this note.
    pub fn of_note(noted: Option<Peer>) -> Acquaintance {
        Acquaintance {
            noted,
            noted_clock: noted.map_or(0, |noted| noted.clock),
            ..Acquaintance::default()
        }
    }

    /// The life in which it was met last; 0 = it was not.
    pub fn life(&self) -> u64 {
        self.noted.map_or(0, |noted| noted.life)
    }

    /// Is this claim, of who says to be at `url`, that of the member?
    pub fn judge(&self, url: &str, claim: Peer) -> Verdict {
        let verdict = judge(url, claim, self.noted);
        match (&verdict, self.claimed) {
            // The first of two that come at once.
            (Verdict::Learn(_), Some(first)) => match judge(url, claim, Some(first)) {
                refuse @ Verdict::Refuse(_) => refuse,
                Verdict::Known | Verdict::Learn(_) => verdict,
            },
            _ => verdict,
        }
    }

    /// As `judge`; of two processes that make news at once only one goes on.
    pub fn claim(&mut self, url: &str, claim: Peer) -> Verdict {
        let verdict = self.judge(url, claim);
        if let Verdict::Learn(news) = &verdict {
            self.claimed = Some(*news);
        }
        verdict
    }

    /// The note of what was claimed is durable: it counts. `false` when a later one does already.
    pub fn remember(&mut self, peer: Peer) -> bool {
        if self.noted.is_some_and(|noted| noted.boot > peer.boot) {
            return false;
        }
        // It may have confirmed more, to another loop, while the note was written.
        let clock = self.noted.map_or(0, |noted| noted.clock).max(peer.clock);
        self.noted = Some(Peer { clock, ..peer });
        self.noted_clock = peer.clock;
        true
    }

    /// Are there links to another process than the one that makes this claim?
    pub fn is_linked_to_another(&self, claim: Peer) -> bool {
        self.links > 0 && self.linked != claim.life
    }

    /// An own link to it is up, and this is what it said about itself.
    pub fn linked(&mut self, claim: Peer) {
        self.links += 1;
        self.linked = claim.life;
        self.is_for_good = claim.clock != 0;
    }

    /// An own link to it was lost; over it the member had confirmed writes with clock values up to `confirmed`.
    pub fn unlinked(&mut self, confirmed: u64) {
        self.links -= 1;
        if let Some(noted) = self.noted.as_mut().filter(|_| self.is_for_good) {
            noted.clock = noted.clock.max(confirmed);
        }
    }

    /// It confirmed writes with clock values up to `confirmed` while its links are up. What is known of it now and is
    /// not in its note: once in `PEER_NOTE_PAUSE_US`, to whoever asks first.
    pub fn rose(&mut self, confirmed: u64, now_us: u64) -> Option<Peer> {
        if self.links == 0 || !self.is_for_good {
            return None;
        }
        let noted = self.noted.as_mut()?;
        noted.clock = noted.clock.max(confirmed);
        let noted = *noted;
        let is_its = noted.life == self.linked
            && self
                .claimed
                .is_none_or(|claimed| claimed.life == noted.life);
        let is_due = noted.clock > self.noted_clock && now_us >= self.note_due_us;
        if !is_its || !is_due {
            return None;
        }
        self.note_due_us = now_us + PEER_NOTE_PAUSE_US;
        Some(noted)
    }

    /// What is known of it and is not in its note, at a stop: no loop works any more.
    pub fn unnoted_at_stop(&self) -> Option<Peer> {
        self.noted.filter(|noted| noted.clock > self.noted_clock)
    }

    /// What is known of it and is not in its note, when it has gone. Whoever comes in its place has the later one.
    pub fn unnoted(&self) -> Option<Peer> {
        let noted = self.unnoted_at_stop()?;
        let is_last = self.links == 0
            && self
                .claimed
                .is_none_or(|claimed| claimed.life == noted.life);
        is_last.then_some(noted)
    }

    /// The note of `rose` or `unnoted` is in the log.
    pub fn noted(&mut self, peer: Peer) {
        self.noted_clock = self.noted_clock.max(peer.clock);
    }
}
