//! How a node starts, waits and stops.
//!
//! ```text
//! start   settings ─► addresses ─► admin (not ready) ─► folder, log replay ─► a wait, if the clock is far ahead
//!         ─► the other members let it in ─► threads ─► each loop's links to them ─► data sockets
//!         ─► their links ─► Serving
//! stop    Draining: sockets close, readiness off ─► in flight, at most drain_ms ─► loops, pool,
//!         log, maintenance end ─► engine closed ─► Stopped
//! exit    0 stopped    2 settings    3 folder, disowned folder    4 address    1 the rest
//! ```
//!
//! Invariants
//! 1. No client is accepted before the folder is open, its log replayed, and every member that can
//!    be asked has let it in. By then every loop has tried to open its links to those.
//! 2. Every thread that was started is joined before `stop` returns.
//! 3. A poisoned engine refuses to be closed: its folder is left as the failure found it, and the
//!    exit code is not 0.
//!
//! Not here: options and logs (crate `dendra`).
//! See: docs/api.md, section "Exit codes and signals".

use crate::admin;
use crate::admin::backup_gauge::BackupGauge;
use crate::border::Border;
use crate::border_watch::BorderWatch;
use crate::clients::connection;
use crate::clients::listener::{self, Door};
use crate::clients::room::Space;
use crate::disk::bell::Bell;
use crate::disk::checkpoints::Checkpoints;
use crate::disk::import::Import;
use crate::disk::last_clock;
use crate::disk::maintenance;
use crate::disk::notes::{self, FolderHome};
use crate::disk::poke::Poke;
use crate::disk::readers;
use crate::disk::scrub;
use crate::disk::store_pool::StorePool;
use crate::disk::versions::Versions;
use crate::disk::wal_thread;
use crate::event_loop::clock;
use crate::event_loop::mailbox::LoopEvent;
use crate::event_loop::overload::Overload;
use crate::event_loop::shared::{LoopHandle, Phase, PhaseCell, Shared};
use crate::event_loop::thread::{self, Floors};
use crate::front::{FrontDesk, FrontThreads};
use crate::limits;
use crate::peers::{self, Cluster, StartGate};
use crate::rights;
use crate::settings::{ClusterSettings, Settings};
use crate::start_error::StartError;
use crate::tls::Tls;
use dendra_engine::vfs::Vfs;
use dendra_engine::vfs::mem::MemVfs;
use dendra_engine::{Engine, Error, Identity};
use dendra_node::Gate;
use dendra_node::membership::Disowned;
use dendra_node::topology::record::EpochRecord;
use dendra_stores::OuterStore;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;

fn system(what: &str) -> impl Fn(io::Error) -> StartError + '_ {
    move |error| StartError::System {
        reason: format!("{what}: {error}"),
    }
}

/// The work of the upper floors on an event loop.
static FLOORS: Floors = Floors {
    serve: connection::spawn,
    turns: peers::turns,
    link: peers::link,
    sweep: peers::sweep,
    begin: |lane| {
        peers::settle(lane);
        rights::keep(lane);
    },
};

/// The front door: starts nodes.
#[derive(Debug)]
pub struct Server;

impl Server {
    /// Starts a node on the folder that `settings` names and returns when it serves.
    ///
    /// # Errors
    /// One kind per exit code, each a sentence that names the way out.
    pub fn start(settings: Settings) -> Result<Running, StartError> {
        Server::start_until_asked(settings, None, Starting::new()?)
    }

    /// Starts a front door of `store`, which keeps every record; the data folder is not touched.
    ///
    /// # Errors
    /// As `start`; a store that cannot be opened counts as a folder.
    pub fn start_front(
        settings: Settings,
        store: Arc<dyn OuterStore>,
    ) -> Result<Running, StartError> {
        Server::start_until_asked(settings, Some(store), Starting::new()?)
    }

