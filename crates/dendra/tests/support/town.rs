//! A cluster of processes to which others come, and writers that remember their answers.
//!
//! ```text
//! Town::found(3) ─► join, kill, start, remove …     Told: writers ─► acknowledged values ─► read back
//! ```
//!
//! Invariants
//! 1. No wait here is for a time: each is for a state, and none gives up before `PATIENCE`.
//! 2. A writer's key has one writer, so a read must show the newest acknowledged value.
//!
//! Not here: three nodes behind proxies (`cluster.rs`), histories (`clients.rs`).

use super::http::{Client, PATIENCE};
use super::{dendra, free_port};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

/// Keys of each writer: each is written again and again.
const KEYS: u64 = 100;
const WRITERS: u64 = 3;
const JSON: [&str; 1] = ["Content-Type: application/json"];

/// Of a process that is told no other one.
pub(crate) const SECRET: &str = "known to the members alone";

/// A process, and the flags that it is started with each time.
pub(crate) struct Site {
    pub(crate) listen: SocketAddr,
    pub(crate) flags: Vec<String>,
    pub(crate) child: Option<Child>,
}

pub(crate) struct Town {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) sites: Vec<Site>,
}

pub(crate) fn free_address() -> SocketAddr {
    free_port().1
}

impl Town {
    /// Three founders.
    pub(crate) fn found() -> Town {
        Town::found_with(3, &[])
    }

    /// Nothing yet.
    pub(crate) fn empty() -> Town {
        Town {
            folder: tempfile::tempdir().expect("a folder"),
            sites: Vec::new(),
        }
    }

    /// So many founders, all with these flags.
    pub(crate) fn found_with(founders: usize, flags: &[&str]) -> Town {
        let listen: Vec<SocketAddr> = {
            let held: Vec<_> = (0..founders).map(|_| free_port()).collect();
            held.iter().map(|(_, address)| *address).collect()
        };
        let urls: Vec<String> = listen.iter().map(|a| format!("http://{a}")).collect();
        let mut town = Town::empty();
        for address in listen {
            let mut list = vec!["--cluster".to_owned(), urls.join(",")];
            list.extend(flags.iter().map(|flag| (*flag).to_owned()));
            town.add(address, list);
        }
        for at in 0..founders {
            town.wait_until_serving(at);
        }
        // A plan needs the folders of all founders.
        for at in 0..founders {
            town.wait_until(at, |town| {
                let status = town.status(at).unwrap_or_default();
                let members = status["members"].as_array();
                members.is_some_and(|all| all.iter().all(|one| !one["node"].is_null()))
            });
        }
        town
    }

    /// Where the data, the secret and the log of a process are.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Gives a process another file of the secret, whole, under the same name.
    pub(crate) fn write_secret(&self, at: usize, text: &str) {
        let new = self.path(&format!("{at}.secret.new"));
        let mut file = std::fs::File::options();
        let file = file.write(true).create(true).truncate(true).mode(0o600);
        let mut file = file.open(&new).expect("a file");
        std::io::Write::write_all(&mut file, text.as_bytes()).expect("written");
        std::fs::rename(&new, self.path(&format!("{at}.secret"))).expect("renamed");
    }

    pub(crate) fn url(&self, at: usize) -> String {
        format!("http://{}", self.sites[at].listen)
    }

    /// A further process, on an empty folder; its number.
    pub(crate) fn add(&mut self, listen: SocketAddr, flags: Vec<String>) -> usize {
        self.add_with_secret(listen, flags, SECRET)
    }

    /// The same with another secret.
    pub(crate) fn add_with_secret(
        &mut self,
        listen: SocketAddr,
        flags: Vec<String>,
        secret: &str,
    ) -> usize {
        self.sites.push(Site {
            listen,
            flags,
            child: None,
        });
        let at = self.sites.len() - 1;
        self.write_secret(at, secret);
        self.start(at);
        at
    }

    pub(crate) fn start(&mut self, at: usize) {
        let path = |name: String| self.folder.path().join(name);
        let mut log = std::fs::File::options();
        let log = log
            .create(true)
            .append(true)
            .open(path(format!("{at}.log")));
        let mut command = dendra(["serve", "--admin", "127.0.0.1:0"]);
        command
            .args(["--listen", &self.sites[at].listen.to_string()])
            .args(["--self", &self.url(at)])
            .arg("--cluster-secret-file")
            .arg(path(format!("{at}.secret")))
            .arg("--data")
            .arg(path(at.to_string()))
            .args(&self.sites[at].flags)
            .stdout(Stdio::null())
            .stderr(log.expect("a log"));
        self.sites[at].child = Some(command.spawn().expect("the binary was built"));
    }

    pub(crate) fn log_of(&self, at: usize) -> String {
        let log = self.folder.path().join(format!("{at}.log"));
        std::fs::read_to_string(log).unwrap_or_default()
    }

