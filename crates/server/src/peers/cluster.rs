//! The values that all event loops of a member share: the newest epoch, clock, identity, the
//! membership machine, and counters.
//!
//! ```text
//! folder, settings ─► Cluster ─┬─ hello, judge_hello, secrets                 the bytes of a handshake
//!                              ├─ tell(event) ─► Membership, under a lock ─► effects
//!                              └─ is_current(life)                            without the lock, for each frame
//! ```
//!
//! Invariants
//! 1. The number of a version's maker names this node and one of its loops: 24 bits of the node's
//!    origin, 8 bits of the loop. Two members with equal 24 bits do not talk.
//! 2. Admitted lives, stages of the start, and the versions of notes change in the order of the
//!    machine's decisions: all changes happen under its lock.
//!
//! Not here: which process is admitted (crate `ownership`, `membership/`), the order of the
//! handshake (`link.rs`, `accept.rs`), its bytes (crate `wire`).
//! See: docs/peer.md, section "Handshake".

use super::door::{Resident, StewardDoor};
use super::former::FormerAddresses;
use super::hello_maker::HelloMaker;
use super::link_log::LinkLog;
use super::looks::LookOffice;
use super::orders::{Orders, orders};
use super::secrets::Secrets;
use super::session::Sessions;
use super::strangers::Strangers;
use crate::clock;
use crate::disk::lost::WaitingRepairs;
use crate::disk::notes::{self, FolderMember};
use crate::retry_after::retry_after_s;
use crate::settings::{ClusterSettings, PeerTransport};
use crate::tls::{ByteStream, Tls};
use crate::waiting::unproven::UnprovenGauges;
use dendra_base::ClusterVersions;
use dendra_base::Version;
use dendra_engine::{Durability, Engine, Identity};
use dendra_node::hints::HintRoom;
use dendra_node::limits::{COMPARE_PAUSE_US_DEFAULT, HINT_BYTES_MAX_DEFAULT};
use dendra_node::{Comparisons, Foregrounds, Hlc, Walls};
use dendra_ownership::epoch::chain::ChainPeer;
use dendra_ownership::epoch::record::{EpochRecord, KnownFolder};
use dendra_ownership::limits::{
    LOAD_BYTES_PER_SECOND_DEFAULT, MEMBERS_MAX, MOVES_SIDE_BY_SIDE, REPLACE_PATIENCE_US,
};
use dendra_ownership::membership::identity::{FolderMembership, OwnNote, Peer};
use dendra_ownership::membership::{Disowned, MemberEffect, MemberEvent, Rejected, WaitEnd};
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::steward::face::PlanWait;
use dendra_ownership::steward::messages::{EnrolAnswer, EnrolRequest, StewardMessage};
use dendra_ownership::steward::step::StewardEvent;
use dendra_ownership::steward::{Steward, StewardStart};
use dendra_ownership::{Fence, Layout, MemberIndex, Membership, Topology};
use dendra_wire::Refusal;
use dendra_wire::peer::hello;
use dendra_wire::peer::{Hello, Malformed, Nonce};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, RwLock, RwLockReadGuard};
use tokio::sync::watch;

/// Counters about one peer, and what the log was told of it, of all loops together.
#[derive(Debug, Default)]
pub(crate) struct PeerGauges {
    /// Loops with a link to it.
    pub(crate) links: AtomicU64,
    /// Questions sent.
    pub(crate) asks: AtomicU64,
    /// Answers received.
    pub(crate) answers: AtomicU64,
    /// Questions that were refused here: no link, or too much waits for it already.
    pub(crate) refused: AtomicU64,
    /// Questions of the peer that were too old when they arrived.
    pub(crate) late: AtomicU64,
    /// Links that were lost.
    pub(crate) lost: AtomicU64,
    /// Handshakes with a process at its url that is not the known member.
    pub(crate) strangers: AtomicU64,
    log: Mutex<LinkLog>,
}

/// Adds to a counter of [`PeerGauges`].
pub(crate) fn count(gauge: &AtomicU64) {
    gauge.fetch_add(1, Ordering::Relaxed);
}

