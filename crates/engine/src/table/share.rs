//! The share of the cache's memory for guides that tables hold themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Room for guides that tables hold themselves.
#[derive(Debug)]
pub(crate) struct PinnedShare {
    bytes_max: usize,
    used: AtomicUsize,
}

impl PinnedShare {
    /// A share of `bytes_max` bytes.
    pub(crate) fn new(bytes_max: usize) -> PinnedShare {
        PinnedShare {
            bytes_max,
            used: AtomicUsize::new(0),
        }
    }

    /// The most that it grants, in bytes.
    pub(crate) fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// Granted and not given back, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Grants `bytes`; `None` when there is not so much left.
    pub(crate) fn pin(share: &Arc<PinnedShare>, bytes: usize) -> Option<Pin> {
        let fits = |used: usize| Some(used + bytes).filter(|sum| *sum <= share.bytes_max);
        share
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .ok()?;
        Some(Pin {
            share: Arc::clone(share),
            bytes,
        })
    }
}

/// Bytes of the pinned share, given back when this is dropped.
#[derive(Debug)]
pub(crate) struct Pin {
    share: Arc<PinnedShare>,
    bytes: usize,
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.share.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
