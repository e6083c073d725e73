//! A client that keeps a copy of a range in step, and judges each event.

use bytes::Bytes;
use dendra_base::Version;
use dendra_watch::{From, Span, WatchEvent, WatchToken};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
pub(crate) struct Client {
    pub(crate) span: Span,
    /// The live values, by the events.
    pub(crate) values: BTreeMap<Bytes, Version>,
    /// The last version of each key in this state.
    newest: BTreeMap<Bytes, Version>,
    pub(crate) token: Option<WatchToken>,
    pub(crate) is_live: bool,
    pub(crate) resets: usize,
    pub(crate) events: usize,
}

impl Client {
    pub(crate) fn new(span: Span) -> Client {
        Client {
            span,
            values: BTreeMap::new(),
            newest: BTreeMap::new(),
            token: None,
            is_live: false,
            resets: 0,
            events: 0,
        }
    }

    /// Where its next watch begins. Without a token it begins with nothing.
    pub(crate) fn from(&mut self) -> From {
        self.is_live = false;
        match &self.token {
            Some(token) => From::Token(token.clone()),
            None => {
                self.forget();
                From::State
            }
        }
    }

    fn forget(&mut self) {
        self.values.clear();
        self.newest.clear();
    }

    pub(crate) fn told(
        &mut self,
        events: Vec<WatchEvent>,
        token: Option<WatchToken>,
        confirmed: &BTreeMap<Bytes, BTreeSet<Version>>,
    ) -> Result<(), String> {
        for event in events {
            self.events += 1;
            match event {
                WatchEvent::Put { key, version, .. } => {
                    self.step(&key, version, confirmed)?;
                    self.values.insert(key, version);
                }
                WatchEvent::Delete { key, version } | WatchEvent::Expire { key, version } => {
                    self.step(&key, version, confirmed)?;
                    self.values.remove(&key);
                }
                WatchEvent::Live => self.is_live = true,
                WatchEvent::Reset => {
                    self.resets += 1;
                    self.forget();
                    self.token = None;
                }
                WatchEvent::Heartbeat | WatchEvent::End { .. } => {}
            }
        }
        if token.is_some() {
            self.token = token;
        }
        Ok(())
    }

    fn step(
        &mut self,
        key: &Bytes,
        version: Version,
        confirmed: &BTreeMap<Bytes, BTreeSet<Version>>,
    ) -> Result<(), String> {
        if !self.span.has(key) {
            return Err(format!("{key:?} is not of the range"));
        }
        if self.newest.get(key).is_some_and(|newest| *newest > version) {
            return Err(format!("W1: {key:?} went back to {version}"));
        }
        if !confirmed.get(key).is_some_and(|all| all.contains(&version)) {
            return Err(format!("W3: {key:?} {version} was never confirmed"));
        }
        self.newest.insert(key.clone(), version);
        Ok(())
    }
}
