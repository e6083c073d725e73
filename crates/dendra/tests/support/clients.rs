//! Many clients of a cluster, all that they were told, and the simulator's checkers over it.
//!
//! ```text
//! 8 threads: get 8, put 4, put if matches 2, put if absent 1, delete 1 of 16, on few keys ─► ClientOp ─► history
//! history ─► versions::check (trusts versions, looks at every operation)
//!         └► linear::key_verdict (trusts nothing, searches an order for each key): Good, not Undecided
//! ```
//!
//! Invariants
//! 1. A value is the number of the operation that wrote it: a read names its writer.
//! 2. Times are of one clock, around the whole request: the effect lies in between, and an answer
//!    that did not come is `Unknown`.
//! 3. A load ends after so many operations, never after a time.
//!
//! Not here: the rules for a history, and why (crate `dendra-sim`, `check/`). See:
//! docs/verification.md.

use super::http::{Answer, Client, PATIENCE};
use dendra_base::{Prng, Version};
use dendra_sim::check::linear::{PendingRule, SearchVerdict, key_verdict};
use dendra_sim::check::{Disks, versions};
use dendra_sim::history::{ClientEnd, ClientOp, Promise, SeenCondition, SeenValue, Wish};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Clients of a load.
const CLIENTS: usize = 8;
/// Keys of a load: so few that operations meet.
const KEYS: usize = 6;

/// A load that runs.
pub(crate) struct Load {
    /// In front of every key, so that no load meets the values of another one.
    name: String,
    timeout_ms: u32,
    origin: Instant,
    numbers: AtomicU32,
    answered: AtomicU64,
    is_over: AtomicBool,
    history: Mutex<Vec<ClientOp>>,
    said: Mutex<Vec<String>>,
}

impl Load {
    /// Microseconds since the load began.
    pub(crate) fn now_us(&self) -> u64 {
        self.origin.elapsed().as_micros() as u64
    }

    /// Waits until so many more operations have ended.
    pub(crate) fn run_on(&self, operations: u64) {
        let until = self.answered.load(Ordering::SeqCst) + operations;
        let deadline = Instant::now() + PATIENCE;
        while self.answered.load(Ordering::SeqCst) < until {
            assert!(Instant::now() < deadline, "the load does not go on");
            std::thread::park_timeout(Duration::from_millis(1));
        }
    }

    /// Waits for operations that began at `at_us` or later.
    pub(crate) fn run_on_until(&self, at_us: u64) {
        while self.now_us() < at_us {
            self.run_on(1);
        }
        // Those that are under way began earlier.
        self.run_on(CLIENTS as u64);
    }

