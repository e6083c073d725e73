//! Damage whose repair waits for a lost member, and a loss that an operator accepts.
//!
//! ```text
//! h1 whole    h2 lost, h4 is put in its place    h3 damaged, this member
//! Lost ─► walks of h1 and h4 ─► nothing more ─► loss() ─► AcceptLoss ─► Repaired
//! ```
//!
//! Not here: repairs without a loss (`repair.rs`), the operator's order (`steward/losses.rs`).
//! See: docs/protocol.md, "Damage".

mod support;

use bytes::Bytes;
use dendra_base::Key;
use dendra_base::peer::{Answer, Ask, Refused};
use dendra_node::limits::{LINKS_SETTLE_US, LOSS_BLOCKS_MAX, REPAIR_PAUSE_US};
use dendra_node::repair::loss::{NoLoss, RepairLoss};
use dendra_node::ring::plan::replacement;
use dendra_node::ring::table::MemberId;
use dendra_node::step::{Effect, Event, LostSpan, Now};
use dendra_node::topology::drive::next_step;
use dendra_node::topology::record::{EpochMember, EpochRecord, MemberStatus, NewPlan};
use dendra_node::{Hlc, Layout, Member, MemberIndex, Node, NodeConfig, Topology, WalkPart};
use std::collections::BTreeSet;
use std::sync::Arc;

const WALL_MS: u64 = 1_700_000_000_000;
const WAIT_US: u64 = 5_000_000;
const H1: MemberIndex = MemberIndex(0);
const H2: MemberIndex = MemberIndex(1);
const H3: MemberIndex = MemberIndex(2);
const H4: MemberIndex = MemberIndex(3);
const LOST: MemberId = MemberId(1);

fn place(number: u32) -> Member {
    Member::new(&format!("http://h{number}:1")).expect("an address")
}

/// Of a cluster with so many copies.
fn founded(copies: u8) -> EpochRecord {
    let members = [1, 2, 3].map(place).to_vec();
    let topology = Topology::new("dendra", members, copies).expect("a topology");
    let founded = EpochRecord::founded(&topology);
    let nodes = founded.members().iter();
    let nodes: Vec<_> = nodes.map(|it| (it.id, u128::from(it.id.0) + 1)).collect();
    founded.enrolled(&nodes).expect("all are new")
}

/// A fourth member is put in the place of the second one: all positions move.
fn replacing(record: &EpochRecord) -> EpochRecord {
    let id = record.owners().next();
    let new = NewPlan {
        author: MemberId(0),
        moves: replacement(record.owners(), LOST, id, &[LOST]).expect("a plan"),
        newcomers: vec![EpochMember {
            id,
            node: 4,
            status: MemberStatus::Joining,
            place: place(4),
        }],
        shares: Vec::new(),
        replication_factor: record.replication_factor(),
    };
    let planned = record.planned(&new).expect("nothing else is under way");
    next_step(&planned, &[], 256).expect("the plan begins")
}

/// The third member, and what it wants done.
struct World {
    node: Node,
    record: EpochRecord,
    layout: Arc<Layout>,
    mono_us: u64,
    effects: Vec<Effect>,
}

impl World {
    /// The second member is lost, and being replaced.
    fn new() -> World {
        World::of(replacing(&founded(3)))
    }

    fn of(record: EpochRecord) -> World {
        let mut world = World::just_started(record);
        for member in [H1, H2, H4] {
            if world.layout.id_of(member).is_some() {
                world.link(member, true);
            }
        }
        world.link(H2, false);
        world.effects.clear();
        world
    }

    /// No link was tried yet.
    fn just_started(record: EpochRecord) -> World {
        let layout = Arc::new(Layout::of_record(&record).expect("its members"));
        let node = Node::new(NodeConfig {
            is_keeper: true,
            repair_wait_us: WAIT_US,
            ..support::config(&layout, H3, Arc::new(Hlc::new(0, WALL_MS)))
        });
        World {
            node,
            record,
            mono_us: 1_000,
            effects: Vec::new(),
            layout,
        }
    }

    fn step(&mut self, event: Event) {
        let now = self.now();
        self.node.step(now, event, &mut self.effects);
        self.node.step(now, Event::Tick, &mut self.effects);
    }

    fn now(&self) -> Now {
        Now {
            mono_us: self.mono_us,
            wall_ms: WALL_MS,
            wall_part_us: 0,
        }
    }

    fn loss(&self) -> Result<RepairLoss, NoLoss> {
        self.node.loss(self.now())
    }

    fn pass(&mut self, us: u64) {
        self.mono_us += us;
        self.step(Event::Tick);
    }

    fn link(&mut self, member: MemberIndex, is_up: bool) {
        self.step(Event::Link { member, is_up });
    }

    /// These blocks are lost: (the id of the span, the mark of the block).
    fn lose(&mut self, spans: &[(u64, u64)]) {
        let span = |(id, block): &(u64, u64)| LostSpan {
            id: *id,
            block: *block,
            first: Bytes::copy_from_slice(Key::user(b"b").as_stored()),
            last: Bytes::copy_from_slice(Key::user(b"d").as_stored()),
        };
        let spans = spans.iter().map(span).collect();
        self.step(Event::Lost { spans });
    }