    fn start_until_asked(
        mut settings: Settings,
        store: Option<Arc<dyn OuterStore>>,
        starting: Starting,
    ) -> Result<Running, StartError> {
        settings
            .check()
            .map_err(|reason| StartError::Settings { reason })?;
        let doors = Doors::bind(&settings)?;
        let Some(store) = store else {
            let vfs = open_folder(&settings)?;
            return Server::start_behind(doors, settings, vfs, None, &starting);
        };
        let threads = FrontThreads::new(store);
        let threads = threads.map_err(system("a front door has no threads"))?;
        let shape = starting.wait_for(threads.open())?;
        let shape = shape.map_err(|failure| StartError::Folder {
            reason: format!("the store cannot be opened: {failure}"),
        })?;
        tracing::info!(
            engine = shape.engine,
            copies = shape.copies,
            "the store is open"
        );
        settings.durability = shape.durability;
        let desk = Arc::new(FrontDesk::new(shape, settings.queue));
        let vfs = Arc::new(MemVfs::new());
        Server::start_behind(doors, settings, vfs, Some((desk, threads)), &starting)
    }

    /// As `start`, on a given folder: a disk that fails on purpose, say.
    ///
    /// # Errors
    /// As `start`.
    pub fn start_on(settings: Settings, vfs: Arc<dyn Vfs>) -> Result<Running, StartError> {
        settings
            .check()
            .map_err(|reason| StartError::Settings { reason })?;
        let doors = Doors::bind(&settings)?;
        Server::start_behind(doors, settings, vfs, None, &Starting::new()?)
    }

    fn start_behind(
        doors: Doors,
        settings: Settings,
        vfs: Arc<dyn Vfs>,
        front: Option<(Arc<FrontDesk>, FrontThreads)>,
        starting: &Starting,
    ) -> Result<Running, StartError> {
        let settings = fit_descriptors(settings);
        let desk = front.as_ref().map(|(desk, _)| Arc::clone(desk));
        let border = Border::open(&settings);
        let border = border.map_err(|reason| StartError::Settings { reason })?;
        let admin = match doors.admin {
            Some((addr, door)) => Some(admin::start(
                open("admin", addr, door)?,
                Arc::clone(&starting.phase),
                settings.hosts(),
                border.clone(),
            )?),
            None => None,
        };
        let shared = Arc::new(open_engine(settings, vfs, border, desk, starting)?);
        if let Some(admin) = &admin {
            admin.attach(Arc::clone(&shared));
        }
        let met = match &shared.cluster {
            Some(cluster) => starting.wait_for(peers::meet(cluster))?,
            None => Ok(Ok(())),
        };
        if let Err(why) = met.map_err(system("the other members cannot be asked"))? {
            tracing::error!(sentence = why.sentence, "the node does not start");
            return Err(StartError::Folder {
                reason: leave(&*shared.folder, why),
            });
        }
        let mut running = Running::start_threads(&shared, admin, front)?;
        match running.open_doors(doors.data, starting) {
            Ok(()) => Ok(running),
            Err(error) => {
                if let Err(stop) = running.stop() {
                    tracing::error!(error = %stop, "the node did not stop cleanly either");
                }
                Err(error)
            }
        }
    }
}

/// The parts that a start has while it waits, until a signal asks to stop.
struct Starting {
    phase: Arc<PhaseCell>,
    runtime: tokio::runtime::Runtime,
}

impl Starting {
    fn new() -> Result<Starting, StartError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        Ok(Starting {
            phase: Arc::new(PhaseCell::new()),
            runtime: runtime.map_err(system("a start cannot wait for anything"))?,
        })
    }

    fn wait_for<T>(&self, what: impl Future<Output = T>) -> Result<T, StartError> {
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = self.phase.asked() => Err(StartError::Asked),
                it = what => Ok(it),
            }
        })
    }
}

/// Starts the threads of background work.
fn background(shared: &Arc<Shared>) -> io::Result<Vec<JoinHandle<()>>> {
    let mut threads = maintenance::spawn(shared)?;
    threads.extend(scrub::spawn(shared).transpose()?);
    Ok(threads)
}

fn open_folder(settings: &Settings) -> Result<Arc<dyn Vfs>, StartError> {
    warn_of_open_folder(&settings.data);
    dendra_engine::vfs::os::OsVfs::open(&settings.data)
        .map(|folder| Arc::new(folder) as Arc<dyn Vfs>)
        .map_err(|error| StartError::Folder {
            reason: format!(
                "the data folder {} cannot be opened ({error}): check its path and rights",
                settings.data.display()
            ),
        })
}

