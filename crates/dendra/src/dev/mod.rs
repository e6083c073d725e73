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
//! 3. Members know each other by the proxies' addresses; clients talk to the nodes themselves. A folder that is started
//!    again has the addresses that it had (`addresses.rs`).
//!
//! Not here: what a node does (crate `server`).
//! See: docs/cli.md.

mod addresses;
mod control;
mod proxy;
mod rot;
mod screen;

use crate::cli;
use crate::console::Console;
use crate::exit::{Exit, ExitResult, Failure};
use addresses::Doors;
use control::{Order, Ordered};
use proxy::{Fault, Faults, Proxy};
use rustix::process::{Pid, Signal, kill_process};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

/// How often the screen is drawn and the children are looked after.
const LOOK: Duration = Duration::from_secs(1);
/// Nodes of a cluster of which nobody says how many: the fewest of which one may fail.
const NODES_DEFAULT: u8 = 3;
/// How long a node may take to stop before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(8);

/// What is known of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Up,
    Paused,
    Down,
    /// By itself, with this code; `None` = by a signal that nobody here sent.
    Ended(Option<i32>),
}

struct Member {
    listen: SocketAddr,
    admin: SocketAddr,
    url: String,
    child: Option<Child>,
    state: State,
    _proxy: Proxy,
}

struct Dev {
    folder: PathBuf,
    members: Vec<Member>,
    faults: Arc<Faults>,
    flags: Vec<String>,
    /// The order that was carried out last.
    last: Option<String>,
}

/// Where a cluster lives that names no folder.
fn default_folder() -> PathBuf {
    std::env::temp_dir().join("dendra-dev")
}

/// Runs a cluster, or tells the running one what to do.
pub(crate) fn dev(args: &cli::Dev, console: Console) -> ExitResult {
    let folder = args.folder.clone().unwrap_or_else(default_folder);
    match &args.verb {
        // The folder alone is of both: clap knows arguments that exclude all orders, or none.
        Some(_) if args.nodes.is_some() || !args.flags.is_empty() => Err(Failure::usage(
            "--nodes and flags of nodes are for starting a cluster: leave them out of an order to one that runs",
        )),
        Some(verb) => control::tell(&folder, &Order::from(verb)),
        None => run(args, folder, console),
    }
}

fn failed(what: &str) -> impl Fn(io::Error) -> Failure + '_ {
    move |error| Failure::new(Exit::FAILURE, format!("{what}: {error}"))
}

