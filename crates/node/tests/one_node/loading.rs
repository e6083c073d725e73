//! A new owner that loads from three sources at once: the number of pages, and the share that
//! clients are left.

use crate::epochs;
use crate::world::{Asked, WALL_MS, World, record, wrote};
use bytes::Bytes;
use dendra_base::Space;
use dendra_base::peer::{Answer, Ask, Foreground, Readiness, Refused};
use dendra_node::step::{Effect, Event};
use dendra_ownership::epoch::record::EpochRecord;
use dendra_ownership::ring::Partition;
use dendra_ownership::ring::table::{MemberId, Move};
use dendra_ownership::{Layout, MemberIndex};
use std::collections::{BTreeMap, BTreeSet};

/// How long a source takes for a page.
const PAGE_US: u64 = 2_000;
/// The last of four members.
const ME: MemberIndex = MemberIndex(3);

/// The new owner, its sources, and the clients of one of them.
struct Load {
    world: World,
    /// Pages that each source still has in each space.
    pages: BTreeMap<(MemberIndex, u8), u64>,
    /// A source that is walked anew, for other partitions, has so many pages again.
    again: Option<u64>,
    /// In tests of damage: the pages that sources cannot read, and those that were read. A page is
    /// known by its first key. Those of the clients' space follow those of the protocol.
    damaged: Option<BTreeSet<(MemberIndex, u64)>>,
    read: Vec<(MemberIndex, u64)>,
    /// Pages of each source that are under way.
    under_way: BTreeMap<MemberIndex, u64>,
    /// Clients' rounds a second, and the time that each page under way adds to their millisecond.
    rate: u64,
    page_adds_us: u64,
    told: Foreground,
    /// They do not answer.
    lost: BTreeSet<MemberIndex>,
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

impl Load {
    /// All partitions that others own alone move to the last of four members.
    fn new(pages: u64) -> Load {
        let founded = epochs::founded(4, 1);
        let enrolled = epochs::let_in(&founded);
        let me = MemberId(u32::from(ME.0));
        let owners = enrolled.owners();
        let of_others = owners.all().filter(|at| owners.owners(*at)[0] != me);
        let moves = of_others.map(|at| epochs::move_to(&enrolled, at, 0, me));
        Load::of(epochs::moving(&enrolled, moves.collect()), pages)
    }

    fn of(record: EpochRecord, pages: u64) -> Load {
        let world = World::with(record, ME, |config| config.is_keeper = true);
        let others = world.layout.members().filter(|member| *member != ME);
        let spaces = [Space::Protocol.byte(), Space::User.byte()];
        let of = |member| spaces.map(|space| ((member, space), pages));
        Load {
            pages: others.flat_map(of).collect(),
            world,
            again: None,
            damaged: None,
            read: Vec::new(),
            under_way: BTreeMap::new(),
            rate: 0,
            page_adds_us: 0,
            told: Foreground::default(),
            lost: BTreeSet::new(),
            value_bytes: 0,
            loaded: Vec::new(),
            asked: 0,
            looks: 0,
            most: 0,
            busy_us: 0,
        }
    }

    fn step(&mut self, event: Event) {
        self.world.step(event);
        for asked in self.world.asks() {
            self.ask(asked);
        }
        for write in self.world.writes() {
            self.world.later(100, write.ticket, wrote(&write));
        }
        // Of its hints, of which there are none.
        self.world.show_empty_pages();
        for effect in self.world.effects() {
            match effect {
                Effect::Loaded { partitions, .. } => self.loaded.extend(partitions),
                Effect::Cover { .. } => {}
                other => panic!("{other:?} is no order of a load"),
            }
        }
    }

