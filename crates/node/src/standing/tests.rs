//! The line against a loop that is offered more than it can do, and against arbitrary calls.
//!
//! Not here: sockets (crate `server`, `tests/standing.rs`).

use super::*;
use dendra_base::Prng;
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

const TARGET_US: u64 = 20_000;

/// Where all clients are, where a test does not say more.
const ONE: AddressGroup = AddressGroup::of_v4(1);

#[test]
fn a_burst_and_a_stopped_process_change_nothing() {
    let mut line = Line::<()>::new(TARGET_US);
    assert_eq!(line.sample(1_000_000, 5_000), None);
    // Stopped for two seconds.
    assert_eq!(line.sample(3_000_000, 2_000_000), None);
    assert_eq!(line.sample(3_030_000, 15_000), None);
    assert_eq!(line.sample(3_040_000, 3_000), None);
    // 80 ms of it.
    for at in 0..7 {
        assert_eq!(line.sample(4_000_000 + at * 10_000, 21_000), None, "{at}");
    }
    assert_eq!(line.sample(4_100_000, 1_000), None);
    assert!(!line.is_standing());
}

#[test]
fn a_delay_that_stands_begins_a_line_and_half_a_second_of_calm_ends_it() {
    let mut line = Line::new(TARGET_US);
    let began = (1..20).find(|at| line.sample(1_000_000 + at * 40_000, 40_000).is_some());
    assert_eq!(began, Some(3), "100 ms behind the beginning of the first");
    let (mut now_us, mut called) = (2_000_000, Vec::new());
    for request in 0..100 {
        line.join(now_us, ONE, request);
    }
    assert_eq!(line.call(now_us, &mut called), None);
    let newest: Vec<_> = (68..100).rev().map(|n| (n, Called::Serve)).collect();
    assert_eq!(called, newest);
    called.clear();
    now_us += TARGET_US + 1;
    assert_eq!(line.call(now_us, &mut called), None);
    let refused: Vec<_> = called.split_off(TURN).into_iter().map(|(n, _)| n).collect();
    assert_eq!(refused, [35, 0, 34, 1, 33, 2, 32, 3], "one for eight");
    now_us += 1_000;
    assert_eq!(line.call(now_us, &mut called), None);
    assert!(line.is_empty());
    let mut calm = |line: &mut Line<u32>| {
        let ends = |at: &u64| line.call(now_us + at, &mut called).is_some();
        let took_us = (0..500).map(|at| at * 10_000).find(ends).expect("it ends");
        now_us += took_us + 100_000;
        assert_eq!(line.sample(now_us, TARGET_US + 1), Some(LineChange::Begins));
        took_us
    };
    let bounds = |us: u64| us..us + 4 * WINDOW_US;
    assert!(bounds(CALM_US).contains(&calm(&mut line)));
    assert!(
        bounds(2 * CALM_US).contains(&calm(&mut line)),
        "it had to begin again"
    );
}

#[test]
fn a_line_that_comes_back_at_once_has_to_be_calm_for_twice_as_long_four_seconds_at_most() {
    let (mut line, mut called) = (Line::<()>::new(TARGET_US), Vec::new());
    let mut now_us = 1_000_000;
    while line.sample(now_us, 2 * TARGET_US).is_none() {
        now_us += 2 * TARGET_US;
    }
    for calm_us in [500_000, 1_000_000, 2_000_000, 4_000_000, 4_000_000] {
        let from_us = now_us;
        while line.call(now_us, &mut called).is_none() {
            now_us += WINDOW_US;
        }
        assert_eq!(now_us - from_us, calm_us);
        now_us += ALERT_US - 1;
        let change = line.sample(now_us, TARGET_US + 1);
        assert_eq!(change, Some(LineChange::Begins), "one sample is enough");
    }
    while line.call(now_us, &mut called).is_none() {
        now_us += WINDOW_US;
    }
    now_us += ALERT_US;
    assert_eq!(
        line.sample(now_us, TARGET_US + 1),
        None,
        "it may be a burst"
    );
}

