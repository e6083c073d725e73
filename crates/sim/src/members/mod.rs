//! A world of member processes: several may say to be one member, and the machines decide.
//!
//! ```text
//! plan.rs       seed ─► members, deeds
//! mod.rs        deeds, starts, commits, sweeps: the work of the server's shell
//! handshake.rs  handshakes and links, without bytes
//! process.rs    folders, processes
//! judge.rs      the checker
//! ```
//!
//! Invariants
//! 1. A process is stepped as in the server: one event at a time, its notes by decision.
//! 2. Every draw comes from the seed, in the order of happenings.
//!
//! Not here: reads and writes (`world/`); proofs, which are taken as done: a forged answer is one
//! without them.
//! See: docs/verification.md, docs/peer.md.

mod handshake;
mod judge;
mod plan;
mod process;

use crate::check::Violation;
use crate::schedule::Schedule;
use crate::trace::{Trace, Tracing};
use dendra_base::Prng;
use dendra_ownership::membership::identity::Peer;
use dendra_ownership::membership::{FolderVerdict, MemberEffect, MemberEvent, PeerNote, WaitEnd};
use dendra_ownership::topology::{Member as Listed, Topology};
use dendra_ownership::{MemberIndex, Membership};
use plan::CHAOS_US;
pub use plan::{Deed, MemberPlan, Weather};
use process::{Dial, FolderCommit, MemberFolder, MemberProcess, Sightings};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const SWEEP_US: u64 = 100_000;
/// The clock's ceiling is this far ahead, and is raised when half of it is left.
const CEILING_US: u64 = 3_000_000;
/// How long a process on an image or on a wiped folder stands in the place of its member.
const IN_PLACE_US: u64 = 3_000_000;
/// A process that ended on a doubted folder is started again after this.
const AGAIN_US: u64 = 300_000;
/// From the end of chaos until all members must be linked: the patience of a twin, and more.
const CALM_US: u64 = 20_000_000;
/// Rounds of a rolling restart.
const ROLLS: usize = 2;
/// From ready to the restart of the next member.
const ROLL_PAUSE_US: u64 = 60_000;
/// Away during a rolling restart.
const ROLL_DOWN_US: u64 = 200_000;
/// A number of starts that cannot be.
const LIE: u64 = 1 << 40;

#[derive(Debug)]
enum MemberHappening {
    Deed(Deed),
    Start {
        folder: usize,
        host: usize,
    },
    Try {
        process: usize,
        lane: u16,
        to: usize,
    },
    Question {
        process: usize,
        to: usize,
    },
    Step(Dial),
    Commit {
        process: usize,
        number: u64,
    },
    Talk {
        process: usize,
        lane: u16,
        to: usize,
        number: u64,
    },
    Sweep {
        process: usize,
    },
    Heal {
        a: usize,
        b: usize,
    },
    Roll {
        next: usize,
    },
    Calm,
    End,
}

/// See the module.
struct MemberWorld {
    plan: MemberPlan,
    prng: Prng,
    schedule: Schedule<MemberHappening>,
    topology: Arc<Topology>,
    /// The first ones are the members' own.
    folders: Vec<MemberFolder>,
    processes: Vec<MemberProcess>,
    /// By member: the process that listens there.
    address: Vec<Option<usize>>,
    snapshots: BTreeMap<usize, MemberFolder>,
    /// Pairs of hosts, with repetition.
    cuts: Vec<(usize, usize)>,
    numbers: u64,
    is_over: bool,
    /// By folder and member.
    seen: Vec<Vec<Sightings>>,
    is_tainted: Vec<bool>,
    violations: Vec<Violation>,
    trace: Trace,
}

/// The result of a seed.
#[derive(Debug)]
pub struct MemberRun {
    /// Broken rules.
    pub violations: Vec<Violation>,
    /// Hash of the trace; 0 when it was off.
    pub hash: u64,
    /// Happenings, as a measure of work.
    pub happenings: u64,
}

/// Runs one plan to its end.
pub fn run_members(plan: &MemberPlan, tracing: Tracing) -> MemberRun {
    let mut world = MemberWorld::new(plan, tracing);
    world.begin();
    while let Some(happening) = world.schedule.take() {
        world.happen(happening);
        if world.is_over || !world.violations.is_empty() {
            break;
        }
    }
    MemberRun {
        violations: world.violations,
        hash: world.trace.hash(),
        happenings: world.schedule.count(),
    }
}

fn index(member: usize) -> MemberIndex {
    MemberIndex(member as u8)
}

