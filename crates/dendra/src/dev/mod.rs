//! `dendra dev`: a cluster on this machine, to be played with and to be hurt.
//!
//! ```text
//! dendra dev --nodes 3 ─► proxy 1 ─► dendra serve 1      folder/dev.sock ◄─ dendra dev kill 2
//!                         proxy 2 ─► dendra serve 2        one line in, one line back
//!                         proxy 3 ─► dendra serve 3
//! ```
//!
//! Invariants
//! 1. Every process that was started is ended, however this one ends but by SIGKILL.
//! 2. A folder that was named is kept, a temporary one is removed.
//! 3. Members know each other by the proxies' addresses; clients talk to the nodes themselves. A
//!    folder that is started again has the addresses that it had (`addresses.rs`).
//! 4. A node that came later, or whose folder was replaced, joins through a node that runs. One
//!    that left is not started again.
//!
//! Not here: the nodes themselves (crate `server`).
//! See: docs/cli.md.

mod addresses;
mod control;
pub(crate) mod flags;
mod member;
mod proxy;
mod rot;
mod screen;

use crate::cluster;
use crate::console::Console;
use crate::exit::{Exit, ExitResult, Failure};
use crate::runtime::runtime;
use crate::signals::on_signals;
use addresses::{Addresses, ReservedAddresses, default_folder};
use control::{DevAnswer, DevOrder, Ordered};
use flags::DevArgs;
use member::{DevNode, NodeState, url_of};
use proxy::{Faults, LinkFault};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;
use tokio::signal::unix::SignalKind;

/// How often the screen is drawn and the children are looked after.
const LOOK: Duration = Duration::from_secs(1);
/// Nodes that a cluster can grow to: each is a process with its threads.
const NODES_MAX: usize = 20;
/// How long a node may take to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(8);

struct LocalCluster {
    folder: PathBuf,
    members: Vec<DevNode>,
    faults: Arc<Faults>,
    flags: Vec<String>,
    console: Console,
    /// The order that was carried out last.
    last: Option<String>,
}

/// Runs a cluster, or sends an order to the running one.
pub(crate) fn dev(args: &DevArgs, console: Console) -> ExitResult {
    let folder = args.folder.clone().unwrap_or_else(default_folder);
    match &args.verb {
        // The folder alone is of both: clap knows arguments that exclude all orders, or none.
        Some(_) if args.nodes.is_some() || !args.flags.is_empty() => Err(Failure::usage(
            "--nodes and flags of nodes are for starting a cluster: leave them out of an order to one that runs",
        )),
        Some(verb) => control::tell(&folder, &DevOrder::from(verb)),
        None => run(args, folder, console),
    }
}

fn failed(what: &str) -> impl Fn(io::Error) -> Failure + '_ {
    move |error| Failure::new(Exit::FAILURE, format!("{what}: {error}"))
}

fn run(args: &DevArgs, folder: PathBuf, console: Console) -> ExitResult {
    if args.folder.is_none() {
        remove_leftovers(&folder)?;
    }
    std::fs::create_dir_all(&folder).map_err(failed("the folder cannot be made"))?;
    let (orders, ordered) = sync_channel(16);
    let socket = control::listen(&folder, orders.clone())?;
    let ran = run_in(args, &folder, console, (orders, &ordered));
    drop(std::fs::remove_file(socket));
    ran?;
    if args.folder.is_none() {
        std::fs::remove_dir_all(&folder).map_err(failed("the temporary folder stays"))?;
    }
    Ok(Exit::OK)
}

/// Removes the rest of a killed run from the temporary folder: the next run needs none of it.
fn remove_leftovers(folder: &Path) -> Result<(), Failure> {
    control::refuse_second(folder)?;
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(
            "what an earlier run left in the temporary folder cannot be removed",
        )(error)),
        _ => Ok(()),
    }
}

