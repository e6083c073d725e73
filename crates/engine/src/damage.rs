//! Tables in which damage was met while the engine runs: known, named, and kept out of jobs.
//!
//! ```text
//! a read meets damage          noted                        reads of that block go on failing
//! a job fails on it, once      noted, tried again           a disk may have had a bad moment
//! a job fails on it, twice     set aside ─► level 0         the table holds up nothing else
//! noted                        scrubbed soon                names every damaged spot, or finds none
//! scrubbed twice, same spot    confirmed                    its span of keys can be repaired
//! all of its spots repaired    mended                       written anew without those blocks
//!                              or a hole                    they may hide what others have purged
//! ```
//!
//! A table that is set aside moves to level 0, where tables may overlap. So the level it came from
//! has no hole that merges must step around. No job but the one that mends it reads it, and it does
//! not count towards the limit of level 0. Its records stay readable but for the damaged blocks. A
//! delete above them stays, since the table may hold something older.
//!
//! Invariants
//! 1. At most one note for each live table: notes of tables that a compaction replaced are
//!    forgotten.
//! 2. Spots are not durable, but the ids of their tables are (`scrub/note.rs`): after a restart
//!    these are scrubbed first.
//! 3. A table has at most `SPOTS_MAX` spots; beyond it they are one, which spans the whole table.
//! 4. A table is mended only when each span that lost records was said to be repaired.
//!
//! Not here: the choice of jobs (`compact/pick/`), the check of a whole folder (`check/`), where a
//! scrub stands (`scrub/`), blocks that may hide something (`hole/`).
//! See: docs/overload.md, docs/operating.md.

use crate::Error;
use crate::table::{self, Flaw, KeySpan, TableMeta};
use crate::tree::Tree;
use crate::waits::hold;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Jobs that fail on a table before it is set aside.
const FAILED_JOBS_MAX: u32 = 2;
/// Damaged spots of one table that are known one by one.
const SPOTS_MAX: usize = 256;
/// Scrubs that must find a spot before it counts as damage: a disk may have had a bad moment.
const SCRUBS_MIN: u32 = 2;

/// A live table with damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedTable {
    /// File name inside the folder.
    pub file: String,
    /// Where the damage is that was met last, in bytes.
    pub offset: u64,
    /// The expected bytes and the found ones, as a sentence.
    pub reason: String,
    /// Compactions leave it out.
    pub is_set_aside: bool,
}

/// Records of one table are lost, and which ones is not known: their keys lie between two others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedSpan {
    /// Names the span: the same whenever it is asked for, until it has to be repaired anew.
    pub id: u64,
    /// The table.
    pub table: u64,
    /// Where its damage begins, in bytes.
    pub offset: u64,
    /// The expected bytes and the found ones, as a sentence.
    pub reason: String,
    /// The first stored key that may be lost.
    pub first: Vec<u8>,
    /// The last stored key that may be lost.
    pub last: Vec<u8>,
}

impl DamagedSpan {
    /// File name of the table inside the folder.
    pub fn file(&self) -> String {
        table::file_name(self.table)
    }

    /// Names the damaged block and the span: the same while the block waits for its repair, and
    /// while its hole does. Tables have no id twice.
    pub fn block(&self) -> u64 {
        let mut bytes = Vec::new();
        for number in [self.table, self.offset, self.first.len() as u64] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.first);
        bytes.extend_from_slice(&self.last);
        xxhash_rust::xxh3::xxh3_64(&bytes)
    }

    pub(crate) fn id_of(table: u64, offset: u64, state: [u64; 2]) -> u64 {
        let numbers = [table, offset, state[0], state[1]];
        let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
        xxhash_rust::xxh3::xxh3_64(&bytes)
    }
}

/// A damaged spot, and its state.
struct KnownFlaw {
    spot: Flaw,
    scrubs: u32,
    is_repaired: bool,
    /// No owner that its repair needs can be asked now.
    waits: bool,
}

/// A confirmed spot in which records are lost, of a table that could be written anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LossySpot {
    pub(crate) offset: u64,
    pub(crate) span: KeySpan,
    pub(crate) fate: SpotFate,
}

/// How far the repair of a spot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SpotFate {
    /// Repaired: the records are here again.
    Repaired,
    /// Repair that waits for owners which cannot be asked.
    Waits,
    /// Repair under way.
    Lost,
}

impl KnownFlaw {
    fn is_confirmed(&self) -> bool {
        self.scrubs >= SCRUBS_MIN
    }

    /// No record is lost with it.
    fn is_harmless(&self) -> bool {
        self.is_repaired || self.spot.span.is_none()
    }
}

#[derive(Default)]
struct Note {
    offset: u64,
    reason: String,
    failed_jobs: u32,
    spots: Vec<KnownFlaw>,
}

