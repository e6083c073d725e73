//! The runtime on which an engine's driver runs: its own threads, and no event loop's.
//!
//! ```text
//! desk ─► permit of FRONT_UNDER_WAY_MAX ─► late? not begun │ task: OuterStore, until the deadline
//!                                                            └─► Finished ─► mailbox of the loop
//! every FRONT_LOOK_EVERY: OuterStore::look ─► does the engine answer? (/readyz)
//! every FRONT_TEND_EVERY: OuterStore::tend ─► what deletions left, what history is kept
//! ```
//!
//! Invariants
//! 1. Every job that was taken is answered exactly once, also when the driver panics.
//! 2. A write that is under way at its deadline is of unknown outcome; a read changed no record.
//! 3. At most one look is under way, and one upkeep.
//! 4. Work that needs a majority is not begun while looks find none: it is refused at once.
//!
//! Not here: the queue (`desk.rs`), the engines (crate `stores`).

use super::desk::{FrontDesk, FrontJob, FrontWork};
use super::gauges::LookFailure;
use crate::clock;
use crate::lanes::lane::Loops;
use crate::lanes::mailbox::LoopEvent;
use crate::lanes::work::PoolAnswer;
use crate::limits;
use crate::measure::metrics::RefusalCause;
use crate::retry_after::{disk_full_after_s, retry_after_s};
use crate::waiting::finished::Finished;
use dendra_base::{Condition, Consistency, Known};
use dendra_node::Outcome;
use dendra_stores::{OuterFailure, OuterStore, PointRead, RecordWrite, StoreShape, WriteEnd};
use dendra_wire::Refusal;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;
use tokio::time::MissedTickBehavior;

/// The threads of a front door, and the engine that they ask.
pub(crate) struct FrontThreads {
    runtime: Runtime,
    store: Arc<dyn OuterStore>,
}

impl FrontThreads {
    /// Threads for `store`.
    pub(crate) fn new(store: Arc<dyn OuterStore>) -> io::Result<FrontThreads> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(limits::FRONT_THREADS)
            .thread_name("front")
            .enable_all()
            .build()?;
        Ok(FrontThreads { runtime, store })
    }

    /// Connects the engine.
    pub(crate) async fn open(&self) -> Result<StoreShape, OuterFailure> {
        let store = Arc::clone(&self.store);
        let opened = self.runtime.spawn(async move { store.open().await });
        let opened = opened.await;
        opened.unwrap_or_else(|panic| {
            Err(OuterFailure::Failed(format!("the driver failed: {panic}")))
        })
    }

    /// Carries out the work that comes to `desk`.
    pub(crate) fn serve(&self, desk: Arc<FrontDesk>, lanes: &Arc<Loops>) {
        self.runtime
            .spawn(look_again(Arc::clone(&self.store), Arc::clone(&desk)));
        self.runtime
            .spawn(tend_again(Arc::clone(&self.store), Arc::clone(&desk)));
        let (store, lanes) = (Arc::clone(&self.store), Arc::clone(lanes));
        self.runtime.spawn(async move {
            let room = Arc::new(Semaphore::new(limits::FRONT_UNDER_WAY_MAX));
            loop {
                let permit = Arc::clone(&room).acquire_owned().await;
                let permit = permit.expect("it is never closed");
                let Some(job) = desk.next().await else { return };
                let (store, lanes) = (Arc::clone(&store), Arc::clone(&lanes));
                let desk = Arc::clone(&desk);
                tokio::spawn(async move {
                    let (lane, slot) = (job.lane, job.slot);
                    let (kind, begun) = (job.work.kind(), Instant::now());
                    desk.gauges.note_begin();
                    let finished = Box::new(finish(store, job, &desk).await);
                    desk.gauges.note_end(kind, begun.elapsed());
                    drop(permit);
                    let answer = PoolAnswer::Front(finished);
                    let mailbox = &lanes[lane].mailbox;
                    mailbox.post(LoopEvent::Answered { slot, answer });
                });
            }
        });
    }

    /// Ends the work that is still under way. Requires: the loops have ended.
    pub(crate) fn stop(self, desk: &FrontDesk) {
        desk.close();
        self.runtime.shutdown_timeout(limits::FRONT_STOP);
    }
}