fn run(args: &cli::Dev, folder: PathBuf, console: Console) -> ExitResult {
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

/// Removes what a run that was killed left in the temporary folder: nothing of it is for the next one.
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
    args: &cli::Dev,
    folder: &Path,
    console: Console,
    (orders, ordered): (SyncSender<Ordered>, &Receiver<Ordered>),
) -> Result<(), Failure> {
    let doors = addresses::doors(folder, args.nodes)?;
    let mut dev = Dev::new(folder.to_owned(), doors, args.flags.clone())
        .map_err(failed("the cluster cannot be laid out"))?;
    crate::on_signals(move || drop(orders.try_send((Order::Stop, None))))
        .map_err(failed("signals cannot be caught"))?;
    for index in 0..dev.members.len() {
        dev.start(index)
            .map_err(failed("a node cannot be started"))?;
    }
    let mut screen = screen::Screen::new(console);
    screen.hello(&dev.members, folder);
    loop {
        match ordered.recv_timeout(LOOK) {
            Ok((Order::Stop, _)) | Err(RecvTimeoutError::Disconnected) => break,
            Ok((order, answer)) => {
                let said = dev.carry_out(&order);
                if let Some(answer) = answer {
                    // Whoever asked may have gone.
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

impl Dev {
    fn new(folder: PathBuf, doors: Vec<Doors>, flags: Vec<String>) -> io::Result<Dev> {
        let faults = Faults::new(doors.len());
        let urls: Vec<String> = doors
            .iter()
            .map(|doors| format!("http://{}", doors.addresses.known_as))
            .collect();
        let members = doors
            .into_iter()
            .enumerate()
            .map(|(index, doors)| {
                let (listen, admin) = (doors.addresses.listen, doors.addresses.admin);
                let faults = Arc::clone(&faults);
                let proxy = Proxy::start(doors.proxy, index, listen, urls.clone(), faults)?;
                Ok(Member {
                    listen,
                    admin,
                    url: urls[index].clone(),
                    child: None,
                    state: State::Down,
                    _proxy: proxy,
                })
            })
            .collect::<io::Result<_>>()?;
        Ok(Dev {
            folder,
            members,
            faults,
            flags,
            last: None,
        })
    }

    fn start(&mut self, index: usize) -> io::Result<()> {
        let urls: Vec<&str> = self.members.iter().map(|m| m.url.as_str()).collect();
        let log = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.folder.join(format!("node-{}.log", index + 1)))?;
        let member = &self.members[index];
        let child = Command::new(std::env::current_exe()?)
            .args(["serve", "--listen", &member.listen.to_string()])
            .args(["--admin", &member.admin.to_string()])
            .args(["--cluster", &urls.join(","), "--self", &member.url])
            .arg("--data")
            .arg(self.data(index))
            .args(&self.flags)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()?;
        self.members[index].child = Some(child);
        self.members[index].state = State::Up;
        Ok(())
    }

    /// Carries out what somebody wants; a sentence about it.
    fn carry_out(&mut self, order: &Order) -> String {
        let nodes = self.members.len();
        let names = order.nodes();
        if let Some(name) = names.iter().find(|name| !(1..=nodes).contains(*name)) {
            return format!("there is no node {name}: they are 1 to {nodes}");
        }
        if let Some(sentence) = self.makes_no_sense(order) {
            return sentence;
        }
        let done = match *order {
            Order::Kill(node) => self.signal(node - 1, Signal::KILL, State::Down),
            Order::Pause(node) => self.signal(node - 1, Signal::STOP, State::Paused),
            Order::Resume(node) => self.signal(node - 1, Signal::CONT, State::Up),
            Order::Start(node) => self.start(node - 1),
            Order::Cut(a, b) => self.trouble(a - 1, b - 1, Fault::Cut),
            Order::Stall(a, b) => self.trouble(a - 1, b - 1, Fault::Stall),
            Order::Slow(a, b, ms) => {
                self.trouble(a - 1, b - 1, Fault::Delay(Duration::from_millis(ms)))
            }
            Order::Rot(node) => match rot::flip_bits(&self.data(node - 1)) {
                Ok(said) => return format!("done: {order}: {said}"),
                Err(error) => Err(error),
            },
            Order::Wipe(node) => match self.wipe(node - 1) {
                Ok(()) => {
                    self.last = Some(order.to_string());
                    return format!(
                        "done: {order}: its data is gone, and the others have theirs; they refuse \
                         node {node} if it starts on the empty folder, because it does not know \
                         what it confirmed"
                    );
                }
                Err(error) => Err(error),
            },
            Order::Heal => {
                self.faults.heal();
                Ok(())
            }
            Order::Stop => Ok(()),
        };
        match done {
            Ok(()) => {
                self.last = Some(order.to_string());
                format!("done: {order}")
            }
            Err(error) => format!("{order} failed: {error}"),
        }
    }

    /// Why an order would change nothing.
    fn makes_no_sense(&self, order: &Order) -> Option<String> {
        let state = |node: usize| self.members[node - 1].state;
        match *order {
            Order::Start(node) if self.members[node - 1].child.is_some() => {
                Some(format!("node {node} runs already"))
            }
            Order::Pause(node) if state(node) == State::Paused => {
                Some(format!("node {node} is paused already"))
            }
            Order::Resume(node) if state(node) == State::Up => {
                Some(format!("node {node} is not paused"))
            }
            Order::Cut(a, b) | Order::Stall(a, b) | Order::Slow(a, b, _) if a == b => {
                Some(format!("node {a} has no link to itself: name two nodes"))
            }
            _ => None,
        }
    }

    fn trouble(&self, a: usize, b: usize, fault: Fault) -> io::Result<()> {
        self.faults.set(a, b, fault);
        self.faults.set(b, a, fault);
        Ok(())
    }

    fn signal(&mut self, index: usize, signal: Signal, state: State) -> io::Result<()> {
        let member = &mut self.members[index];
        let Some(child) = &mut member.child else {
            return Err(io::Error::other(
                "it does not run; `dendra dev start` starts it",
            ));
        };
        kill_process(Pid::from_child(child), signal)?;
        member.state = state;
        if state == State::Down {
            child.wait()?;
            member.child = None;
        }
        Ok(())
    }

    /// The data folder of a node.
    fn data(&self, index: usize) -> PathBuf {
        self.folder.join(format!("node-{}", index + 1))
    }

    /// Takes a node's disk away.
    fn wipe(&mut self, index: usize) -> io::Result<()> {
        if self.members[index].child.is_some() {
            self.signal(index, Signal::KILL, State::Down)?;
        }
        match std::fs::remove_dir_all(self.data(index)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Notes nodes that ended by themselves.
    fn reap(&mut self) {
        for member in &mut self.members {
            let ended = member.child.as_mut().map(Child::try_wait);
            if let Some(Ok(Some(_)) | Err(_)) = &ended {
                let code = ended.and_then(|looked| looked.ok()??.code());
                member.child = None;
                member.state = State::Ended(code);
            }
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

impl Drop for Dev {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Where the control socket of a cluster in `folder` is.
fn socket_of(folder: &Path) -> PathBuf {
    folder.join("dev.sock")
}
