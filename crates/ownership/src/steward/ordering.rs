//! Orders of operators and requests of joiners: from their arrival to their answer.
//!
//! ```text
//! Ordered ─┬─ Status, Plan, Throttle, AcceptLoss, History ────────────────► Answer
//!          └─ Apply, Cancel, Readdress, Rekey, Finalize, Restored ─► queue ─► proposed ─ adopted ─► Done
//!                                                  ▲          │ another was chosen, or none
//!                                                  └──────────┘     CLUSTER_ORDER_US ─► Declined
//! Enrol ─► Enrolled | Wait, the plan for it joins the queue | Refused
//! ```
//!
//! Invariants
//! 1. An order is answered once. A joiner is answered at once, and asks again.
//! 2. A plan is begun only in the epoch that it was made for, or behind it while only horizons
//!    rose.
//!
//! Not here: plans (`draft.rs`), the state for operators (`status.rs`).

use super::Steward;
use super::declined::{Declined, NoArrival, VersionStays};
use super::draft::{self, Sight};
use super::face::{ClusterAnswer, ClusterOrder, ClusterStatus, PlanWait};
use super::messages::{EnrolAnswer, EnrolRequest, StewardMessage, ThrottleOrder};
use super::orders::{OrderIntent, PendingOrder};
use super::status::{self, MemberNews, PlanTimes, StatusSights};
use super::step::{OrderTicket, StewardEffect};
use super::waiting::WaitSights;
use crate::epoch::chain::{ChainEffect, ChainEvent};
use crate::epoch::record::{EpochMember, EpochRecord, MemberStatus};
use crate::epoch::why_not::WhyNot;
use crate::limits::{
    CLUSTER_DRAFTS_MAX, CLUSTER_ORDER_US, CLUSTER_ORDERS_MAX, LOAD_PATIENCE_US_DEFAULT,
    PROGRESS_REST_US,
};
use crate::ring::table::MemberId;
use crate::topology::Member;
use dendra_base::ClusterVersion;
use dendra_base::Now;
use std::sync::Arc;

impl Steward {
    pub(super) fn ordered(
        &mut self,
        now: Now,
        ticket: OrderTicket,
        order: ClusterOrder,
        out: &mut Vec<StewardEffect>,
    ) {
        let answer = match self.begin(now, ticket, order, out) {
            Ok(Some(answer)) => answer,
            Ok(None) => return,
            Err(declined) => ClusterAnswer::Declined(declined),
        };
        out.push(StewardEffect::Answer { ticket, answer });
    }

    /// The answer, if it can be given at once.
    fn begin(
        &mut self,
        now: Now,
        ticket: OrderTicket,
        order: ClusterOrder,
        out: &mut Vec<StewardEffect>,
    ) -> Result<Option<ClusterAnswer>, Declined> {
        let record = Arc::clone(self.record());
        let epoch = record.epoch();
        let intent = match order {
            ClusterOrder::Status => {
                return Ok(Some(ClusterAnswer::Status(Box::new(self.status(now)))));
            }
            ClusterOrder::History { entries } => {
                let losses = self.losses.iter().rev().take(entries);
                return Ok(Some(ClusterAnswer::History {
                    epochs: self.history.newest(entries),
                    losses: losses.cloned().collect(),
                }));
            }
            ClusterOrder::Throttle { bytes_per_second } => {
                // Later than the last one, also if this wall clock is behind.
                let last_ms = self.throttled.map_or(0, |last| last.ordered_ms);
                let throttle = ThrottleOrder {
                    ordered_ms: now.wall_ms.max(last_ms + 1),
                    bytes_per_second: bytes_per_second.max(1),
                };
                self.throttle(throttle, out);
                let others = record.members().iter().map(|member| member.id);
                for to in others.filter(|id| *id != self.me.member) {
                    let message = StewardMessage::Throttle(throttle);
                    out.push(StewardEffect::Send { to, message });
                }
                return Ok(Some(ClusterAnswer::Done { epoch }));
            }
            ClusterOrder::AcceptLoss { member, confirm } => {
                return self.accept_loss(now, &member, confirm, out).map(Some);
            }
            ClusterOrder::Plan(wish) => {
                let before = self.layout.copies_to_purge();
                let draft =
                    self.with_sight(now, |sight| draft::of_wish(&record, &wish, before, sight))?;
                let rate = self.load_bytes_per_second;
                let plan = self.with_sight(now, |sight| draft.describe(&record, sight, rate));
                self.drafts.retain(|other| other.id != draft.id);
                if self.drafts.len() == CLUSTER_DRAFTS_MAX {
                    self.drafts.pop_front();
                }
                self.drafts.push_back(draft);
                return Ok(Some(ClusterAnswer::Planned(Box::new(plan))));
            }
            ClusterOrder::Apply { draft } => {
                let mut drafts = self.drafts.iter();
                let found = drafts.find(|known| known.id == draft);
                let found = found.ok_or(Declined::UnknownDraft { draft })?;
                // A member that was lost then may be back.
                self.with_sight(now, |sight| found.begin.check_leaves(&record, sight))?;
                OrderIntent::Begin(Box::new(found.begin.clone()))
            }
            ClusterOrder::Cancel => OrderIntent::Cancel,
            ClusterOrder::Readdress { from, to } => {
                let member = draft::member_at(&record, &from)?.id;
                let to = Member::new(&to)?.url;
                if draft::member_at(&record, &to).is_ok() {
                    return Err(Declined::AddressTaken { url: to });
                }
                OrderIntent::Readdress { member, to }
            }
            ClusterOrder::Rekey => OrderIntent::Rekey,
            ClusterOrder::Finalize => OrderIntent::Finalize,
            ClusterOrder::Restored { least } => OrderIntent::Restored { least },
        };
        self.check_vote()?;
        // An order that cannot be carried out now is declined now.
        self.wanted(&intent)?;
        self.enqueue(now, Some(ticket), intent)?;
        Ok(None)
    }