impl MemberWorld {
    fn new(plan: &MemberPlan, tracing: Tracing) -> MemberWorld {
        let members = plan.members;
        let listed = (0..members)
            .map(|member| Listed::new(&format!("http://10.0.0.{}:8080", member + 1)))
            .collect::<Result<Vec<_>, _>>()
            .expect("addresses");
        let copies = members.min(3) as u8;
        let topology = Topology::new("sim", listed, copies).expect("a small cluster");
        let folder = |member| MemberFolder::new(member, member as u128 + 1, members);
        MemberWorld {
            prng: Prng::named(plan.seed, "member world"),
            plan: plan.clone(),
            schedule: Schedule::default(),
            topology: Arc::new(topology),
            folders: (0..members).map(folder).collect(),
            processes: Vec::new(),
            address: vec![None; members],
            snapshots: BTreeMap::new(),
            cuts: Vec::new(),
            numbers: 0,
            is_over: false,
            seen: vec![vec![Sightings::default(); members]; members],
            is_tainted: vec![false; members],
            violations: Vec::new(),
            trace: Trace::new(tracing),
        }
    }

    fn begin(&mut self) {
        for member in 0..self.plan.members {
            let at_us = self.prng.below(300_000);
            let start = MemberHappening::Start {
                folder: member,
                host: member,
            };
            self.schedule.at(at_us, start);
        }
        for (at_us, deed) in self.plan.deeds.clone() {
            self.schedule.at(at_us, MemberHappening::Deed(deed));
        }
        if self.plan.weather == Weather::Rolling {
            let roll = MemberHappening::Roll { next: 0 };
            self.schedule.at(3_000_000, roll);
        }
        self.schedule.at(CHAOS_US, MemberHappening::Calm);
        self.schedule.at(CHAOS_US + CALM_US, MemberHappening::End);
    }

    fn happen(&mut self, happening: MemberHappening) {
        match happening {
            MemberHappening::Deed(deed) => self.do_deed(deed),
            MemberHappening::Start { folder, host } => self.start(folder, host),
            MemberHappening::Try { process, lane, to } => self.try_link(process, lane, to),
            MemberHappening::Question { process, to } => self.dial(process, 0, to, true),
            MemberHappening::Step(dial) => self.step(dial),
            MemberHappening::Commit { process, number } => self.committed(process, number),
            MemberHappening::Talk {
                process,
                lane,
                to,
                number,
            } => self.talk(process, lane, to, number),
            MemberHappening::Sweep { process } => self.sweep(process),
            MemberHappening::Heal { a, b } => {
                if let Some(at) = self.cuts.iter().position(|cut| *cut == (a, b)) {
                    self.cuts.remove(at);
                }
            }
            MemberHappening::Roll { next } => {
                self.judge_roll(next % self.plan.members);
                self.end_of(next % self.plan.members, ROLL_DOWN_US);
            }
            MemberHappening::Calm => self.calm(),
            MemberHappening::End => {
                self.judge_end();
                self.is_over = true;
            }
        }
    }

    // Deeds.

    fn do_deed(&mut self, deed: Deed) {
        let now_us = self.schedule.now_us();
        self.trace.line(now_us, || format!("DEED {deed:?}"));
        match deed {
            Deed::Restart { member, down_us } => self.end_of(member, down_us),
            Deed::Blackout { down_us } => {
                for member in 0..self.plan.members {
                    let more_us = self.prng.below(300_000);
                    self.end_of(member, down_us + more_us);
                }
            }
            Deed::Cut { a, b, length_us } => {
                self.cuts.push((a, b));
                self.schedule
                    .after(length_us, MemberHappening::Heal { a, b });
            }
            Deed::Snapshot { member } => {
                let copy = MemberFolder {
                    is_genuine: false,
                    is_refused: false,
                    is_doubted: false,
                    ..self.folders[member].clone()
                };
                self.snapshots.insert(member, copy);
            }
            Deed::CopyBeside { member } => {
                if let Some(copy) = self.snapshots.get(&member).cloned() {
                    let host = self.plan.members + self.folders.len();
                    let folder = self.add_folder(copy);
                    self.start(folder, host);
                }
            }
            Deed::CopyInPlace { member } => {
                if let Some(copy) = self.snapshots.get(&member).cloned() {
                    self.put_in_place(copy);
                }
            }
            Deed::Wipe { member } => {
                let node = 1_000 + self.folders.len() as u128;
                let wiped = MemberFolder {
                    is_genuine: false,
                    ..MemberFolder::new(member, node, self.plan.members)
                };
                self.put_in_place(wiped);
            }
            Deed::Lie { member, to } => self.lie(member, to),
        }
    }

    fn add_folder(&mut self, folder: MemberFolder) -> usize {
        self.folders.push(folder);
        self.seen
            .push(vec![Sightings::default(); self.plan.members]);
        self.folders.len() - 1
    }

    /// The member ends, and another folder stands in its place for a while.
    fn put_in_place(&mut self, folder: MemberFolder) {
        let member = folder.member;
        self.end_of(member, IN_PLACE_US);
        let folder = self.add_folder(folder);
        self.start(folder, member);
    }

