//! Members over plain HTTP, with a member on the other side that a test plays. The tests say which
//! questions are let in or refused, and how an asker goes on when connections and tokens are lost.
//!
//! ```text
//! Guest (the test) ── hello, token, questions ─► a node                  who may ask what
//! a node ─► Host (the test): answers, closes, refuses, by script         how a node asks
//! ```
//!
//! Invariants
//! 1. Ports are the system's choice, and no thread waits by sleeping: a wait ends with its
//!    condition.
//!
//! Not here: clusters of real processes (crate `dendra`, `tests/cluster.rs`), frames as bytes
//! (crate `wire`). See: docs/peer.md, section "Over plain HTTP".

mod support;

use dendra_base::ClusterVersions;
use dendra_base::peer::{Answer, Ask, Readiness, Refused};
use dendra_server::settings::PeerTransport;
use dendra_wire::limits::PEER_FRAME_BYTES_MAX;
use dendra_wire::peer::hello::accept;
use dendra_wire::peer::{
    Hello, Message, PROOF_FRAME_BYTES, Proof, Role, Seal, SessionKeys, decode, encode_alive,
    encode_answer, encode_ask, encode_farewell, encode_probe, encode_welcome,
};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use support::Node;
use support::asker::{Session, answer_to, ask, greet, question, read, write};
use support::guest::{GUEST, SECRET, hello, node};

#[test]
fn a_member_shakes_hands_and_asks_by_plain_requests() {
    let node = node(GUEST, PeerTransport::Frames);
    let mut client = node.client();
    let token = greet(&mut client, &hello(GUEST, 1), SECRET);
    let welcome = token.hail(&mut client);
    assert_eq!(token.decoded(welcome.body), Ok(Message::Welcome));
    let clock = answer_to(&mut client, &token, &question(1, Ask::Clock));
    let Answer::Clock {
        hlc, wall_ms, kept, ..
    } = clock
    else {
        panic!("{clock:?} is no clock");
    };
    assert!(hlc > 0 && wall_ms > 0 && kept > 0);
    // Whichever connection, however framed, however large.
    let mut other = node.client();
    let value = vec![7; 100_000];
    let written = answer_to(&mut other, &token, &question(2, write(b"k", &value)));
    assert!(matches!(written, Answer::Written(version) if version.hlc == 1 << 20));
    let frame = token.encoded(&question(3, read(b"k")));
    let head = format!(
        "POST /v0/peer/ask HTTP/1.1\r\nHost: localhost\r\nDendra-Peer-Proof: {}\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n",
        token.token,
        frame.len()
    );
    client.send(&[head.as_bytes(), &frame[..], &b"\r\n0\r\n\r\n"[..]].concat());
    let chunked = client.read("POST");
    let Ok(Message::Answer { id: 3, answer }) = token.decoded(chunked.body) else {
        panic!("no answer to the chunked question");
    };
    assert!(matches!(answer, Answer::Cell(Some(cell)) if cell.value == value));
    let mut probe = Vec::new();
    encode_probe(&mut probe, &mut token.keys.of_requests(Role::Asker), 4);
    let alive = ask(&mut client, &token.token, &probe);
    assert_eq!(
        token.decoded(alive.body),
        Ok(Message::Alive { id: 4 }),
        "a probe is answered"
    );
}

#[test]
fn a_question_that_was_held_up_is_late_whatever_its_connection() {
    let node = node(GUEST, PeerTransport::Frames);
    let (mut one, mut two) = (node.client(), node.client());
    let token = greet(&mut one, &hello(GUEST, 1), SECRET);
    let first = answer_to(&mut one, &token, &question(1, Ask::Clock));
    assert!(matches!(first, Answer::Clock { .. }));
    // By its own clock it was sent nine seconds before the other one, and arrived after it.
    let mut held_up = question(2, Ask::Clock);
    held_up.sent_ms -= 9_000;
    held_up.stamp.left_ms = 8_000;
    let late = answer_to(&mut two, &token, &held_up);
    assert_eq!(late, Answer::Refused(Refused::Late));
}

