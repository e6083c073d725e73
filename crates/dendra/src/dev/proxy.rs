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
//! 2. A fault of a direction holds for open connections and for later ones. Bytes that are late
//!    already stay so when the delay is ended.
//! 3. Everything ends when the proxy is dropped.
//! 4. An idle connection takes no processor. A member that hangs is asked over hundreds of them.
//!    Threads that look around now and then would take the processor from those that the cluster is
//!    measured by.
//!
//! Not here: the orders (`mod.rs`, and the tests of clusters).

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The fate of bytes of one direction between two members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkFault {
    /// Bytes pass.
    None,
    /// Bytes pass after so long.
    Delay(Duration),
    /// Bytes wait until the fault is over; connections stay.
    Stall,
    /// Connections are closed, and new ones too.
    Cut,
}

/// The faults between all members, and the connections that they are about.
#[derive(Debug)]
pub(crate) struct Faults {
    state: Mutex<ProxyState>,
    changed: Condvar,
}

#[derive(Debug)]
struct ProxyState {
    /// Advertised addresses of the members, by number.
    urls: Vec<String>,
    /// `[from][to]`, by the way that bytes take.
    table: Vec<Vec<LinkFault>>,
    open: Vec<OpenConnection>,
    /// Number of the connection that was opened last.
    number: u64,
}

/// Both sides of a connection, for the thread that has to end it.
#[derive(Debug)]
struct OpenConnection {
    number: u64,
    from: usize,
    to: usize,
    sides: [TcpStream; 2],
}

impl OpenConnection {
    fn end(&self) {
        for side in &self.sides {
            // It may have ended by itself.
            drop(side.shutdown(Shutdown::Both));
        }
    }
}

impl Faults {
    /// No fault between any two of the members with these advertised addresses.
    pub(crate) fn new(urls: Vec<String>) -> Arc<Faults> {
        let members = urls.len();
        Arc::new(Faults {
            state: Mutex::new(ProxyState {
                urls,
                table: vec![vec![LinkFault::None; members]; members],
                open: Vec::new(),
                number: 0,
            }),
            changed: Condvar::new(),
        })
    }

    fn state(&self) -> MutexGuard<'_, ProxyState> {
        self.state.lock().expect("no holder panics")
    }

    /// Sets the fate of bytes from one member to another.
    pub(crate) fn set(&self, from: usize, to: usize, fault: LinkFault) {
        let mut state = self.state();
        state.table[from][to] = fault;
        if fault == LinkFault::Cut {
            let is_between =
                |open: &&OpenConnection| [(from, to), (to, from)].contains(&(open.from, open.to));
            state
                .open
                .iter()
                .filter(is_between)
                .for_each(OpenConnection::end);
        }
        self.changed.notify_all();
    }

    /// A further member, without faults; its number.
    pub(crate) fn add(&self, url: String) -> usize {
        let mut state = self.state();
        state.urls.push(url);
        let members = state.urls.len();
        state.table.resize(members, Vec::new());
        for row in &mut state.table {
            row.resize(members, LinkFault::None);
        }
        members - 1
    }

    /// Which member opened a connection that begins so.
    fn asker(&self, head: &[u8]) -> Option<usize> {
        asker(head, &self.state().urls)
    }

    /// Ends all faults.
    pub(crate) fn heal(&self) {
        for row in &mut self.state().table {
            row.fill(LinkFault::None);
        }
        self.changed.notify_all();
    }

    /// The fate of bytes from one member to another.
    pub(crate) fn of(&self, from: usize, to: usize) -> LinkFault {
        self.state().table[from][to]
    }

    /// Ends the connections to member `to`, now and from now on: `is_over` is its proxy's.
    fn end(&self, to: usize, is_over: &AtomicBool) {
        let state = self.state();
        is_over.store(true, Ordering::SeqCst);
        let is_its = |open: &&OpenConnection| open.to == to;
        state
            .open
            .iter()
            .filter(is_its)
            .for_each(OpenConnection::end);
        self.changed.notify_all();
    }

    /// Knows of a connection, whose `sides` end with a cut; its number. `None` when it is to end at
    /// once.
    fn opened(
        &self,
        from: usize,
        to: usize,
        sides: [TcpStream; 2],
        is_over: &AtomicBool,
    ) -> Option<u64> {
        let mut state = self.state();
        let is_cut = [(from, to), (to, from)]
            .into_iter()
            .any(|(from, to)| state.table[from][to] == LinkFault::Cut);
        if is_cut || is_over.load(Ordering::SeqCst) {
            return None;
        }
        state.number += 1;
        let number = state.number;
        state.open.push(OpenConnection {
            number,
            from,
            to,
            sides,
        });
        Some(number)
    }

    /// A connection has ended.
    fn closed(&self, number: u64) {
        self.state().open.retain(|open| open.number != number);
    }

    /// Waits until bytes may pass; false when they never will.
    fn pass(&self, from: usize, to: usize, since: Instant, is_over: &AtomicBool) -> bool {
        let mut state = self.state();
        loop {
            if is_over.load(Ordering::SeqCst) {
                return false;
            }
            state = match state.table[from][to] {
                LinkFault::None => return true,
                LinkFault::Cut => return false,
                LinkFault::Delay(delay) => match delay.checked_sub(since.elapsed()) {
                    None | Some(Duration::ZERO) => return true,
                    Some(left) => {
                        let waited = self.changed.wait_timeout(state, left);
                        waited.expect("no holder panics").0
                    }
                },
                LinkFault::Stall => self.changed.wait(state).expect("no holder panics"),
            };
        }
    }
}

/// Pieces of up to 64 KiB that one direction of a connection keeps while they are late; then its
/// sender waits.
const PIECES_MAX: usize = 64;

