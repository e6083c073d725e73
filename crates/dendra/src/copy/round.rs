//! One round: all keys of FROM, of TO and of the last index side by side, page after page.
//!
//! ```text
//! keys of FROM ─┐
//! last index   ─┼─► one key after the other ─► a page ─► settle, many at once ─► new index, state
//! keys of TO   ─┘
//! ```
//!
//! Invariants
//! 1. Memory is a page (`PAGE_LEN` keys), and `--in-flight` values.
//! 2. A page is in the index and in the state before the next one is begun.
//! 3. Round 0 of an empty TO does not scan TO: each write there asks for an absent key.
//!
//! Not here: one key (`settle.rs`).
//! See: docs/moving.md.

use super::index::{CopiedKey, IndexReader, IndexWriter};
use super::records::{CopyRange, RecordFlow, WantedPart};
use super::settle::{CopyStores, KeySeen, KeySettled, Trust, is_same_end};
use super::state::{StateFolder, broken};
use crate::exit::{Exit, Failure};
use bytes::Bytes;
use indicatif::ProgressBar;
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;
use tokio::task::{JoinSet, LocalSet};

/// Keys whose work may be lost in a crash, and is then done again.
const PAGE_LEN: usize = 500;

/// Three sorted streams of keys as one.
struct KeyMerge {
    from: RecordFlow,
    to: Option<RecordFlow>,
    index: IndexReader,
    folder: PathBuf,
    loose: BTreeMap<Vec<u8>, CopiedKey>,
    from_key: Option<Bytes>,
    to_key: Option<Bytes>,
    entry: Option<CopiedKey>,
}

impl KeyMerge {
    /// Merge of the keys after the position of the round.
    async fn open(
        shared: &CopyStores,
        state: &StateFolder,
        range: &CopyRange,
        is_to_scanned: bool,
    ) -> Result<KeyMerge, Failure> {
        let position = state.progress.position.as_deref();
        let range = range.clone().behind(position);
        let to =
            is_to_scanned.then(|| RecordFlow::new(&shared.to, range.clone(), WantedPart::Keys));
        let path = state.index(state.progress.round.wrapping_sub(1));
        let index = IndexReader::open(&path, state.progress.old_bytes);
        let loose = state.progress.loose.iter().cloned();
        let mut merge = KeyMerge {
            from: RecordFlow::new(&shared.from, range, WantedPart::Keys),
            to,
            index: index.map_err(|e| broken(state.path(), &e))?,
            folder: state.path().to_owned(),
            loose: loose.map(|entry| (entry.key.clone(), entry)).collect(),
            from_key: None,
            to_key: None,
            entry: None,
        };
        merge.more_from().await?;
        merge.more_to().await?;
        merge.more_entries()?;
        while position.is_some_and(|at| merge.entry.as_ref().is_some_and(|e| e.key[..] <= *at)) {
            merge.more_entries()?;
        }
        Ok(merge)
    }

    async fn more_from(&mut self) -> Result<(), Failure> {
        self.from_key = self.from.next().await?.map(|(key, _)| key);
        Ok(())
    }

    async fn more_to(&mut self) -> Result<(), Failure> {
        self.to_key = match &mut self.to {
            Some(records) => records.next().await?.map(|(key, _)| key),
            None => None,
        };
        Ok(())
    }

    fn more_entries(&mut self) -> Result<(), Failure> {
        self.entry = self.index.next().map_err(|e| broken(&self.folder, &e))?;
        Ok(())
    }

    /// The next key of any of the three.
    async fn next(&mut self) -> Result<Option<KeySeen>, Failure> {
        let all = [
            self.from_key.as_deref(),
            self.to_key.as_deref(),
            self.entry.as_ref().map(|entry| &entry.key[..]),
        ];
        let Some(key) = all.into_iter().flatten().min().map(<[u8]>::to_vec) else {
            return Ok(None);
        };
        let in_from = self.from_key.as_deref() == Some(&key[..]);
        let in_to = self.to_key.as_deref() == Some(&key[..]);
        let is_copied = self.entry.as_ref().is_some_and(|entry| entry.key == key);
        let copied = if is_copied { self.entry.take() } else { None };
        let copied = self.loose.remove(&key).or(copied);
        if in_from {
            self.more_from().await?;
        }
        if in_to {
            self.more_to().await?;
        }
        if is_copied {
            self.more_entries()?;
        }
        Ok(Some(KeySeen {
            key,
            in_from,
            copied,
            in_to: self.to.as_ref().map(|_| in_to),
        }))
    }

