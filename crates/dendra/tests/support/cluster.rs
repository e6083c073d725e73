//! Three real processes with a proxy in front of each.
//!
//! ```text
//! test ─► listen[i]: node i        node i ─► urls[j]: proxy j ─► listen[j]: node j
//! ```
//!
//! Invariants
//! 1. Members know each other by the proxies' addresses: `faults` hold between members and never
//!    for a test.
//! 2. A node that is up has answered for a majority; a test that needs all links waits for them
//!    (`wait_for_all_links`).
//! 3. No wait is for a time, and none gives up before `PATIENCE`.
//!
//! Not here: the clients (`clients.rs`), `dendra dev`, which has a cluster of its own
//! (`../dev.rs`).

use super::bent_clock::BentClock;
use super::http::{Client, PATIENCE};
use super::proxy::{Faults, Proxy};
use super::{dendra, free_port};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::time::Instant;

pub(crate) const NODES: usize = 3;

pub(crate) struct Cluster {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) listen: Vec<SocketAddr>,
    pub(crate) faults: Arc<Faults>,
    urls: Vec<String>,
    children: Vec<Option<Child>>,
    _proxies: Vec<Proxy>,
    pub(crate) flags: Vec<String>,
    /// Where the admin plane of the next process listens.
    pub(crate) admin: &'static str,
    /// A member whose wall clock is the test's.
    bent: Option<(usize, BentClock)>,
}

impl Cluster {
    pub(crate) fn start(flags: &[&str]) -> Cluster {
        Cluster::start_with(flags, "off", |_| None)
    }

    /// The wall clock of this member is the test's; it begins right.
    pub(crate) fn start_with_clock_of(index: usize, flags: &[&str]) -> Cluster {
        let bent = |folder: &Path| Some((index, BentClock::new(folder)));
        let mut cluster = Cluster::start_with(flags, "127.0.0.1:0", bent);
        cluster.wait_until_all_serve();
        cluster
    }

    /// `prepare` has the folder in which each member will have its own, named by its index.
    pub(crate) fn start_prepared(flags: &[&str], prepare: impl FnOnce(&Path)) -> Cluster {
        let prepare = |folder: &Path| {
            prepare(folder);
            None
        };
        let mut cluster = Cluster::start_with(flags, "127.0.0.1:0", prepare);
        cluster.wait_until_all_serve();
        cluster
    }

    /// With an admin plane on each node, once all of them say that they serve.
    pub(crate) fn start_with_admin(flags: &[&str]) -> Cluster {
        Cluster::start_prepared(flags, |_| {})
    }

    fn wait_until_all_serve(&mut self) {
        for index in 0..NODES {
            self.wait_until_served(index, 1);
        }
    }

    fn start_with(
        flags: &[&str],
        admin: &'static str,
        prepare: impl FnOnce(&Path) -> Option<(usize, BentClock)>,
    ) -> Cluster {
        let folder = tempfile::tempdir().expect("a folder");
        let bent = prepare(folder.path());
        let doors: Vec<_> = (0..NODES).map(|_| free_port()).collect();
        let listen: Vec<SocketAddr> = {
            let held: Vec<_> = (0..NODES).map(|_| free_port()).collect();
            held.iter().map(|(_, address)| *address).collect()
        };
        let urls: Vec<String> = doors.iter().map(|(_, a)| format!("http://{a}")).collect();
        let faults = Faults::new(urls.clone());
        let proxies = doors
            .into_iter()
            .enumerate()
            .map(|(index, (door, _))| {
                let faults = Arc::clone(&faults);
                Proxy::start(door, index, listen[index], faults).expect("a thread")
            })
            .collect();
        let mut cluster = Cluster {
            folder,
            bent,
            urls,
            listen,
            children: (0..NODES).map(|_| None).collect(),
            faults,
            _proxies: proxies,
            flags: flags.iter().map(|flag| (*flag).to_owned()).collect(),
            admin,
        };
        cluster.write_secret();
        cluster.start_all();
        cluster
    }

