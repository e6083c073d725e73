//! Keeps checkpoints alive while their files are written or looked for elsewhere.
//!
//! Invariants
//! 1. A node removes a checkpoint that was not read for its lease. Beside work that takes longer
//!    each one is read every `TOUCH_EVERY`, or six times in a lease if that is shorter.
//! 2. The work must not block its thread: touches run on the same one.
//!
//! Not here: the lease itself (crate `server`, `admin/backup.rs`).
//! See: docs/format/backup.md.

use super::nodes::{AdminNode, HeldCheckpoint};
use crate::runtime::join_all;
use std::convert::Infallible;
use std::time::Duration;

const TOUCH_EVERY: Duration = Duration::from_secs(10);
/// The command asks a node no more often than this, also for a shorter lease.
const TOUCH_EVERY_MIN: Duration = Duration::from_millis(100);
/// Some touches may be late, or be tried again.
const TOUCHES_IN_A_LEASE: u32 = 6;

/// Does the work, and touches the checkpoints until it is done.
pub(super) async fn held_while<T>(
    held: &[(&AdminNode, &HeldCheckpoint)],
    work: impl Future<Output = T>,
) -> T {
    let touches = async {
        join_all(held.iter().map(|(node, it)| touch(node, it))).await;
        std::future::pending::<Infallible>().await
    };
    tokio::select! {
        done = work => done,
        never = touches => match never {},
    }
}

/// Reads no bytes of a checkpoint, again and again.
async fn touch(node: &AdminNode, checkpoint: &HeldCheckpoint) {
    let Some(any) = checkpoint.files.first() else {
        return;
    };
    let every = (checkpoint.lease / TOUCHES_IN_A_LEASE).clamp(TOUCH_EVERY_MIN, TOUCH_EVERY);
    loop {
        tokio::time::sleep(every).await;
        if let Err(failed) = node.part(&checkpoint.id, &any.name, 0, 0).await {
            // If it is gone the next read says the same; a node that was away may be back.
            tracing::debug!("a checkpoint could not be touched: {}", failed.sentence);
        }
    }
}
