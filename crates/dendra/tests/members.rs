//! Members of a cluster of real processes come and go while clients write, and no acknowledged write
//! is lost.
//!
//! ```text
//! writers ─► founders …    join ─► plan ─► finished    remove ─► exit 3    wipe, join --replace
//! all that was acknowledged ─► read back from each member at the end
//! ```
//!
//! Invariants
//! 1. Nothing waits for a time: each wait is for a state, and none gives up before `PATIENCE`.
//! 2. A writer's key has one writer, so the newest acknowledged value is what a read must show.
//!
//! Not here: schedules of messages (crate `node`, `tests/chain`, `tests/steward`, `tests/twin`).
//! See: docs/operating.md, "Grow, shrink, replace".

mod support;

use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use support::dendra;
use support::http::{Client, PATIENCE};

/// Keys of each writer: each is written again and again.
const KEYS: u64 = 100;
const WRITERS: u64 = 3;
const JSON: [&str; 1] = ["Content-Type: application/json"];

/// A process, and the flags that it is started with each time.
struct Site {
    listen: SocketAddr,
    flags: Vec<String>,
    child: Option<Child>,
}

struct Town {
    folder: tempfile::TempDir,
    sites: Vec<Site>,
}

fn free_address() -> SocketAddr {
    let held = TcpListener::bind("127.0.0.1:0").expect("a free port");
    held.local_addr().expect("it is bound")
}

impl Town {
    /// Three founders.
    fn found() -> Town {
        let folder = tempfile::tempdir().expect("a folder");
        let mut secret = std::fs::File::options();
        let secret = secret.write(true).create_new(true).mode(0o600);
        let mut secret = secret
            .open(folder.path().join("secret"))
            .expect("a new folder");
        std::io::Write::write_all(&mut secret, b"known to the members alone").expect("written");
        let listen: Vec<SocketAddr> = {
            let held: Vec<_> = (0..3).map(|_| TcpListener::bind("127.0.0.1:0")).collect();
            let held = held.into_iter().map(|held| held.expect("a free port"));
            held.map(|held| held.local_addr().expect("it is bound"))
                .collect()
        };
        let urls: Vec<String> = listen.iter().map(|a| format!("http://{a}")).collect();
        let mut town = Town {
            folder,
            sites: Vec::new(),
        };
        for address in listen {
            let list = vec!["--cluster".to_owned(), urls.join(",")];
            town.add(address, list);
        }
        for at in 0..3 {
            town.wait_until_serving(at);
        }
        town
    }

    fn url(&self, at: usize) -> String {
        format!("http://{}", self.sites[at].listen)
    }

    /// A further process, on an empty folder; its number.
    fn add(&mut self, listen: SocketAddr, flags: Vec<String>) -> usize {
        self.sites.push(Site {
            listen,
            flags,
            child: None,
        });
        let at = self.sites.len() - 1;
        self.start(at);
        at
    }

    fn start(&mut self, at: usize) {
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
            .arg(path("secret".to_owned()))
            .arg("--data")
            .arg(path(at.to_string()))
            .args(&self.sites[at].flags)
            .stdout(Stdio::null())
            .stderr(log.expect("a log"));
        self.sites[at].child = Some(command.spawn().expect("the binary was built"));
    }

    fn log_of(&self, at: usize) -> String {
        let log = self.folder.path().join(format!("{at}.log"));
        std::fs::read_to_string(log).unwrap_or_default()
    }

    /// Waits for a state; a node whose port another program had for a while is started again.
    fn wait_until(&mut self, at: usize, is_so: impl Fn(&Town) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            let log = self.log_of(at);
            assert!(Instant::now() < deadline, "node {at} hangs: {log}");
            if let Some(child) = &mut self.sites[at].child
                && let Some(status) = child.try_wait().expect("it is ours")
            {
                assert_eq!(status.code(), Some(4), "node {at} ended: {log}");
                self.start(at);
            }
            std::thread::yield_now();
        }
    }

    fn wait_until_serving(&mut self, at: usize) {
        self.wait_until(at, |town| {
            let client = Client::open(town.sites[at].listen).ok();
            let answer = client.and_then(|mut client| client.ask("GET", "nothing", &[], b""));
            answer.is_some_and(|answer| answer.status == 404)
        });
    }

    /// A request to the admin port; `None` while there is no whole answer.
    fn admin(&self, at: usize, method: &str, path: &str, body: &str) -> Option<Value> {
        let log = self.log_of(at);
        let address = log.rsplit_once("admin on http://")?.1.lines().next()?;
        let mut client = Client::open(address.trim().parse().ok()?).ok()?;
        let answer = client.request(method, path, &JSON, body.as_bytes())?;
        serde_json::from_slice(&answer.body).ok()
    }

    fn status(&self, at: usize) -> Option<Value> {
        self.admin(at, "GET", "/v0/cluster", "")
    }

    /// Waits until there is no plan and so many members, as `at` sees it.
    fn wait_for_members(&mut self, at: usize, members: usize) {
        self.wait_until(at, |town| {
            town.status(at).is_some_and(|status| {
                let count = status["members"].as_array().map_or(0, Vec::len);
                status["plan"].is_null() && count == members
            })
        });
    }

    fn join(&mut self, listen: SocketAddr, host: usize, more: &[&str]) -> usize {
        let mut flags = vec!["--join".to_owned(), self.url(host)];
        flags.extend(more.iter().map(|flag| (*flag).to_owned()));
        self.add(listen, flags)
    }

    fn kill(&mut self, at: usize) {
        let mut child = self.sites[at].child.take().expect("it runs");
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
    }

    fn remove(&self, at: usize, gone: usize) {
        let wish = format!("{{\"remove\":[\"{}\"]}}", self.url(gone));
        let plan = self.admin(at, "POST", "/v0/cluster/plan", &wish);
        let plan = plan.expect("a plan");
        let moves = plan["moves"].as_array().map_or(0, Vec::len);
        assert!(moves > 0, "{plan}");
        let order = format!("{{\"plan\":{}}}", plan["plan"]);
        let done = self.admin(at, "POST", "/v0/cluster/apply", &order);
        let done = done.expect("an answer");
        assert!(done["epoch"].is_u64(), "{done}");
    }

    /// Waits until the process has ended by itself: its code.
    fn wait_for_end(&mut self, at: usize) -> Option<i32> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let child = self.sites[at].child.as_mut().expect("it was started");
            if let Some(status) = child.try_wait().expect("it is ours") {
                self.sites[at].child = None;
                return status.code();
            }
            let log = self.log_of(at);
            assert!(Instant::now() < deadline, "node {at} goes on: {log}");
            std::thread::yield_now();
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

