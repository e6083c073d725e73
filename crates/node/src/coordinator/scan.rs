//! One page of a scan over the whole cluster: a page of every member, merged.
//!
//! ```text
//! member a   k1 k2 · k4 | rest k5            covered: keys below the smallest beginning of a rest
//! member b   k1 · k3 k4 k6 k7 | rest k8      shown:   k1 k2 k3 k4, the newest of each, if it lives
//! member c   · k2 k3 | end                   rest:    k5
//! ```
//!
//! Invariants
//! 1. A key is shown once, with the newest cell of all answers, and only where all answers cover
//!    it.
//! 2. Without a majority of the owners of every partition no page is shown. A shown page has every
//!    record that was acknowledged at the default level before the scan asked for the page. The
//!    scan waits for a link that is expected back, as operations do (`links.rs`).
//! 3. The answers that make a page are of one epoch. A position that moves counts once both of its
//!    owners answered, as it does for reads (`epochs.rs`).
//! 4. Each page says where the next one goes on, one without live records too.
//! 5. A page of a watch has keys alone, tombstones included, and says where copies differ.
//! 6. Memory: one page per member, `SCANS_MAX` scans.
//!
//! Not here: one moment for all pages; it is not promised.
//! See: docs/protocol.md.

use crate::admission::RefusedBy;
use crate::desk::{Desk, Turn};
use crate::health::Links;
use crate::ledger::NEVER;
use crate::limits::{SCAN_PATIENCE_US, WATCH_PAGE_BYTES};
use crate::outcome::{Known, Outcome};
use crate::places::Places;
use crate::purpose::Purpose;
use crate::step::{ClientTicket, Effect};
use crate::watching::feed_of;
use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Range, Refused};
use dendra_base::{Cell, Kind};
use dendra_ownership::member::MemberIndex;
use dendra_ownership::ring::Partition;
use dendra_watch::{KeyPage, PageShows, Passed, QuestionId, Span, WatchId};

/// A page of a client's scan under way.
#[derive(Debug)]
pub(crate) struct ScanOp {
    pub(crate) id: u64,
    pub(crate) client: Option<ClientTicket>,
    range: Range,
    bytes: u32,
    deadline_us: u64,
    /// How long each part waits for members that it can do without.
    patient_for_us: u64,
    /// Until when the scan waits for members that it can do without, or, while `is_waiting`, for
    /// links; `NEVER` after it.
    patience_us: u64,
    /// Counts how often the page was asked for: in another epoch, or once links are back.
    round: u32,
    /// No question is open: the scan waits for links that are expected back, until `patience_us`.
    pub(crate) is_waiting: bool,
    /// Members that have not answered.
    pending: Places,
    answered: Places,
    records: Vec<(Bytes, Cell)>,
    /// The earliest beginning of a rest, over all members that have one.
    rest: Option<Range>,
    /// The last member that refused, and its reason.
    refused: Option<(MemberIndex, Refused)>,
    /// For a page of a watch.
    pub(crate) keys: Option<Box<WatchedKeys>>,
}

/// A page of a watch: which keys there are, and whether their copies agree.
#[derive(Debug)]
pub(crate) struct WatchedKeys {
    pub(crate) watch: WatchId,
    pub(crate) page: QuestionId,
    /// The copies that came, and whose they are.
    copies: Vec<(Bytes, Cell, MemberIndex)>,
    /// The page, when it is made.
    pub(crate) passed: Passed,
}

/// Why a page cannot be shown.
struct Shortfall {
    /// Until when enough links are expected back; `None` = too few are.
    awaited_until_us: Option<u64>,
    failure: Outcome,
}

/// Does a scan go on?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scanning {
    Continues,
    Over,
}

impl ScanOp {
    pub(crate) fn new(client: ClientTicket, range: Range, bytes: u32, deadline_us: u64) -> ScanOp {
        ScanOp {
            id: 0,
            client: Some(client),
            range,
            bytes,
            deadline_us,
            patient_for_us: SCAN_PATIENCE_US,
            patience_us: NEVER,
            round: 0,
            is_waiting: false,
            pending: Places::NONE,
            answered: Places::NONE,
            records: Vec::new(),
            rest: None,
            refused: None,
            keys: None,
        }
    }

