//! Why a plan, or the enrolment of founders, does not go on: each reason with its members.
//!
//! ```text
//! few voters > unknown folder > target away > target's disk > source away > damage > patience
//!                                                            > fences > nothing for long
//! ```
//!
//! Invariants
//! 1. A plan that waits names a member. While nothing is loaded and no epoch is adopted for
//!    `PLAN_QUIET_US`, it waits, also if no reason is known.
//! 2. A new owner waits for the sources that its loader waits for: both go by `sources.rs`.
//!
//! Not here: the numbers of a plan (`status.rs`), the log and `/readyz` (crate `server`).
//! Test: crates/ownership/tests/steward/waits.rs.

use super::face::{HorizonState, MemberState, PlanWait};
use crate::confirmed::DAMAGE_CODE;
use crate::epoch::record::{EpochRecord, MemberStatus};
use crate::layout::Layout;
use crate::limits::{FULL_DISK_PATIENCE_US, LOAD_PATIENCE_US_DEFAULT, PLAN_QUIET_US};
use crate::ring::table::{MemberId, Move};
use crate::sources::Sources;
use std::collections::{BTreeMap, BTreeSet};

/// The inputs beside the states of the members.
#[derive(Clone, Copy)]
pub(super) struct WaitSights<'a> {
    pub(super) layout: &'a Layout,
    /// Members whose fences a position that is taken away waits for.
    pub(super) fences_lacked: &'a dyn Fn() -> Vec<MemberId>,
    /// Does the first member reach the second one?
    pub(super) reaches: &'a dyn Fn(MemberId, MemberId) -> bool,
    /// Is a member missed for so long that new owners load from other ones?
    pub(super) is_away_long: &'a dyn Fn(MemberId) -> bool,
    /// For so long no byte was loaded, and no epoch was adopted.
    pub(super) quiet_us: u64,
}

/// See the module.
pub(super) fn waits(
    record: &EpochRecord,
    members: &[MemberState],
    moving: &[Move],
    horizons: &HorizonState,
    sights: WaitSights<'_>,
) -> Option<PlanWait> {
    if let Some(wait) = few_voters(members) {
        return Some(wait);
    }
    if let Some(unknown) = members.iter().find(|member| member.node == 0) {
        let why = format!(
            "the folder of {} is not known yet: start that member",
            unknown.url
        );
        return Some(wait_for([unknown], why));
    }
    record.plan()?;
    target(members)
        .or_else(|| source(record, members, moving, sights))
        .or_else(|| damage(members, moving, horizons))
        .or_else(|| patience(members, moving, sights))
        .or_else(|| fences(members, moving, sights))
        .or_else(|| nothing(record, members, sights))
}

fn wait_for<'a>(members: impl IntoIterator<Item = &'a MemberState>, why: String) -> PlanWait {
    let members = members.into_iter();
    PlanWait {
        members: members.map(|member| member.url.clone()).collect(),
        why,
        is_explained: true,
    }
}

fn urls<'a>(members: impl IntoIterator<Item = &'a MemberState>) -> String {
    let urls = members.into_iter().map(|member| member.url.as_str());
    urls.collect::<Vec<_>>().join(", ")
}

fn few_voters(members: &[MemberState]) -> Option<PlanWait> {
    let voters = members.iter();
    let voters = voters.filter(|member| member.status != MemberStatus::Joining);
    let (up, away): (Vec<&MemberState>, Vec<&MemberState>) = voters.partition(|it| it.is_up);
    let all = up.len() + away.len();
    (2 * up.len() <= all).then(|| {
        let why = format!(
            "{} of {all} voters can be reached from here, and a change of the members needs a \
             majority of them: start {}",
            up.len(),
            urls(away.iter().copied())
        );
        wait_for(away, why)
    })
}

/// A member to which positions move.
fn target(members: &[MemberState]) -> Option<PlanWait> {
    let mut targets = members.iter().filter(|member| member.arriving > 0);
    if let Some(away) = targets.clone().find(|member| !member.is_up) {
        let why = format!(
            "{} cannot be reached from here, and {} positions move to it: start it, or cancel the \
             plan",
            away.url, away.arriving
        );
        return Some(wait_for([away], why));
    }
    let full = targets.find(|member| member.is_disk_full)?;
    let why = format!(
        "the disk of {} is full, and {} positions move to it: make room there, or the plan is \
         stopped after {} s",
        full.url,
        full.arriving,
        FULL_DISK_PATIENCE_US / 1_000_000
    );
    Some(wait_for([full], why))
}