fn claim_of(hello: &Hello) -> Peer {
    Peer {
        node: hello.node,
        boot: hello.boot,
        life: hello.life,
        clock: hello.clock,
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// The topology that the cluster was founded with, in a line, or its digest.
    founding: String,
    /// The newest durable epoch.
    newest: RwLock<NewestEpoch>,
    /// Former addresses of members that were not reached since they moved.
    former: FormerAddresses,
    /// The newest durable epoch, for all loops.
    pub(crate) fence: Arc<Fence>,
    pub(crate) me: MemberIndex,
    pub(crate) hlc: Arc<Hlc>,
    /// The members' wall clocks, as the loops of this member have read them.
    pub(crate) walls: Arc<Walls>,
    pub(crate) peers: Vec<PeerGauges>,
    pub(crate) strangers: Strangers,
    pub(crate) secrets: Secrets,
    /// The certificates of links between members; `None` = links in clear.
    pub(crate) tls: Option<Arc<Tls>>,
    node: u128,
    pub(crate) boot: u64,
    life: u64,
    /// The clock value in a hello: see `Peer::clock`.
    clock: u64,
    origin: u32,
    loops: u16,
    pub(crate) hints: Arc<HintRoom>,
    /// How far comparisons with other members are.
    pub(crate) comparisons: Arc<Comparisons>,
    /// Repairs of damaged blocks that wait for other members.
    pub(crate) repairs: WaitingRepairs,
    /// The look for copies that differ.
    pub(crate) looks: LookOffice,
    /// The rounds of the clients of this member.
    pub(crate) foregrounds: Arc<Foregrounds>,
    /// For all of them together; 0 = none.
    pub(crate) compare_bytes_per_second: u64,
    pub(super) forget_every_us: u64,
    /// Members that held the horizons back when the first loop looked last; 0 = none.
    pub(crate) horizon_held: AtomicU64,
    /// The epoch that this member lacks: one that it has taken part in, or one that another member
    /// has had for `EPOCH_PATIENCE_US`. 0 = none.
    pub(super) epoch_lacked: AtomicU64,
    /// The plan under way, and why it waited when the first loop looked last.
    plan_wait: Mutex<Option<(u64, PlanWait)>>,
    /// Losses that operators accepted here since the start.
    pub(crate) losses_accepted: AtomicU64,
    /// How the own questions travel.
    pub(crate) transport: PeerTransport,
    /// Sessions of peers that ask over plain HTTP.
    pub(crate) sessions: Sessions,
    /// Links of askers that have not proven themselves.
    pub(crate) unproven: Arc<UnprovenGauges>,
    membership: Mutex<Membership>,
    /// The admitted life of each member, as in `membership`.
    lives: Vec<AtomicU64>,
    /// How far the start is.
    pub(super) stage: watch::Sender<StartGate>,
    /// By member: told whenever a link of it was admitted.
    news: Vec<watch::Sender<()>>,
    /// The way of operators' orders to the steward.
    pub(crate) orders: Orders,
    /// The ways to the steward's home.
    pub(super) door: StewardDoor,
    /// The steward and the other ends of those ways, until its home takes them.
    resident: Mutex<Option<Resident>>,
    /// Why another member does not let this folder in.
    pub(crate) disowned: OnceLock<Disowned>,
}

/// The newest epoch that is durable at this member, for all its threads.
#[derive(Debug)]
struct NewestEpoch {
    record: Arc<EpochRecord>,
    layout: Arc<Layout>,
}

/// How far a start is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum StartGate {
    /// Members are asked, links are opened.
    Begun,
    /// Clients may be accepted.
    Open,
    /// The node may say that it is ready.
    Ready,
}

/// The orders of the membership machine to the caller that told it an event.
#[derive(Debug)]
pub(super) struct EventOrders {
    pub(super) effects: Vec<MemberEffect>,
    /// For the note among them.
    pub(super) version: Option<Version>,
}

