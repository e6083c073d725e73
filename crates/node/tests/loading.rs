//! A new owner that loads from three sources at once: how many pages, and what clients are left.

mod support;

use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Foreground, Readiness};
use dendra_base::{Cell, CellRef, ClusterVersion, Key, Space, Version};
use dendra_node::ring::Partition;
use dendra_node::ring::plan::MovePlan;
use dendra_node::ring::table::{MemberId, Move, Moving};
use dendra_node::step::{Effect, Event, Now, StoreOutcome};
use dendra_node::topology::drive::next_step;
use dendra_node::topology::record::{EpochRecord, NewPlan};
use dendra_node::{Hlc, Layout, Member, MemberIndex, Node, Topology};
use std::collections::BTreeMap;
use std::sync::Arc;

const WALL_MS: u64 = 1_700_000_000_000;
/// How long a source takes for a page.
const PAGE_US: u64 = 2_000;

/// An epoch in which the first position of all partitions that others own moves to the last of four
/// members; of these partitions those with the owner `from` in that position, if it is named.
fn moving_epoch(
    version: ClusterVersion,
    copies: u8,
    source: Option<MemberId>,
) -> (EpochRecord, MemberId) {
    let urls = ["h1:1", "h2:1", "h3:1", "h4:1"];
    let members = urls.map(|url| Member::new(url).expect("an address"));
    let topology = Topology::new("dendra", members.to_vec(), copies).expect("a topology");
    let founded = EpochRecord::founded(&topology).in_version(version);
    let ids: Vec<MemberId> = founded.members().iter().map(|member| member.id).collect();
    let nodes: Vec<_> = ids.iter().map(|id| (*id, u128::from(id.0) + 1)).collect();
    let enrolled = founded.enrolled(&nodes).expect("all are new");
    let me = ids[3];
    let owners = enrolled.owners();
    let to_me = |partition| {
        let from = owners.owners(partition)[0];
        let moving = Moving {
            position: 0,
            from: Some(from),
            to: Some(me),
        };
        let is_chosen = source.is_none_or(|source| source == from);
        let is_new = !owners.owners(partition).contains(&me);
        (is_new && is_chosen).then_some(Move { partition, moving })
    };
    let moves: Vec<Move> = owners.all().filter_map(to_me).collect();
    let plan = NewPlan {
        author: MemberId(0),
        moves: MovePlan {
            table: owners.digest(),
            copies: None,
            joins: Vec::new(),
            leaves: Vec::new(),
            necessary: moves.len(),
            rounds: vec![moves],
        },
        newcomers: Vec::new(),
        shares: Vec::new(),
        replication_factor: copies,
    };
    let planned = enrolled.planned(&plan).expect("a plan for this epoch");
    (next_step(&planned, &[], 256).expect("the plan begins"), me)
}

fn cell(key: &[u8], bytes: usize) -> Cell {
    let version = Version {
        hlc: WALL_MS << 16,
        origin: 9,
        rmw: 0,
    };
    CellRef::value(Key::user(key).as_stored(), version, &vec![7; bytes]).to_owned()
}

struct World {
    node: Node,
    now_us: u64,
    /// Answers on their way, and the own store's, by the time at which they come.
    coming: BTreeMap<(u64, u64), Event>,
    /// Pages that each source still has in each space.
    pages: BTreeMap<(MemberIndex, u8), u64>,
    /// Pages of each source that are under way.
    under_way: BTreeMap<MemberIndex, u64>,
    /// Clients' rounds a second, and what each page under way adds to their millisecond.
    rate: u64,
    page_adds_us: u64,
    told: Foreground,
    /// It answers nothing.
    lost: Option<MemberIndex>,
    /// Of the one record of each page of the clients' space; 0 = pages are empty.
    value_bytes: usize,
    loaded: Vec<Partition>,
    asked: u64,
    /// How often other members were asked for their clients.
    looks: u64,
    /// The most pages at once, and the time with any, since the last look.
    most: u64,
    busy_us: u64,
}

impl World {
    fn new(pages: u64) -> (World, usize) {
        World::in_version(ClusterVersion::FOREGROUND, pages)
    }

    fn in_version(version: ClusterVersion, pages: u64) -> (World, usize) {
        World::of(moving_epoch(version, 1, None), pages)
    }

