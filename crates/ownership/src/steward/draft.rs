//! From a wish to the epoch that would begin with it: the plan, its bytes, or why there is none.
//!
//! ```text
//! PlanWish of an operator ─┐             ┌─► Draft: the moves, and the record to propose
//! EnrolRequest of a joiner ┴─► wanted ───┴─► Declined
//! ```
//!
//! Invariants
//! 1. The same wish for the same epoch by the same author gives the same id.
//! 2. A joiner that replaces a member gets that member's share and zone, and no other position
//!    moves.
//!
//! Not here: proposing the record (`mod.rs`), the plan itself (`ring/plan/mod.rs`).

use super::declined::{CopiesStay, Declined, NoArrival};
use super::draft_id::DraftId;
use super::face::{DraftStep, PlanDraft, PlanWish};
use super::messages::EnrolRequest;
use crate::epoch::record::{EpochMember, EpochRecord, MemberStatus, NewPlan};
use crate::limits::MEMBERS_MAX;
use crate::ring::plan::{self, MovePlan, NoPlan, WantedMember, WantedMembers};
use crate::ring::table::{MemberId, Move};
use crate::topology::Member;
use siphasher::sip::SipHasher13;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;

/// Bits of a folder's id that name it in versions: see `Identity::origin` of the folder.
const ORIGIN_BITS: u32 = 24;

/// A plan that was made and not applied.
#[derive(Clone, Debug)]
pub(super) struct Draft {
    pub(super) id: DraftId,
    /// Record of the epoch that the plan begins with.
    pub(super) record: EpochRecord,
    /// Start of the plan for the epochs that follow while only horizons rise.
    pub(super) begin: PlanStart,
    moves: MovePlan,
}

/// A plan for the members and owners of one epoch. It holds while epochs raise horizons alone.
#[derive(Clone, Debug)]
pub(super) struct PlanStart {
    /// Record of the epoch for which the plan was made.
    base: EpochRecord,
    new: NewPlan,
}

impl PlanStart {
    /// The record that begins the plan behind `record`.
    pub(super) fn behind(&self, record: &EpochRecord) -> Result<EpochRecord, Declined> {
        record.idle()?;
        if !record.differs_in_horizons_alone(&self.base) {
            return Err(Declined::OtherEpoch {
                made: self.base.epoch(),
                epoch: record.epoch(),
            });
        }
        Ok(record.planned(&self.new)?)
    }

    /// May the plan take its members away, as this member sees them now?
    pub(super) fn check_leaves(
        &self,
        record: &EpochRecord,
        sight: &Sight<'_>,
    ) -> Result<(), Declined> {
        let leaves = self.new.moves.leaves.iter().copied();
        check_leaves(record, leaves, self.new.replication_factor, sight)
    }
}

/// A member that is up stays while a lowered replication factor waits for its steps. A majority of
/// the former owners may be this member and one that stays. Of two owners both have each write.
fn check_leaves(
    record: &EpochRecord,
    leaves: impl IntoIterator<Item = MemberId>,
    factor: u8,
    sight: &Sight<'_>,
) -> Result<(), Declined> {
    let now = record.replication_factor();
    let falls_from = if factor < now { now } else { 0 };
    let before = record.narrowing().copies_before().max(falls_from);
    if before <= 2 {
        return Ok(());
    }
    let mut up = leaves.into_iter().filter(|id| (sight.is_up)(*id));
    match up.find_map(|id| record.member(id)) {
        None => Ok(()),
        Some(member) => Err(CopiesStay::Go {
            url: member.place.url.clone(),
            before,
            now: factor.min(now),
        }
        .into()),
    }
}

/// The members as this one knows them: the input of a draft beside the wish.
pub(super) struct Sight<'a> {
    /// Makes the plan.
    pub(super) me: MemberId,
    /// Does this member answer?
    pub(super) is_up: &'a dyn Fn(MemberId) -> bool,
    /// For how many microseconds longer it has to be missed before it can be replaced.
    pub(super) patience_us: &'a dyn Fn(MemberId) -> u64,
    /// Another member that told a moment ago that it reaches this one.
    pub(super) reached_by: &'a dyn Fn(MemberId) -> Option<MemberId>,
    /// Bytes that a member holds, if it told.
    pub(super) stored: &'a dyn Fn(MemberId) -> Option<u64>,
}

