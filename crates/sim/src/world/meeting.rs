//! Identities: numbers of starts, notes of members about each other, and images of disks that come
//! back.
//!
//! ```text
//! start ─► own record durable ─► every other member that can be asked judges the claim ─► it serves
//!                                        └─ refuses: the folder is an image, and the true one comes back
//! link up ─► claim ─► note durable ─► linked      every 100 ms: confirmations of others are noted
//! ```
//!
//! Only in runs with an image: all others have members that know each other from the beginning to
//! the end.
//!
//! Invariants
//! 1. Notes are records in the member's own store: an image has those of its time.
//! 2. An image serves no request. The judgement on it falls when it asks. Then the true folder
//!    starts, and must be let in.
//! 3. An image must be refused as soon as one member that can be asked has noted a start after it.
//!    The same holds for a clock value that the image's clock does not reach.
//!
//! Not here: the rules (crate `ownership`, `membership/`), links (`network.rs`), several processes
//! of one member (`members/`).
//! See: docs/operating.md, section "When a member's folder is lost".

use super::state::{Happening, World};
use crate::check::Rule;
use crate::member::MemberKnowledge;
use crate::plan::Restarts;
use crate::planted::ShellBug;
use crate::store::{Crash, Fate, Store, StoreWrite};
use dendra_base::peer::Answer;
use dendra_base::{CellRef, Guard, Key, Space, Version};
use dendra_ownership::membership::identity::{FolderContent, OWN_KEY, OwnNote, Peer};
use dendra_ownership::membership::{Maker, MemberEffect, MemberEvent, NoLink, PeerNote};
use dendra_ownership::{MemberIndex, Membership};

/// How often it is looked whether there is something to note.
const SWEEP_US: u64 = 100_000;
/// A member that could not write its own record tries again after this.
const AGAIN_US: u64 = 300_000;
/// How long a member is away that starts again.
const DOWN_US: u64 = 200_000;
/// Between two members that are restarted one after the other.
const ROLL_US: u64 = 700_000;
/// Longer than all restarts, the pause between two notes, and two walks for news.
const IMAGE_US: u64 = 6_000_000;
/// Longer than it takes until an image was refused and the true folder is linked again.
pub(super) const IMAGES_US: u64 = IMAGE_US + 3_000_000;

/// Why a member does not start now.
pub(super) enum NotNow {
    /// The member tries again.
    Later,
    /// The member's disk is damaged.
    Damaged,
    /// Another member does not let its folder in.
    Refused(String),
}

fn note_key(url: &str) -> Key {
    Key::new(Space::Meta, &[b"peer/", url.as_bytes()].concat())
}

fn write_note(store: &mut Store, key: &Key, value: &[u8], hlc: u64, now_ms: u64) -> (Fate, bool) {
    let version = Version {
        hlc,
        origin: 0,
        rmw: 0,
    };
    let cell = CellRef::value(key.as_stored(), version, value).to_owned();
    let write = StoreWrite {
        key: key.clone(),
        cell,
        guard: Guard::Newest,
    };
    let (fate, results) = store.commit(&[write], now_ms);
    (fate, results.iter().all(Result::is_ok))
}