    /// The keys of a part of a watch's range.
    pub(crate) fn of_watch(
        (watch, page): (WatchId, QuestionId),
        span: Span,
        deadline_us: u64,
    ) -> ScanOp {
        let range = Range {
            start: span.start,
            end: span.end,
            is_reverse: false,
            is_keys_only: true,
        };
        let mut scan = ScanOp::new(0, range, WATCH_PAGE_BYTES, deadline_us);
        scan.client = None;
        scan.keys = Some(Box::new(WatchedKeys {
            watch,
            page,
            copies: Vec::new(),
            passed: None,
        }));
        scan
    }

    /// Waits so long for each part.
    pub(crate) fn be_patient(&mut self, patient_for_us: u64) {
        self.patient_for_us = patient_for_us;
    }

    /// When to look at this scan again.
    pub(crate) fn due_us(&self) -> u64 {
        self.deadline_us.min(self.patience_us)
    }

    /// Too many scans are under way, or the time is over.
    pub(crate) fn refuse(&mut self, turn: &mut Turn<'_>) -> Scanning {
        let rest = Some(self.range.clone());
        let failure = if turn.now.mono_us >= self.deadline_us {
            Outcome::DeadlinePassed
        } else {
            Outcome::Overloaded {
                refusal: RefusedBy::Requests,
            }
        };
        self.tell(turn, Vec::new(), rest, Some(failure))
    }

    /// The client hung up.
    pub(crate) fn abandon(&mut self, turn: &mut Turn<'_>) -> Scanning {
        let rest = Some(self.range.clone());
        self.tell(turn, Vec::new(), rest, Some(Outcome::Abandoned))
    }

    /// Asks all members for their next page.
    pub(crate) fn ask(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) {
        self.round = self.round.wrapping_add(1);
        self.is_waiting = false;
        self.answered = Places::NONE;
        self.pending = Places::first(desk.topology.len());
        self.records.clear();
        if let Some(keys) = &mut self.keys {
            keys.copies.clear();
        }
        self.rest = None;
        self.refused = None;
        self.patience_us = turn.now.mono_us + self.patient_for_us;
        for member in (0..desk.topology.len()).map(MemberIndex) {
            self.ask_member(desk, turn, member);
        }
    }

    fn ask_member(&self, desk: &mut Desk, turn: &mut Turn<'_>, member: MemberIndex) {
        let purpose = Purpose::Page {
            scan: self.id,
            member,
            round: self.round,
        };
        let (range, bytes) = (self.range.clone(), self.bytes);
        let ask = Ask::Page { range, bytes };
        desk.ask(turn, member, purpose, ask, self.deadline_us);
    }

    /// Should this scan ask `member` now that its link is back? It should if it waits for links, or
    /// if that member neither answered nor has a question open.
    pub(crate) fn should_ask(&self, member: MemberIndex) -> bool {
        self.is_waiting || !(self.pending.has(member.0) || self.answered.has(member.0))
    }

    /// The link to `member` is back, and this scan should ask it.
    pub(crate) fn link_up(&mut self, desk: &mut Desk, turn: &mut Turn<'_>, member: MemberIndex) {
        if self.is_waiting {
            return self.ask(desk, turn);
        }
        self.pending.insert(member.0);
        self.ask_member(desk, turn, member);
    }

    /// A member's page, or none.
    pub(crate) fn answered(
        &mut self,
        desk: &mut Desk,
        turn: &mut Turn<'_>,
        member: MemberIndex,
        round: u32,
        answer: Answer,
    ) -> Scanning {
        if round != self.round || !self.pending.has(member.0) {
            return Scanning::Continues;
        }
        if let Answer::Refused(Refused::Stale { epoch }) = answer {
            if epoch > desk.layout.epoch() {
                // The page is asked for again once the epoch is known here.
                desk.learn(turn, member, epoch);
            } else {
                // This member has learnt the epoch since it asked: all are asked in it.
                self.ask(desk, turn);
            }
            return Scanning::Continues;
        }
        self.pending.remove(member.0);
        if let Answer::Refused(why) = answer {
            self.refused = Some((member, why));
        }
        if let Answer::Page { records, rest } = answer {
            self.answered.insert(member.0);
            match &mut self.keys {
                None => self.records.extend(records),
                Some(keys) => {
                    let copies = records.into_iter();
                    keys.copies
                        .extend(copies.map(|(key, cell)| (key, cell, member)));
                }
            }
            if let Some(rest) = rest {
                self.rest = Some(match self.rest.take() {
                    Some(known) if is_before(&known, &rest) => known,
                    _ => rest,
                });
            }
        }
        let is_impatient = self.patience_us == NEVER;
        if self.pending.is_empty() || (is_impatient && self.is_enough(desk)) {
            return self.conclude(desk, turn);
        }
        Scanning::Continues
    }