/// A folder that is there already and that any user of the machine may write into.
fn warn_of_open_folder(path: &std::path::Path) {
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(path).map_or(0, |found| found.permissions().mode());
    if mode & 0o002 != 0 {
        let folder = path.display();
        tracing::warn!(%folder, "every user of this machine may write into the data folder: chmod 700 it");
    }
}

/// Raises the process's own limit of descriptors, and lowers `connections_max` to the number that
/// is left.
fn fit_descriptors(mut settings: Settings) -> Settings {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    if let Err(error) = setrlimit(Resource::Nofile, wanted) {
        tracing::debug!(%error, "the limit of descriptors stays as it is");
    }
    let Some(descriptors) = getrlimit(Resource::Nofile).current else {
        return settings;
    };
    let most = usize::try_from(descriptors).unwrap_or(usize::MAX);
    // A small limit is shared by halves.
    let reserved = limits::DESCRIPTORS_RESERVED.min(most / 2);
    let most = (most - reserved).max(1);
    if settings.connections_max > most {
        tracing::warn!(
            connections_max = most,
            descriptors,
            "the system's limit of descriptors lowers the number of connections: raise `ulimit -n`"
        );
        settings.connections_max = most;
    }
    settings
}

/// The addresses of a node, taken before its folder is touched.
struct Doors {
    admin: Option<(SocketAddr, Door)>,
    data: Vec<(SocketAddr, Door)>,
}

impl Doors {
    fn bind(settings: &Settings) -> Result<Doors, StartError> {
        // Those with a number first: a free port that the system chooses must not be one that is asked for.
        let is_numbered = |addr: &SocketAddr| addr.port() != 0;
        let mut admin = settings
            .admin
            .filter(is_numbered)
            .map(bind_admin)
            .transpose()?;
        let mut data = settings
            .listen
            .iter()
            .map(|&addr| (addr, None))
            .collect::<Vec<_>>();
        for (addr, door) in data.iter_mut().filter(|(addr, _)| is_numbered(addr)) {
            *door = Some(bind_data(*addr)?);
        }
        if admin.is_none() {
            admin = settings.admin.map(bind_admin).transpose()?;
        }
        let data = data.into_iter().map(|(addr, door)| match door {
            Some(door) => Ok((addr, door)),
            None => Ok((addr, bind_data(addr)?)),
        });
        Ok(Doors {
            admin,
            data: data.collect::<Result<_, StartError>>()?,
        })
    }
}

fn bind_admin(addr: SocketAddr) -> Result<(SocketAddr, Door), StartError> {
    let door = listener::bind(addr).map_err(not_ours("admin", addr))?;
    Ok((addr, door))
}

fn bind_data(addr: SocketAddr) -> Result<Door, StartError> {
    listener::bind(addr).map_err(not_ours("data", addr))
}

/// Two may bind an address before one of them opens it.
fn open(plane: &'static str, addr: SocketAddr, door: Door) -> Result<TcpListener, StartError> {
    door.open().map_err(not_ours(plane, addr))
}

fn not_ours(plane: &'static str, addr: SocketAddr) -> impl Fn(io::Error) -> StartError {
    move |error| StartError::Address {
        reason: match error.kind() {
            io::ErrorKind::AddrInUse => format!(
                "{plane} address {addr} is taken by another process: stop it or choose another port"
            ),
            _ => format!("{plane} address {addr} cannot be bound: {error}"),
        },
    }
}

fn proposed_identity() -> io::Result<Identity> {
    let node = u128::from_le_bytes(peers::random()?);
    Ok(Identity {
        node,
        // Zero stands for "no member" in a version.
        origin: (node as u32).max(1),
    })
}