#[test]
fn who_does_not_belong_hears_the_same_sentence_over_both_transports() {
    let node = node(GUEST, PeerTransport::Frames);
    let table = [
        ("a line", 400, "peer-hello"),
        ("boot", 400, "peer-hello"),
        ("a stranger", 403, "not-a-member"),
        ("another cluster", 409, "other-cluster"),
        ("another topology", 409, "other-topology"),
        ("no secret", 409, "cluster-secret"),
        ("versions", 409, "peer-version"),
    ];
    for (what, status, code) in table {
        let mut theirs = hello(GUEST, 1);
        match what {
            "a stranger" => theirs.url = "http://10.0.0.3:8080".to_owned(),
            "another cluster" => theirs.cluster ^= 1,
            "another topology" => theirs.topology ^= 1,
            "no secret" => theirs.has_secret = false,
            "versions" => {
                let later = ClusterVersions::OWN.newest.0 + 1;
                (theirs.version_min, theirs.version_max) = (later, later + 2);
            }
            _ => {}
        }
        let line = match what {
            "a line" => String::new(),
            "boot" => format!("Dendra-Peer: {theirs}\r\n").replace("boot=1", "boot=one"),
            _ => format!("Dendra-Peer: {theirs}\r\n"),
        };
        let upgrade = format!("Connection: Upgrade\r\nUpgrade: dendra-peer/1\r\n{line}");
        let frames = node.client().ask("GET", "/v0/peer", &upgrade, b"");
        let http = node.client().ask("POST", "/v0/peer/hello", &line, b"");
        assert_eq!((http.status, frames.status), (status, status), "{what}");
        assert!(http.text().starts_with(code), "{what}: {}", http.text());
        assert_eq!(http.text(), frames.text(), "{what}");
    }
}

#[test]
fn what_is_no_question_of_a_member_is_refused_and_changes_nothing() {
    let node = node(GUEST, PeerTransport::Frames);
    let token = greet(&mut node.client(), &hello(GUEST, 1), SECRET);
    let wrong = greet(&mut node.client(), &hello(GUEST, 2), b"guess");
    let good = token.encoded(&question(1, write(b"k", b"v")));
    let mut plain = Vec::new();
    encode_ask(
        &mut plain,
        &mut Seal::plain(),
        &question(1, write(b"k", b"v")),
    );
    let mut flipped = good.clone();
    flipped[20] ^= 1;
    let mut answer = Vec::new();
    encode_answer(
        &mut answer,
        &mut token.keys.of_requests(Role::Asker),
        1,
        &Answer::Same,
    );
    let twice = [&good[..], &good[..]].concat();
    let cut = &good[..good.len() - 1];
    let (session, token) = (&token, &token.token);
    let wrong = &wrong.token;
    let table: [(&str, Option<&Proof>, &[u8], u16, &str); 10] = [
        ("no token", None, &good, 403, "peer-token"),
        ("without a key", Some(token), &plain, 400, "peer-frame"),
        ("of another secret", Some(wrong), &good, 403, "peer-token"),
        ("nothing", Some(token), b"", 400, "peer-frame"),
        ("garbage", Some(token), &[7; 100], 400, "peer-frame"),
        ("a bit", Some(token), &flipped, 400, "peer-frame"),
        ("cut", Some(token), cut, 400, "peer-frame"),
        ("twice", Some(token), &twice, 400, "peer-frame"),
        ("an answer", Some(token), &answer, 400, "peer-frame"),
        ("a word", None, b"hello", 403, "peer-token"),
    ];
    for (what, token, body, status, code) in table {
        let line = match token {
            Some(token) => format!("Dendra-Peer-Proof: {token}\r\n"),
            None if what == "no token" => String::new(),
            None => "Dendra-Peer-Proof: 00\r\n".to_owned(),
        };
        let refused = node.client().ask("POST", "/v0/peer/ask", &line, body);
        assert_eq!(refused.status, status, "{what}: {}", refused.text());
        assert!(
            refused.text().starts_with(code),
            "{what}: {}",
            refused.text()
        );
    }
    // Longer than any frame: refused before a byte of it is read.
    let mut client = node.client();
    let length = PEER_FRAME_BYTES_MAX + 1;
    client.send(
        format!("POST /v0/peer/ask HTTP/1.1\r\nHost: localhost\r\nDendra-Peer-Proof: {token}\r\nContent-Length: {length}\r\n\r\n")
            .as_bytes(),
    );
    assert_eq!(client.read("POST").status, 413);
    // Half of a question, and no more: the other half never comes.
    let mut client = node.client();
    client.send(
        format!("POST /v0/peer/ask HTTP/1.1\r\nHost: localhost\r\nDendra-Peer-Proof: {token}\r\nContent-Length: {}\r\n\r\n", good.len())
            .as_bytes(),
    );
    client.send(&good[..good.len() / 2]);
    drop(client);
    let mut client = node.client();
    let found = answer_to(&mut client, session, &question(2, read(b"k")));
    assert_eq!(found, Answer::Cell(None));
    // The same bytes with the right token are a question.
    let written = answer_to(&mut client, session, &question(3, write(b"k", b"v")));
    assert!(matches!(written, Answer::Written(_)));
}

