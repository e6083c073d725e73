use super::*;
use crate::epoch::drive::{MoveArrived, next_step};
use crate::epoch::record::{EpochMember, NewPlan};
use crate::epoch::why_not::WhyNot;
use crate::limits::EPOCH_BALLOTS_MAX;
use crate::limits::EPOCH_VOTE_US;
use crate::ring::plan::{MovePlan, replacement};
use crate::ring::table::OwnerTable;
use crate::topology::Member;

fn peer(number: u32) -> ChainPeer {
    ChainPeer {
        member: MemberId(number),
        node: 100 + u128::from(number),
    }
}

fn member(number: u32, status: MemberStatus) -> EpochMember {
    let ChainPeer { member, node } = peer(number);
    EpochMember {
        id: member,
        node,
        status,
        place: Member::new(&format!("http://h{number}:8080")).expect("an address"),
    }
}

/// Three members, each an owner of both partitions.
fn first() -> EpochRecord {
    let ids: Vec<MemberId> = (0..3).map(MemberId).collect();
    let owners = OwnerTable::of_owners(3, ids.clone(), vec![ids; 2]).expect("a table");
    let members = (0..3).map(|number| member(number, MemberStatus::Member));
    EpochRecord::first("dendra", members.collect(), 3, owners).expect("a record")
}

/// The epochs of a replacement of member 2 by member 3.
fn replaced() -> Vec<EpochRecord> {
    let first = first();
    let moves = replacement(first.owners(), MemberId(2), MemberId(3), &[]).expect("a plan");
    let planned = first.planned(&NewPlan {
        author: MemberId(0),
        moves,
        newcomers: vec![member(3, MemberStatus::Joining)],
        shares: Vec::new(),
        replication_factor: 3,
    });
    let planned = planned.expect("it may begin");
    let mut chain = vec![first, planned];
    loop {
        let newest = &chain[chain.len() - 1];
        let Some(plan) = newest.plan() else {
            return chain;
        };
        let moving = newest.owners().all().filter_map(|p| newest.moving(p));
        let arrived = moving.map(|step| MoveArrived {
            plan: plan.id,
            step,
        });
        let arrived: Vec<MoveArrived> = arrived.collect();
        let next = next_step(newest, &arrived, 1).expect("all that moves has arrived");
        chain.push(next);
    }
}

fn open(number: u32, record: EpochRecord) -> Chain {
    Chain::open(peer(number), (record, 0), None, 1)
}

fn told(chain: &mut Chain, from: ChainPeer, message: ChainMessage) -> Vec<ChainEffect> {
    let mut out = Vec::new();
    chain.step(0, ChainEvent::Received { from, message }, &mut out);
    out
}

/// All notes under way are durable.
fn synced(chain: &mut Chain) -> Vec<ChainEffect> {
    let mut out = Vec::new();
    let ticket = chain.ticket;
    chain.step(0, ChainEvent::Persisted { ticket }, &mut out);
    out
}

fn prepare(round: u64, member: ChainPeer) -> ChainMessage {
    let member = member.member;
    let ballot = EpochBallot { round, member };
    ChainMessage::Prepare { epoch: 2, ballot }
}

fn chosen(records: &[EpochRecord]) -> ChainMessage {
    let records = records.iter().cloned().map(Arc::new).collect();
    ChainMessage::Chosen { records }
}

#[test]
fn nothing_is_promised_before_the_note_is_durable() {
    let mut chain = open(0, first());
    let out = told(&mut chain, peer(1), prepare(1, peer(1)));
    assert!(matches!(out[..], [ChainEffect::Persist { .. }]), "{out:?}");
    let out = synced(&mut chain);
    let [ChainEffect::Send { to, message }] = &out[..] else {
        panic!("{out:?}");
    };
    assert_eq!(*to, MemberId(1));
    assert!(matches!(message, ChainMessage::Promise { .. }));
    let out = told(&mut chain, peer(2), prepare(1, peer(0)));
    assert!(matches!(
        out[..],
        [ChainEffect::Send {
            message: ChainMessage::Outbid { .. },
            ..
        }]
    ));
}

#[test]
fn notes_under_way_have_a_bound() {
    let mut chain = open(0, first());
    let mut notes = 0;
    for round in 1..10 * CHAIN_NOTES_MAX as u64 {
        notes += told(&mut chain, peer(1), prepare(round, peer(1))).len();
    }
    assert_eq!(notes, CHAIN_NOTES_MAX);
    assert_eq!(synced(&mut chain).len(), CHAIN_NOTES_MAX);
    assert_eq!(
        told(&mut chain, peer(1), prepare(1 << 40, peer(1))).len(),
        1
    );
}

