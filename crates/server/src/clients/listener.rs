//! The one place where connections come in, and the choice of the event loop they live on.
//!
//! ```text
//! kernel backlog ─► accept ─► least loaded loop ─► its mailbox
//!      ▲ the only queue         EMFILE, or the gate is full: pause, the backlog keeps them
//! ```
//!
//! Invariants
//! 1. A connection is counted on its loop before it is posted. So two that are accepted in a row do
//!    not both take the loop that looked emptiest.
//! 2. `connections_max` is never exceeded by clients. Above it a node by itself accepts nothing; a
//!    member accepts some more on which only members may ask (`waiting/connection_gate.rs`).
//! 3. A storm of connections is taken in small pieces. When a loop is near its capacity, few are
//!    taken and few are kept by the kernel. One that gave up in the backlog is closed here.
//! 4. Running out of descriptors pauses accepting and is said once, not once per attempt.
//!
//! Not here: serving a connection (`connection/`), when accepting pauses (`accept_pace.rs`).
//! See: docs/overload.md.

use super::accept_pace::{AcceptPace, Backlog};
use crate::event_loop::parts::NodeParts;
use crate::health_watch;
use crate::lanes::lane::Loops;
use crate::lanes::mailbox::LoopEvent;
use crate::limits;
use crate::member::Cluster;
use crate::phase::PhaseCell;
use crate::waiting::connection_gate::ConnectionGate;
use crate::waiting::entrance::Entrance;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Pause after the system had no descriptor, or no memory, for one more connection.
const PAUSE: Duration = Duration::from_millis(100);

/// An address that is ours; no client can connect to it yet.
pub(crate) struct Door(socket2::Socket);

impl Door {
    /// Lets the kernel take connections.
    pub(crate) fn open(self) -> io::Result<TcpListener> {
        self.0.listen(limits::BACKLOG as i32)?;
        Ok(self.0.into())
    }
}

/// Binds `addr` so that the port is free again at once after a restart.
pub(crate) fn bind(addr: SocketAddr) -> io::Result<Door> {
    let socket = socket2::Socket::new(
        socket2::Domain::for_address(addr),
        socket2::Type::STREAM.nonblocking(),
        Some(socket2::Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if addr.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&addr.into())?;
    Ok(Door(socket))
}

/// Starts the accepting thread; it ends and closes the sockets when `stop` turns true.
pub(crate) fn spawn(
    parts: &NodeParts,
    sockets: Vec<TcpListener>,
    stop: watch::Receiver<bool>,
) -> io::Result<JoinHandle<()>> {
    let parts = parts.clone();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    std::thread::Builder::new()
        .name("listener".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                let accepting = async {
                    let mut tasks = tokio::task::JoinSet::new();
                    for socket in sockets {
                        tasks.spawn(accept_for_ever(
                            Arc::clone(&parts.entrance),
                            Arc::clone(&parts.lanes),
                            socket,
                        ));
                    }
                    if let Some(tls) = &parts.border.tls {
                        let tls = Arc::clone(tls);
                        let look = move |is_asked| tls.look(is_asked);
                        tasks.spawn(look_for_ever(Arc::clone(&parts.phase), look));
                    }
                    if let Some(desk) = &parts.front
                        && desk.papers.has_files()
                    {
                        let desk = Arc::clone(desk);
                        let look = move |is_asked| desk.papers.look(is_asked);
                        tasks.spawn(look_for_ever(Arc::clone(&parts.phase), look));
                    }
                    if let Some(cluster) = &parts.cluster
                        && cluster.links.secrets.is_read_again()
                    {
                        tasks.spawn(look_at_secret_for_ever(Arc::clone(cluster)));
                    }
                    tasks.spawn(health_watch::watch_for_ever(parts.clone()));
                    while tasks.join_next().await.is_some() {}
                };
                tokio::select! {
                    () = accepting => tracing::error!("no socket accepts connections any more"),
                    () = until_true(stop) => {}
                }
            });
        })
}

/// Looks at files of certificates, keys and logins now and then, and when a signal asks for it.
async fn look_for_ever(phase: Arc<PhaseCell>, look: impl Fn(bool)) {
    let mut asked = phase.files_asked();
    loop {
        let is_asked = tokio::time::timeout(limits::TLS_FILES_LOOK, asked.changed()).await;
        look(matches!(is_asked, Ok(Ok(()))));
    }
}

/// Reads the file of the cluster's secret now and then.
async fn look_at_secret_for_ever(cluster: Arc<Cluster>) {
    loop {
        tokio::time::sleep(limits::SECRET_FILE_LOOK).await;
        cluster.links.secrets.look();
    }
}

async fn until_true(mut stop: watch::Receiver<bool>) {
    // A closed channel means that only the end of the node itself can stop us.
    if stop.wait_for(|stopped| *stopped).await.is_err() {
        tracing::debug!("the node ended before it told the listener");
    }
}

