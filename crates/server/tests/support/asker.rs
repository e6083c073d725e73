//! A member that asks by plain requests and that a test plays: its handshake and its questions.
//!
//! Not here: the answers of a node (the tests).

use super::Client;
use super::guest::{GUEST, topology};
use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Stamp};
use dendra_base::{CellRef, Key, Version};
use dendra_wire::peer::{
    Hello, Malformed, Message, Proof, Question, Role, SessionKeys, decode, encode_ask, encode_hail,
};
use std::sync::LazyLock;
use std::time::Instant;

/// A clock that stood still would make each question look older than the one before.
static STARTED: LazyLock<Instant> = LazyLock::new(Instant::now);

pub(crate) fn question(id: u64, ask: Ask) -> Question {
    let topology = topology(GUEST);
    Question {
        id,
        sent_ms: 10_000 + STARTED.elapsed().as_millis() as u32,
        stamp: Stamp {
            cluster: topology.id(),
            epoch: topology.epoch(),
            left_ms: 20_000,
        },
        ask,
    }
}

/// The result of a handshake over plain HTTP, as both sides have it.
#[derive(Clone)]
pub(crate) struct Session {
    pub(crate) token: Proof,
    pub(crate) keys: SessionKeys,
}

impl Session {
    pub(crate) fn new(secret: &[u8], asker: &str, acceptor: &str) -> Session {
        Session {
            token: Proof::new(secret, Role::Asker, asker, acceptor),
            keys: SessionKeys::new(Some(secret), asker, acceptor),
        }
    }

    pub(crate) fn encoded(&self, question: &Question) -> Vec<u8> {
        let mut frame = Vec::new();
        encode_ask(
            &mut frame,
            &mut self.keys.of_requests(Role::Asker),
            question,
        );
        frame
    }

    pub(crate) fn decoded(&self, body: Vec<u8>) -> Result<Message, Malformed> {
        decode(&body.into(), &mut self.keys.of_requests(Role::Acceptor))
    }

    pub(crate) fn hail(&self, client: &mut Client) -> super::Answer {
        let mut frame = Vec::new();
        encode_hail(&mut frame, &mut self.keys.of_requests(Role::Asker));
        ask(client, &self.token, &frame)
    }
}

pub(crate) fn greet(client: &mut Client, hello: &Hello, secret: &[u8]) -> Session {
    let line = format!("Dendra-Peer: {hello}\r\nContent-Length: 0\r\n");
    let answer = client.ask("POST", "/v0/peer/hello", &line, b"");
    assert_eq!(answer.status, 200, "{}", answer.text());
    let theirs = answer.header("Dendra-Peer").expect("a hello");
    assert_eq!(answer.header("Dendra-Peer-Proof"), None, "to a stranger");
    Session::new(secret, &hello.to_string(), theirs)
}

pub(crate) fn ask(client: &mut Client, token: &Proof, frame: &[u8]) -> super::Answer {
    let line = format!("Dendra-Peer-Proof: {token}\r\n");
    client.ask("POST", "/v0/peer/ask", &line, frame)
}

pub(crate) fn answer_to(client: &mut Client, session: &Session, question: &Question) -> Answer {
    let answer = ask(client, &session.token, &session.encoded(question));
    assert_eq!(answer.status, 200, "{}", answer.text());
    match session.decoded(answer.body) {
        Ok(Message::Answer { id, answer }) if id == question.id => answer,
        other => panic!("no answer to {}: {other:?}", question.id),
    }
}

pub(crate) fn read(key: &'static [u8]) -> Ask {
    Ask::Read {
        key: Bytes::from_static(key),
        known: None,
    }
}

pub(crate) fn write(key: &'static [u8], value: &[u8]) -> Ask {
    let version = Version {
        hlc: 1 << 20,
        origin: 0xb0b << 8,
        rmw: 0,
    };
    let cell = CellRef::value(Key::user(key).as_stored(), version, value).to_owned();
    Ask::Write {
        key: Bytes::from_static(key),
        cell,
    }
}