#[test]
fn a_later_life_of_a_member_ends_the_tokens_of_the_one_before() {
    let node = node(GUEST, PeerTransport::Frames);
    let mut client = node.client();
    let first = greet(&mut client, &hello(GUEST, 1), SECRET);
    answer_to(&mut client, &first, &question(1, Ask::Clock));
    let later = Hello {
        boot: 2,
        life: 0x12fe,
        lane: 1,
        ..hello(GUEST, 2)
    };
    let second = greet(&mut client, &later, SECRET);
    // Not before the new life has proven that it knows the secret.
    answer_to(&mut client, &first, &question(2, Ask::Clock));
    answer_to(&mut client, &second, &question(3, Ask::Clock));
    let frame = first.encoded(&question(4, Ask::Clock));
    assert_eq!(ask(&mut client, &first.token, &frame).status, 403);
    // And an older life is not let in again.
    let older = greet(&mut client, &hello(GUEST, 3), SECRET);
    let Ok(Message::Farewell(said)) = older.decoded(older.hail(&mut client).body) else {
        panic!("an older life is let in");
    };
    assert!(said.starts_with("rolled-back"), "{said}");
    // Nor does it end what the later one has.
    answer_to(&mut client, &second, &question(5, Ask::Clock));
}

#[test]
fn a_node_by_itself_has_no_peers() {
    let node = Node::start();
    for path in ["/v0/peer/hello", "/v0/peer/ask"] {
        let refused = node.client().ask("POST", path, "", b"");
        assert_eq!(refused.status, 501, "{path}");
    }
}

/// The reaction of the member that the test plays to a question that is no probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    Answer,
    /// Closes the connection without a byte.
    Close,
    /// Knows the token no more.
    Forget,
    /// An intermediary has no member behind it.
    Gateway,
    /// Has no room on its disk.
    Full,
}

/// How the member that the test plays refuses the next hellos.
#[derive(Clone, Debug)]
struct Refusing {
    code: &'static str,
    /// The secret that its farewell is made with; without one it refuses the hello itself.
    secret: Option<&'static [u8]>,
    /// In place of its url.
    url: Option<&'static str>,
}

impl Refusing {
    fn sentence(&self) -> String {
        format!("{} epoch=1 others=1: it says so", self.code)
    }
}

/// A handshake over plain HTTP, by its token as text, and how it ends if it is refused.
struct Greeted {
    token: String,
    keys: SessionKeys,
    farewell: Option<String>,
}