    fn ask(&mut self, asked: Asked) {
        let Asked { member, id, ask } = asked;
        if self.lost.contains(&member) {
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
            Ask::Load { space, start, .. } if self.damaged.is_some() => {
                *self.under_way.entry(member).or_default() += 1;
                (PAGE_US, self.page_at(member, space, &start))
            }
            Ask::Load { space, start, .. } => {
                self.asked += 1;
                *self.under_way.entry(member).or_default() += 1;
                let left = self.pages.get_mut(&(member, space.byte()));
                let left = left.expect("another member, and a space that has records");
                if let Some(pages) = self.again.filter(|_| start.is_empty()) {
                    *left = pages;
                }
                assert!(*left > 0, "{member:?} was at its end");
                *left -= 1;
                // Keys rise.
                let key = Bytes::copy_from_slice(&(u64::MAX - *left).to_be_bytes());
                let next = (*left > 0).then(|| key.clone());
                let records = match self.value_bytes {
                    0 => Vec::new(),
                    _ if space != Space::User => Vec::new(),
                    bytes => {
                        let (_, cell) = record(&key, WALL_MS << 16, &vec![7; bytes]);
                        vec![(key, cell)]
                    }
                };
                (PAGE_US, Answer::Loaded { records, next })
            }
            other => panic!("{other:?} is no question of a load"),
        };
        let answered = Event::Answered { member, id, answer };
        self.world.later(took_us, id, answered);
    }

    /// The time from `from_us` until now is over.
    fn passed(&mut self, from_us: u64) {
        let now_us = self.world.now_us;
        let pages: u64 = self.under_way.values().sum();
        let so_far = |us: u64| self.rate * us / 1_000_000;
        let rounds = so_far(now_us) - so_far(from_us);
        self.told.rounds += rounds;
        self.told.sum_us += rounds * (1_000 + pages * self.page_adds_us);
        self.most = self.most.max(pages);
        self.busy_us += if pages > 0 { now_us - from_us } else { 0 };
    }

    fn run(&mut self, for_us: u64) {
        (self.most, self.busy_us) = (0, 0);
        let mut from_us = self.world.now_us;
        let until_us = from_us + for_us;
        loop {
            let came = self.world.next(until_us);
            self.passed(from_us);
            from_us = self.world.now_us;
            let Some(event) = came else {
                return;
            };
            if let Event::Answered { member, answer, .. } = &event
                && matches!(answer, Answer::Loaded { .. } | Answer::Refused(_))
            {
                let under_way = self.under_way.get_mut(member).expect("it was asked");
                assert_eq!(*under_way, 1, "one page of a source at a time");
                *under_way -= 1;
            }
            self.step(event);
        }
    }
}

impl Load {
    /// The page with this first key, of as many as the member has in each space.
    fn page_at(&mut self, member: MemberIndex, space: Space, start: &[u8]) -> Answer {
        let pages = self.pages[&(member, space.byte())];
        let in_front = if space == Space::User { pages } else { 0 };
        let first = start.try_into().map_or(in_front, u64::from_be_bytes);
        let page = (member, first);
        if self.damaged.as_ref().is_some_and(|it| it.contains(&page)) {
            return Answer::Refused(Refused::Damaged);
        }
        self.read.push(page);
        let next = first + 1;
        let is_last = next == in_front + pages;
        Answer::Loaded {
            records: Vec::new(),
            next: (!is_last).then(|| Bytes::copy_from_slice(&next.to_be_bytes())),
        }
    }

    /// How often this page of the member was read.
    fn reads(&self, member: u8, page: u64) -> usize {
        let page = (MemberIndex(member), page);
        self.read.iter().filter(|read| **read == page).count()
    }

    /// The link to `member` goes down, and it answers no page.
    fn lose(&mut self, member: MemberIndex) {
        self.lost.insert(member);
        let is_up = false;
        self.step(Event::Link { member, is_up });
    }

    /// The link to `member` is up again, and it answers.
    fn comes_back(&mut self, member: MemberIndex) {
        self.lost.remove(&member);
        let is_up = true;
        self.step(Event::Link { member, is_up });
    }