/// Runs a cluster until it is stopped.
fn run_in(
    args: &DevArgs,
    folder: &Path,
    console: Console,
    (orders, ordered): (SyncSender<Ordered>, &Receiver<Ordered>),
) -> Result<(), Failure> {
    let doors = addresses::doors(folder, args.nodes)?;
    let mut dev = LocalCluster::new(folder.to_owned(), doors, args.flags.clone(), console)
        .map_err(failed("the cluster cannot be laid out"))?;
    // The nodes go on when a terminal is closed: this process ends them.
    let kinds = [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
    ];
    on_signals(&kinds, move || {
        drop(orders.try_send((DevOrder::Stop, None)));
    })
    .map_err(failed("signals cannot be caught"))?;
    for index in 0..dev.members.len() {
        if !dev.members[index].addresses.life.has_left {
            dev.start(index)
                .map_err(failed("a node cannot be started"))?;
        }
    }
    let mut screen = screen::Screen::new(console);
    screen.hello(&dev.members, folder);
    loop {
        match ordered.recv_timeout(LOOK) {
            Ok((DevOrder::Stop, _)) | Err(RecvTimeoutError::Disconnected) => break,
            Ok((order, answer)) => {
                let said = dev.carry_out(&order);
                if let Some(answer) = answer {
                    // The asker may have gone.
                    drop(answer.send(said));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        dev.reap();
        screen.draw(&dev.members, &dev.faults, dev.last.as_deref());
    }
    dev.stop();
    Ok(())
}

impl LocalCluster {
    fn new(
        folder: PathBuf,
        doors: Vec<ReservedAddresses>,
        flags: Vec<String>,
        console: Console,
    ) -> io::Result<LocalCluster> {
        let urls = doors.iter().map(|own| url_of(&own.addresses));
        let faults = Faults::new(urls.collect());
        let members = doors.into_iter().enumerate();
        let members = members.map(|(index, own)| DevNode::start(index, own, &faults));
        Ok(LocalCluster {
            members: members.collect::<io::Result<_>>()?,
            folder,
            faults,
            flags,
            console,
            last: None,
        })
    }

    fn folder_of(&self, index: usize) -> PathBuf {
        self.folder.join(format!("node-{}", index + 1))
    }

    /// The flags that say which cluster a node is of.
    fn cluster_flags(&self, index: usize) -> io::Result<Vec<String>> {
        let member = &self.members[index];
        let life = member.addresses.life;
        let mut flags = vec!["--self".to_owned(), member.url.clone()];
        if !(life.has_joined || life.is_replaced) {
            let founders = self.members.iter();
            let founders = founders.filter(|founder| !founder.addresses.life.has_joined);
            let urls: Vec<&str> = founders.map(|founder| founder.url.as_str()).collect();
            flags.extend(["--cluster".to_owned(), urls.join(",")]);
            return Ok(flags);
        }
        let mut others = self.members.iter().enumerate();
        let door = others.find(|(other, it)| *other != index && it.is_running());
        let (_, door) =
            door.ok_or_else(|| io::Error::other("no other node runs through which it can join"))?;
        flags.extend(["--join".to_owned(), door.url.clone()]);
        if life.is_replaced {
            flags.extend(["--replace".to_owned(), member.url.clone()]);
        }
        Ok(flags)
    }

    fn start(&mut self, index: usize) -> io::Result<()> {
        let flags = self.cluster_flags(index)?;
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.join(format!("node-{}.log", index + 1)))?;
        let addresses = self.members[index].addresses;
        let child = Command::new(std::env::current_exe()?)
            .args(["serve", "--listen", &addresses.listen.to_string()])
            .args(["--admin", &addresses.admin.to_string()])
            .args(flags)
            .arg("--data")
            .arg(self.folder_of(index))
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        self.members[index].child = Some(child);
        self.members[index].state = NodeState::Up;
        Ok(())
    }

    /// A further node joins.
    fn add(&mut self) -> io::Result<()> {
        let doors = addresses::door_of_a_joiner()?;
        let index = self.faults.add(url_of(&doors.addresses));
        let member = DevNode::start(index, doors, &self.faults)?;
        self.members.push(member);
        self.remember()?;
        self.start(index)
    }

    /// A node on an empty folder takes the place of another one.
    fn replace(&mut self, index: usize) -> io::Result<()> {
        self.wipe(index)?;
        self.members[index].addresses.life.is_replaced = true;
        self.remember()?;
        self.start(index)
    }

    /// A plan begins at whose end the node is no member any more.
    fn remove(&mut self, index: usize) -> io::Result<()> {
        let mut others = self.members.iter().enumerate();
        let other = others.find(|(other, it)| *other != index && it.is_running());
        let (_, other) =
            other.ok_or_else(|| io::Error::other("no other node runs that can be told"))?;
        let admin = format!("http://{}", other.addresses.admin);
        let url = &self.members[index].url;
        let removed = runtime()
            .and_then(|runtime| runtime.block_on(cluster::remove(&admin, url, self.console)));
        removed.map_err(|failure| io::Error::other(failure.sentence))?;
        self.members[index].is_leaving = true;
        Ok(())
    }

    fn remember(&self) -> io::Result<()> {
        let all: Vec<Addresses> = self.members.iter().map(|it| it.addresses).collect();
        addresses::write(&self.folder, &all)
    }

    /// Carries out an order.
    fn carry_out(&mut self, order: &DevOrder) -> DevAnswer {
        let nodes = self.members.len();
        let names = order.nodes();
        if let Some(name) = names.iter().find(|name| !(1..=nodes).contains(*name)) {
            let why = format!("there is no node {name}: they are 1 to {nodes}");
            return DevAnswer::Refused(why);
        }
        if let Some(sentence) = self.makes_no_sense(order) {
            return DevAnswer::Refused(sentence);
        }
        let done = match *order {
            DevOrder::Kill(node) => self.signal(node - 1, Signal::KILL, NodeState::Down),
            DevOrder::Pause(node) => self.signal(node - 1, Signal::STOP, NodeState::Paused),
            DevOrder::Resume(node) => self.signal(node - 1, Signal::CONT, NodeState::Up),
            DevOrder::Start(node) => self.start(node - 1),
            DevOrder::Add => self.add(),
            DevOrder::Remove(node) => self.remove(node - 1),
            DevOrder::Replace(node) => self.replace(node - 1),
            DevOrder::Cut(a, b) => self.trouble(a - 1, b - 1, LinkFault::Cut),
            DevOrder::Stall(a, b) => self.trouble(a - 1, b - 1, LinkFault::Stall),
            DevOrder::Slow(a, b, ms) => {
                self.trouble(a - 1, b - 1, LinkFault::Delay(Duration::from_millis(ms)))
            }
            DevOrder::Rot(node) => match rot::flip_bits(&self.folder_of(node - 1)) {
                Ok(said) => return DevAnswer::Done(format!("{order}: {said}")),
                Err(error) => Err(error),
            },
            DevOrder::Wipe(node) => match self.wipe(node - 1) {
                Ok(()) => {
                    self.last = Some(order.to_string());
                    return DevAnswer::Done(format!(
                        "{order}: its data is gone, and the others have theirs; they refuse node \
                         {node} if it starts on the empty folder, because it does not know what it \
                         confirmed"
                    ));
                }
                Err(error) => Err(error),
            },
            DevOrder::Heal => {
                self.faults.heal();
                Ok(())
            }
            DevOrder::Stop => Ok(()),
        };
        match done {
            Ok(()) => {
                self.last = Some(order.to_string());
                DevAnswer::Done(order.to_string())
            }
            Err(error) => DevAnswer::Refused(format!("{order} failed: {error}")),
        }
    }

    /// Why an order would have no effect.
    fn makes_no_sense(&self, order: &DevOrder) -> Option<String> {
        let nodes = self.members.len();
        let state = |node: usize| self.members[node - 1].state;
        match *order {
            DevOrder::Start(node) if self.members[node - 1].child.is_some() => {
                Some(format!("node {node} runs already"))
            }
            DevOrder::Kill(node)
            | DevOrder::Pause(node)
            | DevOrder::Resume(node)
            | DevOrder::Start(node)
            | DevOrder::Remove(node)
            | DevOrder::Replace(node)
            | DevOrder::Rot(node)
            | DevOrder::Wipe(node)
                if self.members[node - 1].addresses.life.has_left =>
            {
                Some(format!("node {node} has left the cluster: add another one"))
            }
            DevOrder::Remove(node) if self.members[node - 1].is_leaving => {
                Some(format!("node {node} is leaving already"))
            }
            DevOrder::Add if nodes >= NODES_MAX => Some(format!(
                "a cluster on one machine has at most {NODES_MAX} nodes"
            )),
            DevOrder::Pause(node) if state(node) == NodeState::Paused => {
                Some(format!("node {node} is paused already"))
            }
            DevOrder::Resume(node) if state(node) == NodeState::Up => {
                Some(format!("node {node} is not paused"))
            }
            DevOrder::Cut(a, b) | DevOrder::Stall(a, b) | DevOrder::Slow(a, b, _) if a == b => {
                Some(format!("node {a} has no link to itself: name two nodes"))
            }
            _ => None,
        }
    }

    fn trouble(&self, a: usize, b: usize, fault: LinkFault) -> io::Result<()> {
        self.faults.set(a, b, fault);
        self.faults.set(b, a, fault);
        Ok(())
    }

    fn signal(&mut self, index: usize, signal: Signal, state: NodeState) -> io::Result<()> {
        let member = &mut self.members[index];
        let Some(child) = &mut member.child else {
            return Err(io::Error::other(
                "it does not run; `dendra dev start` starts it",
            ));
        };
        let pid = Pid::from_child(child);
        kill_process(pid, signal)?;
        if state == NodeState::Paused {
            // Its threads stop one after the other. An order that is carried out means all of them.
            let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            rustix::io::retry_on_intr(|| waitid(WaitId::Pid(pid), options))?;
        }
        member.state = state;
        if state == NodeState::Down {
            child.wait()?;
            member.child = None;
        }
        Ok(())
    }

    /// Takes a node's disk away.
    fn wipe(&mut self, index: usize) -> io::Result<()> {
        if self.members[index].child.is_some() {
            self.signal(index, Signal::KILL, NodeState::Down)?;
        }
        match std::fs::remove_dir_all(self.folder_of(index)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Notes nodes that ended by themselves.
    fn reap(&mut self) {
        let mut has_left = false;
        for member in &mut self.members {
            let ended = member.child.as_mut().map(Child::try_wait);
            if let Some(Ok(Some(_)) | Err(_)) = &ended {
                let code = ended.and_then(|looked| looked.ok()??.code());
                member.child = None;
                member.state = NodeState::Ended(code);
                if member.is_leaving && code == Some(Exit::FOLDER.code()) {
                    member.addresses.life.has_left = true;
                    has_left = true;
                }
            }
        }
        if has_left && let Err(error) = self.remember() {
            let sentence = format!("that a node has left cannot be noted: {error}");
            crate::console::error(&sentence);
        }
    }

    /// Ends all nodes: asked first, killed when they do not.
    fn stop(&mut self) {
        for member in &mut self.members {
            if let Some(child) = &member.child {
                let pid = Pid::from_child(child);
                // A node that is gone already needs no signal.
                let _gone = kill_process(pid, Signal::CONT).and(kill_process(pid, Signal::TERM));
            }
        }
        let deadline = std::time::Instant::now() + STOP_TIMEOUT;
        for member in &mut self.members {
            let Some(mut child) = member.child.take() else {
                continue;
            };
            while matches!(child.try_wait(), Ok(None)) && std::time::Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(10));
            }
            drop(child.kill());
            drop(child.wait());
        }
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_has_left_takes_no_order() {
        let folder = tempfile::tempdir().expect("a folder");
        let doors = addresses::doors(folder.path(), Some(1)).expect("free ports");
        let console = Console {
            is_quiet: true,
            verbosity: 0,
        };
        let path = folder.path().to_owned();
        let mut dev = LocalCluster::new(path, doors, Vec::new(), console).expect("a proxy");
        dev.members[0].addresses.life.has_left = true;
        for order in [
            DevOrder::Kill(1),
            DevOrder::Pause(1),
            DevOrder::Resume(1),
            DevOrder::Start(1),
            DevOrder::Remove(1),
            DevOrder::Replace(1),
            DevOrder::Rot(1),
            DevOrder::Wipe(1),
        ] {
            let DevAnswer::Refused(why) = dev.carry_out(&order) else {
                panic!("{order} was carried out");
            };
            assert!(why.starts_with("node 1 has left"), "{order}: {why}");
        }
    }
}