#[derive(Default)]
struct Seen {
    greeted: Vec<Greeted>,
    refusals: Vec<Refusing>,
    deeds: Vec<Deed>,
    hellos: usize,
    connections: usize,
    done: Vec<Done>,
    /// How far its wall clock is ahead.
    ahead_ms: u64,
    /// The state of its store that it tells beside its clock.
    readiness: Readiness,
    /// Values that were sent to it.
    values: usize,
}

/// A deed, and to which connection: one that had carried something before?
#[derive(Clone, Debug)]
struct Done {
    deed: Deed,
    connection: usize,
    is_old: bool,
}

/// A member that the test plays, and that a node asks.
#[derive(Clone)]
struct Host {
    url: String,
    seen: Arc<(Mutex<Seen>, Condvar)>,
}

impl Host {
    fn start() -> Host {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}", listener.local_addr().expect("it is bound"));
        let host = Host {
            url,
            seen: Arc::default(),
        };
        let accepting = host.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let host = accepting.clone();
                let number = {
                    let mut seen = host.seen.0.lock().expect("no holder panics");
                    seen.connections += 1;
                    seen.connections
                };
                std::thread::spawn(move || host.serve(&stream, number));
            }
        });
        host
    }

    /// The deeds that the next questions meet. After them every question is answered.
    fn plan(&self, deeds: &[Deed]) {
        let mut seen = self.seen.0.lock().expect("no holder panics");
        seen.deeds = deeds.to_vec();
        seen.done.clear();
    }

    fn hellos(&self) -> usize {
        self.seen.0.lock().expect("no holder panics").hellos
    }

    fn wait_for(&self, what: &str, is_so: impl Fn(&Seen) -> bool) {
        let (seen, changed) = &*self.seen;
        let seen = seen.lock().expect("no holder panics");
        let waited = changed.wait_timeout_while(seen, Duration::from_secs(20), |seen| !is_so(seen));
        let (_seen, waited) = waited.expect("no holder panics");
        assert!(!waited.timed_out(), "{what}");
    }

    /// Answers a hello.
    fn meet(&self, mut stream: &TcpStream, theirs: &str, is_upgrade: bool) -> Option<()> {
        let (seen, changed) = &*self.seen;
        let mut seen = seen.lock().expect("no holder panics");
        seen.hellos += 1;
        changed.notify_all();
        let refusing = if seen.refusals.is_empty() {
            None
        } else {
            Some(seen.refusals.remove(0))
        };
        let said = refusing.as_ref().map(Refusing::sentence);
        let secret = refusing.as_ref().map_or(Some(SECRET), |by| by.secret);
        let (Some(secret), Some(said)) = (secret, &said) else {
            let Some(said) = said else {
                if is_upgrade {
                    return None;
                }
                let own = hello(&self.url, seen.hellos as u8).to_string();
                let Session { token, keys } = Session::new(SECRET, theirs, &own);
                seen.greeted.push(Greeted {
                    token: token.to_string(),
                    keys,
                    farewell: None,
                });
                drop(seen);
                return write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nDendra-Peer: {own}\r\nContent-Length: 0\r\n\r\n"
                )
                .ok();
            };
            drop(seen);
            let length = said.len() + 1;
            return write!(
                stream,
                "HTTP/1.1 409 Conflict\r\nContent-Length: {length}\r\n\r\n{said}\n"
            )
            .ok();
        };
        let url = refusing.as_ref().and_then(|refusing| refusing.url);
        let own = Hello {
            url: url.unwrap_or(&self.url).to_owned(),
            ..hello(&self.url, seen.hellos as u8)
        };
        let own = own.to_string();
        let keys = SessionKeys::new(Some(secret), theirs, &own);
        let token = Proof::new(SECRET, Role::Asker, theirs, &own).to_string();
        if !is_upgrade {
            seen.greeted.push(Greeted {
                token,
                keys,
                farewell: Some(said.clone()),
            });
            drop(seen);
            return write!(
                stream,
                "HTTP/1.1 200 OK\r\nDendra-Peer: {own}\r\nContent-Length: 0\r\n\r\n"
            )
            .ok();
        }
        drop(seen);
        let mut answer = Vec::new();
        accept(&mut answer, &own);
        stream.write_all(&answer).ok()?;
        // A proof, and a hail with a key.
        stream.read_exact(&mut [0; PROOF_FRAME_BYTES + 32]).ok()?;
        let mut frame = Vec::new();
        encode_farewell(&mut frame, &mut keys.of_link(Role::Acceptor), said);
        stream.write_all(&frame).ok()?;
        None
    }

    fn serve(&self, stream: &TcpStream, number: usize) -> Option<()> {
        let mut reader = BufReader::new(stream);
        let (seen, changed) = &*self.seen;
        for exchanges in 0.. {
            let is_old = exchanges > 0;
            let (mut line, mut target, mut theirs) = (String::new(), String::new(), String::new());
            let (mut token, mut length) = (String::new(), 0);
            reader.read_line(&mut target).ok().filter(|n| *n > 0)?;
            loop {
                line.clear();
                reader.read_line(&mut line).ok()?;
                match line.trim_end().split_once(": ") {
                    Some(("Dendra-Peer", hello)) => hello.clone_into(&mut theirs),
                    Some(("Dendra-Peer-Proof", proof)) => proof.clone_into(&mut token),
                    Some(("Content-Length", n)) => length = n.parse().ok()?,
                    Some(_) => {}
                    None => break,
                }
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).ok()?;
            let mut frame = Vec::new();
            let is_upgrade = target.starts_with("GET /v0/peer ");
            if is_upgrade || target.starts_with("POST /v0/peer/hello ") {
                self.meet(stream, &theirs, is_upgrade)?;
                continue;
            }
            let (keys, farewell) = {
                let seen = seen.lock().expect("no holder panics");
                let mut greeted = seen.greeted.iter();
                let greeted = greeted.find(|greeted| greeted.token == token)?;
                (greeted.keys.clone(), greeted.farewell.clone())
            };
            let mut seal = keys.of_requests(Role::Acceptor);
            let message = decode(&body.into(), &mut keys.of_requests(Role::Asker));
            match message {
                // It may have another secret than the node, and cannot read it then.
                _ if farewell.is_some() => {
                    let said = farewell.as_deref().unwrap_or_default();
                    encode_farewell(&mut frame, &mut seal, said);
                }
                Ok(Message::Hail) => encode_welcome(&mut frame, &mut seal),
                Ok(Message::Probe { id }) => encode_alive(&mut frame, &mut seal, id),
                Ok(Message::Ask(question)) => {
                    let mut seen = seen.lock().expect("no holder panics");
                    seen.values += usize::from(matches!(question.ask, Ask::Write { .. }));
                    let deed = if seen.deeds.is_empty() {
                        Deed::Answer
                    } else {
                        seen.deeds.remove(0)
                    };
                    seen.done.push(Done {
                        deed,
                        connection: number,
                        is_old,
                    });
                    changed.notify_all();
                    match deed {
                        Deed::Answer => {
                            let answer = match question.ask {
                                Ask::Read { .. } => Answer::Cell(None),
                                Ask::Clock => Answer::Clock {
                                    hlc: now_ms() << 16,
                                    wall_ms: now_ms() + seen.ahead_ms,
                                    kept: 0,
                                    readiness: seen.readiness,
                                },
                                _ => Answer::Refused(Refused::Busy),
                            };
                            encode_answer(&mut frame, &mut seal, question.id, &answer);
                        }
                        Deed::Full => {
                            let full = Answer::Refused(Refused::DiskFull);
                            encode_answer(&mut frame, &mut seal, question.id, &full);
                        }
                        Deed::Close => return None,
                        Deed::Forget => {
                            (&*stream)
                                .write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
                                .ok()?;
                            continue;
                        }
                        Deed::Gateway => {
                            (&*stream)
                                .write_all(
                                    b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 3\r\n\r\nno\n",
                                )
                                .ok()?;
                            continue;
                        }
                    }
                }
                other => panic!("a node asked {other:?}"),
            }
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", frame.len());
            (&*stream)
                .write_all(&[head.as_bytes(), &frame[..]].concat())
                .ok()?;
        }
        None
    }
}