/// The note about a member. A note about another folder than that of the newest epoch counts as
/// none.
fn of_record(record: &EpochRecord, id: MemberId, noted: Option<Peer>) -> Option<Peer> {
    let node = record.member(id).map_or(0, |member| member.node);
    match noted.filter(|noted| node == 0 || noted.node == node) {
        None if node != 0 => Some(Peer::unseen(node)),
        noted => noted,
    }
}

impl EventOrders {
    /// Orders of an event that was not told.
    pub(super) fn nothing() -> EventOrders {
        EventOrders {
            effects: Vec::new(),
            version: None,
        }
    }
}

/// Host and port of a member's url.
pub(super) fn host_of(url: &str) -> &str {
    url.trim_start_matches("http://").trim_end_matches('/')
}

/// Bits of an origin that name the loop.
const LANE_BITS: u32 = 8;

/// The settings for requests, in the cluster of this layout.
pub(crate) fn routes(
    layout: &Layout,
    before: dendra_wire::RequestRules,
) -> dendra_wire::RequestRules {
    dendra_wire::RequestRules {
        nodes: layout.topology().live(),
        replication_factor: layout.topology().replication_factor(),
        ..before
    }
}

/// The clock is above the floor of this epoch, and the folder purges up to its horizon. Requires:
/// the fence is at this epoch, so that no answer from before leaves any more.
fn forget(engine: &Engine, hlc: &Hlc, layout: &Layout) {
    let horizons = layout.horizons();
    hlc.observe(horizons.floor())
        .expect("the floor of an epoch is a value of clocks");
    engine.raise_age_horizon(horizons.purge(), layout.copies_to_purge());
}

/// By which number versions of the first loop of a folder's node name it.
pub(super) fn origin_of(identity: Identity) -> u32 {
    identity.origin << LANE_BITS
}

/// The steward of the member that the folder is of.
fn resume(
    folder: FolderMember,
    me: ChainPeer,
    life: u64,
    forget_every_us: u64,
) -> Result<Steward, String> {
    let steward = Steward::open(StewardStart {
        me,
        records: folder.records,
        fence: folder.fence,
        vote: folder.vote,
        release: env!("CARGO_PKG_VERSION").to_owned(),
        versions: ClusterVersions::OWN,
        load_bytes_per_second: LOAD_BYTES_PER_SECOND_DEFAULT,
        side_by_side: MOVES_SIDE_BY_SIDE,
        forget_every_us,
        replace_patience_us: REPLACE_PATIENCE_US,
        seed: life,
    });
    let mut steward = steward.map_err(|bad| format!("the newest epoch has no layout: {bad}"))?;
    if let Some(order) = folder.throttle {
        steward.resume_throttle(order);
    }
    steward.resume_losses(folder.losses);
    Ok(steward)
}

