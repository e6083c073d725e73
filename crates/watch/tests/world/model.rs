//! A cluster of registers, reduced to what watches need: copies, changes, and reads by majority.
//!
//! Replication of a write goes owner by owner, and may stop anywhere. A read is one moment: it
//! takes a majority of the owners that are up, brings the newest copy to a majority, and shows it.

use bytes::Bytes;
use dendra_base::{Cell, CellRef, Kind, Now, Prng, Version};
use dendra_watch::{
    ChangeLog, Fed, FeedId, FeedOwners, FeedQuestion, KeyPage, LookFound, PageShows, Passed, Span,
};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) const KEYS: u64 = 12;
const ROWS: usize = 4;
/// A write is given up after this time.
pub(crate) const WRITE_US_MAX: u64 = 400_000;

/// One member.
pub(crate) struct Member {
    pub(crate) is_up: bool,
    pub(crate) changes: ChangeLog,
    copies: BTreeMap<Bytes, Cell>,
}

/// A write that is under way.
struct Write {
    key: Bytes,
    cell: Cell,
    left: Vec<usize>,
    began_us: u64,
}

/// See the module.
pub(crate) struct Cluster {
    pub(crate) members: Vec<Member>,
    pub(crate) epoch: u64,
    rows: Vec<Vec<usize>>,
    writes: Vec<Write>,
    clock: u64,
    lives: u64,
    changes_bytes: usize,
    /// Versions that a majority held at some moment.
    pub(crate) confirmed: BTreeMap<Bytes, BTreeSet<Version>>,
}

pub(crate) fn key(number: u64) -> Bytes {
    Bytes::from(format!("k{number:02}"))
}

fn row_of(key: &[u8]) -> usize {
    key.iter().map(|byte| usize::from(*byte)).sum::<usize>() % ROWS
}

impl Cluster {
    pub(crate) fn new(
        (members, copies): (usize, usize),
        changes_bytes: usize,
        prng: &mut Prng,
    ) -> Cluster {
        let member = |at| Member {
            is_up: true,
            changes: ChangeLog::new(at, changes_bytes),
            copies: BTreeMap::new(),
        };
        let mut cluster = Cluster {
            members: (0..members as u64).map(member).collect(),
            epoch: 1,
            rows: Vec::new(),
            writes: Vec::new(),
            clock: 1,
            lives: 1_000,
            changes_bytes,
            confirmed: BTreeMap::new(),
        };
        cluster.rows = (0..ROWS)
            .map(|_| draw(prng, (0..members).collect(), copies))
            .collect();
        cluster
    }

    pub(crate) fn owners(&self) -> FeedOwners {
        let source = |at: usize| FeedId(at as u32);
        let members = (0..self.members.len()).map(source).collect();
        let rows = self.rows.iter();
        let rows = rows.map(|row| row.iter().copied().map(source).collect());
        FeedOwners::new(self.epoch, members, rows)
    }

    fn row(&self, key: &[u8]) -> &[usize] {
        &self.rows[row_of(key)]
    }

    fn majority(&self, key: &[u8]) -> usize {
        self.row(key).len() / 2 + 1
    }

    /// A write begins: a value, one that ends, or a deletion.
    pub(crate) fn begin_write(&mut self, prng: &mut Prng, now: Now) {
        let key = key(prng.below(KEYS));
        self.clock += 1;
        let version = Version {
            hlc: self.clock,
            ..Version::ZERO
        };
        let cell = match prng.below(5) {
            0 => CellRef::tombstone(&key, version).to_owned(),
            1 => Cell {
                expiry_ms: Some(now.wall_ms + prng.below(4_000)),
                ..CellRef::value(&key, version, b"ends").to_owned()
            },
            _ => CellRef::value(&key, version, b"lasts").to_owned(),
        };
        let left = self.row(&key).to_vec();
        self.writes.push(Write {
            key,
            cell,
            left,
            began_us: now.mono_us,
        });
    }

    /// One owner gets a write, or a write is given up.
    pub(crate) fn replicate(&mut self, prng: &mut Prng, now: Now) {
        self.writes
            .retain(|write| now.mono_us <= write.began_us + WRITE_US_MAX);
        if self.writes.is_empty() {
            return;
        }
        let at = pick(prng, self.writes.len());
        if prng.chance(1, 20) {
            self.writes.swap_remove(at);
            return;
        }
        let write = &mut self.writes[at];
        if write.left.is_empty() {
            self.writes.swap_remove(at);
            return;
        }
        let owner = write.left.swap_remove(pick(prng, write.left.len()));
        let (key, cell) = (write.key.clone(), write.cell.clone());
        if self.members[owner].is_up {
            self.apply(owner, &key, &cell);
        }
    }

    pub(crate) fn finish_writes(&mut self, prng: &mut Prng, now: Now) {
        while !self.writes.is_empty() {
            self.replicate(prng, now);
        }
    }

    fn apply(&mut self, owner: usize, key: &Bytes, cell: &Cell) {
        let member = &mut self.members[owner];
        let is_news = member
            .copies
            .get(key)
            .is_none_or(|held| cell.is_newer_than(held));
        if is_news {
            member.copies.insert(key.clone(), cell.clone());
        }
        member.changes.note(key, cell.version);
        let holds = |at: &&usize| {
            let held = self.members[**at].copies.get(key);
            held.is_some_and(|held| held.version == cell.version)
        };
        if self.row(key).iter().filter(holds).count() >= self.majority(key) {
            let versions = self.confirmed.entry(key.clone()).or_default();
            versions.insert(cell.version);
        }
    }

