//! The cost of strangers at the peers' door, and that members get past them.
//!
//! ```text
//! test ── hello ─► a node ── 101 ─► no proof, a wrong one, one that never ends
//! ```
//!
//! Invariants
//! 1. Ports are the system's choice, and no thread waits by sleeping: a wait ends with its
//!    condition.
//!
//! Not here: handshakes of members (`peers.rs`), clusters of real processes (crate `dendra`,
//! `tests/cluster.rs`). See: docs/peer.md, docs/overload.md.

mod support;

use dendra_base::peer::{Answer, Ask, Stamp};
use dendra_engine::vfs::MemVfs;
use dendra_server::limits::{CONNECTIONS_BEYOND_MAX, LINKS_UNPROVEN_MAX};
use dendra_server::settings::{PeerTransport, Settings};
use dendra_wire::peer::{
    Hello, Message, PROOF_FRAME_BYTES, Proof, Question, Seal, decode, encode_ask, encode_hail,
    encode_probe, encode_proof,
};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Instant;
use support::asker::greet;
use support::guest::{GUEST, SECRET, hello, node, node_on_with, node_with, topology};
use support::link::Opened;
use support::{Client, Node, PATIENCE};

/// Connections of clients that a member's gate has room for.
const FULL: usize = 4;

#[test]
fn a_first_frame_that_says_it_is_longer_than_a_proof_is_not_waited_for() {
    let node = node(GUEST, PeerTransport::Frames);
    let mut link = Opened::new(&node, 1);
    let mut frame = (16_u32 << 20).to_le_bytes().to_vec();
    frame.resize(PROOF_FRAME_BYTES, 0x81);
    link.say(|out, _, _| out.extend_from_slice(&frame));
    let farewell = link.frame();
    let farewell = farewell.expect("the node waits for the rest of sixteen megabytes");
    let Ok(Message::Farewell(sentence)) = decode(&farewell, &mut Seal::plain()) else {
        panic!("a stranger gets nothing that was made with the secret");
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
    link.say(|out, _, proof| encode_proof(out, proof));
    node.wait_for_metric("dendra_connections ", 0.0);
    link.say(|out, seal, _| encode_probe(out, seal, 7));
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
    member.say(|out, seal, proof| {
        encode_proof(out, proof);
        encode_hail(out, seal);
        encode_probe(out, seal, 7);
    });
    assert_eq!(member.message(), Some(Message::Welcome));
    assert_eq!(member.message(), Some(Message::Alive { id: 7 }));
    // The oldest ones made room, without a word.
    assert_eq!(links[0].frame(), None);
    assert!(node.metric("dendra_peer_links_unproven_ended_total") >= 8.0);
}

/// A member's gate that idle clients fill, and these clients.
fn full_node(change: impl FnOnce(&mut Settings)) -> (Node, Vec<Client>) {
    let node = node_on_with(Arc::new(MemVfs::new()), change);
    let mut clients: Vec<Client> = (0..FULL).map(|_| node.client()).collect();
    for client in &mut clients {
        assert_eq!(client.get("/v0/status").status, 200);
    }
    (node, clients)
}

/// Is a client turned away that comes now, and its connection closed?
fn is_turned_away(node: &Node) -> bool {
    let mut client = node.client();
    let answer = client.put("k", b"v");
    assert!(
        answer.text().contains("as many connections"),
        "{}",
        answer.text()
    );
    answer.status == 503 && client.is_closed()
}

fn a_member_gets_past(node: &Node, clients: &mut [Client]) {
    assert!(is_turned_away(node));
    let link = Opened::proven(node, 1);
    // Idle strangers hold no place beyond the gate for as long as they like, either.
    let idle: Vec<Client> = (0..CONNECTIONS_BEYOND_MAX).map(|_| node.client()).collect();
    // Nor do links without a proof: the oldest makes room.
    let unproven: Vec<Opened> = (0..LINKS_UNPROVEN_MAX + 8)
        .map(|n| Opened::new(node, n as u8))
        .collect();
    let mut other = Opened::proven(node, 2);
    // The clients inside are not affected, and the questions of the member are answered.
    for client in clients {
        assert_eq!(client.get("/v0/status").status, 200);
    }
    other.ask(1, Ask::Clock);
    let (_, clock) = other.answer();
    assert!(matches!(clock, Answer::Clock { .. }), "{clock:?}");
    let session = greet(&mut node.client(), &hello(GUEST, 3), SECRET);
    assert_eq!(session.hail(&mut node.client()).status, 200);
    drop((link, idle, unproven));
    node.wait_for_metric("dendra_connections_beyond ", 0.0);
}

#[test]
fn a_member_gets_past_a_gate_that_clients_fill() {
    let (node, mut clients) = full_node(|settings| settings.connections_max = FULL);
    a_member_gets_past(&node, &mut clients);
    // A client that leaves makes room for another one.
    drop(clients.pop());
    node.wait_for_metric("dendra_connections ", (FULL - 1) as f64);
    assert_eq!(node.client().get("/v0/status").status, 200);
}

#[test]
fn a_member_gets_past_clients_that_fill_the_bound_of_its_address() {
    let (node, mut clients) = full_node(|settings| settings.connections_per_address_max = FULL);
    a_member_gets_past(&node, &mut clients);
    let neighbour = Ipv4Addr::new(127, 0, 0, 2);
    let mut other = Client::connect_from(neighbour, node.running().addr());
    assert_eq!(other.get("/v0/status").status, 200);
}

#[test]
fn a_frame_that_was_changed_or_repeated_on_its_way_ends_the_link() {
    let node = node(GUEST, PeerTransport::Frames);
    let topology = topology(GUEST);
    let clock = |id| Question {
        id,
        sent_ms: 1,
        stamp: Stamp {
            cluster: topology.id(),
            epoch: topology.epoch(),
            left_ms: 20_000,
        },
        ask: Ask::Clock,
    };
    for deed in ["nothing", "changed", "repeated", "without a key"] {
        let mut link = Opened::new(&node, 1);
        link.say(|out, seal, proof| {
            encode_proof(out, proof);
            encode_probe(out, seal, 7);
        });
        assert_eq!(link.message(), Some(Message::Alive { id: 7 }));
        link.say(|out, seal, _| {
            match deed {
                "without a key" => encode_ask(out, &mut Seal::plain(), &clock(1)),
                _ => encode_ask(out, seal, &clock(1)),
            }
            match deed {
                "changed" => out[20] ^= 1,
                "repeated" => out.extend_from_within(..),
                _ => {}
            }
        });
        let is_answered = |message| {
            matches!(
                message,
                Some(Message::Answer {
                    answer: Answer::Clock { .. },
                    ..
                })
            )
        };
        match deed {
            "nothing" => assert!(is_answered(link.message())),
            // The first of the two may have been answered before the second ended the link.
            "repeated" => assert!(std::iter::from_fn(|| link.frame()).count() <= 1),
            _ => assert_eq!(link.frame(), None, "{deed}"),
        }
    }
}

#[test]
fn a_hello_with_an_impossible_number_of_starts_shuts_no_member_out() {
    // A program that reaches a node without a secret may say that it is a member.
    let node = node_with(GUEST, PeerTransport::Frames, None);
    let member = |nonce| Hello {
        has_secret: false,
        ..hello(GUEST, nonce)
    };
    let answers = |own: &Hello| {
        let mut link = Opened::of(&node, own);
        link.say(|out, seal, proof| {
            encode_proof(out, proof);
            encode_hail(out, seal);
            encode_probe(out, seal, 7);
        });
        (link.message(), link.message())
    };
    let is_let_in = (Some(Message::Welcome), Some(Message::Alive { id: 7 }));
    assert_eq!(answers(&member(1)), is_let_in);
    let far = [
        (1 << 63, member(2).life),
        (1 << 63, 0x9fe),
        (2, member(2).life),
    ];
    for (boot, life) in far {
        let (said, then) = answers(&Hello {
            boot,
            life,
            ..member(2)
        });
        let Some(Message::Farewell(said)) = said else {
            panic!("start {boot} of {life:x} is believed: {said:?}");
        };
        assert!(said.starts_with("implausible epoch=1 others=1: "), "{said}");
        assert_eq!(then, None);
    }
    assert_eq!(answers(&member(3)), is_let_in, "the true one");
}

#[test]
fn what_a_hello_says_is_not_noted_before_its_proof() {
    let node = node(GUEST, PeerTransport::Frames);
    let later = Hello {
        boot: 9,
        life: 0x9fe,
        ..hello(GUEST, 1)
    };
    let mut stranger = Opened::of(&node, &later);
    stranger.proof = Proof::from([7; 32]);
    stranger.say(|out, seal, proof| {
        encode_proof(out, proof);
        encode_probe(out, seal, 7);
    });
    let farewell = stranger.frame().expect("a farewell");
    assert!(matches!(
        decode(&farewell, &mut Seal::plain()),
        Ok(Message::Farewell(_))
    ));
    // A hail is no note either: the member with fewer starts is let in.
    let mut hailing = Opened::of(&node, &later);
    hailing.say(|out, seal, proof| {
        encode_proof(out, proof);
        encode_hail(out, seal);
    });
    assert_eq!(hailing.message(), Some(Message::Welcome));
    drop(hailing);
    let mut member = Opened::new(&node, 2);
    member.say(|out, seal, proof| {
        encode_proof(out, proof);
        encode_hail(out, seal);
        encode_probe(out, seal, 7);
    });
    assert_eq!(member.message(), Some(Message::Welcome));
    assert_eq!(member.message(), Some(Message::Alive { id: 7 }));
    // And from here on it is known.
    let mut older = Opened::of(
        &node,
        &Hello {
            boot: 0,
            life: 5,
            ..hello(GUEST, 3)
        },
    );
    older.say(|out, seal, proof| {
        encode_proof(out, proof);
        encode_hail(out, seal);
    });
    let Some(Message::Farewell(said)) = older.message() else {
        panic!("an older life is let in");
    };
    assert!(said.starts_with("rolled-back epoch=1 others=1: "), "{said}");
}