fn open_engine(
    settings: Settings,
    vfs: Arc<dyn Vfs>,
    border: Border,
    front: Option<Arc<FrontDesk>>,
    starting: &Starting,
) -> Result<Shared, StartError> {
    dendra_engine::observe_waits(admin::profile::watched);
    let began_us = clock::monotonic_us();
    let proposed = proposed_identity().map_err(system("no randomness from the system"))?;
    let folder = vfs.describe();
    let in_folder = |reason| StartError::Folder {
        reason: format!("{folder}: {reason}"),
    };
    match peers::marked(&*vfs) {
        Ok(None) => {}
        Ok(Some(reason)) => return Err(in_folder(reason)),
        Err(error) => return Err(in_folder(error.to_string())),
    }
    let options = settings.engine_options();
    let opened = Engine::open(Arc::clone(&vfs), options, proposed, clock::wall_ms());
    let engine = opened.map_err(|error| StartError::Folder {
        reason: match &error {
            Error::Unusable { reason } => format!("{folder}: {reason}"),
            Error::Damaged { .. } => format!(
                "{folder}: {error}; run `dendra check` on the folder and restore it from a copy"
            ),
            other => format!("{folder}: {other}"),
        },
    })?;
    let cluster = settings.cluster.as_ref();
    let last = match cluster.is_some() {
        true => take_last_clock(&*vfs, &engine).map_err(in_folder)?,
        false => None,
    };
    let versions = Versions::above(&engine, last, clock::wall_ms());
    let home = notes::start(&engine, &versions, cluster, clock::wall_ms()).map_err(in_folder)?;
    let home = match (home, cluster) {
        (FolderHome::Joins, Some(cluster)) => {
            become_member(cluster, &engine, &versions, border.tls.as_deref(), starting)?
        }
        (home, _) => home,
    };
    let (starts, member) = match home {
        FolderHome::Alone(starts) => (starts, None),
        FolderHome::Member(member) => (member.boot, Some(*member)),
        FolderHome::Joins => unreachable!("a process that joins is a member behind that"),
    };
    let loops = settings.loops.unwrap_or_else(|| {
        std::thread::available_parallelism().map_or(1, |n| n.get().min(limits::LOOPS_MAX))
    });
    let cluster = cluster
        .zip(member)
        .map(|(cluster, member)| {
            Cluster::new(
                cluster,
                settings.durability,
                &engine,
                member,
                loops,
                last,
                clock::wall_ms(),
            )
            .map(|cluster| Arc::new(cluster.sealed(border.tls.clone())))
        })
        .transpose()
        .map_err(in_folder)?;
    if cluster.is_none() {
        // One node holds the only copy of everything: no replica has to confirm a tombstone. In a
        // cluster its horizons say what may go (`peers/cluster.rs`).
        engine.raise_purge_horizon(dendra_base::Version::MAX);
    }
    let import = Import::open(&engine).map_err(in_folder)?;
    let took_ms = (clock::monotonic_us() - began_us) / 1_000;
    tracing::info!(folder, took_ms, starts, "the data folder is open");
    // Each connection in transit and each permit can have one event under way, and there are a few
    // for the whole loop.
    let mailbox_capacity = settings.connections_max
        + settings.requests_inflight_max
        + limits::ORDERS_INFLIGHT_MAX
        + 16;
    Ok(Shared {
        versions,
        lanes: (0..loops)
            .map(|_| LoopHandle::new(mailbox_capacity))
            .collect(),
        requests: Arc::new(Gate::new(settings.requests_inflight_max as u64)),
        orders: Arc::new(Gate::new(limits::ORDERS_INFLIGHT_MAX as u64)),
        cluster,
        front,
        bytes: Arc::new(Space::new(settings.body_bytes_inflight_max)),
        scan_bytes: Arc::new(Space::new(
            settings.body_bytes_inflight_max / limits::SCAN_BYTES_SHARE,
        )),
        value_bytes: Arc::new(
            Space::new(limits::MEMBER_VALUE_BYTES_MAX.min(settings.body_bytes_inflight_max))
                .with_line(settings.body_bytes_inflight_max),
        ),
        pool: StorePool::new(settings.queue, settings.workers),
        bell: Bell::default(),
        backups: Arc::default(),
        checkpoints: Checkpoints::new(&settings.data),
        import,
        poke: Poke::default(),
        phase: Arc::clone(&starting.phase),
        room: tokio::sync::Notify::new(),
        listener_waits: false.into(),
        overload: Overload::default(),
        folder: vfs,
        engine,
        hosts: settings.hosts(),
        tls: border.tls,
        rights: border.rights,
        audit: border.audit,
        watch: border.watch,
        handshakes: Arc::default(),
        settings,
    })
}

