//! Threads that read checkpoints for a backup, at low priority.
//!
//! ```text
//! GET of a part ─► [ CHECKPOINT_READS_MAX ] ─► checkpoints-0, checkpoints-1 (nice 15) ─► the part
//! ```
//!
//! A backup asks for its next part when it has the one before. So a reader that gets little of the
//! processor slows the whole backup down, and not only the reads.
//!
//! Invariants
//! 1. Reads that wait are bounded; the asker waits for a place.
//! 2. The threads start with the first backup, and end with the admin plane.
//!
//! Not here: checkpoints (`checkpoints.rs`), HTTP (`admin/backup.rs`).
//! See: docs/overload.md, "Background work".

use crate::limits::{CHECKPOINT_READERS, CHECKPOINT_READS_MAX};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OnceCell, mpsc, oneshot};

/// Priority of a scrub: lower than compactions.
const NICE: i32 = 15;

type ReadJob = Box<dyn FnOnce() + Send>;

/// The threads of one node.
#[derive(Default)]
pub(crate) struct CheckpointReaders {
    jobs: OnceCell<mpsc::Sender<ReadJob>>,
}

impl CheckpointReaders {
    /// Runs `read` on one of the threads.
    ///
    /// # Errors
    /// The system gives no thread, or `read` panicked.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<T> {
        let jobs = self.jobs.get_or_try_init(async || spawn()).await?;
        let (tell, told) = oneshot::channel();
        // A client that hung up wants no answer any more.
        let job: ReadJob = Box::new(move || drop(tell.send(read())));
        let gone = || io::Error::other("a thread that reads checkpoints ended");
        jobs.send(job).await.map_err(|_| gone())?;
        told.await.map_err(|_| gone())
    }
}

fn spawn() -> io::Result<mpsc::Sender<ReadJob>> {
    let (jobs, waiting) = mpsc::channel(CHECKPOINT_READS_MAX);
    let waiting = Arc::new(Mutex::new(waiting));
    for number in 0..CHECKPOINT_READERS {
        let waiting = Arc::clone(&waiting);
        std::thread::Builder::new()
            .name(format!("checkpoints-{number}"))
            .spawn(move || work(&waiting))?;
    }
    Ok(jobs)
}

fn work(waiting: &Mutex<mpsc::Receiver<ReadJob>>) {
    // On Linux this is the calling thread's own priority.
    if let Err(error) = rustix::process::setpriority_process(None, NICE) {
        tracing::debug!(%error, "checkpoints are read at the usual priority");
    }
    loop {
        // One thread waits for a job, the others for the lock.
        let job = {
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.blocking_recv()
        };
        match job {
            // A panic is in the log by the hook, the asker gets an error, and the thread goes on.
            Some(job) => drop(catch_unwind(AssertUnwindSafe(job))),
            None => return,
        }
    }
}
