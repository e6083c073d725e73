//! The steward's own steps: it carries plans on, enrols founders, raises horizons, and tells others
//! how it does.
//!
//! Invariants
//! 1. A member proposes a step of a plan at once when it is the first in line that is reached. Else
//!    it waits `STEWARD_TURN_US` for each one in front of it.
//! 2. Leaving members are the last in line: they end with the plan.
//!
//! Not here: which step is next (`epoch/drive.rs`), orders (`ordering.rs`), when
//! horizons rise (`rising.rs`).

use super::Steward;
use super::messages::{MemberProgress, StewardMessage};
use super::step::StewardEffect;
use crate::epoch::drive::next_step;
use crate::epoch::record::{EpochChange, EpochMember, EpochRecord, MemberStatus};
use crate::limits::{
    ENROL_PATIENCE_US, FULL_DISK_PATIENCE_US, PROGRESS_REST_US, PROGRESS_US, STEWARD_TURN_US,
};
use crate::ring::table::MemberId;
use dendra_base::Now;
use std::sync::Arc;

impl Steward {
    pub(super) fn go_on(&mut self, now: Now, out: &mut Vec<StewardEffect>) {
        self.expire_orders(now, out);
        if self.gone.is_some() {
            return self.end_when_known(out);
        }
        if !self.propose_orders(now, out) {
            self.drive(now, out);
        }
    }

    /// A step of the plan, founders that were not enrolled, or higher horizons, when it is this
    /// member's turn.
    fn drive(&mut self, now: Now, out: &mut Vec<StewardEffect>) {
        let Some(rank) = self.rank() else { return };
        let Some(next) = self.wish(now) else {
            self.wish_since = None;
            return;
        };
        let epoch = next.epoch();
        let since_us = match self.wish_since {
            Some((of, since_us)) if of == epoch => since_us,
            _ => now.mono_us,
        };
        self.wish_since = Some((epoch, since_us));
        if now.mono_us >= since_us + rank * STEWARD_TURN_US {
            // A refusal means that the epoch has changed: the next look sees it.
            let proposed = self.propose(now, next, out);
            debug_assert_eq!(proposed, Ok(()), "a step of the newest epoch follows it");
        }
    }

    /// How many voters that are reached stand in front of this one; `None` without a vote.
    fn rank(&self) -> Option<u64> {
        let record = self.record();
        let author = record.plan().map(|plan| plan.author);
        let key = |member: &EpochMember| {
            let is_leaving = member.status == MemberStatus::Leaving;
            (is_leaving, Some(member.id) != author, member.id)
        };
        // It was told of its removal, and notes that; or epochs of its folder cannot be read.
        if self.chain.is_removed() || self.missing().is_some() {
            return None;
        }
        let own = record.member(self.me.member)?;
        if own.status == MemberStatus::Joining {
            return None;
        }
        let is_voter = |member: &&EpochMember| member.status != MemberStatus::Joining;
        let voters = record.members().iter().filter(is_voter);
        let before = voters.filter(|other| key(other) < key(own) && self.peers.is_up(other.id));
        Some(before.count() as u64)
    }

    fn wish(&mut self, now: Now) -> Option<EpochRecord> {
        let record = Arc::clone(self.record());
        if record.plan().is_some() {
            let full = self.full_targets(&record).into_iter();
            let mut full = full.map(|id| self.full_since_us(id));
            let is_over = |since: &Option<u64>| {
                since.is_some_and(|us| now.mono_us >= us + FULL_DISK_PATIENCE_US)
            };
            if full.any(|since| is_over(&since))
                && let Ok(cancelled) = record.cancelled()
            {
                return Some(cancelled);
            }
            let arrived = self.arrivals.all(&record, self.me.member);
            return next_step(&record, &arrived, self.side_by_side);
        }
        let unenrolled = record.members().iter().filter(|member| member.node == 0);
        let unenrolled: Vec<MemberId> = unenrolled.map(|member| member.id).collect();
        if unenrolled.is_empty() {
            self.unenrolled_since_us = None;
            return self.next_horizons(now, &record);
        }
        let since_us = *self.unenrolled_since_us.get_or_insert(now.mono_us);
        let node = |id: &MemberId| {
            if *id == self.me.member {
                Some((*id, self.me.node))
            } else {
                Some((*id, self.peers.of(*id)?.node))
            }
        };
        let nodes: Vec<(MemberId, u128)> = unenrolled.iter().filter_map(node).collect();
        let is_late = now.mono_us >= since_us + ENROL_PATIENCE_US;
        if nodes.len() == unenrolled.len() || is_late {
            record.enrolled(&nodes).ok()
        } else {
            None
        }
    }

