//! Pages of the admin plane about a cluster, as the server fills them and the command line reads
//! them.
//!
//! ```text
//! ClusterStatus, PlanDraft, … (crate node) ─► page ─► JSON ─► page ─► words (crate dendra)
//! ```
//!
//! Invariants
//! 1. A number that is not known is `null`, and never 0.
//! 2. Both ends are of one release: there is none before this one.
//!
//! Not here: authorisation, statuses (`cluster/mod.rs`), words (crate `dendra`, `cluster/`).
//! See: docs/openapi.yaml.

#![expect(missing_docs, reason = "docs/openapi.yaml describes each field")]

use super::exposition::scrub_age_s;
use crate::clock;
use crate::event_loop::parts::NodeParts;
use crate::health::{HealthFinding, HealthMemory, MemberFacts, Severity};
use crate::member::{Cluster, LookSeen, LookState};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dendra_base::Space;
use dendra_engine::ScrubStats;
use dendra_node::{Comparisons, CopyDifference, PairLook, PairState};
use dendra_ownership::MemberIndex;
use dendra_ownership::epoch::record::{EpochChange, MemberStatus};
use dendra_ownership::loss::WalkPart;
use dendra_ownership::steward::face::{
    AcceptedLoss, ClusterStatus, DraftStep, HistoryEntry, HorizonHeld, HorizonState, LossDraft,
    LostEpochs, MemberState, PlanDraft, PlanState,
};
use dendra_wire::percent;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Declares pages: each field with its name in JSON, its type, and how it is filled.
macro_rules! pages {
    ($($(#[$of_page:meta])* $name:ident from $it:tt: $source:ty {
        $($(#[$of_field:meta])* $field:ident: $type:ty = $value:expr,)*
    })*) => {$(
        #[derive(Clone, Debug, Default, Serialize, Deserialize)]
        $(#[$of_page])*
        pub struct $name { $($(#[$of_field])* pub $field: $type,)* }

        impl From<$source> for $name {
            fn from($it: $source) -> $name {
                $name { $($field: $value,)* }
            }
        }
    )*};
}

pages! {
    /// Answer to `GET /v0/cluster`, with the part that the asked member alone knows of itself.
    ClusterPage from (it, own): (&ClusterStatus, Option<OwnPage>) {
        cluster: String = it.cluster.clone(),
        epoch: u64 = it.epoch,
        asked: Option<String> = asked(it),
        replication_factor: u8 = it.replication_factor,
        partitions: u16 = it.partitions,
        #[serde(default)] secrets: u32 = it.secrets,
        #[serde(default)] version: u16 = it.version.0,
        members: Vec<MemberPage> = all(&it.members),
        #[serde(default)] removed: usize = it.removed,
        plan: Option<PlanPage> = it.plan.as_ref().map(PlanPage::from),
        horizons: Option<HorizonsPage> = Some((&it.horizons).into()),
        own: Option<OwnPage> = own,
        waits: Option<String> = it.waits.as_ref().map(|waits| waits.why.clone()),
        waits_for: Option<Vec<String>> = it.waits.as_ref().map(|waits| waits.members.clone()),
        #[serde(default)] load_bytes_per_second_max: u64 = it.load_bytes_per_second_max,
    }

    /// Answer to `GET /v0/health`.
    HealthPage from (findings, members, memory): HealthSources<'_> {
        health: String = word_of_health(findings).to_owned(),
        version: String = env!("CARGO_PKG_VERSION").to_owned(),
        member: Option<String> = members.map(|members| members.own.clone()),
        others: Vec<ReachedPage> = members.map(|it| all(&it.others)).unwrap_or_default(),
        findings: Vec<FindingPage> = findings.iter().map(|it| (it, memory).into()).collect(),
    }

    /// Another member, and whether it is reached.
    ReachedPage from (url, is_up): &(String, bool) {
        url: String = url.clone(),
        up: bool = *is_up,
    }

    /// One thing that is wrong.
    FindingPage from (it, memory): (&HealthFinding, Option<&HealthMemory>) {
        kind: String = it.kind.as_str().to_owned(),
        severity: String = it.kind.severity().as_str().to_owned(),
        of: String = it.of.clone(),
        sentence: String = it.sentence.clone(),
        command: String = it.way_out.clone(),
        since_ms: Option<u64> = memory.and_then(|memory| memory.since_ms(it)),
    }

    /// A member, as another one knows it.
    #[serde(default)]
    MemberPage from it: &MemberState {
        number: u32 = it.id.0,
        url: String = it.url.clone(),
        weight: u16 = it.weight,
        zone: String = it.zone.clone(),
        status: String = word_of_status(it.status).to_owned(),
        node: Option<String> = (it.node != 0).then(|| format!("{:032x}", it.node)),
        up: bool = it.is_up,
        epoch: Option<u64> = it.epoch,
        positions: usize = it.positions,
        arriving: usize = it.arriving,
        release: Option<String> = it.release.clone(),
        versions: Option<[u16; 2]> = it.versions.map(|known| [known.oldest.0, known.newest.0]),
        stored_bytes: Option<u64> = it.stored_bytes,
        loaded_bytes: Option<u64> = it.loaded_bytes,
        load_bytes_per_second: Option<u64> = it.load_bytes_per_second,
        disk_full: bool = it.is_disk_full,
        restoring: Option<bool> = it.is_restoring,
    }

    /// How far the plan under way is.
    #[serde(default)]
    PlanPage from it: &PlanState {
        plan: u64 = it.id,
        author: u32 = it.author.0,
        cancelled: bool = it.is_cancelled,
        replication_factor: u8 = it.replication_factor,
        moves: usize = it.moves,
        done: usize = it.done,
        moving: usize = it.moving,
        bytes_left: Option<u64> = it.bytes_left,
        bytes_per_second: u64 = it.bytes_per_second,
        since_ms: u64 = it.since_ms,
        seconds_left: Option<u64> = it.seconds_left,
    }

    /// Up to when deletes and ended values are purged.
    #[serde(default)]
    HorizonsPage from it: &HorizonState {
        every_seconds: u64 = it.every_us / 1_000_000,
        floor_ms: Option<u64> = it.floor_ms,
        purge_ms: Option<u64> = it.purge_ms,
        narrowing_steps_left: u8 = it.narrowing_steps_left,
        late: bool = it.is_late,
        held: Vec<HeldPage> = all(&it.held),
    }

    /// Why a member holds the horizons back.
    HeldPage from it: &HorizonHeld {
        url: String = it.url.clone(),
        code: String = it.code.to_owned(),
        why: String = it.why.clone(),
    }

    /// The part that a member alone knows of itself.
    OwnPage from (parts, cluster): (&NodeParts, &Cluster) {
        hints: HintsPage = cluster.into(),
        comparisons: Vec<ComparisonPage> = comparisons(cluster),
        scrub: ScrubPage = (parts.store.engine.stats().scrub, parts).into(),
    }

    /// Writes that are kept for members that are away.
    #[serde(default)]
    HintsPage from it: &Cluster {
        bytes: u64 = it.upkeep.hints.bytes(),
        kept: u64 = it.upkeep.hints.kept(),
        dropped: u64 = it.upkeep.hints.dropped(),
        delivered: u64 = it.upkeep.hints.delivered(),
    }

    /// How far comparisons with another member are.
    #[serde(default)]
    ComparisonPage from (it, (member, url)): (&Comparisons, (MemberIndex, String)) {
        url: String = url,
        age_seconds: Option<u64> = it.full_age_s(member, clock::monotonic_us()),
        sent: u64 = it.sent(member),
        fetched: u64 = it.fetched(member),
    }

    /// How far comparisons are.
    ComparisonsPage from it: &Cluster {
        bytes_per_second: u64 = compare_speed(it),
        read_bytes: u64 = it.upkeep.comparisons.read_bytes(),
        moved_bytes: u64 = it.upkeep.comparisons.moved_bytes(),
        promises: u64 = it.upkeep.comparisons.promises(),
        left_out: u64 = it.upkeep.comparisons.left_out(),
        peers: Vec<ComparisonPage> = comparisons(it),
    }

    /// How far scrubs are.
    #[serde(default)]
    ScrubPage from (it, parts): (ScrubStats, &NodeParts) {
        bytes: u64 = it.bytes,
        blocks: u64 = it.blocks,
        spots_found: u64 = it.spots_found,
        spots_mended: u64 = it.spots_mended,
        spans_lost: usize = parts.store.engine.damaged_spans().len(),
        waits_for: Vec<RepairPage> = waiting_repairs(parts),
        is_under_way: bool = it.began_ms > 0,
        full_age_seconds: Option<u64> = scrub_age_s(&it),
    }

    /// For how many damaged blocks the repair waits for a member.
    RepairPage from (url, spans): (String, u64) {
        url: String = url,
        spans: u64 = spans,
    }

    /// A plan that no member carries out yet.
    DraftPage from it: &PlanDraft {
        plan: String = it.id.to_string(),
        epoch: u64 = it.epoch,
        #[serde(default)] replication_factor: u8 = it.replication_factor,
        leaves: Vec<String> = it.leaves.clone(),
        moves: Vec<StepPage> = all(&it.steps),
        necessary: usize = it.necessary,
        bytes: Option<u64> = it.bytes,
        seconds: Option<u64> = it.seconds,
    }

    /// A move of a plan.
    #[serde(default)]
    StepPage from it: &DraftStep {
        partition: u16 = it.partition,
        position: u8 = it.position,
        from: Option<String> = it.from.clone(),
        to: Option<String> = it.to.clone(),
        bytes: Option<u64> = it.bytes,
    }

    /// Order that is done.
    DonePage from epoch: u64 {
        epoch: u64 = epoch,
    }

    /// A loss that no member accepts yet.
    LossPage from it: &LossDraft {
        confirm: String = it.id.to_string(),
        #[serde(default)] epoch: u64 = it.epoch,
        member: String = it.member.clone(),
        lost: Vec<String> = it.lost.clone(),
        sources: Vec<String> = it.sources.clone(),
        partitions: Vec<u16> = it.partitions.clone(),
        of_partitions: u16 = it.of_partitions,
        ranges: Vec<RangePage> = all(&it.ranges),
        #[serde(default)] further_blocks: usize = it.further,
        epochs: Option<EpochsPage> = it.epochs.map(EpochsPage::from),
        means: String = it.means(),
    }

    /// A range of clients' keys.
    RangePage from it: &WalkPart {
        of: String = word_of_space(it.space).to_owned(),
        /// Values of `from` and `to`; a bound that is no text is base64, under another name.
        #[serde(flatten)] bounds: BTreeMap<String, Option<String>> = bounds(it),
    }

    /// Epochs that the folder of a lone member has lost.
    EpochsPage from it: LostEpochs {
        first: u64 = it.first,
        last: u64 = it.last,
    }

    /// Epochs of the past, and losses that were accepted; the newest first.
    HistoryPage from (epochs, losses): (&[HistoryEntry], &[AcceptedLoss]) {
        epochs: Vec<EntryPage> = all(epochs),
        #[serde(default)] losses: Vec<AcceptedLossPage> = all(losses),
    }

    /// One epoch of the past.
    EntryPage from it: &HistoryEntry {
        epoch: u64 = it.epoch,
        change: String = word_of_change(it.change).to_owned(),
        learnt_ms: u64 = it.learnt_ms,
        plan: Option<u64> = it.plan,
        came: Vec<String> = it.came.clone(),
        went: Vec<String> = it.went.clone(),
        begun: usize = it.begun,
        settled: usize = it.settled,
        why: Option<String> = it.why.clone(),
    }

    /// A loss that was accepted.
    AcceptedLossPage from it: &AcceptedLoss {
        confirm: String = it.id.to_string(),
        accepted_ms: u64 = it.accepted_ms,
        epoch: u64 = it.epoch,
        plan: u64 = it.plan,
        lost: Vec<String> = it.without.iter().map(|(_, url)| url.clone()).collect(),
        partitions: u16 = it.partitions,
        blocks: usize = it.blocks.len(),
    }

    /// How far a look for copies that differ is.
    LookPage from (cluster, it): (&Cluster, &LookSeen) {
        look: String = format!("{:016x}", it.report.id),
        member: String = cluster.own_url(),
        state: String = word_of_look(it.state).to_owned(),
        with: Vec<PairPage> = it.report.pairs.iter().map(|it| (cluster, it).into()).collect(),
    }

    /// How far a look at the copies of two members is.
    PairPage from (cluster, it): (&Cluster, &PairLook) {
        url: String = cluster.url(it.peer),
        state: String = word_of_pair(it.state).to_owned(),
        read_bytes: u64 = it.bytes,
        left_out: u64 = it.left_out,
        differ: DifferPage = it.into(),
        examples: Vec<ExamplePage> = all(&it.examples),
    }

    /// How many keys differ, by kind: the names are those of [`CopyDifference::code`].
    DifferPage from it: &PairLook {
        newer_here: u64 = it.count(CopyDifference::NewerHere),
        newer_there: u64 = it.count(CopyDifference::NewerThere),
        missing_here: u64 = it.count(CopyDifference::MissingHere),
        missing_there: u64 = it.count(CopyDifference::MissingThere),
        other_content: u64 = it.count(CopyDifference::Content),
        promises: u64 = it.count(CopyDifference::Promise),
    }

    /// A key whose copies differ.
    ExamplePage from (key, kind): &(Bytes, CopyDifference) {
        key: String = percent::encode(key),
        difference: String = kind.code().to_owned(),
    }
}

/// The findings of a node, what it knows of other members, and since when.
type HealthSources<'a> = (
    &'a [HealthFinding],
    Option<&'a MemberFacts>,
    Option<&'a HealthMemory>,
);

fn word_of_health(findings: &[HealthFinding]) -> &'static str {
    let severities = findings.iter().map(|it| it.kind.severity());
    Severity::word(severities.max())
}

/// The page as JSON.
pub(super) fn json_of(page: impl Serialize) -> Value {
    serde_json::to_value(page).expect("a page has names as keys")
}

fn all<'a, Source, Page: From<&'a Source>>(sources: &'a [Source]) -> Vec<Page> {
    sources.iter().map(Page::from).collect()
}

fn asked(status: &ClusterStatus) -> Option<String> {
    let mut members = status.members.iter();
    let asked = members.find(|member| member.id == status.asked);
    asked.map(|member| member.url.clone())
}

fn comparisons(cluster: &Cluster) -> Vec<ComparisonPage> {
    let others = cluster.other_members().into_iter();
    others
        .map(|other| (&*cluster.upkeep.comparisons, other).into())
        .collect()
}

/// Bytes a second that comparisons of this member read now, or may read.
fn compare_speed(cluster: &Cluster) -> u64 {
    let upkeep = &cluster.upkeep;
    let most = upkeep.compare_bytes_per_second;
    upkeep.comparisons.speed().max(most)
}

fn waiting_repairs(parts: &NodeParts) -> Vec<RepairPage> {
    let cluster = parts.cluster.iter();
    let waiting = cluster.flat_map(|cluster| cluster.waiting_repairs(&parts.store.engine));
    waiting.map(RepairPage::from).collect()
}

fn bounds(range: &WalkPart) -> BTreeMap<String, Option<String>> {
    let bounds = [("from", Some(&range.start)), ("to", range.last.as_ref())];
    let bounds = bounds.map(|(name, bound)| match bound {
        None => (name.to_owned(), None),
        Some(bound) => match std::str::from_utf8(bound) {
            Ok(text) => (name.to_owned(), Some(text.to_owned())),
            Err(_) => (format!("{name}_base64"), Some(STANDARD.encode(bound))),
        },
    });
    bounds.into()
}

fn word_of_look(state: LookState) -> &'static str {
    match state {
        LookState::Running => "running",
        LookState::Ended => "ended",
        LookState::GivenUp => "given-up",
    }
}

fn word_of_pair(state: PairState) -> &'static str {
    match state {
        PairState::Waiting => "waiting",
        PairState::UnderWay => "running",
        PairState::Compared => "compared",
        PairState::Unreached => "unreached",
    }
}

fn word_of_space(space: Space) -> &'static str {
    match space {
        Space::Protocol => "conditional-writes",
        Space::Meta | Space::Hint | Space::User => "records",
    }
}

