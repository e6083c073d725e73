//! A node starts: settings and a folder become threads that serve.
//!
//! Invariants
//! 1. Addresses are taken before the folder is touched, and opened when it may serve.
//!
//! Not here: a node that runs, and its stop (`running.rs`), signals (`serving.rs`).

use super::doors::{Doors, open};
use super::running::{Running, leave};
use super::starting::Starting;
use crate::admin;
use crate::border::Border;
use crate::clock;
use crate::disk::bell::Bell;
use crate::disk::checkpoints::Checkpoints;
use crate::disk::import::Import;
use crate::disk::notes::{self, FolderHome};
use crate::disk::poke::Poke;
use crate::disk::store::OwnStore;
use crate::disk::store_pool::StorePool;
use crate::disk::versions::VersionClock;
use crate::disk::{changes, last_clock, mark};
use crate::event_loop::parts::NodeParts;
use crate::front::{FrontDesk, FrontThreads, StorePapers};
use crate::health::HealthMemory;
use crate::lanes::lane::Loops;
use crate::limits;
use crate::member::{self, Cluster};
use crate::peers;
use crate::settings::{ClusterSettings, Settings};
use crate::start_error::{StartError, system};
use crate::tls::Tls;
use crate::waiting::budgets::Budgets;
use crate::waiting::entrance::Entrance;
use dendra_engine::vfs::Vfs;
use dendra_engine::vfs::mem::MemVfs;
use dendra_engine::{Engine, Error, Identity};
use dendra_ownership::epoch::record::EpochRecord;
use dendra_stores::OuterStore;
use dendra_watch::ChangeLog;
use std::io;
use std::sync::Arc;

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
    /// `papers` are those that `store` was made with.
    ///
    /// # Errors
    /// As `start`; a store that cannot be opened counts as a folder.
    pub fn start_front(
        settings: Settings,
        store: Arc<dyn OuterStore>,
        papers: StorePapers,
    ) -> Result<Running, StartError> {
        Server::start_until_asked(settings, Some((store, papers)), Starting::new()?)
    }

    pub(super) fn start_until_asked(
        mut settings: Settings,
        store: Option<(Arc<dyn OuterStore>, StorePapers)>,
        starting: Starting,
    ) -> Result<Running, StartError> {
        settings.is_front_door = store.is_some();
        settings
            .check()
            .map_err(|bad| StartError::Settings { reason: bad.reason })?;
        let doors = Doors::bind(&settings)?;
        let Some((store, papers)) = store else {
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
        let desk = Arc::new(FrontDesk::new(shape, settings.queue, papers));
        let vfs = Arc::new(MemVfs::new());
        Server::start_behind(doors, settings, vfs, Some((desk, threads)), &starting)
    }

    /// Starts like `start`, on a given folder: a disk that fails on purpose, say.
    ///
    /// # Errors
    /// As `start`.
    pub fn start_on(settings: Settings, vfs: Arc<dyn Vfs>) -> Result<Running, StartError> {
        settings
            .check()
            .map_err(|bad| StartError::Settings { reason: bad.reason })?;
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
        let parts = open_engine(settings, vfs, border, desk, starting)?;
        if let Some(admin) = &admin {
            admin.attach(parts.clone());
        }
        let met = match &parts.cluster {
            Some(cluster) => starting.wait_for(peers::ask_members(cluster))?,
            None => Ok(Ok(())),
        };
        if let Err(why) = met.map_err(system("the other members cannot be asked"))? {
            tracing::error!(sentence = why.sentence, "the node does not start");
            return Err(StartError::Folder {
                reason: leave(&*parts.store.folder, why),
            });
        }
        // All others were asked, and let it in.
        mark::trust(&*parts.store.folder).map_err(system("the file DOUBTED cannot be removed"))?;
        let mut running = Running::start_threads(&parts, admin, front)?;
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
    let beyond = places_beyond(settings.cluster.is_some());
    let reserved = (limits::DESCRIPTORS_RESERVED + beyond).min(most / 2);
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

/// Places beyond the gate of connections: a member's. A small limit of descriptors has fewer, for
/// the engine needs the rest.
fn places_beyond(is_member: bool) -> usize {
    use rustix::process::{Resource, getrlimit};
    let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let most = usize::try_from(descriptors).unwrap_or(usize::MAX) / 8;
    if is_member {
        limits::CONNECTIONS_BEYOND_MAX.min(most)
    } else {
        0
    }
}

fn proposed_identity() -> io::Result<Identity> {
    let node = u128::from_le_bytes(crate::random::random()?);
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
) -> Result<NodeParts, StartError> {
    dendra_engine::observe_waits(crate::measure::profile::watched);
    let began_us = clock::monotonic_us();
    let folder = vfs.describe();
    let in_folder = |reason: String| StartError::Folder {
        reason: format!("{folder}: {reason}"),
    };
    let engine = open_unmarked(&settings, &vfs, in_folder)?;
    let cluster = settings.cluster.as_ref();
    let last = if cluster.is_some() {
        take_last_clock(&*vfs, &engine).map_err(in_folder)?
    } else {
        None
    };
    let versions = VersionClock::above(&engine, last, clock::wall_ms());
    let is_doubted = mark::is_doubted(&*vfs).map_err(|error| in_folder(error.to_string()))?;
    let home = notes::start(&engine, &versions, cluster, is_doubted, clock::wall_ms());
    let home = home.map_err(in_folder)?;
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
        // cluster its horizons tell which ones may go (`member/cluster.rs`).
        engine.raise_purge_horizon(dendra_base::Version::MAX);
    }
    let import = Import::open(&engine).map_err(in_folder)?;
    let changes = changes::new_log().map_err(system("no randomness from the system"))?;
    let took_ms = (clock::monotonic_us() - began_us) / 1_000;
    tracing::info!(folder, took_ms, starts, "the data folder is open");
    let opened = OpenFolder {
        vfs,
        engine,
        versions,
        cluster,
        import,
        changes,
        loops,
    };
    Ok(share(settings, opened, border, front, starting))
}

/// The state of a node by itself on a disk in memory, without any thread.
#[cfg(test)]
pub(crate) fn parts_for_tests(settings: Settings) -> NodeParts {
    let border = Border::open(&settings).expect("no files");
    let starting = Starting::new().expect("a runtime");
    let disk = Arc::new(MemVfs::new());
    open_engine(settings, disk, border, None, &starting).expect("it opens")
}

/// Opens the engine, unless another member refused the folder for ever.
fn open_unmarked(
    settings: &Settings,
    vfs: &Arc<dyn Vfs>,
    in_folder: impl Fn(String) -> StartError,
) -> Result<Engine, StartError> {
    let proposed = proposed_identity().map_err(system("no randomness from the system"))?;
    match mark::marked(&**vfs) {
        Ok(None) => {}
        Ok(Some(reason)) => return Err(in_folder(reason)),
        Err(error) => return Err(in_folder(error.to_string())),
    }
    let space = vfs.room();
    let space = space.map_err(system("the disk does not tell its room"))?;
    let keeps_memtable = settings.memtable_bytes.is_some();
    let options = settings.engine_options();
    let options = options.for_disk(space.total_bytes, keeps_memtable);
    let opened = Engine::open(Arc::clone(vfs), options, proposed);
    opened.map_err(|error| match error {
        Error::Folder { reason } => StartError::Folder { reason },
        Error::Damaged { .. } => in_folder(format!(
            "{error}; run `dendra check` on the folder and restore it from a copy"
        )),
        other => in_folder(other.to_string()),
    })
}

/// A folder that this node may serve.
struct OpenFolder {
    vfs: Arc<dyn Vfs>,
    engine: Engine,
    versions: VersionClock,
    /// Cluster of a member.
    cluster: Option<Arc<Cluster>>,
    import: Import,
    changes: Arc<ChangeLog>,
    loops: usize,
}

/// The parts of a node, of what was opened.
fn share(
    settings: Settings,
    opened: OpenFolder,
    border: Border,
    front: Option<Arc<FrontDesk>>,
    starting: &Starting,
) -> NodeParts {
    let OpenFolder {
        vfs,
        engine,
        versions,
        cluster,
        import,
        changes,
        loops,
    } = opened;
    // Each connection in transit and each permit can have one event under way, and there are a few
    // for the whole loop.
    let beyond = places_beyond(cluster.is_some());
    let mailbox_capacity = settings.connections_max
        + beyond
        + settings.requests_inflight_max
        + limits::ORDERS_INFLIGHT_MAX
        + 16;
    let lanes = Arc::new(Loops::new(loops, mailbox_capacity));
    engine.observe(changes::observer(&changes, &lanes));
    NodeParts {
        hosts: Arc::new(settings.hosts()),
        border,
        entrance: Arc::new(Entrance::new(
            settings.connections_max,
            beyond,
            settings.connections_per_address_max,
        )),
        budgets: Arc::new(Budgets::new(&settings)),
        store: Arc::new(OwnStore {
            engine,
            folder: vfs,
            versions,
            pool: StorePool::new(settings.queue, settings.workers),
            bell: Bell::default(),
            poke: Poke::default(),
            changes,
            checkpoints: Checkpoints::new(&settings.data),
            import,
            health: HealthMemory::default(),
            lanes: Arc::clone(&lanes),
            phase: Arc::clone(&starting.phase),
        }),
        lanes,
        cluster,
        front,
        phase: Arc::clone(&starting.phase),
        settings: Arc::new(settings),
    }
}

/// Waits until a member lets this node in, and notes that.
fn become_member(
    cluster: &ClusterSettings,
    engine: &Engine,
    versions: &VersionClock,
    tls: Option<&Tls>,
    starting: &Starting,
) -> Result<FolderHome, StartError> {
    let join = cluster
        .join
        .as_ref()
        .expect("a folder joins by this option");
    join.check(&cluster.member().url)
        .map_err(|reason| StartError::Settings { reason })?;
    let asking = member::join(cluster, join, engine.identity(), tls);
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