impl Cluster {
    /// The cluster of the member to which the open folder of `engine` belongs.
    pub(crate) fn new(
        settings: &ClusterSettings,
        durability: Durability,
        engine: &Engine,
        folder: FolderMember,
        loops: usize,
        last: Option<u64>,
        wall_ms: u64,
    ) -> Result<Cluster, String> {
        let identity = engine.identity();
        let life = crate::random::random()
            .map_err(|error| format!("no randomness from the system: {error}"))?;
        // Zero stands for "not known".
        let life = u64::from_le_bytes(life).max(1);
        let me = ChainPeer {
            member: folder.id,
            node: identity.node,
        };
        let former = FormerAddresses::of(folder.records.iter().map(|(record, _)| record));
        let (id, boot, founding) = (folder.id, folder.boot, folder.founding.clone());
        let folder_is_doubted = folder.is_doubted;
        let steward = resume(folder, me, life, settings.forget_every_us)?;
        let (record, layout) = (Arc::clone(steward.record()), Arc::clone(steward.layout()));
        let missing = steward.missing();
        let topology = Arc::clone(layout.topology());
        let me = layout
            .index_of(id)
            .ok_or("it is no member of the newest epoch")?;
        let known = layout.members().map(|member| {
            let id = layout.id_of(member).ok_or("a member has a number")?;
            let noted = notes::peer(engine, id, &topology.member(member).url)?;
            Ok(of_record(&record, id, noted))
        });
        let known = known.collect::<Result<Vec<_>, String>>()?;
        let loops = u16::try_from(loops).expect("loops are counted in eight bits");
        let membership = Membership::new(&topology, me, (loops, folder_is_doubted), known);
        let lives = |member: usize| {
            if member < usize::from(topology.len()) {
                membership.life(MemberIndex(member as u8)).into()
            } else {
                AtomicU64::new(0)
            }
        };
        let lives = (0..MEMBERS_MAX).map(lives).collect();
        let hlc = Hlc::resume(last, engine.hlc_floor(), wall_ms);
        forget(engine, &hlc, &layout);
        let (orders, ordered) = orders();
        let (door, calls) = StewardDoor::new();
        Ok(Cluster {
            fence: Arc::new(Fence::noted(&layout, missing.unwrap_or(0))),
            me,
            hlc: Arc::new(hlc),
            walls: Arc::new(Walls::new(me, usize::from(topology.live()))),
            peers: (0..MEMBERS_MAX).map(|_| PeerGauges::default()).collect(),
            strangers: Strangers::new(),
            secrets: Secrets::new(settings),
            tls: None,
            node: identity.node,
            boot,
            life,
            clock: match durability {
                Durability::Sync => engine.hlc_floor().max(1),
                Durability::Os => 0,
            },
            origin: identity.origin,
            loops,
            hints: Arc::new(HintRoom::new(HINT_BYTES_MAX_DEFAULT)),
            comparisons: Arc::default(),
            repairs: WaitingRepairs::default(),
            looks: LookOffice::default(),
            foregrounds: Arc::default(),
            compare_bytes_per_second: settings.compare_bytes_per_second,
            forget_every_us: settings.forget_every_us,
            horizon_held: AtomicU64::new(0),
            epoch_lacked: AtomicU64::new(missing.unwrap_or(0)),
            plan_wait: Mutex::default(),
            losses_accepted: AtomicU64::new(0),
            transport: settings.transport,
            sessions: Sessions::default(),
            unproven: Arc::default(),
            lives,
            membership: Mutex::new(membership),
            stage: watch::Sender::new(StartGate::Begun),
            news: (0..MEMBERS_MAX).map(|_| watch::Sender::new(())).collect(),
            orders,
            door,
            resident: Mutex::new(Some(Resident {
                steward,
                calls,
                ordered,
            })),
            disowned: OnceLock::new(),
            founding,
            newest: RwLock::new(NewestEpoch { record, layout }),
            former,
        })
    }

    /// The steward, once: for its home.
    pub(super) fn take_resident(&self) -> Option<Resident> {
        self.resident.lock().expect("no holder panics").take()
    }

