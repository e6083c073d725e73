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
//!
//! Not here: which keys (`round.rs`).
//! See: docs/moving.md, "Writes of others to TO".

use super::index::CopiedKey;
use super::store::{ContractStore, RecordHead, now_ms};
use crate::backup::TransferPace;
use crate::client::WholeAnswer;
use crate::console::show_key;
use crate::exit::{Exit, Failure};
use bytes::Bytes;
use hyper::StatusCode;
use std::cell::Cell;
use std::rc::Rc;
use xxhash_rust::xxh3::xxh3_128;

/// Tries to replace a record that changes under us: TO is written by others, then.
const CHANGES_MAX: usize = 5;

/// How far the clocks of FROM, TO and this machine may differ before a time to live counts as
/// another one. A second of it is the rounding.
pub(super) const EXPIRY_SLACK_MS: u64 = 10_000;

/// State that all keys of a copy share.
pub(super) struct CopyStores {
    pub(super) from: Rc<ContractStore>,
    pub(super) to: Rc<ContractStore>,
    pub(super) pace: TransferPace,
    /// `--overwrite`: no conditions.
    pub(super) is_overwriting: bool,
    /// Bytes of keys and values that were copied.
    pub(super) bytes: Cell<u64>,
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

/// Is a record with this end over, within the slack?
pub(super) fn is_over(expires_ms: u64) -> bool {
    expires_ms != 0 && expires_ms <= now_ms() + EXPIRY_SLACK_MS
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
                Ok(found.map(|(head, value)| with_tag(head, &value)))
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
            if head.expires_ms != 0 && head.expires_ms <= now_ms() {
                return self.remove(seen, trust).await;
            }
            let put = self.to.put(&seen.key, value, head.expires_ms, condition);
            let answer = put.await?;
            if answer.status == StatusCode::CREATED {
                let bytes = (seen.key.len() + value.len()) as u64;
                self.bytes.set(self.bytes.get() + bytes);
                return Ok(written(&seen, &head, tag_of(&answer)));
            }
            // TO holds another version than the condition says.
            condition = match self.to.get(&seen.key).await? {
                Some((there, held)) if held == *value => {
                    return Ok(written(&seen, &head, there.tag));
                }
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
        trust == Trust::Begun || entry.is_none_or(|entry| is_over(entry.expires_ms))
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