    /// Waits for a state; a node whose port another program had for a while is started again.
    #[track_caller]
    pub(crate) fn wait_until(&mut self, at: usize, is_so: impl Fn(&Town) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            assert!(
                Instant::now() < deadline,
                "node {at} hangs: {}",
                self.log_of(at)
            );
            if let Some(child) = &mut self.sites[at].child
                && let Some(status) = child.try_wait().expect("it is ours")
            {
                let code = status.code();
                assert_eq!(code, Some(4), "node {at} ended: {}", self.log_of(at));
                self.start(at);
            }
            crate::support::rest();
        }
    }

    #[track_caller]
    pub(crate) fn wait_until_serving(&mut self, at: usize) {
        self.wait_until(at, |town| {
            let client = Client::open(town.sites[at].listen).ok();
            let answer = client.and_then(|mut client| client.ask("GET", "nothing", &[], b""));
            // Behind a restart the log names the admin port of the process before for a while.
            answer.is_some_and(|answer| answer.status == 404) && town.status(at).is_some()
        });
    }

    /// A request to the admin port; `None` while there is no whole answer.
    pub(crate) fn admin(&self, at: usize, method: &str, path: &str, body: &str) -> Option<Value> {
        let (_, page) = self.ask_admin(at, method, path, body)?;
        Some(page)
    }

    /// Where the process listens for its operator, as its log says.
    pub(crate) fn admin_address(&self, at: usize) -> Option<SocketAddr> {
        let log = self.log_of(at);
        let address = log.rsplit_once("admin on http://")?.1.lines().next()?;
        address.trim().parse().ok()
    }

    fn ask_admin(&self, at: usize, method: &str, path: &str, body: &str) -> Option<(u16, Value)> {
        let mut client = Client::open(self.admin_address(at)?).ok()?;
        let answer = client.request(method, path, &JSON, body.as_bytes())?;
        let page = serde_json::from_slice(&answer.body).ok()?;
        Some((answer.status, page))
    }

    /// An order that is carried out: its answer.
    #[track_caller]
    pub(crate) fn order(&self, at: usize, order: &str, body: &Value) -> Value {
        let path = format!("/v0/cluster/{order}");
        let (status, page) = self
            .ask_admin(at, "POST", &path, &body.to_string())
            .expect("an answer");
        assert_eq!(status, 200, "{order} {body}: {page}");
        page
    }

    /// An order that is refused: the code and the sentence.
    #[track_caller]
    pub(crate) fn refused(&self, at: usize, order: &str, body: &Value) -> (String, String) {
        let path = format!("/v0/cluster/{order}");
        let (status, page) = self
            .ask_admin(at, "POST", &path, &body.to_string())
            .expect("an answer");
        assert_eq!(status, 409, "{order} {body}: {page}");
        let text = |field: &str| page[field].as_str().expect("text").to_owned();
        (text("error"), text("message"))
    }

    /// Plans a change, and begins with it: the plan.
    #[track_caller]
    pub(crate) fn change(&self, at: usize, wish: &Value) -> Value {
        let plan = self.order(at, "plan", wish);
        let done = self.order(at, "apply", &json!({ "plan": plan["plan"] }));
        assert!(done["epoch"].is_u64(), "{done}");
        plan
    }

    /// What `at` knows of the member at the address of `of`.
    #[track_caller]
    pub(crate) fn member(&self, at: usize, of: usize) -> Option<Value> {
        let url = self.url(of);
        let status = self.status(at)?;
        let mut members = status["members"].as_array()?.iter();
        members.find(|member| member["url"] == url).cloned()
    }

    /// Waits until `at` has the newest epoch of all, no plan is under way, and what it says about
    /// the cluster is so.
    #[track_caller]
    pub(crate) fn wait_for_rest(&mut self, at: usize, is_so: impl Fn(&Value) -> bool) {
        self.wait_until(at, |town| {
            let running = (0..town.sites.len()).filter(|site| town.sites[*site].child.is_some());
            let epochs = running.filter_map(|site| town.status(site)?["epoch"].as_u64());
            let newest = epochs.max();
            town.status(at).is_some_and(|status| {
                status["plan"].is_null() && status["epoch"].as_u64() >= newest && is_so(&status)
            })
        });
    }

    pub(crate) fn status(&self, at: usize) -> Option<Value> {
        self.admin(at, "GET", "/v0/cluster", "")
    }

    /// Waits until there is no plan and so many members, as `at` sees it.
    #[track_caller]
    pub(crate) fn wait_for_members(&mut self, at: usize, members: usize) {
        self.wait_until(at, |town| {
            town.status(at).is_some_and(|status| {
                let count = status["members"].as_array().map_or(0, Vec::len);
                status["plan"].is_null() && count == members
            })
        });
    }

    pub(crate) fn join(&mut self, listen: SocketAddr, host: usize, more: &[&str]) -> usize {
        let mut flags = vec!["--join".to_owned(), self.url(host)];
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        self.add(listen, flags)
    }

    /// Ends it as an operator does.
    #[track_caller]
    pub(crate) fn stop(&mut self, at: usize) {
        let child = self.sites[at].child.as_ref().expect("it runs");
        super::signal(child, "TERM");
        assert_eq!(self.wait_for_end(at), Some(0), "{}", self.log_of(at));
    }

    pub(crate) fn kill(&mut self, at: usize) {
        super::kill(self.sites[at].child.take().expect("it runs"));
    }

    #[track_caller]
    pub(crate) fn remove(&self, at: usize, gone: usize) {
        let plan = self.change(at, &json!({ "remove": [self.url(gone)] }));
        let moves = plan["moves"].as_array().map_or(0, Vec::len);
        assert!(moves > 0, "{plan}");
    }

    /// Waits until the process has ended by itself: its code.
    #[track_caller]
    pub(crate) fn wait_for_end(&mut self, at: usize) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let child = self.sites[at].child.as_mut().expect("it was started");
            if let Some(status) = child.try_wait().expect("it is ours") {
                self.sites[at].child = None;
                return status.code();
            }
            assert!(
                Instant::now() < deadline,
                "node {at} goes on: {}",
                self.log_of(at)
            );
            crate::support::rest();
        }
    }
}

