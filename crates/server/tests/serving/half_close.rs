//! Clients that close their sending side behind their last request, in the same segment.
//!
//! ```text
//! request, FIN ─► a node by itself, a member, a front door ─► the answer, whole ─► the end
//! ```
//!
//! Invariants
//! 1. Each answer is that of a client which keeps its sending side open.
//! 2. A client may count as gone once its request has waited for `CLIENT_LOOK`. An exchange that
//!    took so long proves nothing, and is repeated.
//!
//! Not here: clients that have gone, and requests that wait (`tests/hang_up.rs`).
//! See: docs/api.md, "Deadlines and overload".

use crate::support::{Answer, Client, Node, PATIENCE, reserved, rest, settings};
use dendra_server::limits::CLIENT_LOOK;
use dendra_server::settings::{ClusterSettings, Member, Secret, Topology};
use dendra_server::{Server, StoreFiles, StorePapers};
use dendra_stores::DumbStore;
use socket2::SockRef;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

/// Of the system's calls that send: more comes at once, so that this leaves with it.
const MSG_MORE: i32 = 0x8000;

/// A method, a target, further lines of the head, a body.
type Ask = (&'static str, &'static str, &'static str, &'static str);

/// The routes of the data plane, in an order in which each has the same answer on every node.
const ROUTES: &[Ask] = &[
    ("PUT", "/v0/entity?id=a", "", "one"),
    ("PUT", "/v0/entity?id=b", "", "two"),
    ("GET", "/v0/entity?id=a", "", ""),
    ("GET", "/v0/entity?id=none", "", ""),
    ("GET", "/v0/entity?id=a", "If-None-Match: *\r\n", ""),
    ("HEAD", "/v0/entity?id=b", "", ""),
    ("PUT", "/v0/entity?id=a", "If-None-Match: *\r\n", "three"),
    ("PUT", "/v0/entity?id=a", "If-Match: *\r\n", "one"),
    ("PUT", "/v0/entity?id=c&ttl=1000", "", "three"),
    ("DELETE", "/v0/entity?id=c", "", ""),
    ("GET", "/v0/entities?start=a", "", ""),
    ("GET", "/v0/count?prefix=a", "", ""),
    ("GET", "/v0/entities?start=a&limit=1", "", ""),
    ("GET", "/v0/entities?prefix=a&keys-only=true", "", ""),
    ("GET", "/v0/entities?start=a&reverse=true", "", ""),
    ("GET", "/v0/entities?prefix=none", "", ""),
    ("GET", "/v0/status", "", ""),
    ("GET", "/v0/tokens", "", ""),
    ("POST", "/v0/peer/hello", "", ""),
    ("POST", "/v0/peer/ask", "", ""),
    ("GET", "/v0/peer", "", ""),
    ("GET", "/v0/entity", "", ""),
    ("GET", "/v0/nothing", "", ""),
    ("GET", "/v0/entity?id=a", "Host: other\r\n", ""),
    ("G(T", "/", "", ""),
];

/// The routes of the admin plane that look.
const ADMIN_ROUTES: &[Ask] = &[
    ("GET", "/", "", ""),
    ("GET", "/healthz", "", ""),
    ("GET", "/readyz", "", ""),
    ("GET", "/metrics", "", ""),
    ("GET", "/v0/status", "", ""),
    ("GET", "/v0/cluster", "", ""),
    ("GET", "/v0/cluster/history", "", ""),
    ("GET", "/v0/cluster/compare", "", ""),
    ("GET", "/openapi.yaml", "", ""),
    ("GET", "/nothing", "", ""),
];

fn bytes_of((method, target, lines, body): Ask) -> Vec<u8> {
    let length = if body.is_empty() {
        String::new()
    } else {
        format!("Content-Length: {}\r\n", body.len())
    };
    let head = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{lines}{length}\r\n");
    (head + body).into_bytes()
}

/// Sends `bytes` and the end of them in one segment, and reads one answer to each method. `None`
/// when that took so long that the client may have counted as gone.
fn ask_and_end(at: SocketAddr, bytes: &[u8], methods: &[&str]) -> Option<Vec<Answer>> {
    let client = Client::connect(at);
    let began = Instant::now();
    let socket = SockRef::from(&client.stream);
    let sent = socket.send_with_flags(bytes, MSG_MORE).expect("it is sent");
    assert_eq!(sent, bytes.len());
    socket.shutdown(Shutdown::Write).expect("it is open");
    let mut all = client.read_all();
    if began.elapsed() >= CLIENT_LOOK {
        return None;
    }
    let answers = methods.iter().map(|method| all.read(method)).collect();
    assert!(all.is_at_end(), "bytes came behind the last answer");
    Some(answers)
}

