//! Real servers of Cassandra from its jars, each on a loopback address of its own.
//!
//! ```text
//! DENDRA_CASSANDRA, else target/outgrow/cassandra (`make outgrow-setup`): a folder of jars
//! server n ─► 127.0.BLOCK.n, the usual ports
//! ```
//!
//! Invariants
//! 1. Without the jars or without Java there is no cluster: the test says that it was skipped.
//! 2. One server after the other joins: Cassandra lets no two join at once.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Java takes some seconds to start, and a minute on a machine that has other work.
const BOOT: Duration = Duration::from_secs(240);
const PORT: u16 = 9042;
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
    children: Vec<Option<Child>>,
}

fn jars() -> Option<PathBuf> {
    let named = std::env::var_os("DENDRA_CASSANDRA").map(PathBuf::from);
    let fetched = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../target/outgrow/cassandra"
    );
    let jars = named.unwrap_or_else(|| PathBuf::from(fetched));
    let mut java = Command::new("java");
    let java = java.arg("-version").stderr(Stdio::null()).status();
    let has_java = java.is_ok_and(|status| status.success());
    (has_java && jars.is_dir()).then_some(jars)
}

impl Cassandra {
    /// So many servers at `127.0.block.1` and on; `None` when there is no Cassandra here.
    pub(crate) fn start(block: u8, members: usize) -> Option<Cassandra> {
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
            children: Vec::new(),
        };
        for member in 0..members {
            let child = cassandra.spawn(member);
            cassandra.children.push(Some(child));
            cassandra.wait_for(member);
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
        let text = format!(
            "cluster_name: test\nnum_tokens: 1\npartitioner: org.apache.cassandra.dht.Murmur3Partitioner\n\
             commitlog_sync: batch\nauto_bootstrap: false\ndata_file_directories: [{path}/data]\ncommitlog_directory: {path}/log\n\
             saved_caches_directory: {path}/caches\nhints_directory: {path}/hints\n\
             cdc_raw_directory: {path}/cdc\nlisten_address: {address}\nrpc_address: {address}\n\
             native_transport_port: {PORT}\nendpoint_snitch: SimpleSnitch\nseed_provider:\n\
             \x20 - class_name: org.apache.cassandra.locator.SimpleSeedProvider\n\
             \x20   parameters: [{{seeds: \"{}\"}}]\n",
            self.address(0)
        );
        std::fs::write(&config, text).expect("written");
        let mut command = Command::new("java");
        command.args(["-Xmx512m", "-Xms128m"]);
        for package in OPENED.split_whitespace() {
            let package = format!("{package}=ALL-UNNAMED");
            command.args(["--add-exports", &package, "--add-opens", &package]);
        }
        command
            .arg(format!("-Dcassandra.config=file://{}", config.display()))
            .arg(format!("-Dcassandra.storagedir={path}"))
            .args([
                "-Dcassandra-foreground=yes",
                "-Dcassandra.ring_delay_ms=2000",
            ])
            .args(["-Dcassandra.skip_wait_for_gossip_to_settle=0"])
            .args(["-Dcassandra.consistent.rangemovement=false"])
            .arg("-cp")
            .arg(format!("{}/*", self.jars.display()))
            .arg("org.apache.cassandra.service.CassandraDaemon")
            .stdout(std::fs::File::create(home.join("out")).expect("a file"))
            .stderr(Stdio::null())
            .spawn()
            .expect("java was there just now")
    }

    fn wait_for(&mut self, member: usize) {
        let deadline = Instant::now() + BOOT;
        let address = (self.address(member), PORT);
        while TcpStream::connect((address.0.as_str(), PORT)).is_err() {
            let child = self.children[member].as_mut().expect("it runs");
            let has_ended = child.try_wait().expect("it is ours").is_some();
            assert!(
                !has_ended && Instant::now() < deadline,
                "Cassandra does not start"
            );
            std::thread::park_timeout(Duration::from_millis(100));
        }
    }

    /// The value of `--store` for a new keyspace with so many copies.
    pub(crate) fn store(&self, keyspace: &str, copies: usize) -> String {
        let text = format!(
            "CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': {copies}}}"
        );
        let mut stream = TcpStream::connect((self.address(0).as_str(), PORT)).expect("it listens");
        let startup = b"\0\x01\0\x0bCQL_VERSION\0\x053.0.0";
        assert_eq!(exchange(&mut stream, 1, startup), 2, "it is ready");
        let mut body = (text.len() as u32).to_be_bytes().to_vec();
        body.extend_from_slice(text.as_bytes());
        body.extend_from_slice(&[0, 1, 0]);
        assert_eq!(exchange(&mut stream, 7, &body), 8, "{keyspace} is made");
        let members = 0..self.children.len();
        let servers: Vec<_> = members.map(|member| self.address(member)).collect();
        format!("cassandra://{}/{keyspace}", servers.join(","))
    }
}

/// Sends a frame; returns the opcode of the answer, whose body is read and forgotten.
fn exchange(stream: &mut TcpStream, opcode: u8, body: &[u8]) -> u8 {
    let mut frame = vec![4, 0, 0, 0, opcode];
    frame.extend_from_slice(&(body.len() as u32).to_be_bytes());
    frame.extend_from_slice(body);
    stream.write_all(&frame).expect("it reads");
    let mut head = [0; 9];
    stream.read_exact(&mut head).expect("it answers");
    let length = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body).expect("it answers");
    head[4]
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
