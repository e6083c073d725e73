//! Real servers of Cassandra from its jars, each on a loopback address of its own.
//!
//! ```text
//! DENDRA_CASSANDRA, else target/outgrow/cassandra (`make outgrow-setup`): a folder of jars
//! server n ─► 127.0.BLOCK.n, the usual ports
//! a start: its port answers ─► every server takes a row that all of them must have
//! ```
//!
//! Invariants
//! 1. Without the jars or without Java there is no cluster: the test says that it was skipped.
//! 2. One server after the other joins: Cassandra lets no two join at once.
//! 3. A start may take long on a busy machine, and it may not stand still. A server that logs no
//!    line for `SILENCE` has failed, and the end of its log is shown.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A server that starts logs a line each second or two, on a busy machine each ten.
const SILENCE: Duration = Duration::from_secs(90);
/// The longest start: one takes 15 s of a core.
const BOOT: Duration = Duration::from_secs(480);
/// How long servers that listen take to see each other.
const MEETING: Duration = Duration::from_secs(120);
const PORT: u16 = 9042;
/// The least work for a start: what runs for a minute is not compiled twice.
pub(crate) const QUICK: [&str; 4] = [
    "-Xmx512m",
    "-Xms128m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
];
/// Without a file of its own, Cassandra's library of logs writes all that it can.
const LOGBACK: &str = r#"<configuration>
<appender name="out" class="ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%d %level %logger{0} %msg%n</pattern></encoder></appender>
<root level="INFO"><appender-ref ref="out"/></root></configuration>
"#;
/// Packages that Cassandra opens for itself.
const OPENED: &str = "java.base/jdk.internal.misc java.base/jdk.internal.ref java.base/sun.nio.ch \
    java.base/java.io java.base/java.lang java.base/java.lang.module java.base/java.lang.reflect \
    java.base/java.math java.base/java.net java.base/java.nio java.base/java.util \
    java.base/java.util.concurrent java.base/java.util.concurrent.atomic java.base/java.util.jar \
    java.base/jdk.internal.loader java.base/jdk.internal.math java.base/jdk.internal.module \
    java.base/jdk.internal.reflect java.base/jdk.internal.util.jar java.rmi/sun.rmi.registry \
    java.rmi/sun.rmi.server java.rmi/sun.rmi.transport.tcp java.sql/java.sql \
    java.management.rmi/com.sun.jmx.remote.internal.rmi jdk.management/com.sun.management.internal";

/// A cluster of Cassandra.
pub(crate) struct Cassandra {
    folder: tempfile::TempDir,
    jars: PathBuf,
    block: u8,
    java: Vec<String>,
    /// The data centre of each server; `None` = the one that Cassandra names itself.
    centres: Vec<Option<&'static str>>,
    /// More lines of the configuration of servers that start from now on.
    pub(crate) more: String,
    children: Vec<Option<Child>>,
    /// Tests of one process start theirs one after the other.
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

fn jars() -> Option<PathBuf> {
    let named = std::env::var_os("DENDRA_CASSANDRA").map(PathBuf::from);
    // Packages at the root of the workspace use this file, too.
    let fetched = ["/../../target", "/../target"]
        .map(|target| format!("{}{target}/outgrow/cassandra", env!("CARGO_MANIFEST_DIR")));
    let mut known = named.into_iter().chain(fetched.map(PathBuf::from));
    let mut java = Command::new("java");
    let java = java.arg("-version").stderr(Stdio::null()).status();
    let has_java = java.is_ok_and(|status| status.success());
    known.find(|jars| jars.is_dir()).filter(|_| has_java)
}

impl Cassandra {
    /// So many servers at `127.0.block.1` and on; `None` when there is no Cassandra here.
    pub(crate) fn start(block: u8, members: usize) -> Option<Cassandra> {
        Cassandra::start_with(block, members, &QUICK, "")
    }

    /// The same with other options of Java, and more lines of the configuration.
    pub(crate) fn start_with(
        block: u8,
        members: usize,
        java: &[&str],
        more: &str,
    ) -> Option<Cassandra> {
        Cassandra::start_each(block, vec![None; members], java, more)
    }