    fn of((record, me): (EpochRecord, MemberId), pages: u64) -> (World, usize) {
        let layout = Arc::new(Layout::of_record(&record).expect("it has its members"));
        let me = layout.index_of(me).expect("a member");
        let moving = layout.ring().all().filter(|p| layout.twin(*p).is_some());
        let moving = moving.count();
        let others = layout.members().filter(|member| *member != me);
        let spaces = [Space::Protocol.byte(), Space::User.byte()];
        let of = |member| spaces.map(|space| ((member, space), pages));
        let hlc = Arc::new(Hlc::new(0, WALL_MS));
        let mut config = support::config(&layout, me, hlc);
        config.is_keeper = true;
        let world = World {
            node: Node::new(config),
            now_us: 1,
            coming: BTreeMap::new(),
            pages: others.flat_map(of).collect(),
            under_way: BTreeMap::new(),
            rate: 0,
            page_adds_us: 0,
            told: Foreground::default(),
            lost: None,
            value_bytes: 0,
            loaded: Vec::new(),
            asked: 0,
            looks: 0,
            most: 0,
            busy_us: 0,
        };
        (world, moving)
    }

    fn step(&mut self, event: Event) {
        let now = Now {
            mono_us: self.now_us,
            wall_ms: WALL_MS + self.now_us / 1_000,
            wall_part_us: 0,
        };
        let mut effects = Vec::new();
        self.node.step(now, event, &mut effects);
        for effect in effects {
            match effect {
                Effect::Ask {
                    member, id, ask, ..
                } => self.asked(member, id, ask),
                Effect::Loaded { partitions, .. } => self.loaded.extend(partitions),
                Effect::Write { ticket, cell, .. } => {
                    let version = cell.version;
                    let result = Ok(StoreOutcome::Applied { version });
                    let wrote = Event::Wrote { ticket, result };
                    self.coming.insert((self.now_us + 100, ticket), wrote);
                }
                // Of its hints, of which there are none.
                Effect::Page { ticket, .. } => {
                    let result = Ok((Vec::new(), None));
                    let paged = Event::Paged { ticket, result };
                    self.coming.insert((self.now_us + 100, ticket), paged);
                }
                Effect::Cover { .. } => {}
                other => panic!("{other:?} is no order of a load"),
            }
        }
    }

    fn asked(&mut self, member: MemberIndex, id: u64, ask: Ask) {
        if self.lost == Some(member) {
            return;
        }
        let (took_us, answer) = match ask {
            Ask::Foreground => {
                self.looks += 1;
                let told = match member {
                    MemberIndex(0) => self.told,
                    _ => Foreground::default(),
                };
                (200, Answer::Foreground(told))
            }
            Ask::Load { space, .. } => {
                self.asked += 1;
                *self.under_way.entry(member).or_default() += 1;
                let left = self.pages.get_mut(&(member, space.byte()));
                let left = left.expect("another member, and a space that has records");
                assert!(*left > 0, "{member:?} was at its end");
                *left -= 1;
                let next = (*left > 0).then(|| Bytes::from(left.to_be_bytes().to_vec()));
                let key = Bytes::from(left.to_be_bytes().to_vec());
                let records = match self.value_bytes {
                    0 => Vec::new(),
                    _ if space != Space::User => Vec::new(),
                    bytes => vec![(key.clone(), cell(&key, bytes))],
                };
                (PAGE_US, Answer::Loaded { records, next })
            }
            other => panic!("{other:?} is no question of a load"),
        };
        let answered = Event::Answered { member, id, answer };
        self.coming.insert((self.now_us + took_us, id), answered);
    }

    fn pass(&mut self, to_us: u64) {
        let pages: u64 = self.under_way.values().sum();
        let so_far = |us: u64| self.rate * us / 1_000_000;
        let rounds = so_far(to_us) - so_far(self.now_us);
        self.told.rounds += rounds;
        self.told.sum_us += rounds * (1_000 + pages * self.page_adds_us);
        self.most = self.most.max(pages);
        self.busy_us += if pages > 0 { to_us - self.now_us } else { 0 };
        self.now_us = to_us;
    }

    fn run(&mut self, for_us: u64) {
        (self.most, self.busy_us) = (0, 0);
        let until_us = self.now_us + for_us;
        loop {
            let answer_us = self.coming.keys().next().map(|(at_us, _)| *at_us);
            let due_us = self.node.due_us().unwrap_or(u64::MAX);
            let next_us = answer_us.unwrap_or(u64::MAX).min(due_us);
            if next_us > until_us {
                return self.pass(until_us);
            }
            self.pass(next_us.max(self.now_us));
            if answer_us == Some(next_us)
                && let Some((_, event)) = self.coming.pop_first()
            {
                if let Event::Answered { member, answer, .. } = &event
                    && matches!(answer, Answer::Loaded { .. })
                {
                    let under_way = self.under_way.get_mut(member).expect("it was asked");
                    assert_eq!(*under_way, 1, "one page of a source at a time");
                    *under_way -= 1;
                }
                self.step(event);
            }
            self.step(Event::Tick);
        }
    }
}

