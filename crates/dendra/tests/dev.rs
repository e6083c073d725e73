//! `dendra dev` from outside: three nodes come up, every order has its effect on them, and all of
//! them end. A folder that is started again has its values.
//!
//! ```text
//! dendra dev --nodes 3 --folder F ─► addresses on stderr ─► clients of each node
//! dendra dev pause 2 --folder F   ─► done: pause 2       ─► what the nodes answer from then on
//! ```
//!
//! Invariants
//! 1. The effect of an order is seen by answers: of a majority, which one lost link or node cannot
//!    prevent, and of all three copies, which it does.
//! 2. A fault that shows as silence is waited for by the node's own deadline. No wait here is for a
//!    time, and the one time that is compared is the one that bytes were held back.
//!
//! Not here: the promises meanwhile (`cluster.rs`), reading orders (`../src/dev/control.rs`). See:
//! docs/cli.md.

mod support;

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use support::http::{Client, PATIENCE};
use support::{Run, dendra, read_on, run, signal};

/// Two copies of three.
const MAJORITY: &str = "/v0/entity?id=k";
/// All three.
const ALL: &str = "/v0/entity?id=k&ack=3&from=3";
/// Milliseconds by which a slow link is slow, each way.
const SLOW_MS: u64 = 300;

/// Ports are free between the moment they were found and the start of a node: another cluster could
/// find them, too.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

struct Dev {
    child: Child,
    folder: tempfile::TempDir,
    /// Where nodes listen; orders count from 1.
    nodes: Vec<SocketAddr>,
    /// The URL of each by which the others know it.
    known: Vec<String>,
    log: Option<JoinHandle<String>>,
    _alone: MutexGuard<'static, ()>,
}

/// The output of a cluster once it runs.
struct Said {
    child: Child,
    nodes: Vec<SocketAddr>,
    known: Vec<String>,
    log: JoinHandle<String>,
}

