//! Questions of members while clients stand in line.
//!
//! ```text
//! a crowd of clients ─► the loop's line ─┐
//! a client like them ─► the loop's line ─┼─► one loop: how many of the crowd have an answer in front of it?
//! a member's link ───────────────────────┘
//! ```
//!
//! Invariants
//! 1. The target is so small that any delay is above it; how many stand in line is real.
//!
//! Not here: the order among clients (`standing.rs`).
//! See: docs/overload.md, "Classes and their shares".

mod support;

use dendra_base::peer::{Answer as PeerAnswer, Ask, Readiness};
use dendra_engine::vfs::MemVfs;
use dendra_wire::peer::{Message, decode, encode_ask};
use rustix::io::ioctl_fionread;
use rustix::net::{RecvFlags, recv};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::asker::{Session, greet, question, read, write};
use support::guest::{GUEST, SECRET, hello, node_on_with};
use support::link::Opened;
use support::{Client, Node, PATIENCE};

const CLIENTS: usize = 200;
/// Work for longer than a client needs to send it.
const PIPELINED: usize = 100;
const TARGET: Duration = Duration::from_micros(1);
/// Refused when it is read, so that no other member is asked.
const GET: &[u8] = b"GET /v0/entity?id= HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn ask(clients: &mut [Client]) {
    let requests = GET.repeat(PIPELINED);
    for client in clients {
        client.send(&requests);
    }
}

fn hear(clients: &mut [Client]) {
    for client in clients {
        for _ in 0..PIPELINED {
            let status = client.read("GET").status;
            assert!([400, 503].contains(&status), "{status}");
        }
    }
}

fn overload(node: &Node, crowd: &mut [Client]) {
    let until = Instant::now() + PATIENCE;
    while node.metric("dendra_overloaded_loops ") == 0.0 {
        assert!(Instant::now() < until, "no loop is overloaded");
        ask(crowd);
        hear(crowd);
    }
}

/// One that asks in the midst of the crowd.
enum Asker<'a> {
    Member(&'a mut Opened),
    /// A member that asks over plain HTTP.
    Plain(&'a mut Client, &'a Session),
    Client(&'a mut Client),
}

impl Asker<'_> {
    fn send(&mut self) {
        match self {
            Asker::Member(link) => {
                link.ask(1, read(b"k"));
            }
            Asker::Plain(client, session) => {
                let frame = session.encoded(&question(1, read(b"k")));
                let head = format!(
                    "POST /v0/peer/ask HTTP/1.1\r\nHost: localhost\r\nDendra-Peer-Proof: {}\r\n\
                     Content-Length: {}\r\n\r\n",
                    session.token,
                    frame.len()
                );
                client.send(&[head.as_bytes(), &frame].concat());
            }
            Asker::Client(client) => client.send(GET),
        }
    }

    fn hear(&mut self) {
        match self {
            Asker::Member(link) => {
                let (_, answer) = link.answer();
                assert!(matches!(answer, PeerAnswer::Cell(Some(_))), "{answer:?}");
            }
            Asker::Plain(client, session) => {
                let answer = client.read("POST");
                assert_eq!(answer.status, 200, "{}", answer.text());
                let said = session.decoded(answer.body);
                assert!(matches!(said, Ok(Message::Answer { .. })), "{said:?}");
            }
            Asker::Client(client) => {
                let status = client.read("GET").status;
                assert!([400, 503].contains(&status), "{status}");
            }
        }
    }
}

/// How many of the crowd, in hundredths, have an answer when the one in their midst has its own.
fn in_front(node: &Node, crowd: &mut [Client], mut asker: Asker<'_>) -> usize {
    overload(node, crowd);
    let (before, behind) = crowd.split_at_mut(CLIENTS / 4);
    ask(before);
    asker.send();
    ask(behind);
    asker.hear();
    let has_answer = |client: &&Client| {
        let mut byte = [0; 1];
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        recv(&client.stream, &mut byte[..], flags).is_ok()
    };
    let answered = crowd.iter().filter(has_answer).count();
    hear(crowd);
    answered * 100 / CLIENTS
}

/// Questions of a member that a loop reads in one go.
const FLOOD: u64 = 600;