#[test]
fn without_clients_all_sources_are_read_at_once_and_each_page_once() {
    let (mut world, moving) = World::new(1_500);
    world.step(Event::Tick);
    world.run(2_000_000);
    world.run(500_000);
    assert_eq!(world.most, 3, "a page of each source");
    world.run(60_000_000);
    assert_eq!(world.asked, 3 * 2 * 1_500);
    world.loaded.sort_unstable();
    world.loaded.dedup();
    assert_eq!(world.loaded.len(), moving);
}

#[test]
fn without_the_old_owner_a_majority_of_the_others_is_read() {
    const PAGES: u64 = 20;
    let lost = MemberId(0);
    let epoch = moving_epoch(ClusterVersion::FOREGROUND, 3, Some(lost));
    let (mut world, moving) = World::of(epoch, PAGES);
    let member = MemberIndex(0);
    world.lost = Some(member);
    let is_up = false;
    world.step(Event::Link { member, is_up });
    world.step(Event::Tick);
    world.run(60_000_000);
    world.loaded.sort_unstable();
    world.loaded.dedup();
    assert!(moving > 0);
    assert_eq!(world.loaded.len(), moving);
    // Two of three confirmed a write: one of them alone may lack it.
    for (source, pages) in &world.pages {
        let left = if source.0 == member { PAGES } else { 0 };
        assert_eq!(*pages, left, "{source:?}");
    }
}

#[test]
fn clients_that_fare_badly_narrow_a_load_which_goes_on() {
    let (mut world, _) = World::new(1 << 40);
    (world.rate, world.page_adds_us) = (5_000, 3_000);
    world.step(Event::Tick);
    world.run(5_000_000);
    let asked = world.asked;
    world.run(10_000_000);
    assert_eq!(world.most, 1);
    let share = world.busy_us as f64 / 1e7;
    assert!(
        (0.05..0.3).contains(&share),
        "it loads for {share} of the time"
    );
    assert!(world.asked - asked > 250, "{} pages", world.asked - asked);
    // Without them it is wide again.
    world.rate = 0;
    world.run(2_000_000);
    world.run(500_000);
    assert_eq!(world.most, 3);
}

#[test]
fn a_cluster_of_an_earlier_version_does_not_hear_the_question() {
    let ask = |version| {
        let (mut world, _) = World::in_version(version, 1 << 40);
        world.step(Event::Tick);
        world.run(5_000_000);
        assert!(world.asked > 1_000, "{} pages", world.asked);
        world.looks
    };
    assert_eq!(ask(ClusterVersion::HORIZONS), 0);
    assert!(ask(ClusterVersion::FOREGROUND) > 0);
}

#[test]
fn an_order_bounds_the_bytes_of_a_load() {
    let of = |bytes_per_second| {
        let (mut world, _) = World::new(1 << 40);
        world.value_bytes = 16 << 10;
        world.step(Event::Throttle { bytes_per_second });
        world.step(Event::Tick);
        // The clean stretch in front, and the records of the protocol, are behind it.
        for left in world
            .pages
            .iter_mut()
            .filter(|(of, _)| of.1 == Space::Protocol.byte())
        {
            *left.1 = 2;
        }
        world.run(2_000_000);
        let before = world.node.loaded_bytes();
        world.run(10_000_000);
        (world.node.loaded_bytes() - before) / 10
    };
    let bounded = of(1 << 20);
    assert!((900 << 10..=1_100 << 10).contains(&bounded), "{bounded}");
    let free = of(1 << 30);
    assert!(free > 16 << 20, "{free}");
}

#[test]
fn a_store_that_has_to_catch_up_gets_a_page_a_second() {
    let (mut world, _) = World::new(1 << 40);
    world.step(Event::Tick);
    world.run(2_000_000);
    let pressed = |is_strained| Event::Pressed {
        readiness: Readiness::Ready,
        is_strained,
    };
    world.step(pressed(true));
    world.run(2_000_000);
    let before = world.asked;
    world.run(30_000_000);
    let pages = world.asked - before;
    assert!((20..=30).contains(&pages), "{pages} pages in 30 s");
    world.step(pressed(false));
    world.run(2_000_000);
    let before = world.asked;
    world.run(1_000_000);
    assert!(world.asked - before > 500, "{} pages", world.asked - before);
}
