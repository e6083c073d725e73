//! `dendra load`: stores many records and says which it could not.
//!
//! ```text
//! source.rs ─► sender.rs ─┬─ together.rs, a batch ─► node
//!                         └─ each alone ──────────► node
//!                  └──────► tally.rs ─► --acked, --failures, bar, summary
//! ```
//!
//! Invariants
//! 1. Exit 0 means that every record of the source was acknowledged.
//! 2. Ctrl-C stops sending, waits for requests in flight, prints the summary and ends with 130; a
//!    second one ends at once.
//!
//! Not here: one record (`ops.rs`).
//! See: docs/cli.md.

mod sender;
mod source;
mod tally;
mod together;

use crate::cli::Load;
use crate::client::retry::Budget;
use crate::console::Console;
use crate::exit::{Exit, ExitResult, Failure};
use crate::ops::{self, Query};
use dendra_base::Prng;
use sender::{Halt, LoadState};
use std::cell::{Cell, RefCell};
use std::os::unix::ffi::OsStrExt;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};
use tally::LoadTally;
use tokio::sync::{Mutex, watch};
use tokio::task::LocalSet;
use tokio::time::Instant;

/// `dendra load`
pub(crate) async fn load(args: &Load, console: Console) -> ExitResult {
    let client = ops::client(&args.client, console)?;
    let encoding = args.client.encoding();
    let items = source::open(&args.source, args.format, encoding).map_err(Failure::usage)?;
    let prefix = encoding
        .decode(args.prefix.as_bytes())
        .map_err(|rest| Failure::usage(format!("--prefix {rest}")))?;
    let mut query = Query::default();
    query.add_quorum(args.quorum);
    let tally = LoadTally::new(args.acked.as_deref(), args.failures.as_deref(), console)?;
    let shared = Rc::new(LoadState {
        client,
        batches: together::BatchPath::to(query.behind("/v0/batch")),
        query_rest: query.behind("").replacen('?', "&", 1),
        prefix,
        retry_for: args.retry_for,
        budget: RefCell::new(Budget::new()),
        chance: RefCell::new(Prng::named(chance_seed(), "pauses")),
        tally: RefCell::new(tally),
        halt: watch::channel(Halt::No).0,
        last_answer: Cell::new(Instant::now()),
        failure: RefCell::new(None),
    });
    let parcels = sender::read(items)
        .map_err(|e| Failure::new(Exit::FAILURE, format!("no thread can be started ({e})")))?;
    let parcels = Rc::new(Mutex::new(parcels));
    let senders = LocalSet::new();
    let count = args.in_flight.min(together::SENDERS_MAX);
    for n in 0..count {
        // Together they have `in_flight` records under way.
        let most = args.in_flight / count + u64::from(n < args.in_flight % count);
        let (shared, parcels) = (Rc::clone(&shared), Rc::clone(&parcels));
        senders.spawn_local(sender::send_all(shared, parcels, most as usize));
    }
    tokio::select! {
        () = senders => {}
        () = interruptions(&shared, console) => {}
    }
    if let Some(failure) = shared.failure.borrow_mut().take() {
        return Err(failure);
    }
    let halt = shared.halt.borrow().clone();
    conclude(&shared.tally.borrow(), &halt, args.json, console)
}

/// Differs between processes, so that loads that were refused together do not return together.
fn chance_seed() -> u64 {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH);
    let nanoseconds = since_1970.map_or(0, |time| u64::from(time.subsec_nanos()));
    nanoseconds ^ (u64::from(std::process::id()) << 32)
}

/// The first SIGINT stops sending; this future ends at the second.
async fn interruptions(shared: &LoadState, console: Console) {
    for is_second in [false, true] {
        if tokio::signal::ctrl_c().await.is_err() {
            // Without a handler the signal ends the process, as it should.
            return std::future::pending().await;
        }
        if !is_second {
            console.note("stopping; waiting for what is in flight (Ctrl-C again ends at once)");
            shared.stop(Halt::Interrupted);
        }
    }
}

fn conclude(tally: &LoadTally, halt: &Halt, is_json: bool, console: Console) -> ExitResult {
    let (ended_early, exit) = match halt {
        Halt::No => (None, tally.exit()),
        Halt::Interrupted => (Some("interrupted".to_owned()), Exit::INTERRUPTED),
        Halt::Unreachable(why) => (Some(why.clone()), Exit::UNAVAILABLE),
    };
    tally.finish(ended_early.as_deref(), is_json, console)?;
    Ok(exit)
}