    /// Since when the disk of a member is full.
    pub(super) fn full_since_us(&self, member: MemberId) -> Option<u64> {
        if member == self.me.member {
            self.full_since_us
        } else {
            self.peers.of(member)?.full_since_us
        }
    }

    /// Members with full disks to which positions move.
    pub(super) fn full_targets(&self, record: &EpochRecord) -> Vec<MemberId> {
        let steps = record.owners().all().filter_map(|p| record.moving(p));
        let mut targets: Vec<MemberId> = steps.filter_map(|step| step.moving.to).collect();
        targets.sort_unstable();
        targets.dedup();
        targets.retain(|id| self.full_since_us(*id).is_some());
        targets
    }

    /// Why the plan of `before` was stopped, if a full disk explains it.
    pub(super) fn why_cancelled(
        &self,
        before: &EpochRecord,
        after: &EpochRecord,
    ) -> Option<String> {
        let full = match after.change() {
            EpochChange::Cancelled => self.full_targets(before),
            _ => Vec::new(),
        };
        let urls = full.iter().filter_map(|id| before.member(*id));
        let urls: Vec<&str> = urls.map(|member| &*member.place.url).collect();
        (!urls.is_empty()).then(|| {
            format!(
                "the disk of {} is full, and copies were moving there; make room, or give it less \
                 to hold, and plan again",
                urls.join(", ")
            )
        })
    }

    /// This member was removed: it ends when a majority of those that stay know it.
    fn end_when_known(&mut self, out: &mut Vec<StewardEffect>) {
        let record = Arc::clone(self.record());
        let Some(epoch) = self.gone.filter(|_| !self.is_gone_told) else {
            return;
        };
        let voters = record.voters();
        let is_own_news = record.member(self.me.member).is_none();
        let has = |id: &&MemberId| self.arrivals.epoch_of(**id) >= Some(record.epoch());
        let known = voters.iter().filter(has).count();
        if !is_own_news || 2 * known > voters.len() {
            self.is_gone_told = true;
            out.push(StewardEffect::Removed { epoch });
        }
    }

    fn progress(&self) -> StewardMessage {
        StewardMessage::Progress(MemberProgress {
            epoch: self.record().epoch(),
            arrived: self.arrivals.of_member(self.me.member),
            gauges: self.meter.gauges.unwrap_or_default(),
            release: self.release.clone(),
            is_disk_full: self.full_since_us.is_some(),
            forgets: self.own_forget_news(),
            reaches: self.reaches(),
        })
    }

    /// The members to which there is a link, for the others.
    fn reaches(&self) -> Vec<MemberId> {
        let members = self.record().members().iter().map(|member| member.id);
        members.filter(|id| self.peers.is_up(*id)).collect()
    }

    pub(super) fn send_progress(&self, to: MemberId, out: &mut Vec<StewardEffect>) {
        let message = self.progress();
        out.push(StewardEffect::Send { to, message });
    }

    /// Tells the first member in line which moves arrived here, when that is news.
    pub(super) fn report(&self, out: &mut Vec<StewardEffect>) {
        let (record, me) = (self.record(), self.me.member);
        let is_fence = self.arrivals.wants_fence_of(record, me);
        if !is_fence && self.arrivals.of_member(me).is_empty() {
            return;
        }
        let author = record.plan().map(|plan| plan.author);
        match author.filter(|author| self.peers.is_up(*author)) {
            Some(author) => self.send_progress(author, out),
            None if author == Some(me) => {}
            None => self.tell_all(out),
        }
    }

    fn tell_all(&self, out: &mut Vec<StewardEffect>) {
        let others = self.record().members().iter().map(|member| member.id);
        for to in others.filter(|id| *id != self.me.member) {
            self.send_progress(to, out);
        }
    }

    pub(super) fn tell_progress(&mut self, now: Now, out: &mut Vec<StewardEffect>) {
        if now.mono_us < self.progress_due_us {
            return;
        }
        let is_busy = self.record().plan().is_some() || self.gone.is_some();
        let pause_us = if is_busy {
            PROGRESS_US
        } else {
            PROGRESS_REST_US
        };
        self.progress_due_us = now.mono_us + pause_us;
        self.tell_all(out);
    }
}
