//! The events of a watch.

use bytes::Bytes;
use dendra_base::Version;

/// What a client of a watch is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// The key has this value.
    Put {
        /// Raw key.
        key: Bytes,
        /// Version of the record.
        version: Version,
        /// The bytes that a client stored.
        value: Bytes,
        /// Wall milliseconds when it ends, if it does.
        expiry_ms: Option<u64>,
    },
    /// The key has no value: it was deleted.
    Delete {
        /// Raw key.
        key: Bytes,
        /// Version of the deletion.
        version: Version,
    },
    /// The value of this version has ended.
    Expire {
        /// Raw key.
        key: Bytes,
        /// Version of the value.
        version: Version,
    },
    /// The state was told; changes follow.
    Live,
    /// Nothing has changed for a while.
    Heartbeat,
    /// Changes may have been missed: forget all keys, for the whole state follows.
    Reset,
    /// The watch ends; it goes on elsewhere from its token.
    End {
        /// Why.
        reason: EndReason,
    },
}

/// Why a watch ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// The reader takes events more slowly than keys change.
    SlowReader,
}

impl WatchEvent {
    /// Bytes in memory, about.
    pub(crate) fn bytes(&self) -> usize {
        let own = size_of::<WatchEvent>();
        own + match self {
            WatchEvent::Put { key, value, .. } => key.len() + value.len(),
            WatchEvent::Delete { key, .. } | WatchEvent::Expire { key, .. } => key.len(),
            WatchEvent::Live
            | WatchEvent::Heartbeat
            | WatchEvent::Reset
            | WatchEvent::End { .. } => 0,
        }
    }
}