/// Starts a cluster; its output when it ended before it ran.
fn launch(folder: &Path, flags: &[&str]) -> Result<Said, Run> {
    let mut child = dendra(["dev", "--folder"])
        .arg(folder)
        .args(flags)
        .args(["--", "--durability", "os"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary was built");
    let mut stderr = BufReader::new(child.stderr.take().expect("it is piped"));
    let (mut nodes, mut known) = (Vec::new(), Vec::new());
    let mut stderr_text = String::new();
    while nodes.len() < 3 {
        let from = stderr_text.len();
        let read = stderr.read_line(&mut stderr_text).expect("stderr is text");
        if read == 0 {
            return Err(Run {
                code: child.wait().expect("it is ours").code(),
                stdout: Vec::new(),
                stderr: stderr_text,
            });
        }
        let own = format!("node {}  http://", nodes.len() + 1);
        if let Some(rest) = stderr_text[from..].strip_prefix(&own) {
            let address = rest.split(' ').next().expect("an address");
            nodes.push(address.parse().expect("an address"));
            let (_, url) = rest
                .trim_end()
                .split_once("  known to the others as ")
                .expect("it is said");
            known.push(url.to_owned());
        }
    }
    Ok(Said {
        child,
        nodes,
        known,
        log: read_on(stderr),
    })
}

/// The output of a start that is to be refused.
fn refusal(folder: &Path, flags: &[&str]) -> Run {
    match launch(folder, flags) {
        Err(run) => run,
        Ok(mut said) => {
            signal(&said.child, "TERM");
            drop(said.child.wait());
            panic!("it runs at {:?}", said.nodes);
        }
    }
}

impl Dev {
    fn start() -> Dev {
        // A test that failed is no reason to stop.
        let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::tempdir().expect("a folder");
        let said = launch(folder.path(), &["--nodes", "3"]).expect("ports are free");
        Dev {
            child: said.child,
            folder,
            nodes: said.nodes,
            known: said.known,
            log: Some(said.log),
            _alone: alone,
        }
    }

    /// Starts it once more on its folder, without a word about the nodes.
    fn start_again(&mut self) {
        let deadline = Instant::now() + PATIENCE;
        let said = loop {
            match launch(self.folder.path(), &[]) {
                Ok(said) => break said,
                // Its ports were free, and then a connection of another process had one for a
                // while.
                Err(run) => assert!(
                    run.stderr.contains("is taken") && Instant::now() < deadline,
                    "{}",
                    run.stderr
                ),
            }
        };
        self.child = said.child;
        self.nodes = said.nodes;
        self.known = said.known;
        self.log = Some(said.log);
    }

    /// Ends it, and returns its output.
    fn stop(&mut self) -> String {
        let stopped = self.order(&["stop"]);
        assert_eq!(stopped.code, Some(0), "{}", stopped.stderr);
        assert_eq!(self.child.wait().expect("it is ours").code(), Some(0));
        let log = self.log.take().expect("it is taken once a run");
        log.join().expect("the reader does not panic")
    }

    fn order(&self, words: &[&str]) -> Run {
        let mut command = dendra(["dev"]);
        run(command.args(words).arg("--folder").arg(self.folder.path()))
    }

    /// An order that is carried out.
    fn tell(&self, order: &str) {
        let words: Vec<&str> = order.split(' ').collect();
        let run = self.order(&words);
        assert_eq!(run.code, Some(0), "{order}: {}", run.stderr);
        let said = String::from_utf8(run.stdout).expect("it is text");
        assert_eq!(said, format!("done: {order}\n"));
    }

    fn client(&self, node: usize) -> Client {
        Client::open(self.nodes[node - 1]).expect("the node listens")
    }

    /// The answer of a node, however long that takes it.
    fn ask(&self, node: usize, target: &str) -> u16 {
        let answer = self.client(node).request("GET", target, &[], b"");
        answer.expect("the node answers").status
    }

    /// Its answer when it has a second to find out.
    fn ask_soon(&self, node: usize, target: &str) -> Option<u16> {
        let mut client = Client::open(self.nodes[node - 1]).ok()?;
        let soon = ["Dendra-Timeout-Ms: 1000"];
        Some(client.request("GET", target, &soon, b"")?.status)
    }

    fn wait_for(&self, node: usize, target: &str, status: u16) {
        let deadline = Instant::now() + PATIENCE;
        while self.ask_soon(node, target) != Some(status) {
            assert!(Instant::now() < deadline, "node {node} has no {status}");
            support::rest();
        }
    }

    /// Waits until `node` says in a refusal that `missing` is, by the URL that the hello said.
    fn wait_for_a_sentence_that_names(&self, missing: usize, node: usize) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let soon = ["Dendra-Timeout-Ms: 1000"];
            let answer = self.client(node).request("GET", ALL, &soon, b"");
            let body = answer.expect("the node answers").body;
            let sentence = String::from_utf8_lossy(&body);
            if sentence.contains(&self.known[missing - 1]) {
                return;
            }
            assert!(Instant::now() < deadline, "{sentence}");
        }
    }

    /// Two nodes do not hear each other: each of them lacks one copy, the third has all, and no
    /// node lacks a majority.
    fn assert_apart(&self, a: usize, b: usize, third: usize) {
        for node in [a, b] {
            // At once when the link is known to be lost, in its time when it hangs.
            let lacks = self.ask_soon(node, ALL);
            assert!(matches!(lacks, Some(503 | 504)), "node {node}: {lacks:?}");
            assert_eq!(self.ask(node, MAJORITY), 200, "node {node}");
        }
        assert_eq!(self.ask(third, ALL), 200);
    }

    /// Waits until all three answer, whichever loop of a node is asked: a connection goes to the
    /// loop with the fewest.
    fn wait_for_all_links(&self, status: u16) {
        let deadline = Instant::now() + PATIENCE;
        for node in 1..=3 {
            self.wait_for(node, ALL, status);
            for mut client in (0..8).map(|_| self.client(node)).collect::<Vec<_>>() {
                let mut ask = || client.request("GET", ALL, &["Dendra-Timeout-Ms: 1000"], b"");
                while ask().is_none_or(|answer| answer.status != status) {
                    assert!(Instant::now() < deadline, "node {node} lacks links");
                }
            }
        }
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        // After a failed assertion: its end is the end of its nodes, a kill would leave them.
        if matches!(self.child.try_wait(), Ok(None)) {
            signal(&self.child, "TERM");
        }
        drop(self.child.wait());
        if let Some(log) = self.log.take() {
            drop(log.join());
        }
    }
}