    async fn page(&mut self) -> Result<Vec<KeySeen>, Failure> {
        let mut page = Vec::new();
        while page.len() < PAGE_LEN {
            match self.next().await? {
                Some(seen) => page.push(seen),
                None => break,
            }
        }
        Ok(page)
    }
}

/// Runs `work` for each of the page, `in_flight` at once; the results keep the page's order. After
/// an error no more work is begun: `None`.
async fn all<R: 'static, F: Future<Output = Result<R, Failure>> + 'static>(
    page: Vec<KeySeen>,
    in_flight: usize,
    work: impl Fn(KeySeen) -> F,
) -> Vec<Option<Result<R, Failure>>> {
    let mut waiting: VecDeque<(usize, KeySeen)> = page.into_iter().enumerate().collect();
    let mut done: Vec<Option<Result<R, Failure>>> = waiting.iter().map(|_| None).collect();
    let local = LocalSet::new();
    let run = local.run_until(async {
        let mut under_way = JoinSet::new();
        loop {
            while under_way.len() < in_flight {
                let Some((place, seen)) = waiting.pop_front() else {
                    break;
                };
                let future = work(seen);
                under_way.spawn_local(async move { (place, future.await) });
            }
            match under_way.join_next().await {
                None => return,
                Some(Ok((place, result))) => {
                    if result.is_err() {
                        waiting.clear();
                    }
                    done[place] = Some(result);
                }
                Some(Err(e)) => std::panic::resume_unwind(e.into_panic()),
            }
        }
    });
    run.await;
    done
}

/// All of them, or the first error.
fn whole<R>(done: Vec<Option<Result<R, Failure>>>) -> Result<Vec<R>, Failure> {
    // `None` stands only beside an error.
    done.into_iter().flatten().collect()
}

/// Runs the round that the state names, from its position to its end.
pub(super) async fn round(
    shared: &Rc<CopyStores>,
    state: &mut StateFolder,
    range: &CopyRange,
    in_flight: usize,
    bar: &ProgressBar,
) -> Result<(), Failure> {
    let round = state.progress.round;
    // A run that was killed may have written keys up to here: they are found by looking at TO.
    let begun_before = state.progress.begun.clone();
    let is_resumed = begun_before.is_some()
        || !state.progress.loose.is_empty()
        || !state.progress.doubtful.is_empty();
    let is_to_scanned = round > 0 || shared.is_overwriting || is_resumed;
    let path = state.path().to_owned();
    let failed = |e: std::io::Error| broken(&path, &e);
    let index = IndexWriter::open(&state.index(round), state.progress.new_bytes);
    let mut index = index.map_err(failed)?;
    let mut merge = KeyMerge::open(shared, state, range, is_to_scanned).await?;
    let mut keys = 0;
    loop {
        let page = merge.page().await?;
        let Some(last) = page.last().map(|seen| seen.key.clone()) else {
            return Ok(());
        };
        keys += page.len();
        // A page that was begun before and is not through stays so until it is.
        state.progress.begun = Some(last.clone()).max(begun_before.clone());
        state.save()?;
        let keys_of_page: Vec<Vec<u8>> = page.iter().map(|seen| seen.key.clone()).collect();
        let done = all(page, in_flight, |seen| {
            let is_begun = begun_before
                .as_ref()
                .is_some_and(|until| seen.key <= *until);
            let trust = if is_begun || state.progress.doubtful.contains(&seen.key) {
                Trust::Begun
            } else {
                Trust::No
            };
            let shared = Rc::clone(shared);
            async move { shared.settle(seen, trust).await }
        })
        .await;
        if done.iter().any(|one| !matches!(one, Some(Ok(_)))) {
            return end_early(state, keys_of_page, done, begun_before);
        }
        let settled = whole(done)?;
        for KeySettled { entry, is_changed } in &settled {
            state.progress.changes += u64::from(*is_changed);
            if let Some(entry) = entry {
                index.append(entry).map_err(failed)?;
            }
        }
        state.progress.new_bytes = index.sync().map_err(failed)?;
        let is_behind = begun_before.as_ref().is_none_or(|begun| last >= *begun);
        state.progress.position = Some(last);
        if is_behind {
            state.progress.begun = None;
        }
        state.save()?;
        let changes = state.progress.changes;
        bar.set_message(format!("round {round}: {keys} keys, {changes} changed,"));
        bar.set_position(shared.bytes.get());
    }
}

