//! The numbers that a node tells about the rounds of its operations, with a clock that the test
//! moves.

use crate::epochs;
use crate::world::{Asked, World, clock, put};
use dendra_base::Version;
use dendra_base::peer::{Answer, Ask, Condition, Operation};
use dendra_node::step::{Event, StoreOutcome};
use dendra_node::{Foregrounds, Round};
use dendra_ownership::MemberIndex;
use std::sync::Arc;

/// The first of three members, which all own all.
fn first_of_three() -> World {
    World::new(epochs::enrolled(3, 3), MemberIndex(0))
}

/// The time is `now_us`, and this happens.
fn at(world: &mut World, now_us: u64, event: Event) {
    world.now_us = now_us;
    world.step(event);
}

fn answer_at(world: &mut World, now_us: u64, asked: &Asked, answer: Answer) {
    world.now_us = now_us;
    world.answer(asked, answer);
}

/// The first question to another member since the last one.
fn asked(world: &mut World) -> Asked {
    let mut asks = world.asks().into_iter();
    asks.next().expect("a question to another member")
}

/// How many rounds of a kind there were, and how long they took together.
fn seen(world: &World, round: Round) -> (u64, u64) {
    let times = world.node.rounds().of(round);
    (times.buckets.iter().sum(), times.sum_us)
}

#[test]
fn each_round_of_a_write_takes_from_its_questions_to_enough_answers() {
    let foregrounds = Arc::<Foregrounds>::default();
    let mut world = World::with(epochs::enrolled(3, 3), MemberIndex(0), |config| {
        config.foregrounds = Arc::clone(&foregrounds);
    });
    world.begin(put(Condition::None));
    let of_clock = asked(&mut world);
    assert_eq!(of_clock.ask, Ask::Clock);
    let answer = clock(world.hlc.last());
    answer_at(&mut world, 1_400, &of_clock, answer);
    assert_eq!(seen(&world, Round::Clock), (1, 400));
    // No ceiling is durable yet: the version waits for one.
    let hlc = world.hlc.last() + (1 << 32);
    at(&mut world, 1_500, Event::Covered { hlc });
    assert_eq!(seen(&world, Round::Cover), (1, 100));
    let of_write = asked(&mut world);
    let writes = world.writes();
    let [own] = &writes[..] else {
        panic!("the own copy is written, not {writes:?}");
    };
    let version = Version::ZERO;
    answer_at(&mut world, 1_800, &of_write, Answer::Written(version));
    assert_eq!(seen(&world, Round::Write), (0, 0), "one of two");
    let ticket = own.ticket;
    let result = Ok(StoreOutcome::Applied { version });
    at(&mut world, 2_500, Event::Wrote { ticket, result });
    assert_eq!(seen(&world, Round::Write), (1, 1_000));
    // Of the rounds those count for a load that wait for members: not the one for the ceiling.
    let foreground = foregrounds.sum();
    assert_eq!((foreground.rounds, foreground.sum_us), (2, 1_400));
    // The third one may answer when it likes: it is not waited for.
    at(&mut world, 900_000, Event::Tick);
    at(&mut world, 1_100_000, Event::Tick);
    assert_eq!(seen(&world, Round::Write), (1, 1_000));
    assert_eq!(world.node.rounds().hedges(), 0);
}

#[test]
fn a_read_that_waits_too_long_for_a_copy_is_hedged_and_counted() {
    let mut world = first_of_three();
    world.begin(Operation::Get);
    let [ticket] = world.reads()[..] else {
        panic!("the own copy is read first");
    };
    let result = Ok(None);
    at(&mut world, 1_100, Event::Read { ticket, result });
    let first = asked(&mut world);
    let patience_us = world.node.health(first.member).patience_us;
    at(&mut world, 1_100 + patience_us, Event::Tick);
    assert_eq!(world.node.rounds().hedges(), 1);
    let other = asked(&mut world);
    assert_ne!(other.member, first.member, "the one that was not asked yet");
    let now_us = 1_200 + patience_us;
    answer_at(&mut world, now_us, &first, Answer::Same);
    assert_eq!(seen(&world, Round::Read), (1, now_us - 1_000));
}

#[test]
fn a_write_asks_no_owner_twice() {
    let mut world = first_of_three();
    let hlc = world.hlc.last() + (1 << 32);
    at(&mut world, 500, Event::Covered { hlc });
    world.now_us = 1_000;
    let condition = Condition::None;
    world.begin(Operation::Delete { condition });
    let of_clock = asked(&mut world);
    let answer = clock(world.hlc.last());
    answer_at(&mut world, 1_400, &of_clock, answer);
    for now_us in [600_000, 1_100_000] {
        at(&mut world, now_us, Event::Tick);
    }
    assert_eq!(world.node.operations(), 0);
    assert_eq!(world.node.rounds().wasteful(), 0);
}