    /// All processes in the place of a member end, and its own one starts again.
    fn end_of(&mut self, member: usize, down_us: u64) {
        for process in 0..self.processes.len() {
            let it = &self.processes[process];
            if it.is_alive && it.host == member {
                self.end(process);
            }
        }
        let start = MemberHappening::Start {
            folder: member,
            host: member,
        };
        self.schedule.after(down_us, start);
    }

    fn lie(&mut self, member: usize, to: usize) {
        let Some(by) = self.address[to] else {
            return;
        };
        let claim = Peer {
            node: member as u128 + 1,
            boot: LIE,
            life: self.prng.next_u64().max(1),
            clock: u64::MAX,
        };
        let member = index(member);
        let hailed = MemberEvent::Hailed { member, claim };
        let answer = self.tell(by, hailed).pop();
        if !matches!(answer, Some(MemberEffect::Reject(_))) {
            self.violate(format!("p{by} believes a lie about {member}: {answer:?}"));
        }
    }

    fn calm(&mut self) {
        self.cuts.clear();
        for process in 0..self.processes.len() {
            let it = &self.processes[process];
            if it.is_alive && !self.folders[it.folder].is_genuine {
                self.end(process);
            }
        }
        for member in 0..self.plan.members {
            self.start(member, member);
        }
    }

    // Processes.

    fn start(&mut self, folder: usize, host: usize) {
        if self.folders[folder].is_genuine {
            self.end_impostors(host);
        }
        let it = &mut self.folders[folder];
        let is_there = self
            .processes
            .iter()
            .any(|other| other.is_alive && (other.folder == folder || other.host == host));
        if it.is_refused || is_there {
            return;
        }
        it.boot += u64::from(!it.is_doubted);
        let (member, is_doubted) = (it.member, it.is_doubted);
        let claim = Peer {
            node: it.node,
            boot: it.boot,
            life: self.prng.next_u64().max(1),
            clock: it.ceiling,
        };
        let notes = it.notes.iter().map(|note| note.map(|(_, peer)| peer));
        let how = (self.plan.loops, is_doubted);
        let machine = Membership::new(&self.topology, index(member), how, notes);
        let process = self.processes.len();
        self.processes.push(MemberProcess {
            folder,
            member,
            host,
            claim,
            machine,
            is_alive: true,
            is_open: false,
            is_late: false,
            is_ready: false,
            clock: claim.clock,
            links: BTreeMap::new(),
            dialing: BTreeSet::new(),
            tried: BTreeSet::new(),
            accepted: BTreeSet::new(),
            hosts: BTreeSet::new(),
            refused_by: BTreeSet::new(),
            asked: BTreeSet::new(),
            confirmed: BTreeMap::new(),
            commits: BTreeMap::new(),
        });
        let now_us = self.schedule.now_us();
        self.trace.line(now_us, || {
            format!("p{process} starts as m{member} on folder {folder}: {claim:?}")
        });
        self.sweep(process);
        self.tell(process, MemberEvent::StartAsked);
    }

    /// A process in the place of a member ends when the member's own folder starts.
    fn end_impostors(&mut self, host: usize) {
        for process in 0..self.processes.len() {
            let it = &self.processes[process];
            if it.is_alive && it.host == host && !self.folders[it.folder].is_genuine {
                self.end(process);
            }
        }
    }

    fn end(&mut self, process: usize) {
        let now_us = self.schedule.now_us();
        self.trace.line(now_us, || format!("p{process} ends"));
        self.forget_unnoted(process);
        // Askers that wait for a note of this process see that the connection is closed.
        let waiting: Vec<Dial> = self.processes[process].waiting().cloned().collect();
        for dial in waiting {
            self.be_closed(dial);
        }
        let it = &mut self.processes[process];
        it.end(&mut self.folders[it.folder], &mut self.prng);
        let member = it.member;
        if self.address[member] == Some(process) {
            self.address[member] = None;
        }
    }