/// The time of the wall clock.
fn now_ms() -> u64 {
    let now = std::time::UNIX_EPOCH.elapsed();
    now.expect("it is later than 1970").as_millis() as u64
}

fn a_refusal_is_believed_from_a_member_only(transport: PeerTransport) {
    let host = Host::start();
    let member = Refusing {
        code: "other-node",
        secret: Some(SECRET),
        url: None,
    };
    let mut strangers = vec![
        Refusing {
            secret: None,
            ..member
        },
        Refusing {
            secret: Some(b"guessed"),
            ..member
        },
        Refusing {
            url: Some("http://10.0.0.9:8080"),
            ..member
        },
    ];
    let count = strangers.len();
    let for_now = Refusing {
        code: "other-topology",
        ..member
    };
    strangers.extend(vec![for_now; 9_999]);
    host.seen.0.lock().expect("no holder panics").refusals = strangers;
    let node = node(&host.url, transport);
    let running = node.running.as_ref().expect("it runs");
    host.wait_for("it tries again", |seen| seen.hellos > count + 1);
    assert_eq!(running.disowned(), None);
    host.seen.0.lock().expect("no holder panics").refusals = vec![member; 99];
    let deadline = Instant::now() + Duration::from_secs(20);
    let why = loop {
        match running.disowned() {
            Some(why) => break why,
            None => assert!(Instant::now() < deadline, "it does not believe it"),
        }
        support::rest();
    };
    let url = &host.url;
    let words = format!("{url} does not let this folder in: other-node: it says so");
    assert!(why.starts_with(&words), "{why}");
}