    fn accept(&mut self, blocks: &[u64]) {
        self.step(Event::AcceptLoss {
            blocks: blocks.to_vec(),
            without: vec![LOST],
        });
    }

    /// Takes the page of the repair that is asked for.
    fn page(&mut self) -> Option<(MemberIndex, u64)> {
        let is_page = |effect: &Effect| match effect {
            Effect::Ask {
                ask: Ask::Load { start, .. },
                ..
            } => start == &b"b"[..],
            _ => false,
        };
        let at = self.effects.iter().position(is_page)?;
        match self.effects.remove(at) {
            Effect::Ask { member, id, .. } => Some((member, id)),
            _ => None,
        }
    }

    /// Lets time pass. Each owner that is asked holds nothing, but for those that answer `Damaged`.
    /// Returns the owners that were walked.
    fn walk(&mut self, damaged: &[MemberIndex]) -> BTreeSet<MemberIndex> {
        let mut walked = BTreeSet::new();
        for _ in 0..20 {
            self.pass(REPAIR_PAUSE_US);
            while let Some((member, id)) = self.page() {
                let answer = match damaged.contains(&member) {
                    true => Answer::Refused(Refused::Damaged),
                    false => {
                        walked.insert(member);
                        let (records, next) = (Vec::new(), None);
                        Answer::Loaded { records, next }
                    }
                };
                self.step(Event::Answered { member, id, answer });
            }
        }
        walked
    }

    /// Takes the ids of the spans that are repaired.
    fn repaired(&mut self) -> Vec<u64> {
        let effects = std::mem::take(&mut self.effects).into_iter();
        let repaired = effects.filter_map(|effect| match effect {
            Effect::Repaired { id } => Some(id),
            _ => None,
        });
        repaired.collect()
    }

    fn adopt(&mut self, record: EpochRecord) {
        let layout = self.layout.next(&record).expect("its members");
        (self.record, self.layout) = (record, Arc::new(layout));
        let layout = Arc::clone(&self.layout);
        self.step(Event::Layout { layout });
    }
}

#[test]
fn a_repair_that_waits_for_a_lost_member_ends_without_it_once_that_is_accepted() {
    let mut world = World::new();
    world.lose(&[(17, 5)]);
    assert_eq!(world.walk(&[]), [H1, H4].into());
    assert_eq!(world.repaired(), [] as [u64; 0], "one of two owners");
    let loss = world.loss().expect("nothing else ends it");
    assert_eq!(loss.blocks, [5]);
    assert_eq!(loss.without, [LOST].into());
    assert_eq!(loss.sources, [MemberId(0)].into(), "h4 has loaded nothing");
    assert_eq!(loss.partitions.len(), 256);
    let range = WalkPart {
        space: dendra_base::Space::User,
        start: Bytes::from_static(b"b"),
        last: Some(Bytes::from_static(b"d")),
    };
    assert_eq!((loss.ranges, loss.further), (vec![range], 0));
    world.accept(&[5]);
    assert_eq!(world.repaired(), [17]);
}

#[test]
fn an_accepted_loss_waits_for_the_operations_under_way_and_for_the_owner_that_is_left() {
    let mut world = World::new();
    world.lose(&[(17, 5)]);
    assert!(world.loss().is_ok(), "it may be accepted at once");
    world.accept(&[5]);
    assert_eq!(world.loss(), Err(NoLoss::Accepted));
    world.pass(WAIT_US - 10);
    assert_eq!((world.page(), world.repaired()), (None, Vec::new()));
    world.walk(&[H1]);
    assert_eq!(world.repaired(), [] as [u64; 0], "no copy was read");
    assert_eq!(world.walk(&[]), [H1].into());
    assert_eq!(world.repaired(), [17]);
    // The same order once more changes nothing.
    world.accept(&[5]);
    world.walk(&[]);
    assert_eq!(world.repaired(), [] as [u64; 0]);
    assert_eq!(world.loss(), Err(NoLoss::NoDamage));
}

#[test]
fn a_lost_member_that_comes_back_is_walked_in_spite_of_the_order() {
    let mut world = World::new();
    world.lose(&[(17, 5)]);
    world.accept(&[5]);
    world.link(H2, true);
    let damaged = [H2];
    assert_eq!(world.walk(&damaged), [H1, H4].into());
    assert_eq!(
        world.repaired(),
        [] as [u64; 0],
        "it may have what h1 lacks"
    );
    assert_eq!(world.walk(&[]), [H2].into());
    assert_eq!(world.repaired(), [17]);
}

#[test]
fn a_block_that_is_damaged_later_and_another_span_of_the_same_block_are_told_apart() {
    let mut world = World::new();
    world.lose(&[(17, 5)]);
    let shown = world.loss().expect("a loss");
    // Between the show and the order the damage grows.
    world.lose(&[(17, 5), (18, 6)]);
    world.accept(&shown.blocks);
    world.walk(&[]);
    assert_eq!(world.repaired(), [17]);
    let loss = world.loss().expect("the other block waits");
    assert_eq!(loss.blocks, [6]);
    // The second stage of the accepted block has another id.
    world.lose(&[(18, 6), (19, 5)]);
    world.walk(&[]);
    assert_eq!(world.repaired(), [19]);
}

