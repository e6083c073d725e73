//! Repair of records that this member has lost: damaged blocks of its tables.
//!
//! ```text
//! Lost(spans) ─► REPAIR_WAIT ─► walk of h1 for the span ─► walk of h2 … ─► enough walked
//!                                                     ─► Effect::Repaired: the block may go
//!
//! enough   for each partition and each number of copies w of which this member keeps records:
//!          ceil(w / 2) of the w - 1 other owners. They meet each majority of the w owners.
//!          Of a block with an accepted loss: all others that are not lost, if those are fewer.
//! ```
//!
//! The world keeps the damaged block until it gets `Repaired`. Reads of its keys are refused as
//! damaged, so this member counts for none of them. But it had confirmed those writes. A walk of
//! another owner could miss the write of an operation that is under way and counted such a
//! confirmation. So the walks begin only when each operation has ended that was under way when the
//! damage was found.
//!
//! Invariants
//! 1. A span is repaired when each record that enough owners showed is durable here: records of
//!    clients, and promises.
//! 2. A span that holds notes of the node itself is never repaired: no other member has them.
//! 3. One walk at a time, one page at a time. It takes no more bytes a second than this member may
//!    load.
//! 4. A change of the members begins all repairs anew.
//! 5. With a replication factor of one no span is ever repaired: it stays damaged.
//! 6. No span is repaired from fewer owners than enough, unless an operator accepted the loss for
//!    this block and these members (`loss.rs`). It ends with the plan that takes the members away.
//!
//! Not here: a walk page by page (`walk.rs`), finding damage and dropping it (crate `engine`).
//! See: docs/protocol.md, "Damage".

mod enough;
pub mod loss;

use crate::config::NodeConfig;
use crate::desk::{Desk, Turn};
use crate::ledger::NEVER;
use crate::limits::REPAIR_PAUSE_US;
use crate::member::MemberIndex;
use crate::purpose::{WalkId, Walker};
use crate::ring::table::MemberId;
use crate::step::{Effect, LostSpan};
use crate::walk::{SourceWalk, WalkPart, Walked};
use bytes::Bytes;
use dendra_base::Space;
use dendra_base::peer::Answer;
use enough::{has_the_only_copies, missing};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A span under repair.
#[derive(Debug)]
struct Repair {
    block: u64,
    parts: VecDeque<WalkPart>,
    since_us: u64,
    /// Sources that were walked to their ends.
    walked: BTreeSet<MemberIndex>,
    is_told: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Repairer {
    is_on: bool,
    bytes_per_second: u64,
    wait_us: u64,
    repairs: BTreeMap<u64, Repair>,
    /// The span and its walk.
    walk: Option<(u64, SourceWalk)>,
    walks: u64,
    /// Sources with stores that cannot be read, and until when they are not asked.
    unusable: BTreeMap<MemberIndex, u64>,
    /// Sources of which the last page could not be read.
    unreadable: BTreeSet<MemberIndex>,
    /// By block: members that an operator gave up for its repair. They may have come back since.
    accepted: BTreeMap<u64, BTreeSet<MemberId>>,
    due_us: u64,
}

impl Repairer {
    /// Of a member that has lost no block yet, as far as it knows.
    pub(crate) fn new(config: &NodeConfig) -> Repairer {
        Repairer {
            is_on: config.is_keeper,
            bytes_per_second: config.load_bytes_per_second.max(1),
            wait_us: config.repair_wait_us,
            repairs: BTreeMap::new(),
            walk: None,
            walks: 0,
            unusable: BTreeMap::new(),
            unreadable: BTreeSet::new(),
            accepted: BTreeMap::new(),
            due_us: NEVER,
        }
    }

    /// When a `Tick` is wanted.
    pub(crate) fn due_us(&self) -> u64 {
        self.due_us
    }

    /// Is a span lost, as far as this loop knows?
    pub(crate) fn is_busy(&self) -> bool {
        !self.repairs.is_empty()
    }

