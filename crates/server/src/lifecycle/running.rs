//! A node that runs: its threads, its doors, and its stop.
//!
//! Invariants
//! 1. Threads end in the order in which they hand work on: doors, loops, pool, log, maintenance.
//! 2. Every thread that was started is joined before `stop` returns.
//!
//! Not here: the parts that exist before threads start (`start.rs`).

use super::doors::open;
use super::starting::Starting;
use crate::admin;
use crate::border_watch::BorderWatch;
use crate::clients::connection;
use crate::clients::keep_rights;
use crate::clients::listener::{self, Door};
use crate::clock;
use crate::disk::last_clock;
use crate::disk::maintenance;
use crate::disk::mark;
use crate::disk::readers;
use crate::disk::scrub;
use crate::disk::wal_thread;
use crate::event_loop::mailbox::LoopEvent;
use crate::event_loop::shared::{Phase, Shared};
use crate::event_loop::thread::{self, LoopHooks};
use crate::front::{FrontDesk, FrontThreads};
use crate::limits;
use crate::peers::{self, StartGate};
use crate::start_error::{StartError, system};
use dendra_engine::Error;
use dendra_engine::vfs::Vfs;
use dendra_ownership::membership::Disowned;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;
/// Functions of the upper modules that an event loop calls.
static HOOKS: LoopHooks = LoopHooks {
    serve: connection::spawn,
    turns: peers::turns,
    link: peers::link,
    sweep: peers::sweep,
    begin: |lane| {
        peers::settle(lane);
        keep_rights(lane);
    },
};

/// A node that serves.
pub struct Running {
    shared: Arc<Shared>,
    admin: Option<admin::Admin>,
    addrs: Vec<SocketAddr>,
    stop_accepting: watch::Sender<bool>,
    listener: Option<JoinHandle<()>>,
    loops: Vec<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
    log: Option<JoinHandle<()>>,
    maintenance: Vec<JoinHandle<()>>,
    front: Option<(Arc<FrontDesk>, FrontThreads)>,
}

impl fmt::Debug for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Running")
            .field("addrs", &self.addrs)
            .field("phase", &self.phase())
            .finish_non_exhaustive()
    }
}

impl Running {
    pub(super) fn start_threads(
        shared: &Arc<Shared>,
        admin: Option<admin::Admin>,
        front: Option<(Arc<FrontDesk>, FrontThreads)>,
    ) -> Result<Running, StartError> {
        let no_thread = system("a thread could not be started");
        let first = shared.lanes.first().expect("a node has a loop");
        first.mailbox.post(LoopEvent::Begin);
        let (stop_accepting, _) = watch::channel(false);
        if let Some((desk, threads)) = &front {
            threads.serve(Arc::clone(desk), shared);
        }
        let loops = (0..shared.lanes.len())
            .map(|index| thread::spawn(shared, index, &HOOKS))
            .collect::<io::Result<_>>()
            .map_err(&no_thread)?;
        Ok(Running {
            admin,
            addrs: Vec::new(),
            stop_accepting,
            listener: None,
            loops,
            workers: readers::spawn(shared).map_err(&no_thread)?,
            log: Some(wal_thread::spawn(shared).map_err(&no_thread)?),
            maintenance: background(shared).map_err(&no_thread)?,
            front,
            shared: Arc::clone(shared),
        })
    }

    pub(super) fn open_doors(
        &mut self,
        doors: Vec<(SocketAddr, Door)>,
        starting: &Starting,
    ) -> Result<(), StartError> {
        if let Some(cluster) = &self.shared.cluster {
            starting.wait_for(cluster.wait_for(StartGate::Open))?;
        }
        let mut sockets = Vec::new();
        for (addr, door) in doors {
            let socket = open("data", addr, door)?;
            let addr = socket
                .local_addr()
                .map_err(system("a socket has no address"))?;
            self.addrs.push(addr);
            sockets.push(socket);
        }
        let stop = self.stop_accepting.subscribe();
        self.listener = Some(
            listener::spawn(&self.shared, sockets, stop)
                .map_err(system("the listener could not be started"))?,
        );
        if let Some(cluster) = &self.shared.cluster {
            starting.wait_for(cluster.wait_for(StartGate::Ready))?;
        }
        self.shared.phase.turn(Phase::Serving);
        for addr in &self.addrs {
            tracing::info!(
                %addr,
                durability = self.shared.settings.durability.as_str(),
                loops = self.shared.lanes.len(),
                "serving"
            );
        }
        Ok(())
    }

    /// Addresses of the data plane, with the ports that were given.
    pub fn addrs(&self) -> &[SocketAddr] {
        &self.addrs
    }

    /// The first address of the data plane.
    pub fn addr(&self) -> SocketAddr {
        self.addrs[0]
    }

