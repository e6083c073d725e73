//! A start that waits: for the clock, for other members, for an engine, and no longer than until a
//! signal asks it to stop.

use crate::phase::PhaseCell;
use crate::start_error::{StartError, system};
use std::sync::Arc;

/// The parts that a start has while it waits, until a signal asks to stop.
pub(super) struct Starting {
    pub(super) phase: Arc<PhaseCell>,
    runtime: tokio::runtime::Runtime,
}

impl Starting {
    pub(super) fn new() -> Result<Starting, StartError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        Ok(Starting {
            phase: Arc::new(PhaseCell::new()),
            runtime: runtime.map_err(system("a start cannot wait for anything"))?,
        })
    }

    pub(super) fn wait_for<T>(&self, what: impl Future<Output = T>) -> Result<T, StartError> {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.phase.asked() => Err(StartError::Asked),
                it = what => Ok(it),
            }
        })
    }
}