#[test]
fn a_refusal_is_believed_from_a_member_only_over_frames() {
    a_refusal_is_believed_from_a_member_only(PeerTransport::Frames);
}

#[test]
fn a_refusal_is_believed_from_a_member_only_over_plain_http() {
    a_refusal_is_believed_from_a_member_only(PeerTransport::Http);
}

/// Asks the node for a key of which both members must answer, until it says 404. Returns how often
/// it did not: a link was not there, or an answer did not come.
fn ask_both(node: &Node) -> usize {
    let mut client = node.client();
    let deadline = Instant::now() + Duration::from_secs(60);
    for n in 0.. {
        assert!(Instant::now() < deadline, "never answered by both");
        let target = "/v0/entity?id=k&ack=2&from=2";
        let answer = client.ask("GET", target, "Dendra-Timeout-Ms: 20000\r\n", b"");
        match answer.status {
            404 => return n,
            503 | 504 => {}
            other => panic!("{other}: {}", answer.text()),
        }
    }
    unreachable!("numbers do not end");
}

/// Has `deed` done to a question until one was done as `counts` says. A question may go another way
/// than it is meant to: a probe is under way, or the machine stands still.
fn until(node: &Node, host: &Host, deed: Deed, counts: impl Fn(usize, &[Done], usize) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        host.plan(&[deed]);
        let hellos = host.hellos();
        let failed = ask_both(node);
        let done = host.seen.0.lock().expect("no holder panics").done.clone();
        if counts(failed, &done, host.hellos() - hellos) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{failed} failed, at the other side {done:?}"
        );
    }
}

