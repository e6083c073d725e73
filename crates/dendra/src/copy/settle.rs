//! One key: the writes that make TO hold it as FROM does, and never over a stranger's write.
//!
//! ```text
//! FROM has it   as copied               keep
//!               new or changed          GET ─► PUT If-None-Match: * | If-Match: the copy's version
//! FROM lacks it, the copy wrote it      DELETE If-Match: the copy's version
//! FROM lacks it, the copy did not       another program wrote to TO: Conflict
//! ```
//!
//! Invariants
//! 1. Without `--overwrite` every write at TO has a condition. TO's record is replaced only in
//!    three cases. It is the version that the copy wrote. Or it holds the value that the copy is
//!    about to write. Or the key lies in the page that a crashed run had begun (`Trust::Begun`).
//! 2. A write whose outcome is unknown is sent again with the same condition. The `412` that
//!    follows a first one that was applied is told from a stranger's by the value.
//! 3. A record that FROM has is never taken for ended by the clock of the machine of the copy.
//!
//! Not here: which keys (`round.rs`), the clock of TO (`clock.rs`).
//! See: docs/moving.md, "Writes of others to TO".

use super::clock::StoreClock;
use super::index::CopiedKey;
use super::store::{ContractStore, RecordHead};
use crate::backup::TransferPace;
use crate::client::WholeAnswer;
use crate::console::show_key;
use crate::exit::{Exit, Failure};
use bytes::Bytes;
use hyper::StatusCode;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use xxhash_rust::xxh3::xxh3_128;

/// Tries to replace a record that changes under us: TO is written by others, then.
const CHANGES_MAX: usize = 5;

/// How far the clocks of FROM and TO may differ before a time to live counts as another one. A
/// second of it is the rounding.
pub(super) const EXPIRY_SLACK_MS: u64 = 10_000;

/// How often a record is looked at that is about to end.
const ENDING_LOOK: Duration = Duration::from_millis(500);

/// State that all keys of a copy share.
pub(super) struct CopyStores {
    pub(super) from: Rc<ContractStore>,
    pub(super) to: Rc<ContractStore>,
    pub(super) pace: TransferPace,
    /// `--overwrite`: no conditions.
    pub(super) is_overwriting: bool,
    /// Bytes of keys and values that were copied.
    pub(super) bytes: Cell<u64>,
    pub(super) clock: StoreClock,
}

/// A key, and where it was seen.
#[derive(Clone, Debug)]
pub(super) struct KeySeen {
    pub(super) key: Vec<u8>,
    pub(super) in_from: bool,
    /// The entry of the round before.
    pub(super) copied: Option<CopiedKey>,
    /// `None` = TO was not scanned.
    pub(super) in_to: Option<bool>,
}

/// May TO's record be this copy's although there is no entry?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trust {
    No,
    /// A run that crashed had begun the page of this key.
    Begun,
}

/// How a key was settled.
#[derive(Debug)]
pub(super) struct KeySettled {
    /// For the new index; `None` = neither store has it.
    pub(super) entry: Option<CopiedKey>,
    pub(super) is_changed: bool,
}

impl KeySettled {
    fn gone(is_changed: bool) -> KeySettled {
        KeySettled {
            entry: None,
            is_changed,
        }
    }
}

impl CopyStores {
    /// Makes TO hold the key as FROM does.
    pub(super) async fn settle(&self, seen: KeySeen, trust: Trust) -> Result<KeySettled, Failure> {
        if !seen.in_from {
            return self.remove(seen, trust).await;
        }
        if let Some(entry) = seen.copied.as_ref().filter(|_| seen.in_to != Some(false)) {
            match self.version(&seen.key).await? {
                None => return self.remove(seen, trust).await,
                Some(head) if head.tag == entry.from_tag => {
                    return Ok(KeySettled {
                        entry: seen.copied,
                        is_changed: false,
                    });
                }
                Some(_) => {}
            }
        }
        let is_lost = seen.copied.is_some() && seen.in_to == Some(false);
        if is_lost && !self.is_overwriting && !self.may_be_absent(&seen, trust) {
            return Err(self.removed(&seen.key));
        }
        match self.from.get(&seen.key).await? {
            None => self.remove(seen, trust).await,
            Some((head, value)) => {
                self.pace.take((seen.key.len() + value.len()) as u64).await;
                self.write(seen, with_tag(head, &value), &value, trust)
                    .await
            }
        }
    }

    /// FROM's version of a key: its `ETag`, or the fingerprint of the record where there is none.
    pub(super) async fn version(&self, key: &[u8]) -> Result<Option<RecordHead>, Failure> {
        match self.from.head(key).await? {
            Some(head) if head.tag.is_empty() => {
                let found = self.from.get(key).await?;
                Ok(found.map(|(found_head, value)| with_tag(found_head, &value)))
            }
            other => Ok(other),
        }
    }