/// A page that an error ended: the state keeps the part that is done.
fn end_early(
    state: &mut StateFolder,
    keys: Vec<Vec<u8>>,
    done: Vec<Option<Result<KeySettled, Failure>>>,
    begun_before: Option<Vec<u8>>,
) -> Result<(), Failure> {
    let progress = &mut state.progress;
    progress.begun = begun_before.filter(|begun| progress.position.as_ref() < Some(begun));
    let mut first = None;
    for (key, result) in keys.into_iter().zip(done) {
        match result {
            None => {}
            Some(Ok(settled)) => {
                progress.changes += u64::from(settled.is_changed);
                if let Some(entry) = settled.entry {
                    progress.loose.retain(|known| known.key != key);
                    progress.doubtful.retain(|known| *known != key);
                    progress.loose.push(entry);
                }
            }
            Some(Err(failure)) => {
                // A condition that did not hold has not changed the record, for certain.
                if failure.exit != Exit::CONDITION && !progress.doubtful.contains(&key) {
                    progress.doubtful.push(key);
                }
                first = first.or(Some(failure));
            }
        }
    }
    state.save()?;
    first.map_or(Ok(()), Err)
}

/// The finding of the last look about a key.
#[derive(Debug)]
pub(super) struct Unequal {
    pub(super) key: Vec<u8>,
    pub(super) what: &'static str,
}

/// After the comparison: is every key still the version that was copied, at both stores, and does
/// it end at the same time? At most `most` findings are kept; the count is of all.
pub(super) async fn last_look(
    shared: &Rc<CopyStores>,
    state: &StateFolder,
    range: &CopyRange,
    in_flight: usize,
    most: usize,
) -> Result<(u64, Vec<Unequal>), Failure> {
    let mut merge = KeyMerge::open(shared, state, range, true).await?;
    let (mut count, mut kept) = (0, Vec::new());
    loop {
        let page = merge.page().await?;
        if page.is_empty() {
            return Ok((count, kept));
        }
        let looked = all(page, in_flight, |seen| {
            let shared = Rc::clone(shared);
            async move { look(&shared, seen).await }
        });
        for finding in whole(looked.await)?.into_iter().flatten() {
            count += 1;
            if kept.len() < most {
                kept.push(finding);
            }
        }
    }
}

async fn look(shared: &CopyStores, seen: KeySeen) -> Result<Option<Unequal>, Failure> {
    let finding = |key, what| Ok(Some(Unequal { key, what }));
    let Some(entry) = seen.copied else {
        return if seen.in_from {
            finding(seen.key, "written to FROM behind the last round")
        } else {
            finding(seen.key, "written to TO by another program")
        };
    };
    let (from, to) = tokio::join!(shared.version(&seen.key), shared.to.head(&seen.key));
    match (from?, to?) {
        // The ends at both stores are up to the slack apart.
        (None, None) if entry.expires_ms != 0 => Ok(None),
        (None, _) if shared.ends_now(&seen.key, entry.expires_ms).await? => Ok(None),
        (None, _) => finding(seen.key, "deleted at FROM behind the last round"),
        (Some(from), _) if from.tag != entry.from_tag => {
            finding(seen.key, "written to FROM behind the last round")
        }
        (Some(_), None) if shared.ends_now(&seen.key, entry.expires_ms).await? => Ok(None),
        (Some(_), None) => finding(seen.key, "removed at TO by another program"),
        (Some(_), Some(to)) if !entry.to_tag.is_empty() && to.tag != entry.to_tag => {
            finding(seen.key, "written to TO by another program")
        }
        (Some(from), Some(to)) => {
            if is_same_end(&from, &to) {
                Ok(None)
            } else {
                finding(seen.key, "another time to live (do the clocks agree?)")
            }
        }
    }
}