    /// Time went by: members that are late may not be needed.
    pub(crate) fn due(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Scanning {
        self.patience_us = NEVER;
        if turn.now.mono_us >= self.deadline_us || self.is_waiting || self.is_enough(desk) {
            return self.conclude(desk, turn);
        }
        Scanning::Continues
    }

    /// Did a majority of the owners of every partition answer?
    fn is_enough(&self, desk: &Desk) -> bool {
        let majority = usize::from(desk.topology.copies() / 2 + 1);
        let mut partitions = desk.ring().all();
        self.answered.len() == desk.topology.len()
            || partitions.all(|partition| self.answered_of(desk, partition) >= majority)
    }

    /// The positions of a partition that answered. One that moves needs both of its owners: the
    /// next epoch may have begun, in which the new owner confirms writes without the old one.
    fn answered_of(&self, desk: &Desk, partition: Partition) -> usize {
        let copies = usize::from(desk.topology.copies());
        let twin = desk.layout.twin(partition);
        let has = |(place, member): &(u8, &MemberIndex)| {
            let twin = twin.filter(|twin| twin.place == *place);
            self.answered.has(member.0) && twin.is_none_or(|twin| self.answered.has(twin.member.0))
        };
        let owners = &desk.ring().owners(partition)[..copies];
        (0..).zip(owners).filter(has).count()
    }

    /// The number of answers that lack for a majority, in the partition that lacks the most.
    fn shortfall(&self, desk: &Desk, now_us: u64) -> Shortfall {
        let copies = desk.topology.copies();
        let owners = |partition| &desk.ring().owners(partition)[..usize::from(copies)];
        let answered = |partition| self.answered_of(desk, partition);
        let worst = desk
            .ring()
            .all()
            .min_by_key(|partition| answered(*partition));
        let worst = worst.expect("a ring has partitions");
        let needed = copies / 2 + 1;
        let unreachable = |up, missing| Outcome::Unreachable {
            up,
            needed,
            from: copies,
            missing,
        };
        match desk.health.links(owners(worst), needed, now_us) {
            Links::Awaited {
                until_us,
                up,
                missing,
            } => Shortfall {
                awaited_until_us: Some(until_us),
                failure: unreachable(up, missing),
            },
            Links::Lacking { up, missing } => Shortfall {
                awaited_until_us: None,
                failure: unreachable(up, missing),
            },
            Links::Enough => Shortfall {
                awaited_until_us: None,
                failure: Outcome::NotEnough {
                    got: u8::try_from(answered(worst)).expect("at most MEMBERS_MAX owners"),
                    needed,
                    from: copies,
                    known: Known::NotApplied,
                    refused: self.refused,
                },
            },
        }
    }

    fn conclude(&mut self, desk: &mut Desk, turn: &mut Turn<'_>) -> Scanning {
        let now_us = turn.now.mono_us;
        if !self.is_enough(desk) {
            let short = self.shortfall(desk, now_us);
            if let Some(until_us) = short.awaited_until_us.filter(|_| now_us < self.deadline_us) {
                self.is_waiting = true;
                self.pending = Places::NONE;
                self.patience_us = until_us;
                return Scanning::Continues;
            }
            let rest = Some(self.range.clone());
            return self.tell(turn, Vec::new(), rest, Some(short.failure));
        }
        if let Some(mut keys) = self.keys.take() {
            keys.passed = Some(self.key_page(desk, std::mem::take(&mut keys.copies)));
            self.keys = Some(keys);
            return Scanning::Over;
        }
        let (records, rest) = self.merged(desk, turn);
        self.tell(turn, records, rest, None)
    }

    /// The live records that all answers cover, up to the page's size, and the rest of the scan.
    fn merged(&mut self, desk: &mut Desk, turn: &Turn<'_>) -> (Vec<(Bytes, Cell)>, Option<Range>) {
        let is_reverse = self.range.is_reverse;
        let mut records = std::mem::take(&mut self.records);
        records.sort_unstable_by(|(a, older), (b, newer)| {
            let by_key = if is_reverse { b.cmp(a) } else { a.cmp(b) };
            by_key.then(older.version.newest_first(newer.version))
        });
        let copies = desk.topology.copies();
        let disputes = &mut desk.disputes;
        disputes.dedup(turn.now, &mut records, copies);
        let mut rest = self.rest.take();
        let mut shown: Vec<(Bytes, Cell)> = Vec::new();
        let mut bytes = 0;
        for (key, cell) in records {
            let is_left = rest.as_ref().is_some_and(|rest| is_in(rest, &key));
            if is_left {
                break;
            }
            if bytes >= self.bytes as usize {
                rest = Some(rest_from(&self.range, key, shown.last()));
                break;
            }
            if cell.as_ref().is_live(turn.now.wall_ms) {
                bytes += key.len() + cell.value.len();
                shown.push((key, cell));
            }
        }
        (shown, rest)
    }

    /// The keys that all answers cover, except those that all of them show as deleted.
    fn key_page(&mut self, desk: &Desk, mut copies: Vec<(Bytes, Cell, MemberIndex)>) -> KeyPage {
        copies.sort_unstable_by(|(a, older, _), (b, newer, _)| {
            a.cmp(b).then(older.version.newest_first(newer.version))
        });
        let rest = self.rest.take().map(|rest| rest.start);
        let of_members = desk.layout.members();
        let missing = of_members.filter(|member| !self.answered.has(member.0));
        let mut page = KeyPage {
            missing: missing.filter_map(|it| feed_of(&desk.layout, it)).collect(),
            ..KeyPage::default()
        };
        for of_key in copies.chunk_by(|(a, ..), (b, ..)| a == b) {
            let (key, newest, _) = &of_key[0];
            if rest.as_ref().is_some_and(|rest| key >= rest) {
                break;
            }
            let shows = if !self.is_agreed(desk, key, of_key) {
                PageShows::Unsure {
                    newest: newest.version,
                }
            } else if newest.kind == Kind::Value {
                PageShows::Value {
                    expiry_ms: newest.expiry_ms,
                }
            } else {
                continue;
            };
            page.keys.push((key.clone(), shows));
        }
        page.rest = rest;
        page
    }

    /// Do all owners of the key that answered hold the newest cell? While a position of its
    /// partition moves, that is not known.
    fn is_agreed(&self, desk: &Desk, key: &[u8], copies: &[(Bytes, Cell, MemberIndex)]) -> bool {
        let partition = desk.ring().partition(key);
        let (_, newest, _) = &copies[0];
        let holds = |member: &MemberIndex| {
            let mut copies = copies.iter();
            copies.any(|(_, cell, from)| from == member && cell.id() == newest.id())
        };
        let owners = &desk.ring().owners(partition)[..usize::from(desk.topology.copies())];
        let mut answered = owners.iter().filter(|owner| self.answered.has(owner.0));
        desk.layout.arriving(partition).is_none() && answered.all(holds)
    }

    fn tell(
        &mut self,
        turn: &mut Turn<'_>,
        records: Vec<(Bytes, Cell)>,
        rest: Option<Range>,
        failure: Option<Outcome>,
    ) -> Scanning {
        if let Some(client) = self.client.take() {
            turn.effects.push(Effect::Scanned {
                client,
                records,
                rest,
                failure,
            });
        }
        Scanning::Over
    }
}

/// Does a walk come to the rest `a` before it comes to `b`?
fn is_before(a: &Range, b: &Range) -> bool {
    if a.is_reverse {
        a.end > b.end
    } else {
        a.start < b.start
    }
}

/// Is a key still to come?
fn is_in(rest: &Range, key: &Bytes) -> bool {
    if rest.is_reverse {
        rest.end.as_ref().is_none_or(|end| key < end)
    } else {
        *key >= rest.start
    }
}

/// The rest of a range from `key` on, or after the last record that was shown.
fn rest_from(range: &Range, key: Bytes, last: Option<&(Bytes, Cell)>) -> Range {
    if range.is_reverse {
        Range {
            end: last.map_or_else(|| range.end.clone(), |(last, _)| Some(last.clone())),
            ..range.clone()
        }
    } else {
        Range {
            start: key,
            ..range.clone()
        }
    }
}
