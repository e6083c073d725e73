//! The state of the cluster for operators, as one steward knows it.
//!
//! Invariants
//! 1. A value that a member has not told is `None`, never 0.
//!
//! Not here: the values (`face.rs`), text and JSON (crates `server` and `dendra`).

use super::draft::PositionBytes;
use super::face::{ClusterStatus, HorizonState, MemberState, PlanState};
use super::loads::PlanLoads;
use super::messages::LoadGauges;
use crate::forgetting::DAMAGE_CODE;
use crate::limits::{FULL_DISK_PATIENCE_US, LOAD_PATIENCE_US_DEFAULT};
use crate::ring::table::{MemberId, Move};
use crate::topology::record::{EpochMember, EpochRecord, MemberStatus, PlanUnderWay};
use dendra_base::ClusterVersions;

/// The last news of a member; the steward's own member has an entry, too.
#[derive(Clone, Debug, Default)]
pub(super) struct MemberNews {
    pub(super) is_up: bool,
    pub(super) epoch: Option<u64>,
    pub(super) gauges: Option<LoadGauges>,
    pub(super) release: Option<String>,
    pub(super) versions: Option<ClusterVersions>,
    pub(super) is_disk_full: bool,
    pub(super) is_restoring: Option<bool>,
}

/// Wall clock, and when the plan was learnt.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlanTimes {
    pub(super) now_ms: u64,
    pub(super) since_ms: u64,
}

/// The last news of all members.
#[derive(Clone, Copy)]
pub(super) struct StatusSights<'a> {
    pub(super) news: &'a dyn Fn(MemberId) -> MemberNews,
    pub(super) loads: &'a PlanLoads,
}

/// The state of the cluster.
pub(super) fn status(
    record: &EpochRecord,
    (me, load_bytes_per_second_max): (MemberId, u64),
    times: PlanTimes,
    horizons: HorizonState,
    sights: StatusSights<'_>,
) -> ClusterStatus {
    let moving: Vec<Move> = record
        .owners()
        .all()
        .filter_map(|p| record.moving(p))
        .collect();
    let members = record.members().iter();
    let members = members.map(|member| state(record, member, &moving, (sights.news)(member.id)));
    let members: Vec<MemberState> = members.collect();
    let waits = waits(record, &members, &moving, (times, &horizons));
    ClusterStatus {
        cluster: record.name().to_owned(),
        epoch: record.epoch(),
        asked: me,
        replication_factor: record.replication_factor(),
        partitions: record.partitions(),
        secrets: record.secrets(),
        version: record.in_force(),
        removed: record.removed().len(),
        plan: record
            .plan()
            .map(|plan| plan_state(record, plan, &moving, times, sights)),
        horizons,
        waits,
        load_bytes_per_second_max,
        members,
    }
}

fn state(
    record: &EpochRecord,
    member: &EpochMember,
    moving: &[Move],
    news: MemberNews,
) -> MemberState {
    let arriving = moving.iter();
    let arriving = arriving.filter(|step| step.moving.to == Some(member.id));
    MemberState {
        id: member.id,
        url: member.place.url.clone(),
        weight: member.place.weight,
        zone: member.place.zone.clone(),
        status: member.status,
        node: member.node,
        is_up: news.is_up,
        epoch: news.epoch,
        positions: record.owners().load(member.id, u8::MAX),
        arriving: arriving.count(),
        release: news.release,
        versions: news.versions,
        stored_bytes: news.gauges.map(|gauges| gauges.stored_bytes),
        loaded_bytes: news.gauges.map(|gauges| gauges.loaded_bytes),
        load_bytes_per_second: news.gauges.map(|gauges| gauges.bytes_per_second),
        is_disk_full: news.is_disk_full,
        is_restoring: news.is_restoring,
    }
}

fn plan_state(
    record: &EpochRecord,
    plan: &PlanUnderWay,
    moving: &[Move],
    times: PlanTimes,
    sights: StatusSights<'_>,
) -> PlanState {
    let bytes_left = bytes_left(record, plan, moving, sights);
    let rate = |member: &EpochMember| {
        let news = (sights.news)(member.id);
        // Gauges that a member told before it went away are no longer valid.
        let gauges = news.gauges.filter(|_| news.is_up);
        gauges.map_or(0, |gauges| gauges.bytes_per_second)
    };
    let bytes_per_second: u64 = record.members().iter().map(rate).sum();
    let done = plan.begun.saturating_sub(moving.len());
    let moves = plan.moves.len();
    let elapsed_ms = times.now_ms.saturating_sub(times.since_ms);
    let by_moves = (done > 0 && elapsed_ms > 0)
        .then(|| elapsed_ms.saturating_mul((moves - done) as u64) / done as u64 / 1_000);
    // With no byte left something still moves: the estimate was too small.
    let seconds_left = match bytes_left.filter(|bytes| *bytes > 0) {
        Some(bytes) => (bytes_per_second > 0).then(|| bytes.div_ceil(bytes_per_second)),
        None => by_moves,
    };
    PlanState {
        id: plan.id,
        author: plan.author,
        is_cancelled: plan.is_cancelled,
        replication_factor: plan.replication_factor,
        moves,
        done,
        moving: moving.len(),
        bytes_left,
        bytes_per_second,
        since_ms: times.since_ms,
        seconds_left,
    }
}

