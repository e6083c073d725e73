//! Three members as processes, each restarted with the one program or the other.
//!
//! Invariants
//! 1. A restart is that of an operator: SIGTERM, the end with 0, the start, `/readyz`.
//! 2. All processes are gone when the trio is dropped.
//!
//! Not here: which program when (`mod.rs`).

use super::load::{Asked, ask};
use serde_json::Value;
use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A start, a stop or an epoch that takes longer is a failure.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(50);

/// One member.
struct Member {
    host: String,
    admin: String,
    folder: PathBuf,
    child: Option<Child>,
}

/// See the module.
pub(super) struct Trio {
    members: Vec<Member>,
}

impl Drop for Trio {
    fn drop(&mut self) {
        for child in self.members.iter_mut().filter_map(|it| it.child.as_mut()) {
            // Fails only when it is gone already.
            drop(child.kill());
            drop(child.wait());
        }
    }
}

/// Ports that are free now.
fn hosts(count: usize) -> Result<Vec<String>, String> {
    let bound: Result<Vec<TcpListener>, _> = (0..count)
        .map(|_| TcpListener::bind("127.0.0.1:0"))
        .collect();
    let bound = bound.map_err(|e| format!("no port is free: {e}"))?;
    let address = |it: &TcpListener| it.local_addr().map(|address| address.to_string());
    let hosts: Result<Vec<String>, _> = bound.iter().map(address).collect();
    hosts.map_err(|e| e.to_string())
}

