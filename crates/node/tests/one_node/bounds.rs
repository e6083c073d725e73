//! Every bound of a node is reached once: requests beyond it are refused, and later ones come in
//! again.
//!
//! See: docs/overload.md.

use crate::epochs;
use crate::world::{KEY, SECOND_US, World, clock, from, put, record};
use bytes::Bytes;
use dendra_base::Key;
use dendra_base::limits::VALUE_BYTES_MAX_DEFAULT;
use dendra_base::peer::{Answer, Ask, Condition, Operation, Refused};
use dendra_node::limits::{PEER_ASKS_MAX, REPLICA_JOBS_MAX, SCANS_MAX, WALL_EXCHANGE_US};
use dendra_node::step::{Effect, Event, StoreFailure};
use dendra_node::{Known, NodeConfig, Outcome};
use dendra_ownership::MemberIndex;

/// The first of three members, with a clock ceiling: no version waits for one.
fn bounded(set: impl FnOnce(&mut NodeConfig)) -> World {
    let mut world = World::with(epochs::enrolled(3, 3), MemberIndex(0), set);
    world.now_us = SECOND_US;
    world.pass(0);
    world.cover();
    world.effects();
    world
}

/// It works on so many operations at once.
fn with_operations(operations_max: usize) -> World {
    bounded(|config| config.operations_max = operations_max)
}

/// A peer asks for a copy.
fn ask_for_copy(world: &mut World, id: u64) {
    let key = Bytes::from_static(KEY);
    let ask = Ask::Read { key, known: None };
    world.asked_by(MemberIndex(1), id, ask);
}

#[test]
fn operations_beyond_the_bound_are_refused_until_others_end() {
    let mut world = with_operations(2);
    world.begin_of(1, put(Condition::None));
    world.begin_of(2, Operation::Get);
    assert_eq!(world.outcomes(), []);
    world.begin_of(3, Operation::Get);
    let refused = world.outcomes();
    assert!(
        matches!(refused[..], [Outcome::Overloaded { .. }]),
        "{refused:?}"
    );
    assert_eq!(world.node.operations(), 2);
    world.pass(SECOND_US);
    let ended = world.outcomes();
    assert_eq!(ended.len(), 2, "{ended:?}");
    for outcome in ended {
        let known = outcome.known();
        assert_eq!(known, Some(Known::NotApplied), "nothing was written");
    }
    assert_eq!(world.node.operations(), 0);
    world.begin_of(4, Operation::Get);
    assert_eq!(world.outcomes(), []);
}

#[test]
fn questions_of_peers_beyond_the_bound_hear_busy_until_the_store_answers() {
    let mut world = with_operations(2);
    for id in 0..REPLICA_JOBS_MAX as u64 {
        ask_for_copy(&mut world, id);
    }
    let tickets = world.reads();
    assert_eq!(tickets.len(), REPLICA_JOBS_MAX, "a copy is read for each");
    assert_eq!(world.replies(), []);
    let busy = [Answer::Refused(Refused::Busy)];
    ask_for_copy(&mut world, REPLICA_JOBS_MAX as u64);
    assert_eq!(world.replies(), busy);
    let (ticket, result) = (tickets[0], Err(StoreFailure::Late));
    world.step(Event::Read { ticket, result });
    assert_eq!(world.replies().len(), 1);
    ask_for_copy(&mut world, REPLICA_JOBS_MAX as u64 + 1);
    assert_eq!(world.replies(), []);
}

#[test]
fn a_peer_with_too_many_open_questions_counts_as_not_answering() {
    let mut world = with_operations(usize::MAX);
    // Each write asks one peer for the time, in a turn of its own. It asks the other peer when
    // there is no room for another question to the first. No peer answers.
    for client in 0..2 * u64::from(PEER_ASKS_MAX) {
        world.begin_of(client, put(Condition::None));
        assert_eq!(world.outcomes(), []);
    }
    assert_eq!(world.asks().len(), 2 * PEER_ASKS_MAX as usize);
    world.begin_of(u64::MAX, put(Condition::None));
    let refused = world.outcomes();
    assert_eq!(refused.len(), 1, "at once, not at the deadline");
    assert_eq!(refused[0].known(), Some(Known::NotApplied));
    // Once their time is over, there is room again.
    world.pass(2 * SECOND_US);
    world.effects();
    world.begin(put(Condition::None));
    assert_eq!(world.outcomes(), []);
    assert_eq!(world.asks().len(), 1);
}

#[test]
fn scans_beyond_the_bound_stop_where_they_begin() {
    let mut world = with_operations(2);
    let failed = |world: &mut World| {
        let failed = |effect: Effect| match effect {
            Effect::Scanned {
                client,
                failure: Some(failure),
                ..
            } => Some((client, failure)),
            _ => None,
        };
        world
            .effects()
            .into_iter()
            .filter_map(failed)
            .collect::<Vec<_>>()
    };
    for client in 0..SCANS_MAX as u64 {
        world.scan(client, from(b"a"), 100);
        assert_eq!(failed(&mut world), [], "scan {client} is refused");
    }
    world.scan(SCANS_MAX as u64, from(b"a"), 100);
    assert_eq!(failed(&mut world).len(), 1);
    world.step(Event::Gone { client: 0 });
    world.pass(SECOND_US);
    let ended = failed(&mut world);
    assert_eq!(ended.len(), SCANS_MAX, "the one that left, too");
    let abandoned = ended.iter().filter(|(_, why)| *why == Outcome::Abandoned);
    let clients: Vec<u64> = abandoned.map(|(client, _)| *client).collect();
    assert_eq!(clients, [0]);
}

#[test]
fn a_cell_that_is_too_long_or_fails_its_checksum_is_not_stored() {
    let mut world = with_operations(1);
    let cell = |len: usize| record(KEY, 1, &vec![7; len]).1;
    let mut flipped = cell(9);
    flipped.checksum ^= 1;
    for (cell, is_taken) in [
        (cell(VALUE_BYTES_MAX_DEFAULT), true),
        (cell(VALUE_BYTES_MAX_DEFAULT + 1), false),
        (flipped, false),
    ] {
        let key = Bytes::from_static(KEY);
        world.asked_by(MemberIndex(1), 1, Ask::Write { key, cell });
        let written = world.writes();
        assert_eq!(written.len(), usize::from(is_taken));
        assert!(written.iter().all(|write| write.key == Key::user(KEY)));
        let refused = world.replies() == [Answer::Refused(Refused::Unfit)];
        assert_eq!(refused, !is_taken);
    }
}

/// A bound from below: the readings of the other wall clocks stay fresh without any operation.
#[test]
fn a_member_at_rest_asks_for_the_wall_clocks_of_others_once_a_pause() {
    let mut world = bounded(|config| config.is_watch = true);
    world.link(MemberIndex(1), true);
    for pause in 0..10 {
        let mut asked = world.asks();
        asked.retain(|asked| asked.member == MemberIndex(1));
        let [asked] = &asked[..] else {
            panic!("pause {pause}: {asked:?}");
        };
        assert_eq!(asked.ask, Ask::Clock);
        let mut answer = clock(1);
        if let Answer::Clock { wall_ms, .. } = &mut answer {
            *wall_ms = world.now().wall_ms;
        }
        world.answer(asked, answer);
        // A fact that was told a moment ago is not asked for again.
        world.pass(WALL_EXCHANGE_US / 4);
        assert_eq!(world.asks(), []);
        world.pass(WALL_EXCHANGE_US * 3 / 4);
    }
}
