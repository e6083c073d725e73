//! A link over frames that a test opens as a member.
//!
//! Not here: the messages of a node on it (the tests).

use super::Node;
use super::asker::question;
use super::guest::{GUEST, SECRET, hello};
use bytes::Bytes;
use dendra_base::peer::{Answer, Ask};
use dendra_wire::peer::{
    Hello, Message, Proof, Role, Seal, SessionKeys, decode, encode_alive, encode_ask, encode_probe,
    encode_proof, frame_len,
};
use std::io::{Read, Write};
use std::net::TcpStream;

/// A link whose asker has heard the answer to its hello and has sent no byte since.
pub(crate) struct Opened {
    pub(crate) stream: TcpStream,
    pub(crate) proof: Proof,
    pub(crate) sealing: Seal,
    pub(crate) checking: Seal,
}

impl Opened {
    pub(crate) fn new(node: &Node, nonce: u8) -> Opened {
        Opened::of(node, &hello(GUEST, nonce))
    }

    pub(crate) fn of(node: &Node, own: &Hello) -> Opened {
        let mut client = node.client();
        let (own, has_secret) = (own.to_string(), own.has_secret);
        let lines =
            format!("Connection: Upgrade\r\nUpgrade: dendra-peer/1\r\nDendra-Peer: {own}\r\n");
        let answer = client.ask("GET", "/v0/peer", &lines, b"");
        assert_eq!(answer.status, 101, "{}", answer.text());
        let theirs = answer.header("Dendra-Peer").expect("a hello");
        assert_eq!(answer.header("Dendra-Peer-Proof"), None, "to a stranger");
        let secret = has_secret.then_some(SECRET);
        let keys = SessionKeys::new(secret, &own, theirs);
        Opened {
            proof: Proof::new(secret.unwrap_or_default(), Role::Asker, &own, theirs),
            sealing: keys.of_link(Role::Asker),
            checking: keys.of_link(Role::Acceptor),
            stream: client.into_stream(),
        }
    }

    /// The next frame that the node sends; `None` when it ended the link without a word.
    pub(crate) fn frame(&mut self) -> Option<Bytes> {
        let mut frame = vec![0; 4];
        self.stream.read_exact(&mut frame).ok()?;
        let length = frame_len(&frame).expect("a length of a frame")?;
        frame.resize(length, 0);
        self.stream.read_exact(&mut frame[4..]).ok()?;
        Some(frame.into())
    }

    /// Its next message, checked with the key of the handshake.
    pub(crate) fn message(&mut self) -> Option<Message> {
        let frame = self.frame()?;
        Some(decode(&frame, &mut self.checking).expect("a frame of a member"))
    }

    /// A link of a member that has proven itself.
    pub(crate) fn proven(node: &Node, nonce: u8) -> Opened {
        let mut link = Opened::new(node, nonce);
        link.say(|out, seal, proof| {
            encode_proof(out, proof);
            encode_probe(out, seal, 7);
        });
        assert_eq!(link.message(), Some(Message::Alive { id: 7 }));
        link
    }

    pub(crate) fn ask(&mut self, id: u64, ask: Ask) {
        let question = question(id, ask);
        self.say(|out, seal, _| encode_ask(out, seal, &question));
    }

    /// The next answer, after the node's own questions whether the link lives.
    pub(crate) fn answer(&mut self) -> (u64, Answer) {
        loop {
            match self.message() {
                Some(Message::Answer { id, answer }) => return (id, answer),
                Some(Message::Probe { id }) => self.say(|out, seal, _| encode_alive(out, seal, id)),
                other => panic!("{other:?} is no answer"),
            }
        }
    }

    pub(crate) fn say(&mut self, encode: impl FnOnce(&mut Vec<u8>, &mut Seal, &Proof)) {
        let mut frames = Vec::new();
        encode(&mut frames, &mut self.sealing, &self.proof);
        self.stream.write_all(&frames).expect("the node reads");
    }
}
