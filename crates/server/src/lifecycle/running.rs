//! A node that runs: its threads, its doors, and its stop.
//!
//! Invariants
//! 1. Threads end in the order in which they hand work on: doors, loops, pool, log, maintenance.
//! 2. Every thread that was started is joined before `stop` returns.
//!
//! Not here: the parts that exist before threads start (`start.rs`).

use super::doors::open;
use super::pulse::LoopPulse;
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
use crate::disk::owners::OtherOwners;
use crate::disk::readers;
use crate::disk::scrub;
use crate::disk::wal_thread;
use crate::event_loop::parts::NodeParts;
use crate::event_loop::thread::{self, LoopHooks};
use crate::front::{FrontDesk, FrontThreads};
use crate::lanes::mailbox::LoopEvent;
use crate::limits;
use crate::member::StartGate;
use crate::peers;
use crate::phase::Phase;
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
    parts: NodeParts,
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
        parts: &NodeParts,
        admin: Option<admin::Admin>,
        front: Option<(Arc<FrontDesk>, FrontThreads)>,
    ) -> Result<Running, StartError> {
        let no_thread = system("a thread could not be started");
        parts.lanes[0].mailbox.post(LoopEvent::Begin);
        let (stop_accepting, _) = watch::channel(false);
        if let Some((desk, threads)) = &front {
            threads.serve(Arc::clone(desk), &parts.lanes);
        }
        let loops = (0..parts.lanes.len())
            .map(|index| thread::spawn(parts, index, &HOOKS))
            .collect::<io::Result<_>>()
            .map_err(&no_thread)?;
        Ok(Running {
            admin,
            addrs: Vec::new(),
            stop_accepting,
            listener: None,
            loops,
            workers: readers::spawn(&parts.store).map_err(&no_thread)?,
            log: Some(wal_thread::spawn(&parts.store).map_err(&no_thread)?),
            maintenance: background(parts).map_err(&no_thread)?,
            front,
            parts: parts.clone(),
        })
    }

    pub(super) fn open_doors(
        &mut self,
        doors: Vec<(SocketAddr, Door)>,
        starting: &Starting,
    ) -> Result<(), StartError> {
        if let Some(cluster) = &self.parts.cluster {
            starting.wait_for(cluster.wait_for(StartGate::Open))?;
        }
        let mut sockets = Vec::new();
        for (addr, door) in doors {
            let socket = open("data", addr, door)?;
            let bound = socket
                .local_addr()
                .map_err(system("a socket has no address"))?;
            self.addrs.push(bound);
            sockets.push(socket);
        }
        let stop = self.stop_accepting.subscribe();
        self.listener = Some(
            listener::spawn(&self.parts, sockets, stop)
                .map_err(system("the listener could not be started"))?,
        );
        if let Some(cluster) = &self.parts.cluster {
            starting.wait_for(cluster.wait_for(StartGate::Ready))?;
        }
        self.parts.phase.turn(Phase::Serving);
        for addr in &self.addrs {
            tracing::info!(
                %addr,
                durability = self.parts.settings.durability.as_str(),
                loops = self.parts.lanes.len(),
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
        self.parts.border.tls.is_some()
    }

    /// Tells when tokens and certificates change.
    pub fn border(&self) -> &BorderWatch {
        &self.parts.border.watch
    }

    /// Where in its life the node is.
    pub fn phase(&self) -> Phase {
        self.parts.phase.now()
    }

    /// For a watchdog: do the event loops turn?
    pub fn pulse(&self) -> LoopPulse {
        LoopPulse::of(&self.parts)
    }

    /// Why another member does not let this node's folder in: then it must be stopped.
    pub fn disowned(&self) -> Option<&str> {
        let cluster = self.parts.cluster.as_ref()?;
        Some(&cluster.steward.disowned.get()?.sentence)
    }

    /// Stops, and leaves in the folder why no node may start on it any more where that is so: the
    /// sentence about it.
    pub(super) fn retire(self) -> String {
        let cluster = self.parts.cluster.as_ref();
        let why = cluster
            .and_then(|cluster| cluster.steward.disowned.get())
            .cloned();
        let why = why.expect("a node that is neither poisoned nor disowned does not end by itself");
        let sentence = leave(&*self.parts.store.folder, why);
        if let Err(error) = self.close() {
            tracing::error!(%error, "the node did not stop cleanly either");
        }
        sentence
    }

    /// Why the data folder is not this node's any more, if a look at it has told so.
    pub(super) fn lost(&self) -> Option<String> {
        self.parts
            .store
            .engine
            .look_at_folder()
            .err()
            .filter(Error::is_lost)
            .map(|e| e.to_string())
    }

    /// Turns readiness off. Returns how long everything is served still, `stop_delay_ms`, unless
    /// the node was not ready.
    pub fn turn_unready(&self) -> Option<Duration> {
        let delay_ms = self.parts.settings.stop_delay_ms;
        if delay_ms == 0 || !self.parts.phase.turn(Phase::Draining) {
            return None;
        }
        tracing::info!(
            milliseconds = delay_ms,
            "not ready any more: clients are served until the stop"
        );
        Some(Duration::from_millis(delay_ms))
    }

    /// Stops: no new connections, requests in flight are finished (at most `drain_ms`), the folder
    /// is closed so that the next start has no log to replay.
    ///
    /// # Errors
    /// The folder could not be closed: the log failed, or the disk is full. Acknowledged writes are
    /// in the log nevertheless.
    pub fn stop(self) -> Result<(), Error> {
        self.close()
    }

    fn close(mut self) -> Result<(), Error> {
        self.parts.phase.turn(Phase::Draining);
        self.stop_accepting.send_replace(true);
        join(self.listener.take());
        self.drain();
        self.parts.lanes.post_to_all(|| LoopEvent::Stop);
        join(self.loops.drain(..));
        if let Some((desk, threads)) = self.front.take() {
            threads.stop(&desk);
        }
        self.parts.store.pool.close();
        join(self.workers.drain(..));
        self.parts.store.bell.close();
        join(self.log.take());
        self.parts.store.poke.close();
        join(self.maintenance.drain(..));
        self.parts.store.checkpoints.clear();
        if let Some(cluster) = &self.parts.cluster {
            peers::note_at_stop(&self.parts.store.engine, cluster, clock::wall_ms());
        }
        let closed = self.parts.store.engine.close(clock::wall_ms());
        if closed.is_ok() {
            self.leave_last_clock();
        }
        self.parts.phase.turn(Phase::Stopped);
        if let Some(admin) = self.admin.take() {
            admin.stop();
        }
        if let Some(audit) = &self.parts.border.audit {
            audit.stop();
        }
        tracing::info!("stopped");
        closed
    }

    /// All threads that use the clock have ended. Without the file the next start begins at the
    /// ceiling.
    fn leave_last_clock(&self) {
        let Some(cluster) = &self.parts.cluster else {
            return;
        };
        let last = cluster.hlc.last().max(self.parts.store.versions.last());
        if let Err(error) = last_clock::leave(&*self.parts.store.folder, last, cluster.own.boot) {
            tracing::warn!(%error, "the file CLOCK could not be written: the next start begins up to three seconds ahead");
        }
    }

    fn drain(&self) {
        self.parts.lanes.post_to_all(|| LoopEvent::Drain);
        let deadline = Instant::now() + Duration::from_millis(self.parts.settings.drain_ms);
        while self.parts.lanes.connections() > 0 {
            if Instant::now() >= deadline {
                let open = self.parts.lanes.connections();
                tracing::warn!(open, "connections are cut: the drain took its whole time");
                return;
            }
            std::thread::sleep(limits::DRAIN_LOOK);
        }
    }
}

/// Starts the threads of background work.
fn background(parts: &NodeParts) -> io::Result<Vec<JoinHandle<()>>> {
    let cluster = parts.cluster.clone();
    let owners = cluster.map(|cluster| cluster as Arc<dyn OtherOwners>);
    let owners = owners.as_ref();
    let rights = parts.border.rights.as_ref();
    let mut threads = maintenance::spawn(&parts.store, rights, owners)?;
    threads.extend(scrub::spawn(&parts.store, &parts.settings, owners).transpose()?);
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