/// Waits until a member lets this node in, and notes that.
fn become_member(
    cluster: &ClusterSettings,
    engine: &Engine,
    versions: &Versions,
    tls: Option<&Tls>,
    starting: &Starting,
) -> Result<FolderHome, StartError> {
    let join = cluster
        .join
        .as_ref()
        .expect("a folder joins by this option");
    let asking = peers::join(cluster, join, engine.identity(), tls);
    let enrolled = starting
        .wait_for(asking)?
        .map_err(|reason| StartError::Settings { reason })?;
    let epoch = enrolled.record.epoch();
    tracing::info!(member = %enrolled.member, epoch, "this node is let in as a new member");
    let record = EpochRecord::clone(&enrolled.record);
    notes::joined(
        engine,
        versions,
        (enrolled.member, record),
        enrolled.founding,
        clock::wall_ms(),
    )
    .map_err(|reason| StartError::Folder { reason })
}

/// Where the clock of the start before this one ended, if that one stopped cleanly.
fn take_last_clock(folder: &dyn Vfs, engine: &Engine) -> Result<Option<u64>, String> {
    let starts = notes::starts(engine)?;
    let taken = last_clock::take(folder, starts);
    Ok(taken.unwrap_or_else(|error| {
        tracing::warn!(%error, "the file CLOCK could not be used: the clock begins at its ceiling");
        None
    }))
}

/// Leaves a folder that is not let in, marked if that is for ever: the sentence about it.
fn leave(folder: &dyn Vfs, why: Disowned) -> String {
    if why.is_for_ever
        && let Err(error) = peers::mark(folder, &why.sentence)
    {
        tracing::error!(%error, "the folder could not be marked: its next start asks the others again");
    }
    why.sentence
}

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
    fn start_threads(
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
            .map(|index| thread::spawn(shared, index, &FLOORS))
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

    fn open_doors(
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

    /// Where a schedule of backups says how they go.
    pub fn backup_gauge(&self) -> Arc<BackupGauge> {
        Arc::clone(&self.shared.backups)
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

    /// Stops, and leaves in the folder why no node may start on it any more where that is so.
    fn retire(self) -> ExitReason {
        let cluster = self.shared.cluster.as_ref();
        let why = cluster.and_then(|cluster| cluster.disowned.get()).cloned();
        let why = why.expect("a node that is neither poisoned nor disowned does not end by itself");
        let sentence = leave(&*self.shared.folder, why);
        if let Err(error) = self.stop() {
            tracing::error!(%error, "the node did not stop cleanly either");
        }
        ExitReason::Disowned(sentence)
    }

    /// Stops: no new connections, requests in flight are finished (at most `drain_ms`), the folder
    /// is closed so that the next start has nothing to replay.
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

    /// All threads that use the clock have ended. Without the file the next start begins at the ceiling.
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

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        let name = thread.thread().name().unwrap_or("unnamed").to_owned();
        if thread.join().is_err() {
            tracing::error!(name, "a thread ended by a panic");
        }
    }
}

/// How a call of `serve` ended.
#[derive(Debug)]
pub enum ExitReason {
    /// A signal asked for it and everything is closed (exit 0).
    Stopped,
    /// It never served.
    NotStarted(StartError),
    /// Another member does not let the folder in: the member, and why (exit 3).
    Disowned(String),
    /// A signal asked for it, but the folder could not be closed (exit 1).
    NotClosed(Error),
}

impl ExitReason {
    /// The exit code of `dendra serve`.
    pub fn exit_code(&self) -> u8 {
        match self {
            ExitReason::Stopped => 0,
            ExitReason::NotStarted(error) => error.exit_code(),
            ExitReason::Disowned(_) => 3,
            ExitReason::NotClosed(_) => 1,
        }
    }
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitReason::Stopped => f.write_str("stopped"),
            ExitReason::NotStarted(error) => error.fmt(f),
            ExitReason::Disowned(sentence) => f.write_str(sentence),
            ExitReason::NotClosed(error) => write!(f, "the folder could not be closed: {error}"),
        }
    }
}