impl World<'_> {
    /// Does an image of a disk come back in this run? Only then members judge each other's claims.
    pub(super) fn has_image(&self) -> bool {
        self.image.is_some()
    }

    fn url(&self, member: usize) -> &str {
        &self.topology.member(MemberIndex(member as u8)).url
    }

    /// The image is made of a disk in use.
    pub(super) fn take_image(&mut self) {
        let member = self.plan.image.as_ref().expect("it is planned").member;
        let taken = self.members[member].store.as_ref().map(Store::image);
        self.trace.line(self.schedule.now_us(), || {
            format!("an image of m{member}: {}", taken.is_some())
        });
        if let Some(image) = &mut self.image {
            image.taken = taken;
        }
    }

    /// Members are restarted, and then one of them on its image.
    pub(super) fn begin_images(&mut self) {
        let planned = self.plan.image.as_ref().expect("it is planned");
        let members = self.members.len();
        let due = self.unnoted();
        if let Some(image) = &mut self.image {
            image.due = due;
        }
        for member in 0..members {
            match planned.restarts {
                Restarts::None => {}
                Restarts::AllAtOnce if member == planned.member => {}
                Restarts::AllAtOnce => self.crash(member, planned.how, DOWN_US),
                Restarts::OneByOne => self
                    .schedule
                    .after(ROLL_US * member as u64 + 1, Happening::Restart { member }),
            }
        }
        match planned.restarts {
            // The others know then the content of their notes.
            Restarts::AllAtOnce => self.put_image_in_place(2 * DOWN_US),
            Restarts::None | Restarts::OneByOne => {
                self.schedule.after(IMAGE_US, Happening::Restore);
            }
        }
    }

    pub(super) fn restart(&mut self, member: usize) {
        let how = self.plan.image.as_ref().map_or(Crash::Killed, |p| p.how);
        self.crash(member, how, DOWN_US);
    }

    /// The member ends, and its image takes the place of its folder.
    pub(super) fn restore(&mut self) {
        self.judge_notes();
        self.put_image_in_place(DOWN_US);
    }

    fn put_image_in_place(&mut self, down_us: u64) {
        let member = self.plan.image.as_ref().expect("it is planned").member;
        let taken = self.image.as_mut().and_then(|image| image.taken.take());
        let Some(taken) = taken else {
            return;
        };
        self.crash(member, Crash::Killed, down_us);
        let of_now = std::mem::replace(&mut self.members[member].disk, taken);
        if let Some(image) = &mut self.image {
            image.aside = Some(of_now);
        }
    }

    /// By member, in which life, of which one, the claim: its notes if it stopped now.
    fn unnoted(&mut self) -> Vec<(usize, u64, usize, Peer)> {
        let mut due = Vec::new();
        for by in 0..self.members.len() {
            let incarnation = self.members[by].incarnation;
            let effects = self.tell(by, MemberEvent::Stopping);
            due.extend(effects.into_iter().filter_map(|effect| match effect {
                MemberEffect::WriteNote(note) => {
                    Some((by, incarnation, note.member.at(), note.peer))
                }
                _ => None,
            }));
        }
        due
    }

    /// Tells the machine of a member that runs.
    fn tell(&mut self, member: usize, event: MemberEvent) -> Vec<MemberEffect> {
        let now_us = self.now_us();
        let it = &mut self.members[member];
        let mono_us = it.clock.now(now_us).mono_us;
        let mut effects = Vec::new();
        if let Some(knowledge) = &mut it.knowledge {
            knowledge.membership.step(mono_us, event, &mut effects);
        }
        effects
    }

    /// A member that lives on has noted all that it knew when the restarts began, seconds ago.
    fn judge_notes(&mut self) {
        let image = self.image.as_ref().expect("members meet");
        let late = image.due.iter().find(|(by, incarnation, of, news)| {
            self.members[*by].incarnation == *incarnation && image.noted[*by][*of].1 < news.clock
        });
        if let Some((by, _, of, _)) = late {
            let what = format!("m{by} has not noted a confirmation of m{of} from seconds ago");
            self.violate(Rule::Lost, what);
        }
    }

    /// Is this member about to start on its image?
    pub(super) fn is_on_image(&self, member: usize) -> bool {
        let is_planned = self.plan.image.as_ref().is_some_and(|p| p.member == member);
        is_planned && self.image.as_ref().is_some_and(|i| i.aside.is_some())
    }

    /// A start: the own record is durable, and all members that can be asked have let it in.
    pub(super) fn begin_life(
        &mut self,
        member: usize,
        store: &mut Store,
        wall_ms: u64,
    ) -> Result<MemberKnowledge, NotNow> {
        let floor = store.hlc_floor();
        let key = Key::new(Space::Meta, OWN_KEY);
        let read = |from: &Store, note: &Key| from.read(note).map_err(|_| NotNow::Damaged);
        let remembered = match read(store, &key)? {
            None => None,
            Some(cell) => Some(OwnNote::decode(&cell.value).ok_or(NotNow::Damaged)?),
        };
        let me = MemberIndex(member as u8);
        let node = member as u128 + 1;
        let own = OwnNote::start(
            remembered.as_ref(),
            node,
            &self.topology,
            me,
            FolderContent::Empty,
        )
        .map_err(|stranger| NotNow::Refused(stranger.to_string()))?;
        let (fate, is_written) = write_note(store, &key, &own.encode(), floor + 1, wall_ms);
        if fate == Fate::Dead || !is_written {
            return Err(NotNow::Later);
        }
        let mut known = Vec::with_capacity(self.members.len());
        for other in 0..self.members.len() {
            known.push(match read(store, &note_key(self.url(other)))? {
                None => None,
                Some(cell) => Some(Peer::decode(&cell.value).ok_or(NotNow::Damaged)?),
            });
        }
        let claim = Peer {
            node,
            boot: own.boot,
            life: self.prng.next_u64().max(1),
            clock: floor.max(1),
        };
        let heard = vec![0; known.len()];
        let mut membership = Membership::new(&self.topology, me, (1, false), known);
        self.meet(member, claim, &mut membership)?;
        Ok(MemberKnowledge {
            claim,
            membership,
            heard,
            notes: floor + 1,
        })
    }

    /// The start asks all others; those that can be asked judge the claim.
    fn meet(
        &mut self,
        member: usize,
        claim: Peer,
        membership: &mut Membership,
    ) -> Result<(), NotNow> {
        let mono_us = self.members[member].clock.now(self.now_us()).mono_us;
        let mut must_refuse = false;
        let mut refusal = None;
        let mut effects = Vec::new();
        membership.step(mono_us, MemberEvent::StartAsked, &mut effects);
        let asked = effects.into_iter().filter_map(|effect| match effect {
            MemberEffect::Ask { member: peer } => Some(peer.at()),
            _ => None,
        });
        for other in asked {
            let mut answer = Err(NoLink::from("it cannot be asked"));
            if self.members[other].is_running() {
                // The links to the process before this one are lost at the latest now.
                self.notice(other, member, false);
            }
            if self.is_asked(member, other) {
                let image = self.image.as_ref().expect("members meet");
                let (boot, clock) = image.noted[other][member];
                must_refuse |= boot >= claim.boot || clock > claim.clock;
                let at = MemberIndex(member as u8);
                let hailed = MemberEvent::Hailed { member: at, claim };
                answer = match self.tell(other, hailed).pop() {
                    Some(MemberEffect::Reject(rejected)) => Err(NoLink::of_farewell(
                        self.url(other),
                        &rejected.to_string(),
                        Maker::Member,
                        self.topology.epoch(),
                    )),
                    _ => Ok(1),
                };
            }
            let peer = MemberIndex(other as u8);
            let answered = MemberEvent::StartAnswered {
                member: peer,
                answer,
            };
            let mut last = Vec::new();
            membership.step(mono_us, answered, &mut last);
            if let Some(MemberEffect::Stop(why)) = last.pop() {
                refusal = Some(why.sentence);
            }
        }
        if self.is_on_image(member) {
            if must_refuse && refusal.is_none() {
                self.violate(Rule::Lost, format!("an image of m{member} is let in"));
            }
            let why = refusal.unwrap_or_else(|| "no member remembers more".to_owned());
            return Err(NotNow::Refused(why));
        }
        match refusal {
            Some(why) => Err(NotNow::Refused(why)),
            None => Ok(()),
        }
    }

    /// Does the question of a start reach this member?
    fn is_asked(&self, member: usize, other: usize) -> bool {
        let is_cut = self.is_cut(member, other) || self.is_cut(other, member);
        !is_cut && self.members[other].knowledge.is_some()
    }

    /// A member does not start now: on an image its true folder comes back.
    pub(super) fn does_not_start(&mut self, member: usize, incarnation: u64, why: NotNow) {
        let now_us = self.now_us();
        if self.is_on_image(member) {
            let aside = self.image.as_mut().and_then(|image| image.aside.take());
            self.members[member].disk = aside.expect("it is on its image");
            let why = match why {
                NotNow::Refused(why) => why,
                NotNow::Later | NotNow::Damaged => "its own notes".to_owned(),
            };
            self.trace.line(now_us, || {
                format!("the image of m{member} does not start: {why}")
            });
            let start = Happening::Start {
                member,
                incarnation,
            };
            self.schedule.after(AGAIN_US, start);
            return;
        }
        let (is_again, what) = match why {
            NotNow::Later => (true, String::new()),
            NotNow::Damaged => (false, "its notes are damaged".to_owned()),
            NotNow::Refused(why) => (false, why),
        };
        if is_again {
            let start = Happening::Start {
                member,
                incarnation,
            };
            self.schedule.after(AGAIN_US, start);
            return;
        }
        self.members[member].is_lost = true;
        let is_expected = self.members[member].is_rotten
            || self.has_bug(ShellBug::OldImage)
            || self.has_bug(ShellBug::SameIdentityAfterWipe);
        if !is_expected {
            self.violate(
                Rule::Lost,
                format!("m{member} does not start on its own folder: {what}"),
            );
        }
    }

    /// May this link come up? `peer` shows its claim, and that is noted first.
    pub(super) fn recognises(&mut self, member: usize, peer: usize) -> bool {
        let Some(claim) = self.members[peer]
            .knowledge
            .as_ref()
            .map(|knowledge| knowledge.claim)
        else {
            return false;
        };
        let at = MemberIndex(peer as u8);
        let claimed = MemberEvent::Claimed { member: at, claim };
        let mut next = self.tell(member, claimed).pop();
        loop {
            match next {
                Some(MemberEffect::Admit { .. }) => break,
                Some(MemberEffect::WriteNote(note)) => {
                    if !self.note(member, &note) {
                        return false;
                    }
                    next = self.tell(member, MemberEvent::NoteWritten(note)).pop();
                }
                Some(MemberEffect::Reject(why)) => {
                    let what = format!("m{member} refuses m{peer}: {why}");
                    if !self.members[peer].is_rotten && !self.members[member].is_rotten {
                        self.violate(Rule::Lost, what);
                    }
                    return false;
                }
                _ => return false,
            }
        }
        let up = MemberEvent::LinkUp {
            member: at,
            lane: 0,
            claim,
        };
        self.tell(member, up).is_empty()
    }

    /// Makes a note durable. `false` when that did not go.
    fn note(&mut self, member: usize, note: &PeerNote) -> bool {
        let (peer, news) = (note.member.at(), note.peer);
        let key = note_key(self.url(peer));
        let now_us = self.now_us();
        let is_forgotten = self.has_bug(ShellBug::NotesForgotten);
        let it = &mut self.members[member];
        let now_ms = it.clock.now(now_us).wall_ms;
        let (Some(knowledge), Some(store)) = (&mut it.knowledge, &mut it.store) else {
            return false;
        };
        knowledge.notes += 1;
        let (fate, is_written) = if is_forgotten {
            (Fate::Alive, true)
        } else {
            write_note(store, &key, &news.encode(), knowledge.notes, now_ms)
        };
        if fate == Fate::Dead {
            self.ends_by_its_disk(member);
            return false;
        }
        if is_written && let Some(image) = &mut self.image {
            let noted = &mut image.noted[member][peer];
            *noted = (noted.0.max(news.boot), noted.1.max(news.clock));
        }
        is_written
    }

    /// A link was lost: the confirmations over it are noted.
    pub(super) fn parts(&mut self, member: usize, peer: usize) {
        let Some(knowledge) = &mut self.members[member].knowledge else {
            return;
        };
        let down = MemberEvent::LinkDown {
            member: MemberIndex(peer as u8),
            confirmed: std::mem::take(&mut knowledge.heard[peer]),
        };
        self.tell_and_note(member, down);
    }

    fn tell_and_note(&mut self, member: usize, event: MemberEvent) {
        for effect in self.tell(member, event) {
            if let MemberEffect::WriteNote(note) = effect
                && self.note(member, &note)
            {
                self.tell(member, MemberEvent::NoteWritten(note));
            }
        }
    }

    /// Looks whether there is something to note.
    pub(super) fn sweep(&mut self, member: usize, incarnation: u64) {
        for peer in 0..self.members.len() {
            let Some(knowledge) = &mut self.members[member].knowledge else {
                return;
            };
            let confirmed = MemberEvent::Confirmed {
                member: MemberIndex(peer as u8),
                clock: std::mem::take(&mut knowledge.heard[peer]),
            };
            self.tell_and_note(member, confirmed);
        }
        let again = Happening::Sweep {
            member,
            incarnation,
        };
        self.schedule.after(SWEEP_US, again);
    }

    /// An answer says how far the folder of its maker goes.
    pub(super) fn hears(&mut self, member: usize, from: usize, answer: &Answer) {
        let is_linked = self.members[member].links_up.contains(&from);
        let kept = match answer {
            Answer::Written(version) => version.hlc,
            Answer::Clock { kept, .. } => *kept,
            _ => 0,
        };
        if let Some(knowledge) = self.members[member]
            .knowledge
            .as_mut()
            .filter(|_| is_linked)
        {
            knowledge.heard[from] = knowledge.heard[from].max(kept);
        }
    }
}