impl Drop for Town {
    fn drop(&mut self) {
        for site in &mut self.sites {
            if let Some(child) = &mut site.child {
                // After a failed assertion they must not stay.
                drop(child.kill());
                drop(child.wait());
            }
        }
    }
}

/// The answers that writers got.
#[derive(Default)]
pub(crate) struct Told {
    /// By key: the newest acknowledged value, and whether a later write may have been applied.
    pub(crate) values: Mutex<BTreeMap<String, (u64, bool)>>,
    pub(crate) acknowledged: AtomicU64,
    pub(crate) failed: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

impl Told {
    /// Failures of requests that were answered: a connection that a stop closed is none.
    #[track_caller]
    pub(crate) fn refused(&self) -> Vec<String> {
        let failed = self.failed.lock().expect("no writer panics");
        let refused = failed.iter().filter(|said| *said != "no answer");
        refused.cloned().collect()
    }

    /// Writes own keys again and again through these nodes, until it is over.
    fn write(&self, writer: u64, doors: &[SocketAddr]) {
        let mut client = None;
        for number in 0u64.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
            // The members need the processors more.
            crate::support::rest();
            let key = format!("w{writer}-{}", number % KEYS);
            let door = doors[(writer as usize) % doors.len()];
            let asked = client.take().or_else(|| Client::open(door).ok());
            let answer = asked.and_then(|mut asked: Client| {
                let answer = asked.ask("PUT", &key, &[], number.to_string().as_bytes())?;
                client = Some(asked);
                Some(answer)
            });
            let mut values = self.values.lock().expect("no writer panics");
            let entry = values.entry(key).or_default();
            match answer {
                Some(answer) if matches!(answer.status, 200 | 201) => {
                    *entry = (number, false);
                    self.acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Some(answer) => {
                    entry.1 = true;
                    let body = String::from_utf8_lossy(&answer.body).into_owned();
                    let mut failed = self.failed.lock().expect("no writer panics");
                    failed.push(format!("{}: {body}", answer.status));
                }
                None => {
                    entry.1 = true;
                    let mut failed = self.failed.lock().expect("no writer panics");
                    failed.push("no answer".to_owned());
                }
            }
        }
    }

    /// Does `work` while `WRITERS` write through `doors`; ends when the last of them has its
    /// answer.
    pub(crate) fn under_load<T>(&self, doors: &[SocketAddr], work: impl FnOnce() -> T) -> T {
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                scope.spawn(move || self.write(writer, doors));
            }
            let _over = Over(&self.is_over);
            work()
        })
    }

    /// Waits until so many further writes were acknowledged.
    #[track_caller]
    pub(crate) fn run_on(&self, writes: u64) {
        let until = self.acknowledged.load(Ordering::Relaxed) + writes;
        let deadline = Instant::now() + PATIENCE;
        while self.acknowledged.load(Ordering::Relaxed) < until {
            assert!(Instant::now() < deadline, "writes stopped");
            crate::support::rest();
        }
    }

    #[track_caller]
    pub(crate) fn check(&self, doors: &[SocketAddr]) {
        let values = self.values.lock().expect("no writer panics");
        for door in doors {
            let mut client = Client::open(*door).expect("it listens");
            for (key, (number, is_open)) in values.iter() {
                let answer = client.ask("GET", key, &[], b"").expect("an answer");
                assert_eq!(answer.status, 200, "{key} at {door}");
                let read: u64 = String::from_utf8_lossy(&answer.body)
                    .parse()
                    .expect("a number");
                let is_right = read == *number || (*is_open && read > *number);
                assert!(
                    is_right,
                    "{key} at {door} is {read}, and {number} was acknowledged"
                );
            }
        }
    }
}

/// Ends the writers when it is dropped, also by a failed assertion.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