    fn check_vote(&self) -> Result<(), Declined> {
        let member = self.me.member;
        let noted = self.record().member(member);
        let is_voter = |own: &&EpochMember| own.status != MemberStatus::Joining;
        let has_vote = !self.chain.is_removed() && self.missing().is_none();
        match noted.filter(|own| is_voter(own) && has_vote) {
            Some(_) => Ok(()),
            None => Err(Declined::NoVote { member }),
        }
    }

    fn enqueue(
        &mut self,
        now: Now,
        ticket: Option<OrderTicket>,
        intent: OrderIntent,
    ) -> Result<(), Declined> {
        if self.orders.len() >= CLUSTER_ORDERS_MAX {
            return Err(Declined::Busy);
        }
        self.orders.push_back(PendingOrder {
            ticket,
            intent,
            due_us: now.mono_us + CLUSTER_ORDER_US,
            proposed: None,
        });
        self.is_news = true;
        Ok(())
    }

    /// The record that an order wants next.
    fn wanted(&self, intent: &OrderIntent) -> Result<EpochRecord, Declined> {
        let record = self.record();
        Ok(match intent {
            OrderIntent::Begin(begin) => begin.behind(record)?,
            OrderIntent::Cancel => record.cancelled()?,
            OrderIntent::Readdress { member, to } => record.readdressed(*member, to)?,
            OrderIntent::Rekey => record.rekeyed()?,
            OrderIntent::Finalize => record.finalized(self.next_version()?)?,
            OrderIntent::Restored { least } => record.restored(*least)?,
        })
    }

    /// The newest version that this member knows, if all members know it, too.
    fn next_version(&self) -> Result<ClusterVersion, Declined> {
        let record = self.record();
        let version = self.versions.newest;
        if version <= record.in_force() {
            return Err(VersionStays::Newest {
                version: record.in_force(),
            }
            .into());
        }
        for member in record.members() {
            let url = || member.place.url.clone();
            match self.news(member.id) {
                MemberNews {
                    is_up: true,
                    versions: Some(versions),
                    ..
                } if versions.contains(version) => {}
                MemberNews {
                    is_up: true,
                    versions: Some(versions),
                    ..
                } => {
                    return Err(VersionStays::OlderRelease {
                        url: url(),
                        versions,
                        version,
                    }
                    .into());
                }
                _ => return Err(VersionStays::Away { url: url() }.into()),
            }
        }
        Ok(version)
    }

