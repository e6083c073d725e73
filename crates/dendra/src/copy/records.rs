//! All keys, or all records, of a store's range in order, however often a scan is cut.
//!
//! ```text
//! next ─► a record that waits ─► else: the next frame of the scan ─► else: a scan behind the last key
//! ```
//!
//! Invariants
//! 1. Each record is shown once, in the order of its bytes. The end is shown only after a scan that
//!    said it was complete.
//! 2. Memory is one page of keys (`PAGE_LEN`), or one frame and one record.
//! 3. A scan that brings no record is tried again with the patience of the store, which begins when
//!    the first try fails. Each further try pays from the store's budget, also one after records.
//!
//! Not here: single records (`store.rs`).
//! See: docs/api.md, "Many keys".

use super::store::{ContractStore, StoreCall};
use crate::client::retry::FailedTry;
use crate::client::{BodyPiece, HttpRequest, Stream};
use crate::exit::{Exit, Failure};
use crate::ops::Query;
use crate::scan;
use bytes::{Bytes, BytesMut};
use dendra_wire::http::records::{Decoded, decode_record};
use dendra_wire::meta::{self, MetaBuf};
use hyper::{Method, StatusCode};
use std::rc::Rc;
use tokio::time::Instant;

/// Keys of one scan: 2 MiB of the longest ones. Its connection rests while they are worked on.
const PAGE_LEN: usize = 2000;

/// The smallest key there is.
const FIRST_KEY: &[u8] = b"\0";

/// The part of records that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WantedPart {
    Keys,
    Values,
}

/// A range of keys: all that begin with a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CopyRange {
    start: Vec<u8>,
    /// Exclusive; empty = the end of all keys.
    end: Vec<u8>,
}

impl CopyRange {
    pub(super) fn of(prefix: &[u8]) -> CopyRange {
        let mut end = prefix.to_vec();
        while end.last() == Some(&u8::MAX) {
            end.pop();
        }
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        let start = match prefix {
            b"" => FIRST_KEY,
            prefix => prefix,
        };
        CopyRange {
            start: start.to_vec(),
            end,
        }
    }

    /// The part of it after `key`.
    pub(super) fn behind(mut self, key: Option<&[u8]>) -> CopyRange {
        if let Some(key) = key {
            self.start = [key, b"\0"].concat();
        }
        self
    }
}

/// See the module.
pub(super) struct RecordFlow {
    store: Rc<ContractStore>,
    range: CopyRange,
    wanted: WantedPart,
    scan: Option<(usize, Stream)>,
    /// Does the open scan show values as they are stored?
    is_wrapped: bool,
    unread: BytesMut,
    /// Keys of a page, last one first.
    page: Vec<(Bytes, Bytes)>,
    /// Records that the open scan has shown.
    shown: usize,
    is_done: bool,
    /// Scans that failed since the last record.
    tries: u32,
    /// When the patience with them is over.
    deadline: Instant,
}

/// How a scan went on.
enum Scanned {
    Record(Bytes, Bytes),
    /// The node said that there is no more.
    Complete,
    /// The scan ended, and there may be more.
    Stopped,
    Broken(String),
}

impl RecordFlow {
    pub(super) fn new(
        store: &Rc<ContractStore>,
        range: CopyRange,
        wanted: WantedPart,
    ) -> RecordFlow {
        RecordFlow {
            deadline: store.patience(),
            store: Rc::clone(store),
            range,
            wanted,
            scan: None,
            is_wrapped: false,
            unread: BytesMut::new(),
            page: Vec::new(),
            shown: 0,
            is_done: false,
            tries: 0,
        }
    }

    /// The next record, its value as it is stored; it is empty when only keys are wanted.
    pub(super) async fn next(&mut self) -> Result<Option<(Bytes, Bytes)>, Failure> {
        if self.wanted == WantedPart::Values {
            return self.pull().await;
        }
        if self.page.is_empty() {
            // The whole page at once: a node cuts a scan whose client does not read for a while.
            while self.page.len() < PAGE_LEN {
                match self.pull().await? {
                    Some(record) => self.page.push(record),
                    None => break,
                }
            }
            self.scan = None;
            self.unread.clear();
            self.page.reverse();
        }
        Ok(self.page.pop())
    }

    async fn pull(&mut self) -> Result<Option<(Bytes, Bytes)>, Failure> {
        while !self.is_done {
            if self.scan.is_none() {
                self.open().await?;
            }
            let Some((member, _)) = &self.scan else {
                continue;
            };
            let member = *member;
            match self.step().await {
                Scanned::Record(key, value) => {
                    self.range.start = [&key[..], b"\0"].concat();
                    self.shown += 1;
                    self.tries = 0;
                    return Ok(Some((key, value)));
                }
                Scanned::Complete => self.is_done = true,
                Scanned::Stopped => self.scan = None,
                Scanned::Broken(why) => {
                    let failed = FailedTry::Sent { retry_after: None };
                    self.again(member, &why, failed).await?;
                }
            }
        }
        Ok(None)
    }

