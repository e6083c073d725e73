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
//! A source that is damaged in the same keys answers up to there. Its walk of this span ends, with
//! a gap, and goes on from the gap later. Meanwhile other spans and sources are walked.
//!
//! Invariants
//! 1. A span is repaired when each record that enough owners showed is durable here: records of
//!    clients, and promises.
//! 2. A span that holds notes of the node itself is never repaired: no other member has them.
//! 3. One walk at a time, one page at a time. It takes no more bytes a second than this member may
//!    load. The span that was walked the longest ago is next: one that waits stops no other one.
//! 4. A change of the members begins all repairs anew.
//! 5. With a replication factor of one no span is ever repaired: it stays damaged.
//! 6. No span is repaired from fewer owners than enough, unless an operator accepted the loss for
//!    this block and these members (`loss.rs`). It ends with the plan that takes the members away,
//!    or once they can read these keys again.
//!
//! Not here: one span and its gaps (`span.rs`), a walk page by page (`walk.rs`), finding damage and
//! dropping it (crate `engine`).
//! See: docs/protocol.md, "Damage".

mod enough;
pub mod loss;
mod span;

use crate::config::NodeConfig;
use crate::desk::{Desk, Turn};
use crate::ledger::NEVER;
use crate::limits::REPAIR_PAUSE_US;
use crate::purpose::{WalkId, Walker};
use crate::step::{Effect, LostSpan};
use crate::walk::{SourceWalk, Walked};
use dendra_base::peer::Answer;
use dendra_ownership::member::MemberIndex;
use dendra_ownership::ring::table::MemberId;
use enough::{GivenUp, has_the_only_copies, missing};
use span::Repair;
use std::collections::{BTreeMap, BTreeSet};

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
    /// Sources that did not answer, and until when they are not asked.
    unusable: BTreeMap<MemberIndex, u64>,
    /// By block: members that an operator gave up for its repair. They may have come back since.
    accepted: BTreeMap<u64, BTreeSet<MemberId>>,
    /// By block: given-up members that no plan takes away, while they are damaged between its keys.
    accepted_gaps: BTreeMap<u64, BTreeSet<MemberId>>,
    due_us: u64,
}

