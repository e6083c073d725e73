//! The order that accepts a loss: shown, confirmed, refused.

use crate::town::{Town, joiner, url};
use dendra_base::Space;
use dendra_ownership::confirmed::HeldBack;
use dendra_ownership::limits::{LOAD_PATIENCE_US_DEFAULT, LOSSES_KEPT_MAX};
use dendra_ownership::loss::WalkPart;
use dendra_ownership::loss::{NoLoss, RepairLoss};
use dendra_ownership::ring::Partition;
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::steward::face::{
    AcceptedLoss, ClusterAnswer, ClusterOrder, DraftId, LossDraft,
};
use dendra_ownership::steward::step::StewardEvent;

/// The second of three members is lost and is being replaced.
fn town() -> Town {
    let mut town = Town::found(3, 3);
    town.stop(MemberId(1));
    town.is_loading = false;
    let mut request = joiner(3);
    request.replaces = Some(url(1));
    town.join(0, &request);
    town.pass(2_000_000);
    assert!(town.record(2).plan().is_some());
    town
}

fn loss(blocks: &[u64]) -> RepairLoss {
    RepairLoss {
        blocks: blocks.to_vec(),
        ranges: vec![WalkPart {
            space: Space::User,
            start: b"b"[..].into(),
            last: Some(b"d"[..].into()),
        }],
        further: 0,
        partitions: [Partition(0), Partition(7)].into(),
        without: [MemberId(1)].into(),
        sources: [MemberId(0)].into(),
    }
}

/// The third member says of its damage this, and is given the order.
fn order(
    town: &mut Town,
    loss: Result<RepairLoss, NoLoss>,
    confirm: Option<DraftId>,
) -> ClusterAnswer {
    town.tell(MemberId(2), StewardEvent::Damaged { loss });
    let member = "http://H2:8080/".to_owned();
    let answer = town.order(2, ClusterOrder::AcceptLoss { member, confirm });
    answer.expect("an answer at once")
}

fn shown(town: &mut Town, loss: RepairLoss) -> LossDraft {
    match order(town, Ok(loss), None) {
        ClusterAnswer::Loss(draft) => *draft,
        other => panic!("{other:?}"),
    }
}

fn code(answer: ClusterAnswer) -> &'static str {
    match answer {
        ClusterAnswer::Declined(declined) => declined.code(),
        other => panic!("{other:?}"),
    }
}

fn accepted(town: &Town) -> Vec<AcceptedLoss> {
    town.houses[&MemberId(2)].accepted.clone()
}

#[test]
fn a_loss_is_shown_and_then_accepted_by_the_name_of_what_was_shown() {
    let mut town = town();
    let draft = shown(&mut town, loss(&[5, 6]));
    assert_eq!(draft.member, url(2));
    assert_eq!(draft.lost, [url(1)]);
    assert_eq!(draft.sources, [url(0)]);
    assert_eq!(
        (draft.partitions.as_slice(), draft.of_partitions),
        (&[0, 7][..], 256)
    );
    let means = draft.means();
    assert!(
        means.contains("only http://h2:8080 and http://h1:8080 held"),
        "{means}"
    );
    assert_eq!(accepted(&town), [], "it was only shown");

    let epoch = town.record(2).epoch();
    let done = ClusterAnswer::Done { epoch };
    assert_eq!(order(&mut town, Ok(loss(&[5, 6])), Some(draft.id)), done);
    let all = accepted(&town);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].blocks, [5, 6]);
    assert_eq!(all[0].without, [(MemberId(1), url(1))]);
    assert_eq!((all[0].epoch, all[0].partitions), (epoch, 2));
    assert_eq!(town.record(0).epoch(), epoch, "no epoch comes of it");

    // The answer was lost, and the order comes again while the repair runs, or after it.
    for why in [NoLoss::Accepted, NoLoss::NoDamage] {
        assert_eq!(order(&mut town, Err(why.clone()), Some(draft.id)), done);
        let again = order(&mut town, Err(why), Some(DraftId(draft.id.0 + 1)));
        assert!(matches!(again, ClusterAnswer::Declined(_)));
    }
    assert_eq!(accepted(&town).len(), 1);
    let history = town.order(2, ClusterOrder::History { entries: 5 });
    let Some(ClusterAnswer::History { losses, .. }) = history else {
        panic!("a history");
    };
    assert_eq!(losses, all);
}

