//! A node in a process of its own, which is the test that asks for it once more. Its memory can be
//! looked at without the clients', and both have descriptors enough.
//!
//! Not here: nodes in the test's own process (`mod.rs`).

use super::{Client, PATIENCE};
use dendra_server::{Server, Settings};
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

const FOLDER: &str = "DENDRA_TEST_NODE_FOLDER";

/// Which moment of the node's life is meant.
#[derive(Clone, Copy)]
pub(crate) enum Resident {
    /// This one.
    Now,
    /// The one with the most of it.
    Most,
}

/// The folder of the node that this process should be.
pub(crate) fn asked_to_be_one() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

/// The work of the other process: a node, until its input ends.
pub(crate) fn be_the_node(folder: &Path, change: impl FnOnce(&mut Settings)) {
    let mut settings = Settings::new(folder.join("data"));
    settings.listen = vec![SocketAddr::from(([127, 0, 0, 1], 0))];
    settings.admin = Some(SocketAddr::from(([127, 0, 0, 1], 0)));
    change(&mut settings);
    let running = Server::start(settings).expect("the node starts");
    let admin = running.admin_addr().expect("there is an admin plane");
    let text = format!("{} {admin}", running.addr());
    std::fs::write(folder.join("addr.new"), text).expect("a file can be written");
    std::fs::rename(folder.join("addr.new"), folder.join("addr")).expect("it can be renamed");
    let mut end = Vec::new();
    std::io::stdin()
        .read_to_end(&mut end)
        .expect("the other process lives or ends");
    running.stop().expect("the node stops");
}

/// A node in another process; it ends with this.
pub(crate) struct Other {
    child: Child,
    pub(crate) addr: SocketAddr,
    admin: SocketAddr,
}

impl Other {
    /// Starts this test program once more, with only `test` in it.
    pub(crate) fn start(folder: &Path, test: &str) -> Other {
        let mut child = Command::new(std::env::current_exe().expect("we are a program"))
            .args(["--exact", test])
            .env(FOLDER, folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("we can start ourselves");
        let deadline = Instant::now() + PATIENCE;
        let text = loop {
            if let Ok(text) = std::fs::read_to_string(folder.join("addr")) {
                break text;
            }
            let ended = child.try_wait().expect("a child has a state");
            assert!(ended.is_none(), "the node ended: {ended:?}");
            assert!(Instant::now() < deadline, "the node does not start");
            crate::support::rest();
        };
        let (addr, admin) = text.split_once(' ').expect("two addresses");
        Other {
            child,
            addr: addr.parse().expect("an address"),
            admin: admin.parse().expect("an address"),
        }
    }

    /// Memory of the node that is resident.
    pub(crate) fn memory_bytes(&self, when: Resident) -> usize {
        let name = match when {
            Resident::Now => "VmRSS:",
            Resident::Most => "VmHWM:",
        };
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(path).expect("the node lives");
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        let kib: usize = kib
            .and_then(|kib| kib.parse().ok())
            .expect("a number of kB");
        kib << 10
    }

    pub(crate) fn metric(&self, name: &str) -> usize {
        let page = Client::connect(self.admin).get("/metrics").text();
        let line = page
            .lines()
            .find(|line| line.starts_with(&format!("{name} ")))
            .expect("there is such a metric");
        let value = line.rsplit(' ').next().expect("with a value");
        value.parse().expect("which is a number")
    }

    /// Waits until a metric is as it should be.
    pub(crate) fn wait_until(&self, name: &str, is_so: impl Fn(usize) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self.metric(name)) {
            assert!(Instant::now() < deadline, "{name} is {}", self.metric(name));
            crate::support::rest();
        }
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if let Err(error) = self.child.wait() {
            eprintln!("the node did not end: {error}");
        }
    }
}
