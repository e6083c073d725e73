//! What a node tells about the rounds of its operations, with a clock that the test moves.

mod support;

use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Condition, Operation, Readiness};
use dendra_base::{Quorum, Version};
use dendra_node::step::{Effect, Event, Now, StoreOutcome};
use dendra_node::{Foregrounds, Hlc, Layout, Member, MemberIndex, Node, Round, Topology};
use std::sync::Arc;

const WALL_MS: u64 = 1_700_000_000_000;

/// The first of three members, and what it wanted done last.
struct World {
    node: Node,
    hlc: Arc<Hlc>,
    foregrounds: Arc<Foregrounds>,
    effects: Vec<Effect>,
}

impl World {
    fn new() -> World {
        let members = ["h1:1", "h2:1", "h3:1"].map(|url| Member::new(url).expect("an address"));
        let topology = Topology::new("dendra", members.to_vec(), 3).expect("a topology");
        let hlc = Arc::new(Hlc::new(0, WALL_MS));
        let layout = Arc::new(Layout::of_list(&Arc::new(topology)));
        let config = support::config(&layout, MemberIndex(0), Arc::clone(&hlc));
        let foregrounds = Arc::clone(&config.foregrounds);
        World {
            node: Node::new(config),
            hlc,
            foregrounds,
            effects: Vec::new(),
        }
    }

    /// One event, and the tick that ends a turn.
    fn step(&mut self, mono_us: u64, event: Event) {
        let now = Now {
            mono_us,
            wall_ms: WALL_MS,
            wall_part_us: 0,
        };
        self.effects.clear();
        self.node.step(now, event, &mut self.effects);
        self.node.step(now, Event::Tick, &mut self.effects);
    }

    fn begin(&mut self, mono_us: u64, operation: Operation) {
        self.step(
            mono_us,
            Event::Begin {
                client: 1,
                key: Bytes::from_static(b"k"),
                operation,
                quorum: Quorum::new(2, 3, 3).expect("a majority"),
                deadline_us: mono_us + 1_000_000,
            },
        );
    }

    /// The first question to another member.
    fn asked(&self) -> (MemberIndex, u64, Ask) {
        let found = self.effects.iter().find_map(|effect| match effect {
            Effect::Ask {
                member, id, ask, ..
            } => Some((*member, *id, ask.clone())),
            _ => None,
        });
        found.expect("a question to another member")
    }

    /// How many rounds of a kind there were, and how long they took together.
    fn seen(&self, round: Round) -> (u64, u64) {
        let times = self.node.rounds().of(round);
        (times.buckets.iter().sum(), times.sum_us)
    }
}

#[test]
fn each_round_of_a_write_takes_from_its_questions_to_enough_answers() {
    let mut world = World::new();
    let condition = Condition::None;
    let value = Bytes::from_static(b"v");
    let expiry_ms = None;
    world.begin(
        1_000,
        Operation::Put {
            value,
            expiry_ms,
            condition,
        },
    );
    let (member, id, ask) = world.asked();
    assert_eq!(ask, Ask::Clock);
    let hlc = world.hlc.last();
    let answer = Answer::Clock {
        hlc,
        wall_ms: WALL_MS,
        kept: 0,
        readiness: Readiness::Ready,
    };
    world.step(1_400, Event::Answered { member, id, answer });
    assert_eq!(world.seen(Round::Clock), (1, 400));
    // No ceiling is durable yet: the version waits for one.
    let hlc = world.hlc.last() + (1 << 32);
    world.step(1_500, Event::Covered { hlc });
    assert_eq!(world.seen(Round::Cover), (1, 100));
    let (member, id, _) = world.asked();
    let ticket = world.effects.iter().find_map(|effect| match effect {
        Effect::Write { ticket, .. } => Some(*ticket),
        _ => None,
    });
    let ticket = ticket.expect("the own copy is written");
    let version = Version::ZERO;
    let answer = Answer::Written(version);
    world.step(1_800, Event::Answered { member, id, answer });
    assert_eq!(world.seen(Round::Write), (0, 0), "one of two");
    let result = Ok(StoreOutcome::Applied { version });
    world.step(2_500, Event::Wrote { ticket, result });
    assert_eq!(world.seen(Round::Write), (1, 1_000));
    // Of the rounds those count for a load that wait for members: not the one for the ceiling.
    let foreground = world.foregrounds.sum();
    assert_eq!((foreground.rounds, foreground.sum_us), (2, 1_400));
    // The third one may answer when it likes: it is not waited for.
    world.step(900_000, Event::Tick);
    world.step(1_100_000, Event::Tick);
    assert_eq!(world.seen(Round::Write), (1, 1_000));
    assert_eq!(world.node.rounds().hedges(), 0);
}

#[test]
fn a_read_that_waits_too_long_for_a_copy_is_hedged_and_counted() {
    let mut world = World::new();
    world.begin(1_000, Operation::Get);
    let own = world.effects.iter().find_map(|effect| match effect {
        Effect::Read { ticket, .. } => Some(*ticket),
        _ => None,
    });
    let ticket = own.expect("the own copy is read first");
    let result = Ok(None);
    world.step(1_100, Event::Read { ticket, result });
    let (member, id, _) = world.asked();
    let patience_us = world.node.health(member).patience_us;
    world.step(1_100 + patience_us, Event::Tick);
    assert_eq!(world.node.rounds().hedges(), 1);
    let (other, _, _) = world.asked();
    assert_ne!(other, member, "the one that was not asked yet");
    let answer = Answer::Same;
    let now_us = 1_200 + patience_us;
    world.step(now_us, Event::Answered { member, id, answer });
    assert_eq!(world.seen(Round::Read), (1, now_us - 1_000));
}

#[test]
fn a_write_asks_no_owner_twice() {
    let mut world = World::new();
    let hlc = world.hlc.last() + (1 << 32);
    world.step(500, Event::Covered { hlc });
    world.begin(
        1_000,
        Operation::Delete {
            condition: Condition::None,
        },
    );
    let (member, id, _) = world.asked();
    let answer = Answer::Clock {
        hlc: world.hlc.last(),
        wall_ms: WALL_MS,
        kept: 0,
        readiness: Readiness::Ready,
    };
    world.step(1_400, Event::Answered { member, id, answer });
    for mono_us in [600_000, 1_100_000] {
        world.step(mono_us, Event::Tick);
    }
    assert_eq!(world.node.operations(), 0);
    assert_eq!(world.node.rounds().wasteful(), 0);
}