#[test]
fn an_old_connection_that_is_closed_costs_no_answer() {
    let host = Host::start();
    let node = node(&host.url, PeerTransport::Http);
    ask_both(&node);
    until(&node, &host, Deed::Close, |failed, done, hellos| {
        let [closed, answered] = done else {
            return false;
        };
        let again = closed.deed == Deed::Close && closed.is_old && answered.deed == Deed::Answer;
        again && closed.connection != answered.connection && (failed, hellos) == (0, 0)
    });
}

#[test]
fn a_token_that_is_forgotten_and_a_new_connection_that_is_lost_lead_to_a_new_handshake() {
    let host = Host::start();
    let node = node(&host.url, PeerTransport::Http);
    ask_both(&node);
    for deeds in [&[Deed::Forget][..], &[Deed::Close; 40]] {
        let hellos = host.hellos();
        host.plan(deeds);
        ask_both(&node);
        host.wait_for("no new hello", |seen| seen.hellos > hellos);
    }
}

#[test]
fn an_answer_of_an_intermediary_costs_one_question_and_not_the_link() {
    let host = Host::start();
    let node = node(&host.url, PeerTransport::Http);
    ask_both(&node);
    until(&node, &host, Deed::Gateway, |failed, done, hellos| {
        failed > 0
            && done
                .first()
                .is_some_and(|first| first.deed == Deed::Gateway)
            && hellos == 0
    });
}

