//! A TCP proxy in front of one member that can be told to trouble the links of single peers.
//!
//! ```text
//! member i ─► advertised address of j ─► proxy ─► address that j listens on
//!              GET /v0/peer … url=<i>  └─ so this is the link from i to j: open, late, stalled, cut
//!              POST /v0/peer … (<i>)
//! ```
//!
//! Invariants
//! 1. Bytes are passed on unchanged and in order, or not at all.
//! 2. A fault of a direction holds for connections that are there and for those to come.
//! 3. Everything ends when the proxy is dropped.
//!
//! Not here: who is told what (`mod.rs`, and the tests of clusters).

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// What happens to bytes of one direction between two members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing: they pass.
    None,
    /// They pass after so long.
    Delay(Duration),
    /// They wait until the fault is over; connections stay.
    Stall,
    /// Connections are closed, and new ones too.
    Cut,
}

/// The faults between all members: `[from][to]`, by the way that bytes take.
#[derive(Debug)]
pub(crate) struct Faults {
    table: Mutex<Vec<Vec<Fault>>>,
    changed: Condvar,
    /// Grows with each change, so that a connection sees it cheaply.
    version: AtomicU64,
}

impl Faults {
    /// No fault between any two of so many members.
    pub(crate) fn new(members: usize) -> Arc<Faults> {
        Arc::new(Faults {
            table: Mutex::new(vec![vec![Fault::None; members]; members]),
            changed: Condvar::new(),
            version: AtomicU64::new(0),
        })
    }

    /// Sets what happens to bytes from one member to another.
    pub(crate) fn set(&self, from: usize, to: usize, fault: Fault) {
        self.table.lock().expect("no holder panics")[from][to] = fault;
        self.version.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_all();
    }

    /// Ends all faults.
    pub(crate) fn heal(&self) {
        for row in self.table.lock().expect("no holder panics").iter_mut() {
            row.fill(Fault::None);
        }
        self.version.fetch_add(1, Ordering::SeqCst);
        self.changed.notify_all();
    }

    /// What happens to bytes from one member to another.
    pub(crate) fn of(&self, from: usize, to: usize) -> Fault {
        self.table.lock().expect("no holder panics")[from][to]
    }

    /// Waits until bytes may pass; false when they never will.
    fn pass(&self, from: usize, to: usize, since: Instant, is_over: &AtomicBool) -> bool {
        let mut table = self.table.lock().expect("no holder panics");
        loop {
            if is_over.load(Ordering::SeqCst) {
                return false;
            }
            let left = match table[from][to] {
                Fault::None => return true,
                Fault::Cut => return false,
                Fault::Delay(delay) => match delay.checked_sub(since.elapsed()) {
                    None | Some(Duration::ZERO) => return true,
                    Some(left) => left,
                },
                Fault::Stall => LOOK,
            };
            let waited = self.changed.wait_timeout(table, left.min(LOOK));
            table = waited.expect("no holder panics").0;
        }
    }
}

/// How often somebody who waits looks whether everything is over.
const LOOK: Duration = Duration::from_millis(50);

/// See the module. `urls` are the members' advertised addresses, by number.
pub(crate) struct Proxy {
    is_over: Arc<AtomicBool>,
    accepting: Option<std::thread::JoinHandle<()>>,
}

impl Proxy {
    /// Stands on `listener` in front of member `to`, which listens on `behind`.
    pub(crate) fn start(
        listener: TcpListener,
        to: usize,
        behind: SocketAddr,
        urls: Vec<String>,
        faults: Arc<Faults>,
    ) -> std::io::Result<Proxy> {
        listener.set_nonblocking(true)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let accepting = std::thread::Builder::new()
            .name(format!("proxy-{to}"))
            .spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    match listener.accept() {
                        Ok((stream, _)) => {
                            let (urls, faults) = (urls.clone(), Arc::clone(&faults));
                            let over = Arc::clone(&over);
                            // A thread that cannot start loses its connection, as a network may.
                            drop(std::thread::Builder::new().spawn(move || {
                                drop(carry(stream, to, behind, &urls, &faults, &over));
                            }));
                        }
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {
                            wait_readable(&listener)
                        }
                        Err(_) => return,
                    }
                }
            })?;
        Ok(Proxy {
            is_over,
            accepting: Some(accepting),
        })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        if let Some(accepting) = self.accepting.take() {
            drop(accepting.join());
        }
    }
}

/// Waits a moment for a connection.
fn wait_readable(listener: &TcpListener) {
    let mut fds = [rustix::event::PollFd::new(
        listener,
        rustix::event::PollFlags::IN,
    )];
    let timeout = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: LOOK.as_nanos() as i64,
    };
    // An interrupted wait is a short one.
    let _interrupted = rustix::event::poll(&mut fds, Some(&timeout));
}

fn carry(
    mut client: TcpStream,
    to: usize,
    behind: SocketAddr,
    urls: &[String],
    faults: &Arc<Faults>,
    is_over: &Arc<AtomicBool>,
) -> std::io::Result<()> {
    client.set_nonblocking(false)?;
    client.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut head = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let n = client.read(&mut buffer)?;
        if n == 0 || head.len() > 64 << 10 {
            return Ok(());
        }
        head.extend_from_slice(&buffer[..n]);
    }
    let from = asker(&head, urls).unwrap_or(to);
    if !faults.pass(from, to, Instant::now(), is_over) {
        return Ok(());
    }
    let mut server = TcpStream::connect(behind)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(LOOK))?;
    }
    server.write_all(&head)?;
    let (back_in, back_out) = (server.try_clone()?, client.try_clone()?);
    let way = Way {
        faults: Arc::clone(faults),
        is_over: Arc::clone(is_over),
    };
    let back = Way {
        faults: Arc::clone(faults),
        is_over: Arc::clone(is_over),
    };
    let backwards =
        std::thread::Builder::new().spawn(move || back.pump(&back_in, &back_out, to, from))?;
    way.pump(&client, &server, from, to);
    drop(backwards.join());
    Ok(())
}

/// Which member opened this connection, by the url in its hello, or by the name under which it asks.
fn asker(head: &[u8], urls: &[String]) -> Option<usize> {
    let text = String::from_utf8_lossy(head);
    let url = match text.split_once("User-Agent: dendra-peer/1 (") {
        Some((_, rest)) => rest.split(')').next()?.to_owned(),
        None => {
            let (_, rest) = text.split_once("; url=")?;
            let url = rest.split(';').next()?;
            url.replace("%3A", ":").replace("%2F", "/")
        }
    };
    urls.iter().position(|known| *known == url)
}

struct Way {
    faults: Arc<Faults>,
    is_over: Arc<AtomicBool>,
}

impl Way {
    /// Passes bytes on until one side ends or the way is cut.
    fn pump(&self, mut input: &TcpStream, mut output: &TcpStream, from: usize, to: usize) {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let read = input.read(&mut buffer);
            let since = Instant::now();
            let n = match read {
                Ok(0) => break,
                Ok(n) => n,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    if self.is_over.load(Ordering::SeqCst) || self.faults.of(from, to) == Fault::Cut
                    {
                        break;
                    }
                    continue;
                }
                Err(_) => break,
            };
            if !self.faults.pass(from, to, since, &self.is_over)
                || output.write_all(&buffer[..n]).is_err()
            {
                break;
            }
        }
        drop(input.shutdown(Shutdown::Both));
        drop(output.shutdown(Shutdown::Both));
    }
}
