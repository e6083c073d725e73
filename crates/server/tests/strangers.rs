//! What strangers at the peers' door cost, and that members get past them.
//!
//! ```text
//! test ── hello ─► a node ── 101 ─► no proof, a wrong one, one that never ends
//! ```
//!
//! Invariants
//! 1. Ports are the system's choice, and nothing waits by sleeping: a wait ends with what it waits for.
//!
//! Not here: handshakes of members (`peers.rs`), clusters of real processes (crate `dendra`, `tests/cluster.rs`).
//! See: docs/peer.md, docs/overload.md.

mod support;

use dendra_server::limits::LINKS_UNPROVEN_MAX;
use dendra_server::settings::PeerTransport;
use dendra_wire::peer::{
    Message, PROOF_FRAME_BYTES, Proof, Role, decode, encode_probe, encode_proof, frame_len,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Instant;
use support::guest::{GUEST, SECRET, hello, node};
use support::{Node, PATIENCE};

/// A link whose asker has heard the answer to its hello and has said nothing more.
struct Opened {
    stream: TcpStream,
    proof: Proof,
}

impl Opened {
    fn new(node: &Node, nonce: u8) -> Opened {
        let mut client = node.client();
        let own = hello(GUEST, nonce).to_string();
        let lines =
            format!("Connection: Upgrade\r\nUpgrade: dendra-peer/1\r\nDendra-Peer: {own}\r\n");
        let answer = client.ask("GET", "/v0/peer", &lines, b"");
        assert_eq!(answer.status, 101, "{}", answer.text());
        let theirs = answer.header("Dendra-Peer").expect("a hello");
        Opened {
            proof: Proof::new(SECRET, Role::Asker, &own, theirs),
            stream: client.into_stream(),
        }
    }

    /// The next frame that the node sends; `None` when it ended the link without a word.
    fn message(&mut self) -> Option<Message> {
        let mut frame = vec![0; 4];
        self.stream.read_exact(&mut frame).ok()?;
        let length = frame_len(&frame).expect("a length of a frame")?;
        frame.resize(length, 0);
        self.stream.read_exact(&mut frame[4..]).ok()?;
        Some(decode(&frame.into()).expect("a frame"))
    }

    fn say(&mut self, encode: impl FnOnce(&mut Vec<u8>, &Proof)) {
        let mut frames = Vec::new();
        encode(&mut frames, &self.proof);
        self.stream.write_all(&frames).expect("the node reads");
    }
}

#[test]
fn a_first_frame_that_says_it_is_longer_than_a_proof_is_not_waited_for() {
    let node = node(GUEST, PeerTransport::Frames);
    let mut link = Opened::new(&node, 1);
    let mut frame = (16_u32 << 20).to_le_bytes().to_vec();
    frame.resize(PROOF_FRAME_BYTES, 0x81);
    link.say(|out, _| out.extend_from_slice(&frame));
    let Some(Message::Farewell(sentence)) = link.message() else {
        panic!("the node waits for the rest of sixteen megabytes");
    };
    assert!(sentence.starts_with("cluster-secret"), "{sentence}");
    node.wait_for_metric("dendra_peer_links_unproven_ended_total", 1.0);
    node.wait_for_metric("dendra_peer_links_unproven ", 0.0);
}

#[test]
fn a_link_without_a_proof_keeps_its_place_among_the_connections() {
    let node = node(GUEST, PeerTransport::Frames);
    let deadline = Instant::now() + PATIENCE;
    // They are ended after a second, which a machine under load may need for the metrics.
    loop {
        let links = [1, 2, 3].map(|nonce| Opened::new(&node, nonce));
        let (connections, unproven) = (
            node.metric("dendra_connections "),
            node.metric("dendra_peer_links_unproven "),
        );
        drop(links);
        if connections >= 3.0 && unproven >= 3.0 {
            break;
        }
        assert!(Instant::now() < deadline, "they are not counted");
    }
    // With its proof it gives the place back.
    let mut link = Opened::new(&node, 4);
    link.say(encode_proof);
    node.wait_for_metric("dendra_connections ", 0.0);
    link.say(|out, _| encode_probe(out, 7));
    assert_eq!(link.message(), Some(Message::Alive { id: 7 }));
}

#[test]
fn a_member_gets_past_any_number_of_links_without_a_proof() {
    let node = node(GUEST, PeerTransport::Frames);
    let mut links: Vec<Opened> = (0..LINKS_UNPROVEN_MAX + 8)
        .map(|n| Opened::new(&node, n as u8))
        .collect();
    let unproven = node.metric("dendra_peer_links_unproven ");
    assert!(unproven <= LINKS_UNPROVEN_MAX as f64, "{unproven}");
    let mut member = Opened::new(&node, 0xff);
    member.say(|out, proof| {
        encode_proof(out, proof);
        encode_probe(out, 7);
    });
    assert_eq!(member.message(), Some(Message::Alive { id: 7 }));
    // The oldest ones made room, without a word.
    assert_eq!(links[0].message(), None);
    assert!(node.metric("dendra_peer_links_unproven_ended_total") >= 8.0);
}
