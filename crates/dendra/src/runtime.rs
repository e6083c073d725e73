//! The runtime in which commands wait.

use crate::exit::{Exit, Failure};

/// A runtime on the calling thread.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Failure::new(Exit::FAILURE, format!("the runtime cannot start ({e})")))
}
