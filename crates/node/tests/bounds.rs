//! Every bound of a node is reached once: what comes too much is refused, and later ones come in
//! again.
//!
//! See: docs/overload.md.

mod support;

use bytes::Bytes;
use dendra_base::Quorum;
use dendra_base::peer::{Answer, Ask, Condition, Operation, Range, Readiness, Refused, Stamp};
use dendra_node::limits::{PEER_ASKS_MAX, REPLICA_JOBS_MAX, SCANS_MAX, WALL_EXCHANGE_US};
use dendra_node::step::{Asker, Effect, Event, Now, StoreFailure};
use dendra_node::{Hlc, Known, Layout, MemberIndex, Node, NodeConfig, Outcome, Topology};
use std::sync::Arc;

const SECOND_US: u64 = 1_000_000;

struct One {
    node: Node,
    topology: Arc<Topology>,
    now_us: u64,
}

impl One {
    fn new(operations_max: usize) -> One {
        let urls = (0..3).map(|at| format!("http://h{at}:1").parse());
        let members = urls.collect::<Result<_, _>>().expect("members");
        let topology = Arc::new(Topology::new("bounds", members, 3).expect("a topology"));
        let layout = Arc::new(Layout::of_list(&topology));
        let node = Node::new(NodeConfig {
            operations_max,
            ..support::config(&layout, MemberIndex(0), Arc::new(Hlc::new(0, 1_000)))
        });
        let mut one = One {
            node,
            topology,
            now_us: SECOND_US,
        };
        // The first version must not wait for its ceiling.
        for effect in one.step(Event::Tick) {
            if let Effect::Cover { hlc } = effect {
                one.step(Event::Covered { hlc });
            }
        }
        one
    }

    fn step(&mut self, event: Event) -> Vec<Effect> {
        let now = Now {
            mono_us: self.now_us,
            wall_ms: self.now_us / 1_000,
            wall_part_us: 0,
        };
        let mut effects = Vec::new();
        self.node.step(now, event, &mut effects);
        effects
    }

    fn begin(&mut self, client: u64, operation: Operation) -> Vec<Effect> {
        let event = Event::Begin {
            client,
            key: Bytes::from_static(b"k"),
            operation,
            quorum: Quorum::usual(3, 3),
            deadline_us: self.now_us + SECOND_US,
        };
        self.step(event)
    }

    fn put() -> Operation {
        Operation::Put {
            value: Bytes::from_static(b"v"),
            expiry_ms: None,
            condition: Condition::None,
        }
    }

    fn asked(&mut self, id: u64) -> Vec<Effect> {
        let stamp = Stamp {
            cluster: self.topology.id(),
            epoch: self.topology.epoch(),
            left_ms: 1_000,
        };
        let asker = Asker {
            member: MemberIndex(1),
            link: 7,
            id,
        };
        let key = Bytes::from_static(b"k");
        let ask = Ask::Read { key, known: None };
        self.step(Event::Asked { asker, stamp, ask })
    }
}

fn outcomes(effects: &[Effect]) -> Vec<Outcome> {
    let outcome = |effect: &Effect| match effect {
        Effect::Outcome { outcome, .. } => Some(*outcome),
        _ => None,
    };
    effects.iter().filter_map(outcome).collect()
}

#[test]
fn operations_beyond_the_bound_are_refused_until_others_end() {
    let mut one = One::new(2);
    assert_eq!(outcomes(&one.begin(1, One::put())), []);
    assert_eq!(outcomes(&one.begin(2, Operation::Get)), []);
    let refused = outcomes(&one.begin(3, Operation::Get));
    assert!(
        matches!(refused[..], [Outcome::Overloaded { .. }]),
        "{refused:?}"
    );
    assert_eq!(one.node.operations(), 2);
    one.now_us += SECOND_US;
    let ended = outcomes(&one.step(Event::Tick));
    assert_eq!(ended.len(), 2, "{ended:?}");
    for outcome in ended {
        assert_eq!(
            outcome.known(),
            Some(Known::NotApplied),
            "nothing was written"
        );
    }
    assert_eq!(one.node.operations(), 0);
    assert_eq!(outcomes(&one.begin(4, Operation::Get)), []);
}

#[test]
fn questions_of_peers_beyond_the_bound_hear_busy_until_the_store_answers() {
    let mut one = One::new(2);
    let mut tickets = Vec::new();
    for id in 0..REPLICA_JOBS_MAX as u64 {
        match one.asked(id)[..] {
            [Effect::Read { ticket, .. }] => tickets.push(ticket),
            ref other => panic!("a copy is read, not {other:?}"),
        }
    }
    let busy = |effects: &[Effect]| {
        let is_busy = |answer: &Answer| *answer == Answer::Refused(Refused::Busy);
        matches!(effects, [Effect::Reply { answer, .. }] if is_busy(answer))
    };
    assert!(busy(&one.asked(REPLICA_JOBS_MAX as u64)));
    let ticket = tickets[0];
    let result = Err(StoreFailure::Late);
    assert_eq!(one.step(Event::Read { ticket, result }).len(), 1);
    assert!(!busy(&one.asked(REPLICA_JOBS_MAX as u64 + 1)));
}