    /// All members have one, so that every test is one of frames with keys; `dendra dev` goes
    /// without.
    fn write_secret(&self) {
        let mut file = std::fs::File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(self.secret())
            .expect("a new folder");
        file.write_all(b"known to the members alone")
            .expect("written");
    }

    fn secret(&self) -> PathBuf {
        self.folder.path().join("secret")
    }

    pub(crate) fn start_all(&mut self) {
        for index in 0..NODES {
            self.start_node(index);
        }
        for index in 0..NODES {
            self.wait_until_usable(index);
        }
    }

    pub(crate) fn kill_all(&mut self) {
        for index in 0..NODES {
            self.kill(index);
        }
    }

    pub(crate) fn start_node(&mut self, index: usize) {
        let child = self.start_as(index, &index.to_string(), self.listen[index]);
        self.children[index] = Some(child);
    }

    /// A process on the folder `name` that says it is the member `index`; it is the caller's. Its
    /// log is `name.log`.
    pub(crate) fn start_as(&self, index: usize, name: &str, listen: SocketAddr) -> Child {
        let log = self.folder.path().join(format!("{name}.log"));
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(log)
            .expect("a log");
        let mut command = dendra(["serve", "--admin", self.admin]);
        command
            .args(["--listen", &listen.to_string()])
            .args(["--cluster", &self.urls.join(",")])
            .args(["--self", &self.urls[index]])
            .arg("--cluster-secret-file")
            .arg(self.secret())
            .arg("--data")
            .arg(self.folder.path().join(name))
            .args(&self.flags)
            .stdout(Stdio::null())
            .stderr(log);
        if let Some((_, clock)) = self.bent.as_ref().filter(|(bent, _)| *bent == index) {
            clock.of(&mut command);
        }
        command.spawn().expect("the binary was built")
    }

    /// Sets the clock that is the test's so many seconds ahead.
    pub(crate) fn bend(&self, ahead: i64) {
        let (_, clock) = self.bent.as_ref().expect("a member has one");
        clock.ahead(ahead);
    }

    /// Waits until a client can connect to this node.
    pub(crate) fn wait_for_door(&mut self, index: usize) {
        self.wait_until(index, |cluster| Client::open(cluster.listen[index]).is_ok());
    }

    /// Starts a node again and waits until it says that it serves: the others reach it, too.
    pub(crate) fn restart_until_ready(&mut self, index: usize) {
        let before = self.times_served(index);
        self.start_node(index);
        self.wait_until_served(index, before + 1);
    }

    /// How often a node has said that it serves.
    pub(crate) fn times_served(&self, index: usize) -> usize {
        self.log_of(index).matches("listening on").count()
    }

    /// Waits until a node has said so many times that it serves.
    pub(crate) fn wait_until_served(&mut self, index: usize, times: usize) {
        self.wait_until(index, |cluster| cluster.times_served(index) >= times);
    }

    /// Waits until an operation through this node is answered by a majority.
    pub(crate) fn wait_until_usable(&mut self, index: usize) {
        let soon = ["Dendra-Timeout-Ms: 1000"];
        self.wait_until(index, |cluster| {
            Client::open(cluster.listen[index])
                .ok()
                .and_then(|mut client| client.ask("GET", "nothing", &soon, b""))
                .is_some_and(|answer| answer.status == 404)
        });
    }

