//! The dumb twin of every driver: a map in memory.
//!
//! Invariants
//! 1. An operation takes effect at one moment, under one lock, when it was let on.
//!
//! Not here: an engine to keep data in. It forgets everything with its process.

use crate::clock::wall_ms;
use crate::store::{
    Doing, OuterFailure, OuterStore, PageRead, PointRead, RecordWrite, ShownPage, StoreShape,
    StoreUpkeep, WriteEnd, rest_behind,
};
use bytes::Bytes;
use dendra_base::{Cell, CellRef, Consistency, Durability, Key, Version};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Semaphore;

#[derive(Debug, Default)]
struct HeldRecords {
    cells: BTreeMap<Bytes, Cell>,
    last: u64,
}

/// A store in memory. A test can hold its operations up, and make them fail.
#[derive(Debug)]
pub struct DumbStore {
    records: Mutex<HeldRecords>,
    copies: u8,
    gate: Semaphore,
    asked: AtomicUsize,
    failure: Mutex<Option<OuterFailure>>,
}

/// Open gates let everything pass.
const OPEN: usize = Semaphore::MAX_PERMITS / 2;

impl DumbStore {
    /// An empty store that says it keeps so many copies.
    pub fn new(copies: u8) -> DumbStore {
        DumbStore {
            records: Mutex::default(),
            copies,
            gate: Semaphore::new(OPEN),
            asked: AtomicUsize::new(0),
            failure: Mutex::new(None),
        }
    }

    /// From now on operations wait until they are let on.
    pub fn hold(&self) {
        self.gate.forget_permits(self.gate.available_permits());
    }

    /// Lets so many operations on.
    pub fn let_on(&self, operations: usize) {
        self.gate.add_permits(operations);
    }

    /// From now on every operation fails so; `None` = none does.
    pub fn fail_with(&self, failure: Option<OuterFailure>) {
        *self.failure.lock().expect("no holder panics") = failure;
    }

    /// Operations that came so far, held up or not.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Records that are there, expired ones too.
    pub fn len(&self) -> usize {
        self.held().cells.len()
    }

    /// Is there no record?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn held(&self) -> MutexGuard<'_, HeldRecords> {
        self.records.lock().expect("no holder panics")
    }

    async fn pass(&self) -> Result<(), OuterFailure> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let permit = self.gate.acquire().await.expect("it is never closed");
        permit.forget();
        self.failure()
    }

    fn failure(&self) -> Result<(), OuterFailure> {
        match &*self.failure.lock().expect("no holder panics") {
            Some(failure) => Err(failure.clone()),
            None => Ok(()),
        }
    }
}

impl OuterStore for DumbStore {
    fn open(&self) -> Doing<'_, StoreShape> {
        Box::pin(async move {
            Ok(StoreShape {
                engine: "map",
                copies: self.copies,
                durability: Durability::Os,
                scan_level: Consistency::Linearizable,
            })
        })
    }

    /// Fails as operations do, and is neither held up nor counted.
    fn look(&self, _left: Duration) -> Doing<'_, ()> {
        Box::pin(async move { self.failure() })
    }

    /// Has nothing to do; fails as operations do.
    fn tend(&self, _left: Duration) -> Doing<'_, StoreUpkeep> {
        Box::pin(async move { self.failure().map(|()| StoreUpkeep::default()) })
    }

    fn read(&self, read: PointRead) -> Doing<'_, Option<Cell>> {
        Box::pin(async move {
            self.pass().await?;
            Ok(self.held().cells.get(&read.key).cloned())
        })
    }

    fn write(&self, write: RecordWrite) -> Doing<'_, WriteEnd> {
        Box::pin(async move {
            self.pass().await?;
            let mut records = self.held();
            let now_ms = wall_ms();
            let current = records.cells.get(&write.key);
            let current = current.filter(|cell| cell.as_ref().is_live(now_ms));
            if !write.condition.holds(current.map(|cell| cell.version)) {
                return Ok(WriteEnd::Refused(current.cloned()));
            }
            records.last += 1;
            let version = Version {
                hlc: records.last,
                origin: 1,
                rmw: 0,
            };
            match write.value {
                None => _ = records.cells.remove(&write.key),
                Some(value) => {
                    let stored = Key::user(&write.key);
                    let mut cell = CellRef::value(stored.as_stored(), version, &value).to_owned();
                    cell.expiry_ms = write.expiry_ms;
                    records.cells.insert(write.key, cell);
                }
            }
            Ok(WriteEnd::Applied(version))
        })
    }

    fn page(&self, page: PageRead) -> Doing<'_, ShownPage> {
        Box::pin(async move {
            self.pass().await?;
            let (range, now_ms) = (page.range, wall_ms());
            let records = self.held();
            let is_in = |key: &Bytes| {
                *key >= range.start && range.end.as_ref().is_none_or(|end| *key < *end)
            };
            let live = records
                .cells
                .iter()
                .filter(|(key, cell)| is_in(key) && cell.as_ref().is_live(now_ms));
            let live: Box<dyn Iterator<Item = (&Bytes, &Cell)>> = if range.is_reverse {
                Box::new(live.rev())
            } else {
                Box::new(live)
            };
            let (mut shown, mut bytes) = (Vec::new(), 0);
            for (key, cell) in live {
                bytes += key.len() + cell.value.len();
                shown.push((key.clone(), cell.clone()));
                if bytes >= page.bytes_max || shown.len() >= page.records_max {
                    let rest = Some(rest_behind(&range, key));
                    return Ok(ShownPage {
                        records: shown,
                        rest,
                    });
                }
            }
            Ok(ShownPage {
                records: shown,
                rest: None,
            })
        })
    }
}
