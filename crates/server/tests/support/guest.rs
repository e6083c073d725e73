//! A node of a cluster of two, what the other member, which the test plays, says about itself, and how it asks.
//!
//! Not here: what a guest asks (the tests).

use super::{Client, Node};
use bytes::Bytes;
use dendra_base::peer::{Answer, Ask, Stamp};
use dendra_server::settings::{ClusterSettings, Member, PeerTransport, Secret, Topology};
use dendra_wire::peer::{
    Hello, Malformed, Message, Nonce, Proof, Question, Role, SessionKeys, decode, encode_ask,
    encode_hail,
};

/// How the node is known to the others; nobody looks it up here.
pub(crate) const NODE: &str = "http://10.0.0.1:8080";
/// Where nobody listens.
pub(crate) const GUEST: &str = "http://127.0.0.1:1";
/// Of the cluster.
pub(crate) const SECRET: &[u8] = b"hush, sixteen bytes at least";

/// The node and the member at `guest`.
pub(crate) fn topology(guest: &str) -> Topology {
    let members = [NODE, guest].map(|url| Member::new(url).expect("an address"));
    Topology::new("dendra", members.to_vec(), 2).expect("two members")
}

/// A node with one loop that asks by `transport`.
pub(crate) fn node(guest: &str, transport: PeerTransport) -> Node {
    node_with(guest, transport, Secret::new(SECRET))
}

/// The same with another secret, or none.
pub(crate) fn node_with(guest: &str, transport: PeerTransport, secret: Option<Secret>) -> Node {
    let mut cluster = ClusterSettings::new(topology(guest), NODE).expect("a member");
    cluster.secret = secret;
    cluster.transport = transport;
    Node::with(|settings| {
        settings.cluster = Some(cluster);
        settings.loops = Some(1);
    })
}

/// What the member that the test plays says about itself.
pub(crate) fn hello(guest: &str, nonce: u8) -> Hello {
    let topology = topology(guest);
    Hello {
        version_min: 2,
        version_max: 2,
        cluster: topology.id(),
        cluster_name: topology.name().to_owned(),
        epoch: topology.epoch(),
        topology: topology.digest(),
        description: topology.describe(),
        node: 0xb0b,
        origin: 0xb0b << 8,
        boot: 1,
        life: 0x11fe,
        clock: 1,
        url: guest.to_owned(),
        lane: 0,
        loops: 1,
        has_secret: true,
        nonce: Nonce([nonce; 16]),
    }
}

pub(crate) fn question(id: u64, ask: Ask) -> Question {
    let topology = topology(GUEST);
    Question {
        id,
        sent_ms: 10_000,
        stamp: Stamp {
            cluster: topology.id(),
            epoch: topology.epoch(),
            left_ms: 20_000,
        },
        ask,
    }
}

/// What the two sides of a handshake over plain HTTP agreed on.
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