#[test]
fn in_an_overload_that_lasts_an_old_request_is_refused_unless_a_newer_one_waits() {
    const TWO: AddressGroup = AddressGroup::of_v4(2);
    let mut line = Line::new(TARGET_US);
    let mut now_us = 1_000_000;
    while line.sample(now_us, 2 * TARGET_US).is_none() {
        now_us += 2 * TARGET_US;
    }
    let stale_us = STALE_US_MIN.max(TARGET_US);
    let call = |line: &mut Line<u32>, now_us: u64| {
        let mut called = Vec::new();
        line.call(now_us, &mut called);
        called
    };
    let join = |line: &mut Line<u32>, now_us: u64, requests: Range<u32>| {
        for request in requests {
            line.join(now_us, ONE, request);
        }
    };
    let are = |called: &[(u32, Called)], what: Called| called.iter().all(|it| it.1 == what);
    join(&mut line, now_us, 0..300);
    let began_us = now_us;
    now_us += STALE_FROM_US - 1;
    let called = call(&mut line, now_us);
    assert!(are(&called[..TURN], Called::Serve), "it may be a burst");
    now_us += 1;
    let called = call(&mut line, now_us);
    assert!(are(&called[..TURN], Called::Refuse), "{called:?}");
    // A source that has not had its turn is called, and served, however long it has waited.
    line.join(began_us, TWO, 1_000);
    line.join(now_us, ONE, 1_001);
    let called = call(&mut line, now_us);
    assert_eq!(called[0], (1_000, Called::Serve));
    assert_eq!(called[1], (1_001, Called::Serve));
    assert!(are(&called[2..TURN], Called::Refuse), "{called:?}");
    join(&mut line, now_us, 2_000..2_001);
    now_us += stale_us;
    assert_eq!(
        call(&mut line, now_us)[0],
        (2_000, Called::Serve),
        "not longer"
    );
    join(&mut line, now_us, 2_001..2_002);
    now_us += stale_us + 1;
    assert_eq!(call(&mut line, now_us)[0], (2_001, Called::Refuse));
    // Once the line was empty, what comes is a burst again.
    while !line.is_empty() {
        call(&mut line, now_us);
    }
    assert!(line.is_standing());
    join(&mut line, now_us, 3_000..3_100);
    now_us += stale_us + 1;
    let called = call(&mut line, now_us);
    assert!(are(&called[..TURN], Called::Serve), "{called:?}");
}

#[test]
fn what_waits_for_longer_than_a_deadline_is_told_so_though_newer_ones_are_served() {
    let (mut line, mut called) = (Line::new(TARGET_US), Vec::new());
    let mut now_us = 1_000_000;
    while line.sample(now_us, 2 * TARGET_US).is_none() {
        now_us += 2 * TARGET_US;
    }
    let old = 0..1_000;
    for request in old.clone() {
        line.join(now_us, ONE, request);
    }
    now_us += EXPIRED_US;
    // Newer ones fill each turn, and those that are refused for them are told besides.
    let mut turn = |now_us: u64| {
        for request in 1_000..1_000 + TURN {
            line.join(now_us, ONE, request);
        }
        called.clear();
        line.call(now_us, &mut called);
        let told = called.iter().filter(|(request, _)| old.contains(request));
        told.count()
    };
    assert_eq!(turn(now_us), TURN / SERVED_PER_REFUSAL, "at its deadline");
    let more = TURN / SERVED_PER_REFUSAL + EXPIRED_A_TURN;
    assert_eq!(turn(now_us + 1), more, "behind it");
}

#[test]
fn without_a_target_nothing_stands_in_line() {
    let mut line = Line::<()>::new(0);
    for at in 1..1000 {
        assert_eq!(line.sample(at * 1_000_000, 900_000), None);
    }
}

/// One loop and its clients: requests arrive at random, each in a socket of its own. A client that
/// waited for its patience closes the socket; the loop notices when it calls the request, and not
/// in the run queue.
struct World {
    prng: Prng,
    now_us: u64,
    /// When the requests came that wait in the run queue, oldest first.
    queue: VecDeque<u64>,
    line: Line<u64>,
    next_us: u64,
    left_us_100: u64,
    good: u64,
    refused: u64,
    late: u64,
    took_us: Vec<u64>,
}

