//! The commit queue under every interleaving of two submitters and a committer, with loom's lock.
//!
//! ```text
//! sync    submit ─ First? ─► ring                  committer: wait for a ring ─► take ─► deliver
//! os      submit ─ First? ─► log free? take ─► deliver, else ring the committer
//! ```
//!
//! Invariants
//! 1. The queue's file is compiled again here, not copied. The ring and the log's lock are the
//!    caller's part of the protocol, written as the server has them.
//! 2. A lost wake shows as a deadlock, which loom reports; a write taken twice shows in the count.
//!
//! Not here: real threads under load (`tests/threads.rs`).

#![expect(
    clippy::duplicate_mod,
    reason = "the same file is checked under another scheduler"
)]
#![expect(unreachable_pub, reason = "the copy's public face is used here only")]

#[path = "bounded.rs"]
mod bounded;

mod sync {
    pub(super) use loom::sync::{Mutex, MutexGuard};

    pub(super) fn hold<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("no holder panics")
    }
}

use crate::batch::{Batch, NotTaken};
use bounded::{CommitQueue, Submitted};
use dendra_base::{CellRef, Guard, Version};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

#[derive(Default)]
struct Bell {
    is_rung: bool,
    delivered: Vec<u64>,
}

struct World {
    queue: CommitQueue,
    /// Lock of the log: its holder commits.
    log: Mutex<()>,
    bell: Mutex<Bell>,
    wake: Condvar,
}

const TOKENS: [u64; 2] = [1, 2];

fn one_write(token: u64) -> Batch {
    let mut batch = Batch::new();
    let cell = CellRef::value(b"k", Version::ZERO, b"v");
    batch
        .push(token, b"k", &cell, Guard::Newest, 0)
        .expect("the record fits");
    batch
}

impl World {
    fn new() -> Arc<World> {
        Arc::new(World {
            queue: CommitQueue::new(8, 1 << 10),
            log: Mutex::new(()),
            bell: Mutex::new(Bell::default()),
            wake: Condvar::new(),
        })
    }

    fn ring(&self) {
        self.bell.lock().expect("no holder panics").is_rung = true;
        self.wake.notify_one();
    }

    fn deliver_all(&self) {
        let mut taken = Batch::new();
        self.queue.take(&mut taken);
        let mut bell = self.bell.lock().expect("no holder panics");
        bell.delivered.extend(taken.ops.iter().map(|op| op.token));
        self.wake.notify_one();
    }

    /// The committing thread, until every write is delivered.
    fn commit_until_done(&self) {
        loop {
            let mut bell = self.bell.lock().expect("no holder panics");
            while !bell.is_rung && bell.delivered.len() < TOKENS.len() {
                bell = self.wake.wait(bell).expect("no holder panics");
            }
            if bell.delivered.len() == TOKENS.len() {
                let mut delivered = bell.delivered.clone();
                delivered.sort_unstable();
                assert_eq!(delivered, TOKENS, "every write is taken once");
                return;
            }
            bell.is_rung = false;
            drop(bell);
            let _log = self.log.lock().expect("no holder panics");
            self.deliver_all();
        }
    }
}

fn check(submit: fn(&World, u64)) {
    loom::model(move || {
        let world = World::new();
        let submitters: Vec<_> = TOKENS
            .into_iter()
            .map(|token| {
                let world = Arc::clone(&world);
                thread::spawn(move || submit(&world, token))
            })
            .collect();
        world.commit_until_done();
        for submitter in submitters {
            submitter.join().expect("a submitter does not panic");
        }
    });
}

#[test]
fn no_wake_is_lost_when_a_thread_commits() {
    check(|world, token| {
        let submitted = world.queue.submit(&mut one_write(token));
        if submitted == Ok(Submitted::First) {
            world.ring();
        }
    });
}

#[test]
fn no_write_is_left_when_loops_commit_inline() {
    check(|world, token| {
        let submitted = world.queue.submit(&mut one_write(token));
        if submitted == Ok(Submitted::First) {
            match world.log.try_lock() {
                Ok(_log) => world.deliver_all(),
                Err(_) => world.ring(),
            }
        }
    });
}

#[test]
fn a_full_queue_refuses_and_leaves_the_batch_alone() {
    loom::model(|| {
        let queue = CommitQueue::new(1, 1 << 10);
        assert_eq!(queue.submit(&mut one_write(1)), Ok(Submitted::First));
        let mut second = one_write(2);
        assert_eq!(queue.submit(&mut second), Err(NotTaken::QueueFull));
        assert_eq!(second.len(), 1);
        let mut taken = Batch::new();
        queue.take(&mut taken);
        assert_eq!(taken.ops[0].token, 1);
        assert_eq!(queue.submit(&mut second), Ok(Submitted::First));
        queue.take(&mut Batch::new());
        let queue = CommitQueue::new(8, 1 << 10);
        let value = [0; 600];
        let wide = |token| {
            let mut batch = Batch::new();
            let cell = CellRef::value(b"k", Version::ZERO, &value);
            batch
                .push(token, b"k", &cell, Guard::Newest, 0)
                .expect("the record fits");
            batch
        };
        assert_eq!(queue.submit(&mut wide(3)), Ok(Submitted::First));
        assert_eq!(
            queue.submit(&mut wide(4)),
            Err(NotTaken::QueueFull),
            "bytes count too"
        );
    });
}