#[test]
fn another_folder_under_the_number_of_a_member_has_no_vote() {
    let mut chain = open(0, first());
    let forged = ChainPeer { node: 7, ..peer(1) };
    assert_eq!(told(&mut chain, forged, prepare(1, peer(1))), []);
    let epochs = replaced();
    assert_eq!(told(&mut chain, forged, chosen(&epochs[1..2])), []);
    assert!(!chain.knows(forged) && chain.knows(peer(1)));
}

#[test]
fn a_proposal_without_a_majority_ends() {
    let mut chain = open(0, first());
    let record = first().rekeyed().expect("a change");
    let mut out = Vec::new();
    chain.step(0, ChainEvent::Propose { record }, &mut out);
    let mut now_us = 0;
    for _ in 0..100 {
        now_us += u64::from(EPOCH_BALLOTS_MAX) * EPOCH_VOTE_US;
        synced(&mut chain);
        chain.step(now_us, ChainEvent::Tick, &mut out);
    }
    let is_end = |effect: &&ChainEffect| **effect == ChainEffect::GaveUp { epoch: 2 };
    assert_eq!(out.iter().filter(is_end).count(), 1);
    assert!(!chain.is_proposing());
}

#[test]
fn a_joining_member_proposes_nothing_and_counts_for_nothing() {
    let epochs = replaced();
    let mut chain = open(3, epochs[1].clone());
    let mut out = Vec::new();
    let record = next_step(&epochs[1], &[], 1).expect("a step");
    chain.step(0, ChainEvent::Propose { record }, &mut out);
    let member = MemberId(3);
    let why = WhyNot::NoVoter { member };
    assert_eq!(out, [ChainEffect::Refused { why }]);
    let mut chain = open(0, epochs[1].clone());
    let ballot = EpochBallot { round: 1, member };
    let message = ChainMessage::Prepare { epoch: 3, ballot };
    assert_eq!(told(&mut chain, peer(3), message), []);
}

#[test]
fn an_epoch_counts_once_it_is_durable_and_then_is_the_fence() {
    let epochs = replaced();
    let at = Partition(0);
    let begun = epochs[2..].iter().position(|e| e.moving(at).is_some());
    let begun = begun.expect("it moves") + 2;
    let mut chain = open(0, epochs[0].clone());
    told(&mut chain, peer(1), chosen(&epochs[1..=begun]));
    let epoch = epochs[begun].epoch();
    assert_eq!(chain.admits(at, 1), FenceVerdict::Admit);
    let behind = FenceVerdict::Behind { epoch: 1 };
    assert_eq!(chain.admits(at, epoch), behind);
    synced(&mut chain);
    assert_eq!(chain.admits(at, epoch), FenceVerdict::Admit);
    assert_eq!(chain.admits(at, epoch - 1), FenceVerdict::Stale { epoch });
    // The other partition has not changed yet, as far as this process has seen.
    let other = Partition(1);
    if epochs[begun].moving(other).is_none() {
        assert_eq!(chain.admits(other, 1), FenceVerdict::Admit);
    }
    let again = open(0, epochs[begun].clone());
    assert_eq!(again.admits(other, 1), FenceVerdict::Stale { epoch });
    assert_eq!(again.admits(other, epoch), FenceVerdict::Admit);
}

#[test]
fn a_page_with_a_gap_or_of_another_chain_is_not_learnt() {
    let epochs = replaced();
    let mut chain = open(0, epochs[0].clone());
    assert_eq!(told(&mut chain, peer(1), chosen(&epochs[2..])), []);
    let other = first().rekeyed().and_then(|next| next.rekeyed());
    let other = other.expect("two changes");
    told(&mut chain, peer(1), chosen(&epochs[1..2]));
    synced(&mut chain);
    let diverged = ChainEffect::Diverged {
        from: MemberId(1),
        epoch: 3,
    };
    assert_eq!(told(&mut chain, peer(1), chosen(&[other])), [diverged]);
    assert_eq!(chain.record().epoch(), 2);
}