/// Members that a new owner has to load from, and does not reach. Patience with them is over, or
/// does not help.
fn source(
    record: &EpochRecord,
    members: &[MemberState],
    moving: &[Move],
    sights: WaitSights<'_>,
) -> Option<PlanWait> {
    // By new owner: the sources, and how many positions wait for them.
    let mut blocked: BTreeMap<MemberId, (BTreeSet<MemberId>, usize)> = BTreeMap::new();
    for step in moving {
        let Some(to) = step.moving.to else { continue };
        let Some(index) = sights.layout.index_of(to) else {
            continue;
        };
        let of = Sources::of(sights.layout, index, step.partition);
        let id = |member| sights.layout.id_of(member);
        let is_up = |member| id(member).is_some_and(|id| (sights.reaches)(to, id));
        let is_long = |member| id(member).is_some_and(|id| (sights.is_away_long)(id));
        if let Some(old) = of.old.map(|old| old.member)
            && (is_up(old) || !is_long(old))
        {
            continue;
        }
        let missing = of.missing(
            |member| is_up(*member),
            |member| !is_up(*member) && is_long(*member),
            |member| sights.layout.leaves(*member) && is_long(*member),
        );
        let away = missing.into_iter().flatten().filter(|it| !is_up(*it));
        let away: Vec<MemberId> = away.filter_map(id).collect();
        if !away.is_empty() {
            let (sources, positions) = blocked.entry(to).or_default();
            sources.extend(away);
            *positions += 1;
        }
    }
    let (to, (sources, positions)) = blocked.first_key_value()?;
    let to = &record.member(*to)?.place.url;
    let away = members.iter().filter(|it| sources.contains(&it.id));
    let why = format!(
        "{to} has to load {positions} positions from {}, which it does not reach: start what is \
         down and mend the network between them, or cancel the plan",
        urls(away.clone())
    );
    Some(wait_for(away, why))
}

/// A member that repairs records. A new owner says that of itself, too, while it loads.
fn damage(members: &[MemberState], moving: &[Move], horizons: &HorizonState) -> Option<PlanWait> {
    let source = |id: MemberId| members.iter().find(|it| it.id == id && it.arriving == 0);
    let mut held = horizons.held.iter().filter(|held| held.code == DAMAGE_CODE);
    let damaged = held.find_map(|held| source(held.member))?;
    if moving.iter().all(|step| step.moving.to.is_none()) {
        return None;
    }
    let url = &damaged.url;
    let is_lost = |member: &&MemberState| member.status == MemberStatus::Leaving && !member.is_up;
    let lost = members.iter().find(is_lost).map(|lost| {
        format!(
            "; if that repair waits for {}, `dendra cluster accept-loss {url}` at the admin port \
             of {url} shows what it costs to go on without it",
            lost.url
        )
    });
    let why = format!(
        "{url} repairs damaged records, and positions that load from it move once it has: its log \
         names them{}",
        lost.unwrap_or_default()
    );
    Some(wait_for([damaged], why))
}

/// An old owner that is away, and may be back in a moment.
fn patience(members: &[MemberState], moving: &[Move], sights: WaitSights<'_>) -> Option<PlanWait> {
    let away = moving.iter().find_map(|step| {
        let from = step.moving.to.and(step.moving.from)?;
        let from = members.iter().find(|it| it.id == from && !it.is_up)?;
        (!(sights.is_away_long)(from.id)).then_some(from)
    })?;
    let why = format!(
        "new owners wait up to {} s for {}, which cannot be reached from here; then they load from \
         the other owners",
        LOAD_PATIENCE_US_DEFAULT / 1_000_000,
        away.url
    );
    Some(wait_for([away], why))
}

/// Positions that are taken away, and nothing else moves.
fn fences(members: &[MemberState], moving: &[Move], sights: WaitSights<'_>) -> Option<PlanWait> {
    if moving.iter().any(|step| step.moving.to.is_some()) {
        return None;
    }
    let lacked = (sights.fences_lacked)();
    let lacked = members.iter().filter(|member| lacked.contains(&member.id));
    let names = urls(lacked.clone());
    (!names.is_empty()).then(|| {
        let why = format!(
            "{} positions are taken away once a majority of their owners has this epoch, and \
             {names} did not tell that yet: start what is down, or cancel the plan",
            moving.len()
        );
        wait_for(lacked, why)
    })
}

/// No other reason is known, and nothing moves.
fn nothing(
    record: &EpochRecord,
    members: &[MemberState],
    sights: WaitSights<'_>,
) -> Option<PlanWait> {
    if sights.quiet_us < PLAN_QUIET_US {
        return None;
    }
    let seconds = sights.quiet_us / 1_000_000;
    if let Some(target) = members.iter().find(|member| member.arriving > 0) {
        let why = format!(
            "{} has loaded no record for {seconds} s, and {} positions move to it: look at its \
             log, or cancel the plan",
            target.url, target.arriving
        );
        return Some(unexplained(wait_for([target], why)));
    }
    let is_behind = |member: &&MemberState| member.epoch < Some(record.epoch());
    let mut behind: Vec<&MemberState> = members.iter().filter(is_behind).collect();
    if behind.is_empty() {
        behind.extend(members.first());
    }
    let why = format!(
        "the next epoch was not chosen for {seconds} s: look at the log of {}",
        urls(behind.iter().copied())
    );
    Some(unexplained(wait_for(behind, why)))
}

fn unexplained(wait: PlanWait) -> PlanWait {
    PlanWait {
        is_explained: false,
        ..wait
    }
}