#[test]
fn a_client_is_answered_in_the_midst_of_a_member_s_questions() {
    let node = node_on_with(Arc::new(MemVfs::new()), |settings| {
        settings.queue_delay_target = TARGET;
    });
    let mut link = Opened::proven(&node, 1);
    link.ask(1, write(b"k", &[7; 100]));
    link.answer();
    let mut crowd: Vec<_> = (0..CLIENTS).map(|_| node.client()).collect();
    let addr = node.running().addr();
    let mut client = Client::connect_from(Ipv4Addr::new(127, 0, 0, 2), addr);
    let question = question(2, read(b"k"));
    link.ask(2, read(b"k"));
    let answer = link.frame().expect("an answer");
    decode(&answer, &mut link.checking).expect("a frame of a member");
    let all = FLOOD as usize * answer.len();
    let mut holds = || {
        overload(&node, &mut crowd);
        ask(&mut crowd);
        link.say(|out, seal, _| {
            for _ in 0..FLOOD {
                encode_ask(out, seal, &question);
            }
        });
        // The loop has read the flood, and is in the midst of it.
        let mut byte = [0; 1];
        recv(&link.stream, &mut byte[..], RecvFlags::PEEK).expect("an answer");
        client.send(GET);
        client.read("GET");
        // The answers that had left the loop before the client's.
        let there = ioctl_fionread(&link.stream).expect("a socket tells") as usize;
        for _ in 0..FLOOD {
            link.answer();
        }
        hear(&mut crowd);
        println!("{there} of {all} bytes of answers in front");
        there > 0 && there < all / 8 * 7
    };
    // A busy machine can spoil a comparison of times.
    assert!((0..30).any(|_| holds()), "all at once or none");
}

#[test]
fn a_member_whose_processor_has_too_much_to_do_is_behind_until_that_is_over() {
    let node = node_on_with(Arc::new(MemVfs::new()), |settings| {
        settings.queue_delay_target = TARGET;
    });
    let mut link = Opened::proven(&node, 1);
    let mut readiness = || {
        link.ask(1, Ask::Clock);
        match link.answer() {
            (_, PeerAnswer::Clock { readiness, .. }) => readiness,
            other => panic!("{other:?} is no clock"),
        }
    };
    assert_eq!(readiness(), Readiness::Ready);
    let mut crowd: Vec<_> = (0..CLIENTS).map(|_| node.client()).collect();
    let until = Instant::now() + PATIENCE;
    let mut said = Readiness::Ready;
    while said != Readiness::Behind {
        assert!(Instant::now() < until, "it never was behind");
        overload(&node, &mut crowd);
        ask(&mut crowd);
        said = readiness();
        hear(&mut crowd);
    }
    node.wait_for_metric("dendra_overloaded_loops ", 0.0);
    assert_eq!(readiness(), Readiness::Ready);
}

#[test]
fn a_question_of_a_member_does_not_wait_for_a_crowd_of_clients() {
    let node = node_on_with(Arc::new(MemVfs::new()), |settings| {
        settings.queue_delay_target = TARGET;
    });
    let mut link = Opened::proven(&node, 1);
    link.ask(1, write(b"k", &[7; 2_000]));
    let (_, written) = link.answer();
    assert!(matches!(written, PeerAnswer::Written(_)), "{written:?}");
    let mut crowd: Vec<_> = (0..CLIENTS).map(|_| node.client()).collect();
    let mut alike = node.client();
    let mut plain = node.client();
    let session = greet(&mut plain, &hello(GUEST, 2), SECRET);
    let holds = || {
        let mut counts = [Vec::new(), Vec::new(), Vec::new()];
        for _ in 0..7 {
            counts[0].push(in_front(&node, &mut crowd, Asker::Member(&mut link)));
            // It still lives.
            link.ask(2, read(b"k"));
            assert!(matches!(link.answer(), (2, PeerAnswer::Cell(Some(_)))));
            counts[1].push(in_front(&node, &mut crowd, Asker::Client(&mut alike)));
            let asker = Asker::Plain(&mut plain, &session);
            counts[2].push(in_front(&node, &mut crowd, asker));
        }
        let [member, client, plain] = counts.map(|mut counts| {
            counts.sort_unstable();
            counts[3]
        });
        println!(
            "in front of a member's {member} %, over HTTP {plain} %, of a client's {client} %"
        );
        // Where the crowd asks slower than the loop answers, none waits for others.
        client >= 30 && 2 * member < client && 2 * plain < client
    };
    assert!(std::iter::repeat_with(holds).take(20).any(|holds| holds));
}