#[test]
fn a_removed_member_is_told_whenever_it_comes_and_remembers() {
    let epochs = replaced();
    let last = epochs.last().expect("the end").clone();
    let mut up_to_date = open(0, last.clone());
    let mut away = open(2, epochs[0].clone());
    let out = told(&mut up_to_date, peer(2), prepare(9, peer(2)));
    let [ChainEffect::Send { to, message }] = &out[..] else {
        panic!("{out:?}");
    };
    assert_eq!(*to, MemberId(2));
    // A record that does not name it, or is not ahead, is no proof.
    let record = Arc::new(epochs[1].clone());
    assert_eq!(
        told(&mut away, peer(0), ChainMessage::Removed { record }),
        []
    );
    let out = told(&mut away, peer(0), message.clone());
    let [ChainEffect::Persist { note, .. }] = &out[..] else {
        panic!("{out:?}");
    };
    let epoch = last.epoch();
    assert_eq!(synced(&mut away), [ChainEffect::Removed { epoch }]);
    assert_eq!(away.admits(Partition(0), 1), FenceVerdict::Removed);
    assert_eq!(told(&mut away, peer(1), prepare(10, peer(1))), []);
    // After a restart it still knows.
    let ChainNote::Vote(vote) = note else {
        panic!("{note:?}");
    };
    let vote = Some(vote.clone());
    let again = Chain::open(peer(2), (epochs[0].clone(), 0), vote, 1);
    assert!(again.is_removed());
    assert!(open(2, last).is_removed());
}

#[test]
fn of_two_epochs_the_member_that_is_behind_learns_at_once() {
    let mut chain = open(0, replaced()[1].clone());
    let at = |epoch| ChainMessage::At { epoch };
    let to = MemberId(1);
    let mut answers = |epoch| told(&mut chain, peer(1), at(epoch));
    let message = at(2);
    assert_eq!(answers(1), [ChainEffect::Send { to, message }]);
    assert_eq!(answers(2), []);
    let message = ChainMessage::Learn { from: 3 };
    assert_eq!(answers(3), [ChainEffect::Send { to, message }]);
}

/// Behind the first epoch only the horizons rise.
fn risen(steps: u64) -> Vec<EpochRecord> {
    let mut chain = vec![first()];
    for step in 1..=steps {
        let next = chain[chain.len() - 1].forgot(step << 20);
        chain.push(next.expect("horizons rise"));
    }
    chain
}

#[test]
fn a_record_behind_a_hole_is_taken_as_the_first_one_of_an_answer_alone() {
    let epochs = risen(6);
    let record = |epoch: usize| epochs[epoch - 1].clone();
    let mut chain = open(0, record(1));
    let at = |epoch| ChainMessage::At { epoch };
    // No member asked for it: its sender may have the epochs before it.
    assert_eq!(told(&mut chain, peer(1), chosen(&[record(5)])), []);
    let asked = |chain: &mut Chain| {
        let to = MemberId(1);
        let message = ChainMessage::Learn { from: 2 };
        let out = told(chain, peer(1), at(5));
        assert_eq!(out, [ChainEffect::Send { to, message }]);
    };
    asked(&mut chain);
    // Another member was not asked, and an epoch that was not told of is news.
    assert_eq!(told(&mut chain, peer(2), chosen(&[record(3)])), []);
    assert_eq!(told(&mut chain, peer(1), chosen(&[record(6)])), []);
    asked(&mut chain);
    // Before 3 its sender has no epoch. Its epochs between 4 and 6 are not told.
    let page = [record(3), record(4), record(6)];
    told(&mut chain, peer(1), chosen(&page));
    synced(&mut chain);
    assert_eq!(chain.record().epoch(), 4);
    // An answer counts once, also one without news.
    let mut chain = open(0, record(1));
    asked(&mut chain);
    told(&mut chain, peer(1), chosen(&[record(1)]));
    assert_eq!(told(&mut chain, peer(1), chosen(&[record(3)])), []);
}

#[test]
fn an_epoch_counts_behind_its_record_and_the_own_note_of_it() {
    let epochs = replaced();
    let mut chain = open(0, epochs[0].clone());
    let out = told(&mut chain, peer(1), chosen(&epochs[1..2]));
    let [
        ChainEffect::Persist {
            ticket: first,
            note: ChainNote::Epoch(kept),
        },
        ChainEffect::Persist {
            ticket: second,
            note: ChainNote::Fence(noted),
        },
    ] = &out[..]
    else {
        panic!("{out:?}");
    };
    assert_eq!((kept.epoch(), noted.epoch()), (2, 2));
    let mut out = Vec::new();
    let ticket = *first;
    chain.step(0, ChainEvent::Persisted { ticket }, &mut out);
    assert_eq!((&out[..], chain.record().epoch()), (&[][..], 1));
    let ticket = *second;
    chain.step(0, ChainEvent::Persisted { ticket }, &mut out);
    assert!(matches!(out[..], [ChainEffect::Adopted { .. }]), "{out:?}");
    assert_eq!(chain.record().epoch(), 2);
}