    /// Address of the admin plane.
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin.as_ref().map(admin::Admin::addr)
    }

    /// Do its ports speak TLS?
    pub fn is_sealed(&self) -> bool {
        self.shared.tls.is_some()
    }

    /// Tells when tokens and certificates change.
    pub fn border(&self) -> &BorderWatch {
        &self.shared.watch
    }

    /// Where in its life the node is.
    pub fn phase(&self) -> Phase {
        self.shared.phase.now()
    }

    /// Why another member does not let this node's folder in: then it must be stopped.
    pub fn disowned(&self) -> Option<&str> {
        let cluster = self.shared.cluster.as_ref()?;
        Some(&cluster.disowned.get()?.sentence)
    }

    /// Stops, and leaves in the folder why no node may start on it any more where that is so: the
    /// sentence about it.
    pub(super) fn retire(self) -> String {
        let cluster = self.shared.cluster.as_ref();
        let why = cluster.and_then(|cluster| cluster.disowned.get()).cloned();
        let why = why.expect("a node that is neither poisoned nor disowned does not end by itself");
        let sentence = leave(&*self.shared.folder, why);
        if let Err(error) = self.stop() {
            tracing::error!(%error, "the node did not stop cleanly either");
        }
        sentence
    }

    /// Why the data folder is not this node's any more, if a look at it has told so.
    pub(super) fn lost(&self) -> Option<String> {
        self.shared
            .engine
            .look_at_folder()
            .err()
            .filter(Error::is_lost)
            .map(|e| e.to_string())
    }

    /// Stops: no new connections, requests in flight are finished (at most `drain_ms`), the folder
    /// is closed so that the next start has no log to replay.
    ///
    /// # Errors
    /// The folder could not be closed: the log failed, or the disk is full. Acknowledged writes are
    /// in the log nevertheless.
    pub fn stop(mut self) -> Result<(), Error> {
        self.shared.phase.turn(Phase::Draining);
        self.stop_accepting.send_replace(true);
        join(self.listener.take());
        self.drain();
        self.post_to_loops(|| LoopEvent::Stop);
        join(self.loops.drain(..));
        if let Some((desk, threads)) = self.front.take() {
            threads.stop(&desk);
        }
        self.shared.pool.close();
        join(self.workers.drain(..));
        self.shared.bell.close();
        join(self.log.take());
        self.shared.poke.close();
        join(self.maintenance.drain(..));
        self.shared.checkpoints.clear();
        peers::note_at_stop(&self.shared, clock::wall_ms());
        let closed = self.shared.engine.close(clock::wall_ms());
        if closed.is_ok() {
            self.leave_last_clock();
        }
        self.shared.phase.turn(Phase::Stopped);
        if let Some(admin) = self.admin.take() {
            admin.stop();
        }
        if let Some(audit) = &self.shared.audit {
            audit.stop();
        }
        tracing::info!("stopped");
        closed
    }

    /// All threads that use the clock have ended. Without the file the next start begins at the
    /// ceiling.
    fn leave_last_clock(&self) {
        let Some(cluster) = &self.shared.cluster else {
            return;
        };
        let last = cluster.hlc.last().max(self.shared.versions.last());
        if let Err(error) = last_clock::leave(&*self.shared.folder, last, cluster.boot) {
            tracing::warn!(%error, "the file CLOCK could not be written: the next start begins up to three seconds ahead");
        }
    }

    fn post_to_loops(&self, event: impl Fn() -> LoopEvent) {
        for lane in &self.shared.lanes {
            lane.mailbox.post(event());
        }
    }

    fn drain(&self) {
        self.post_to_loops(|| LoopEvent::Drain);
        let deadline = Instant::now() + Duration::from_millis(self.shared.settings.drain_ms);
        while self.shared.connections() > 0 {
            if Instant::now() >= deadline {
                let open = self.shared.connections();
                tracing::warn!(open, "connections are cut: the drain took its whole time");
                return;
            }
            std::thread::sleep(limits::DRAIN_LOOK);
        }
    }
}

/// Starts the threads of background work.
fn background(shared: &Arc<Shared>) -> io::Result<Vec<JoinHandle<()>>> {
    let mut threads = maintenance::spawn(shared)?;
    threads.extend(scrub::spawn(shared).transpose()?);
    Ok(threads)
}

/// Leaves a folder that is not let in, with the verdict in it: the sentence about it.
pub(super) fn leave(folder: &dyn Vfs, why: Disowned) -> String {
    if let Err(error) = mark::mark(folder, &why) {
        tracing::error!(%error, "the folder could not be marked: its next start asks the others again");
    }
    why.sentence
}

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        let name = thread.thread().name().unwrap_or("unnamed").to_owned();
        if thread.join().is_err() {
            tracing::error!(name, "a thread ended by a panic");
        }
    }
}
