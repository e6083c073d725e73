//! The steward's part in horizons: it collects the confirmations of members, and proposes the next
//! floor.
//!
//! ```text
//! own loops ─► Forgetting ─┐
//! others ─► Progress ──────┴─► all confirmed this epoch, no plan, the interval is over ─► Forgot
//!                              all others confirmed, or hold strays as this one does  ─► DropStrays
//! ```
//!
//! Invariants
//! 1. News count for the epoch in which they were told, and for no other one. The last news of a
//!    member counts: damage takes a confirmation back.
//! 2. `DropStrays` is ordered once between two comparisons of all copies.
//!
//! Not here: when a member confirms (crate `node`, `forgetting.rs`), the meaning of floors
//! (`epoch/record/horizons.rs`).
//! See: docs/protocol.md, "Horizons".

use super::Steward;
use super::face::{HorizonHeld, HorizonState};
use super::messages::ForgetNews;
use super::step::StewardEffect;
use crate::confirmed::{HeldBack, next_floor};
use crate::epoch::record::EpochRecord;
use crate::limits::FORGET_LATE_US;
use crate::ring::table::MemberId;
use dendra_base::Now;
use dendra_base::clock::date_ms;
use std::sync::Arc;

impl Steward {
    /// The own loops told whether they confirm the epoch.
    pub(super) fn forgets(&mut self, now: Now, news: ForgetNews, out: &mut Vec<StewardEffect>) {
        let record = Arc::clone(self.record());
        let epoch = record.epoch();
        if let Ok(confirmed) = &news
            && confirmed.epoch != epoch
        {
            return;
        }
        if !matches!(news, Err(HeldBack::Strays)) {
            self.strays_epoch = 0;
        }
        let before = self.own_forgets.replace((epoch, news));
        if before.map(|(told, of)| (told, of.map(|it| it.epoch)))
            != Some((epoch, news.map(|it| it.epoch)))
        {
            self.is_news = true;
            // The others wait for it, and the next progress may be seconds away.
            if !matches!(news, Err(HeldBack::UnderWay | HeldBack::Comparison(_))) {
                self.progress_due_us = now.mono_us;
                self.tell_progress(now, out);
            }
        }
        if self.wants_strays_dropped(&record) {
            self.strays_epoch = epoch;
            let layout = Arc::clone(&self.layout);
            out.push(StewardEffect::DropStrays { layout });
        }
    }

    /// The last news of a member about this epoch.
    fn forget_news(&self, record: &EpochRecord, member: MemberId) -> Option<ForgetNews> {
        let news = if member == self.me.member {
            self.own_forgets
        } else {
            self.peers.of(member)?.forgets
        };
        let (_, news) = news.filter(|(epoch, _)| *epoch == record.epoch())?;
        Some(news)
    }

    /// Is a backup being restored at a member? `None` until it told about this epoch.
    pub(super) fn is_restoring(&self, member: MemberId) -> Option<bool> {
        let news = self.forget_news(self.record(), member)?;
        Some(matches!(news, Err(HeldBack::Restore)))
    }

    /// The own news, for a progress.
    pub(super) fn own_forget_news(&self) -> Option<ForgetNews> {
        self.forget_news(self.record(), self.me.member)
    }

    /// The next floor, when all have confirmed and the interval is over.
    pub(super) fn next_horizons(&mut self, now: Now, record: &EpochRecord) -> Option<EpochRecord> {
        let since_us = *self.epoch_since_us.get_or_insert(now.mono_us);
        if self.forget_every_us == 0 || now.mono_us < since_us.saturating_add(self.forget_every_us)
        {
            return None;
        }
        let members = record.members().iter();
        let news = members.map(|member| self.forget_news(record, member.id)?.ok());
        let floor = next_floor(record.epoch(), record.horizons().floor(), news)?;
        record.forgot(floor).ok()
    }

    /// Does this member hold copies of partitions that moved away, and is that all that is left?
    /// Then all members are in this epoch, and have compared all copies in it.
    fn wants_strays_dropped(&self, record: &EpochRecord) -> bool {
        let has_only_strays = |member: MemberId| {
            let news = self.forget_news(record, member);
            matches!(news, Some(Ok(_) | Err(HeldBack::Strays)))
        };
        self.forget_every_us > 0
            && self.strays_epoch != record.epoch()
            && record.plan().is_none()
            && matches!(self.own_forget_news(), Some(Err(HeldBack::Strays)))
            && record.members().iter().all(|it| has_only_strays(it.id))
    }

    /// Horizons, for operators.
    pub fn horizons(&self, now: Now) -> HorizonState {
        let record = self.record();
        let since_us = self.risen_us.or(self.began_us).unwrap_or(now.mono_us);
        let late_us = since_us + 2 * self.forget_every_us + FORGET_LATE_US;
        let horizons = record.horizons();
        HorizonState {
            every_us: self.forget_every_us,
            floor_ms: date_ms(horizons.floor()),
            purge_ms: date_ms(horizons.purge()),
            narrowing_steps_left: record.narrowing().steps_left(),
            is_late: self.forget_every_us > 0 && now.mono_us >= late_us,
            held: self.held_back(record),
        }
    }

    /// Each member that does not confirm the newest epoch, and why.
    fn held_back(&self, record: &EpochRecord) -> Vec<HorizonHeld> {
        if self.forget_every_us == 0 {
            return Vec::new();
        }
        let url = |id: MemberId| record.member(id).map(|member| member.place.url.clone());
        let mut found = Vec::new();
        for member in record.members() {
            let is_own = member.id == self.me.member;
            let (code, why) = match self.forget_news(record, member.id) {
                _ if !is_own && !self.peers.is_up(member.id) => {
                    ("away", "it cannot be reached from here".to_owned())
                }
                Some(Ok(_)) => continue,
                Some(Err(why)) => match why.rename(url) {
                    Some(why) => (why.code(), why.to_string()),
                    None => continue,
                },
                None => ("silent", "it has not told yet about this epoch".to_owned()),
            };
            found.push(HorizonHeld {
                member: member.id,
                url: member.place.url.clone(),
                code,
                why,
            });
        }
        found
    }
}