/// A member that owns all, and another one that owns no position and leaves: the plan, and its end.
fn left_alone() -> [EpochRecord; 2] {
    let ids = vec![MemberId(0), MemberId(1)];
    let owners = OwnerTable::of_owners(2, ids, vec![vec![MemberId(0)]; 2]).expect("a table");
    let members = (0..2).map(|number| member(number, MemberStatus::Member));
    let first = EpochRecord::first("dendra", members.collect(), 1, owners).expect("a record");
    let moves = MovePlan {
        table: first.owners().digest(),
        copies: None,
        joins: Vec::new(),
        leaves: vec![MemberId(1)],
        rounds: Vec::new(),
        necessary: 0,
    };
    let planned = first.planned(&NewPlan {
        author: MemberId(0),
        moves,
        newcomers: Vec::new(),
        shares: Vec::new(),
        replication_factor: 1,
    });
    let planned = planned.expect("it may begin");
    let finished = planned.finished().expect("nothing moves");
    [planned, finished]
}

/// A folder that has lost its epochs after `record`, and has accepted `accepted` last.
fn lost(record: &EpochRecord, accepted: &EpochRecord) -> Chain {
    let member = MemberId(0);
    let ballot = EpochBallot { round: 1, member };
    let vote = VoteNote {
        epoch: accepted.epoch(),
        promised: ballot,
        accepted: Some(AcceptedRecord {
            ballot,
            record: Arc::new(accepted.clone()),
        }),
        removed: 0,
    };
    let newest = (record.clone(), accepted.epoch());
    Chain::open(peer(0), newest, Some(vote), 1)
}

/// The epoch that the chain is at after an event.
fn behind(chain: &mut Chain, event: ChainEvent) -> u64 {
    let mut out = Vec::new();
    chain.step(0, event, &mut out);
    synced(chain);
    chain.record().epoch()
}

#[test]
fn an_only_voter_takes_the_lost_epoch_that_it_has_accepted() {
    let [planned, finished] = left_alone();
    let rekeyed = finished.rekeyed().expect("a change");
    let last = rekeyed.rekeyed().expect("a change");
    // One epoch is lost, two, or also the one in which it was not alone yet.
    for before in [&rekeyed, &finished, &planned] {
        let mut chain = lost(before, &last);
        assert_eq!(chain.missing(), Some(last.epoch()));
        assert_eq!(behind(&mut chain, ChainEvent::Tick), last.epoch());
        assert_eq!(chain.missing(), None);
        assert!(!chain.is_removed() && !chain.is_busy());
        let record = last.rekeyed().expect("a change");
        let mut out = Vec::new();
        chain.step(0, ChainEvent::Propose { record }, &mut out);
        synced(&mut chain);
        synced(&mut chain);
        synced(&mut chain);
        assert_eq!(chain.record().epoch(), last.epoch() + 1, "it votes again");
    }
}

#[test]
fn an_epoch_that_a_removed_member_voted_for_is_taken_by_an_order_alone() {
    let [planned, finished] = left_alone();
    let mut chain = lost(&planned, &finished);
    assert_eq!(behind(&mut chain, ChainEvent::Tick), planned.epoch());
    let alone = chain.accepted_alone().expect("no other one is left");
    assert_eq!(*alone, finished);
    let at = behind(&mut chain, ChainEvent::TakeAccepted);
    assert_eq!(at, finished.epoch());
    // Of several voters no order helps: another one knows.
    let [first, next] = [first(), first().rekeyed().expect("a change")];
    let mut chain = lost(&first, &next);
    for event in [ChainEvent::Tick, ChainEvent::TakeAccepted] {
        assert_eq!(behind(&mut chain, event), first.epoch());
    }
    // Nor where no copy is lost: the epoch is proposed as ever.
    let rekeyed = finished.rekeyed().expect("a change");
    let vote = lost(&finished, &rekeyed).vote.clone();
    let newest = (finished.clone(), finished.epoch());
    let mut chain = Chain::open(peer(0), newest, Some(vote), 1);
    assert_eq!(chain.missing(), None);
    for event in [ChainEvent::Tick, ChainEvent::TakeAccepted] {
        assert_eq!(behind(&mut chain, event), finished.epoch());
    }
}
