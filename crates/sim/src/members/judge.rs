//! The checker: the world's observations, against the machines' decisions.
//!
//! | rule | when |
//! |---|---|
//! | no process is welcomed on an older image, on another folder, or beside links to another one | `Welcome` |
//! | a process on the folder of its member is welcomed, unless links to another one are up | `Reject` |
//! | a process counts when the note about it is durable | `Admit` |
//! | processes count one after the other, by rising numbers of starts | each frame |
//! | no process starts that a member refuses, and no other one ends | `OpenLinks`, `Stop` |
//! | a ready process has its links, and those of the members that admit it | `Ready` |
//!
//! Invariants
//! 1. The checker uses frames, durable notes and the plan, and never asks a machine.
//! 2. A member is tainted when an impostor has begun to count somewhere: then its true folder may
//!    be refused. No other member is excused.
//!
//! Not here: the events themselves (`mod.rs`).

use super::MemberWorld;
use crate::check::{Rule, Violation};
use dendra_ownership::membership::{Disowned, FolderVerdict, STILL_THERE};

/// A confirmation is noted after this: the pause between notes, a sweep and a commit.
const NOTED_US: u64 = 1_300_000;

impl MemberWorld {
    pub(super) fn violate(&mut self, what: String) {
        let now_us = self.schedule.now_us();
        self.trace.line(now_us, || format!("VIOLATION {what}"));
        let rule = Rule::Membership;
        self.violations.push(Violation { rule, what });
    }

    fn is_genuine(&self, process: usize) -> bool {
        self.folders[self.processes[process].folder].is_genuine
    }

    /// Does `by` have links to another process of the member?
    fn has_another(&self, by: usize, process: usize) -> bool {
        let member = self.processes[process].member;
        self.processes[by]
            .linked_to(member)
            .any(|other| other != process)
    }

    /// `by` would admit a process.
    pub(super) fn judge_welcome(&mut self, by: usize, process: usize) {
        if !self.is_genuine(by) {
            return;
        }
        let claim = self.processes[process].claim;
        let member = self.processes[process].member;
        let seen = &self.seen[self.processes[by].folder][member];
        let now_us = self.schedule.now_us();
        let mut why = None;
        if let Some(admitted) = seen.admitted {
            if admitted.node != claim.node {
                why = Some("on another folder");
            } else if admitted.boot > claim.boot {
                why = Some("with fewer starts");
            } else if admitted.boot == claim.boot && admitted.life != claim.life {
                why = Some("that is a twin");
            }
        }
        let is_behind = seen.confirmed.iter().any(|(at_us, clock, life)| {
            at_us + NOTED_US <= now_us && *clock > claim.clock && *life != claim.life
        });
        if is_behind {
            why = Some("behind its confirmations");
        }
        if self.has_another(by, process) {
            why = Some("beside links to another one");
        }
        if let Some(why) = why {
            self.violate(format!("p{by} welcomes p{process} of m{member} {why}"));
        }
    }

    /// `by` refuses a process.
    pub(super) fn judge_reject(&mut self, by: usize, process: usize, code: &str) {
        let member = self.processes[process].member;
        let is_excused = !self.is_genuine(by)
            || !self.is_genuine(process)
            || self.is_tainted[member]
            || (code == STILL_THERE && self.has_another(by, process));
        if !is_excused {
            self.violate(format!("p{by} refuses p{process} of m{member}: {code}"));
        }
    }

    /// A note about a process is begun.
    pub(super) fn begins_to_count(&mut self, process: usize) {
        if !self.is_genuine(process) {
            let member = self.processes[process].member;
            self.is_tainted[member] = true;
        }
    }

    /// From here on `life` is the member, for `by`.
    pub(super) fn judge_admit(&mut self, by: usize, process: usize, life: u64) {
        let claim = self.processes[process].claim;
        let member = self.processes[process].member;
        let folder = self.processes[by].folder;
        let noted = self.folders[folder].notes[member].map(|(_, peer)| peer);
        let is_durable =
            noted.is_some_and(|noted| noted.life == claim.life || noted.boot > claim.boot);
        if !is_durable {
            self.violate(format!(
                "p{by} counts p{process} of m{member}, and has noted {noted:?}"
            ));
        }
        if life == claim.life {
            self.seen[folder][member].admitted = Some(claim);
        }
        self.begins_to_count(process);
    }

