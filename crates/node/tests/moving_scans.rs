//! Pages of a scan while all positions of one member move to another one: both of its owners count,
//! and the answers behind a page are of one epoch.
//!
//! ```text
//! owners of everything    me, old, third  ─►  me, old ▸ new, third  ─►  me, new, third
//! ```
//!
//! Not here: operations (`moving.rs`), pages of a cluster at rest (`scans.rs`).

mod support;

use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Range, Refused};
use dendra_base::{Cell, CellRef, Key, Version};
use dendra_node::limits::SCAN_PATIENCE_US;
use dendra_node::ring::plan::replacement;
use dendra_node::ring::table::MemberId;
use dendra_node::step::{Effect, Event, Now};
use dendra_node::topology::drive::{MoveArrived, next_step};
use dendra_node::topology::record::{EpochMember, EpochRecord, MemberStatus, NewPlan};
use dendra_node::{Hlc, Layout, Member, MemberIndex, Node, Topology};
use std::sync::Arc;

const WALL_MS: u64 = 1_700_000_000_000;
const KEY: &[u8] = b"k";
const COPIES: u8 = 3;
/// All positions move at once.
const SIDE_BY_SIDE: usize = 256;

/// A member that coordinates a scan, and owns all partitions as two others do.
struct World {
    node: Node,
    record: EpochRecord,
    layout: Arc<Layout>,
    now_us: u64,
    effects: Vec<Effect>,
}

const ME: MemberIndex = MemberIndex(0);
const OLD: MemberIndex = MemberIndex(1);
const NEW: MemberIndex = MemberIndex(3);

/// The epoch in which a new member takes all positions of another one.
fn moving_epoch() -> EpochRecord {
    let urls = ["h1:1", "h2:1", "h3:1", "h4:1"];
    let [founders @ .., newcomer] = urls.map(|url| Member::new(url).expect("a URL"));
    let topology = Topology::new("dendra", founders.to_vec(), COPIES).expect("a topology");
    let founded = EpochRecord::founded(&topology);
    let ids: Vec<MemberId> = founded.members().iter().map(|member| member.id).collect();
    let nodes: Vec<_> = ids.iter().map(|id| (*id, u128::from(id.0) + 1)).collect();
    let enrolled = founded.enrolled(&nodes).expect("all are new");
    let (old, new) = (ids[usize::from(OLD.0)], MemberId(u32::from(NEW.0)));
    let moves = replacement(enrolled.owners(), old, new, &[]).expect("a plan");
    let plan = NewPlan {
        author: ids[0],
        moves,
        newcomers: vec![EpochMember {
            id: new,
            node: 1 << 40,
            status: MemberStatus::Joining,
            place: newcomer,
        }],
        shares: Vec::new(),
        replication_factor: COPIES,
    };
    let planned = enrolled.planned(&plan).expect("a plan for this epoch");
    next_step(&planned, &[], SIDE_BY_SIDE).expect("the plan begins")
}

impl World {
    fn new() -> World {
        let record = moving_epoch();
        let layout = Arc::new(Layout::of_record(&record).expect("it has its members"));
        let hlc = Arc::new(Hlc::new(0, WALL_MS));
        World {
            node: Node::new(support::config(&layout, ME, hlc)),
            record,
            layout,
            now_us: 1_000,
            effects: Vec::new(),
        }
    }

    /// One event, and the tick that ends a turn.
    fn step(&mut self, event: Event) {
        let now = Now {
            mono_us: self.now_us,
            wall_ms: WALL_MS,
            wall_part_us: 0,
        };
        self.effects.clear();
        self.node.step(now, event, &mut self.effects);
        self.node.step(now, Event::Tick, &mut self.effects);
    }

    fn scan(&mut self) {
        let range = Range {
            start: Bytes::from_static(KEY),
            end: None,
            is_reverse: false,
            is_keys_only: false,
        };
        self.step(Event::Scan {
            client: 1,
            range,
            bytes: 1_000,
            deadline_us: 1_000_000,
        });
    }