const SERVE_US: u64 = 20;
const REFUSE_US: u64 = 7;
/// The cost of a connection after its client has gone.
const GONE_US: u64 = 5;

impl World {
    fn new(seed: u64, target_us: u64) -> World {
        World {
            prng: Prng::new(seed),
            now_us: 1,
            queue: VecDeque::new(),
            line: Line::new(target_us),
            next_us: 1,
            left_us_100: 0,
            good: 0,
            refused: 0,
            late: 0,
            took_us: Vec::new(),
        }
    }

    fn arrive(&mut self, gap_us_100: u64) {
        while self.next_us <= self.now_us {
            if self.line.is_standing() {
                self.line.join(self.next_us, ONE, self.next_us);
            } else {
                self.queue.push_back(self.next_us);
            }
            self.left_us_100 += self.prng.below(2 * gap_us_100 + 1);
            self.next_us += self.left_us_100 / 100;
            self.left_us_100 %= 100;
        }
    }

    fn serve(&mut self, came_us: u64, patience_us: u64) {
        self.now_us += SERVE_US;
        let took_us = self.now_us - came_us;
        self.took_us.push(took_us);
        if took_us <= patience_us {
            self.good += 1;
        } else {
            self.late += 1;
        }
    }

    /// `load` is the offered load, in hundredths of the capacity.
    fn run(&mut self, load: u64, patience_us: u64, until_us: u64) {
        let gap_us_100 = SERVE_US * 100 * 100 / load;
        let mut called = Vec::new();
        while self.now_us < until_us {
            self.arrive(gap_us_100);
            let woken_us = self.now_us;
            if self.queue.is_empty() && self.line.is_empty() {
                self.line.call(self.now_us, &mut called);
                self.now_us = self.next_us;
                continue;
            }
            for _ in 0..self.queue.len() {
                let came_us = self.queue.pop_front().expect("counted above");
                self.serve(came_us, patience_us);
            }
            let lag_us = self.now_us - woken_us;
            self.line.sample(self.now_us, lag_us);
            self.line.call(self.now_us, &mut called);
            for (came_us, what) in called.drain(..) {
                match what {
                    _ if self.now_us - came_us > patience_us => self.now_us += GONE_US,
                    Called::Serve => self.serve(came_us, patience_us),
                    Called::Refuse => {
                        self.refused += 1;
                        self.now_us += REFUSE_US;
                    }
                }
            }
        }
    }
}

/// Answers in time, in hundredths of the capacity over the two seconds behind the first two.
fn goodput(seed: u64, target_us: u64, load: u64, patience_us: u64) -> (u64, World) {
    let mut world = World::new(seed, target_us);
    world.run(load, patience_us, 2_000_000);
    (world.good, world.late) = (0, 0);
    world.took_us.clear();
    let from_us = world.now_us;
    world.run(load, patience_us, from_us + 2_000_000);
    let most = (world.now_us - from_us) / SERVE_US;
    (world.good * 100 / most, world)
}

#[test]
fn goodput_stays_at_its_peak_at_twice_and_five_times_the_load_and_collapses_without() {
    stay_at_the_peak(0..1, &[1_000_000]);
}

#[test]
#[ignore = "at length"]
fn goodput_stays_at_its_peak_whatever_the_patience() {
    stay_at_the_peak(0..2, &[100_000, 1_000_000, 5_000_000]);
}

fn stay_at_the_peak(seeds: Range<u64>, patiences_us: &[u64]) {
    for seed in seeds {
        for &patience_us in patiences_us {
            for (load, least) in [(90, 88), (200, 93), (500, 93)] {
                let (good, mut world) = goodput(seed, TARGET_US, load, patience_us);
                let said = format!("at {load} %, patience {patience_us} µs, seed {seed}");
                assert!(good >= least, "{good} % {said}");
                world.took_us.sort_unstable();
                let p99_us = world.took_us[world.took_us.len() * 99 / 100];
                assert!(p99_us < 5_000, "{p99_us} µs {said}");
                assert_eq!(world.late, 0, "nothing is done for nobody: {said}");
                assert_eq!(world.refused == 0, load < 100, "{} {said}", world.refused);
            }
        }
        let (good, _) = goodput(seed, 0, 200, 100_000);
        assert!(good < 10, "{good} % without it: this world shows nothing");
    }
}

