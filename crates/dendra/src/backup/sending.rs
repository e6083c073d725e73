//! Pages of a restore on their way to the members, several at once.
//!
//! ```text
//! reader ─► page, page ─► PAGES_READ_AHEAD ─┬─► sender ─► each member
//! (a thread that may wait)                  └─► sender ─► each member      PAGES_UNDER_WAY of them
//! ```
//!
//! Invariants
//! 1. Pages are sent in their order, each when its share of `PAGES_AT_ONCE_BYTES` is free: that
//!    much memory, and the records read ahead.
//! 2. A member refuses a page that lacks one in front of it. While such a one is under way, the
//!    page is sent again; else the member lost something, and the round ends.
//! 3. A restore counts a record once, even if several rounds send it.
//!
//! Not here: rounds, and where they begin (`restore.rs`), pages as they are made (`pages.rs`).
//! See: docs/format/backup.md, docs/decisions/0042-a-restore-writes-tables.md.

use super::nodes::{AdminNode, PageRefusal};
use super::pace::TransferPace;
use super::pages::{PageSource, SourceEnd, SourcePage};
use super::progress;
use crate::console::{Console, show_key};
use crate::exit::{Exit, Failure};
use crate::runtime::join_all;
use bytes::Bytes;
use dendra_wire::restore::{PAGES_AT_ONCE_BYTES, page_room};
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::{Mutex, Semaphore, SemaphorePermit, mpsc};

/// Pages that are read ahead of those under way.
const PAGES_READ_AHEAD: usize = 2;
/// Pages that are under way at once: one is written by a member, one arrives there, and one leaves.
const PAGES_UNDER_WAY: usize = 4;
/// Before a page is sent again that came too early.
const PAUSE: Duration = Duration::from_millis(50);

/// The records that a round sent, and that no round had sent before it.
#[derive(Debug, Default)]
pub(crate) struct SentRecords {
    pub(crate) values: u64,
    pub(crate) tombstones: u64,
    pub(crate) bytes: u64,
    /// All members took everything up to this key.
    pub(crate) counted: Vec<u8>,
}

/// The end of a round.
pub(crate) enum RoundEnd {
    /// A member lacks something: another round sends it.
    Behind(Failure),
    /// The restore cannot go on by itself.
    Failed(Failure),
}

impl From<Failure> for RoundEnd {
    fn from(failure: Failure) -> RoundEnd {
        RoundEnd::Failed(failure)
    }
}

impl From<PageRefusal> for RoundEnd {
    fn from(why: PageRefusal) -> RoundEnd {
        match why {
            PageRefusal::Behind(failure) => RoundEnd::Behind(failure),
            PageRefusal::Failed(failure) => RoundEnd::Failed(repeat(failure)),
        }
    }
}

/// With the way out.
pub(crate) fn repeat(failure: Failure) -> Failure {
    let reason = failure.sentence;
    let sentence = format!("{reason}; repeat the command: it goes on where it was");
    Failure::new(failure.exit, sentence)
}

/// Why a backup ends a restore.
pub(crate) fn unreadable(reason: String) -> Failure {
    Failure::new(
        Exit::FAILURE,
        format!("the backup cannot be read: {reason}; `dendra backup verify` shows all damage"),
    )
}

/// The state that all senders of a round share.
struct SendingRound<'a> {
    members: &'a [&'a AdminNode],
    pace: TransferPace,
    bar: ProgressBar,
    ready: Mutex<mpsc::Receiver<SourcePage>>,
    room: Semaphore,
    /// Numbers of the pages that some member has not taken yet.
    under_way: RefCell<BTreeSet<u64>>,
    /// Why no page is sent any more.
    end: RefCell<Option<PageRefusal>>,
    /// Pages that all members took, while one in front of them is under way.
    early: RefCell<BTreeMap<u64, SourcePage>>,
    /// The pages in front of these.
    sent: RefCell<SentRecords>,
}