    /// The members that were asked for a page in the last step, and the numbers of the questions.
    fn asked(&self) -> Vec<(MemberIndex, u64)> {
        let asks = self.effects.iter().filter_map(|effect| match effect {
            Effect::Ask {
                member,
                id,
                ask: Ask::Page { .. },
                ..
            } => Some((*member, *id)),
            _ => None,
        });
        asks.collect()
    }

    /// The own store, which holds nothing, makes the page that it was asked for.
    fn read_own_page(&mut self) {
        let mut tickets = self.effects.iter().filter_map(|effect| match effect {
            Effect::Page { ticket, .. } => Some(*ticket),
            _ => None,
        });
        let ticket = tickets.next().expect("the own store is asked");
        self.step(Event::Paged {
            ticket,
            result: Ok((Vec::new(), None)),
        });
    }

    /// A member answers the question that it got among these.
    fn answer(&mut self, asked: &[(MemberIndex, u64)], member: MemberIndex, answer: Answer) {
        let mut asked = asked.iter();
        let found = asked.find(|(of, _)| *of == member);
        let id = found.expect("it was asked").1;
        self.step(Event::Answered { member, id, answer });
    }

    /// Members that are late are given up.
    fn lose_patience(&mut self) {
        self.now_us += SCAN_PATIENCE_US + 1;
        self.step(Event::Tick);
    }

    /// All moves have arrived, and this member learns so.
    fn settle(&mut self) {
        let plan = self.record.plan().expect("a plan is under way").id;
        let partitions = self.record.owners().all();
        let arrived = partitions.map(|partition| MoveArrived {
            plan,
            step: self.record.moving(partition).expect("it moves"),
        });
        let arrived: Vec<MoveArrived> = arrived.collect();
        self.record = next_step(&self.record, &arrived, SIDE_BY_SIDE).expect("the plan goes on");
        let next = self.layout.next(&self.record).expect("it has its members");
        self.layout = Arc::new(next);
        self.step(Event::Layout {
            layout: Arc::clone(&self.layout),
        });
    }

    /// The keys of the page that was shown in the last step.
    fn shown(&self) -> Option<Vec<Bytes>> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Scanned {
                records, failure, ..
            } => {
                assert_eq!(*failure, None, "a majority answers");
                Some(records.iter().map(|(key, _)| key.clone()).collect())
            }
            _ => None,
        })
    }
}

fn record() -> (Bytes, Cell) {
    let version = Version {
        hlc: 1,
        origin: 9,
        rmw: 0,
    };
    let cell = CellRef::value(Key::user(KEY).as_stored(), version, b"v");
    (Bytes::from_static(KEY), cell.to_owned())
}

fn page(records: Vec<(Bytes, Cell)>) -> Answer {
    Answer::Page {
        records,
        rest: None,
    }
}

#[test]
fn a_page_counts_an_old_owner_only_together_with_the_new_one() {
    let mut world = World::new();
    world.scan();
    let asked = world.asked();
    world.read_own_page();
    world.answer(&asked, OLD, page(Vec::new()));
    // It and the third member may have confirmed a write in the next epoch, without the old owner.
    let epoch = world.layout.epoch() + 1;
    let stale = Answer::Refused(Refused::Stale { epoch });
    world.answer(&asked, NEW, stale);
    world.lose_patience();
    assert_eq!(world.shown(), None, "no majority of this epoch answered");
    world.settle();
    let asked = world.asked();
    world.read_own_page();
    world.answer(&asked, NEW, page(vec![record()]));
    world.lose_patience();
    assert_eq!(world.shown(), Some(vec![Bytes::from_static(KEY)]));
}

#[test]
fn answers_of_one_epoch_do_not_count_for_the_owners_of_the_next() {
    let mut world = World::new();
    world.scan();
    let asked = world.asked();
    world.read_own_page();
    // It has not loaded yet. The two other owners may hold a record that it lacks.
    world.answer(&asked, NEW, page(Vec::new()));
    world.settle();
    world.lose_patience();
    assert_eq!(world.shown(), None, "no owner of this epoch was heard");
}