#[test]
fn behind_an_overload_the_line_ends_and_nothing_is_left_in_it() {
    for seed in 0..5 {
        let mut world = World::new(seed, TARGET_US);
        world.run(300, 1_000_000, 1_000_000);
        assert!(world.line.is_standing());
        world.run(50, 1_000_000, 5_000_000);
        assert!(!world.line.is_standing() && world.line.is_empty());
    }
}

const CROWD: usize = 2_000;

/// A client with one connection beside a crowd that comes from one address: all ask again as soon
/// as they have an answer.
struct Beside {
    took_us: Vec<u64>,
    refused: u64,
    /// Answers to all of them, in hundredths of the capacity.
    good: u64,
}

fn beside_a_crowd(
    seed: u64,
    client: AddressGroup,
    crowd: impl Fn(usize) -> AddressGroup,
) -> Beside {
    let mut prng = Prng::new(seed);
    let mut line = Line::new(TARGET_US);
    let mut now_us = 1_000_000;
    while !line.is_standing() {
        now_us += 2 * TARGET_US;
        line.sample(now_us, 2 * TARGET_US);
    }
    let source = |who: usize| if who == 0 { client } else { crowd(who) };
    let mut asking: Vec<usize> = (0..=CROWD).collect();
    let (from_us, mut asked_us, mut called) = (now_us, 0, Vec::new());
    let (mut served, mut refused, mut took_us) = (0, 0, Vec::new());
    while now_us < from_us + 3_000_000 {
        while !asking.is_empty() {
            let who = asking.swap_remove(prng.below(asking.len() as u64) as usize);
            line.join(now_us, source(who), who);
            if who == 0 {
                asked_us = now_us;
            }
        }
        assert_eq!(line.call(now_us, &mut called), None, "it does not end");
        for (who, what) in called.drain(..) {
            asking.push(who);
            match what {
                Called::Serve => now_us += SERVE_US,
                Called::Refuse => now_us += REFUSE_US,
            }
            match what {
                Called::Serve => served += 1,
                Called::Refuse => refused += u64::from(who == 0),
            }
            if who == 0 {
                took_us.push(now_us - asked_us);
            }
        }
    }
    if !asking.contains(&0) {
        took_us.push(now_us - asked_us);
    }
    took_us.sort_unstable();
    Beside {
        took_us,
        refused,
        good: served * SERVE_US * 100 / (now_us - from_us),
    }
}

#[test]
fn one_connection_beside_two_thousand_of_another_source_waits_for_no_more_than_a_turn() {
    for seed in 0..3 {
        let fair = beside_a_crowd(seed, AddressGroup::of_v4(7), |_| ONE);
        let longest_us = fair.took_us.last().copied().expect("it was answered");
        let turn_us = TURN as u64 * (SERVE_US + REFUSE_US);
        assert!(longest_us <= turn_us, "{longest_us} µs, seed {seed}");
        assert_eq!(fair.refused, 0, "seed {seed}");
        assert!(fair.good >= 93, "{} %, seed {seed}", fair.good);
        let alike = beside_a_crowd(seed, ONE, |_| ONE);
        let longest_us = alike
            .took_us
            .last()
            .copied()
            .expect("it was answered, or waits");
        assert!(
            longest_us > 100_000,
            "{longest_us} µs in one stack: this world shows nothing"
        );
    }
}