async fn accept_for_ever(entrance: Arc<Entrance>, lanes: Arc<Loops>, socket: TcpListener) {
    let socket = match tokio::net::TcpListener::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => {
            tracing::error!(%error, "a listening socket cannot be watched");
            return;
        }
    };
    let mut is_pausing = false;
    let mut pace = AcceptPace::new(Instant::now());
    loop {
        entrance.wait_for_place().await;
        let crowding = lanes.overload.crowding();
        if let Some(backlog) = pace.backlog(Instant::now(), crowding) {
            keep(&socket, backlog);
        }
        if let Some(pause) = pace.pause(crowding) {
            tokio::time::sleep(pause).await;
        }
        let accepted = match accept_now(&socket) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let accepted = accept(&socket, pace.is_short()).await;
                pace.rested(Instant::now());
                accepted
            }
            accepted => accepted.map(Some),
        };
        match accepted {
            Ok(None) => {}
            Ok(Some(stream)) => {
                is_pausing = false;
                if pace.takes(Instant::now(), || is_gone(&stream)) {
                    hand_over(&entrance.gate, &lanes, stream);
                }
            }
            Err(error) if is_of_that_connection(&error) => {}
            Err(error) => {
                if !is_pausing {
                    tracing::warn!(%error, "accepting pauses: the system has no room for one more connection");
                    is_pausing = true;
                }
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Takes one that is there. Tokio would watch it here, before the loop it goes to does.
fn accept_now(socket: &tokio::net::TcpListener) -> io::Result<TcpStream> {
    let flags = rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC;
    Ok(rustix::net::accept_with(socket, flags)?.into())
}

/// Waits for one, and while the backlog is short not for long: the overload may be over.
async fn accept(socket: &tokio::net::TcpListener, is_short: bool) -> io::Result<Option<TcpStream>> {
    let (stream, _) = if is_short {
        match tokio::time::timeout(limits::SWEEP, socket.accept()).await {
            Ok(accepted) => accepted?,
            Err(_) => return Ok(None),
        }
    } else {
        socket.accept().await?
    };
    stream.into_std().map(Some)
}

/// Has the client closed its side already? Then it gave up while it waited in the backlog.
fn is_gone(stream: &TcpStream) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec};
    let mut watched = [PollFd::new(stream, PollFlags::RDHUP)];
    let polled = rustix::event::poll(&mut watched, Some(&Timespec::default()));
    polled.is_ok_and(|ready| ready > 0)
}

/// Has the kernel keep as many connections for us.
fn keep(socket: &impl AsFd, backlog: Backlog) {
    if let Err(error) = socket2::SockRef::from(socket).listen(backlog.len() as i32) {
        tracing::warn!(%error, ?backlog, "the backlog keeps its length");
    }
}

/// The client went away before we got to it: the next one is not concerned.
fn is_of_that_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
    )
}

fn hand_over(gate: &ConnectionGate, lanes: &Loops, stream: TcpStream) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection was lost before it began");
        return;
    }
    // A socket that is gone already has no address.
    let Ok(from) = stream.peer_addr() else {
        return;
    };
    let Some(place) = gate.enter(from.ip(), Instant::now()) else {
        return;
    };
    let lane = lanes
        .iter()
        .min_by_key(|lane| lane.connections.load(Ordering::SeqCst))
        .expect("there is at least one loop");
    lane.connections.fetch_add(1, Ordering::SeqCst);
    lane.mailbox.post(LoopEvent::Connection(stream, place));
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType};

    /// How many of so many connections the kernel keeps that are not accepted.
    fn kept(backlog: Backlog) -> usize {
        let door = bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port is free");
        let listener = door.open().expect("it listens");
        let addr = listener.local_addr().expect("it has one");
        keep(&listener, backlog);
        let connections = (0..100).map(|_| {
            let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
            let socket =
                rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
            let socket = socket.expect("there are descriptors");
            // On the loopback a handshake that is answered is over when this returns.
            let connected = rustix::net::connect(&socket, &addr);
            assert!(matches!(
                connected,
                Ok(()) | Err(rustix::io::Errno::INPROGRESS)
            ));
            socket
        });
        let connections: Vec<_> = connections.collect();
        let is_open = |socket: &&std::os::fd::OwnedFd| {
            use rustix::event::{PollFd, PollFlags, Timespec};
            let mut watched = [PollFd::new(*socket, PollFlags::OUT)];
            rustix::event::poll(&mut watched, Some(&Timespec::default())).is_ok_and(|n| n > 0)
        };
        connections.iter().filter(is_open).count()
    }

    #[test]
    fn a_client_that_closed_its_side_is_gone_and_one_that_sent_is_not() {
        let door = bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a port is free");
        let listener = door.open().expect("it listens");
        let addr = listener.local_addr().expect("it has one");
        let mut client = TcpStream::connect(addr).expect("it listens");
        // The backlog has it when the client is connected.
        let (stream, _) = listener.accept().expect("it is there");
        assert!(!is_gone(&stream));
        io::Write::write_all(&mut client, b"G").expect("it is open");
        assert!(!is_gone(&stream));
        client
            .shutdown(std::net::Shutdown::Write)
            .expect("it is open");
        // On the loopback the end is there when this returns.
        assert!(is_gone(&stream));
    }

    #[test]
    fn a_short_backlog_leaves_a_storm_to_the_kernel() {
        assert_eq!(kept(Backlog::Long), 100);
        // Linux keeps one more than it is told.
        for backlog in [Backlog::Short, Backlog::Piece] {
            assert_eq!(kept(backlog), backlog.len() as usize + 1);
        }
    }
}