    /// Proposes for the first order, unless something is under way. True when it did.
    pub(super) fn propose_orders(&mut self, now: Now, out: &mut Vec<StewardEffect>) -> bool {
        while !self.chain.is_busy() {
            let Some(order) = self.orders.front() else {
                return false;
            };
            let proposed = self.wanted(&order.intent).and_then(|record| {
                let digest = record.digest();
                self.propose(now, record, out)?;
                Ok(digest)
            });
            match proposed {
                Ok(digest) => {
                    if let Some(first) = self.orders.front_mut() {
                        first.proposed = Some(digest);
                    }
                    return true;
                }
                Err(declined) => self.end_order(ClusterAnswer::Declined(declined), out),
            }
        }
        true
    }

    /// Proposes a record.
    pub(super) fn propose(
        &mut self,
        now: Now,
        record: EpochRecord,
        out: &mut Vec<StewardEffect>,
    ) -> Result<(), WhyNot> {
        let mut effects = Vec::new();
        let event = ChainEvent::Propose { record };
        self.chain.step(now.mono_us, event, &mut effects);
        for effect in effects {
            if let ChainEffect::Refused { why } = effect {
                return Err(why);
            }
            self.chain_effect(now, effect, out);
        }
        Ok(())
    }

    fn end_order(&mut self, answer: ClusterAnswer, out: &mut Vec<StewardEffect>) {
        if let Some(PendingOrder { ticket, .. }) = self.orders.pop_front()
            && let Some(ticket) = ticket
        {
            out.push(StewardEffect::Answer { ticket, answer });
        }
    }

    /// An epoch was adopted: is it the one that the first order waits for?
    pub(super) fn settle_orders(&mut self, record: &EpochRecord, out: &mut Vec<StewardEffect>) {
        let Some(order) = self.orders.front_mut() else {
            return;
        };
        match order.proposed.take() {
            Some(digest) if digest == record.digest() => {
                let epoch = record.epoch();
                self.end_order(ClusterAnswer::Done { epoch }, out);
            }
            _ => {}
        }
    }

    /// Declines orders that have waited for `CLUSTER_ORDER_US`.
    pub(super) fn expire_orders(&mut self, now: Now, out: &mut Vec<StewardEffect>) {
        let epoch = self.record().epoch();
        while self
            .orders
            .front()
            .is_some_and(|order| now.mono_us >= order.due_us)
        {
            let declined = Declined::NoMajority { epoch };
            self.end_order(ClusterAnswer::Declined(declined), out);
        }
    }

    /// A process wants to be a member.
    pub(super) fn enrol(&mut self, now: Now, request: &EnrolRequest) -> EnrolAnswer {
        let record = Arc::clone(self.record());
        let wait = |why| EnrolAnswer::Wait { why };
        if let Err(declined) = self.check_vote() {
            return wait(declined.to_string());
        }
        let mut members = record.members().iter();
        let known = members.find(|member| request.node != 0 && member.node == request.node);
        if let Some(member) = known {
            let member = member.id;
            return EnrolAnswer::Enrolled { member, record };
        }
        let made = self.with_sight(now, |sight| draft::of_joiner(&record, request, sight));
        let draft = match made {
            Ok(draft) => draft,
            Err(Declined::CannotFollow(
                why @ (WhyNot::PlanUnderWay { .. }
                | WhyNot::PlanEnds { .. }
                | WhyNot::NotEnrolled { .. }),
            )) => return wait(why.to_string()),
            Err(Declined::NoArrival(why @ NoArrival::NotMissedYet { .. })) => {
                return wait(why.to_string());
            }
            Err(declined) => {
                let why = declined.to_string();
                return EnrolAnswer::Refused { why };
            }
        };
        let is_waiting = self.orders.iter().any(|order| order.ticket.is_none());
        let queued = if is_waiting {
            Ok(())
        } else {
            let next = OrderIntent::Begin(Box::new(draft.begin));
            self.enqueue(now, None, next)
        };
        match queued {
            Ok(()) => wait("the plan that takes it in is being chosen".to_owned()),
            Err(declined) => wait(declined.to_string()),
        }
    }