    /// One server in each of these data centres.
    pub(crate) fn start_in(block: u8, centres: &[&'static str]) -> Option<Cassandra> {
        let centres = centres.iter().map(|&centre| Some(centre)).collect();
        Cassandra::start_each(block, centres, &QUICK, "")
    }

    fn start_each(
        block: u8,
        centres: Vec<Option<&'static str>>,
        java: &[&str],
        more: &str,
    ) -> Option<Cassandra> {
        let Some(jars) = jars() else {
            eprintln!(
                "SKIPPED: there is no Java, or no Cassandra. `make outgrow-setup` fetches its jars, or name their folder in DENDRA_CASSANDRA"
            );
            return None;
        };
        let mut cassandra = Cassandra {
            folder: tempfile::tempdir().expect("a folder"),
            jars,
            block,
            java: java.iter().map(|&option| option.to_owned()).collect(),
            centres,
            more: more.to_owned(),
            children: Vec::new(),
            // A test that failed has left no files behind.
            _turn: TURN.lock().unwrap_or_else(PoisonError::into_inner),
        };
        for member in 0..cassandra.centres.len() {
            let child = cassandra.spawn(member);
            cassandra.children.push(Some(child));
            cassandra.wait_for(member);
        }
        if cassandra.children.len() > 1 {
            cassandra.meet();
        }
        Some(cassandra)
    }

    fn address(&self, member: usize) -> String {
        format!("127.0.{}.{}", self.block, member + 1)
    }

    fn spawn(&self, member: usize) -> Child {
        let home = self.folder.path().join(format!("m{member}"));
        std::fs::create_dir_all(&home).expect("a folder");
        let (path, address) = (home.display(), self.address(member));
        let config = home.join("cassandra.yaml");
        let rack = home.join("rack.properties");
        let (snitch, centre) = match self.centres[member] {
            None => ("SimpleSnitch", ""),
            Some(centre) => ("GossipingPropertyFileSnitch", centre),
        };
        std::fs::write(&rack, format!("dc={centre}\nrack=one\n")).expect("written");
        let text = format!(
            "cluster_name: test\nnum_tokens: 1\npartitioner: org.apache.cassandra.dht.Murmur3Partitioner\n\
             commitlog_sync: batch\nauto_bootstrap: false\ndata_file_directories: [{path}/data]\ncommitlog_directory: {path}/log\n\
             saved_caches_directory: {path}/caches\nhints_directory: {path}/hints\n\
             cdc_raw_directory: {path}/cdc\nread_request_timeout: 10s\nwrite_request_timeout: 10s\n\
             cas_contention_timeout: 10s\nlisten_address: {address}\nrpc_address: {address}\n\
             native_transport_port: {PORT}\nendpoint_snitch: {snitch}\nseed_provider:\n\
             \x20 - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n\
             \x20   parameters: [{{seeds: \"{}\"}}]\n{}",
            self.address(0),
            self.more
        );
        std::fs::write(&config, text).expect("written");
        let logback = home.join("logback.xml");
        std::fs::write(&logback, LOGBACK).expect("written");
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(home.join("out"));
        let mut command = Command::new("java");
        command.args(&self.java);
        for package in OPENED.split_whitespace() {
            let package = format!("{package}=ALL-UNNAMED");
            command.args(["--add-exports", &package, "--add-opens", &package]);
        }
        command
            .arg(format!("-Dcassandra.config=file://{}", config.display()))
            .arg(format!("-Dlogback.configurationFile={}", logback.display()))
            .arg(format!("-Dcassandra.storagedir={path}"))
            .arg(format!(
                "-Dcassandra-rackdc.properties=file://{}",
                rack.display()
            ))
            .args([
                "-Dcassandra-foreground=yes",
                "-Dcassandra.ring_delay_ms=2000",
                "-Dcassandra.superuser_setup_delay_ms=0",
            ])
            .args(["-Dcassandra.skip_wait_for_gossip_to_settle=0"])
            .args(["-Dcassandra.consistent.rangemovement=false"])
            .arg("-cp")
            .arg(format!("{}/*", self.jars.display()))
            .arg("org.apache.cassandra.service.CassandraDaemon")
            .stdout(log.expect("a file"))
            .stderr(Stdio::null())
            .spawn()
            .expect("java was there just now")
    }

    fn log(&self, member: usize) -> String {
        let file = self.folder.path().join(format!("m{member}/out"));
        std::fs::read_to_string(file).unwrap_or_default()
    }

    /// Waits until a server serves clients, which it does behind everything else.
    fn wait_for(&mut self, member: usize) {
        let deadline = Instant::now() + BOOT;
        let (mut logged, mut logged_at) = (0, Instant::now());
        let address = self.address(member);
        while TcpStream::connect((address.as_str(), PORT)).is_err() {
            let child = self.children[member].as_mut().expect("it runs");
            let has_ended = child.try_wait().expect("it is ours").is_some();
            let log = self.log(member);
            if log.len() != logged {
                (logged, logged_at) = (log.len(), Instant::now());
            }
            let is_stuck = logged_at.elapsed() > SILENCE || Instant::now() > deadline;
            if has_ended || is_stuck {
                let from = log.lines().count().saturating_sub(30);
                let end: Vec<_> = log.lines().skip(from).collect();
                panic!(
                    "server {member} of Cassandra does not start:\n{}",
                    end.join("\n")
                );
            }
            std::thread::park_timeout(Duration::from_millis(100));
        }
    }

    /// Starts one more server, which takes a part of the ring without the records that are there,
    /// and waits until all servers see each other.
    pub(crate) fn join(&mut self) {
        let member = self.children.len();
        self.centres.push(None);
        let child = self.spawn(member);
        self.children.push(Some(child));
        self.wait_for(member);
        let more = replication(self.children.len());
        let text = format!("ALTER KEYSPACE meeting WITH replication = {more}");
        // Refused as long as a server sees another one on its way into the ring.
        self.insist(0, &text, ONE);
        self.wait_until_whole();
    }

    /// Has a server carry out a statement.
    pub(crate) fn order(&self, member: usize, text: &str, level: u16) {
        let asked = CqlLink::open(&self.address(member)).ask(text, level);
        assert_eq!(asked, RESULT, "{text}");
    }

    /// How many rows a table has.
    pub(crate) fn count(&self, table: &str) -> u64 {
        let text = format!("SELECT count(*) FROM {table}");
        let (opcode, body) = CqlLink::open(&self.address(0)).ask_for_body(&text, ONE);
        assert_eq!(opcode, RESULT, "{text}");
        // The answer ends in its only number.
        let number = body.last_chunk().expect("there is a number");
        u64::from_be_bytes(*number)
    }

    /// Stops a server where it is, or lets it go on: `STOP`, `CONT`.
    pub(crate) fn signal(&self, member: usize, name: &str) {
        let child = self.children[member].as_ref().expect("it runs");
        let status = Command::new("kill")
            .args([format!("-{name}"), child.id().to_string()])
            .status()
            .expect("kill is installed");
        assert!(status.success(), "the server is gone");
    }

    /// Ends a server as a power loss would.
    pub(crate) fn kill(&mut self, member: usize) {
        let mut child = self.children[member].take().expect("it runs");
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
    }

    /// Starts a server that was killed, and waits until it and the others see each other.
    pub(crate) fn revive(&mut self, member: usize) {
        self.revive_alone(member);
        self.wait_until_whole();
    }

    /// Starts a server that was killed, and waits until it serves clients.
    pub(crate) fn revive_alone(&mut self, member: usize) {
        self.children[member] = Some(self.spawn(member));
        self.wait_for(member);
    }

    /// Processes of the servers that run.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.children.iter().flatten().map(Child::id).collect()
    }

