//! `--bytes-per-second`: one budget for all nodes of a backup or a restore.
//!
//! Invariants
//! 1. Over any time the bytes taken are at most the rate times that time, and one request more.
//!
//! See: docs/cli.md.

use std::cell::Cell;
use std::time::Duration;
use tokio::time::Instant;

/// The least that may be asked for: a checkpoint that is read more slowly would expire.
pub(crate) const RATE_MIN: u64 = 64 << 10;

/// See the module.
pub(crate) struct TransferPace {
    rate: Option<u64>,
    /// When the bytes taken so far have been paid for.
    paid: Cell<Instant>,
}

impl TransferPace {
    /// `None` = as fast as it goes.
    pub(crate) fn new(rate: Option<u64>) -> TransferPace {
        TransferPace {
            rate,
            paid: Cell::new(Instant::now()),
        }
    }

    /// The most to ask for at once: a second's worth at a low rate.
    pub(crate) fn most(&self, bytes: u64) -> u64 {
        self.rate.map_or(bytes, |rate| bytes.min(rate))
    }

    /// Waits until `bytes` may be taken.
    pub(crate) async fn take(&self, bytes: u64) {
        let Some(rate) = self.rate else {
            return;
        };
        let begins = self.paid.get().max(Instant::now());
        let costs = Duration::from_secs_f64(bytes as f64 / rate as f64);
        self.paid.set(begins + costs);
        tokio::time::sleep_until(begins).await;
    }
}