/// How often a proxy that waits for connections looks whether everything is over.
const LOOK: Duration = Duration::from_millis(50);

/// See the module.
pub(crate) struct Proxy {
    to: usize,
    faults: Arc<Faults>,
    is_over: Arc<AtomicBool>,
    accepting: Option<std::thread::JoinHandle<()>>,
}

impl Proxy {
    /// Stands on `listener` in front of member `to`, which listens on `behind`.
    pub(crate) fn start(
        listener: TcpListener,
        to: usize,
        behind: SocketAddr,
        faults: Arc<Faults>,
    ) -> std::io::Result<Proxy> {
        listener.set_nonblocking(true)?;
        let is_over = Arc::new(AtomicBool::new(false));
        let (over, table) = (Arc::clone(&is_over), Arc::clone(&faults));
        let accepting = std::thread::Builder::new()
            .name(format!("proxy-{to}"))
            .spawn(move || {
                while !over.load(Ordering::SeqCst) {
                    match listener.accept() {
                        Ok((stream, _)) => {
                            let own_table = Arc::clone(&table);
                            let over = Arc::clone(&over);
                            // A thread that cannot start loses its connection, as a network may.
                            drop(std::thread::Builder::new().spawn(move || {
                                drop(carry(stream, to, behind, &own_table, &over));
                            }));
                        }
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {
                            wait_readable(&listener, LOOK);
                        }
                        Err(_) => return,
                    }
                }
            })?;
        Ok(Proxy {
            to,
            faults,
            is_over,
            accepting: Some(accepting),
        })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.faults.end(self.to, &self.is_over);
        if let Some(accepting) = self.accepting.take() {
            drop(accepting.join());
        }
    }
}

/// Waits until there is something to read, or to accept, but no longer than `at_most`: is there?
fn wait_readable(socket: impl AsFd, at_most: Duration) -> bool {
    let mut fds = [rustix::event::PollFd::new(
        &socket,
        rustix::event::PollFlags::IN,
    )];
    let timeout = rustix::event::Timespec {
        tv_sec: at_most.as_secs().cast_signed(),
        tv_nsec: at_most.subsec_nanos().into(),
    };
    // An interrupted wait is a short one.
    rustix::event::poll(&mut fds, Some(&timeout)).is_ok_and(|ready| ready > 0)
}

fn carry(
    mut client: TcpStream,
    to: usize,
    behind: SocketAddr,
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
    let from = faults.asker(&head).unwrap_or(to);
    if !faults.pass(from, to, Instant::now(), is_over) {
        return Ok(());
    }
    let mut server = TcpStream::connect(behind)?;
    client.set_read_timeout(None)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let sides = [client.try_clone()?, server.try_clone()?];
    let Some(number) = faults.opened(from, to, sides, is_over) else {
        return Ok(());
    };
    let carried = both_ways(from, to, &client, &mut server, &head, faults, is_over);
    faults.closed(number);
    carried
}

/// Passes bytes on, after the head that was read already, until the connection ends.
fn both_ways(
    from: usize,
    to: usize,
    client: &TcpStream,
    server: &mut TcpStream,
    head: &[u8],
    faults: &Arc<Faults>,
    is_over: &Arc<AtomicBool>,
) -> std::io::Result<()> {
    server.write_all(head)?;
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
    way.pump(client, server, from, to);
    drop(backwards.join());
    Ok(())
}

/// Which member opened this connection, by the url in its hello, or by the name under which it
/// asks.
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

/// One direction of a connection.
struct Way {
    faults: Arc<Faults>,
    is_over: Arc<AtomicBool>,
}

/// Bytes that were read together, and when.
struct TimedBytes {
    since: Instant,
    bytes: Vec<u8>,
}

impl Way {
    /// Passes bytes on until one side ends or the way is cut.
    fn pump(&self, input: &TcpStream, mut output: &TcpStream, from: usize, to: usize) {
        let mut buffer = vec![0; 64 << 10];
        // The bytes that came while their predecessors are late.
        let mut pieces = VecDeque::new();
        let mut is_ended = false;
        while !is_ended || !pieces.is_empty() {
            let left = self.left(pieces.front(), from, to);
            let may_read = !is_ended && pieces.len() < PIECES_MAX;
            let is_next = |wait: Duration| !wait.is_zero() && wait_readable(input, wait);
            if may_read && left.is_none_or(is_next) {
                match read(input, &mut buffer) {
                    Some(piece) => pieces.push_back(piece),
                    None => is_ended = true,
                }
                continue;
            }
            let Some(TimedBytes { since, bytes }) = pieces.pop_front() else {
                break;
            };
            if !self.faults.pass(from, to, since, &self.is_over)
                || output.write_all(&bytes).is_err()
            {
                break;
            }
        }
        drop(input.shutdown(Shutdown::Both));
        drop(output.shutdown(Shutdown::Both));
    }

    /// How long others may be read before the first piece has to pass; `None` = there is none.
    fn left(&self, first: Option<&TimedBytes>, from: usize, to: usize) -> Option<Duration> {
        let since = first?.since;
        Some(match self.faults.of(from, to) {
            LinkFault::Delay(delay) => delay.saturating_sub(since.elapsed()),
            LinkFault::None | LinkFault::Stall | LinkFault::Cut => Duration::ZERO,
        })
    }
}

/// The next piece; `None` at the end.
fn read(mut input: &TcpStream, buffer: &mut [u8]) -> Option<TimedBytes> {
    loop {
        match input.read(buffer) {
            Ok(0) => return None,
            Ok(n) => {
                return Some(TimedBytes {
                    since: Instant::now(),
                    bytes: buffer[..n].to_vec(),
                });
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}
