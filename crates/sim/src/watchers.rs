//! Clients that watch keys: what they were told, and what is wrong with it.
//!
//! Invariants
//! 1. Watchers have draws of their own: a plan without them is the same run.
//!
//! Not here: when they watch, and the last comparison (`world/watches.rs`).

use crate::history::ValueId;
use bytes::Bytes;
use dendra_base::{Prng, Version};
use dendra_watch::{ChangeLog, Span, WatchEvent, WatchToken};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The watch that a client has open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenWatch {
    pub(crate) member: usize,
    pub(crate) incarnation: u64,
    pub(crate) lane: usize,
    pub(crate) number: u64,
}

/// One client.
#[derive(Debug)]
pub(crate) struct WatchingClient {
    pub(crate) span: Span,
    pub(crate) open: Option<OpenWatch>,
    pub(crate) token: Option<WatchToken>,
    pub(crate) is_live: bool,
    /// What it knows: the value of each key.
    pub(crate) known: BTreeMap<Bytes, (Version, ValueId)>,
    /// The newest version of each key that it was ever told.
    newest: BTreeMap<Bytes, Version>,
    /// Values that it was told, by the number of their key.
    pub(crate) told: BTreeSet<(Bytes, ValueId)>,
}

/// All of them.
pub(crate) struct Watchers {
    pub(crate) clients: Vec<WatchingClient>,
    pub(crate) prng: Prng,
    pub(crate) opened: u64,
    /// Events that were told so far.
    pub(crate) events: u64,
    /// By member: the last writes of its process.
    pub(crate) changes: BTreeMap<usize, Arc<ChangeLog>>,
}

impl Watchers {
    /// Clients that watch these spans.
    pub(crate) fn new(prng: Prng, spans: Vec<Span>) -> Watchers {
        let client = |span| WatchingClient {
            span,
            open: None,
            token: None,
            is_live: false,
            known: BTreeMap::new(),
            newest: BTreeMap::new(),
            told: BTreeSet::new(),
        };
        Watchers {
            clients: spans.into_iter().map(client).collect(),
            prng,
            opened: 0,
            events: 0,
            changes: BTreeMap::new(),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.clients.len()
    }
}

impl WatchingClient {
    /// Takes note of an event; what is wrong with it? `number_of` is the number in a value.
    pub(crate) fn take(
        &mut self,
        event: &WatchEvent,
        number_of: impl Fn(&[u8]) -> Option<ValueId>,
    ) -> Result<(), String> {
        let (key, version) = match event {
            WatchEvent::Put { key, version, .. }
            | WatchEvent::Delete { key, version }
            | WatchEvent::Expire { key, version } => (key, *version),
            WatchEvent::Live => {
                self.is_live = true;
                return Ok(());
            }
            WatchEvent::Reset => {
                (self.token, self.is_live) = (None, false);
                self.known.clear();
                return Ok(());
            }
            WatchEvent::Heartbeat | WatchEvent::End { .. } => return Ok(()),
        };
        if !self.span.has(key) {
            return Err(format!("{event:?} is not of {:?}", self.span));
        }
        let newest = self.newest.entry(key.clone()).or_insert(version);
        if *newest > version {
            return Err(format!("{event:?} came behind {newest:?}"));
        }
        *newest = version;
        match event {
            WatchEvent::Put { value, .. } => {
                let number = number_of(value).ok_or("a value that no client wrote")?;
                self.known.insert(key.clone(), (version, number));
                self.told.insert((key.clone(), number));
            }
            _ => drop(self.known.remove(key)),
        }
        Ok(())
    }
}
