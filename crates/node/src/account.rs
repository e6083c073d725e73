//! A read as its coordinator saw it: the owners, their answers, and what was written back.
//!
//! ```text
//! begin ─► an entry for each owner that is addressed ─► asked ─► answered ─► counted at the outcome
//! ```
//!
//! Invariants
//! 1. It has one entry for each owner that the operation addresses, so at most `MEMBERS_MAX`.
//! 2. Only a read that a client wants explained has one: other reads have no place to note it.
//!
//! Not here: which owners are asked (`coordinator/read.rs`), the engine's part (crate `engine`).
//! See: docs/explain.md.

use crate::places::Places;
use dendra_base::peer::{Answer, Refused};
use dendra_base::{Cell, Kind, Version};
use dendra_ownership::member::MemberIndex;

/// A copy without its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyFacts {
    /// Version of the record.
    pub version: Version,
    /// Value or tombstone.
    pub kind: Kind,
    /// Wall milliseconds when it ends, if it does.
    pub expiry_ms: Option<u64>,
    /// Length of the value.
    pub value_bytes: usize,
}

impl From<&Cell> for CopyFacts {
    fn from(cell: &Cell) -> CopyFacts {
        CopyFacts {
            version: cell.version,
            kind: cell.kind,
            expiry_ms: cell.expiry_ms,
            value_bytes: cell.value.len(),
        }
    }
}

/// How far an owner's answer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerAnswer {
    /// The owner was not asked.
    NotAsked,
    /// The owner was asked, and had not answered at the outcome.
    Pending,
    /// The owner has no copy.
    Absent,
    /// The owner showed this copy.
    Copy(CopyFacts),
    /// The owner refused.
    Refused(Refused),
}

/// The write of the newest copy to an owner that does not have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteBack {
    /// There was none.
    None,
    /// The copy was sent, and the client does not wait for it.
    Beside,
    /// The outcome waits until enough owners confirmed it; this one had not.
    Awaited,
    /// The outcome waited for it, and this owner confirmed it.
    Confirmed,
}

/// An owner of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnerAccount {
    /// The member.
    pub member: MemberIndex,
    /// Microseconds from the begin of the read to its question.
    pub asked_us: u64,
    /// Microseconds from its question to its answer; 0 = both in one turn of the loop.
    pub took_us: Option<u64>,
    /// Answer of the owner.
    pub answer: OwnerAnswer,
    /// Does it count among the answers of the outcome?
    pub counts: bool,
    /// Was the newest copy written to it?
    pub write_back: WriteBack,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadAccount {
    /// The owners, in the ring's order.
    pub owners: Vec<OwnerAccount>,
    /// How often the read began: again when the key got other owners meanwhile.
    pub tries: u32,
    /// Microseconds from the begin of the last try to the outcome.
    pub took_us: u64,
    /// The copy that decided; `None` = no owner has one, or too few answered.
    pub newest: Option<CopyFacts>,
    began_us: u64,
}

impl ReadAccount {
    /// A read of a key with these owners begins.
    pub(crate) fn begin(&mut self, now_us: u64, owners: &[MemberIndex]) {
        self.tries += 1;
        self.began_us = now_us;
        let owner = |member: &MemberIndex| OwnerAccount {
            member: *member,
            asked_us: 0,
            took_us: None,
            answer: OwnerAnswer::NotAsked,
            counts: false,
            write_back: WriteBack::None,
        };
        self.owners = owners.iter().map(owner).collect();
    }

    /// The owner at `place` is asked.
    pub(crate) fn asked(&mut self, place: u8, now_us: u64) {
        let began_us = self.began_us;
        if let Some(owner) = self.owners.get_mut(usize::from(place)) {
            owner.asked_us = now_us.saturating_sub(began_us);
            owner.answer = OwnerAnswer::Pending;
        }
    }

    /// The owner at `place` answered. `own` is the place of this member, if it is an owner.
    pub(crate) fn answered(&mut self, place: u8, now_us: u64, answer: &Answer, own: Option<u8>) {
        let own = own.and_then(|own| self.owners.get(usize::from(own)));
        let own_answer = own.map(|own| own.answer);
        let since_us = now_us.saturating_sub(self.began_us);
        let Some(owner) = self.owners.get_mut(usize::from(place)) else {
            return;
        };
        owner.took_us = Some(since_us.saturating_sub(owner.asked_us));
        owner.answer = match answer {
            Answer::Cell(Some(cell)) => OwnerAnswer::Copy(CopyFacts::from(cell)),
            Answer::Cell(None) => OwnerAnswer::Absent,
            // Its copy is the own one.
            Answer::Same => own_answer.unwrap_or(owner.answer),
            Answer::Refused(why) => OwnerAnswer::Refused(*why),
            _ => owner.answer,
        };
    }

    /// The newest copy is written to the owners at `places`, or they confirmed it.
    pub(crate) fn written(&mut self, places: Places, how: WriteBack) {
        for place in places.iter() {
            if let Some(owner) = self.owners.get_mut(usize::from(place)) {
                owner.write_back = how;
            }
        }
    }

    /// The outcome is told; the answers of the owners at `answered` count.
    pub(crate) fn end(&mut self, now_us: u64, answered: Places) {
        self.took_us = now_us.saturating_sub(self.began_us);
        for (place, owner) in self.owners.iter_mut().enumerate() {
            owner.counts = u8::try_from(place).is_ok_and(|place| answered.has(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn cell(hlc: u64) -> Cell {
        Cell {
            version: Version {
                hlc,
                origin: 1,
                rmw: 0,
            },
            kind: Kind::Value,
            copies: 3,
            expiry_ms: None,
            born: 0,
            checksum: 0,
            value: Bytes::from_static(b"value"),
        }
    }

    #[test]
    fn an_account_has_each_owner_with_its_answer_and_its_time() {
        let mut account = ReadAccount::default();
        account.begin(5, &[MemberIndex(3)]);
        let members = [2, 0, 1, 3].map(MemberIndex);
        account.begin(100, &members);
        account.asked(1, 100);
        account.asked(0, 110);
        account.asked(2, 120);
        let own = Answer::Cell(Some(cell(7)));
        account.answered(1, 105, &own, Some(1));
        account.answered(0, 140, &Answer::Same, Some(1));
        account.answered(9, 140, &own, Some(1));
        account.written(Places::only(2), WriteBack::Beside);
        account.end(150, Places::first(2));
        assert_eq!((account.tries, account.took_us), (2, 50));
        let facts = OwnerAnswer::Copy(CopyFacts::from(&cell(7)));
        let seen = account.owners.iter().map(|owner| {
            let times = (owner.asked_us, owner.took_us);
            (owner.member.0, owner.answer, times, owner.counts)
        });
        let wanted = [
            (2, facts, (10, Some(30)), true),
            (0, facts, (0, Some(5)), true),
            (1, OwnerAnswer::Pending, (20, None), false),
            (3, OwnerAnswer::NotAsked, (0, None), false),
        ];
        assert_eq!(seen.collect::<Vec<_>>(), wanted);
        let written = account.owners.iter().map(|owner| owner.write_back);
        let none = WriteBack::None;
        assert_eq!(
            written.collect::<Vec<_>>(),
            [none, none, WriteBack::Beside, none]
        );
    }
}