fn word_of_status(status: MemberStatus) -> &'static str {
    match status {
        MemberStatus::Joining => "joining",
        MemberStatus::Member => "member",
        MemberStatus::Leaving => "leaving",
    }
}

fn word_of_change(change: EpochChange) -> &'static str {
    match change {
        EpochChange::Founded => "founded",
        EpochChange::Enrolled => "enrolled",
        EpochChange::Planned => "planned",
        EpochChange::Moved => "moved",
        EpochChange::Cancelled => "cancelled",
        EpochChange::Finished => "finished",
        EpochChange::Readdressed => "readdressed",
        EpochChange::Rekeyed => "rekeyed",
        EpochChange::Finalized => "finalized",
        EpochChange::Forgot => "forgot",
        EpochChange::Restored => "restored",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_bound_of_a_range_is_text_base64_or_nothing() {
        let part = |space, start: &'static [u8], last: Option<&'static [u8]>| WalkPart {
            space,
            start: start.into(),
            last: last.map(Into::into),
        };
        let text = part(Space::User, b"a", Some("é".as_bytes()));
        let shown = json!({ "of": "records", "from": "a", "to": "é" });
        assert_eq!(json_of(RangePage::from(&text)), shown);
        let bytes = part(Space::Protocol, b"\xff", None);
        let shown = json!({ "of": "conditional-writes", "from_base64": "/w==", "to": null });
        assert_eq!(json_of(RangePage::from(&bytes)), shown);
    }
}