    /// After a scan that went wrong: another one, later.
    async fn again(&mut self, member: usize, why: &str, failed: FailedTry) -> Result<(), Failure> {
        self.scan = None;
        self.unread.clear();
        if self.tries == 0 {
            self.deadline = self.store.patience();
        }
        self.tries += 1;
        let store = Rc::clone(&self.store);
        store
            .rest(
                StoreCall::Scan,
                member,
                self.tries,
                failed,
                self.deadline,
                why,
            )
            .await
    }

    async fn open(&mut self) -> Result<(), Failure> {
        let mut query = Query::default();
        query.add("start", &self.range.start);
        if !self.range.end.is_empty() {
            query.add("end", &self.range.end);
        }
        if self.wanted == WantedPart::Keys {
            query.add("keys-only", b"true");
            query.add("limit", PAGE_LEN.to_string().as_bytes());
        }
        let ask = HttpRequest {
            meta: MetaBuf::default(),
            method: Method::GET,
            path: query.behind("/v0/entities"),
            headers: vec![
                ("accept", scan::ACCEPT.to_owned()),
                ("te", "trailers".to_owned()),
            ],
            body: Bytes::new(),
        };
        self.unread.clear();
        self.shown = 0;
        if self.tries == 0 {
            self.store.begin();
        }
        let (member, opened) = self.store.scan(&ask).await;
        let stream = match opened {
            Ok(stream) => stream,
            Err(trouble) => {
                let failed = FailedTry::unanswered(&trouble);
                return self.again(member, &trouble.to_string(), failed).await;
            }
        };
        if stream.head.status == StatusCode::OK {
            let kind = stream.head.header("content-type");
            let Some(is_wrapped) = scan::is_wrapped(kind) else {
                let kind = kind.unwrap_or_default();
                let sentence = format!("a scan comes as {kind:?}, and not as records");
                return Err(self.store.failure(Exit::FAILURE, &sentence));
            };
            self.is_wrapped = is_wrapped;
            self.scan = Some((member, stream));
            return Ok(());
        }
        // Its head may ask for a pause, also if the sentence breaks.
        let failed = FailedTry::refused(&stream.head);
        match stream.into_answer().await {
            Ok(answer) if answer.is_refusal() => {
                self.again(member, &answer.sentence(), failed).await
            }
            Ok(answer) => Err(self.store.refused(StoreCall::Scan, &answer)),
            Err(trouble) => self.again(member, &trouble.to_string(), failed).await,
        }
    }