    async fn write(
        &self,
        seen: KeySeen,
        head: RecordHead,
        value: &Bytes,
        trust: Trust,
    ) -> Result<KeySettled, Failure> {
        let mut condition = match (&seen.copied, seen.in_to) {
            _ if self.is_overwriting => None,
            (Some(entry), None | Some(true)) => is_version(&entry.to_tag),
            _ => Some(("if-none-match", "*".to_owned())),
        };
        for _ in 0..CHANGES_MAX {
            let ends_ms = (head.expires_ms != 0).then_some(head.expires_ms);
            let (was_told, sent_s) = (self.clock.told_ms().is_some(), Cell::new(None));
            let ttl_s = || {
                sent_s.set(ends_ms.map(|ends_ms| self.clock.ttl_s(ends_ms)));
                sent_s.get()
            };
            let put = self.to.put(&seen.key, value, ttl_s, condition);
            let answer = put.await?;
            if answer.status == StatusCode::CREATED {
                if let (false, Some(told_s), Some(ends_ms)) = (was_told, sent_s.get(), ends_ms) {
                    self.learn_clock(&seen.key, told_s).await?;
                    if self.clock.ttl_s(ends_ms).abs_diff(told_s) > 1 {
                        condition = self.unless_overwriting(&tag_of(&answer));
                        continue;
                    }
                }
                let bytes = (seen.key.len() + value.len()) as u64;
                self.bytes.set(self.bytes.get() + bytes);
                return Ok(written(&seen, &head, tag_of(&answer)));
            }
            // TO holds another version than the condition says.
            condition = match self.to.get(&seen.key).await? {
                Some((there, held)) if held == *value && is_same_end(&head, &there) => {
                    return Ok(written(&seen, &head, there.tag));
                }
                Some((there, held)) if held == *value => is_version(&there.tag),
                Some((there, _)) if trust == Trust::Begun => is_version(&there.tag),
                Some((there, _)) => return Err(self.conflict(&seen.key, &there)),
                // Its time was over, or it was removed between the answer and the look.
                None if self.may_be_absent(&seen, trust) => Some(("if-none-match", "*".to_owned())),
                None => return Err(self.removed(&seen.key)),
            };
        }
        let sentence = format!("{}: it changes all the time", show_key(&seen.key));
        Err(self.to.failure(Exit::CONDITION, &sentence))
    }

    fn may_be_absent(&self, seen: &KeySeen, trust: Trust) -> bool {
        let entry = seen.copied.as_ref();
        let is_over = |expires_ms| {
            let now_ms = self.clock.now_ms();
            expires_ms != 0 && now_ms.is_some_and(|now_ms| expires_ms <= now_ms + EXPIRY_SLACK_MS)
        };
        trust == Trust::Begun || entry.is_none_or(|entry| is_over(entry.expires_ms))
    }

    fn unless_overwriting(&self, tag: &str) -> Option<(&'static str, String)> {
        is_version(tag).filter(|_| !self.is_overwriting)
    }

    /// TO answered a moment ago to a write of this key that lives `ttl_s`.
    async fn learn_clock(&self, key: &[u8], ttl_s: u64) -> Result<(), Failure> {
        let answered = Instant::now();
        match self.to.head(key).await? {
            Some(there) if there.expires_ms != 0 => {
                self.clock.tell(answered, ttl_s, there.expires_ms);
            }
            Some(_) => self.clock.tell_own(),
            None => {}
        }
        Ok(())
    }

    /// One store lacks the record, and the other one may have it: is that because it ends at this
    /// moment? While TO's clock is not known, both stores have to lack it soon.
    pub(super) async fn ends_now(&self, key: &[u8], expires_ms: u64) -> Result<bool, Failure> {
        let is_over = |now_ms| expires_ms <= now_ms + EXPIRY_SLACK_MS;
        if expires_ms == 0 || !self.clock.now_ms().is_some_and(is_over) {
            return Ok(false);
        }
        if self.clock.told_ms().is_some() {
            return Ok(true);
        }
        let until = Instant::now() + Duration::from_millis(EXPIRY_SLACK_MS);
        loop {
            let (from, to) = tokio::join!(self.from.head(key), self.to.head(key));
            if from?.is_none() && to?.is_none() {
                return Ok(true);
            }
            if Instant::now() >= until {
                self.clock.own_is_wrong();
                return Ok(false);
            }
            sleep(ENDING_LOOK).await;
        }
    }

    /// FROM does not have it: TO shall not either.
    async fn remove(&self, seen: KeySeen, trust: Trust) -> Result<KeySettled, Failure> {
        let mut condition = match (&seen.copied, seen.in_to) {
            (_, Some(false)) if trust == Trust::No => return Ok(KeySettled::gone(false)),
            (None, None) if trust == Trust::No => return Ok(KeySettled::gone(false)),
            _ if self.is_overwriting => None,
            (Some(entry), _) => is_version(&entry.to_tag),
            (None, _) => match self.to.head(&seen.key).await? {
                None => return Ok(KeySettled::gone(false)),
                Some(there) if trust == Trust::Begun => is_version(&there.tag),
                Some(there) => return Err(self.conflict(&seen.key, &there)),
            },
        };
        for _ in 0..CHANGES_MAX {
            let answer = self.to.delete(&seen.key, condition).await?;
            if answer.status == StatusCode::ACCEPTED {
                return Ok(KeySettled::gone(true));
            }
            condition = match self.to.head(&seen.key).await? {
                None => return Ok(KeySettled::gone(true)),
                Some(there) if trust == Trust::Begun => is_version(&there.tag),
                Some(there) => return Err(self.conflict(&seen.key, &there)),
            };
        }
        let sentence = format!("{}: it changes all the time", show_key(&seen.key));
        Err(self.to.failure(Exit::CONDITION, &sentence))
    }