    /// Waits for something about a node that was started.
    fn wait_until(&mut self, index: usize, is_so: impl Fn(&Cluster) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(
                Instant::now() < deadline,
                "node {index} hangs: {}",
                self.log_of(index)
            );
            let child = self.children[index].as_mut().expect("it was started");
            let status = child.try_wait().expect("it is ours");
            let has_ended = status.is_some_and(|status| status.code() != Some(4));
            assert!(!has_ended, "node {index} ended: {}", self.log_of(index));
            self.revive();
            crate::support::rest();
        }
    }

    /// Starts the nodes again whose ports were free and then, for a while, another process's. It
    /// starts also those that a test does not wait for, for the others may need them.
    fn revive(&mut self) {
        for index in 0..NODES {
            let child = self.children[index].as_mut();
            let status = child.and_then(|child| child.try_wait().expect("it is ours"));
            if status.is_some_and(|status| status.code() == Some(4)) {
                self.start_node(index);
            }
        }
    }

    /// Waits until a node has ended by itself: with which code.
    pub(crate) fn wait_for_end(&mut self, index: usize) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let child = self.children[index].as_mut().expect("it was started");
            match child.try_wait().expect("it is ours") {
                // As above: its port is free again soon.
                Some(status) if status.code() == Some(4) => self.start_node(index),
                Some(status) => {
                    self.children[index] = None;
                    return status.code();
                }
                None => {}
            }
            assert!(
                Instant::now() < deadline,
                "node {index} goes on: {}",
                self.log_of(index)
            );
            crate::support::rest();
        }
    }

    /// Waits until all three answer, whichever loop of a node is asked: a connection goes to the
    /// loop with the fewest.
    pub(crate) fn wait_for_all_links(&self) {
        let deadline = Instant::now() + PATIENCE;
        for address in &self.listen {
            let clients = (0..8).map(|_| Client::open(*address).expect("it listens"));
            for mut client in clients.collect::<Vec<_>>() {
                let target = "/v0/entity?id=nothing&ack=3&from=3";
                let soon = ["Dendra-Timeout-Ms: 1000"];
                while client
                    .request("GET", target, &soon, b"")
                    .is_none_or(|answer| answer.status != 404)
                {
                    assert!(Instant::now() < deadline, "the links stay down");
                    crate::support::rest();
                }
            }
        }
    }

    /// How the others know a member.
    pub(crate) fn url(&self, index: usize) -> &str {
        &self.urls[index]
    }

    pub(crate) fn child(&self, index: usize) -> &Child {
        self.children[index].as_ref().expect("it runs")
    }

    /// A metric of a node that serves and has an admin plane, by the start of its line.
    pub(crate) fn metric(&self, index: usize, name: &str) -> f64 {
        let values = self.metric_lines(index, name);
        *values.first().expect(name)
    }

    /// The sum of all lines that begin so.
    pub(crate) fn metrics(&self, index: usize, name: &str) -> f64 {
        self.metric_lines(index, name).iter().sum()
    }

    fn metric_lines(&self, index: usize, name: &str) -> Vec<f64> {
        let log = self.log_of(index);
        let address = log.rsplit_once("admin on http://").expect("it serves").1;
        let address = address.lines().next().expect("an address");
        let mut client = Client::open(address.parse().expect("an address")).expect("it listens");
        let page = client.request("GET", "/metrics", &[], b"").expect("a page");
        let page = String::from_utf8_lossy(&page.body).into_owned();
        let lines = page.lines().filter(|line| line.starts_with(name));
        let values = lines.filter_map(|line| line.rsplit(' ').next()?.parse().ok());
        values.collect()
    }

    /// Addresses of the admin planes of nodes that serve, as `--admin` takes them.
    pub(crate) fn admin_urls(&self) -> Vec<String> {
        let of = |index| {
            let log = self.log_of(index);
            let said = log.rsplit_once("admin on ").expect("it serves").1;
            said.lines().next().expect("an address").to_owned()
        };
        (0..NODES).map(of).collect()
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, index: usize) {
        super::kill(self.children[index].take().expect("it runs"));
    }

    pub(crate) fn log_of(&self, index: usize) -> String {
        let log = self.folder.path().join(format!("{index}.log"));
        std::fs::read_to_string(log).unwrap_or_default()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for child in self.children.iter_mut().flatten() {
            // After a failed assertion they must not stay; a stopped one is killed as well.
            drop(child.kill());
            drop(child.wait());
        }
    }
}
