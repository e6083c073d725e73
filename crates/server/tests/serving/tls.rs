//! The door: sessions, certificates of every kind of fault, their renewal, and members that show
//! theirs.
//!
//! ```text
//! Sealed (the test) ── TLS ─► a node          who gets in, and what the others are told
//! two nodes ── mutual TLS ─► each other       a cluster that speaks nothing else
//! ```
//!
//! Invariants
//! 1. Each fault of a certificate is made beside one that differs only in it and gets in.
//!
//! Not here: the cryptography (rustls), options (crate `dendra`).
//! See: SECURITY.md.

use crate::support::certs::{Authority, CLIENT, DAY_S, MEMBER, Pair, Says, Sealed};
use crate::support::guest::{GUEST, NODE, hello, topology};
use crate::support::{Client, Node, PATIENCE, reserved, rest};
use dendra_server::limits::HANDSHAKES_MAX;
use dendra_server::settings::{ClusterSettings, Member, PeerTransport, TlsSettings, Topology};
use dendra_server::{Running, Server, Settings};
use dendra_wire::peer::Hello;
use std::fs::Permissions;
use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// A member of another machine.
const ELSEWHERE: Says<'_> = Says {
    name: "127.0.0.2",
    ..MEMBER
};
/// At a member's address, and for a client.
const NO_SERVER: Says<'_> = Says {
    is_server: false,
    ..MEMBER
};

/// The begin of a handshake whose rest never comes.
const HALF: &[u8] = &[0x16, 3, 1, 0, 200, 1];

struct World {
    folder: tempfile::TempDir,
    ca: Authority,
    pair: Pair,
}

impl World {
    fn new() -> World {
        let folder = tempfile::tempdir().expect("a folder");
        let ca = Authority::new(folder.path());
        let pair = ca.sign("node", MEMBER);
        World { folder, ca, pair }
    }

    fn tls(&self) -> TlsSettings {
        TlsSettings::new(&self.pair.cert, &self.pair.key)
    }

    fn node(&self, change: impl FnOnce(&mut TlsSettings)) -> Node {
        let mut tls = self.tls();
        change(&mut tls);
        Node::with(|settings| settings.tls = Some(tls))
    }

    fn ask(&self, node: &Node, own: Option<&Pair>) -> Result<String, String> {
        let config = self.ca.client(own);
        let answer = Sealed::ask(node.running().addr(), &config, "GET /v0/status");
        answer.map_err(|error| error.to_string())
    }
}

/// The value of a metric of a node whose admin port speaks TLS.
fn metric(world: &World, node: &Node, name: &str) -> u64 {
    let admin = node.running().admin_addr().expect("there is one");
    let page = Sealed::ask(admin, &world.ca.client(None), "GET /metrics").expect("a page");
    let line = page.lines().find(|line| line.starts_with(name));
    let line = line.unwrap_or_else(|| panic!("no metric {name} in\n{page}"));
    let value = line.rsplit(' ').next().expect("a value");
    value.parse().expect("a number")
}

/// Waits until the node has read its files so often, with and without use.
fn wait_for(node: &Node, what: &str, taken: u64, refused: u64) {
    let border = node.running().border();
    let came = border.wait(PATIENCE, |state| {
        (state.files_taken, state.files_refused) == (taken, refused)
    });
    assert!(came, "{what}: {:?}", border.now());
}