    /// All spans that are lost and not repaired.
    pub(crate) fn lost(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, spans: Vec<LostSpan>) {
        if !self.is_on {
            return;
        }
        let ids: BTreeSet<u64> = spans.iter().map(|span| span.id).collect();
        self.repairs.retain(|id, _| ids.contains(id));
        self.walk.take_if(|(id, _)| !ids.contains(id));
        for span in spans {
            let Some(parts) = parts(&span) else {
                continue;
            };
            self.repairs.entry(span.id).or_insert_with(|| Repair {
                block: span.block,
                parts,
                since_us: turn.now.mono_us,
                walked: BTreeSet::new(),
                is_told: false,
            });
        }
        self.look(desk, turn);
    }

    /// An operator accepts that these blocks are repaired without these members. Members that no
    /// plan takes away are left out.
    pub(crate) fn accept_loss(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        blocks: &[u64],
        without: &[MemberId],
    ) {
        for block in blocks {
            self.accepted.entry(*block).or_default().extend(without);
        }
        self.forget_ended_plans(desk);
        self.look(desk, turn);
    }

    /// A loss is accepted under a plan, and ends with it.
    fn forget_ended_plans(&mut self, desk: &Desk) {
        let layout = &desk.layout;
        let leaves = |id: MemberId| {
            layout
                .index_of(id)
                .is_some_and(|member| layout.leaves(member))
        };
        self.accepted.retain(|_, without| {
            without.retain(|id| leaves(*id));
            !without.is_empty()
        });
    }

    /// The desk has another layout: the pages walked so far may be of other owners.
    pub(crate) fn adopt(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        self.walk = None;
        self.unreadable.clear();
        self.forget_ended_plans(desk);
        for repair in self.repairs.values_mut() {
            repair.walked.clear();
        }
        self.look(desk, turn);
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        if turn.now.mono_us >= self.due_us {
            self.look(desk, turn);
        }
    }

    fn look(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        self.due_us = NEVER;
        self.go_on(desk, turn);
    }

    /// The next page, or the next walk.
    fn go_on(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        if self.due_us != NEVER {
            return;
        }
        if self.walk.is_none() {
            self.begin_walk(desk, turn);
        }
        if let Some((_, walk)) = &mut self.walk {
            let walked = walk.go_on(desk, turn);
            self.walked(desk, turn, walked);
        }
    }

    fn begin_walk(&mut self, desk: &Desk, turn: &mut Turn<'_>) {
        if has_the_only_copies(desk) {
            return;
        }
        let now_us = turn.now.mono_us;
        self.unusable.retain(|_, until_us| now_us < *until_us);
        let mut next_us = NEVER;
        let no_member = BTreeSet::new();
        let mut told = Vec::new();
        for (id, repair) in &mut self.repairs {
            if repair.is_told {
                continue;
            }
            let due_us = repair.since_us + self.wait_us;
            if now_us < due_us {
                next_us = next_us.min(due_us);
                continue;
            }
            let without = self.accepted.get(&repair.block).unwrap_or(&no_member);
            let missing = missing(desk, &repair.walked, without);
            // A span without keys of clients or promises has nothing to be walked for.
            if missing.is_empty() || repair.parts.is_empty() {
                repair.is_told = true;
                told.push(*id);
                continue;
            }
            next_us = next_us.min(now_us + REPAIR_PAUSE_US);
            let source = missing
                .into_iter()
                .find(|member| desk.health.is_up(*member) && !self.unusable.contains_key(member));
            if let Some(source) = source {
                self.walks += 1;
                let walk = WalkId {
                    of: Walker::Repairer,
                    number: self.walks,
                };
                let partitions = desk.ring.all().collect();
                let walk = SourceWalk::new(walk, source, partitions, repair.parts.clone());
                self.walk = Some((*id, walk));
                break;
            }
        }
        let repaired = told.into_iter().map(|id| Effect::Repaired { id });
        turn.effects.extend(repaired);
        if self.walk.is_none() {
            self.due_us = next_us;
        }
    }