#[test]
fn a_peer_with_too_many_open_questions_counts_as_not_answering() {
    let mut one = One::new(usize::MAX);
    // Each write asks one peer for the time, in a turn of its own, and the other one when there is
    // no room for another question to the first. No peer answers.
    let mut asked = 0;
    for client in 0..2 * u64::from(PEER_ASKS_MAX) {
        assert_eq!(outcomes(&one.begin(client, One::put())), []);
        asked += one.step(Event::Tick).len();
    }
    assert_eq!(asked, 2 * PEER_ASKS_MAX as usize);
    let mut effects = one.begin(u64::MAX, One::put());
    effects.extend(one.step(Event::Tick));
    let refused = outcomes(&effects);
    assert_eq!(refused.len(), 1, "at once, not at the deadline");
    assert_eq!(refused[0].known(), Some(Known::NotApplied));
    // Once their time is over, there is room again.
    one.now_us += 2 * SECOND_US;
    one.step(Event::Tick);
    assert_eq!(outcomes(&one.begin(1, One::put())), []);
    assert_eq!(one.step(Event::Tick).len(), 1);
}

#[test]
fn scans_beyond_the_bound_stop_where_they_begin() {
    let mut one = One::new(2);
    let mut scan = |client| {
        let range = Range {
            start: Bytes::from_static(b"a"),
            end: None,
            is_reverse: false,
            is_keys_only: false,
        };
        let deadline_us = one.now_us + SECOND_US;
        let effects = one.step(Event::Scan {
            client,
            range,
            bytes: 100,
            deadline_us,
        });
        matches!(
            effects[..],
            [Effect::Scanned {
                failure: Some(_),
                ..
            }]
        )
    };
    for client in 0..SCANS_MAX as u64 {
        assert!(!scan(client), "scan {client} is refused");
    }
    assert!(scan(SCANS_MAX as u64));
    one.step(Event::Gone { client: 0 });
    one.now_us += SECOND_US;
    let ended = one.step(Event::Tick);
    let scanned = |effect: &&Effect| matches!(effect, Effect::Scanned { .. });
    let count = ended.iter().filter(scanned).count();
    assert_eq!(count, SCANS_MAX, "the one that left, too");
    let abandoned = |effect: &&Effect| {
        let failure = Some(Outcome::Abandoned);
        matches!(effect, Effect::Scanned { client: 0, failure: of, .. } if *of == failure)
    };
    assert_eq!(ended.iter().filter(abandoned).count(), 1);
}

#[test]
fn a_cell_that_is_too_long_or_fails_its_checksum_is_not_stored() {
    use dendra_base::limits::VALUE_BYTES_MAX_DEFAULT;
    use dendra_base::{CellRef, Key, Version};
    let mut one = One::new(1);
    let key = Bytes::from_static(b"k");
    let version = Version {
        hlc: 1,
        origin: 7,
        rmw: 0,
    };
    let cell =
        |len: usize| CellRef::value(Key::user(&key).as_stored(), version, &vec![7; len]).to_owned();
    let mut flipped = cell(9);
    flipped.checksum ^= 1;
    for (cell, is_taken) in [
        (cell(VALUE_BYTES_MAX_DEFAULT), true),
        (cell(VALUE_BYTES_MAX_DEFAULT + 1), false),
        (flipped, false),
    ] {
        let asker = Asker {
            member: MemberIndex(1),
            link: 1,
            id: 1,
        };
        let stamp = Stamp {
            cluster: one.topology.id(),
            epoch: 1,
            left_ms: 1_000,
        };
        let ask = Ask::Write {
            key: key.clone(),
            cell,
        };
        let effects = one.step(Event::Asked { asker, stamp, ask });
        let writes = |effect: &Effect| matches!(effect, Effect::Write { .. });
        assert_eq!(effects.iter().any(writes), is_taken);
        let refused = Effect::Reply {
            asker,
            answer: Answer::Refused(Refused::Unfit),
        };
        let is_refused = effects
            .iter()
            .any(|effect| format!("{effect:?}") == format!("{refused:?}"));
        assert_eq!(is_refused, !is_taken, "{effects:?}");
    }
}

/// A bound from below: the readings of the other wall clocks stay fresh without any operation.
#[test]
fn a_member_at_rest_asks_for_the_wall_clocks_of_others_once_a_pause() {
    let layout = Arc::clone(&One::new(1).topology);
    let layout = Arc::new(Layout::of_list(&layout));
    let hlc = Arc::new(Hlc::new(0, 1_000));
    let mut one = One::new(1);
    one.node = Node::new(NodeConfig {
        is_watch: true,
        ..support::config(&layout, MemberIndex(0), hlc)
    });
    let member = MemberIndex(1);
    one.step(Event::Link {
        member,
        is_up: true,
    });
    for pause in 0..10 {
        let clock = |effect: &Effect| match effect {
            Effect::Ask {
                member: MemberIndex(1),
                id,
                ask: Ask::Clock,
                ..
            } => Some(*id),
            _ => None,
        };
        let asked: Vec<_> = one.step(Event::Tick).iter().filter_map(clock).collect();
        let [id] = asked[..] else {
            panic!("pause {pause}: {asked:?}");
        };
        let answer = Answer::Clock {
            hlc: 1,
            wall_ms: one.now_us / 1_000,
            kept: 0,
            readiness: Readiness::Ready,
        };
        one.step(Event::Answered { member, id, answer });
        // What was told a moment ago is not asked for again.
        one.now_us += WALL_EXCHANGE_US / 4;
        assert!(
            one.step(Event::Tick)
                .iter()
                .all(|effect| clock(effect).is_none())
        );
        one.now_us += WALL_EXCHANGE_US * 3 / 4;
    }
}