#[test]
fn there_is_no_loss_while_the_missing_owner_may_come_back_or_answers() {
    let mut world = World::of(founded(3));
    assert_eq!(world.loss(), Err(NoLoss::NoDamage));
    world.lose(&[(17, 5)]);
    let away = NoLoss::Away { member: LOST };
    assert_eq!(world.loss(), Err(away), "no plan replaces it");
    world.accept(&[5]);
    world.walk(&[]);
    assert_eq!(
        world.repaired(),
        [] as [u64; 0],
        "an order for no lost member"
    );
    // A loss is accepted under the plan that takes the member away.
    let next = replacing(&world.record);
    let planned = next.epoch();
    assert_eq!(planned, world.record.epoch() + 2);
    let mut world = World::new();
    world.lose(&[(17, 5)]);
    world.link(H2, true);
    assert_eq!(world.loss(), Err(NoLoss::NotNeeded));
    world.link(H2, false);
    assert!(world.loss().is_ok());
    world.link(H4, false);
    let away = NoLoss::Away {
        member: MemberId(3),
    };
    assert_eq!(world.loss(), Err(away), "some records have four copies");
}

#[test]
fn an_accepted_loss_ends_with_its_plan() {
    let mut world = World::new();
    world.lose(&[(17, 5)]);
    world.accept(&[5]);
    let cancelled = world.record.cancelled().expect("a plan is under way");
    world.adopt(cancelled);
    world.walk(&[]);
    assert_eq!(world.repaired(), [] as [u64; 0]);
    let away = NoLoss::Away { member: LOST };
    assert_eq!(world.loss(), Err(away));
}

#[test]
fn without_a_copy_that_can_be_read_nothing_can_be_accepted() {
    let mut world = World::of(replacing(&founded(2)));
    world.lose(&[(17, 5)]);
    assert_eq!(world.loss(), Err(NoLoss::NoCopy), "of two copies");
    world.accept(&[5]);
    world.walk(&[]);
    assert_eq!(world.repaired(), [] as [u64; 0]);

    let mut world = World::new();
    world.lose(&[(17, 5)]);
    world.walk(&[H1]);
    let unreadable = NoLoss::Unreadable {
        member: MemberId(0),
    };
    assert_eq!(world.loss(), Err(unreadable));
    world.walk(&[]);
    assert!(world.loss().is_ok(), "it has repaired its own damage");
}

#[test]
fn one_order_names_a_bounded_number_of_blocks() {
    let mut world = World::new();
    let many: Vec<(u64, u64)> = (0..LOSS_BLOCKS_MAX as u64 + 3).map(|n| (n, n)).collect();
    world.lose(&many);
    let loss = world.loss().expect("a loss");
    assert_eq!((loss.blocks.len(), loss.further), (LOSS_BLOCKS_MAX, 3));
    world.accept(&loss.blocks);
    let rest = world.loss().expect("the rest");
    assert_eq!((rest.blocks.len(), rest.further), (3, 0));
}

#[test]
fn right_after_a_start_it_is_not_known_whether_there_is_a_loss() {
    let mut world = World::just_started(replacing(&founded(3)));
    assert_eq!(world.loss(), Err(NoLoss::NoDamage));
    world.lose(&[(17, 5)]);
    assert_eq!(world.loss(), Err(NoLoss::NotKnown), "no loop was told");
    // As a process begins: no link is up yet.
    for member in [H1, H2, H4] {
        world.link(member, false);
    }
    assert_eq!(world.loss(), Err(NoLoss::NotKnown));
    world.link(H1, true);
    world.link(H4, true);
    assert_eq!(world.loss(), Err(NoLoss::NotKnown), "h2 may be slow");
    world.pass(LINKS_SETTLE_US);
    assert!(world.loss().is_ok(), "h2 had time to answer");
}

#[test]
fn two_members_with_damage_in_the_same_keys_are_told_to_replace_one_of_them() {
    let mut world = World::of(founded(3));
    world.link(H2, true);
    world.lose(&[(17, 5)]);
    assert_eq!(world.loss(), Err(NoLoss::NotNeeded));
    assert_eq!(world.walk(&[H1]), [H2].into());
    assert_eq!(world.repaired(), [] as [u64; 0], "one of two owners");
    let member = MemberId(0);
    assert_eq!(world.loss(), Err(NoLoss::DamagedToo { member }));
    // The other one is replaced, and has an empty disk.
    let mut world = World::new();
    world.lose(&[(17, 5)]);
    assert_eq!(world.walk(&[]), [H1, H4].into());
    assert_eq!(
        world.repaired(),
        [] as [u64; 0],
        "it waits for the replaced one"
    );
    let loss = world.loss().expect("one of the two was replaced");
    world.accept(&loss.blocks);
    assert_eq!(world.repaired(), [17]);
}