impl Draft {
    fn new(record: &EpochRecord, new: &NewPlan) -> Result<Draft, Declined> {
        let next = record.planned(new)?;
        let members = next.members().len();
        if members > MEMBERS_MAX {
            return Err(Declined::TooMany { members });
        }
        let mut hasher = SipHasher13::new_with_key(b"dendra drafts  1");
        hasher.write(&next.encode());
        Ok(Draft {
            id: DraftId(hasher.finish()),
            record: next,
            begin: PlanStart {
                base: record.clone(),
                new: new.clone(),
            },
            moves: new.moves.clone(),
        })
    }

    /// The effects of the draft, for people. `before` is the epoch that it was made for.
    pub(super) fn describe(
        &self,
        before: &EpochRecord,
        sight: &Sight<'_>,
        bytes_per_second: u64,
    ) -> PlanDraft {
        let url = |member: Option<MemberId>| {
            let member = self.record.member(member?)?;
            Some(member.place.url.clone())
        };
        let of_position = PositionBytes::of(before, sight.stored);
        let step = |step: &Move| DraftStep {
            partition: step.partition.0,
            position: step.moving.position,
            from: url(step.moving.from),
            to: url(step.moving.to),
            bytes: of_position.of_copy(before, step),
        };
        let steps: Vec<DraftStep> = self.moves.moves().map(step).collect();
        let leaves = self.moves.leaves.iter();
        let is_copy = |drawn: &&DraftStep| drawn.to.is_some();
        let bytes: Option<u64> = steps.iter().filter(is_copy).map(|drawn| drawn.bytes).sum();
        let to = |member: &EpochMember| -> Option<u64> {
            let is_its = |drawn: &&DraftStep| drawn.to.as_ref() == Some(&member.place.url);
            steps.iter().filter(is_its).map(|drawn| drawn.bytes).sum()
        };
        let busiest = self.record.members().iter().filter_map(to).max();
        PlanDraft {
            id: self.id,
            epoch: before.epoch(),
            replication_factor: self.record.plan().map_or(0, |plan| plan.replication_factor),
            leaves: leaves.filter_map(|member| url(Some(*member))).collect(),
            necessary: self.moves.necessary,
            seconds: bytes.and(busiest).map(|b| b.div_ceil(bytes_per_second)),
            bytes,
            steps,
        }
    }
}

/// About how many bytes one position of each member has: an even part of those that it holds.
#[derive(Debug)]
pub(super) struct PositionBytes(BTreeMap<MemberId, u64>);

impl PositionBytes {
    /// For the members that told how many bytes they hold.
    pub(super) fn of(
        record: &EpochRecord,
        stored: impl Fn(MemberId) -> Option<u64>,
    ) -> PositionBytes {
        let mut positions: BTreeMap<MemberId, u64> = BTreeMap::new();
        for partition in record.owners().all() {
            for owner in record.owners().owners(partition) {
                *positions.entry(*owner).or_default() += 1;
            }
        }
        let members = record.members().iter().map(|member| member.id);
        let each = members.filter_map(|member| {
            let count = positions.get(&member).copied().unwrap_or(1);
            Some((member, stored(member)? / count))
        });
        PositionBytes(each.collect())
    }

    /// How many a move copies: those of its source, or of any owner of the partition. It is 0 when
    /// there is no new owner.
    pub(super) fn of_copy(&self, record: &EpochRecord, step: &Move) -> Option<u64> {
        if step.moving.to.is_none() {
            return Some(0);
        }
        let owners = record.owners().owners(step.partition).iter().copied();
        let mut sources = step.moving.from.into_iter().chain(owners);
        sources.find_map(|source| self.0.get(&source).copied())
    }
}