    /// Every server takes a row at the level `ALL`: it sees all others, and they know the table.
    fn wait_until_whole(&self) {
        for member in 0..self.children.len() {
            self.insist(member, "INSERT INTO meeting.seen (k) VALUES (1)", ALL);
        }
    }

    /// Asks a server again and again, until it sees the others and does it.
    fn insist(&self, member: usize, text: &str, level: u16) {
        let deadline = Instant::now() + MEETING;
        let mut link = CqlLink::open(&self.address(member));
        while link.ask(text, level) != RESULT {
            assert!(
                Instant::now() < deadline,
                "server {member} of Cassandra does not see the others: {text}"
            );
            std::thread::park_timeout(Duration::from_millis(200));
        }
    }

    fn meet(&self) {
        let mut link = CqlLink::open(&self.address(0));
        let copies = self.children.len();
        let keyspace = keyspace("meeting", copies);
        for text in [&keyspace, "CREATE TABLE meeting.seen (k int PRIMARY KEY)"] {
            assert_eq!(link.ask(text, ONE), RESULT, "{text}");
        }
        self.wait_until_whole();
    }

    /// Makes a keyspace with one copy in each of these data centres.
    pub(crate) fn make_keyspace_in(&self, name: &str, centres: &[&str]) {
        let copies = centres.iter().map(|centre| format!(", '{centre}': 1"));
        let text = format!(
            "CREATE KEYSPACE {name} WITH replication = {{'class': 'NetworkTopologyStrategy'{}}}",
            copies.collect::<String>()
        );
        self.order(0, &text, ONE);
    }