    fn with_sight<T>(&self, now: Now, look: impl FnOnce(&Sight<'_>) -> T) -> T {
        let stored = |member: MemberId| Some(self.news(member).gauges?.stored_bytes);
        let patience_us = |member: MemberId| {
            let seen = self.peers.of(member).and_then(|view| view.missed_since_us);
            let since_us = seen.or(self.began_us).unwrap_or(now.mono_us);
            let until_us = since_us.saturating_add(self.replace_patience_us);
            until_us.saturating_sub(now.mono_us)
        };
        // A member tells each few seconds; one that fell silent is not asked.
        let fresh_us = now.mono_us.saturating_sub(2 * PROGRESS_REST_US);
        look(&Sight {
            me: self.me.member,
            patience_us: &patience_us,
            reached_by: &|member| self.peers.reached_by(member, fresh_us),
            is_up: &|member| member == self.me.member || self.peers.is_up(member),
            stored: &stored,
        })
    }

    fn news(&self, member: MemberId) -> MemberNews {
        let is_restoring = self.is_restoring(member);
        if member == self.me.member {
            return MemberNews {
                is_up: true,
                epoch: Some(self.record().epoch()),
                gauges: self.meter.gauges,
                release: Some(self.release.clone()),
                versions: Some(self.versions),
                is_disk_full: self.full_since_us.is_some(),
                is_restoring,
            };
        }
        let view = self.peers.of(member).cloned().unwrap_or_default();
        MemberNews {
            is_up: view.is_up,
            epoch: self.arrivals.epoch_of(member),
            gauges: view.gauges,
            release: view.release,
            versions: view.versions,
            is_disk_full: view.full_since_us.is_some(),
            is_restoring,
        }
    }

    fn status(&self, now: Now) -> ClusterStatus {
        let record = self.record();
        let learnt_ms = self.plan_id().and_then(|plan| self.history.learnt_ms(plan));
        let since_ms = learnt_ms.unwrap_or(now.wall_ms);
        let moved_us = self.epoch_since_us.max(self.began_us).unwrap_or_default();
        let quiet_us = now
            .mono_us
            .saturating_sub(moved_us.max(self.loads.risen_us()));
        let times = PlanTimes {
            now_ms: now.wall_ms,
            since_ms,
            quiet_us,
        };
        let asked = (self.me.member, self.load_bytes_per_second);
        let horizons = self.horizons(now);
        // A joiner may know a later epoch of the plan alone.
        let is_new = match learnt_ms {
            Some(learnt) => now.wall_ms < learnt + LOAD_PATIENCE_US_DEFAULT / 1_000,
            None => now.mono_us < self.began_us.unwrap_or(0) + LOAD_PATIENCE_US_DEFAULT,
        };
        let sights = StatusSights {
            news: &|member| self.news(member),
            loads: &self.loads,
            waits: WaitSights {
                layout: &self.layout,
                fences_lacked: &|| self.arrivals.fences_lacked(record, self.me.member),
                reaches: &|from, to| self.reaches_from(now, from, to),
                is_away_long: &|member| !is_new && self.is_away_long(now, member),
                quiet_us,
            },
        };
        status::status(record, asked, times, horizons, sights)
    }

    /// The releases that the members run, by URL, as far as they told.
    pub fn releases(&self) -> Vec<(String, String)> {
        let members = self.record().members().iter();
        let told = members.filter_map(|member| {
            let release = self.news(member.id).release?;
            Some((member.place.url.clone(), release))
        });
        told.collect()
    }

    /// Why the plan under way does not go on, as far as this member knows.
    pub fn plan_wait(&self, now: Now) -> Option<(u64, PlanWait)> {
        let plan = self.plan_id()?;
        Some((plan, self.status(now).waits?))
    }

    /// Does one member reach another one? A member that fell silent is not asked.
    fn reaches_from(&self, now: Now, from: MemberId, to: MemberId) -> bool {
        let fresh_us = now.mono_us.saturating_sub(2 * PROGRESS_REST_US);
        let view = self.peers.of(from).filter(|view| view.is_up);
        let told = view.and_then(|view| view.reaches.as_ref());
        match told.filter(|(_, told_us)| *told_us >= fresh_us) {
            Some((reached, _)) => reached.contains(&to),
            None => to == self.me.member || self.peers.is_up(to),
        }
    }

    /// Is a member missed for so long that new owners load from other ones?
    fn is_away_long(&self, now: Now, member: MemberId) -> bool {
        let view = self.peers.of(member);
        if member == self.me.member || view.is_some_and(|view| view.is_up) {
            // Others do not reach it, and have not told since when.
            return true;
        }
        let since_us = view.and_then(|view| view.missed_since_us).or(self.began_us);
        since_us.is_some_and(|since| now.mono_us >= since + LOAD_PATIENCE_US_DEFAULT)
    }
}