fn until_quick(at: SocketAddr, bytes: &[u8], methods: &[&str]) -> Vec<Answer> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(answers) = ask_and_end(at, bytes, methods) {
            return answers;
        }
        assert!(Instant::now() < deadline, "the machine is too slow");
        rest();
    }
}

/// What of an answer is the same each time.
fn lasting(answer: &Answer) -> (u16, Option<&str>, Option<&str>) {
    let text = std::str::from_utf8(&answer.body).ok();
    (answer.status, answer.trailer.as_deref(), text)
}

fn each_route_answers(node: &str, at: SocketAddr) {
    let usual: Vec<Answer> = ROUTES
        .iter()
        .map(|ask| {
            let mut client = Client::connect(at);
            client.send(&bytes_of(*ask));
            client.read(ask.0)
        })
        .collect();
    for (ask, usual) in ROUTES.iter().zip(&usual) {
        let got = until_quick(at, &bytes_of(*ask), &[ask.0]);
        assert_eq!(lasting(&got[0]), lasting(usual), "{node}: {ask:?}");
    }
    // Those that go on with the connection, in one segment: it ends behind the last one.
    let goes_on = |answer: &Answer| answer.header("Connection") != Some("close");
    let together = ROUTES.iter().zip(&usual).filter(|(_, it)| goes_on(it));
    let (asks, usual): (Vec<&Ask>, Vec<&Answer>) = together.unzip();
    assert!(asks.len() > 15, "{node}: {asks:?}");
    let bytes: Vec<u8> = asks.iter().flat_map(|ask| bytes_of(**ask)).collect();
    let methods: Vec<&str> = asks.iter().map(|ask| ask.0).collect();
    let got = until_quick(at, &bytes, &methods);
    for ((ask, usual), got) in asks.iter().zip(usual).zip(&got) {
        assert_eq!(lasting(got), lasting(usual), "{node}, pipelined: {ask:?}");
    }
}

/// The numbers on a page of the admin plane change: its status and its end are looked at.
fn each_admin_route_answers(node: &str, at: SocketAddr) {
    for ask in ADMIN_ROUTES {
        let mut client = Client::connect(at);
        client.send(&bytes_of(*ask));
        let usual = client.read(ask.0).status;
        let got = until_quick(at, &bytes_of(*ask), &[ask.0]);
        assert_eq!(got[0].status, usual, "{node}: {ask:?}");
    }
}

#[test]
fn a_node_by_itself_answers() {
    let node = Node::start();
    each_route_answers("alone", node.running().addr());
    each_admin_route_answers("alone", node.running().admin_addr().expect("there is one"));
}

#[test]
fn a_front_door_answers() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let papers = StorePapers::open(StoreFiles::default()).expect("there are no files");
    let store = Arc::new(DumbStore::new(1));
    let running = Server::start_front(settings(&folder), store, papers).expect("it starts");
    let node = Node {
        running: Some(running),
        folder,
    };
    each_route_answers("front", node.running().addr());
    each_admin_route_answers("front", node.running().admin_addr().expect("there is one"));
}

#[test]
fn a_member_answers() {
    let (places, addresses): (Vec<_>, Vec<_>) = (0..2).map(|_| reserved()).unzip();
    let members = addresses.iter().map(|at| Member::new(&at.to_string()));
    let members: Result<Vec<_>, _> = members.collect();
    let topology = Topology::new("dendra", members.expect("addresses"), 2).expect("two");
    let start = |address: SocketAddr| {
        let folder = tempfile::tempdir().expect("a folder");
        let mut settings = settings(&folder);
        settings.listen = vec![address];
        let me = address.to_string();
        let mut cluster = ClusterSettings::new(topology.clone(), &me).expect("a member");
        cluster.secret = Secret::new(b"hush, sixteen bytes at least");
        settings.cluster = Some(cluster);
        std::thread::spawn(move || Node {
            running: Some(Server::start(settings).expect("it starts")),
            folder,
        })
    };
    let nodes: Vec<_> = addresses.iter().map(|at| start(*at)).collect();
    let nodes = nodes
        .into_iter()
        .map(|node| node.join().expect("it starts"));
    let nodes: Vec<Node> = nodes.collect();
    each_route_answers("member", addresses[0]);
    each_admin_route_answers(
        "member",
        nodes[0].running().admin_addr().expect("there is one"),
    );
    drop(nodes);
    drop(places);
}