fn now(record: &EpochRecord) -> WantedMembers {
    let members = record.members().iter().map(wanted);
    WantedMembers {
        members: members.collect(),
        replication_factor: record.replication_factor(),
        lost: Vec::new(),
    }
}

fn wanted(member: &EpochMember) -> WantedMember {
    WantedMember {
        id: member.id,
        weight: member.place.weight,
        zone: member.place.zone.clone(),
    }
}

/// The member with this address.
pub(super) fn member_at<'a>(
    record: &'a EpochRecord,
    url: &str,
) -> Result<&'a EpochMember, Declined> {
    let url = Member::new(url)?.url;
    let mut members = record.members().iter();
    let found = members.find(|member| member.place.url == url);
    found.ok_or(Declined::NotAMember { url })
}

fn no_plan(record: &EpochRecord, why: NoPlan) -> Declined {
    let member = match why {
        NoPlan::Twice { member }
        | NoPlan::Unknown { member }
        | NoPlan::Present { member }
        | NoPlan::Lost { member } => record.member(member),
        _ => None,
    };
    let url = member.map(|member| member.place.url.clone());
    Declined::NoPlan { why, url }
}

/// The plan for an operator's wish. `copies_before` = the largest replication factor since all
/// copies were compared ([`Layout::copies_to_purge`](crate::Layout::copies_to_purge)).
pub(super) fn of_wish(
    record: &EpochRecord,
    wish: &PlanWish,
    copies_before: u8,
    sight: &Sight<'_>,
) -> Result<Draft, Declined> {
    if *wish == PlanWish::default() {
        return Err(Declined::NothingAsked);
    }
    record.idle()?;
    let now = now(record);
    let mut wanted = now.clone();
    let at = |url: &str, of: &WantedMembers| {
        let id = member_at(record, url)?.id;
        let at = of.members.iter().position(|member| member.id == id);
        at.ok_or_else(|| Declined::Contradiction {
            url: url.to_owned(),
        })
    };
    for url in &wish.remove {
        let at = at(url, &wanted)?;
        let gone = wanted.members.remove(at);
        if !(sight.is_up)(gone.id) {
            wanted.lost.push(gone.id);
        }
    }
    let mut shares: Vec<WantedMember> = Vec::new();
    // One address can be written in several ways.
    let once = |named: &mut BTreeSet<MemberId>, member: MemberId, url: &str| {
        let is_first = named.insert(member);
        let url = url.to_owned();
        is_first
            .then_some(())
            .ok_or(Declined::Contradiction { url })
    };
    let mut named = BTreeSet::new();
    for (url, weight) in &wish.weights {
        let at = at(url, &wanted)?;
        once(&mut named, wanted.members[at].id, url)?;
        wanted.members[at].weight = *weight;
    }
    let mut zoned = BTreeSet::new();
    for (url, zone) in &wish.zones {
        let at = at(url, &wanted)?;
        once(&mut zoned, wanted.members[at].id, url)?;
        let place = Member {
            zone: zone.clone(),
            ..Member::new(url)?
        };
        wanted.members[at].zone = place.checked()?.zone;
    }
    for member in &wanted.members {
        if !now.members.contains(member) {
            shares.push(member.clone());
        }
    }
    if let Some(copies) = wish.replication_factor {
        // Majorities of n and of n + 1 owners meet; those of n and of n + 2 do not.
        let factor = record.replication_factor();
        if copies.abs_diff(factor) > 1 {
            return Err(CopiesStay::Apart {
                now: factor,
                wanted: copies,
            }
            .into());
        }
        // A majority of five owners may be one of the first three and two others.
        if copies < factor && copies_before > factor {
            return Err(CopiesStay::NotCompared {
                before: copies_before,
                now: factor,
            }
            .into());
        }
        wanted.replication_factor = copies;
    }
    let stays = |id| wanted.members.iter().any(|member| member.id == id);
    let leaves = now.members.iter().map(|member| member.id);
    let leaves = leaves.filter(|id| !stays(*id));
    check_leaves(record, leaves, wanted.replication_factor, sight)?;
    let moves = plan::plan(record.owners(), &now, &wanted).map_err(|why| no_plan(record, why))?;
    let new = NewPlan {
        author: sight.me,
        moves,
        newcomers: Vec::new(),
        shares,
        replication_factor: wanted.replication_factor,
    };
    Draft::new(record, &new)
}