impl Note {
    fn is_set_aside(&self) -> bool {
        self.failed_jobs >= FAILED_JOBS_MAX
    }

    fn is_mendable(&self) -> bool {
        let mut spots = self.spots.iter();
        !self.spots.is_empty() && spots.all(|known| known.is_confirmed() && known.is_harmless())
    }

    /// Would the table be better without its spots? Those that are not repaired need holes then.
    fn gains(&self) -> bool {
        let mut spots = self.spots.iter();
        let has_harmless = self.spots.iter().any(KnownFlaw::is_harmless);
        has_harmless && spots.all(KnownFlaw::is_confirmed)
    }

    fn lossy(&self) -> Vec<LossySpot> {
        let lossy = |known: &KnownFlaw| {
            Some(LossySpot {
                offset: known.spot.offset,
                span: known.spot.span.clone()?,
                fate: match (known.is_repaired, known.waits) {
                    (true, _) => SpotFate::Repaired,
                    (false, true) => SpotFate::Waits,
                    (false, false) => SpotFate::Lost,
                },
            })
        };
        self.spots.iter().filter_map(lossy).collect()
    }
}

/// The notes, by table id.
#[derive(Default)]
pub(crate) struct Damage {
    notes: Mutex<BTreeMap<u64, Note>>,
    /// How many are set aside: without any, jobs pass without the lock.
    set_aside: AtomicUsize,
    /// How many could be mended now: the same.
    mendable: AtomicUsize,
    /// Tables that a scrub is to look at first.
    suspects: Mutex<BTreeSet<u64>>,
}

/// The result of a whole scrub of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scrubbed {
    /// Spots that are confirmed by it.
    pub(crate) confirmed: u64,
}

impl Damage {
    /// A read ended in `error`.
    pub(crate) fn note_read(&self, error: &Error, tree: &Tree) {
        self.note(error, 0, |id| tree.tables().any(|(_, t)| t.meta().id == id));
    }

    /// A job over the tables `inputs` ended in `error`.
    pub(crate) fn note_job(&self, error: &Error, inputs: &[u64]) {
        self.note(error, 1, |id| inputs.contains(&id));
    }

    fn note(&self, error: &Error, failed_jobs: u32, is_live: impl Fn(u64) -> bool) {
        let Error::Damaged {
            file,
            offset,
            reason,
        } = error
        else {
            return;
        };
        let Some(id) = table::id_of_file_name(file).filter(|id| is_live(*id)) else {
            return;
        };
        let mut notes = hold(&self.notes);
        let note = notes.entry(id).or_default();
        note.offset = *offset;
        note.reason.clone_from(reason);
        note.failed_jobs += failed_jobs;
        // Known spots that wait for their repair need no other look.
        let is_news = note.spots.is_empty() || note.is_mendable();
        self.count(&notes);
        if is_news {
            self.suspect(id);
        }
    }

    /// A scrub is to look at this table first.
    pub(crate) fn suspect(&self, id: u64) {
        hold(&self.suspects).insert(id);
    }

    /// The next table that a scrub is to look at first.
    pub(crate) fn take_suspect(&self) -> Option<u64> {
        hold(&self.suspects).pop_first()
    }

    /// All of a table was read, and this was found.
    pub(crate) fn scrubbed(&self, meta: &TableMeta, mut spots: Vec<Flaw>) -> Scrubbed {
        let mut notes = hold(&self.notes);
        hold(&self.suspects).remove(&meta.id);
        if spots.is_empty() {
            // The damage that was met before was a bad moment.
            notes.remove(&meta.id);
            self.count(&notes);
            return Scrubbed { confirmed: 0 };
        }
        if spots.len() > SPOTS_MAX {
            let all = Flaw {
                offset: 0,
                span: Some(KeySpan {
                    first: meta.smallest.clone(),
                    last: meta.largest.clone(),
                }),
                reason: format!("{} spots are damaged", spots.len()),
            };
            spots = vec![all];
        }
        let note = notes.entry(meta.id).or_default();
        note.offset = spots[0].offset;
        note.reason.clone_from(&spots[0].reason);
        let before = std::mem::take(&mut note.spots);
        let mut confirmed = 0;
        for spot in spots {
            let same = before
                .iter()
                .find(|known| known.spot.offset == spot.offset && known.spot.span == spot.span);
            let known = KnownFlaw {
                scrubs: same.map_or(0, |same| same.scrubs) + 1,
                is_repaired: same.is_some_and(|same| same.is_repaired),
                waits: same.is_some_and(|same| same.waits),
                spot,
            };
            confirmed += u64::from(known.scrubs == SCRUBS_MIN);
            note.spots.push(known);
        }
        let is_open = note.spots.iter().any(|known| !known.is_confirmed());
        self.count(&notes);
        if is_open {
            self.suspect(meta.id);
        }
        Scrubbed { confirmed }
    }