    fn newest(&self) -> RwLockReadGuard<'_, NewestEpoch> {
        self.newest.read().expect("no holder panics")
    }

    /// Members and owners of the newest durable epoch.
    pub(crate) fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.newest().layout)
    }

    fn record(&self) -> Arc<EpochRecord> {
        Arc::clone(&self.newest().record)
    }

    /// Members of the newest epoch.
    pub(crate) fn topology(&self) -> Arc<Topology> {
        Arc::clone(self.newest().layout.topology())
    }

    /// Digest of the topology that the cluster was founded with.
    pub(crate) fn digest(&self) -> u64 {
        Topology::digest_of(&self.founding)
    }

    /// The number of a member.
    pub(crate) fn id_of(&self, member: MemberIndex) -> Option<MemberId> {
        self.newest().layout.id_of(member)
    }

    /// How long comparisons rest between two of one peer: no longer than horizons, which wait for
    /// them.
    pub(super) fn compare_pause_us(&self) -> u64 {
        match self.forget_every_us {
            0 => COMPARE_PAUSE_US_DEFAULT,
            every_us => COMPARE_PAUSE_US_DEFAULT.min(every_us),
        }
    }

    /// An epoch is durable: the fence rises, then the horizons, and new members may come. The loops
    /// get the layout after this.
    pub(super) fn adopt(&self, engine: &Engine, record: &Arc<EpochRecord>, layout: &Arc<Layout>) {
        self.fence.advance(layout);
        forget(engine, &self.hlc, layout);
        let before = self.layout();
        self.former.follow(&self.record(), record);
        *self.newest.write().expect("no holder panics") = NewestEpoch {
            record: Arc::clone(record),
            layout: Arc::clone(layout),
        };
        let is_fresh = |member: &MemberIndex| layout.id_of(*member) != before.id_of(*member);
        let fresh: Vec<MemberIndex> = layout.members().filter(is_fresh).collect();
        let mut membership = self.membership();
        let folder = |member: MemberIndex| {
            let node = record.member(layout.id_of(member)?)?.node;
            Some((member, node))
        };
        let renewed = membership.adopt(
            layout.topology(),
            fresh.iter().map(|member| {
                let id = layout.id_of(*member);
                (*member, id.and_then(|id| of_record(record, id, None)))
            }),
            layout.members().filter_map(folder),
        );
        for member in renewed {
            let life = membership.life(member);
            self.lives[member.at()].store(life, Ordering::Release);
        }
    }

    /// This cluster with links that are sealed with `tls`.
    pub(crate) fn sealed(self, tls: Option<Arc<Tls>>) -> Cluster {
        Cluster { tls, ..self }
    }

    /// The number of the versions that loop `lane` makes.
    pub(crate) fn origin(&self, lane: usize) -> u32 {
        let lane = u32::try_from(lane).expect("loops are counted in eight bits");
        (self.origin << LANE_BITS) | lane
    }

    /// Event loops of this member.
    pub(crate) fn loops(&self) -> u16 {
        self.loops
    }

    /// The url of a member; empty for the place of one that was removed.
    pub(crate) fn url(&self, member: MemberIndex) -> String {
        let topology = self.topology();
        let member = topology.members().get(member.at());
        member.map_or_else(String::new, |member| member.url.clone())
    }

    /// The url that a member had before its newest one, until it was reached there.
    pub(super) fn former_url(&self, member: MemberIndex) -> Option<String> {
        self.former.get(self.id_of(member)?)
    }

    /// A member was reached at this host and port.
    pub(super) fn reached_at(&self, member: MemberIndex, host: &str) {
        let newest = self.newest();
        let members = newest.layout.topology().members();
        let is_newest = |url: &str| host_of(url) == host;
        if members
            .get(member.at())
            .is_some_and(|it| is_newest(&it.url))
            && let Some(id) = newest.layout.id_of(member)
        {
            self.former.forget(id);
        }
    }

    /// A member opened a link, and proved that it is the one at `url` in its newest epoch.
    pub(super) fn is_called_at(&self, member: MemberIndex, url: &str, epoch: u64) {
        let newest = self.newest();
        if let Some(id) = newest.layout.id_of(member) {
            self.former.told(&newest.record, id, url, epoch);
        }
    }

    /// The own note of this process's folder once `record` is durable in it.
    pub(super) fn own_note(&self, record: &EpochRecord) -> OwnNote {
        let mut members = record.members().iter();
        let own = members.find(|member| member.node == self.node);
        let url = own.map_or_else(|| self.own_url(), |own| own.place.url.clone());
        OwnNote {
            node: self.node,
            boot: self.boot,
            home: FolderMembership {
                cluster: record.name().to_owned(),
                url,
                fence: record.epoch(),
                topology: self.founding.clone(),
            },
        }
    }

    /// The url of this member.
    pub(crate) fn own_url(&self) -> String {
        self.url(self.me)
    }

    /// The other members' urls and counters.
    pub(crate) fn others(&self) -> Vec<(String, &PeerGauges)> {
        let others = self.other_members().into_iter();
        others
            .map(|(member, url)| (url, &self.peers[member.at()]))
            .collect()
    }

    /// The other members with their urls.
    pub(crate) fn other_members(&self) -> Vec<(MemberIndex, String)> {
        let layout = self.layout();
        let others = layout.members().filter(|member| *member != self.me);
        others
            .map(|member| (member, layout.topology().member(member).url.clone()))
            .collect()
    }

    /// For how many damaged blocks the repair waits for each other member, by its url.
    pub(crate) fn waiting_repairs(&self, engine: &Engine) -> Vec<(String, u64)> {
        let counts = self.repairs.by_member(engine);
        let layout = self.layout();
        let named = counts.into_iter().filter_map(|(id, count)| {
            let member = layout.index_of(id)?;
            Some((self.url(member), count))
        });
        named.collect()
    }

    /// Why this process is not ready although others are: see [`Membership::shut_out`].
    pub(crate) fn shut_out(&self) -> Option<String> {
        self.membership().shut_out()
    }

    /// Why this node is not ready although it runs: it does not know the newest epoch.
    pub(crate) fn behind(&self) -> Option<String> {
        let (lacked, epoch) = (
            self.epoch_lacked.load(Ordering::Relaxed),
            self.topology().epoch(),
        );
        let url = self.own_url();
        (lacked > epoch).then(|| {
            format!(
                "behind: the newest epoch that this member can read is {epoch}, and the cluster is at \
                 {lacked} or later. It serves once another member has told it. If that does not end \
                 within a minute: where other members run, replace this one (dendra serve --join … \
                 --replace {url}); where it is the only one, dendra cluster accept-loss {url} shows \
                 what it can go on with"
            )
        })
    }

    pub(super) fn plan_waits(&self, wait: Option<(u64, PlanWait)>) {
        *self.plan_wait.lock().expect("no holder panics") = wait;
    }

    /// Why the plan under way does not go on. The member serves all the same.
    pub(crate) fn why_plan_waits(&self) -> Option<String> {
        let wait = self.plan_wait.lock().expect("no holder panics");
        let (plan, wait) = wait.as_ref()?;
        Some(format!("plan {plan} waits: {}", wait.why))
    }

    /// The lines of the log about the links to a peer.
    pub(super) fn link_log(&self, member: MemberIndex) -> MutexGuard<'_, LinkLog> {
        let log = &self.peers[member.at()].log;
        log.lock().expect("no holder panics")
    }

    /// Why this node writes no record, although others are there: its clock agrees with no
    /// majority.
    pub(crate) fn wrong_clock(&self) -> Option<String> {
        let standing = self.walls.standing(clock::now());
        standing.is_doubted.then(|| {
            let (far, known) = (standing.far, standing.far + standing.near - 1);
            let seconds = standing.ahead_ms.unsigned_abs() / 1_000;
            let way = if standing.ahead_ms > 0 { "ahead of" } else { "behind" };
            format!(
                "wrong clock: {far} of {known} other members' clocks differ from this one's by more than a minute, which is {seconds} s {way} \
                 the nearest: set it right. Writes are refused here until then"
            )
        })
    }

    /// This member's hello on a link of `lane`.
    pub(crate) fn hello(&self, lane: usize, nonce: [u8; 16]) -> Hello {
        let topology = self.topology();
        let versions = ClusterVersions::OWN.since(self.layout().in_force());
        Hello {
            version_min: versions.oldest.0,
            version_max: versions.newest.0,
            cluster: topology.id(),
            cluster_name: topology.name().to_owned(),
            epoch: topology.epoch(),
            topology: self.digest(),
            description: match self.founding.len() {
                0..=hello::TEXT_BYTES_MAX => self.founding.clone(),
                _ => String::new(),
            },
            node: self.node,
            origin: self.origin << LANE_BITS,
            boot: self.boot,
            life: self.life,
            clock: self.clock,
            url: topology.member(self.me).url.clone(),
            lane: u16::try_from(lane).expect("loops are counted in eight bits"),
            loops: self.loops,
            has_secret: self.secrets.is_set(),
            nonce: Nonce(nonce),
            joins: false,
        }
    }

    /// Which process says `theirs`, and is it of this cluster as this node knows it? The hello is
    /// not proven yet, so no question is asked about the member itself.
    pub(crate) fn judge_hello(
        &self,
        own: &Hello,
        theirs: &Hello,
    ) -> Result<(HelloMaker, Peer), Refusal> {
        self.agree(own, theirs)?;
        Ok((self.maker(own, theirs)?, claim_of(theirs)))
    }

    /// Judges a hello that came over `stream`. A process without the certificate of its address is
    /// told no fact about the cluster.
    pub(super) fn judge_caller(
        &self,
        stream: &ByteStream,
        own: &Hello,
        theirs: &Hello,
    ) -> Result<(HelloMaker, Peer), Refusal> {
        let maker = self.maker(own, theirs);
        self.check_identity(stream, maker.as_ref().ok(), &theirs.url)?;
        self.agree(own, theirs)?;
        Ok((maker?, claim_of(theirs)))
    }

    /// Are the two of one cluster?
    fn agree(&self, own: &Hello, theirs: &Hello) -> Result<(), Refusal> {
        let agreed = hello::agree(own, theirs, |other| {
            Topology::difference_of(&self.founding, other)
        });
        agreed.map(|_version| ())
    }

    fn maker(&self, own: &Hello, theirs: &Hello) -> Result<HelloMaker, Refusal> {
        if theirs.joins {
            return Ok(HelloMaker::Joiner);
        }
        let (us, them) = (&own.url, &theirs.url);
        let standing = self.newest();
        let (record, layout) = (&standing.record, &standing.layout);
        let found = match record.folder(theirs.node, them, theirs.epoch) {
            KnownFolder::Removed { epoch } => {
                let why = format!(
                    "the folder of {them} was removed from the cluster by epoch {epoch}, and never comes back: it has forgotten \
                     what was written since; join with an empty folder (dendra serve --join {us} --self {them})"
                );
                return Ok(HelloMaker::Removed(self.membership().removed(why)));
            }
            KnownFolder::Member(id) => layout.index_of(id),
            KnownFolder::Ahead => {
                return Err(Refusal::not_serving(
                    format!(
                        "{us} is at epoch {}, and learns epoch {} of {them} from the other members first",
                        record.epoch(),
                        theirs.epoch
                    ),
                    retry_after_s(),
                ));
            }
            KnownFolder::Stranger => None,
        };
        match found.filter(|member| *member != self.me) {
            Some(member) => Ok(HelloMaker::Member(member)),
            None => Err(Refusal::new(
                403,
                "not-a-member",
                format!(
                    "{us} knows no other member {them} in epoch {}",
                    record.epoch()
                ),
            )),
        }
    }

    fn membership(&self) -> MutexGuard<'_, Membership> {
        self.membership.lock().expect("no holder panics")
    }

    /// Tells the membership machine an event, on an event loop.
    pub(super) fn tell(&self, lane: usize, event: MemberEvent) -> EventOrders {
        let mut effects = Vec::new();
        let mut membership = self.membership();
        membership.step(clock::monotonic_us(), event, &mut effects);
        let mut version = None;
        for effect in &effects {
            match effect {
                MemberEffect::Admit { member, life } => {
                    self.lives[member.at()].store(*life, Ordering::Release);
                }
                MemberEffect::WriteNote(_) => version = Some(self.note_version(lane)),
                MemberEffect::OpenDoor(wait) => {
                    if *wait == WaitEnd::GivenUp {
                        tracing::warn!("the door opens before all links were tried");
                    }
                    self.stage.send_replace(StartGate::Open);
                }
                MemberEffect::Ready(wait) => {
                    if *wait == WaitEnd::GivenUp {
                        tracing::warn!(
                            "some members let this one in, and have not opened all links to it yet"
                        );
                    }
                    self.stage.send_replace(StartGate::Ready);
                }
                _ => {}
            }
        }
        EventOrders { effects, version }
    }

    /// When the machine wants a `Tick`.
    pub(super) fn due_us(&self) -> Option<u64> {
        self.membership().due_us()
    }

    /// Would the process that makes this claim be admitted?
    pub(crate) fn admit(&self, member: MemberIndex, claim: Peer) -> Result<(), Rejected> {
        let mut told = self.tell(0, MemberEvent::Hailed { member, claim });
        match told.effects.pop() {
            Some(MemberEffect::Welcome) => Ok(()),
            Some(MemberEffect::Reject(rejected)) => {
                count(&self.peers[member.at()].strangers);
                Err(rejected)
            }
            other => unreachable!("a hail leads to {other:?}"),
        }
    }

    /// The sentence of a refusal, unless the place of the member that was refused became another
    /// member's between its hello and that.
    pub(super) fn unless_members_changed(
        &self,
        (member, url): (MemberIndex, &str),
        claim: Peer,
        sentence: String,
    ) -> String {
        let newest = self.newest();
        // The hello was judged: it is not ahead.
        match newest.record.folder(claim.node, url, 0) {
            KnownFolder::Member(id) if newest.layout.index_of(id) == Some(member) => sentence,
            _ => "the members changed during this handshake: it begins anew".to_owned(),
        }
    }

    /// A process did not prove that it is `member`, or belongs to the cluster at all.
    pub(super) fn note_stranger(&self, member: Option<MemberIndex>) {
        match member {
            Some(member) => count(&self.peers[member.at()].strangers),
            None => count(&self.strangers.unknown),
        }
    }

    /// Is `life` the admitted one of the member?
    pub(crate) fn is_current(&self, member: MemberIndex, life: u64) -> bool {
        self.lives[member.at()].load(Ordering::Acquire) == life
    }

    /// A link that a loop of the member opened was admitted.
    pub(super) fn heard(&self, member: MemberIndex, lane: u16) {
        drop(self.tell(0, MemberEvent::Heard { member, lane }));
        self.news[member.at()].send_replace(());
    }

    /// Changes with each `heard`.
    pub(super) fn news(&self, member: MemberIndex) -> watch::Receiver<()> {
        self.news[member.at()].subscribe()
    }

    /// The version of a note that loop `lane` writes.
    pub(super) fn note_version(&self, lane: usize) -> Version {
        Version {
            hlc: self.hlc.tick(clock::wall_ms()),
            origin: self.origin(lane),
            rmw: 0,
        }
    }

    /// Does a connection to this node come from `maker`, or from the address that it said? Without
    /// TLS between members the secret says so, later.
    ///
    /// # Errors
    /// 403: its certificate is not the member's.
    pub(super) fn check_identity(
        &self,
        stream: &ByteStream,
        maker: Option<&HelloMaker>,
        said: &str,
    ) -> Result<(), Refusal> {
        let Some(tls) = &self.tls else {
            return Ok(());
        };
        let member = maker.and_then(HelloMaker::member);
        let url = member.map_or_else(|| said.to_owned(), |member| self.url(member));
        let checked = tls.check_member(stream, host_of(&url));
        // A member that moves shows the certificate of before until it is started anew.
        let former = member.and_then(|member| self.former_url(member));
        let checked = checked.or_else(|why| match former {
            Some(former) => tls.check_member(stream, host_of(&former)).map_err(|_| why),
            None => Err(why),
        });
        checked.map_err(|why| {
            let sentence = format!(
                "{url} did not prove with a certificate that it is that member ({why}): start it with --tls-cert, --tls-key and \
                 --tls-peer-ca, its host among the names of its certificate"
            );
            self.note_stranger(member);
            if let Some(unsaid) = self.strangers.may_say() {
                tracing::warn!(peer = url, why, unsaid, "a peer is not let in");
            }
            Refusal::new(403, "peer-identity", sentence)
        })
    }

    /// A steward's message came over a link of a member: to the own steward.
    pub(super) fn take_message(
        &self,
        member: MemberIndex,
        claim: Peer,
        body: &[u8],
    ) -> Result<(), Malformed> {
        let message = StewardMessage::decode(body).map_err(Malformed::Body)?;
        // The place of a member that was removed is empty for a while.
        if let Some(id) = self.id_of(member) {
            let node = claim.node;
            let from = ChainPeer { member: id, node };
            self.door.tell(StewardEvent::Received { from, message });
        }
        Ok(())
    }

    /// Asks the steward about a process that wants to become a member.
    pub(crate) async fn enrol(&self, request: EnrolRequest) -> Option<EnrolAnswer> {
        self.door.enrol(request).await
    }
}