/// About how many bytes are still to be copied. Positions move side by side and arrive together, so
/// that a member's bytes tell more than its arrivals.
fn bytes_left(
    record: &EpochRecord,
    plan: &PlanUnderWay,
    moving: &[Move],
    sights: StatusSights<'_>,
) -> Option<u64> {
    let stored = |member| Some((sights.news)(member).gauges?.stored_bytes);
    let bytes = PositionBytes::of(record, stored);
    let bytes_of = |steps: &[Move], member: MemberId| -> Option<u64> {
        let steps = steps.iter().filter(|step| step.moving.to == Some(member));
        steps.map(|step| bytes.of_copy(record, step)).sum()
    };
    let left_of = |member: &EpochMember| -> Option<u64> {
        let begun = bytes_of(&plan.moves[..plan.begun], member.id)?;
        let loaded = sights.loads.loaded(plan.id, member.id);
        let under_way = begun.saturating_sub(loaded);
        let under_way = under_way.min(bytes_of(moving, member.id)?);
        Some(under_way + bytes_of(plan.left(), member.id)?)
    };
    record.members().iter().map(left_of).sum()
}

/// Why a plan, or the enrolment of founders, does not go on.
fn waits(
    record: &EpochRecord,
    members: &[MemberState],
    moving: &[Move],
    (times, horizons): (PlanTimes, &HorizonState),
) -> Option<String> {
    let voters: Vec<&MemberState> = members
        .iter()
        .filter(|member| member.status != MemberStatus::Joining)
        .collect();
    let up = voters.iter().filter(|member| member.is_up).count();
    if 2 * up <= voters.len() {
        return Some(format!(
            "{up} of {} voters can be reached from here, and a change of the members needs a \
             majority of them",
            voters.len()
        ));
    }
    if let Some(unknown) = members.iter().find(|member| member.node == 0) {
        return Some(format!(
            "the folder of {} is not known yet: start that member",
            unknown.url
        ));
    }
    record.plan()?;
    let is_waited_for = |member: &&MemberState| member.arriving > 0 && !member.is_up;
    if let Some(away) = members.iter().find(is_waited_for) {
        return Some(format!(
            "{} cannot be reached from here, and {} positions move to it: start it, or cancel the \
             plan",
            away.url, away.arriving
        ));
    }
    let is_full = |member: &&MemberState| member.arriving > 0 && member.is_disk_full;
    if let Some(full) = members.iter().find(is_full) {
        return Some(format!(
            "the disk of {} is full, and {} positions move to it: make room there, or the plan is \
             stopped after {} s",
            full.url,
            full.arriving,
            FULL_DISK_PATIENCE_US / 1_000_000
        ));
    }
    // A new owner says that of itself, too, while it loads.
    let is_source = |id: MemberId| members.iter().any(|one| one.id == id && one.arriving == 0);
    let mut held = horizons.held.iter();
    let damaged = held.find(|held| held.code == DAMAGE_CODE && is_source(held.member));
    if let Some(damaged) = damaged.filter(|_| moving.iter().any(|step| step.moving.to.is_some())) {
        let (url, mut members) = (&damaged.url, members.iter());
        let is_lost =
            |member: &&MemberState| member.status == MemberStatus::Leaving && !member.is_up;
        let lost = members.find(is_lost).map(|lost| {
            format!(
                "; if that repair waits for {}, `dendra cluster accept-loss {url}` at the admin port \
                 of {url} shows what it costs to go on without it",
                lost.url
            )
        });
        return Some(format!(
            "{url} repairs damaged records, and positions that load from it move once it has: its \
             log names them{}",
            lost.unwrap_or_default()
        ));
    }
    let is_lost = |step: &&Move| {
        let from = members.iter().find(|one| Some(one.id) == step.moving.from);
        step.moving.to.is_some() && from.is_some_and(|from| !from.is_up)
    };
    let patience_ms = LOAD_PATIENCE_US_DEFAULT / 1_000;
    if times.now_ms < times.since_ms + patience_ms
        && let Some(lost) = moving.iter().find(is_lost)
        && let Some(lost) = lost.moving.from.and_then(|from| record.member(from))
    {
        return Some(format!(
            "new owners wait up to {} s for {}, which cannot be reached from here; then they load \
             from the other owners",
            patience_ms / 1_000,
            lost.place.url
        ));
    }
    let shrinking = moving.iter().filter(|step| step.moving.to.is_none());
    let count = shrinking.count();
    (count > 0 && count == moving.len()).then(|| {
        format!("{count} positions are taken away once a majority of their owners has this epoch")
    })
}