    /// Steps the machine of a process, carries out the effects on the whole process, and returns
    /// the rest.
    fn tell(&mut self, process: usize, event: MemberEvent) -> Vec<MemberEffect> {
        let now_us = self.schedule.now_us();
        self.trace.line(now_us, || format!("p{process} {event:?}"));
        let mut effects = Vec::new();
        let it = &mut self.processes[process];
        it.machine.step(now_us, event, &mut effects);
        let mut rest = Vec::new();
        for effect in effects {
            self.trace
                .line(now_us, || format!("p{process}   -> {effect:?}"));
            match effect {
                MemberEffect::Ask { member } => {
                    let to = member.at();
                    let is_new = self.processes[process].asked.insert(to);
                    let pause_us = if is_new { 0 } else { 200_000 };
                    let question = MemberHappening::Question { process, to };
                    self.schedule.after(pause_us, question);
                }
                MemberEffect::OpenLinks => {
                    self.judge_links_open(process);
                    let MemberProcess { member, folder, .. } = self.processes[process];
                    self.folders[folder].is_doubted = false;
                    for to in (0..self.plan.members).filter(|&to| to != member) {
                        for lane in 0..self.plan.loops {
                            let delay_us = self.prng.below(1_000);
                            let again = MemberHappening::Try { process, lane, to };
                            self.schedule.after(delay_us, again);
                        }
                    }
                }
                MemberEffect::OpenDoor(wait) => {
                    let open = &mut self.processes[process];
                    open.is_late = wait == WaitEnd::GivenUp;
                    open.is_open = true;
                    if open.host == open.member {
                        self.address[open.member] = Some(process);
                    }
                }
                MemberEffect::Ready(wait) => self.ready(process, wait),
                MemberEffect::Stop(why) => {
                    self.judge_stop(process, &why);
                    let MemberProcess { folder, host, .. } = self.processes[process];
                    self.end(process);
                    let ended = &mut self.folders[folder];
                    ended.is_refused |= why.folder == FolderVerdict::Refused;
                    ended.is_doubted |= why.folder == FolderVerdict::Doubted;
                    if ended.is_doubted && !ended.is_genuine {
                        // A supervisor starts it, again and again.
                        let start = MemberHappening::Start { folder, host };
                        self.schedule.after(AGAIN_US, start);
                    }
                }
                other => rest.push(other),
            }
        }
        rest
    }

    fn ready(&mut self, process: usize, wait: WaitEnd) {
        self.processes[process].is_ready = true;
        if wait == WaitEnd::Over {
            self.judge_ready(process);
        }
        if self.plan.weather != Weather::Rolling {
            return;
        }
        let restarted = self.processes.len().saturating_sub(self.plan.members);
        if wait == WaitEnd::GivenUp && restarted > 0 {
            self.violate(format!("p{process} waits in vain for links in the calm"));
        }
        if restarted > 0 && restarted < ROLLS * self.plan.members {
            let roll = MemberHappening::Roll { next: restarted };
            self.schedule.after(ROLL_PAUSE_US, roll);
        }
    }

    /// Each loop notes how far members' confirmations rose; the ceiling of the own clock is raised.
    fn sweep(&mut self, process: usize) {
        if !self.processes[process].is_alive {
            return;
        }
        let mut confirmed = std::mem::take(&mut self.processes[process].confirmed);
        let own = self.processes[process].member;
        for to in (0..self.plan.members).filter(|&to| to != own) {
            for lane in 0..self.plan.loops {
                let clock = confirmed.remove(&(lane, to)).unwrap_or_default();
                let member = index(to);
                self.tell_and_note(process, MemberEvent::Confirmed { member, clock });
            }
        }
        let now_us = self.schedule.now_us();
        let it = &self.processes[process];
        if it.machine.due_us().is_some_and(|due_us| due_us <= now_us) {
            self.tell(process, MemberEvent::Tick);
        }
        let swept = &mut self.processes[process];
        swept.clock = swept.clock.max(now_us);
        let clock = swept.clock;
        if self.folders[swept.folder].ceiling < clock + CEILING_US / 2 {
            self.commit(process, FolderCommit::Ceiling(clock + CEILING_US));
        }
        self.schedule
            .after(SWEEP_US, MemberHappening::Sweep { process });
    }

    /// Tells an event that leads only to notes for which no step waits.
    fn tell_and_note(&mut self, process: usize, event: MemberEvent) {
        for effect in self.tell(process, event) {
            if let MemberEffect::WriteNote(note) = effect {
                self.write_note(process, note, None);
            }
        }
    }

    fn write_note(&mut self, process: usize, note: PeerNote, then: Option<Dial>) {
        self.numbers += 1;
        let number = self.numbers;
        self.commit(process, FolderCommit::Note { note, number, then });
    }

    fn commit(&mut self, process: usize, commit: FolderCommit) {
        self.numbers += 1;
        let number = self.numbers;
        self.processes[process].commits.insert(number, commit);
        let delay_us = 1 + self.prng.below(self.plan.commit_us);
        self.schedule
            .after(delay_us, MemberHappening::Commit { process, number });
    }

    fn committed(&mut self, process: usize, number: u64) {
        let it = &mut self.processes[process];
        let Some(commit) = it.commits.remove(&number) else {
            return;
        };
        self.folders[it.folder].take(&commit);
        let FolderCommit::Note { note, then, .. } = commit else {
            return;
        };
        let rest = self.tell(process, MemberEvent::NoteWritten(note));
        match then {
            Some(dial) => self.go_on(process, dial, rest),
            None => debug_assert!(rest.is_empty(), "nothing waits for it"),
        }
    }
}