/// An operation finds no link, but its member had shown that it is there. Is it carried out when
/// the member lets the node in a moment later?
fn waits_for_who_was_heard_of() -> bool {
    let host = Host::start();
    let not_yet = Refusing {
        code: "not-serving",
        secret: None,
        url: None,
    };
    let refusals = |many: Vec<Refusing>| {
        host.seen.0.lock().expect("no holder panics").refusals = many;
    };
    refusals(vec![not_yet; 10_000]);
    let node = node(&host.url, PeerTransport::Http);
    let target = "/v0/entity?id=k&ack=2&from=2";
    let line = "Dendra-Timeout-Ms: 20000\r\n";
    // No member is expected any more when the first one was refused.
    for _ in 0..2 {
        let refused = node.client().ask("GET", target, line, b"");
        assert_eq!(refused.status, 504, "{}", refused.text());
        assert!(refused.text().starts_with("unreachable"));
    }
    let mut guest = node.client();
    let token = greet(&mut guest, &hello(&host.url, 1), SECRET);
    let clock = answer_to(&mut guest, &token, &question(1, Ask::Clock));
    assert!(matches!(clock, Answer::Clock { .. }));
    let mut client = node.client();
    client.send(format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{line}\r\n").as_bytes());
    let hellos = host.hellos();
    host.wait_for("it does not try", |seen| seen.hellos > hellos);
    refusals(Vec::new());
    client.read("GET").status == 404
}

#[test]
fn an_operation_waits_for_a_member_that_was_heard_of() {
    // A machine that stands still for half a second makes it wait in vain.
    assert!((0..5).any(|_| waits_for_who_was_heard_of()));
}

#[test]
fn a_node_that_is_not_let_in_is_not_ready_and_says_why() {
    for transport in [PeerTransport::Frames, PeerTransport::Http] {
        let host = Host::start();
        let refuse = |many: usize| {
            let refusing = Refusing {
                code: "other-topology",
                secret: None,
                url: None,
            };
            host.seen.0.lock().expect("no holder panics").refusals = vec![refusing; many];
        };
        refuse(10_000);
        let node = node(&host.url, transport);
        let ready = node.admin().get("/readyz");
        let said = ready.text();
        assert_eq!(ready.status, 503, "{said}");
        let words = format!(
            "shut out: no link to {}: it answered 409: other-topology",
            host.url
        );
        assert!(said.starts_with(&words), "{said}");
        assert_eq!(node.metric("dendra_ready"), 0.0);
        if transport == PeerTransport::Http {
            refuse(0);
            node.wait_for_metric("dendra_ready", 1.0);
            assert_eq!(node.admin().get("/readyz").status, 200);
        }
    }
    // A member that finds no other one may be the first.
    let node = node(GUEST, PeerTransport::Frames);
    let ready = node.admin().get("/readyz");
    assert_eq!(ready.status, 200, "{}", ready.text());
}

#[test]
fn a_member_whose_clock_no_majority_agrees_with_writes_nothing_and_says_so_until_it_is_right() {
    let host = Host::start();
    let set_ahead = |ms| host.seen.0.lock().expect("no holder panics").ahead_ms = ms;
    set_ahead(3_600_000);
    let node = node(&host.url, PeerTransport::Http);
    node.wait_for_metric("dendra_clock_doubted", 1.0);
    let ready = node.admin().get("/readyz");
    assert_eq!(ready.status, 503, "{}", ready.text());
    let words = "wrong clock: 1 of 1 other members' clocks differ";
    assert!(ready.text().starts_with(words), "{}", ready.text());
    assert!(node.metric("dendra_peer_clock_apart_milliseconds") > 3_500_000.0);
    let target = "/v0/entity?id=k&ack=1&from=2";
    let usual = "/v0/entity?id=k";
    for (target, condition) in [(target, ""), (usual, ""), (usual, "If-None-Match: *\r\n")] {
        let put = node.client().ask("PUT", target, condition, b"v");
        assert_eq!(put.status, 504, "{}", put.text());
        let words = "has a clock that no majority of the members agrees with";
        assert!(put.text().contains(words), "{}", put.text());
    }
    assert_eq!(node.client().ask("GET", target, "", b"").status, 404);
    set_ahead(0);
    node.wait_for_metric("dendra_clock_doubted", 0.0);
    assert_eq!(node.admin().get("/readyz").status, 200);
    let put = node.client().ask("PUT", target, "", b"v");
    assert_eq!(put.status, 201, "{}", put.text());
}

#[test]
fn a_write_that_may_have_been_carried_before_is_not_said_to_have_found_no_room() {
    let host = Host::start();
    let node = node(&host.url, PeerTransport::Http);
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        ask_both(&node);
        // Its clock; then the write is lost with its connection, and comes again.
        host.plan(&[Deed::Answer, Deed::Close, Deed::Full]);
        let line = "Dendra-Timeout-Ms: 20000\r\n";
        let put = node
            .client()
            .ask("PUT", "/v0/entity?id=full&ack=2&from=2", line, b"v");
        let done = host.seen.0.lock().expect("no holder panics").done.clone();
        let deeds: Vec<Deed> = done.iter().map(|done| done.deed).collect();
        if deeds == [Deed::Answer, Deed::Close, Deed::Full] && done[1].is_old {
            assert_eq!(put.status, 504, "{}", put.text());
            assert!(
                put.text().contains("is busy, or its link was lost"),
                "{}",
                put.text()
            );
            return;
        }
        assert!(Instant::now() < deadline, "{}: {done:?}", put.text());
    }
}

#[test]
fn no_value_travels_to_a_member_that_says_that_its_disk_is_full() {
    let host = Host::start();
    let node = node(&host.url, PeerTransport::Http);
    let say = |readiness| host.seen.0.lock().expect("no holder panics").readiness = readiness;
    let values = || host.seen.0.lock().expect("no holder panics").values;
    ask_both(&node);
    let target = "/v0/entity?id=k&ack=2&from=2";
    say(Readiness::DiskFull);
    let put = node.client().ask("PUT", target, "", b"v");
    assert_eq!((put.status, values()), (507, 0), "{}", put.text());
    let receipt = put.header("Dendra-Receipt");
    assert_eq!(receipt, Some("outcome=not-applied"));
    assert_eq!(node.client().ask("GET", target, "", b"").status, 404);
    // It is behind, and no other owner is there: it is asked, and has other reasons to refuse.
    say(Readiness::Behind);
    let put = node.client().ask("PUT", target, "", b"v");
    assert_eq!((put.status, values()), (504, 1), "{}", put.text());
}
