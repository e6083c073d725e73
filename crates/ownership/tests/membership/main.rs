//! Golden scripts of the membership machine: the actions of one process, `a`, towards the others.
//!
//! ```text
//! tests/membership/scripts/*.txt     # what this shows
//!                                    > a command           below it: every effect of it
//! DENDRA_BLESS=1 cargo test -p dendra-ownership --test membership     writes down what happens now
//! ```
//!
//! | command | event |
//! |---|---|
//! | `process 2 loops` | a new process with the durable notes; the first one of a script has none |
//! | `doubted process 2 loops` | the same on a folder that was refused at an earlier start |
//! | `epoch 8`, `epoch 8 folder b 7` | the process adopts an epoch, in which `b` has node 7 |
//! | `hail b node 2 start 3 life 31 clock 40` | `Hailed`; `clock` in milliseconds, without one 0 |
//! | `claim b …`, `up b loop 0 …` | `Claimed`, `LinkUp` |
//! | `written`, `lost` | the oldest note under way is durable, or never will be |
//! | `down b confirmed 50`, `confirmed b 50` | `LinkDown`, `Confirmed` |
//! | `no-link b loop 0 farewell twin` | `NoLink`; also `forged twin`, `status 409`, `silence` |
//! | `… farewell twin epoch 8 others 4` | the same of a member at epoch 8, which has 4 others; else 1, 2 |
//! | `start`, `answer b 2 loops`, `answer b farewell twin` | `StartAsked`, `StartAnswered` |
//! | `tried b loop 0`, `heard b loop 1`, `stop` | `Tried`, `Heard`, `Stopping` |
//! | `advance 500ms` | time passes; `Tick` when it is due |
//!
//! Invariants
//! 1. A script that differs from the run fails, with both sides.
//!
//! Not here: several processes at once (crate `sim`, `members/`); sentences
//! (`src/membership/identity/tests.rs`).
//! See: docs/peer.md, docs/protocol.md.

#[path = "../../../base/tests/scripts/mod.rs"]
mod scripts;

use dendra_ownership::membership::identity::Peer;
use dendra_ownership::membership::{
    FolderVerdict, Maker, MemberEffect, MemberEvent, NoLink, NoteFor, PeerNote, WaitEnd,
};
use dendra_ownership::{MemberIndex, Membership, Topology};
use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;

const MEMBERS: usize = 3;
/// Of a clock value: the bits below its milliseconds.
const COUNTER_BITS: u32 = 16;

/// Words of a command, read from the left.
struct Words<'a>(std::str::SplitWhitespace<'a>);

impl<'a> Words<'a> {
    fn next(&mut self) -> &'a str {
        self.0.next().expect("one more word")
    }

    fn skip(&mut self, word: &str) {
        assert_eq!(self.next(), word);
    }

    fn number(&mut self) -> u64 {
        let word = self.next().trim_end_matches("ms");
        word.parse().expect("a number")
    }

    fn after(&mut self, word: &str) -> u64 {
        self.skip(word);
        self.number()
    }

    fn member(&mut self) -> MemberIndex {
        MemberIndex(self.next().as_bytes()[0] - b'a')
    }

    fn claim(&mut self) -> Peer {
        Peer {
            node: self.after("node").into(),
            boot: self.after("start"),
            life: self.after("life"),
            clock: match self.0.next() {
                Some("clock") => self.number() << COUNTER_BITS,
                Some(other) => panic!("{other} is no part of a claim"),
                None => 0,
            },
        }
    }

    fn farewell(&mut self) -> String {
        let code = self.next();
        let (epoch, others) = match self.0.next() {
            Some("epoch") => (self.number(), self.after("others")),
            Some(other) => panic!("{other} is no part of a farewell"),
            None => (1, 2),
        };
        format!("{code} epoch={epoch} others={others}: a sentence")
    }

    /// Of a try of the process at epoch `own`.
    fn no_link(&mut self, own: u64) -> NoLink {
        let kind = self.next();
        let url = "http://b:1";
        match kind {
            "farewell" => NoLink::of_farewell(url, &self.farewell(), Maker::Member, own),
            "forged" => NoLink::of_farewell(url, &self.farewell(), Maker::Anyone, own),
            "status" => NoLink::of_status(self.number() as u16, "a sentence"),
            "silence" => NoLink::from("it did not answer in time"),
            other => panic!("{other} is no answer"),
        }
    }
}

fn name(member: MemberIndex) -> char {
    char::from(b'a' + member.0)
}

fn of(peer: &Peer) -> String {
    let Peer {
        node,
        boot,
        life,
        clock,
    } = peer;
    format!(
        "node {node} start {boot} life {life} clock {}",
        clock >> COUNTER_BITS
    )
}

fn wait(wait: WaitEnd) -> &'static str {
    match wait {
        WaitEnd::Over => "",
        WaitEnd::GivenUp => ", although not all is there",
    }
}

/// The process, and the disk under it.
struct Site {
    topology: Arc<Topology>,
    process: Membership,
    durable: [Option<Peer>; MEMBERS],
    under_way: VecDeque<PeerNote>,
    now_us: u64,
}