/// Looks at the engine again and again, until the runtime ends.
async fn look_again(store: Arc<dyn OuterStore>, desk: Arc<FrontDesk>) {
    let mut turns = tokio::time::interval(limits::FRONT_LOOK_EVERY);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turns.tick().await;
        let store = Arc::clone(&store);
        let left = limits::FRONT_LOOK_TIMEOUT;
        // A task of its own: a driver that panics ends it, and not this one.
        let mut look = tokio::spawn(async move { store.look(left).await });
        let looked = match tokio::time::timeout(left, &mut look).await {
            Ok(Ok(looked)) => looked.map_err(|failure| LookFailure {
                why: failure.to_string(),
                is_unanswered: matches!(
                    failure,
                    OuterFailure::Unreachable(_) | OuterFailure::Unanswered(..)
                ),
            }),
            Ok(Err(panic)) => Err(LookFailure {
                why: format!("the driver failed: {panic}"),
                is_unanswered: false,
            }),
            Err(_) => {
                look.abort();
                Err(LookFailure {
                    why: format!("no answer within {left:?}"),
                    is_unanswered: true,
                })
            }
        };
        desk.gauges.note_look(desk.shape.engine, looked);
    }
}

/// Gives the driver time for its own work again and again, until the runtime ends; none while looks
/// find no majority.
async fn tend_again(store: Arc<dyn OuterStore>, desk: Arc<FrontDesk>) {
    let mut turns = tokio::time::interval(limits::FRONT_TEND_EVERY);
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        turns.tick().await;
        if desk.gauges.lasting_silence().is_some() {
            continue;
        }
        let store = Arc::clone(&store);
        let (left, most) = (limits::FRONT_TEND_EVERY, limits::FRONT_TEND_TIMEOUT);
        // A task of its own: a driver that panics ends it, and not this one.
        let mut tended = tokio::spawn(async move { store.tend(left).await });
        let tended = match tokio::time::timeout(most, &mut tended).await {
            Ok(Ok(tended)) => tended.map_err(|failure| failure.to_string()),
            Ok(Err(panic)) => Err(format!("the driver failed: {panic}")),
            Err(_) => {
                tended.abort();
                Err(format!("no end within {most:?}"))
            }
        };
        desk.gauges.note_upkeep(desk.shape.engine, tended);
    }
}

async fn finish(store: Arc<dyn OuterStore>, job: FrontJob, desk: &FrontDesk) -> Finished {
    let shape = &desk.shape;
    let left_us = job.deadline_us.saturating_sub(clock::monotonic_us());
    if left_us == 0 {
        return Finished::Refused(RefusalCause::Deadline);
    }
    if job.work.needs_majority()
        && let Some(why) = desk.gauges.lasting_silence()
    {
        // It would wait its whole time in one of few places, and then get the same answer.
        return failed(OuterFailure::Unanswered(Known::NotApplied, why), shape);
    }
    let left = Duration::from_micros(left_us);
    let known = match job.work {
        FrontWork::Write(_) | FrontWork::Touch(_) => Known::Unknown,
        FrontWork::Read(_) | FrontWork::Page(_) => Known::NotApplied,
    };
    // A task of its own: a driver that panics ends it, and not this one.
    let mut work = tokio::spawn(carry_out(store, job.work, left, shape.copies));
    let ended = match tokio::time::timeout(left, &mut work).await {
        Ok(Ok(ended)) => ended,
        Ok(Err(panic)) => {
            tracing::error!(%panic, "the driver of the store failed");
            Err(OuterFailure::Unanswered(
                known,
                "its driver failed".to_owned(),
            ))
        }
        Err(_) => {
            work.abort();
            let why = "no answer before the deadline".to_owned();
            Err(OuterFailure::Unanswered(known, why))
        }
    };
    ended.unwrap_or_else(|failure| failed(failure, shape))
}