    /// Pages of both spaces that are left at `member`.
    fn left(&self, member: MemberIndex) -> u64 {
        let spaces = [Space::Protocol, Space::User];
        spaces
            .iter()
            .map(|space| self.pages[&(member, space.byte())])
            .sum()
    }
}

#[test]
fn without_clients_all_sources_are_read_at_once_and_each_page_once() {
    let mut load = Load::new(1_500);
    load.step(Event::Tick);
    load.run(2_000_000);
    load.run(500_000);
    assert_eq!(load.most, 3, "a page of each source");
    load.run(60_000_000);
    assert_eq!(load.asked, 3 * 2 * 1_500);
    load.loaded.sort_unstable();
    load.loaded.dedup();
    let layout = &load.world.layout;
    let moving = layout.ring().all().filter(|at| layout.twin(*at).is_some());
    assert_eq!(load.loaded.len(), moving.count());
}

#[test]
fn without_the_old_owner_a_majority_of_the_others_is_read() {
    const PAGES: u64 = 20;
    let lost = MemberIndex(0);
    let enrolled = epochs::enrolled(4, 3);
    let (owners, me) = (enrolled.owners(), MemberId(u32::from(ME.0)));
    // The second owner is the same one of each: from it alone they would all be loaded.
    let of_lost = owners.all().filter(|at| {
        let of = owners.owners(*at);
        of[..2] == [MemberId(u32::from(lost.0)), MemberId(1)] && !of.contains(&me)
    });
    let moves: Vec<_> = of_lost
        .map(|at| epochs::move_to(&enrolled, at, 0, me))
        .collect();
    let moving = moves.len();
    let mut load = Load::of(epochs::moving(&enrolled, moves), PAGES);
    load.lose(lost);
    load.step(Event::Tick);
    load.run(60_000_000);
    load.loaded.sort_unstable();
    load.loaded.dedup();
    assert!(moving > 0);
    assert_eq!(load.loaded.len(), moving);
    // Two of three confirmed a write: one of them alone may lack it.
    for (source, pages) in &load.pages {
        let left = if source.0 == lost { PAGES } else { 0 };
        assert_eq!(*pages, left, "{source:?}");
    }
}

/// The first positions of the partitions of the first three of four members, and how many there
/// are. Pages 0 to 19 of each source are of the protocol, pages 20 to 39 of clients.
fn with_damage(damaged: &[(u8, u64)]) -> (Load, usize) {
    let enrolled = epochs::enrolled(4, 3);
    let (owners, me) = (enrolled.owners(), MemberId(u32::from(ME.0)));
    let of_three = owners.all();
    let of_three = of_three.filter(|at| owners.owners(*at) == [0, 1, 2].map(MemberId));
    let moves = of_three.map(|at| epochs::move_to(&enrolled, at, 0, me));
    let moves: Vec<Move> = moves.collect();
    let moving = moves.len();
    assert!(moving > 0);
    let mut load = Load::of(epochs::moving(&enrolled, moves), 20);
    let damaged = damaged.iter().copied();
    load.damaged = Some(damaged.map(|(at, page)| (MemberIndex(at), page)).collect());
    (load, moving)
}

#[test]
fn what_one_source_cannot_read_the_others_give_and_the_rest_comes_from_that_one() {
    let (mut load, moving) = with_damage(&[(0, 5), (0, 30), (1, 10), (2, 35)]);
    load.step(Event::Tick);
    load.run(3_000_000);
    assert_eq!(load.loaded.len(), moving);
    for page in 0..40 {
        let is_damaged = [5, 30].contains(&page);
        assert_eq!(load.reads(0, page), usize::from(!is_damaged), "page {page}");
        for other in [1, 2] {
            let reads = load.reads(other, page);
            // One of them may be a page further before the other one is there.
            let most = usize::from(is_damaged || [6, 31].contains(&page));
            assert!(
                (usize::from(is_damaged)..=most).contains(&reads),
                "page {page}: {reads}"
            );
        }
    }
}

/// None of their pages behind the damage tells the old owner's place from where it can be read, so
/// each of them is tried.
#[test]
fn a_source_that_can_read_nothing_holds_no_load_up() {
    let all: Vec<(u8, u64)> = (0..40).map(|page| (0, page)).collect();
    let (mut load, moving) = with_damage(&all);
    load.step(Event::Tick);
    load.run(3_000_000);
    assert_eq!(load.loaded.len(), moving);
    for (member, page) in [1, 2]
        .into_iter()
        .flat_map(|at| (0..40).map(move |page| (at, page)))
    {
        assert_eq!(load.reads(member, page), 1, "page {page}");
    }
}

/// Too few sources can read it, until one of them is repaired.
#[test]
fn what_lies_in_front_of_damage_is_not_read_again_behind_its_repair() {
    let (mut load, moving) = with_damage(&[(0, 25), (1, 25)]);
    load.step(Event::Tick);
    load.run(30_000_000);
    assert_eq!(load.loaded, []);
    load.damaged = Some(BTreeSet::from([(MemberIndex(0), 25)]));
    load.run(30_000_000);
    assert_eq!(load.loaded.len(), moving);
    for page in (0..40).filter(|page| *page != 25) {
        assert_eq!(load.reads(0, page), 1, "page {page}");
    }
    assert_eq!([1, 2].map(|other| load.reads(other, 25)), [1, 1]);
}

/// Records may have fewer copies than the factor: those of a time before it was raised, or as many
/// as a client said. A majority of three of four owners may have held one without the fourth.
#[test]
fn without_the_old_owner_those_of_records_with_fewer_copies_are_read() {
    const PAGES: u64 = 20;
    let [lost, away] = [0, 1].map(MemberIndex);
    let enrolled = epochs::enrolled(5, 4);
    let (owners, me) = (enrolled.owners(), MemberId(u32::from(ME.0)));
    let of_lost = owners.all().filter(|at| {
        let of = owners.owners(*at);
        of[0] == MemberId(u32::from(lost.0)) && !of.contains(&me)
    });
    let of_lost: Vec<Partition> = of_lost.collect();
    let is_last = |at: &&Partition| owners.owners(**at)[3] == MemberId(u32::from(away.0));
    let last = of_lost.iter().filter(is_last).count();
    assert!(0 < last && last < of_lost.len(), "{last}");
    let moves = of_lost
        .iter()
        .map(|at| epochs::move_to(&enrolled, *at, 0, me));
    let mut load = Load::of(epochs::moving(&enrolled, moves.collect()), PAGES);
    load.lose(lost);
    load.step(Event::Tick);
    load.run(9_000_000);
    assert!(load.loaded.is_empty());
    load.lose(away);
    load.run(8_000_000);
    assert_eq!(load.loaded.len(), last, "the others wait");
    // It is away for as long as the old owner was. They wait no more, and have others walked.
    for left in load.pages.values_mut() {
        *left = PAGES;
    }
    load.run(60_000_000);
    assert_eq!(load.loaded.len(), of_lost.len());
}

/// A third copy of partitions of which the first of four members is the second owner. How many of
/// them the second and the third member are the first owners of.
fn third_copies(pages: u64) -> (Load, [usize; 2]) {
    let enrolled = epochs::enrolled(4, 2);
    let (owners, me) = (enrolled.owners(), MemberId(u32::from(ME.0)));
    let of_first = |first: u32| {
        let all = owners.all();
        all.filter(move |at| owners.owners(*at) == [MemberId(first), MemberId(0)])
    };
    let counts = [1, 2].map(|first| of_first(first).count());
    assert!(counts.iter().all(|count| *count > 0), "{counts:?}");
    let added = of_first(1).chain(of_first(2));
    let moves = added.map(|at| epochs::add(at, 2, me)).collect();
    (Load::of(epochs::adding(&enrolled, 3, moves), pages), counts)
}

/// Records may be of a time with one copy. Then the first owners alone have them.
#[test]
fn a_position_that_is_added_loads_from_the_first_owner() {
    const PAGES: u64 = 20;
    let (mut load, moving) = third_copies(PAGES);
    load.step(Event::Tick);
    load.run(60_000_000);
    assert_eq!(load.loaded.len(), moving.iter().sum());
    let left = |source: u8| load.pages[&(MemberIndex(source), Space::User.byte())];
    assert_eq!([left(0), left(1), left(2)], [PAGES, 0, 0]);
}

#[test]
fn a_first_owner_that_is_away_for_long_holds_no_addition_up() {
    const PAGES: u64 = 20;
    let lost = MemberIndex(1);
    let (mut load, moving) = third_copies(PAGES);
    load.lose(lost);
    load.step(Event::Tick);
    load.run(9_000_000);
    assert_eq!(load.loaded.len(), moving[1]);
    load.run(60_000_000);
    assert_eq!(load.loaded.len(), moving.iter().sum());
}

/// Four members whose replication factor has just fallen from three to two. The first position of
/// each partition whose owners, further ones included, are these moves to the last member.
fn behind_a_lowered_factor(pages: u64, row: [u8; 4]) -> (Load, usize) {
    let lowered = lowered();
    let moves = moves_of_row(&lowered, row);
    let count = moves.len();
    assert!(count > 0, "{row:?}");
    (Load::of(epochs::moving(&lowered, moves), pages), count)
}

fn lowered() -> EpochRecord {
    let founded = epochs::founded(4, 3);
    let lowered = epochs::with_copies(&epochs::let_in(&founded), 2);
    assert_eq!(lowered.narrowing().steps_left(), 3);
    lowered
}

fn has_row(layout: &Layout, at: Partition, row: [u8; 4]) -> bool {
    layout.ring().owners(at) == row.map(MemberIndex)
}

fn moves_of_row(record: &EpochRecord, row: [u8; 4]) -> Vec<Move> {
    let layout = Layout::of_record(record).expect("its members");
    let of_row = record.owners().all();
    let of_row = of_row.filter(|at| has_row(&layout, *at, row));
    let me = MemberId(u32::from(ME.0));
    of_row
        .map(|at| epochs::move_to(record, at, 0, me))
        .collect()
}

/// The first owner of `row` is lost, and member 3 takes its place: the two owners after it are
/// read to their ends.
fn reads_the_owners_of_before(row: [u8; 4]) {
    let (mut load, moving) = behind_a_lowered_factor(20, row);
    load.lose(MemberIndex(0));
    load.step(Event::Tick);
    load.run(60_000_000);
    assert_eq!(load.loaded.len(), moving);
    let left = [1, 2].map(|at| load.left(MemberIndex(at)));
    assert_eq!(left, [0, 0]);
}

/// Of two copies, the first and the third owner may have confirmed a write of before.
#[test]
fn behind_a_lowered_factor_the_owners_of_before_are_read() {
    reads_the_owners_of_before([0, 1, 2, 3]);
}

#[test]
fn behind_a_lowered_factor_an_owner_of_before_that_is_away_is_waited_for() {
    let (mut load, moving) = behind_a_lowered_factor(20, [0, 1, 2, 3]);
    let away = MemberIndex(2);
    load.lose(MemberIndex(0));
    load.lose(away);
    load.step(Event::Tick);
    load.run(600_000_000);
    assert_eq!(load.loaded, []);
    load.comes_back(away);
    load.run(60_000_000);
    assert_eq!(load.loaded.len(), moving);
}

/// It may have joined a moment ago. Then the owner after it was one.
#[test]
fn behind_a_lowered_factor_a_member_does_not_take_itself_for_an_owner_of_before() {
    reads_the_owners_of_before([0, 1, 3, 2]);
}

/// Two members are lost for ever. A plan that takes both away ends.
#[test]
fn behind_a_lowered_factor_an_owner_of_before_that_the_plan_takes_away_is_given_up() {
    const ROW: [u8; 4] = [0, 1, 2, 3];
    let lowered = lowered();
    let lost = [0, 2];
    let moving = epochs::leaving(&lowered, &lost.map(MemberId));
    let layout = Layout::of_record(&moving).expect("its members");
    let is_arriving = |at: &Partition| {
        let twin = layout.twin(*at);
        twin.is_some_and(|twin| (twin.place, twin.member) == (0, ME)) && has_row(&layout, *at, ROW)
    };
    let arriving: Vec<Partition> = layout.ring().all().filter(is_arriving).collect();
    assert!(!arriving.is_empty());
    let mut load = Load::of(moving, 20);
    load.again = Some(20);
    for at in lost {
        load.lose(MemberIndex(at as u8));
    }
    load.step(Event::Tick);
    load.run(9_000_000);
    assert!(!arriving.iter().any(|at| load.loaded.contains(at)));
    load.run(60_000_000);
    assert!(arriving.iter().all(|at| load.loaded.contains(at)));
}

/// The second owner is read in its place, which takes a while.
#[test]
fn a_first_owner_that_comes_back_before_an_addition_has_loaded_is_read() {
    const PAGES: u64 = 20;
    let first = MemberIndex(1);
    let (mut load, moving) = third_copies(PAGES);
    // A page a second.
    load.step(Event::Pressed {
        readiness: Readiness::Ready,
        is_strained: true,
    });
    load.lose(first);
    load.step(Event::Tick);
    load.again = Some(PAGES);
    let second = MemberIndex(0);
    while load.left(second) == 2 * PAGES {
        assert!(load.world.now_us < 200_000_000);
        load.run(1_000_000);
    }
    assert!(load.world.now_us > 10_000_000);
    load.comes_back(first);
    load.run(200_000_000);
    let left = [first, second].map(|at| load.left(at));
    assert_eq!(left, [0, 0]);
    assert_eq!(load.loaded.len(), moving.iter().sum());
}

#[test]
fn clients_that_fare_badly_narrow_a_load_which_goes_on() {
    let mut load = Load::new(1 << 40);
    (load.rate, load.page_adds_us) = (5_000, 3_000);
    load.step(Event::Tick);
    load.run(5_000_000);
    let asked = load.asked;
    load.run(10_000_000);
    assert_eq!(load.most, 1);
    let share = load.busy_us as f64 / 1e7;
    assert!(
        (0.05..0.3).contains(&share),
        "it loads for {share} of the time"
    );
    assert!(load.asked - asked > 250, "{} pages", load.asked - asked);
    // Without them it is wide again.
    load.rate = 0;
    load.run(2_000_000);
    load.run(500_000);
    assert_eq!(load.most, 3);
}

#[test]
fn an_order_bounds_the_bytes_of_a_load() {
    let of = |bytes_per_second| {
        let mut load = Load::new(1 << 40);
        load.value_bytes = 16 << 10;
        load.step(Event::Throttle { bytes_per_second });
        load.step(Event::Tick);
        // The loader has passed the clean stretch in front, and the records of the protocol.
        for ((_, space), left) in &mut load.pages {
            if *space == Space::Protocol.byte() {
                *left = 2;
            }
        }
        load.run(2_000_000);
        let before = load.world.node.loaded_bytes();
        load.run(10_000_000);
        (load.world.node.loaded_bytes() - before) / 10
    };
    let bounded = of(1 << 20);
    assert!((900 << 10..=1_100 << 10).contains(&bounded), "{bounded}");
    let free = of(1 << 30);
    assert!(free > 16 << 20, "{free}");
}

#[test]
fn a_store_that_has_to_catch_up_gets_a_page_a_second() {
    let mut load = Load::new(1 << 40);
    load.step(Event::Tick);
    load.run(2_000_000);
    let pressed = |is_strained| Event::Pressed {
        readiness: Readiness::Ready,
        is_strained,
    };
    load.step(pressed(true));
    load.run(2_000_000);
    let before = load.asked;
    load.run(30_000_000);
    let pages = load.asked - before;
    assert!((20..=30).contains(&pages), "{pages} pages in 30 s");
    load.step(pressed(false));
    load.run(2_000_000);
    let before = load.asked;
    load.run(1_000_000);
    assert!(load.asked - before > 500, "{} pages", load.asked - before);
}
