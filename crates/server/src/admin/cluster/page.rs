//! Answers about the cluster as JSON.
//!
//! Invariants
//! 1. A number that is not known is `null`, and never 0.
//!
//! Not here: authorisation, statuses (`mod.rs`).
//! See: docs/openapi.yaml.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dendra_base::Space;
use dendra_node::WalkPart;
use dendra_node::steward::face::{
    AcceptedLoss, ClusterStatus, DraftStep, HistoryEntry, HorizonState, LossDraft, MemberState,
    PlanDraft, PlanState,
};
use dendra_node::topology::record::{EpochChange, MemberStatus};
use serde_json::{Map, Value, json};

/// The answer to `GET /v0/cluster`. `own` is the part that the asked member alone knows of itself.
pub(super) fn status(status: &ClusterStatus, own: &Value) -> Value {
    let members: Vec<Value> = status.members.iter().map(member).collect();
    let asked = status
        .members
        .iter()
        .find(|member| member.id == status.asked);
    json!({
        "cluster": status.cluster,
        "epoch": status.epoch,
        "asked": asked.map(|member| member.url.as_str()),
        "replication_factor": status.replication_factor,
        "partitions": status.partitions,
        "secrets": status.secrets,
        "version": status.version.0,
        "members": members,
        "removed": status.removed,
        "plan": status.plan.as_ref().map(plan),
        "horizons": horizons(&status.horizons),
        "own": own,
        "waits": status.waits.as_ref().map(|waits| waits.why.as_str()),
        "waits_for": status.waits.as_ref().map(|waits| waits.members.as_slice()),
        "load_bytes_per_second_max": status.load_bytes_per_second_max,
    })
}

fn horizons(state: &HorizonState) -> Value {
    let held = state.held.iter().map(|held| {
        json!({
            "url": held.url,
            "code": held.code,
            "why": held.why,
        })
    });
    json!({
        "every_seconds": state.every_us / 1_000_000,
        "floor_ms": state.floor_ms,
        "purge_ms": state.purge_ms,
        "narrowing_steps_left": state.narrowing_steps_left,
        "late": state.is_late,
        "held": held.collect::<Vec<_>>(),
    })
}

fn member(member: &MemberState) -> Value {
    json!({
        "number": member.id.0,
        "url": member.url,
        "weight": member.weight,
        "zone": member.zone,
        "status": word_of_status(member.status),
        "node": (member.node != 0).then(|| format!("{:032x}", member.node)),
        "up": member.is_up,
        "epoch": member.epoch,
        "positions": member.positions,
        "arriving": member.arriving,
        "release": member.release,
        "versions": member.versions.map(|known| [known.oldest.0, known.newest.0]),
        "stored_bytes": member.stored_bytes,
        "loaded_bytes": member.loaded_bytes,
        "load_bytes_per_second": member.load_bytes_per_second,
        "disk_full": member.is_disk_full,
        "restoring": member.is_restoring,
    })
}

fn plan(plan: &PlanState) -> Value {
    json!({
        "plan": plan.id,
        "author": plan.author.0,
        "cancelled": plan.is_cancelled,
        "replication_factor": plan.replication_factor,
        "moves": plan.moves,
        "done": plan.done,
        "moving": plan.moving,
        "bytes_left": plan.bytes_left,
        "bytes_per_second": plan.bytes_per_second,
        "since_ms": plan.since_ms,
        "seconds_left": plan.seconds_left,
    })
}

/// The answer to a plan that no member carries out yet.
pub(super) fn draft(draft: &PlanDraft) -> Value {
    let steps: Vec<Value> = draft.steps.iter().map(step).collect();
    json!({
        "plan": draft.id.to_string(),
        "epoch": draft.epoch,
        "replication_factor": draft.replication_factor,
        "leaves": draft.leaves,
        "moves": steps,
        "necessary": draft.necessary,
        "bytes": draft.bytes,
        "seconds": draft.seconds,
    })
}

fn step(step: &DraftStep) -> Value {
    json!({
        "partition": step.partition,
        "position": step.position,
        "from": step.from,
        "to": step.to,
        "bytes": step.bytes,
    })
}

/// The answer to a loss that no member accepts yet.
pub(super) fn loss(draft: &LossDraft) -> Value {
    json!({
        "confirm": draft.id.to_string(),
        "epoch": draft.epoch,
        "member": draft.member,
        "lost": draft.lost,
        "sources": draft.sources,
        "partitions": draft.partitions,
        "of_partitions": draft.of_partitions,
        "ranges": draft.ranges.iter().map(range).collect::<Vec<_>>(),
        "further_blocks": draft.further,
        "epochs": draft.epochs.map(|lost| json!({ "first": lost.first, "last": lost.last })),
        "means": draft.means(),
    })
}

/// A range of clients' keys. A bound that is no text is base64.
fn range(range: &WalkPart) -> Value {
    let of = match range.space {
        Space::Protocol => "conditional-writes",
        Space::Meta | Space::Hint | Space::User => "records",
    };
    let mut page = Map::from_iter([("of".to_owned(), of.into())]);
    let bounds = [("from", Some(&range.start)), ("to", range.last.as_ref())];
    for (name, bound) in bounds {
        match bound.map(|bound| (std::str::from_utf8(bound), bound)) {
            None => page.insert(name.to_owned(), Value::Null),
            Some((Ok(text), _)) => page.insert(name.to_owned(), text.into()),
            Some((Err(_), bound)) => {
                page.insert(format!("{name}_base64"), STANDARD.encode(bound).into())
            }
        };
    }
    Value::Object(page)
}

/// A loss that was accepted.
pub(super) fn accepted_loss(loss: &AcceptedLoss) -> Value {
    let lost = loss.without.iter().map(|(_, url)| url.as_str());
    json!({
        "confirm": loss.id.to_string(),
        "accepted_ms": loss.accepted_ms,
        "epoch": loss.epoch,
        "plan": loss.plan,
        "lost": lost.collect::<Vec<_>>(),
        "partitions": loss.partitions,
        "blocks": loss.blocks.len(),
    })
}

/// One epoch of the past.
pub(super) fn entry(entry: &HistoryEntry) -> Value {
    json!({
        "epoch": entry.epoch,
        "change": word_of_change(entry.change),
        "learnt_ms": entry.learnt_ms,
        "plan": entry.plan,
        "came": entry.came,
        "went": entry.went,
        "begun": entry.begun,
        "settled": entry.settled,
        "why": entry.why,
    })
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

    #[test]
    fn a_bound_of_a_range_is_text_base64_or_nothing() {
        let part = |space, start: &'static [u8], last: Option<&'static [u8]>| WalkPart {
            space,
            start: start.into(),
            last: last.map(Into::into),
        };
        let text = part(Space::User, b"a", Some("é".as_bytes()));
        let shown = json!({ "of": "records", "from": "a", "to": "é" });
        assert_eq!(range(&text), shown);
        let bytes = part(Space::Protocol, b"\xff", None);
        let shown = json!({ "of": "conditional-writes", "from_base64": "/w==", "to": null });
        assert_eq!(range(&bytes), shown);
    }
}