    /// The value of `--store` for a new keyspace with so many copies.
    pub(crate) fn store(&self, keyspace: &str, copies: usize) -> String {
        let text = self::keyspace(keyspace, copies);
        self.order(0, &text, ONE);
        let members = 0..self.children.len();
        let servers: Vec<_> = members.map(|member| self.address(member)).collect();
        format!("cassandra://{}/{keyspace}", servers.join(","))
    }
}

const ONE: u16 = 1;
pub(crate) const ALL: u16 = 5;
const RESULT: u8 = 8;

fn keyspace(name: &str, copies: usize) -> String {
    format!(
        "CREATE KEYSPACE {name} WITH replication = {}",
        replication(copies)
    )
}

fn replication(copies: usize) -> String {
    format!("{{'class': 'SimpleStrategy', 'replication_factor': {copies}}}")
}

/// A connection to one server.
struct CqlLink(TcpStream);

impl CqlLink {
    fn open(address: &str) -> CqlLink {
        let stream = TcpStream::connect((address, PORT)).expect("it listens");
        stream.set_read_timeout(Some(MEETING)).expect("a time");
        let mut link = CqlLink(stream);
        let startup = b"\0\x01\0\x0bCQL_VERSION\0\x053.0.0";
        assert_eq!(link.exchange(1, startup).0, 2, "it is ready");
        link
    }

    /// Asks at a level; returns the opcode of the answer.
    fn ask(&mut self, text: &str, level: u16) -> u8 {
        self.ask_for_body(text, level).0
    }

    fn ask_for_body(&mut self, text: &str, level: u16) -> (u8, Vec<u8>) {
        let mut body = (text.len() as u32).to_be_bytes().to_vec();
        body.extend_from_slice(text.as_bytes());
        body.extend_from_slice(&level.to_be_bytes());
        body.push(0);
        self.exchange(7, &body)
    }

    /// Sends a frame; returns the opcode of the answer, and its body.
    fn exchange(&mut self, opcode: u8, body: &[u8]) -> (u8, Vec<u8>) {
        let mut frame = vec![4, 0, 0, 0, opcode];
        frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
        frame.extend_from_slice(body);
        self.0.write_all(&frame).expect("it reads");
        let mut head = [0; 9];
        self.0.read_exact(&mut head).expect("it answers");
        let length = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut answer = vec![0; length as usize];
        self.0.read_exact(&mut answer).expect("it answers");
        (head[4], answer)
    }
}

impl Drop for Cassandra {
    fn drop(&mut self) {
        for child in self.children.iter_mut().flatten() {
            // It has ended already, or ends now.
            drop(child.kill());
            drop(child.wait());
        }
    }
}