    /// Spans of keys in which records are lost. A repaired one is listed until its block is gone.
    pub(crate) fn spans(&self) -> Vec<DamagedSpan> {
        let notes = hold(&self.notes);
        let mut spans = Vec::new();
        for (id, note) in notes.iter() {
            for known in note.spots.iter().filter(|known| known.is_confirmed()) {
                if let Some(span) = &known.spot.span {
                    spans.push(DamagedSpan {
                        id: DamagedSpan::id_of(*id, known.spot.offset, [0, 0]),
                        table: *id,
                        offset: known.spot.offset,
                        reason: known.spot.reason.clone(),
                        first: span.first.clone(),
                        last: span.last.clone(),
                    });
                }
            }
        }
        spans
    }

    /// The records that were lost there are in the store again.
    pub(crate) fn repaired(&self, span: &DamagedSpan) {
        let mut notes = hold(&self.notes);
        let all = KeySpan {
            first: span.first.clone(),
            last: span.last.clone(),
        };
        if let Some(note) = notes.get_mut(&span.table) {
            for known in &mut note.spots {
                known.is_repaired |= known.spot.span.as_ref().is_some_and(|it| all.covers(it));
            }
        }
        self.count(&notes);
    }

    /// The repair of the span waits for owners that cannot be asked, or does so no more.
    pub(crate) fn waits(&self, span: &DamagedSpan, waits: bool) {
        let mut notes = hold(&self.notes);
        let note = notes.get_mut(&span.table);
        let spots = note.into_iter().flat_map(|note| &mut note.spots);
        for known in spots.filter(|known| known.spot.offset == span.offset) {
            known.waits = waits;
        }
    }

    /// A table that would be better without its spots, if `may` allows that. Returns its id, and
    /// the spots in which records are lost.
    pub(crate) fn mendable(
        &self,
        may: impl Fn(u64, &[LossySpot]) -> bool,
    ) -> Option<(u64, Vec<LossySpot>)> {
        if self.mendable.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let notes = hold(&self.notes);
        let mut mendable = notes.iter().filter(|(_, note)| note.gains());
        mendable.find_map(|(id, note)| {
            let spots = note.lossy();
            may(*id, &spots).then_some((*id, spots))
        })
    }

    /// Spans of this table in which records are lost for certain.
    pub(crate) fn spans_of(&self, id: u64) -> Vec<KeySpan> {
        let notes = hold(&self.notes);
        let spots = notes.get(&id).into_iter().flat_map(|note| &note.spots);
        let confirmed = spots.filter(|known| known.is_confirmed());
        confirmed.filter_map(|it| it.spot.span.clone()).collect()
    }

    /// Can all of the table be read, as far as is known, but for blocks in these spans?
    pub(crate) fn is_readable_without(&self, id: u64, spans: &[KeySpan]) -> bool {
        let notes = hold(&self.notes);
        let Some(note) = notes.get(&id) else {
            return true;
        };
        let is_left_out = |known: &KnownFlaw| {
            let lost = known.spot.span.as_ref();
            lost.is_none_or(|lost| spans.iter().any(|it| it.covers(lost)))
        };
        !note.spots.is_empty() && note.spots.iter().all(is_left_out)
    }

    /// Forgets tables that are gone; how many damaged spots they had.
    pub(crate) fn forget(&self, ids: &[u64]) -> u64 {
        let mut notes = hold(&self.notes);
        let mut spots = 0;
        notes.retain(|id, note| {
            let is_gone = ids.contains(id);
            if is_gone {
                spots += note
                    .spots
                    .iter()
                    .filter(|known| known.is_confirmed())
                    .count() as u64;
            }
            !is_gone
        });
        self.count(&notes);
        hold(&self.suspects).retain(|id| !ids.contains(id));
        spots
    }

    fn count(&self, notes: &BTreeMap<u64, Note>) {
        let set_aside = notes.values().filter(|note| note.is_set_aside()).count();
        self.set_aside.store(set_aside, Ordering::Relaxed);
        let mendable = notes.values().filter(|note| note.gains()).count();
        self.mendable.store(mendable, Ordering::Relaxed);
    }

    /// Tables of which damage is known or suspected.
    pub(crate) fn ids(&self) -> BTreeSet<u64> {
        let mut ids: BTreeSet<u64> = hold(&self.notes).keys().copied().collect();
        ids.extend(hold(&self.suspects).iter());
        ids
    }

    /// Tables that no job may read.
    pub(crate) fn set_aside(&self) -> BTreeSet<u64> {
        if self.set_aside.load(Ordering::Relaxed) == 0 {
            return BTreeSet::new();
        }
        let notes = hold(&self.notes);
        let aside = notes.iter().filter(|(_, note)| note.is_set_aside());
        aside.map(|(id, _)| *id).collect()
    }