    /// The next event of the open scan.
    async fn step(&mut self) -> Scanned {
        let Some((_, stream)) = &mut self.scan else {
            return Scanned::Stopped;
        };
        let mut is_ended = false;
        loop {
            match decode_record(&self.unread) {
                Decoded::Record {
                    key,
                    value,
                    consumed,
                } if !is_ended => {
                    let stored = if self.is_wrapped {
                        Bytes::copy_from_slice(value)
                    } else {
                        Bytes::from(meta::stored(value).into_owned())
                    };
                    let record = (Bytes::copy_from_slice(key), stored);
                    drop(self.unread.split_to(consumed));
                    return Scanned::Record(record.0, record.1);
                }
                Decoded::End { consumed } if !is_ended => {
                    is_ended = true;
                    drop(self.unread.split_to(consumed));
                    continue;
                }
                Decoded::Incomplete { .. } => {}
                _ => return Scanned::Broken("the records cannot be read".to_owned()),
            }
            match stream.next().await {
                Ok(Some(BodyPiece::Data(data))) => self.unread.extend_from_slice(&data),
                Ok(Some(BodyPiece::Trailers(trailers))) => {
                    let verdict = trailers.get("dendra-scan").and_then(|v| v.to_str().ok());
                    return match verdict {
                        Some("complete") if is_ended => Scanned::Complete,
                        Some(_) if is_ended => Scanned::Stopped,
                        _ => Scanned::Broken("the node cut the scan".to_owned()),
                    };
                }
                // Without a trailer the end mark says that the limit or the end was reached.
                Ok(None) if is_ended => {
                    return if self.wanted == WantedPart::Keys && self.shown >= PAGE_LEN {
                        Scanned::Stopped
                    } else {
                        Scanned::Complete
                    };
                }
                Ok(None) => return Scanned::Broken("the scan has no end".to_owned()),
                Err(trouble) => return Scanned::Broken(trouble.to_string()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::played::PlayedNode;
    use crate::client::played::PlayedReply::{self, CutScan, NoRecords, Refusal};
    use crate::client::retry::{BURST, RETRY_AFTER_MAX};
    use crate::runtime::runtime;
    use std::time::Duration;

    /// A store that answers scans so, and the flow of all its keys.
    async fn played(
        script: fn(u64) -> PlayedReply,
        patience: Duration,
    ) -> (PlayedNode, Rc<ContractStore>, RecordFlow) {
        let node = PlayedNode::start(script).await;
        let store = Rc::new(ContractStore::of(&node, patience));
        let flow = flow(&store);
        (node, store, flow)
    }

    fn flow(store: &Rc<ContractStore>) -> RecordFlow {
        RecordFlow::new(store, CopyRange::of(b""), WantedPart::Keys)
    }

    #[test]
    fn a_scan_that_is_refused_gets_the_burst_of_retries_and_a_tenth() {
        let scanning = async {
            // Ten scans that are answered earn the retry of the last of them.
            let script = |number| match number {
                0..BURST => Refusal(Some(0)),
                _ if number == BURST + 10 || number == BURST + 12 => Refusal(Some(0)),
                _ => NoRecords,
            };
            let (node, store, mut first) = played(script, RETRY_AFTER_MAX).await;
            assert_eq!(
                first.next().await.expect("the last retry is answered"),
                None
            );
            assert_eq!(node.requests(), 1 + BURST);
            for _ in 0..10 {
                assert_eq!(flow(&store).next().await.expect("it is answered"), None);
            }
            assert_eq!(node.requests(), 1 + BURST + 10 + 1);
            // The patience is not longer than the rest before a retry that nothing pays for.
            let refused = flow(&store).next().await.expect_err("refused");
            assert_eq!(refused.exit, Exit::UNAVAILABLE);
            assert_eq!(node.requests(), 1 + BURST + 10 + 1 + 1);
        };
        runtime().expect("a runtime").block_on(scanning);
    }

    #[test]
    fn a_scan_that_is_cut_pays_for_the_next_one() {
        let scanning = async {
            let (node, _, mut flow) = played(|_| CutScan, RETRY_AFTER_MAX).await;
            for _ in 0..=BURST {
                let record = flow.pull().await.expect("a retry is left");
                assert!(record.is_some());
            }
            let refused = flow.pull().await.expect_err("none is left");
            assert_eq!(refused.exit, Exit::UNAVAILABLE);
            assert_eq!(node.requests(), 1 + BURST);
        };
        runtime().expect("a runtime").block_on(scanning);
    }

    #[test]
    fn a_scan_comes_back_no_earlier_than_it_was_asked_to() {
        let scanning = async {
            let script = |number| {
                if number == 0 {
                    Refusal(Some(3))
                } else {
                    NoRecords
                }
            };
            // The patience ends before that.
            let (node, _, mut flow) = played(script, Duration::from_secs(3)).await;
            let refused = flow.next().await.expect_err("refused");
            assert_eq!(refused.exit, Exit::UNAVAILABLE);
            assert_eq!(node.requests(), 1);
        };
        runtime().expect("a runtime").block_on(scanning);
    }

    #[test]
    fn the_patience_with_a_scan_begins_when_it_fails() {
        let scanning = async {
            let script = |number| {
                if number == 0 {
                    Refusal(Some(0))
                } else {
                    NoRecords
                }
            };
            let (node, _, mut flow) = played(script, RETRY_AFTER_MAX).await;
            // The work on the records before took longer than the patience.
            flow.deadline = Instant::now();
            assert_eq!(flow.next().await.expect("the second try is answered"), None);
            assert_eq!(node.requests(), 2);
        };
        runtime().expect("a runtime").block_on(scanning);
    }

    #[test]
    fn a_range_ends_behind_all_keys_with_the_prefix() {
        let of = |prefix: &[u8]| {
            let range = CopyRange::of(prefix);
            (range.start, range.end)
        };
        assert_eq!(of(b"a"), (b"a".to_vec(), b"b".to_vec()));
        assert_eq!(of(b"a\xff\xff"), (b"a\xff\xff".to_vec(), b"b".to_vec()));
        assert_eq!(of(b"\xff"), (b"\xff".to_vec(), b"".to_vec()));
        assert_eq!(of(b""), (b"\0".to_vec(), b"".to_vec()));
        let behind = CopyRange::of(b"a").behind(Some(b"ax"));
        assert_eq!(behind.start, b"ax\0");
    }
}