#[test]
fn every_order_does_to_the_nodes_what_it_says() {
    let mut dev = Dev::start();
    dev.wait_for_all_links(404);
    let stored = dev.client(1).request("PUT", ALL, &[], b"v");
    assert_eq!(stored.expect("the node answers").status, 201);

    for (words, sentence) in [
        (&["kill", "9"][..], "there is no node 9: they are 1 to 3"),
        (&["start", "1"], "node 1 runs already"),
        (&["resume", "1"], "node 1 is not paused"),
        (&["cut", "1", "1"], "node 1 has no link to itself"),
    ] {
        let refused = dev.order(words);
        assert_eq!(refused.code, Some(1), "{words:?}");
        assert!(refused.stderr.contains(sentence), "{}", refused.stderr);
    }
    // The folder may be named in front of the order; what starts a cluster belongs to none.
    let before = |flags: &[&str]| {
        let mut command = dendra(["dev", "--folder"]);
        run(command
            .arg(dev.folder.path())
            .args(flags)
            .args(["kill", "9"]))
    };
    assert_eq!(before(&[]).code, Some(1), "it reached the cluster");
    let mixed = before(&["--nodes", "3"]);
    assert_eq!(mixed.code, Some(2));
    assert!(mixed.stderr.contains("leave them out"), "{}", mixed.stderr);

    for fault in ["cut 1 2", "stall 1 2"] {
        dev.tell(fault);
        dev.assert_apart(1, 2, 3);
        dev.tell("heal");
        dev.wait_for_all_links(200);
    }

    dev.tell(&format!("slow 1 2 {SLOW_MS}"));
    let began = Instant::now();
    assert_eq!(dev.ask(1, ALL), 200);
    let both_ways = 2 * Duration::from_millis(SLOW_MS);
    assert!(began.elapsed() >= both_ways, "{:?}", began.elapsed());
    assert_eq!(dev.ask(1, MAJORITY), 200);
    dev.tell("heal");
    dev.wait_for_all_links(200);

    dev.tell("pause 2");
    let mut frozen = dev.client(2);
    let sent = frozen.send("GET", MAJORITY, &[], b"");
    sent.expect("the kernel takes it");
    assert_eq!(dev.ask_soon(1, ALL), Some(504));
    assert_eq!(dev.ask(3, MAJORITY), 200);
    assert!(!frozen.has_answer(), "a frozen node says nothing");
    dev.tell("resume 2");
    assert_eq!(frozen.read().expect("it goes on").status, 200);
    dev.wait_for_all_links(200);

    let mut orphan = dev.client(2);
    dev.tell("kill 2");
    assert!(orphan.request("GET", MAJORITY, &[], b"").is_none());
    assert!(TcpStream::connect(dev.nodes[1]).is_err());
    assert_eq!(dev.ask(1, MAJORITY), 200);
    dev.wait_for_a_sentence_that_names(2, 1);
    let again = dev.order(&["kill", "2"]);
    assert_eq!(again.code, Some(1));
    assert!(again.stderr.contains("it does not run"), "{}", again.stderr);
    dev.tell("start 2");
    dev.wait_for_all_links(200);

    dev.stop();
    for node in &dev.nodes {
        assert!(TcpStream::connect(node).is_err(), "{node} has ended");
    }
    assert!(!dev.folder.path().join("dev.sock").exists());
    assert!(dev.folder.path().join("node-2").is_dir(), "data is kept");
    let late = dev.order(&["heal"]);
    assert!(
        late.stderr.contains("no cluster listens at"),
        "{}",
        late.stderr
    );
}

#[test]
fn a_folder_that_is_started_again_has_its_nodes_its_addresses_and_its_values() {
    let mut dev = Dev::start();
    dev.wait_for_all_links(404);
    let stored = dev.client(1).request("PUT", ALL, &[], b"v");
    assert_eq!(stored.expect("the node answers").status, 201);
    let addresses = (dev.nodes.clone(), dev.known.clone());
    dev.stop();

    let run = refusal(dev.folder.path(), &["--nodes", "2"]);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("has 3: leave"), "{}", run.stderr);
    assert!(!dev.folder.path().join("dev.sock").exists());

    dev.start_again();
    assert_eq!((dev.nodes.clone(), dev.known.clone()), addresses);
    dev.wait_for_all_links(200);
    let found = dev.client(2).request("GET", ALL, &[], b"");
    assert_eq!(found.expect("the node answers").body, b"v");
    dev.stop();
    // The proxy's port is not the node's: a number that is right here is a mistake elsewhere.
    let log = std::fs::read_to_string(dev.folder.path().join("node-1.log")).expect("a log");
    let doubt = format!("self is {}, and listen", dev.known[0]);
    assert_eq!(log.matches(&doubt).count(), 2, "once a start: {log}");
}

#[test]
fn a_folder_whose_addresses_are_taken_or_lost_is_refused_in_a_sentence() {
    let mut dev = Dev::start();
    dev.stop();
    let refused = |code: i32, words: &str| {
        let run = refusal(dev.folder.path(), &[]);
        assert_eq!(run.code, Some(code), "{}", run.stderr);
        assert!(run.stderr.contains(words), "{}", run.stderr);
    };
    // The first one that is tried. Another process that has it for a while does as well as this
    // test.
    let address = dev.known[0].strip_prefix("http://").expect("a URL");
    let taken = TcpListener::bind(address);
    let (_, port) = address.rsplit_once(':').expect("a port");
    refused(
        1,
        &format!("port {port} is taken by another process, and node 1"),
    );
    drop(taken);

    let file = dev.folder.path().join("dev.addresses");
    std::fs::write(&file, "node 1 is here\n").expect("it is ours");
    refused(1, "dev.addresses cannot be read (line 1 is not");
    std::fs::remove_file(&file).expect("it is ours");
    std::fs::create_dir_all(dev.folder.path().join("node-1")).expect("it is ours");
    refused(2, "holds nodes and no dev.addresses");
}
