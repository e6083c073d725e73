//! Stores of the twin: lists of cells with one rule for each guard.
//!
//! Of a promise some older records stay below the newest, as they do in tables and logs of the
//! engine. They come up again when a compaction meets the newer ones alone, or when a start reads
//! the log.
//!
//! Not here: when a write's turn comes (`world.rs`).

use dendra_base::{Cell, Guard, Key, Kind, Space, Version};
use dendra_node::compare::survey::{Survey, Surveyed, Surveying};
use dendra_node::step::{StoreFailure, StoreOutcome};
use dendra_ownership::epoch::record::horizons::Horizons;

/// One stored cell.
pub(super) struct Stored {
    pub(super) key: Key,
    pub(super) cell: Cell,
    pub(super) is_damaged: bool,
}

/// How many older records stay below one.
const OLDER_MAX: usize = 2;

/// Where the newest cell of a key stands.
fn newest(store: &[Stored], key: &Key) -> Option<usize> {
    let found = (0..store.len()).filter(|at| store[*at].key == *key);
    found.max_by_key(|at| store[*at].cell.version)
}

/// The answer of a store when it is asked for a key.
pub(super) fn look(store: &[Stored], key: &Key) -> Result<Option<Cell>, StoreFailure> {
    match newest(store, key).map(|at| &store[at]) {
        Some(stored) if stored.is_damaged => Err(StoreFailure::Damaged),
        found => Ok(found.map(|stored| stored.cell.clone())),
    }
}

/// The cells of a space between two keys.
pub(super) fn page(store: &[Stored], start: &Key, end: Option<&Key>) -> Vec<(Key, Cell)> {
    let is_in = |key: &Key| {
        key >= start
            && key.as_stored()[0] == start.as_stored()[0]
            && end.is_none_or(|end| key < end)
    };
    let found = store.iter().filter(|stored| is_in(&stored.key));
    let mut cells: Vec<_> = found.map(|s| (s.key.clone(), s.cell.clone())).collect();
    cells.sort_by(|a, b| (&a.0, b.1.version).cmp(&(&b.0, a.1.version)));
    cells.dedup_by(|a, b| a.0 == b.0);
    cells
}

/// The view that a store shows to a comparison.
pub(super) fn survey(store: &[Stored], look: &Survey) -> Result<Surveyed, StoreFailure> {
    let mut surveyor = look.begin();
    let cells = page(store, &look.start, look.end.as_ref());
    for (key, cell) in &cells {
        if look_is_damaged(store, key) {
            return Err(StoreFailure::Damaged);
        }
        if surveyor.visit(key.as_stored(), cell.as_ref()) == Surveying::Enough {
            break;
        }
    }
    surveyor.finish().ok_or(StoreFailure::Damaged)
}

fn look_is_damaged(store: &[Stored], key: &Key) -> bool {
    store
        .iter()
        .any(|stored| stored.key == *key && stored.is_damaged)
}

/// A compaction: of the records that the horizons let go it drops those that it `meets`. Promises
/// are left in the `log` for a while.
pub(super) fn purge(
    store: &mut Vec<Stored>,
    log: &mut Vec<Stored>,
    horizons: &Horizons,
    copies: u8,
    now_ms: u64,
    mut meets: impl FnMut(Space) -> bool,
) -> u64 {
    let goes = |stored: &mut Stored| {
        let cell = stored.cell.as_ref();
        let is_promise = stored.key.as_stored()[0] == Space::Protocol.byte();
        let (space, may_go) = if is_promise {
            let is_old = cell.age().max(cell.version.hlc) <= horizons.purge();
            (Space::Protocol, is_old)
        } else {
            (Space::User, horizons.forgets(&cell, copies, now_ms))
        };
        !stored.is_damaged && may_go && meets(space)
    };
    let gone: Vec<Stored> = store.extract_if(.., goes).collect();
    let purged = gone.len() as u64;
    let is_promise = |stored: &Stored| stored.key.as_stored()[0] == Space::Protocol.byte();
    log.extend(gone.into_iter().filter(is_promise));
    purged
}

/// Carries a write out when its turn has come.
pub(super) fn commit(
    store: &mut Vec<Stored>,
    key: Key,
    mut cell: Cell,
    guard: Guard,
) -> StoreOutcome {
    let found = newest(store, &key);
    let before = found.map(|at| store[at].cell.version);
    let live = found.filter(|at| store[*at].cell.kind == Kind::Value);
    let current = live.map(|at| store[at].cell.version);
    match guard {
        Guard::Newest => {}
        Guard::If(condition) if !condition.holds(current) => {
            return StoreOutcome::GuardFailed { current };
        }
        Guard::If(_) => {
            let next = before.map_or(Version::ZERO, Version::successor);
            cell.version = cell.version.max(next);
        }
    }
    let version = cell.version;
    let is_promise = key.as_stored()[0] == Space::Protocol.byte();
    let is_above = found.filter(|at| is_promise && version > store[*at].cell.version);
    let of_key = store.iter().filter(|stored| stored.key == key).count();
    let found = match is_above {
        Some(_) if of_key <= OLDER_MAX => None,
        _ => found,
    };
    match found {
        None => store.push(Stored {
            key,
            cell,
            is_damaged: false,
        }),
        Some(at) if version >= store[at].cell.version => {
            store[at] = Stored {
                key,
                cell,
                is_damaged: false,
            };
        }
        Some(_) => {}
    }
    StoreOutcome::Applied { version }
}
