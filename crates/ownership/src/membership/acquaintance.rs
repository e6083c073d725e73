//! The state of one peer at this member: its noted process, the links to it, and its confirmations.
//!
//! ```text
//! claim ─► judge ─┬─ Known ───────────────────────────────► linked … unlinked
//!                 ├─ Learn ─► claimed ─ note durable ─► remember ─┘
//!                 └─ Refuse
//! confirmed ─► rose, unnoted, unnoted_at_stop ─ note durable ─► noted
//! ```
//!
//! Invariants
//! 1. A claim counts when its note is durable. The clock of a peer counts at once: no answer waits
//!    for its note.
//! 2. Of two claims that come at once only the first is learned.
//! 3. A note never says more than the folder of the peer holds.
//! 4. As long as links to one process of a peer are up, no other process is admitted.
//!
//! Not here: the rules of a claim (`identity/`); links, and the log of notes (crate `server`).
//! See: docs/operating.md, section "When a member's folder is lost".

use super::identity::{ClaimVerdict, Peer, judge};
use crate::limits::PEER_NOTE_PAUSE_US;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Acquaintance {
    /// The process that was admitted last; its record is durable, but for a clock that rose since.
    noted: Option<Peer>,
    /// The process with a note on its way to the disk.
    claimed: Option<Peer>,
    /// Own links to the peer that are up.
    links: u32,
    /// The life to which they lead. Valid while `links` is not 0.
    linked: u64,
    /// Does that life keep its confirmations through a loss of power?
    is_for_good: bool,
    /// The clock of `noted` that is in the log.
    noted_clock: u64,
    /// While links are up, the next note of a clock is written from here on; monotonic clock.
    note_due_us: u64,
}

impl Acquaintance {
    /// Acquaintance with a peer of this note.
    pub(super) fn of_note(noted: Option<Peer>) -> Acquaintance {
        Acquaintance {
            noted,
            noted_clock: noted.map_or(0, |noted| noted.clock),
            ..Acquaintance::default()
        }
    }

    /// The life of the process that was admitted last; 0 = none was.
    pub(super) fn life(&self) -> u64 {
        self.noted.map_or(0, |noted| noted.life)
    }

    /// Is another folder noted than this one? 0 = the folder is not known yet.
    pub(super) fn is_of_another_folder(&self, node: u128) -> bool {
        node != 0 && self.noted.is_some_and(|noted| noted.node != node)
    }

    /// Is a link to the peer up?
    pub(super) fn is_linked(&self) -> bool {
        self.links > 0
    }

    /// Is this claim, made under `url`, that of the member?
    pub(super) fn judge(&self, url: &str, claim: Peer) -> ClaimVerdict {
        let verdict = judge(url, claim, self.noted);
        match (&verdict, self.claimed) {
            // The first of two that come at once.
            (ClaimVerdict::Learn(_), Some(first)) => match judge(url, claim, Some(first)) {
                refuse @ ClaimVerdict::Refuse(_) => refuse,
                ClaimVerdict::Known | ClaimVerdict::Learn(_) => verdict,
            },
            _ => verdict,
        }
    }

    /// Judges like `judge`; a claim to learn keeps other new claims out from here on.
    pub(super) fn claim(&mut self, url: &str, claim: Peer) -> ClaimVerdict {
        let verdict = self.judge(url, claim);
        if let ClaimVerdict::Learn(news) = &verdict {
            self.claimed = Some(*news);
        }
        verdict
    }

    /// The note of a claim is durable: the process counts, unless a later one does already.
    pub(super) fn remember(&mut self, peer: Peer) {
        if self.noted.is_some_and(|noted| noted.boot > peer.boot) {
            return;
        }
        // Another loop may have got a higher confirmation while the note was written.
        let clock = self.noted.map_or(0, |noted| noted.clock).max(peer.clock);
        self.noted = Some(Peer { clock, ..peer });
        self.noted_clock = peer.clock;
    }

    /// Are there links to another process than the one that makes this claim?
    pub(super) fn is_linked_to_another(&self, claim: Peer) -> bool {
        self.links > 0 && self.linked != claim.life
    }

    /// An own link to the process that makes this claim is up.
    pub(super) fn linked(&mut self, claim: Peer) {
        self.links += 1;
        self.linked = claim.life;
        self.is_for_good = claim.clock != 0;
    }

    /// An own link was lost; over it the peer had confirmed clock values up to `confirmed`.
    pub(super) fn unlinked(&mut self, confirmed: u64) {
        // The place of a member that was removed may have been given to another one meanwhile.
        self.links = self.links.saturating_sub(1);
        if let Some(noted) = self.noted.as_mut().filter(|_| self.is_for_good) {
            noted.clock = noted.clock.max(confirmed);
        }
    }

    /// The peer confirmed clock values up to `confirmed` while its links are up. Gives the note to
    /// write, at most once in `PEER_NOTE_PAUSE_US`.
    pub(super) fn rose(&mut self, confirmed: u64, now_us: u64) -> Option<Peer> {
        if self.links == 0 || !self.is_for_good {
            return None;
        }
        let noted = self.noted.as_mut()?;
        noted.clock = noted.clock.max(confirmed);
        let noted = *noted;
        let is_due = noted.clock > self.noted_clock && now_us >= self.note_due_us;
        if !is_due || noted.life != self.linked || self.is_another_claimed(noted) {
            return None;
        }
        self.note_due_us = now_us + PEER_NOTE_PAUSE_US;
        Some(noted)
    }

    fn is_another_claimed(&self, noted: Peer) -> bool {
        self.claimed
            .is_some_and(|claimed| claimed.life != noted.life)
    }

    /// The note to write at a stop, when no loop works any more.
    pub(super) fn unnoted_at_stop(&self) -> Option<Peer> {
        self.noted.filter(|noted| noted.clock > self.noted_clock)
    }

    /// The note to write when the last link is lost; none if a later process has claimed since.
    pub(super) fn unnoted(&self) -> Option<Peer> {
        let noted = self.unnoted_at_stop()?;
        (self.links == 0 && !self.is_another_claimed(noted)).then_some(noted)
    }

    /// The note of a clock is in the log.
    pub(super) fn noted(&mut self, peer: Peer) {
        self.noted_clock = self.noted_clock.max(peer.clock);
    }
}