    /// A frame of `process` counted for `by`.
    pub(super) fn judge_count(&mut self, by: usize, process: usize, confirmed: Option<u64>) {
        let claim = self.processes[process].claim;
        let member = self.processes[process].member;
        let now_us = self.schedule.now_us();
        let seen = &mut self.seen[self.processes[by].folder][member];
        let before = seen.counted.replace(claim);
        if let Some(clock) = confirmed {
            seen.confirmed.push((now_us, clock, claim.life));
        }
        let Some(before) = before.filter(|before| before.life != claim.life) else {
            return;
        };
        if before.boot >= claim.boot || before.node != claim.node {
            self.violate(format!(
                "p{by} counts p{process} of m{member}, start {}, after start {}",
                claim.boot, before.boot
            ));
        }
    }

    /// The process of a folder ends: confirmations that it had no time to note are forgotten.
    pub(super) fn forget_unnoted(&mut self, process: usize) {
        let now_us = self.schedule.now_us();
        for seen in &mut self.seen[self.processes[process].folder] {
            seen.confirmed
                .retain(|(at_us, ..)| at_us + NOTED_US <= now_us);
        }
    }

    /// The start of a process goes on.
    pub(super) fn judge_links_open(&mut self, process: usize) {
        if let Some(by) = self.processes[process].refused_by.first() {
            self.violate(format!("p{process} starts although m{by} refuses it"));
        }
    }

    /// A process has to end.
    pub(super) fn judge_stop(&mut self, process: usize, why: &Disowned) {
        let member = self.processes[process].member;
        let mut others = self.processes.iter().enumerate();
        let has_rival = others.any(|(at, other)| {
            let is_usable = why.folder == FolderVerdict::Usable;
            at != process && other.member == member && other.is_alive && is_usable
        });
        if self.is_genuine(process) && !self.is_tainted[member] && !has_rival {
            self.violate(format!(
                "p{process} of m{member} has to end: {}",
                why.sentence
            ));
        }
    }

    /// A process is ready, and no member was given up.
    pub(super) fn judge_ready(&mut self, process: usize) {
        let it = &self.processes[process];
        let loops = self.plan.loops;
        let missing = it.hosts.iter().find(|&&host| {
            let has = |set: &std::collections::BTreeSet<(u16, usize)>| {
                (0..loops).all(|lane| set.contains(&(lane, host)))
            };
            (!it.is_late && !has(&it.tried)) || !has(&it.accepted)
        });
        if let Some(host) = missing {
            self.violate(format!(
                "p{process} is ready without all links to and from m{host}"
            ));
        }
    }

    /// Before a member of a rolling restart ends: all others reach a majority without it.
    pub(super) fn judge_roll(&mut self, next: usize) {
        let majority = self.plan.members / 2 + 1;
        let mut lost = None;
        for (at, it) in self.processes.iter().enumerate() {
            if !it.is_alive || it.member == next {
                continue;
            }
            for lane in 0..self.plan.loops {
                let links = it.links.keys();
                let reached = links.filter(|(of, to)| *of == lane && *to != next);
                if 1 + reached.count() < majority {
                    lost = Some((at, lane));
                }
            }
        }
        if let Some((at, lane)) = lost.filter(|_| self.plan.members > 2) {
            self.violate(format!(
                "loop {lane} of p{at} reaches no majority when m{next} is restarted"
            ));
        }
    }

    /// In the end all members are ready, and linked from each loop.
    pub(super) fn judge_end(&mut self) {
        let members = (0..self.plan.members).filter(|&member| !self.is_tainted[member]);
        let members: Vec<usize> = members.collect();
        for &member in &members {
            let Some(process) = self.address[member] else {
                self.violate(format!("m{member} does not run in the end"));
                continue;
            };
            let it = &self.processes[process];
            let is_ready = it.is_ready;
            let lanes =
                (0..self.plan.loops).flat_map(|lane| members.iter().map(move |to| (lane, *to)));
            let missing: Vec<(u16, usize)> = lanes
                .filter(|place| place.1 != member && !it.links.contains_key(place))
                .collect();
            if !is_ready {
                self.violate(format!("p{process} of m{member} is not ready in the end"));
            }
            if let Some((lane, to)) = missing.first() {
                self.violate(format!("loop {lane} of m{member} has no link to m{to}"));
            }
        }
    }
}