    fn client(&self, own: usize, nodes: &[(usize, SocketAddr)]) {
        let mut nodes = nodes.iter().cycle().skip(own % nodes.len());
        let mut open =
            || nodes.find_map(|(member, address)| Some((*member, Client::open(*address).ok()?)));
        let (mut member, mut client) = open().expect("a node listens");
        let mut prng = Prng::new(own as u64);
        let mut seen: Vec<Option<SeenValue>> = vec![None; KEYS];
        while !self.is_over.load(Ordering::SeqCst) {
            let key = prng.below(KEYS as u64) as usize;
            let number = self.numbers.fetch_add(1, Ordering::SeqCst) + 1;
            let put = |base| Wish::Put {
                value: number,
                base,
            };
            let wish = match prng.below(16) {
                0..8 => Wish::Get,
                8..12 => put(SeenCondition::Any),
                12..14 => put(seen[key].map_or(SeenCondition::Present, SeenCondition::Matches)),
                14 => put(SeenCondition::Absent),
                _ => Wish::Delete {
                    base: SeenCondition::Any,
                },
            };
            let begun_us = self.now_us();
            let answer = self.ask(&mut client, key, wish);
            let ended_us = self.now_us();
            let asked = member;
            let end = match answer {
                Some(answer) => {
                    if answer.status >= 500 {
                        let text = String::from_utf8_lossy(&answer.body);
                        let said = format!("{wish:?}: {} {text}", answer.receipt);
                        self.said.lock().expect("no holder panics").push(said);
                    }
                    end_of(&answer, wish)
                }
                None => {
                    (member, client) = open().expect("a node listens");
                    ClientEnd::Unknown
                }
            };
            match end {
                ClientEnd::Found(found) => seen[key] = Some(found),
                ClientEnd::Written(version) => {
                    seen[key] = wish.leaves().map(|value| SeenValue { version, value });
                }
                _ => {}
            }
            let op = ClientOp {
                number,
                client: own,
                key,
                wish,
                ack: 2,
                from: 3,
                promise: Promise::Linearizable,
                is_fleeting: false,
                expiry_ms: None,
                wall_ms: (0, 0),
                passed_ms: 0,
                member: asked,
                begun_us,
                ended_us,
                end,
            };
            self.history.lock().expect("no holder panics").push(op);
            self.answered.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn ask(&self, client: &mut Client, key: usize, wish: Wish) -> Option<Answer> {
        let deadline = format!("Dendra-Timeout-Ms: {}", self.timeout_ms);
        let condition = match wish.base() {
            SeenCondition::Any => None,
            SeenCondition::Present => Some("If-Match: *".to_owned()),
            SeenCondition::Absent => Some("If-None-Match: *".to_owned()),
            SeenCondition::Matches(seen) => Some(format!("If-Match: \"{}\"", seen.version)),
            SeenCondition::Differs(_) => unreachable!("no write has this condition over HTTP"),
        };
        let headers: Vec<&str> = std::iter::once(deadline.as_str())
            .chain(condition.as_deref())
            .collect();
        let id = format!("{}-{key}", self.name);
        match wish {
            Wish::Get => client.ask("GET", &id, &headers, b""),
            Wish::Put { value, .. } => {
                client.ask("PUT", &id, &headers, value.to_string().as_bytes())
            }
            Wish::Delete { .. } => client.ask("DELETE", &id, &headers, b""),
            Wish::Touch { .. } => unreachable!("these clients renew no lease"),
        }
    }
}

fn version_of(answer: &Answer) -> Option<Version> {
    let tag = answer.etag.as_deref()?.trim_matches('"');
    Some(tag.parse().expect("a tag is a version"))
}

fn end_of(answer: &Answer, wish: Wish) -> ClientEnd {
    let version = || version_of(answer).expect("the answer names its version");
    match (answer.status, wish) {
        (200, Wish::Get) => {
            let text = String::from_utf8_lossy(&answer.body);
            let value = text.parse().expect("values are numbers");
            ClientEnd::Found(SeenValue {
                version: version(),
                value,
            })
        }
        (404, Wish::Get) => ClientEnd::Missing(None),
        (201, Wish::Put { .. }) | (202, Wish::Delete { .. }) => ClientEnd::Written(version()),
        (412, Wish::Put { .. }) => ClientEnd::Refused {
            current: version_of(answer),
        },
        (503 | 504, _) if answer.receipt.contains("outcome=not-applied") => ClientEnd::NotApplied,
        (504, _) if answer.receipt.contains("outcome=unknown") => ClientEnd::Unknown,
        _ => panic!("{wish:?} was answered with {answer:?}"),
    }
}

/// The outcome of a load.
pub(crate) struct Told {
    pub(crate) history: Vec<ClientOp>,
    /// What nodes said when they refused, or did not know.
    said: Vec<String>,
}

/// Runs `trouble` while clients of nodes `on` work, each at one until its connection breaks, with
/// deadlines of `timeout_ms`; checks all that they were told.
pub(crate) fn under_load(
    name: &str,
    on: &[(usize, SocketAddr)],
    timeout_ms: u32,
    trouble: impl FnOnce(&Load),
) -> Told {
    let told = under_foreign_load(name, on, timeout_ms, trouble);
    told.check_versions(name);
    told
}

/// As [`under_load`] of an engine whose versions follow rules of its own.
pub(crate) fn under_foreign_load(
    name: &str,
    on: &[(usize, SocketAddr)],
    timeout_ms: u32,
    trouble: impl FnOnce(&Load),
) -> Told {
    let load = Load {
        name: name.to_owned(),
        timeout_ms,
        origin: Instant::now(),
        numbers: AtomicU32::new(0),
        answered: AtomicU64::new(0),
        said: Mutex::new(Vec::new()),
        is_over: AtomicBool::new(false),
        history: Mutex::new(Vec::new()),
    };
    std::thread::scope(|scope| {
        let load = &load;
        let clients: Vec<_> = (0..CLIENTS)
            .map(|own| scope.spawn(move || load.client(own, on)))
            .collect();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| trouble(load)));
        load.is_over.store(true, Ordering::SeqCst);
        for client in clients {
            client.join().expect("every answer has a meaning");
        }
        if let Err(panic) = ended {
            std::panic::resume_unwind(panic);
        }
    });
    let told = Told {
        history: load.history.into_inner().expect("no holder panics"),
        said: load.said.into_inner().expect("no holder panics"),
    };
    told.check(name);
    let mut all: Vec<u64> = told.history.iter().map(took_us).collect();
    println!(
        "{name}: {} failed, {} conditional writes of unknown outcome, {}",
        told.failed(),
        told.history.iter().filter(|op| is_undecided(op)).count(),
        line(&mut all)
    );
    told
}