async fn carry_out(
    store: Arc<dyn OuterStore>,
    work: FrontWork,
    left: Duration,
    copies: u8,
) -> Result<Finished, OuterFailure> {
    let majority = copies / 2 + 1;
    match work {
        FrontWork::Read(mut read) => {
            read.left = left;
            let acks = match read.level {
                Consistency::Linearizable => majority,
                Consistency::Eventual => 1,
            };
            let cell = store.read(read).await?;
            let outcome = cell
                .as_ref()
                .map_or(Outcome::Missing, |cell| Outcome::Found {
                    version: cell.version,
                    expiry_ms: cell.expiry_ms,
                });
            Ok(Finished::Outcome {
                outcome,
                acks,
                cell,
            })
        }
        FrontWork::Write(mut write) => {
            write.left = left;
            let (outcome, cell) = match store.write(write).await? {
                WriteEnd::Applied(version) => (Outcome::Stored { version }, None),
                WriteEnd::Refused(cell) => {
                    let current = cell.as_ref().map(|cell| cell.version);
                    (Outcome::ConditionFailed { current }, cell)
                }
            };
            Ok(Finished::Outcome {
                outcome,
                acks: majority,
                cell,
            })
        }
        FrontWork::Touch(write) => touch(&*store, write, left, majority).await,
        FrontWork::Page(mut page) => {
            page.left = left;
            let shown = store.page(page).await?;
            Ok(Finished::Page {
                records: shown.records,
                rest: shown.rest,
                failure: None,
            })
        }
    }
}

/// Writes the value that is there once more, with another end, if nothing came between. The caller
/// gives it up when its time is over; each round that fails is another writer's success.
async fn touch(
    store: &dyn OuterStore,
    write: RecordWrite,
    left: Duration,
    majority: u8,
) -> Result<Finished, OuterFailure> {
    let began = Instant::now();
    loop {
        let left = left.saturating_sub(began.elapsed());
        let read = PointRead {
            key: write.key.clone(),
            level: Consistency::Linearizable,
            left,
        };
        // An engine shows values that have ended, too.
        let now_ms = clock::now().wall_ms;
        let found = store.read(read).await?;
        let found = found.filter(|cell| cell.as_ref().is_live(now_ms));
        let current = found.as_ref().map(|cell| cell.version);
        let (outcome, cell) = match found {
            Some(cell) if write.condition.holds(current) => {
                let again = RecordWrite {
                    value: Some(cell.value.clone()),
                    condition: Condition::Matches(cell.version),
                    left,
                    ..write.clone()
                };
                match store.write(again).await? {
                    WriteEnd::Applied(version) => {
                        let expiry_ms = write.expiry_ms;
                        (Outcome::Touched { version, expiry_ms }, None)
                    }
                    WriteEnd::Refused(_) => continue,
                }
            }
            found => (Outcome::ConditionFailed { current }, found),
        };
        return Ok(Finished::Outcome {
            outcome,
            acks: majority,
            cell,
        });
    }
}

/// The answer to an operation that the engine did not carry out.
fn failed(failure: OuterFailure, shape: &StoreShape) -> Finished {
    let (engine, copies) = (shape.engine, shape.copies);
    let refusal = match failure {
        OuterFailure::Unreachable(why) => {
            let sentence = format!("no server of {engine} can be reached from here: {why}");
            Refusal::new(504, "unreachable", sentence).knowing(Known::NotApplied)
        }
        OuterFailure::Unanswered(known, why) => {
            let refusal = Refusal::too_few_answers(0, copies / 2 + 1, copies, known);
            refusal.because(&format!("{engine}: {why}"))
        }
        OuterFailure::Busy(why) => Refusal::overloaded(format!("{engine}: {why}"), retry_after_s()),
        OuterFailure::Full(why) => {
            tracing::warn!(engine, why, "the store has no room");
            Refusal::disk_full(disk_full_after_s()).because(&why)
        }
        OuterFailure::TooLarge(why) => {
            let sentence = format!("{engine} takes no value of this length: {why}");
            Refusal::new(413, "value-too-large", sentence)
        }
        OuterFailure::Damaged(why) => {
            tracing::error!(engine, why, "a record of the store is damaged");
            Refusal::new(500, "damaged", format!("{engine}: {why}"))
        }
        OuterFailure::Failed(why) => {
            tracing::error!(engine, why, "the store could not do it");
            Refusal::new(500, "failed", format!("{engine}: {why}")).knowing(Known::NotApplied)
        }
    };
    Finished::Told(Box::new(refusal))
}