/// Sends all pages to all members. Returns the records that were sent, and how the backup's records
/// end.
pub(crate) async fn send(
    source: PageSource,
    members: &[&AdminNode],
    bytes_per_second: Option<u64>,
    console: Console,
) -> (SentRecords, Result<SourceEnd, RoundEnd>) {
    let (pages, ready) = mpsc::channel(PAGES_READ_AHEAD);
    let round = SendingRound {
        members,
        pace: TransferPace::new(bytes_per_second),
        bar: bar(source.records(), console),
        ready: Mutex::new(ready),
        room: Semaphore::new(PAGES_AT_ONCE_BYTES),
        under_way: RefCell::default(),
        end: RefCell::default(),
        early: RefCell::default(),
        sent: RefCell::new(SentRecords {
            counted: source.counted().to_vec(),
            ..SentRecords::default()
        }),
    };
    let reading = tokio::task::spawn_blocking(move || read(source, &pages));
    join_all((0..PAGES_UNDER_WAY).map(|_| round.sender())).await;
    // A reader that waits for senders wakes up: they have ended.
    round.ready.lock().await.close();
    let read = reading.await;
    let ended = match (round.end.take(), read) {
        (Some(end), _) => Err(end.into()),
        (None, Ok(Ok(end))) => Ok(end),
        (None, Ok(Err(reason))) => Err(unreadable(reason).into()),
        (None, Err(e)) => {
            let sentence = format!("the reader ended: {e}");
            Err(Failure::new(Exit::FAILURE, sentence).into())
        }
    };
    if ended.is_ok() {
        round.bar.finish_and_clear()
    } else {
        round.bar.abandon()
    }
    (round.sent.take(), ended)
}

impl SendingRound<'_> {
    /// Sends one page after the other, beside other senders.
    async fn sender(&self) {
        while let Some((page, _room)) = self.next().await {
            let sent = self.members.iter().map(|node| self.deliver(node, &page));
            let sent = join_all(sent).await;
            match sent.into_iter().collect::<Result<(), PageRefusal>>() {
                Ok(()) => self.count(page),
                Err(end) => {
                    // The first reason is the cause of the others.
                    self.end.borrow_mut().get_or_insert(end);
                    return;
                }
            }
        }
    }

    /// The next page, when it may be sent. Pages leave in their order: the lock is held meanwhile.
    async fn next(&self) -> Option<(SourcePage, SemaphorePermit<'_>)> {
        let mut ready = self.ready.lock().await;
        let page = ready.recv().await?;
        let room = page_room(page.bytes.len());
        let room = self.room.acquire_many(room).await;
        let room = room.expect("it is never closed");
        self.pace.take(page.bytes.len() as u64).await;
        if self.end.borrow().is_some() {
            return None;
        }
        self.under_way.borrow_mut().insert(page.number);
        Some((page, room))
    }

    /// Is a page in front of this one under way?
    fn is_preceded(&self, number: u64) -> bool {
        let under_way = self.under_way.borrow();
        under_way.first().is_some_and(|first| *first < number)
    }

    async fn deliver(&self, node: &AdminNode, page: &SourcePage) -> Result<(), PageRefusal> {
        loop {
            // Asked in front: the page before may be taken while this one travels.
            let is_preceded = self.is_preceded(page.number);
            match node.page(page.bytes.clone()).await {
                Err(PageRefusal::Behind(_)) if is_preceded && self.end.borrow().is_none() => {
                    tokio::time::sleep(PAUSE).await;
                }
                taken => return taken,
            }
        }
    }

    /// Counts a page, and those after it that were taken before it was.
    fn count(&self, mut page: SourcePage) {
        let mut under_way = self.under_way.borrow_mut();
        under_way.remove(&page.number);
        let first = under_way.first().copied().unwrap_or(u64::MAX);
        page.bytes = Bytes::new();
        let mut early = self.early.borrow_mut();
        early.insert(page.number, page);
        let mut sent = self.sent.borrow_mut();
        while let Some(entry) = early.first_entry().filter(|it| *it.key() < first) {
            let first_page = entry.remove();
            sent.values += first_page.values;
            sent.tombstones += first_page.tombstones;
            sent.bytes += first_page.counted_bytes;
            self.bar.inc(first_page.values + first_page.tombstones);
            if first_page.position > sent.counted {
                sent.counted = first_page.position;
            }
        }
    }
}

/// Reads the backup, on a thread that may wait, and fills pages.
fn read(mut source: PageSource, pages: &mpsc::Sender<SourcePage>) -> Result<SourceEnd, String> {
    while let Some(page) = source.next_page()? {
        if let Some(found) = page.disagreements.first() {
            let key = show_key(&found.raw_key);
            return Err(format!(
                "its nodes hold different values of {key} under one version"
            ));
        }
        if pages.blocking_send(page).is_err() {
            // The sender failed, and says why.
            break;
        }
    }
    Ok(source.end())
}

fn bar(records: u64, console: Console) -> ProgressBar {
    let bar = progress::bar(records, console);
    // Records of all nodes: how many keys they are is known at the end.
    let template = "{spinner} {pos} records of at most {len}, {per_sec}, {elapsed}";
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}
