//! Many watches of one hub: few pages are under way at a time, and each watch gets its own; clients
//! that stop reading leave a bounded number of keys behind.

use bytes::Bytes;
use dendra_base::peer::Change;
use dendra_base::{CellRef, Now};
use dendra_base::{Version, clock};
use dendra_watch::limits::{
    DIRTY_KEYS_KEPT, DIRTY_KEYS_MAX, DIRTY_MAX, PAGES_MAX, WRITE_US_DEFAULT,
};
use dendra_watch::{
    ChangePage, EndReason, Fed, FeedCursor, FeedId, FeedOwners, From, Hub, KeyPage, LookFound,
    PageShows, Span, WatchEvent, WatchId, Work,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

const MEMBER: FeedId = FeedId(1);
const WATCHES: u64 = 25;

fn at(milliseconds: u64) -> Now {
    Now {
        mono_us: milliseconds * 1_000,
        wall_ms: 1_900_000_000_000 + milliseconds,
        wall_part_us: 0,
    }
}

/// Pages of which every third fails, and some of which show more keys than a watch takes at once:
/// that one wants no further page for a while, though it stands in line.
#[test]
fn each_of_many_watches_gets_its_pages_and_few_are_under_way() {
    let (mut hub, mut work) = (
        Hub::new(FeedOwners::alone(MEMBER), WRITE_US_DEFAULT),
        Vec::new(),
    );
    hub.link(at(0), MEMBER, true, &mut work);
    for id in 0..WATCHES {
        let span = Span::of_prefix(format!("{id:02}").as_bytes());
        hub.open(at(0), id, span, &From::State, 60_000_000, &mut work);
        hub.more(at(0), id, &mut work);
    }
    let cursor = FeedCursor { life: 1, next: 0 };
    let end = Fed::Page(ChangePage {
        cursor,
        changes: Vec::new(),
        is_end: true,
    });
    let mut pages: VecDeque<(WatchId, u64, Span)> = VecDeque::new();
    let (mut live, mut answered) = (BTreeSet::new(), 0);
    for step in 0..20_000 {
        let now = at(step);
        for order in std::mem::take(&mut work) {
            match order {
                // It is held: nothing changes.
                Work::Ask { question, .. } if question.waits => {}
                Work::Ask { id, .. } => hub.fed(now, MEMBER, id, &end, &mut work),
                Work::Look { key, .. } => {
                    let version = Version::ZERO.successor();
                    let cell = CellRef::value(&key, version, b"v").to_owned();
                    let found = Some(LookFound {
                        cell: Some(cell),
                        is_complete: true,
                    });
                    hub.looked(now, &key, &found, &mut work);
                }
                Work::Page {
                    watch, id, span, ..
                } => pages.push_back((watch, id, span)),
                Work::Tell { watch, events, .. } => {
                    if events.contains(&WatchEvent::Live) {
                        live.insert(watch);
                    }
                    hub.more(now, watch, &mut work);
                }
            }
        }
        assert!(pages.len() <= PAGES_MAX, "{} pages", pages.len());
        if let Some((watch, id, span)) = pages.pop_front() {
            answered += 1;
            let count = if watch % 2 == 0 { 600 } else { 0 };
            let is_first = span.start.len() == 2;
            let key =
                |n: u64| Bytes::from([&span.start[..2], format!("{n:04}").as_bytes()].concat());
            let page = (answered % 3 > 0).then(|| KeyPage {
                keys: (0..if is_first { count } else { 0 })
                    .map(|n| (key(n), PageShows::Value { expiry_ms: None }))
                    .collect(),
                rest: is_first.then(|| key(9_999)),
                missing: Vec::new(),
            });
            hub.passed(now, (watch, id), &page, &mut work);
        }
        // Nothing but answers wakes the hub: a page that is owed comes without a tick.
        if live.len() as u64 == WATCHES {
            return;
        }
        if work.is_empty() && pages.is_empty() {
            hub.tick(now, &mut work);
        }
    }
    panic!("{} of {WATCHES} watches are live", live.len());
}

/// A member's changes, and the hub that follows them.
struct Followed {
    hub: Hub,
    /// How many keys the member writes, and how many of them the hub was told of.
    keys: u64,
    told: u64,
    /// Events that each client has read.
    read: BTreeMap<WatchId, Vec<WatchEvent>>,
    /// Each client has a token of its last event.
    tokens: BTreeSet<WatchId>,
}

impl Followed {
    fn version(number: u64) -> Version {
        Version {
            hlc: clock::CLOCK_MIN + number,
            origin: 1,
            rmw: 0,
        }
    }

    fn page(&mut self) -> ChangePage {
        let from = self.told;
        self.told = self.keys.min(from + 500);
        let change = |number| Change {
            number,
            key: Bytes::from(format!("{number:06}")),
            version: Self::version(number),
        };
        ChangePage {
            cursor: FeedCursor {
                life: 1,
                next: self.told,
            },
            changes: (from..self.told).map(change).collect(),
            is_end: self.told == self.keys,
        }
    }

    /// Carries out all orders, and those that follow from them.
    fn carry_out(&mut self, now: Now, mut work: Vec<Work>) {
        while let Some(order) = work.pop() {
            match order {
                Work::Ask { question, .. } if question.waits && self.told == self.keys => {}
                Work::Ask { id, .. } => {
                    let page = Fed::Page(self.page());
                    self.hub.fed(now, MEMBER, id, &page, &mut work);
                }
                Work::Look { key, .. } => {
                    let number = std::str::from_utf8(&key).expect("digits").parse();
                    let version = Self::version(number.expect("a number"));
                    let cell = CellRef::value(&key, version, &[b'v'; 100]).to_owned();
                    let found = Some(LookFound {
                        cell: Some(cell),
                        is_complete: true,
                    });
                    self.hub.looked(now, &key, &found, &mut work);
                }
                Work::Page { watch, id, .. } => {
                    let empty = Some(KeyPage::default());
                    self.hub.passed(now, (watch, id), &empty, &mut work);
                }
                Work::Tell {
                    watch,
                    events,
                    token,
                    ..
                } => {
                    self.read.entry(watch).or_default().extend(events);
                    if token.is_some() {
                        self.tokens.insert(watch);
                    } else {
                        self.tokens.remove(&watch);
                    }
                }
            }
        }
    }

    fn read_all(&mut self, now: Now) {
        let mut before = usize::MAX;
        let count = |it: &Followed| it.read.values().map(Vec::len).sum::<usize>();
        while count(self) != before {
            before = count(self);
            for id in 0..WATCHES {
                let mut work = Vec::new();
                self.hub.more(now, id, &mut work);
                self.carry_out(now, work);
            }
        }
    }
}

#[test]
fn clients_that_stop_reading_leave_a_bounded_number_of_keys_behind() {
    let mut all = Followed {
        hub: Hub::new(FeedOwners::alone(MEMBER), WRITE_US_DEFAULT),
        keys: 0,
        told: 0,
        read: BTreeMap::new(),
        tokens: BTreeSet::new(),
    };
    let mut work = Vec::new();
    all.hub.link(at(0), MEMBER, true, &mut work);
    all.carry_out(at(0), work);
    for id in 0..WATCHES {
        let mut work = Vec::new();
        all.hub.open(
            at(1),
            id,
            Span::of_prefix(b""),
            &From::Now,
            60_000_000,
            &mut work,
        );
        all.carry_out(at(1), work);
    }
    all.read_all(at(1));
    // No client leaves too many keys behind by itself, but all of them together do.
    all.keys = DIRTY_MAX as u64 - 1_000;
    assert!(all.keys * WATCHES > DIRTY_KEYS_MAX as u64);
    for step in 2..200 {
        let mut work = Vec::new();
        all.hub.tick(at(step * 1_000), &mut work);
        all.carry_out(at(step * 1_000), work);
    }
    assert_eq!(all.told, all.keys);
    all.read_all(at(200_000));
    let slow = WatchEvent::End {
        reason: EndReason::SlowReader,
    };
    let (ended, whole): (Vec<_>, Vec<_>) = all
        .read
        .iter()
        .partition(|(_, events)| events.last() == Some(&slow));
    assert!(ended.iter().all(|(id, _)| all.tokens.contains(*id)));
    let is_put = |event: &&WatchEvent| matches!(event, WatchEvent::Put { .. });
    for (id, events) in &whole {
        let puts = events.iter().filter(is_put).count() as u64;
        assert_eq!(puts, all.keys, "watch {id}");
    }
    let kept = whole.len() as u64 * all.keys;
    assert!(kept <= DIRTY_KEYS_MAX as u64, "{} go on", whole.len());
    assert!(
        kept + all.keys * 8 > DIRTY_KEYS_KEPT as u64,
        "{} go on",
        whole.len()
    );
}
