//! Real servers of etcd, with folders and ports of their own.
//!
//! ```text
//! DENDRA_ETCD, else target/outgrow/etcd/usr/bin/etcd (`make outgrow-setup`), else `etcd` of the PATH
//! ```
//!
//! Invariants
//! 1. Without a binary there is no cluster: the test says that it was skipped, and how to have it.
//! 2. Everything listens on loopback, and ends with the value.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The longest wait for a server to listen.
const PATIENCE: Duration = Duration::from_secs(90);

/// A cluster of etcd.
pub(crate) struct Etcd {
    folder: tempfile::TempDir,
    binary: PathBuf,
    clients: Vec<SocketAddr>,
    peers: Vec<SocketAddr>,
    /// Where sealed servers take clear text, for the orders of tests.
    clear: Vec<SocketAddr>,
    is_sealed: bool,
    flags: Vec<String>,
    children: Vec<Option<Child>>,
}

fn binary() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("DENDRA_ETCD") {
        return Some(named.into());
    }
    // Packages at the root of the workspace use this file, too.
    let unpacked = ["/../../target", "/../target"].map(|target| {
        format!(
            "{}{target}/outgrow/etcd/usr/bin/etcd",
            env!("CARGO_MANIFEST_DIR")
        )
    });
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&path).map(|folder| folder.join("etcd"));
    let mut known = unpacked.map(PathBuf::from).into_iter().chain(installed);
    known.find(|known| known.is_file())
}

fn free_ports(n: usize) -> Vec<SocketAddr> {
    let held: Vec<_> = (0..n)
        .map(|_| TcpListener::bind("127.0.0.1:0").expect("a free port"))
        .collect();
    let addresses = held.iter().map(|port| port.local_addr().expect("bound"));
    addresses.collect()
}

impl Etcd {
    /// So many servers, once they listen; `None` when there is no etcd on this machine.
    pub(crate) fn start(members: usize) -> Option<Etcd> {
        Etcd::start_with(members, &[])
    }

    /// The same with more flags. With `--cert-file` among them its clients speak TLS.
    pub(crate) fn start_with(members: usize, flags: &[&str]) -> Option<Etcd> {
        let Some(binary) = binary() else {
            eprintln!(
                "SKIPPED: there is no etcd here. `make outgrow-setup` fetches one, or name a binary in DENDRA_ETCD"
            );
            return None;
        };
        let ports = free_ports(3 * members);
        let (clients, others) = ports.split_at(members);
        let (peers, clear) = others.split_at(members);
        let mut etcd = Etcd {
            folder: tempfile::tempdir().expect("a folder"),
            binary,
            clients: clients.to_vec(),
            peers: peers.to_vec(),
            clear: clear.to_vec(),
            is_sealed: flags.contains(&"--cert-file"),
            flags: flags.iter().map(|&flag| flag.to_owned()).collect(),
            children: Vec::new(),
        };
        etcd.children = (0..members)
            .map(|member| Some(etcd.spawn(member)))
            .collect();
        let deadline = Instant::now() + PATIENCE;
        for client in &etcd.clients {
            while TcpStream::connect(client).is_err() {
                assert!(Instant::now() < deadline, "etcd does not listen");
                std::thread::park_timeout(Duration::from_millis(5));
            }
        }
        Some(etcd)
    }

    fn spawn(&self, member: usize) -> Child {
        let name = |at: usize| format!("m{at}");
        let url = |address: &SocketAddr| format!("http://{address}");
        let cluster = self.peers.iter().enumerate();
        let cluster: Vec<_> = cluster
            .map(|(at, peer)| format!("{}={}", name(at), url(peer)))
            .collect();
        let (mut client, peer) = (url(&self.clients[member]), url(&self.peers[member]));
        let mut listen = client.clone();
        if self.is_sealed {
            client = client.replace("http:", "https:");
            listen = format!("{client},{}", url(&self.clear[member]));
        }
        Command::new(&self.binary)
            .arg("--data-dir")
            .arg(self.folder.path().join(name(member)))
            .args(["--name", &name(member)])
            .args(["--listen-client-urls", &listen])
            .args(["--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &cluster.join(",")])
            .args(["--log-level", "error"])
            .args(&self.flags)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the binary of etcd runs")
    }

    /// Where a server serves clients in clear.
    pub(crate) fn address(&self, member: usize) -> SocketAddr {
        if self.is_sealed {
            self.clear[member]
        } else {
            self.clients[member]
        }
    }

    /// Processes of the servers that run.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.children.iter().flatten().map(Child::id).collect()
    }

    /// The value of `--store` for the part `prefix`.
    pub(crate) fn store(&self, prefix: &str) -> String {
        let servers: Vec<_> = self.clients.iter().map(ToString::to_string).collect();
        format!("etcd://{}/{prefix}", servers.join(","))
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

    /// Starts a server that was killed.
    pub(crate) fn revive(&mut self, member: usize) {
        self.children[member] = Some(self.spawn(member));
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for child in self.children.iter_mut().flatten() {
            // It has ended already, or ends now.
            drop(child.kill());
            drop(child.wait());
        }
    }
}