impl Repairer {
    /// Repairer of a member that has lost no block yet, as far as it knows.
    pub(crate) fn new(config: &NodeConfig) -> Repairer {
        Repairer {
            is_on: config.is_keeper,
            bytes_per_second: config.load_bytes_per_second.max(1),
            wait_us: config.repair_wait_us,
            repairs: BTreeMap::new(),
            walk: None,
            walks: 0,
            unusable: BTreeMap::new(),
            accepted: BTreeMap::new(),
            accepted_gaps: BTreeMap::new(),
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
        let blocks: BTreeSet<u64> = spans.iter().map(|span| span.block).collect();
        self.accepted_gaps.retain(|block, _| blocks.contains(block));
        self.repairs.retain(|id, _| ids.contains(id));
        self.walk.take_if(|(id, _)| !ids.contains(id));
        for span in spans {
            if let Some(repair) = Repair::of(&span, turn.now.mono_us) {
                self.repairs.entry(span.id).or_insert(repair);
            }
        }
        self.look(desk, turn);
    }

    /// An operator accepts that these blocks are repaired without these members: those that a plan
    /// takes away while they do not answer, the others while they are damaged in the same keys.
    pub(crate) fn accept_loss(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        blocks: &[u64],
        without: &[MemberId],
    ) {
        for block in blocks {
            self.accepted.entry(*block).or_default().extend(without);
            let stays = |id: &MemberId| {
                let member = desk.layout.index_of(*id);
                member.is_some_and(|member| !desk.layout.leaves(member))
            };
            let stay = without.iter().copied().filter(stays);
            self.accepted_gaps.entry(*block).or_default().extend(stay);
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
        self.forget_ended_plans(desk);
        for repair in self.repairs.values_mut() {
            repair.begin_anew();
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

    /// Tells of spans that are repaired and of those that wait, and begins the next walk.
    fn begin_walk(&mut self, desk: &Desk, turn: &mut Turn<'_>) {
        if has_the_only_copies(desk) {
            return;
        }
        let now_us = turn.now.mono_us;
        self.unusable.retain(|_, until_us| now_us < *until_us);
        let mut next_us = NEVER;
        let no_member = BTreeSet::new();
        // Most spans miss the same sources.
        let mut known: BTreeMap<(&BTreeSet<MemberIndex>, GivenUp), _> = BTreeMap::new();
        let (mut told, mut waiting) = (Vec::new(), Vec::new());
        let mut oldest: Option<(u64, u64, MemberIndex)> = None;
        for (id, repair) in self.repairs.iter().filter(|(_, repair)| !repair.is_told) {
            let due_us = repair.since_us + self.wait_us;
            if now_us < due_us {
                next_us = next_us.min(due_us);
                continue;
            }
            let without = self.accepted.get(&repair.block).unwrap_or(&no_member);
            let given_up = self.given_up(desk, repair, without);
            let missing = known
                .entry((&repair.walked, given_up.clone()))
                .or_insert_with(|| missing(desk, &repair.walked, &given_up));
            // A span without keys of clients or promises has nothing to be walked for.
            if missing.is_empty() || repair.parts.is_empty() {
                told.push(*id);
                continue;
            }
            next_us = next_us.min(now_us + REPAIR_PAUSE_US);
            let is_up = |member: &MemberIndex| desk.health.is_up(*member);
            let is_readable = |it: &&MemberIndex| is_up(it) && !repair.gaps.contains_key(it);
            let of = match missing.iter().find(is_readable) {
                Some(_) => BTreeSet::new(),
                None => missing
                    .iter()
                    .filter_map(|it| desk.layout.id_of(*it))
                    .collect(),
            };
            waiting.push((*id, of));
            let usable = |member: &&MemberIndex| {
                is_up(member)
                    && !self.unusable.contains_key(member)
                    && repair.may_ask(**member, now_us)
            };
            if let Some(source) = missing.iter().find(usable) {
                let candidate = (repair.tried, *id, *source);
                oldest = Some(oldest.map_or(candidate, |oldest| oldest.min(candidate)));
            }
        }
        for id in told {
            if let Some(repair) = self.repairs.get_mut(&id) {
                repair.is_told = true;
            }
            turn.effects.push(Effect::Repaired { id });
        }
        for (id, of) in waiting {
            let repair = self.repairs.get_mut(&id);
            if let Some(of) = repair.and_then(|repair| repair.waits(of, now_us)) {
                turn.effects.push(Effect::RepairWaits { id, of });
            }
        }
        match oldest {
            Some((_, id, source)) => self.begin_walk_of(desk, id, source),
            None => self.due_us = next_us,
        }
    }

    /// The members that the repair of a span does without: lost ones, and those that are damaged
    /// between its keys, as far as that was accepted.
    fn given_up(&self, desk: &Desk, repair: &Repair, lost: &BTreeSet<MemberId>) -> GivenUp {
        let gaps = self.accepted_gaps.get(&repair.block);
        let is_accepted = |member: &&MemberIndex| {
            let id = desk.layout.id_of(**member);
            gaps.is_some_and(|gaps| id.is_some_and(|id| gaps.contains(&id)))
        };
        GivenUp {
            lost: lost.clone(),
            damaged: repair.gaps.keys().filter(is_accepted).copied().collect(),
        }
    }

    fn begin_walk_of(&mut self, desk: &Desk, id: u64, source: MemberIndex) {
        let Some(repair) = self.repairs.get_mut(&id) else {
            return;
        };
        self.walks += 1;
        repair.tried = self.walks;
        let walk = WalkId {
            of: Walker::Repairer,
            number: self.walks,
        };
        let partitions = desk.ring().all().collect();
        let walk = SourceWalk::new(walk, source, partitions, repair.left_at(source));
        self.walk = Some((id, walk));
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
            Walked::Refused => {
                // Others may be asked meanwhile.
                if let Some((_, walk)) = self.walk.take() {
                    self.unusable.insert(walk.source, now_us + REPAIR_PAUSE_US);
                }
                self.go_on(desk, turn);
            }
            Walked::Unreadable => {
                if let Some((span, walk)) = self.walk.take()
                    && let Some(repair) = self.repairs.get_mut(&span)
                {
                    repair.met_gap(walk.source, walk.left(), now_us);
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
                if is_last
                    && let Some((span, walk)) = self.walk.take()
                    && let Some(repair) = self.repairs.get_mut(&span)
                {
                    repair.reached_end(walk.source);
                }
                if pause_us > 0 {
                    self.due_us = now_us + pause_us;
                }
                self.go_on(desk, turn);
            }
        }
    }
}