/// The plan under way waits for a joiner whose folder is lost: no later plan can replace it.
fn check_not_joining(record: &EpochRecord, member: &EpochMember) -> Result<(), NoArrival> {
    let plan = record
        .plan()
        .filter(|_| member.status == MemberStatus::Joining);
    plan.map_or(Ok(()), |plan| {
        Err(NoArrival::Joins {
            url: member.place.url.clone(),
            plan: plan.id,
        })
    })
}

/// The plan that takes a joiner in.
pub(super) fn of_joiner(
    record: &EpochRecord,
    request: &EnrolRequest,
    sight: &Sight<'_>,
) -> Result<Draft, Declined> {
    let mut place = request.place.clone().checked()?;
    let url = place.url.clone();
    if !request.cluster.is_empty() && request.cluster != record.name() {
        return Err(NoArrival::OtherCluster {
            ours: record.name().to_owned(),
            theirs: request.cluster.clone(),
        }
        .into());
    }
    if request.node == 0 {
        return Err(NoArrival::NoFolder { url }.into());
    }
    let id = record.owners().next();
    if record.is_removed(id, request.node) {
        return Err(NoArrival::Returned { url }.into());
    }
    let origin = |node: u128| node & ((1 << ORIGIN_BITS) - 1);
    let removed = record.removed().iter().map(|removed| removed.node);
    let mut nodes = record.members().iter().map(|m| m.node).chain(removed);
    if nodes.any(|node| node != 0 && origin(node) == origin(request.node)) {
        return Err(NoArrival::SameOrigin { url }.into());
    }
    let old = match &request.replaces {
        None => None,
        Some(replaced) => {
            let old = member_at(record, replaced)?;
            check_not_joining(record, old)?;
            if (sight.is_up)(old.id) || old.id == sight.me {
                return Err(NoArrival::Answers {
                    url: old.place.url.clone(),
                    at: None,
                }
                .into());
            }
            let (old_url, left_us) = (old.place.url.clone(), (sight.patience_us)(old.id));
            if left_us > 0 {
                let seconds = left_us.div_ceil(1_000_000);
                return Err(NoArrival::NotMissedYet {
                    url: old_url,
                    seconds,
                }
                .into());
            }
            let other = (sight.reached_by)(old.id).and_then(|other| record.member(other));
            if let Some(other) = other {
                let at = Some(other.place.url.clone());
                return Err(NoArrival::Answers { url: old_url, at }.into());
            }
            Some(old)
        }
    };
    let others = record.members().iter();
    let mut others = others.filter(|member| old.is_none_or(|old| old.id != member.id));
    if let Some(other) = others.find(|member| member.place.url == url) {
        check_not_joining(record, other)?;
        return Err(NoArrival::IsMember { url }.into());
    }
    record.idle()?;
    let refused = |why| no_plan(record, why);
    let moves = match old {
        Some(old) => {
            place.weight = old.place.weight;
            place.zone.clone_from(&old.place.zone);
            plan::replacement(record.owners(), old.id, id, &[old.id]).map_err(refused)?
        }
        None => {
            let now = now(record);
            let mut wanted = now.clone();
            wanted.members.push(WantedMember {
                id,
                weight: place.weight,
                zone: place.zone.clone(),
            });
            plan::plan(record.owners(), &now, &wanted).map_err(refused)?
        }
    };
    let new = NewPlan {
        author: sight.me,
        moves,
        newcomers: vec![EpochMember {
            id,
            node: request.node,
            status: MemberStatus::Joining,
            place,
        }],
        shares: Vec::new(),
        replication_factor: record.replication_factor(),
    };
    Draft::new(record, &new)
}