    /// Everything that is known, by table id.
    pub(crate) fn list(&self) -> Vec<DamagedTable> {
        let notes = hold(&self.notes);
        let named = notes.iter().map(|(id, note)| DamagedTable {
            file: table::file_name(*id),
            offset: note.offset,
            reason: note.reason.clone(),
            is_set_aside: note.is_set_aside(),
        });
        named.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_set_aside_at_the_second_job_that_fails_on_it() {
        let damage = Damage::default();
        let error = |id, offset| Error::damaged(table::file_name(id), offset, "it is not right");
        damage.note_job(&error(7, 1), &[7, 8]);
        damage.note_job(&error(9, 1), &[7, 8]);
        damage.note_job(&Error::Full { free_bytes: 0 }, &[7, 8]);
        assert_eq!(damage.set_aside(), BTreeSet::new());
        damage.note_read(&error(8, 2), &Tree::new());
        damage.note_job(&error(7, 3), &[7, 8]);
        assert_eq!(damage.set_aside(), BTreeSet::from([7]));
        let listed = damage.list();
        assert_eq!(listed.len(), 1, "tables that are not live are not noted");
        assert_eq!((listed[0].offset, listed[0].is_set_aside), (3, true));
        damage.forget(&[7]);
        assert_eq!(
            (damage.set_aside(), damage.list()),
            (BTreeSet::new(), vec![])
        );
    }

    fn meta(id: u64) -> TableMeta {
        TableMeta {
            id,
            bytes: 10,
            digest: 11,
            records: 12,
            tombstones: 0,
            expiring: 0,
            smallest: b"a".to_vec(),
            largest: b"z".to_vec(),
            version_min: dendra_base::Version::ZERO,
            version_max: dendra_base::Version::MAX,
        }
    }

    fn spot(offset: u64, keys: Option<(&str, &str)>) -> Flaw {
        Flaw {
            offset,
            span: keys.map(|(first, last)| KeySpan {
                first: first.into(),
                last: last.into(),
            }),
            reason: "it is not right".to_owned(),
        }
    }

    #[test]
    fn a_table_is_mended_once_all_spans_that_lost_records_are_repaired() {
        let damage = Damage::default();
        let found = || {
            vec![
                spot(1, Some(("a", "c"))),
                spot(5, Some(("f", "g"))),
                spot(9, None),
            ]
        };
        assert_eq!(damage.scrubbed(&meta(7), found()).confirmed, 0);
        assert_eq!(damage.spans(), [], "it may have been a bad moment");
        assert_eq!(damage.take_suspect(), Some(7));
        assert_eq!(damage.scrubbed(&meta(7), found()).confirmed, 3);
        let spans = damage.spans();
        assert_eq!(spans.len(), 2, "the third spot lost no record");
        damage.repaired(&spans[0]);
        let fates = |spots: &[LossySpot]| spots.iter().map(|it| it.fate).collect::<Vec<_>>();
        let found = damage.mendable(|_, _| true).expect("it would be better");
        assert_eq!(fates(&found.1), [SpotFate::Repaired, SpotFate::Lost]);
        damage.waits(&spans[1], true);
        let found = damage.mendable(|_, _| true).expect("it would be better");
        assert_eq!(fates(&found.1), [SpotFate::Repaired, SpotFate::Waits]);
        damage.repaired(&spans[1]);
        let (id, spots) = damage.mendable(|_, _| true).expect("both are repaired");
        assert_eq!((id, fates(&spots)), (7, vec![SpotFate::Repaired; 2]));
        assert_eq!(damage.forget(&[7]), 3);
        assert_eq!(damage.mendable(|_, _| true), None);
    }

    #[test]
    fn damage_that_a_scrub_does_not_find_again_is_forgotten() {
        let damage = Damage::default();
        let error = Error::damaged(table::file_name(7), 1, "it is not right");
        damage.note_job(&error, &[7]);
        damage.note_job(&error, &[7]);
        assert_eq!(damage.set_aside().len(), 1);
        assert_eq!(damage.take_suspect(), Some(7));
        damage.scrubbed(&meta(7), Vec::new());
        assert_eq!((damage.set_aside().len(), damage.list().len()), (0, 0));
    }

    #[test]
    fn a_table_with_too_many_spots_is_one_spot() {
        let damage = Damage::default();
        let many = || {
            (0..=SPOTS_MAX as u64)
                .map(|at| spot(at, Some(("b", "c"))))
                .collect()
        };
        damage.scrubbed(&meta(7), many());
        damage.scrubbed(&meta(7), many());
        let spans = damage.spans();
        assert_eq!(spans.len(), 1);
        assert_eq!(
            (spans[0].first.as_slice(), spans[0].last.as_slice()),
            (&b"a"[..], &b"z"[..])
        );
    }
}