    /// An answer to a page, or of the own acceptor to a record.
    pub(crate) fn answered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        id: WalkId,
        answer: Answer,
    ) {
        if let Some((_, walk)) = self.walk.as_mut().filter(|(_, walk)| walk.id == id) {
            let walked = walk.answered(desk, turn, answer);
            self.walked(desk, turn, walked);
        }
    }

    /// A record of the page is durable, or could not be written.
    pub(crate) fn wrote(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        id: WalkId,
        is_written: bool,
    ) {
        if let Some((_, walk)) = self.walk.as_mut().filter(|(_, walk)| walk.id == id) {
            let walked = walk.wrote(desk, turn, is_written);
            self.walked(desk, turn, walked);
        }
    }

    fn walked(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, walked: Walked) {
        let now_us = turn.now.mono_us;
        match walked {
            Walked::Waits => {}
            Walked::Refused | Walked::Unreadable => {
                if let Some((_, walk)) = self.walk.take() {
                    if walked == Walked::Unreadable {
                        self.unreadable.insert(walk.source);
                    }
                    // Others may be asked meanwhile.
                    self.unusable.insert(walk.source, now_us + REPAIR_PAUSE_US);
                }
                self.go_on(desk, turn);
            }
            Walked::Page {
                bytes,
                is_whole,
                is_last,
            } => {
                let pause_us = if is_whole {
                    bytes.saturating_mul(1_000_000) / self.bytes_per_second
                } else {
                    REPAIR_PAUSE_US
                };
                if let Some((_, walk)) = &self.walk {
                    self.unreadable.remove(&walk.source);
                }
                if is_last
                    && let Some((span, walk)) = self.walk.take()
                    && let Some(repair) = self.repairs.get_mut(&span)
                {
                    repair.walked.insert(walk.source);
                }
                if pause_us > 0 {
                    self.due_us = now_us + pause_us;
                }
                self.go_on(desk, turn);
            }
        }
    }
}

/// The parts to walk for the span; `None` when it holds notes of the node itself. Hints are left
/// out: they are copies of writes that other owners have confirmed.
fn parts(span: &LostSpan) -> Option<VecDeque<WalkPart>> {
    if part(span, Space::Meta).is_some() {
        return None;
    }
    let spaces = [Space::Protocol, Space::User].into_iter();
    Some(spaces.filter_map(|space| part(span, space)).collect())
}

/// The part of the span that lies in `space`.
fn part(span: &LostSpan, space: Space) -> Option<WalkPart> {
    let (first, last) = (span.first.as_ref(), span.last.as_ref());
    // No key of a space is empty.
    let lowest = [space.byte(), 0];
    if last < &lowest[..] || first.first()? > &space.byte() {
        return None;
    }
    let raw = |key: &[u8]| Bytes::copy_from_slice(&key[1..]);
    let is_here = |key: &[u8]| key.first() == Some(&space.byte());
    Some(WalkPart {
        space,
        start: if is_here(first) {
            raw(first)
        } else {
            Bytes::new()
        },
        last: is_here(last).then(|| raw(last)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(first: &'static [u8], last: &'static [u8]) -> LostSpan {
        LostSpan {
            id: 1,
            block: 1,
            first: Bytes::from_static(first),
            last: Bytes::from_static(last),
        }
    }

    #[test]
    fn a_span_is_walked_space_by_space() {
        let all = parts(&span(b"\x02a", b"\x10k")).expect("no notes are in it");
        let wanted = [
            WalkPart {
                space: Space::Protocol,
                start: Bytes::from_static(b"a"),
                last: None,
            },
            WalkPart {
                space: Space::User,
                start: Bytes::new(),
                last: Some(Bytes::from_static(b"k")),
            },
        ];
        assert_eq!(all, wanted);
        let hints = parts(&span(b"\x03a", b"\x10")).expect("no notes are in it");
        assert_eq!(hints, [], "a separator is no key");
        assert_eq!(parts(&span(b"\x01clock", b"\x02")), None);
        assert_eq!(parts(&span(b"\x01", b"\x10k")), None);
        let clients = parts(&span(b"\x10a\0", b"\x10b")).expect("no notes are in it");
        assert_eq!(clients.len(), 1);
    }
}