    fn conflict(&self, key: &[u8], there: &RecordHead) -> Failure {
        let sentence = format!(
            "{}: it holds version {}, which this copy did not write; until the cut-over TO is the \
             copy's own: stop its writers, then remove the key there or add --overwrite",
            show_key(key),
            there.tag
        );
        self.to.failure(Exit::CONDITION, &sentence)
    }

    fn removed(&self, key: &[u8]) -> Failure {
        let sentence = format!(
            "{}: it was copied, and another program removed it; until the cut-over TO is the \
             copy's own: stop its writers, then add --overwrite",
            show_key(key)
        );
        self.to.failure(Exit::CONDITION, &sentence)
    }
}

/// Do the two end at the same time, within the slack?
pub(super) fn is_same_end(one: &RecordHead, other: &RecordHead) -> bool {
    match (one.expires_ms, other.expires_ms) {
        (0, 0) => true,
        (0, _) | (_, 0) => false,
        (one, other) => one.abs_diff(other) <= EXPIRY_SLACK_MS,
    }
}

/// Where FROM gives no `ETag`, the version is a fingerprint of the value and its end.
fn with_tag(head: RecordHead, value: &[u8]) -> RecordHead {
    if head.tag.is_empty() {
        RecordHead {
            tag: format!("{:032x}-{}", xxh3_128(value), head.expires_ms),
            ..head
        }
    } else {
        head
    }
}

fn is_version(tag: &str) -> Option<(&'static str, String)> {
    (!tag.is_empty()).then(|| ("if-match", tag.to_owned()))
}

fn tag_of(answer: &WholeAnswer) -> String {
    answer.header("etag").unwrap_or_default().to_owned()
}

fn written(seen: &KeySeen, head: &RecordHead, to_tag: String) -> KeySettled {
    KeySettled {
        entry: Some(CopiedKey {
            key: seen.key.clone(),
            from_tag: head.tag.clone(),
            to_tag,
            expires_ms: head.expires_ms,
        }),
        is_changed: true,
    }
}

#[cfg(test)]
mod tests {
    use super::super::store::now_ms;
    use super::*;
    use crate::client::played::{PlayedNode, PlayedReply};
    use crate::runtime::runtime;

    const HOUR_MS: u64 = 3_600_000;

    /// The clock of this machine is this far ahead of those of both stores.
    const AHEAD_MS: u64 = 2 * HOUR_MS;

    fn seen(key: &[u8]) -> KeySeen {
        KeySeen {
            key: key.to_vec(),
            in_from: true,
            copied: None,
            in_to: None,
        }
    }

    async fn stores(
        from: fn(u64) -> PlayedReply,
        to: fn(u64) -> PlayedReply,
    ) -> (CopyStores, [PlayedNode; 2]) {
        let nodes = [PlayedNode::start(from).await, PlayedNode::start(to).await];
        let store = |node| Rc::new(ContractStore::of(node, Duration::from_secs(5)));
        let stores = CopyStores {
            from: store(&nodes[0]),
            to: store(&nodes[1]),
            pace: TransferPace::new(None),
            is_overwriting: false,
            bytes: Cell::new(0),
            clock: StoreClock::default(),
        };
        (stores, nodes)
    }

    #[test]
    fn a_value_that_this_machines_clock_takes_for_ended_gets_the_time_that_it_has_left() {
        let copying = async {
            // It has half an hour left.
            let from = |_| PlayedReply::Ending(now_ms() - AHEAD_MS + HOUR_MS / 2);
            // The look behind the first write tells TO's clock.
            let to = |number| match number {
                1 => PlayedReply::Ending(now_ms() - AHEAD_MS + HOUR_MS),
                _ => PlayedReply::Created,
            };
            let (stores, [_, to]) = stores(from, to).await;
            let settled = stores.settle(seen(b"k"), Trust::No).await;
            assert!(settled.expect("it is copied").entry.is_some());
            let wanted = [
                "PUT /v0/entity?id=k&ttl=3600",
                "HEAD /v0/entity?id=k",
                "PUT /v0/entity?id=k&ttl=180",
            ];
            let asked = to.asked();
            assert_eq!(asked.len(), wanted.len(), "{asked:?}");
            for (asked, wanted) in asked.iter().zip(wanted) {
                assert!(asked.starts_with(wanted), "{asked}");
            }
            // The next one needs no look.
            let settled = stores.settle(seen(b"l"), Trust::No).await;
            assert!(settled.expect("it is copied").entry.is_some());
            assert_eq!(to.asked().len(), wanted.len() + 1);
        };
        runtime().expect("a runtime").block_on(copying);
    }
}