/// What writers were told.
#[derive(Default)]
struct Told {
    /// By key: the newest acknowledged value, and whether a later write may have been applied.
    values: Mutex<BTreeMap<String, (u64, bool)>>,
    acknowledged: AtomicU64,
    failed: Mutex<Vec<String>>,
    is_over: AtomicBool,
}

impl Told {
    /// Writes own keys again and again through these nodes, until it is over.
    fn write(&self, writer: u64, doors: &[SocketAddr]) {
        let mut client = None;
        for number in 0u64.. {
            if self.is_over.load(Ordering::Relaxed) {
                return;
            }
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

    /// Waits until so many further writes were acknowledged.
    fn run_on(&self, writes: u64) {
        let until = self.acknowledged.load(Ordering::Relaxed) + writes;
        let deadline = Instant::now() + PATIENCE;
        while self.acknowledged.load(Ordering::Relaxed) < until {
            assert!(Instant::now() < deadline, "writes stopped");
            std::thread::yield_now();
        }
    }

    fn check(&self, doors: &[SocketAddr]) {
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

#[test]
fn members_join_leave_and_are_replaced_under_load() {
    let mut town = Town::found();
    let told = Told::default();
    // Writers stay with members that stay.
    let doors = [town.sites[0].listen, town.sites[1].listen];
    let fifth = std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn({
                let told = &told;
                move || told.write(writer, &doors)
            });
        }
        // Whatever happens here, the writers end.
        let over = Over(&told.is_over);
        told.run_on(200);
        // Three become four; the fourth asks over plain HTTP.
        let fourth = town.join(free_address(), 1, &["--peer-transport", "http"]);
        town.wait_until_serving(fourth);
        town.wait_for_members(fourth, 4);
        town.wait_for_members(0, 4);
        told.run_on(200);
        // One leaves for ever.
        town.remove(0, 2);
        assert_eq!(town.wait_for_end(2), Some(3), "{}", town.log_of(2));
        town.wait_for_members(0, 3);
        town.start(2);
        assert_eq!(town.wait_for_end(2), Some(3), "{}", town.log_of(2));
        assert!(
            town.log_of(2).contains("never comes back"),
            "{}",
            town.log_of(2)
        );
        told.run_on(200);
        // The fourth loses its disk, and another process takes its place, at its address.
        town.kill(fourth);
        let lost = town.url(fourth);
        let address = town.sites[fourth].listen;
        let fifth = town.join(address, 0, &["--replace", &lost]);
        town.wait_until_serving(fifth);
        town.wait_for_members(0, 3);
        told.run_on(200);
        drop(over);
        // A machine that is busy with other things makes some of them late.
        let failed = told.failed.lock().expect("no writer panics");
        let most = told.acknowledged.load(Ordering::Relaxed) / 50;
        assert!(
            failed.len() as u64 <= most,
            "{} writes failed: {:?}",
            failed.len(),
            failed.first()
        );
        town.wait_for_members(fifth, 3);
        fifth
    });
    // Behind the last write of each writer.
    told.check(&[doors[0], doors[1], town.sites[fifth].listen]);
    let status = town.status(1).expect("a status");
    assert_eq!(status["removed"], 2, "{status}");
}

#[test]
fn a_plan_goes_on_after_all_members_were_killed_in_the_middle_of_it() {
    let mut town = Town::found();
    let told = Told::default();
    let doors = [town.sites[0].listen, town.sites[1].listen];
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn({
                let told = &told;
                move || told.write(writer, &doors)
            });
        }
        let over = Over(&told.is_over);
        told.run_on(1_000);
        drop(over);
    });
    // So slowly that the plan is under way for as long as is wanted.
    let slow = "{\"bytes_per_second\":100}";
    let told_so = town.admin(0, "POST", "/v0/cluster/throttle", slow);
    assert!(told_so.is_some_and(|answer| answer["epoch"].is_u64()));
    let fourth = town.join(free_address(), 0, &[]);
    town.wait_until_serving(fourth);
    town.wait_until(0, |town| {
        let status = town.status(0).unwrap_or_default();
        status["plan"]["moving"]
            .as_u64()
            .is_some_and(|moving| moving > 0)
    });
    for at in 0..4 {
        town.kill(at);
    }
    for at in 0..4 {
        town.start(at);
    }
    for at in 0..4 {
        town.wait_until_serving(at);
    }
    for at in 0..4 {
        town.wait_for_members(at, 4);
    }
    let all: Vec<SocketAddr> = town.sites.iter().map(|site| site.listen).collect();
    told.check(&all);
    // The founders' list has three members, and the folder knows better.
    assert!(
        town.log_of(0).contains("only founds a cluster"),
        "{}",
        town.log_of(0)
    );
}

/// Ends the writers when it is dropped, also by a failed assertion.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