#[test]
fn a_source_of_large_requests_gets_no_more_time_than_one_of_small_ones() {
    /// Calls whose work a large request comes to: one of a mebibyte.
    const LARGE: u64 = 16;
    let (mut line, mut called) = (Line::new(TARGET_US), Vec::new());
    let mut now_us = 1_000_000;
    line.charge(ONE, 1_000_000);
    while !line.is_standing() {
        now_us += 2 * TARGET_US;
        line.sample(now_us, 2 * TARGET_US);
    }
    let sources = [ONE, AddressGroup::of_v4(2)];
    let mut took_us = [0; 2];
    let mut asking: Vec<usize> = (0..400).map(|who| who % 2).collect();
    let until_us = now_us + 3_000_000;
    while now_us < until_us {
        for who in asking.drain(..) {
            line.join(now_us, sources[who], who);
        }
        line.call(now_us, &mut called);
        for (who, what) in called.drain(..) {
            asking.push(who);
            let calls = if who == 0 { LARGE } else { 1 };
            let spent_us = match what {
                Called::Serve => calls * SERVE_US,
                Called::Refuse => REFUSE_US,
            };
            if what == Called::Serve {
                line.charge(sources[who], calls - 1);
            }
            took_us[who] += spent_us;
            now_us += spent_us;
        }
    }
    let of_small = took_us[1] * 100 / (took_us[0] + took_us[1]);
    assert!((45..=55).contains(&of_small), "{of_small} % of the time");
}

#[test]
fn each_of_many_sources_is_served_in_turn_however_many_there_are() {
    const SOURCES: usize = 10_000;
    let mut line = Line::new(TARGET_US);
    let mut now_us = 1_000_000;
    while !line.is_standing() {
        now_us += 2 * TARGET_US;
        line.sample(now_us, 2 * TARGET_US);
    }
    // Each asks again at once. All of them are called in 200 ms, and twice that is the longest that
    // one waits.
    let turn_us = SOURCES as u64 * (SERVE_US + REFUSE_US);
    let mut asking: Vec<usize> = (0..SOURCES).collect();
    let (mut served_us, mut called) = (vec![now_us; SOURCES], Vec::new());
    let until_us = now_us + 3_000_000;
    while now_us < until_us {
        for who in asking.drain(..) {
            line.join(now_us, AddressGroup::of_v4(who as u32), who);
        }
        line.call(now_us, &mut called);
        for (who, what) in called.drain(..) {
            now_us += SERVE_US;
            let waited_us = now_us - served_us[who];
            assert!(waited_us <= 2 * turn_us, "{who} waited for {waited_us} µs");
            if what == Called::Serve {
                served_us[who] = now_us;
            }
            asking.push(who);
        }
    }
    let waited_us = served_us.iter().map(|served_us| now_us - served_us).max();
    assert!(waited_us <= Some(2 * turn_us), "{waited_us:?} µs");
}

proptest! {
    #[test]
    fn whatever_happens_each_request_is_called_once_or_leaves(
        steps in prop::collection::vec((0u64..60_000, 0u8..4, 0u64..200_000), 1..400),
        target_us in 0u64..50_000,
    ) {
        let mut line = Line::new(target_us);
        let (mut now_us, mut inside, mut next) = (0, BTreeMap::new(), 0u32);
        let (mut served, mut refused) = (0, 0);
        for (gap_us, what, lag_us) in steps {
            now_us += gap_us;
            match what {
                0 => _ = line.sample(now_us, lag_us),
                1 => for _ in 0..lag_us % 80 {
                    let place = line.join(now_us, AddressGroup::of_v4(next % 7), next);
                    inside.insert(next, (now_us, place));
                    next += 1;
                },
                2 => if let Some((_, (_, place))) = inside.pop_first() {
                    line.leave(place);
                },
                _ => {
                    let mut called = Vec::new();
                    let busy_us = now_us - line.busy_since_us;
                    let has_lasted = line.is_standing && busy_us >= STALE_FROM_US;
                    line.call(now_us, &mut called);
                    let mut expired = 0;
                    for (request, what) in called {
                        let (came_us, _) = inside.remove(&request).expect("called once");
                        let is_late = now_us - came_us > STALE_US_MIN.max(target_us);
                        match what {
                            Called::Serve => served += 1,
                            Called::Refuse if has_lasted && is_late => (),
                            Called::Refuse if now_us - came_us > EXPIRED_US && expired < 2 => {
                                expired += 1;
                            }
                            Called::Refuse => refused += 1,
                        }
                    }
                }
            }
            prop_assert_eq!(line.len(), inside.len());
            prop_assert!(refused * SERVED_PER_REFUSAL <= served);
        }
    }
}