enum Wake {
    Signal,
    Ended,
}

/// Serves until SIGTERM or SIGINT, then stops and returns; a second signal ends the process at
/// once. Stops by itself when another member disowns the folder. Aborts the process when the log
/// fails: the durable state is unknown then. `on_serving` is called once, when clients are
/// accepted.
pub fn serve(settings: Settings, on_serving: impl FnOnce(&Running)) -> ExitReason {
    serve_until_signal(settings, None, on_serving)
}

/// As [`serve`], a front door of `store`.
pub fn serve_front(
    settings: Settings,
    store: Arc<dyn OuterStore>,
    on_serving: impl FnOnce(&Running),
) -> ExitReason {
    serve_until_signal(settings, Some(store), on_serving)
}

fn serve_until_signal(
    settings: Settings,
    store: Option<Arc<dyn OuterStore>>,
    on_serving: impl FnOnce(&Running),
) -> ExitReason {
    let (wake, woken) = mpsc::sync_channel(4);
    let secret_file = settings
        .cluster
        .as_ref()
        .map(|cluster| &cluster.secret_file);
    let has_files = settings.tls.is_some() || secret_file.is_some_and(Option::is_some);
    let signals = match Signals::catch(has_files) {
        Ok(signals) => signals,
        Err(error) => {
            return ExitReason::NotStarted(system("signals cannot be caught")(error));
        }
    };
    let starting = match Starting::new() {
        Ok(starting) => starting,
        Err(error) => return ExitReason::NotStarted(error),
    };
    let phase = Arc::clone(&starting.phase);
    let watcher = std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || signals.watch(&phase, &wake));
    if let Err(error) = watcher {
        return ExitReason::NotStarted(system("a thread could not be started")(error));
    }
    let running = match Server::start_until_asked(settings, store, starting) {
        Ok(running) => running,
        Err(StartError::Asked) => return ExitReason::Stopped,
        Err(error) => return ExitReason::NotStarted(error),
    };
    on_serving(&running);
    match woken.recv() {
        Ok(Wake::Signal) => {}
        Ok(Wake::Ended) if running.phase() != Phase::Poisoned => return running.retire(),
        Ok(Wake::Ended) | Err(mpsc::RecvError) => {
            // Long enough for the loops to write `outcome=unknown` to the clients that wait.
            std::thread::sleep(limits::POISON_GRACE);
            std::process::abort();
        }
    }
    match running.stop() {
        Ok(()) => ExitReason::Stopped,
        Err(error) => ExitReason::NotClosed(error),
    }
}

struct Signals {
    runtime: tokio::runtime::Runtime,
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    /// Without files to read again it ends the process, as the system does.
    hangup: Option<tokio::signal::unix::Signal>,
}

impl Signals {
    fn catch(has_files: bool) -> io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let _inside = runtime.enter();
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        let hangup = has_files
            .then(|| signal(SignalKind::hangup()))
            .transpose()?;
        drop(_inside);
        Ok(Signals {
            runtime,
            terminate,
            interrupt,
            hangup,
        })
    }

    fn watch(mut self, phase: &PhaseCell, wake: &mpsc::SyncSender<Wake>) {
        self.runtime.block_on(async {
            let mut signals = 0;
            loop {
                let hangup = async {
                    match &mut self.hangup {
                        Some(hangup) => hangup.recv().await,
                        None => std::future::pending().await,
                    }
                };
                let what = tokio::select! {
                    _ = hangup => {
                        phase.renew.notify_one();
                        continue;
                    }
                    _ = self.terminate.recv() => (Wake::Signal, 143),
                    _ = self.interrupt.recv() => (Wake::Signal, 130),
                    () = phase.ended.notified() => (Wake::Ended, 0),
                };
                if matches!(what.0, Wake::Signal) {
                    signals += 1;
                    if signals > 1 {
                        tracing::warn!("a second signal: ending without waiting");
                        std::process::exit(what.1);
                    }
                    tracing::info!("a signal asks to stop; a second one ends at once");
                    phase.ask();
                }
                if wake.try_send(what.0).is_err() {
                    return;
                }
            }
        });
    }
}