impl Trio {
    /// A new cluster on empty folders.
    pub(super) fn found(program: &Path, place: &Path) -> Result<Trio, String> {
        match fs::remove_dir_all(place) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(format!("{}: {e}", place.display()));
            }
            _ => {}
        }
        let hosts = hosts(6)?;
        let member = |at: usize| Member {
            host: hosts[at].clone(),
            admin: hosts[3 + at].clone(),
            folder: place.join(format!("{at}")),
            child: None,
        };
        let mut trio = Trio {
            members: (0..3).map(member).collect(),
        };
        for at in 0..3 {
            fs::create_dir_all(&trio.members[at].folder).map_err(|e| e.to_string())?;
            trio.spawn(at, program)?;
        }
        for at in 0..3 {
            trio.wait_ready(at)?;
        }
        Ok(trio)
    }

    /// Where clients ask.
    pub(super) fn hosts(&self) -> Vec<String> {
        self.members.iter().map(|it| it.host.clone()).collect()
    }

    fn spawn(&mut self, at: usize, program: &Path) -> Result<(), String> {
        let list: Vec<String> = self
            .members
            .iter()
            .map(|it| format!("http://{}", it.host))
            .collect();
        let member = &mut self.members[at];
        let log = File::options()
            .create(true)
            .append(true)
            .open(member.folder.with_extension("log"));
        let log = log.map_err(|e| format!("the log of member {at}: {e}"))?;
        let child = Command::new(program)
            .args(["serve", "--listen", &member.host, "--admin", &member.admin])
            .args(["--cluster", &list.join(","), "--self", &list[at]])
            .args(["--memory", "256MiB", "--durability", "sync", "--data"])
            .arg(member.folder.join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn();
        member.child = Some(child.map_err(|e| format!("{}: {e}", program.display()))?);
        Ok(())
    }

    /// Starts a member that does not run, and waits until it is ready.
    pub(super) fn start(&mut self, at: usize, program: &Path) -> Result<(), String> {
        self.spawn(at, program)?;
        self.wait_ready(at)
    }

    /// Ends a member and starts it with this program.
    pub(super) fn restart(&mut self, at: usize, program: &Path) -> Result<(), String> {
        self.end(at)?;
        self.start(at, program)
    }

    fn end(&mut self, at: usize) -> Result<(), String> {
        let Some(mut child) = self.members[at].child.take() else {
            return Ok(());
        };
        let id = child.id().to_string();
        let sent = Command::new("kill").args(["-TERM", &id]).status();
        if !sent.is_ok_and(|status| status.success()) {
            return Err("kill -TERM failed".to_owned());
        }
        match child.wait() {
            Ok(status) if status.success() => Ok(()),
            ended => Err(format!(
                "member {at} ended with {ended:?}: {}",
                self.said(at)
            )),
        }
    }

    /// Ends all.
    pub(super) fn stop(&mut self) -> Result<(), String> {
        (0..self.members.len()).try_for_each(|at| self.end(at))
    }

    /// The end of a member's log.
    fn said(&self, at: usize) -> String {
        let log = fs::read_to_string(self.members[at].folder.with_extension("log"));
        let log = log.unwrap_or_default();
        log.lines().last().unwrap_or("nothing").to_owned()
    }

    fn wait_ready(&mut self, at: usize) -> Result<(), String> {
        let admin = self.members[at].admin.clone();
        self.wait(at, "is not ready", || {
            let ready = ask(&admin, &Asked::get("/readyz"));
            ready.is_ok_and(|answer| answer.status == 200).then_some(())
        })
    }

    fn wait<T>(
        &mut self,
        at: usize,
        what: &str,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<T, String> {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = look() {
                return Ok(found);
            }
            let child = self.members[at].child.as_mut();
            let ended = child.and_then(|child| child.try_wait().ok().flatten());
            if let Some(status) = ended {
                return Err(format!(
                    "member {at} ended with {status}: {}",
                    self.said(at)
                ));
            }
            if Instant::now() > until {
                return Err(format!("member {at} {what}: {}", self.said(at)));
            }
            std::thread::sleep(LOOK);
        }
    }

    // The cluster.

    /// The version in force, as this member knows it; releases before it was told know the first.
    pub(super) fn version(&self, at: usize) -> Result<u64, String> {
        version(&self.members[at].admin)
    }

    /// Waits until this member knows a version above that one. The next release may know several
    /// more than the one before, and finalizing goes to its newest.
    pub(super) fn wait_for_version_above(&mut self, at: usize, before: u64) -> Result<(), String> {
        let admin = self.members[at].admin.clone();
        self.wait(at, &format!("learns of no version above {before}"), || {
            version(&admin).ok().filter(|found| *found > before)
        })
        .map(|_| ())
    }

    /// Orders to finalize: the epoch, or the refusal.
    pub(super) fn finalize(&self, at: usize) -> Result<Result<u64, String>, String> {
        let order = Asked::order("/v0/cluster/finalize");
        let answer = ask(&self.members[at].admin, &order)?;
        let page: Value = serde_json::from_slice(&answer.body).map_err(|e| e.to_string())?;
        match (answer.status, page["epoch"].as_u64()) {
            (200, Some(epoch)) => Ok(Ok(epoch)),
            _ => Ok(Err(page["message"].as_str().unwrap_or_default().to_owned())),
        }
    }

    /// The same, until it is done.
    pub(super) fn finalize_until(&mut self, at: usize) -> Result<u64, String> {
        let until = Instant::now() + PATIENCE;
        loop {
            match self.finalize(at)? {
                Ok(epoch) => return Ok(epoch),
                Err(why) if Instant::now() > until => return Err(format!("not finalized: {why}")),
                Err(_) => std::thread::sleep(LOOK),
            }
        }
    }

    /// Ends a member; then this program must not become it. Returns its output.
    pub(super) fn refuses(&mut self, at: usize, program: &Path) -> Result<String, String> {
        self.end(at)?;
        self.spawn(at, program)?;
        let until = Instant::now() + PATIENCE;
        loop {
            let member = &mut self.members[at];
            let child = member.child.as_mut().ok_or("it was started")?;
            if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
                member.child = None;
                return match status.code() {
                    Some(3) => Ok(self.said(at)),
                    _ => Err(format!("it ended with {status}: {}", self.said(at))),
                };
            }
            let ready = ask(&member.admin, &Asked::get("/readyz"));
            if ready.is_ok_and(|answer| answer.status == 200) {
                return Err("the release before serves a finalized cluster".to_owned());
            }
            if Instant::now() > until {
                return Err(format!("it neither ends nor serves: {}", self.said(at)));
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn version(admin: &str) -> Result<u64, String> {
    let answer = ask(admin, &Asked::get("/v0/cluster"))?;
    let page: Value = serde_json::from_slice(&answer.body).map_err(|e| e.to_string())?;
    Ok(page["version"].as_u64().unwrap_or(4))
}
