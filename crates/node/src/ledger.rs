//! A slab with keys that are never used twice, and a due time beside every entry.
//!
//! ```text
//! id     | count of insertions: 44 bits | slot: 20 bits |     an old id finds nothing, ever
//! dues   | 8 | - | 3 | 9 | …                                 swept when the smallest may have come
//! ```
//!
//! Invariants
//! 1. An id names one entry for the life of the ledger. An answer that comes late, or twice, finds
//!    no entry.
//! 2. `due_us` is never later than the earliest due time of an entry; `late` makes it exact again.
//! 3. No hashing, no allocation beyond the largest number of entries that there ever were at once.
//!
//! Not here: how many entries there may be (their owners count them), the meaning of a due time.
//! See: docs/overload.md.

const SLOT_BITS: u32 = 20;
const SLOT_MASK: u64 = (1 << SLOT_BITS) - 1;

/// Due time of an entry that waits for no time.
pub(crate) const NEVER: u64 = u64::MAX;

/// Entries by ids that are never used again.
#[derive(Debug)]
pub(crate) struct Ledger<T> {
    slots: Vec<(u64, Option<T>)>,
    dues: Vec<u64>,
    free: Vec<u32>,
    count: u64,
    due_us: u64,
}

impl<T> Ledger<T> {
    /// An empty ledger. Ids begin at `first`. A restarted node takes another one and repeats no id
    /// of its earlier life: answers to those may still be on their way.
    pub(crate) fn new(first: u64) -> Ledger<T> {
        Ledger {
            slots: Vec::new(),
            dues: Vec::new(),
            free: Vec::new(),
            // Half of the room for counting is left, 2^43 insertions.
            count: first >> (SLOT_BITS + 1),
            due_us: NEVER,
        }
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Puts an entry in, due at `due_us`.
    pub(crate) fn insert(&mut self, value: T, due_us: u64) -> u64 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, None));
            self.dues.push(NEVER);
            u32::try_from(self.slots.len() - 1).expect("owners bound their entries far below 2^20")
        });
        assert!(u64::from(slot) <= SLOT_MASK, "owners bound their entries");
        self.count += 1;
        let id = self.count << SLOT_BITS | u64::from(slot);
        self.slots[slot as usize] = (id, Some(value));
        self.dues[slot as usize] = due_us;
        self.due_us = self.due_us.min(due_us);
        id
    }

    fn slot(&self, id: u64) -> Option<usize> {
        let slot = (id & SLOT_MASK) as usize;
        let (known, value) = self.slots.get(slot)?;
        (*known == id && value.is_some()).then_some(slot)
    }

    /// The entry of an id, if it is still there.
    pub(crate) fn find_mut(&mut self, id: u64) -> Option<&mut T> {
        let slot = self.slot(id)?;
        self.slots[slot].1.as_mut()
    }

    /// The entry of an id, if it is still there.
    pub(crate) fn find(&self, id: u64) -> Option<&T> {
        let slot = self.slot(id)?;
        self.slots[slot].1.as_ref()
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, id: u64) -> Option<T> {
        let slot = self.slot(id)?;
        self.dues[slot] = NEVER;
        self.free
            .push(u32::try_from(slot).expect("a slot has 20 bits"));
        self.slots[slot].1.take()
    }

    /// Drops an entry where it stands.
    pub(crate) fn forget(&mut self, id: u64) {
        if let Some(slot) = self.slot(id) {
            self.dues[slot] = NEVER;
            self.free
                .push(u32::try_from(slot).expect("a slot has 20 bits"));
            self.slots[slot].1 = None;
        }
    }

    /// Changes when an entry is due.
    pub(crate) fn set_due(&mut self, id: u64, due_us: u64) {
        if let Some(slot) = self.slot(id) {
            self.dues[slot] = due_us;
            self.due_us = self.due_us.min(due_us);
        }
    }

    /// Not later than the earliest due time.
    pub(crate) fn due_us(&self) -> u64 {
        self.due_us
    }

    /// Appends the ids of all due entries. The caller removes each of them, or gives it another due
    /// time. The sweep walks over all slots, but only when the earliest due time may have come. So
    /// the entries that came in since the last sweep pay for it.
    pub(crate) fn late(&mut self, now_us: u64, out: &mut Vec<u64>) {
        if now_us < self.due_us {
            return;
        }
        self.due_us = NEVER;
        for (slot, due_us) in self.dues.iter().enumerate() {
            if *due_us <= now_us {
                out.push(self.slots[slot].0);
            } else {
                self.due_us = self.due_us.min(*due_us);
            }
        }
    }

    /// All entries with their ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &T)> {
        let filled = |(id, value): &'_ (u64, Option<T>)| value.is_some().then_some(*id);
        self.slots
            .iter()
            .filter_map(move |slot| Some((filled(slot)?, slot.1.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_id_finds_nothing_when_its_slot_is_used_again() {
        let mut ledger = Ledger::new(0);
        let first = ledger.insert("a", NEVER);
        assert_eq!(ledger.remove(first), Some("a"));
        let second = ledger.insert("b", NEVER);
        assert_ne!(first, second);
        assert_eq!(ledger.find_mut(first), None);
        assert_eq!(ledger.remove(first), None);
        ledger.forget(first);
        assert_eq!(ledger.find(second), Some(&"b"));
        ledger.forget(second);
        assert_eq!(ledger.remove(second), None);
        assert_eq!(ledger.len(), 0);
    }

    #[test]
    fn ids_of_two_lives_differ() {
        let id = |first| Ledger::new(first).insert((), NEVER);
        assert_ne!(id(0x1234_5678_9abc_def0), id(0x0fed_cba9_8765_4321));
        assert_ne!(id(u64::MAX), 0);
    }

    #[test]
    fn entries_are_late_once_their_time_has_come() {
        let mut ledger = Ledger::new(0);
        let ids: Vec<u64> = [30, 10, 20].map(|due| ledger.insert(due, due)).to_vec();
        let late = |ledger: &mut Ledger<u64>, now| {
            let mut out = Vec::new();
            ledger.late(now, &mut out);
            out
        };
        assert_eq!(ledger.due_us(), 10);
        assert_eq!(late(&mut ledger, 9), []);
        assert_eq!(late(&mut ledger, 20), [ids[1], ids[2]]);
        ledger.remove(ids[1]);
        ledger.set_due(ids[2], 40);
        assert_eq!(late(&mut ledger, 20), []);
        assert_eq!(ledger.due_us(), 30);
        ledger.set_due(ids[0], 25);
        assert_eq!(ledger.due_us(), 25);
    }
}