    /// A read at the default level; `None` = too few owners are up.
    pub(crate) fn look(
        &mut self,
        prng: &mut Prng,
        key: &Bytes,
        is_wide: bool,
    ) -> Option<LookFound> {
        let row = self.row(key).to_vec();
        let is_up = |at: &usize| self.members[*at].is_up;
        let up: Vec<usize> = row.iter().copied().filter(is_up).collect();
        let majority = self.majority(key);
        if up.len() < majority {
            return None;
        }
        let asked = if is_wide {
            up.clone()
        } else {
            draw(prng, up.clone(), majority)
        };
        let copies = asked
            .iter()
            .filter_map(|at| self.members[*at].copies.get(key));
        let newest = copies.max_by_key(|cell| cell.version).cloned();
        if let Some(cell) = &newest {
            for at in up {
                let held = self.members[at].copies.get(key).map(|held| held.version);
                if asked.contains(&at) && held < Some(cell.version) {
                    self.apply(at, key, cell);
                }
            }
        }
        Some(LookFound {
            cell: newest,
            is_complete: asked.len() == row.len(),
        })
    }

    /// A page of keys, from all members that are up, or all but one. Nothing is brought to others.
    pub(crate) fn page(&self, prng: &mut Prng, span: &Span) -> Passed {
        let silent = prng.chance(1, 4).then(|| pick(prng, self.members.len()));
        let answers = |at: &usize| self.members[*at].is_up && Some(*at) != silent;
        let mut keys: Vec<Bytes> = (0..KEYS).map(key).filter(|key| span.has(key)).collect();
        let mut page = KeyPage {
            rest: (keys.len() > 3).then(|| keys[3].clone()),
            missing: (0..self.members.len())
                .filter(|at| !answers(at))
                .map(|at| FeedId(at as u32))
                .collect(),
            ..KeyPage::default()
        };
        keys.truncate(3);
        for key in keys {
            let asked: Vec<usize> = self.row(&key).iter().copied().filter(answers).collect();
            if asked.len() < self.majority(&key) {
                return None;
            }
            let copies = asked
                .iter()
                .map(|at| self.members[*at].copies.get(&key))
                .collect::<Vec<Option<&Cell>>>();
            let newest = copies.iter().flatten().max_by_key(|cell| cell.version);
            let is_sure = copies.iter().all(|copy| copy.as_ref() == newest);
            match newest {
                Some(cell) if !is_sure => {
                    let newest = cell.version;
                    page.keys.push((key, PageShows::Unsure { newest }));
                }
                Some(cell) if cell.kind == Kind::Value => {
                    let expiry_ms = cell.expiry_ms;
                    page.keys.push((key, PageShows::Value { expiry_ms }));
                }
                _ => {}
            }
        }
        Some(page)
    }

    /// A member's answer about its changes; `None` = it holds the question.
    pub(crate) fn feed(&self, now: Now, source: FeedId, question: &FeedQuestion) -> Option<Fed> {
        let member = &self.members[source.0 as usize];
        let since = member
            .changes
            .since(now.mono_us, question.cursor, (&question.span, 100), None);
        match since {
            Ok(page) if question.waits && page.changes.is_empty() && page.is_end => None,
            Ok(page) => Some(Fed::Page(page)),
            Err(end) => Some(Fed::Gone(end)),
        }
    }

    /// The question's time is over: an answer without changes.
    pub(crate) fn feed_at_last(&self, now: Now, source: FeedId, question: &FeedQuestion) -> Fed {
        let question = FeedQuestion {
            waits: false,
            ..question.clone()
        };
        self.feed(now, source, &question).unwrap_or(Fed::Failed)
    }

    /// The process of a member begins anew: copies are durable, changes are not.
    pub(crate) fn restart(&mut self, at: usize) {
        self.lives += 1;
        self.members[at].changes = ChangeLog::new(self.lives * 1_000, self.changes_bytes);
    }

    /// The owners of one row change: the new ones load what a majority of the old ones has, and
    /// writes of the old epoch count no more. All members must be up.
    pub(crate) fn move_row(&mut self, prng: &mut Prng) {
        self.writes.clear();
        let at = pick(prng, ROWS);
        let copies = self.rows[at].len();
        let keys: Vec<Bytes> = (0..KEYS).map(key).filter(|key| row_of(key) == at).collect();
        let found: Vec<Option<Cell>> = keys
            .iter()
            .map(|key| self.look(prng, key, true).and_then(|found| found.cell))
            .collect();
        let mut row = self.rows[at].clone();
        let others = (0..self.members.len()).filter(|member| !row.contains(member));
        let others: Vec<usize> = others.collect();
        if others.is_empty() {
            return;
        }
        // One owner goes, another one comes.
        row.swap_remove(pick(prng, copies));
        let new = others[pick(prng, others.len())];
        row.push(new);
        for (key, cell) in keys.into_iter().zip(found) {
            if let Some(cell) = cell {
                self.members[new].copies.insert(key, cell);
            }
        }
        self.rows[at] = row;
        self.epoch += 1;
    }

    /// The newest version of a key that was ever confirmed, and its cell.
    pub(crate) fn truth(&self, key: &Bytes) -> Option<Cell> {
        let newest = *self.confirmed.get(key)?.last()?;
        let mut copies = self
            .members
            .iter()
            .filter_map(|member| member.copies.get(key));
        copies.find(|cell| cell.version == newest).cloned()
    }
}

pub(crate) fn pick(prng: &mut Prng, of: usize) -> usize {
    usize::try_from(prng.below(of as u64)).unwrap_or(0)
}

/// So many of them, by chance.
fn draw(prng: &mut Prng, mut of: Vec<usize>, wanted: usize) -> Vec<usize> {
    while of.len() > wanted {
        let at = pick(prng, of.len());
        of.swap_remove(at);
    }
    of
}