#[test]
fn no_confirmation_is_good_for_another_loss() {
    let mut town = town();
    let shown_id = shown(&mut town, loss(&[5])).id;
    let others = [
        loss(&[6]),
        loss(&[5, 6]),
        RepairLoss {
            partitions: [Partition(0)].into(),
            ..loss(&[5])
        },
        RepairLoss {
            without: [MemberId(0), MemberId(1)].into(),
            sources: [].into(),
            ..loss(&[5])
        },
        RepairLoss {
            sources: [MemberId(0), MemberId(3)].into(),
            ..loss(&[5])
        },
    ];
    for other in others {
        let answer = order(&mut town, Ok(other), Some(shown_id));
        assert_eq!(code(answer), "other-loss");
    }
    // The plan was stopped, and the member is replaced once more.
    town.done(0, ClusterOrder::Cancel);
    town.pass(10_000_000);
    assert!(town.record(2).plan().is_none());
    let mut request = joiner(4);
    request.replaces = Some(url(1));
    town.join(0, &request);
    town.pass(2_000_000);
    let answer = order(&mut town, Ok(loss(&[5])), Some(shown_id));
    assert_eq!(code(answer), "other-loss");
    assert_eq!(accepted(&town), []);
}

#[test]
fn an_order_without_need_is_refused_with_its_reason() {
    let mut town = town();
    let member = MemberId(0);
    let rows = [
        (NoLoss::NoDamage, "no-damage"),
        (NoLoss::NotNeeded, "not-needed"),
        (NoLoss::Accepted, "loss-accepted"),
        (NoLoss::Away { member }, "member-away"),
        (NoLoss::Unreadable { member }, "unreadable-copies"),
        (NoLoss::NoCopy, "no-copy-left"),
        (NoLoss::DamagedToo { member }, "damaged-too"),
        (NoLoss::NotKnown, "not-known-yet"),
    ];
    for (why, expected) in rows {
        let names_other = matches!(
            why,
            NoLoss::Away { .. } | NoLoss::Unreadable { .. } | NoLoss::DamagedToo { .. }
        );
        let ClusterAnswer::Declined(declined) = order(&mut town, Err(why), None) else {
            panic!("{expected}");
        };
        assert_eq!(declined.code(), expected);
        let said = declined.to_string();
        assert_eq!(said.contains(&url(0)), names_other, "{said}");
    }
    let mut to = |member: &str| {
        let member = member.to_owned();
        town.declined(
            2,
            ClusterOrder::AcceptLoss {
                member,
                confirm: None,
            },
        )
    };
    let other = to("http://h0:8080");
    assert!(
        other.starts_with("other-member: only http://h0:8080 knows"),
        "{other}"
    );
    let stranger = to("http://h9:8080");
    assert!(stranger.starts_with("not-a-member: "), "{stranger}");
}

#[test]
fn the_last_accepted_losses_are_remembered() {
    let mut town = town();
    for block in 0..LOSSES_KEPT_MAX as u64 + 2 {
        let id = shown(&mut town, loss(&[block])).id;
        let answer = order(&mut town, Ok(loss(&[block])), Some(id));
        assert!(matches!(answer, ClusterAnswer::Done { .. }));
    }
    let kept = town.steward(2).losses();
    assert_eq!(kept.len(), LOSSES_KEPT_MAX);
    assert_eq!(
        (kept[0].blocks[0], kept[LOSSES_KEPT_MAX - 1].blocks[0]),
        (2, 17)
    );
}

#[test]
fn a_replacement_at_the_same_address_that_loads_is_no_damaged_source() {
    let mut town = Town::forgetting(3);
    town.is_loading = false;
    town.stop(MemberId(1));
    let mut request = joiner(3);
    request.place.url = url(1);
    request.replaces = Some(url(1));
    let new = town.join(0, &request);
    town.pass(2_000_000);
    // A new owner says that of itself while it loads.
    town.forgets(new.0, Some(HeldBack::Damage), 0);
    town.pass(LOAD_PATIENCE_US_DEFAULT);
    let status = town.status(0);
    let held = status.horizons.held.iter();
    let of_url: Vec<_> = held.filter(|held| held.url == url(1)).collect();
    assert!(
        of_url
            .iter()
            .any(|held| held.member == new && held.code == "damage")
    );
    assert_eq!(status.waits, None);
}

#[test]
fn a_plan_that_waits_for_damage_and_a_lost_member_names_the_order() {
    let mut town = Town::forgetting(3);
    town.is_loading = false;
    town.stop(MemberId(1));
    let mut request = joiner(3);
    request.replaces = Some(url(1));
    town.join(0, &request);
    town.pass(2_000_000);
    town.forgets(2, Some(HeldBack::Damage), 0);
    town.pass(2_000_000);
    let waits = town.status(0).waits.expect("it is said").why;
    let order = "`dendra cluster accept-loss http://h2:8080` at the admin port of http://h2:8080";
    assert!(waits.contains("waits for http://h1:8080, "), "{waits}");
    assert!(waits.contains(order), "{waits}");
}