/// A conditional write that was overtaken in its second phase by another write of its key may have
/// happened or not. It says so at once: with members in trouble or without.
fn is_undecided(op: &ClientOp) -> bool {
    op.end == ClientEnd::Unknown && op.wish.base() != SeenCondition::Any
}

fn took_us(op: &ClientOp) -> u64 {
    op.ended_us - op.begun_us
}

fn at(sorted: &[u64], permille: usize) -> u64 {
    sorted[(sorted.len() - 1) * permille / 1000]
}

fn line(took_us: &mut [u64]) -> String {
    took_us.sort_unstable();
    let ms = |permille| at(took_us, permille) as f64 / 1000.0;
    let count = took_us.len();
    let (p50, p99, max) = (ms(500), ms(990), ms(1000));
    format!("{count} operations, p50 {p50:.1} ms, p99 {p99:.1} ms, max {max:.1} ms")
}

impl Told {
    /// Operations that were not carried out as far as their clients know, but for conditional
    /// writes that met others.
    pub(crate) fn failed(&self) -> usize {
        let failed = |op: &&ClientOp| !op.is_done() && !is_undecided(op);
        self.history.iter().filter(failed).count()
    }

    /// What nodes said when they did not carry an operation out.
    pub(crate) fn said(&self) -> &[String] {
        &self.said
    }

    /// The 99th percentile of those that began in this time, which are some.
    pub(crate) fn p99_us(&self, begun_us: std::ops::Range<u64>) -> u64 {
        let own = self
            .history
            .iter()
            .filter(|op| begun_us.contains(&op.begun_us));
        let mut took_us: Vec<u64> = own.map(took_us).collect();
        took_us.sort_unstable();
        at(&took_us, 990)
    }

    fn check_versions(&self, name: &str) {
        let violations: Vec<String> = versions::check(&self.history, Disks::Whole)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert!(violations.is_empty(), "{name}: {violations:#?}");
    }

    fn check(&self, name: &str) {
        for key in 0..KEYS {
            let ops: Vec<&ClientOp> = self.history.iter().filter(|op| op.key == key).collect();
            let verdict = key_verdict(&ops, PendingRule::StaysOpen);
            assert_eq!(verdict, SearchVerdict::Good, "{name}, key {key}: {ops:#?}");
        }
    }
}