impl Site {
    fn new(loops: u16) -> Site {
        let urls = (0..MEMBERS).map(|at| format!("http://{}:1", char::from(b'a' + at as u8)));
        let urls = urls.map(|url| url.parse().expect("a member"));
        let topology = Topology::new("script", urls.collect(), 3).expect("a topology");
        let topology = Arc::new(topology);
        Site {
            process: Membership::new(&topology, MemberIndex(0), (loops, false), [None; MEMBERS]),
            topology,
            durable: [None; MEMBERS],
            under_way: VecDeque::new(),
            now_us: 1_000_000,
        }
    }

    fn tell(&mut self, event: MemberEvent, out: &mut String) {
        let mut effects = Vec::new();
        self.process.step(self.now_us, event, &mut effects);
        for effect in effects {
            let line = match effect {
                MemberEffect::Welcome => "welcome".to_owned(),
                MemberEffect::Admit { member, life } => {
                    format!("admit {} life {life}", name(member))
                }
                MemberEffect::Reject(rejected) => format!("reject {}", rejected.code),
                MemberEffect::WriteNote(note) => {
                    self.under_way.push_back(note);
                    let waits = match note.purpose {
                        NoteFor::Claim => "the process waits",
                        NoteFor::Clock => "nothing waits",
                    };
                    format!("note {}: {}; {waits}", name(note.member), of(&note.peer))
                }
                MemberEffect::Ask { member } => format!("ask {}", name(member)),
                MemberEffect::OpenLinks => "open links".to_owned(),
                MemberEffect::OpenDoor(over) => format!("open the door{}", wait(over)),
                MemberEffect::Ready(over) => format!("ready{}", wait(over)),
                MemberEffect::Stop(why) => match why.folder {
                    FolderVerdict::Usable => "stop".to_owned(),
                    FolderVerdict::Doubted => "stop, the folder is doubted".to_owned(),
                    FolderVerdict::Refused => "stop, the folder is refused for ever".to_owned(),
                },
            };
            writeln!(out, "{line}").expect("a string takes everything");
        }
        if let Some(why) = self.process.shut_out() {
            let why = why.split(": ").next().unwrap_or_default();
            writeln!(out, "({why})").expect("a string takes everything");
        }
    }

    fn begin(&mut self, loops: u16, is_doubted: bool) {
        self.under_way.clear();
        let (me, how) = (MemberIndex(0), (loops, is_doubted));
        self.process = Membership::new(&self.topology, me, how, self.durable);
    }

    fn adopt(&mut self, words: &mut Words<'_>) {
        let epoch = words.number();
        let topology = Topology::clone(&self.topology).at_epoch(epoch);
        self.topology = Arc::new(topology);
        let folder = words.0.next().map(|word| {
            assert_eq!(word, "folder");
            (words.member(), words.number().into())
        });
        self.process.adopt(&self.topology, [], folder);
    }

    fn command(&mut self, line: &str, out: &mut String) {
        let words = &mut Words(line.split_whitespace());
        let event = match words.next() {
            "process" => {
                let loops = words.number() as u16;
                self.begin(loops, false);
                return;
            }
            "doubted" => {
                words.skip("process");
                let loops = words.number() as u16;
                self.begin(loops, true);
                return;
            }
            "epoch" => return self.adopt(words),
            "advance" => {
                self.now_us += words.number() * 1_000;
                if self
                    .process
                    .due_us()
                    .is_none_or(|due_us| due_us > self.now_us)
                {
                    return;
                }
                MemberEvent::Tick
            }
            "written" => {
                let note = self.under_way.pop_front().expect("a note is under way");
                self.durable[note.member.at()] = Some(note.peer);
                MemberEvent::NoteWritten(note)
            }
            "lost" => {
                self.under_way.pop_front().expect("a note is under way");
                return;
            }
            "hail" => MemberEvent::Hailed {
                member: words.member(),
                claim: words.claim(),
            },
            "claim" => MemberEvent::Claimed {
                member: words.member(),
                claim: words.claim(),
            },
            "up" => MemberEvent::LinkUp {
                member: words.member(),
                lane: words.after("loop") as u16,
                claim: words.claim(),
            },
            "down" => MemberEvent::LinkDown {
                member: words.member(),
                confirmed: words.after("confirmed") << COUNTER_BITS,
            },
            "confirmed" => MemberEvent::Confirmed {
                member: words.member(),
                clock: words.number() << COUNTER_BITS,
            },
            "no-link" => MemberEvent::NoLink {
                member: words.member(),
                lane: words.after("loop") as u16,
                why: words.no_link(self.topology.epoch()),
            },
            "start" => MemberEvent::StartAsked,
            "answer" => {
                let member = words.member();
                let is_welcome = line.ends_with(" loops");
                let answer = if is_welcome {
                    Ok(words.number() as u16)
                } else {
                    Err(words.no_link(self.topology.epoch()))
                };
                MemberEvent::StartAnswered { member, answer }
            }
            "tried" => MemberEvent::Tried {
                member: words.member(),
                lane: words.after("loop") as u16,
            },
            "heard" => MemberEvent::Heard {
                member: words.member(),
                lane: words.after("loop") as u16,
            },
            "stop" => MemberEvent::Stopping,
            other => panic!("{other} is no command"),
        };
        self.tell(event, out);
    }
}

#[test]
fn a_process_does_what_the_scripts_say() {
    scripts::check("tests/membership/scripts", 9, || {
        let mut site = Site::new(1);
        move |command: &str, out: &mut String| site.command(command, out)
    });
}