#[test]
fn both_ports_speak_tls_and_values_of_every_size_come_back_whole() {
    let world = World::new();
    let node = world.node(|_| {});
    let config = world.ca.client(None);
    let mut client = Sealed::connect(node.running().addr(), &config);
    for (id, len) in [("a", 0), ("b", 100), ("c", 20_000), ("d", 1 << 20)] {
        let value = "v".repeat(len);
        let put = format!("PUT /v0/entity?id={id} HTTP/1.1\r\nHost: localhost\r\n");
        let put = format!("{put}Content-Length: {len}\r\n\r\n{value}");
        client.send(&put).expect("the node reads");
    }
    for id in ["a", "b", "c", "d"] {
        let get = format!("GET /v0/entity?id={id} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        client.send(&get).expect("the node reads");
    }
    let last = "GET /v0/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    client.send(last).expect("the node reads");
    let all = client.rest().expect("answers");
    assert_eq!(all.matches("HTTP/1.1 201").count(), 4);
    assert_eq!(all.matches("HTTP/1.1 200").count(), 5);
    assert_eq!(
        all.matches("vvvv").count() * 4,
        (100 + 20_000 + (1 << 20)) / 4 * 4
    );
    let admin = node.running().admin_addr().expect("there is one");
    let health = Sealed::ask(admin, &config, "GET /healthz").expect("an answer");
    assert!(health.ends_with("alive\n"), "{health}");
}

#[test]
fn clear_text_is_told_to_speak_tls_and_served_only_during_a_change_over() {
    let world = World::new();
    let node = world.node(|_| {});
    for mut client in [node.client(), node.admin()] {
        let answer = client.get("/v0/status");
        assert_eq!(answer.status, 400);
        assert!(answer.text().starts_with("tls-required: "), "{answer:?}");
        assert!(client.is_closed());
    }
    assert_eq!(metric(&world, &node, "dendra_tls_clear_refused"), 2);
    let node = world.node(|tls| tls.change_over = true);
    assert_eq!(node.client().get("/v0/status").status, 200);
    assert_eq!(node.admin().get("/healthz").status, 200);
    assert!(world.ask(&node, None).is_ok());
}

#[test]
fn a_handshake_that_does_not_go_on_ends_with_the_deadline_of_a_head() {
    let world = World::new();
    let node = Node::with(|settings| {
        settings.tls = Some(world.tls());
        settings.timeouts.head = Duration::from_millis(200);
    });
    let mut silent = node.client();
    let mut half = node.client();
    half.send(HALF);
    assert!(silent.is_closed() && half.is_closed());
    assert!(world.ask(&node, None).is_ok(), "others get in");
}

/// Waits until so many handshakes are under way, or `is_over`.
fn wait_for_handshakes(world: &World, node: &Node, count: usize, is_over: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    let under_way = || metric(world, node, "dendra_tls_handshakes_under_way ");
    while !is_over() && under_way() != count as u64 {
        assert!(Instant::now() < deadline, "they stay {}", under_way());
        rest();
    }
}

/// Has no byte come, and no end?
fn is_open(client: &Client) -> bool {
    let mut stream = &client.stream;
    stream.set_nonblocking(true).expect("set");
    let end = stream.read(&mut [0; 1]);
    end.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn the_oldest_handshake_ends_when_there_are_too_many_and_sessions_are_none_of_them() {
    let world = World::new();
    let node = Node::with(|settings| {
        settings.tls = Some(world.tls());
        settings.loops = Some(1);
        // None of them ends for another reason.
        settings.timeouts.head = Duration::from_secs(3_600);
        settings.queue_delay_target = Duration::ZERO;
    });
    let ask = "GET /v0/status HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let half = || {
        let mut client = node.client();
        client.send(HALF);
        client
    };
    let oldest = half();
    wait_for_handshakes(&world, &node, 1, || false);
    let second = half();
    wait_for_handshakes(&world, &node, 2, || false);
    let mut kept = Sealed::connect(node.running().addr(), &world.ca.client(None));
    kept.send(ask).expect("served");
    // It has its answer, so it is no handshake any more.
    kept.0.read_exact(&mut [0; 1]).expect("an answer");
    let mut others: Vec<Client> = (2..HANDSHAKES_MAX).map(|_| half()).collect();
    wait_for_handshakes(&world, &node, HANDSHAKES_MAX, || !is_open(&oldest));
    assert!(is_open(&oldest) && is_open(&second), "there is room");
    others.push(half());
    let is_one_over = || !is_open(&oldest) || !others.iter().all(is_open);
    wait_for_handshakes(&world, &node, HANDSHAKES_MAX + 1, is_one_over);
    // Its handshake is one more. The loop has told the oldest before it begins.
    assert!(world.ask(&node, None).is_ok(), "others get in");
    assert!(!is_open(&oldest), "the oldest holds on");
    assert!(!is_open(&second), "the oldest but one holds on");
    let open = others.iter().filter(|client| is_open(client)).count();
    assert_eq!(open, others.len(), "later ones ended");
    kept.send(&ask.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"))
        .expect("a session goes on");
    let rest = kept.rest().expect("answers");
    assert_eq!(rest.matches("HTTP/1.1 200").count(), 1, "{rest}");
}

#[test]
fn a_client_gets_in_with_a_certificate_of_the_ca_that_holds_now() {
    let world = World::new();
    let other = Authority::new(&world.folder.path().join("other"));
    let node = world.node(|tls| tls.client_ca = Some(world.ca.ca.clone()));
    let fine = world.ca.sign("client", CLIENT);
    assert!(world.ask(&node, Some(&fine)).is_ok());
    assert!(world.ask(&node, None).is_err(), "no certificate");
    let expired = Says {
        from: -3 * DAY_S,
        until: -2 * DAY_S,
        ..CLIENT
    };
    let early = Says {
        from: 2 * DAY_S,
        until: 3 * DAY_S,
        ..CLIENT
    };
    for (what, pair) in [
        ("expired", world.ca.sign("expired", expired)),
        ("not yet valid", world.ca.sign("early", early)),
        ("another CA", other.sign("client", CLIENT)),
    ] {
        assert!(world.ask(&node, Some(&pair)).is_err(), "{what}");
    }
}

#[test]
fn health_alone_is_answered_without_the_certificate_that_clients_have_to_show() {
    let world = World::new();
    let node = world.node(|tls| tls.client_ca = Some(world.ca.ca.clone()));
    let admin = node.running().admin_addr().expect("there is one");
    let probe = world.ca.client(None);
    for (path, begin) in [
        ("/healthz", "HTTP/1.1 200"),
        ("/readyz", "HTTP/1.1 200"),
        ("/readyz?quorum=1", "HTTP/1.1 200"),
        ("/v0/health", "HTTP/1.1 403"),
        ("/metrics", "HTTP/1.1 403"),
        ("/v0/status", "HTTP/1.1 403"),
        ("/nothing", "HTTP/1.1 403"),
        ("/healthz/", "HTTP/1.1 403"),
    ] {
        let answer = Sealed::ask(admin, &probe, &format!("GET {path}")).expect("an answer");
        assert!(answer.starts_with(begin), "{path}: {answer}");
        let is_told = answer.contains("certificate-required: this port wants a client certificate");
        assert_eq!(is_told, begin.ends_with("403"), "{path}: {answer}");
    }
    // Its client would resume the session, with the ticket of the other port.
    let data = Sealed::ask(node.running().addr(), &probe, "GET /v0/status");
    assert!(data.is_err(), "{data:?}");
    let fine = world.ca.client(Some(&world.ca.sign("client", CLIENT)));
    let answer = Sealed::ask(admin, &fine, "GET /metrics").expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    let other = Authority::new(&world.folder.path().join("other"));
    let foreign = world.ca.client(Some(&other.sign("client", CLIENT)));
    let health = Sealed::ask(admin, &foreign, "GET /healthz");
    assert!(
        health.is_err(),
        "a certificate that is not good: {health:?}"
    );
}

#[test]
fn a_new_pair_is_in_force_without_a_restart_and_a_half_written_one_never() {
    let world = World::new();
    let node = world.node(|_| {});
    // The next handshake would fail with it: its name is another one.
    let wrong = world.ca.sign(
        "wrong",
        Says {
            name: "elsewhere",
            ..MEMBER
        },
    );
    let mut kept = Sealed::connect(node.running().addr(), &world.ca.client(None));
    kept.send("GET /v0/status HTTP/1.1\r\nHost: localhost\r\n\r\n")
        .expect("served");
    let whole = std::fs::read(&world.pair.cert).expect("it is there");
    let half = world.folder.path().join("half");
    std::fs::write(&half, &whole[..whole.len() / 2]).expect("written");
    std::fs::rename(&half, &world.pair.cert).expect("renamed");
    wait_for(&node, "a half is noticed", 0, 1);
    assert_eq!(metric(&world, &node, "dendra_tls_files_refused"), 1);
    std::fs::rename(&wrong.cert, &world.pair.cert).expect("renamed");
    wait_for(&node, "a pair that does not fit is noticed", 0, 2);
    assert!(world.ask(&node, None).is_ok(), "the old pair is in force");
    // In its place at once: a look between the two halves of a copy would be a third refusal.
    std::fs::rename(&wrong.key, &world.pair.key).expect("renamed");
    wait_for(&node, "the new pair is in force", 1, 2);
    assert!(world.ask(&node, None).is_err(), "another name");
    let last = "GET /v0/status HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    kept.send(last).expect("a session goes on");
    assert_eq!(kept.rest().expect("answers").matches("200 OK").count(), 2);
}

#[test]
fn a_pair_that_does_not_hold_now_never_takes_the_place_of_one_that_does() {
    let world = World::new();
    let node = world.node(|_| {});
    let mut refused = 0;
    for (what, from, until) in [("ended", -3, -2), ("early", 2, 3), ("next", -1, 2)] {
        let says = Says {
            from: from * DAY_S,
            until: until * DAY_S,
            ..MEMBER
        };
        let pair = world.ca.sign(what, says);
        std::fs::rename(&pair.cert, &world.pair.cert).expect("renamed");
        refused += 1;
        wait_for(&node, "half of the pair is of no use", 0, refused);
        std::fs::rename(&pair.key, &world.pair.key).expect("renamed");
        let holds = what == "next";
        refused += u64::from(!holds);
        wait_for(&node, what, u64::from(holds), refused);
        assert!(world.ask(&node, None).is_ok(), "{what}");
    }
}

#[test]
fn a_pair_that_comes_too_early_is_in_force_from_when_it_holds() {
    let world = World::new();
    let node = world.node(|_| {});
    let soon = Says { from: 4, ..MEMBER };
    let pair = world.ca.sign("soon", soon);
    std::fs::rename(&pair.key, &world.pair.key).expect("renamed");
    wait_for(&node, "half of the pair is of no use", 0, 1);
    std::fs::rename(&pair.cert, &world.pair.cert).expect("renamed");
    // From now on no file changes.
    let border = node.running().border();
    assert!(border.wait(PATIENCE, |state| state.files_taken == 1));
    assert!(world.ask(&node, None).is_ok());
}

/// A member at `url`, which calls another one where no process listens.
fn member(url: &str, tls: TlsSettings) -> Node {
    let members = [GUEST, url].map(|url| Member::new(url).expect("an address"));
    let topology = Topology::new("dendra", members.to_vec(), 2).expect("two");
    let cluster = ClusterSettings::new(topology, url).expect("a member");
    Node::with(|settings| {
        settings.cluster = Some(cluster);
        settings.loops = Some(1);
        settings.tls = Some(tls);
    })
}

#[test]
fn a_pair_that_no_member_takes_is_renewed_as_before() {
    let world = World::new();
    let mut tls = world.tls();
    tls.peer_ca = Some(world.ca.ca.clone());
    let node = member("http://10.0.0.1:8080", tls);
    let pair = world.ca.sign("next", MEMBER);
    std::fs::rename(&pair.cert, &world.pair.cert).expect("renamed");
    wait_for(&node, "half of the pair is of no use", 0, 1);
    std::fs::rename(&pair.key, &world.pair.key).expect("renamed");
    wait_for(&node, "clients go on to need it", 1, 1);
}

#[test]
fn a_pair_that_would_shut_a_member_out_never_comes_into_force() {
    let world = World::new();
    let other = Authority::new(&world.folder.path().join("other"));
    let (peer_ca, list) = (world.folder.path().join("members"), world.ca.revoke(&[]));
    std::fs::copy(&world.ca.ca, &peer_ca).expect("copied");
    let mut tls = world.tls();
    (tls.peer_ca, tls.revoked) = (Some(peer_ca.clone()), Some(list.clone()));
    let node = member("http://127.0.0.1:2", tls);
    let mut refused = 0;
    for (what, pair) in [
        ("another host", world.ca.sign("elsewhere", ELSEWHERE)),
        ("a client's", world.ca.sign("client", NO_SERVER)),
        ("another CA", other.sign("node", MEMBER)),
    ] {
        std::fs::rename(&pair.cert, &world.pair.cert).expect("renamed");
        wait_for(&node, "half of the pair is of no use", 0, refused + 1);
        std::fs::rename(&pair.key, &world.pair.key).expect("renamed");
        refused += 2;
        wait_for(&node, what, 0, refused);
        assert!(world.ask(&node, None).is_ok(), "{what}");
    }
    let cas = [&world.ca.ca, &other.ca].map(|ca| std::fs::read(ca).expect("it is there"));
    let trust = |content: &[u8]| {
        let beside = world.folder.path().join("beside");
        std::fs::write(&beside, content).expect("written");
        std::fs::rename(&beside, &peer_ca).expect("renamed");
    };
    let both = cas.concat();
    trust(&both);
    wait_for(&node, "the CA came behind its pair", 1, refused);
    assert!(world.ask(&node, None).is_err(), "the new pair is in force");
    trust(&cas[0]);
    wait_for(&node, "the CA of the pair in force", 1, refused + 1);
    trust(&both);
    wait_for(&node, "both CAs", 2, refused + 1);
    let taken_back = other.revoke(&[&world.pair]);
    std::fs::rename(taken_back, &list).expect("renamed");
    wait_for(&node, "a list is for others, too", 3, refused + 1);
}

#[test]
fn a_certificate_that_was_taken_back_opens_nothing_and_its_neighbours_do() {
    let world = World::new();
    let (kept, lost) = (world.ca.sign("kept", CLIENT), world.ca.sign("lost", CLIENT));
    let list = world.ca.revoke(&[]);
    let node = world.node(|tls| {
        tls.client_ca = Some(world.ca.ca.clone());
        tls.revoked = Some(list.clone());
    });
    assert!(world.ask(&node, Some(&lost)).is_ok(), "not yet");
    assert_eq!(world.ca.revoke(&[&lost]), list);
    wait_for(&node, "the list is read", 1, 0);
    assert!(world.ask(&node, Some(&lost)).is_err());
    assert!(world.ask(&node, Some(&kept)).is_ok());
    std::fs::write(&list, "-----BEGIN X509 CRL-----\nhalf").expect("written");
    wait_for(&node, "half of a list is of no use", 1, 1);
    assert!(world.ask(&node, Some(&lost)).is_err(), "the old list stays");
}

#[test]
fn two_cas_of_one_name_have_a_list_each_and_two_lists_of_one_ca_are_refused() {
    let world = World::new();
    let other = Authority::new(&world.folder.path().join("other"));
    let both = |name: &str, files: [&Path; 2]| {
        let path = world.folder.path().join(name);
        let beside = world.folder.path().join("beside");
        let read = files.map(|file| std::fs::read(file).expect("it is there"));
        std::fs::write(&beside, read.concat()).expect("written");
        std::fs::rename(&beside, &path).expect("renamed");
        path
    };
    let pairs = [&world.ca, &other].map(|ca| (ca.sign("kept", CLIENT), ca.sign("lost", CLIENT)));
    let list = both(
        "lists",
        [&world.ca.revoke(&[]), &other.revoke(&[&pairs[1].1])],
    );
    let node = world.node(|tls| {
        tls.client_ca = Some(both("cas", [&world.ca.ca, &other.ca]));
        tls.revoked = Some(list);
    });
    let gets_in = |pair: &Pair| world.ask(&node, Some(pair)).is_ok();
    let [(kept, lost), (kept_there, lost_there)] = &pairs;
    assert!(gets_in(kept) && gets_in(lost), "the first list is empty");
    assert!(gets_in(kept_there), "the other CA's list is its own");
    assert!(!gets_in(lost_there));
    let old = world.folder.path().join("old");
    std::fs::copy(world.ca.revoke(&[]), &old).expect("copied");
    both("lists", [&old, &world.ca.revoke(&[lost])]);
    wait_for(&node, "two lists of one CA are of no use", 0, 1);
    assert!(!gets_in(lost_there), "the old lists stay");
    both("lists", [&world.ca.revoke(&[lost]), &other.revoke(&[])]);
    wait_for(&node, "one list of each", 1, 1);
    assert!(!gets_in(lost) && gets_in(lost_there));
    assert!(gets_in(kept) && gets_in(kept_there));
}

#[test]
fn days_that_are_left_are_a_metric_and_the_earliest_of_a_file_counts() {
    let world = World::new();
    let node = world.node(|tls| tls.client_ca = Some(world.ca.ca.clone()));
    let admin = node.running().admin_addr().expect("there is one");
    let own = world.ca.sign("client", CLIENT);
    let config = world.ca.client(Some(&own));
    let page = Sealed::ask(admin, &config, "GET /metrics").expect("a page");
    let left = |file: &str| -> u64 {
        let name = format!("dendra_tls_days_left{{file=\"{file}\"}} ");
        let line = page.lines().find_map(|line| line.strip_prefix(&name));
        let line = line.unwrap_or_else(|| panic!("no {name} in\n{page}"));
        line.parse().expect("a number")
    };
    // It was signed for a day, a few moments ago.
    assert!(left("certificate") <= 1, "{}", left("certificate"));
    assert!(left("client-ca") > 365, "{}", left("client-ca"));
}

#[test]
fn a_pair_that_cannot_be_used_is_refused_at_the_start() {
    let world = World::new();
    let other = world.ca.sign("other", MEMBER);
    let start = |cert: &Path, key: &Path| {
        let folder = tempfile::tempdir().expect("a folder");
        let mut settings = crate::support::settings(&folder);
        settings.tls = Some(TlsSettings::new(cert, key));
        match Server::start(settings) {
            Ok(_) => panic!("it started"),
            Err(error) => (error.exit_code(), error.to_string()),
        }
    };
    let (code, sentence) = start(&world.pair.cert, &other.key);
    assert_eq!(code, 2);
    assert!(sentence.contains("do not fit together"), "{sentence}");
    for (half, whole) in [(&world.pair.cert, &other.key), (&other.key, &other.cert)] {
        let text = std::fs::read(half).expect("it is there");
        let cut = world.folder.path().join("cut");
        std::fs::write(&cut, &text[..text.len() / 2]).expect("written");
        std::fs::set_permissions(&cut, Permissions::from_mode(0o600)).expect("changed");
        let (_, sentence) = if half == &other.key {
            start(whole, &cut)
        } else {
            start(&cut, whole)
        };
        assert!(sentence.contains("is cut, or still being"), "{sentence}");
    }
    let (_, sentence) = start(&world.pair.key, &world.pair.key);
    assert!(sentence.contains("holds no certificate"), "{sentence}");
    std::fs::set_permissions(&other.key, Permissions::from_mode(0o640)).expect("changed");
    let (_, sentence) = start(&other.cert, &other.key);
    assert!(sentence.contains("chmod 600"), "{sentence}");
}

#[test]
fn a_member_alone_is_let_in_as_one() {
    let world = World::new();
    let own = hello(GUEST, 1);
    let other = Authority::new(&world.folder.path().join("other"));
    for transport in [PeerTransport::Frames, PeerTransport::Http] {
        let mut cluster = ClusterSettings::new(topology(GUEST), NODE).expect("a member");
        cluster.transport = transport;
        let mut tls = world.tls();
        tls.peer_ca = Some(world.ca.ca.clone());
        let node = Node::with(|settings| {
            settings.cluster = Some(cluster);
            settings.loops = Some(1);
            settings.tls = Some(tls);
        });
        let mut own = own.clone();
        own.has_secret = false;
        let knock_as = |own: &Hello, pair: Option<&Pair>, request: &str| {
            let lines = format!("{request} HTTP/1.1\r\nHost: localhost\r\nDendra-Peer: {own}\r\n");
            let config = world.ca.client(pair);
            let mut client = Sealed::connect(node.running().addr(), &config);
            client.send(&format!(
                "{lines}Content-Length: 0\r\nConnection: close\r\n\r\n"
            ))?;
            client.rest()
        };
        let knock = |pair: Option<&Pair>, request: &str| knock_as(&own, pair, request);
        let hello = "POST /v0/peer/hello";
        let member = world.ca.sign("guest", MEMBER);
        let said = knock(Some(&member), hello).expect("an answer");
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        for (what, pair) in [
            ("no certificate", None),
            ("another name", Some(world.ca.sign("elsewhere", ELSEWHERE))),
            ("a client's", Some(world.ca.sign("client", NO_SERVER))),
        ] {
            let said = knock(pair.as_ref(), hello).expect("an answer");
            assert!(said.starts_with("HTTP/1.1 403"), "{what}: {said}");
            assert!(said.contains("peer-identity: "), "{what}: {said}");
        }
        let joiner = Hello {
            joins: true,
            url: "http://127.0.0.3:8080".to_owned(),
            ..own.clone()
        };
        let foreign = Hello {
            cluster_name: "foreign".to_owned(),
            cluster: own.cluster + 1,
            joins: false,
            ..joiner.clone()
        };
        for (what, stranger) in [("joins", &joiner), ("another cluster's", &foreign)] {
            let said = knock_as(stranger, None, hello).expect("an answer");
            assert!(said.contains("peer-identity: "), "{what}: {said}");
            assert!(!said.contains(&own.cluster_name), "{what}: {said}");
        }
        let admin = node.running().admin_addr().expect("there is one");
        let config = world.ca.client(Some(&member));
        let page = Sealed::ask(admin, &config, "GET /metrics").expect("a page");
        assert!(page.contains("dendra_unknown_strangers_total 2"), "{page}");
        let expired = Says {
            from: -3 * DAY_S,
            until: -2 * DAY_S,
            ..MEMBER
        };
        for (what, pair) in [
            ("another CA", other.sign("guest", MEMBER)),
            ("expired", world.ca.sign("expired", expired)),
        ] {
            assert!(knock(Some(&pair), hello).is_err(), "{what}");
        }
    }
}

#[test]
fn two_members_that_speak_tls_alone_keep_each_others_copies() {
    for transport in [PeerTransport::Frames, PeerTransport::Http] {
        let world = World::new();
        let (places, addresses): (Vec<_>, Vec<_>) = (0..2).map(|_| reserved()).unzip();
        let members = addresses.iter().map(|at| Member::new(&at.to_string()));
        let members: Result<Vec<_>, _> = members.collect();
        let topology = Topology::new("dendra", members.expect("addresses"), 2).expect("two");
        let start = |address: SocketAddr| {
            let folder = tempfile::tempdir().expect("a folder");
            let mut settings: Settings = crate::support::settings(&folder);
            settings.listen = vec![address];
            let me = address.to_string();
            let mut cluster = ClusterSettings::new(topology.clone(), &me).expect("a member");
            cluster.transport = transport;
            settings.cluster = Some(cluster);
            let mut tls = world.tls();
            tls.peer_ca = Some(world.ca.ca.clone());
            settings.tls = Some(tls);
            std::thread::spawn(move || (folder, Server::start(settings).expect("it starts")))
        };
        let nodes: Vec<_> = addresses.iter().map(|at| start(*at)).collect();
        let nodes = nodes
            .into_iter()
            .map(|node| node.join().expect("it starts"));
        let nodes: Vec<(tempfile::TempDir, Running)> = nodes.collect();
        let config = world.ca.client(None);
        let value = "v".repeat(300_000);
        let put = format!(
            "PUT /v0/entity?id=k&replicas=2/2 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Dendra-Timeout-Ms: 60000\r\nContent-Length: {}\r\n\r\n{value}",
            value.len()
        );
        let mut client = Sealed::connect(addresses[0], &config);
        client.send(&put).expect("the node reads");
        let said = client.rest().expect("an answer");
        assert!(said.starts_with("HTTP/1.1 201"), "{said}");
        let get = "GET /v0/entity?id=k&replicas=2/2";
        let said = Sealed::ask(addresses[1], &config, get).expect("an answer");
        assert!(said.starts_with("HTTP/1.1 200"), "{said}");
        assert!(said.ends_with(&value));
        let mut stranger = Client::connect(addresses[1]);
        assert_eq!(stranger.get("/v0/status").status, 400);
        for (_folder, node) in nodes {
            node.stop().expect("it stops");
        }
        drop(places);
    }
}
