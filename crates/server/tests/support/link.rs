//! A link over frames that a test opens as a member.
//!
//! Not here: what a node says on it (the tests).

use super::Node;
use super::guest::{GUEST, SECRET, hello};
use bytes::Bytes;
use dendra_wire::peer::{Hello, Message, Proof, Role, Seal, SessionKeys, decode, frame_len};
use std::io::{Read, Write};
use std::net::TcpStream;

/// A link whose asker has heard the answer to its hello and has said nothing more.
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

    /// What it says with the key of the handshake.
    pub(crate) fn message(&mut self) -> Option<Message> {
        let frame = self.frame()?;
        Some(decode(&frame, &mut self.checking).expect("a frame of a member"))
    }

    pub(crate) fn say(&mut self, encode: impl FnOnce(&mut Vec<u8>, &mut Seal, &Proof)) {
        let mut frames = Vec::new();
        encode(&mut frames, &mut self.sealing, &self.proof);
        self.stream.write_all(&frames).expect("the node reads");
    }
}
