//! The state of the cluster for operators, as one steward knows it.
//!
//! Invariants
//! 1. A value that a member has not told is `None`, never 0.
//! 2. No time is told while a plan waits, while nothing moves, or from too few bytes.
//!
//! Not here: the values (`face.rs`), why a plan waits (`waiting.rs`), text and JSON (crates
//! `server` and `dendra`).

use super::draft::PositionBytes;
use super::face::{ClusterStatus, HorizonState, MemberState, PlanState};
use super::loads::PlanLoads;
use super::messages::LoadGauges;
use super::waiting::{self, WaitSights};
use crate::epoch::record::{EpochMember, EpochRecord, PlanUnderWay};
use crate::limits::{ETA_BYTES_MIN, ETA_FRACTION, ETA_QUIET_US};
use crate::ring::table::{MemberId, Move};
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
    /// For so long no byte was loaded, and no epoch was adopted.
    pub(super) quiet_us: u64,
}

/// The last news of all members.
#[derive(Clone, Copy)]
pub(super) struct StatusSights<'a> {
    pub(super) news: &'a dyn Fn(MemberId) -> MemberNews,
    pub(super) loads: &'a PlanLoads,
    pub(super) waits: WaitSights<'a>,
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
    let waits = waiting::waits(record, &members, &moving, &horizons, sights.waits);
    let plan = record.plan().map(|plan| {
        let mut plan = plan_state(record, plan, &moving, times, sights);
        plan.seconds_left = plan.seconds_left.filter(|_| waits.is_none());
        plan
    });
    ClusterStatus {
        cluster: record.name().to_owned(),
        epoch: record.epoch(),
        asked: me,
        replication_factor: record.replication_factor(),
        partitions: record.partitions(),
        secrets: record.secrets(),
        version: record.in_force(),
        removed: record.removed().len(),
        plan,
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
    let loaded = record.members().iter();
    let loaded: u64 = loaded.map(|it| sights.loads.loaded(plan.id, it.id)).sum();
    let tells =
        |left| loaded >= ETA_BYTES_MIN.min((loaded + left) / ETA_FRACTION) && bytes_per_second > 0;
    // With no byte left something still moves: the estimate was too small.
    let seconds_left = match bytes_left.filter(|bytes| *bytes > 0) {
        Some(bytes) => tells(bytes).then(|| bytes.div_ceil(bytes_per_second)),
        None => by_moves,
    };
    let seconds_left = seconds_left.filter(|_| times.quiet_us < ETA_QUIET_US);
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
