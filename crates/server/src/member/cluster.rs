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
//! handshake (`peers/link.rs`, `peers/accept.rs`), its bytes (crate `wire`).
//! See: docs/peer.md, section "Handshake".

use super::door::{Resident, StewardDoor};
use super::epochs::{Epochs, host_of};
use super::former::FormerAddresses;
use super::hello_maker::HelloMaker;
use super::links::{MemberLinks, PeerGauges, count};
use super::orders::{Orders, orders};
use super::own::{LANE_BITS, OwnMember};
use super::upkeep::Upkeep;
use crate::clock;
use crate::disk::notes::{self, FolderMember};
use crate::limits;
use crate::retry_after::retry_after_s;
use crate::settings::ClusterSettings;
use crate::tls::{ByteStream, Tls};
use dendra_base::ClusterVersions;
use dendra_base::Version;
use dendra_engine::{Durability, Engine, Identity};
use dendra_node::{Hlc, Walls};
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
use dendra_ownership::{Layout, MemberIndex, Membership, Topology};
use dendra_wire::Refusal;
use dendra_wire::peer::hello;
use dendra_wire::peer::{Hello, Malformed, Nonce};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use tokio::sync::watch;

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
    pub(crate) own: OwnMember,
    pub(crate) epochs: Epochs,
    pub(crate) hlc: Arc<Hlc>,
    /// The members' wall clocks, as the loops of this member have read them.
    pub(crate) walls: Arc<Walls>,
    pub(crate) links: MemberLinks,
    pub(crate) upkeep: Upkeep,
    admissions: Admissions,
    pub(crate) steward: StewardWays,
}

/// Which processes are admitted as members, and this one's own start.
#[derive(Debug)]
struct Admissions {
    membership: Mutex<Membership>,
    /// The admitted life of each member, as in `membership`.
    lives: Vec<AtomicU64>,
    /// How far the start is.
    stage: watch::Sender<StartGate>,
}

/// The ways of this process to its steward.
#[derive(Debug)]
pub(crate) struct StewardWays {
    /// The way of operators' orders to the steward.
    pub(crate) orders: Orders,
    /// The ways to the steward's home.
    pub(crate) door: StewardDoor,
    /// The steward and the other ends of those ways, until its home takes them.
    resident: Mutex<Option<Resident>>,
    /// The plan under way, and why it waited when the first loop looked last.
    plan_wait: Mutex<Option<(u64, PlanWait)>>,
    /// The releases that members run, by URL, when the first loop looked last.
    releases: Mutex<Vec<(String, String)>>,
    /// Losses that operators accepted here since the start.
    pub(crate) losses_accepted: AtomicU64,
    /// Why another member does not let this folder in.
    pub(crate) disowned: OnceLock<Disowned>,
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
pub(crate) struct EventOrders {
    pub(crate) effects: Vec<MemberEffect>,
    /// For the note among them.
    pub(crate) version: Option<Version>,
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
    pub(crate) fn nothing() -> EventOrders {
        EventOrders {
            effects: Vec::new(),
            version: None,
        }
    }
}

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
pub(crate) fn origin_of(identity: Identity) -> u32 {
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
        let chain_peer = ChainPeer {
            member: folder.id,
            node: identity.node,
        };
        let former = FormerAddresses::of(folder.records.iter().map(|(record, _)| record));
        let (id, boot, founding) = (folder.id, folder.boot, folder.founding.clone());
        let folder_is_doubted = folder.is_doubted;
        let steward = resume(folder, chain_peer, life, settings.forget_every_us)?;
        let (record, layout) = (Arc::clone(steward.record()), Arc::clone(steward.layout()));
        let missing = steward.missing();
        let topology = Arc::clone(layout.topology());
        let me = layout
            .index_of(id)
            .ok_or("it is no member of the newest epoch")?;
        let known = layout.members().map(|member| {
            let of_member = layout.id_of(member).ok_or("a member has a number")?;
            let noted = notes::peer(engine, of_member, &topology.member(member).url)?;
            Ok(of_record(&record, of_member, noted))
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
        let lacked = missing.unwrap_or(0);
        Ok(Cluster {
            own: OwnMember {
                founding,
                me,
                node: identity.node,
                boot,
                life,
                clock: match durability {
                    Durability::Sync => engine.hlc_floor().max(1),
                    Durability::Os => 0,
                },
                origin: identity.origin,
                loops,
            },
            epochs: Epochs::new((record, layout), former, lacked),
            hlc: Arc::new(hlc),
            walls: Arc::new(Walls::new(me, usize::from(topology.live()))),
            links: MemberLinks::new(settings),
            upkeep: Upkeep::new(settings),
            admissions: Admissions {
                membership: Mutex::new(membership),
                lives,
                stage: watch::Sender::new(StartGate::Begun),
            },
            steward: StewardWays {
                orders,
                door,
                resident: Mutex::new(Some(Resident {
                    steward,
                    calls,
                    ordered,
                })),
                plan_wait: Mutex::default(),
                releases: Mutex::default(),
                losses_accepted: AtomicU64::new(0),
                disowned: OnceLock::new(),
            },
        })
    }

    /// The steward, once: for its home.
    pub(crate) fn take_resident(&self) -> Option<Resident> {
        self.steward
            .resident
            .lock()
            .expect("no holder panics")
            .take()
    }

    /// Members and owners of the newest durable epoch.
    pub(crate) fn layout(&self) -> Arc<Layout> {
        self.epochs.layout()
    }

    /// Members of the newest epoch.
    pub(crate) fn topology(&self) -> Arc<Topology> {
        self.epochs.topology()
    }

    /// The number of a member.
    pub(crate) fn id_of(&self, member: MemberIndex) -> Option<MemberId> {
        self.epochs.id_of(member)
    }

    /// The url of a member; empty for the place of one that was removed.
    pub(crate) fn url(&self, member: MemberIndex) -> String {
        self.epochs.url(member)
    }

    /// An epoch is durable: the fence rises, then the horizons, and new members may come. The loops
    /// get the layout after this.
    pub(crate) fn adopt(&self, engine: &Engine, record: &Arc<EpochRecord>, layout: &Arc<Layout>) {
        self.epochs.fence.advance(layout);
        forget(engine, &self.hlc, layout);
        let before = self.layout();
        self.epochs.replace(record, layout);
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
            self.admissions.lives[member.at()].store(life, Ordering::Release);
        }
    }

    /// This cluster with links that are sealed with `tls`.
    pub(crate) fn sealed(mut self, tls: Option<Arc<Tls>>) -> Cluster {
        self.links.tls = tls;
        self
    }

    /// The own note of this process's folder once `record` is durable in it.
    pub(crate) fn own_note(&self, record: &EpochRecord) -> OwnNote {
        let mut members = record.members().iter();
        let own = members.find(|member| member.node == self.own.node);
        let url = own.map_or_else(|| self.own_url(), |own| own.place.url.clone());
        OwnNote {
            node: self.own.node,
            boot: self.own.boot,
            home: FolderMembership {
                cluster: record.name().to_owned(),
                url,
                fence: record.epoch(),
                topology: self.own.founding.clone(),
            },
        }
    }

    /// The url of this member.
    pub(crate) fn own_url(&self) -> String {
        self.url(self.own.me)
    }

    /// The other members' urls and counters.
    pub(crate) fn others(&self) -> Vec<(String, &PeerGauges)> {
        let others = self.other_members().into_iter();
        others
            .map(|(member, url)| (url, &self.links.peers[member.at()]))
            .collect()
    }

    /// The other members with their urls.
    pub(crate) fn other_members(&self) -> Vec<(MemberIndex, String)> {
        let layout = self.layout();
        let others = layout.members().filter(|member| *member != self.own.me);
        others
            .map(|member| (member, layout.topology().member(member).url.clone()))
            .collect()
    }

    /// For how many damaged blocks the repair waits for each other member, by its url.
    pub(crate) fn waiting_repairs(&self, engine: &Engine) -> Vec<(String, u64)> {
        let counts = self.upkeep.repairs.by_member(engine);
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
            self.epochs.lacked.load(Ordering::Relaxed),
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

    pub(crate) fn plan_waits(&self, wait: Option<(u64, PlanWait)>) {
        *self.steward.plan_wait.lock().expect("no holder panics") = wait;
    }

    /// The members run these releases.
    pub(crate) fn run_releases(&self, releases: Vec<(String, String)>) {
        *self.steward.releases.lock().expect("no holder panics") = releases;
    }

    /// The releases that members run, by URL, as far as they told.
    pub(crate) fn releases(&self) -> Vec<(String, String)> {
        let releases = self.steward.releases.lock();
        releases.expect("no holder panics").clone()
    }

    /// Why the plan under way does not go on. The member serves all the same.
    pub(crate) fn why_plan_waits(&self) -> Option<String> {
        let wait = self.steward.plan_wait.lock().expect("no holder panics");
        let (plan, wait) = wait.as_ref()?;
        Some(format!("plan {plan} waits: {}", wait.why))
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
            topology: self.own.digest(),
            description: match self.own.founding.len() {
                0..=hello::TEXT_BYTES_MAX => self.own.founding.clone(),
                _ => String::new(),
            },
            node: self.own.node,
            origin: self.own.origin << LANE_BITS,
            boot: self.own.boot,
            life: self.own.life,
            clock: self.own.clock,
            url: topology.member(self.own.me).url.clone(),
            lane: u16::try_from(lane).expect("loops are counted in eight bits"),
            loops: self.own.loops,
            has_secret: self.links.secrets.is_set(),
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
    pub(crate) fn judge_caller(
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
            Topology::difference_of(&self.own.founding, other)
        });
        agreed.map(|_version| ())
    }

    fn maker(&self, own: &Hello, theirs: &Hello) -> Result<HelloMaker, Refusal> {
        if theirs.joins {
            return Ok(HelloMaker::Joiner);
        }
        let (us, them) = (&own.url, &theirs.url);
        let standing = self.epochs.newest();
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
        match found.filter(|member| *member != self.own.me) {
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
        self.admissions.membership.lock().expect("no holder panics")
    }

    /// Tells the membership machine an event, on an event loop.
    pub(crate) fn tell(&self, lane: usize, event: MemberEvent) -> EventOrders {
        let mut effects = Vec::new();
        let mut membership = self.membership();
        membership.step(clock::monotonic_us(), event, &mut effects);
        let mut version = None;
        for effect in &effects {
            match effect {
                MemberEffect::Admit { member, life } => {
                    self.admissions.lives[member.at()].store(*life, Ordering::Release);
                }
                MemberEffect::WriteNote(_) => version = Some(self.note_version(lane)),
                MemberEffect::OpenDoor(wait) => {
                    if *wait == WaitEnd::GivenUp {
                        tracing::warn!("the door opens before all links were tried");
                    }
                    self.admissions.stage.send_replace(StartGate::Open);
                }
                MemberEffect::Ready(wait) => {
                    if *wait == WaitEnd::GivenUp {
                        tracing::warn!(
                            "some members let this one in, and have not opened all links to it yet"
                        );
                    }
                    self.admissions.stage.send_replace(StartGate::Ready);
                }
                _ => {}
            }
        }
        EventOrders { effects, version }
    }

    /// When the machine wants a `Tick`.
    pub(crate) fn due_us(&self) -> Option<u64> {
        self.membership().due_us()
    }

    /// Waits until the start has come so far.
    pub(crate) async fn wait_for(&self, stage: StartGate) {
        let mut now = self.admissions.stage.subscribe();
        while *now.borrow_and_update() < stage {
            let left_us = self
                .due_us()
                .map(|due_us| due_us.saturating_sub(clock::monotonic_us()));
            let left = left_us.map_or(limits::LINK_OPEN_TIMEOUT, Duration::from_micros);
            tokio::select! {
                // The sender lives as long as the cluster.
                _ = now.changed() => {}
                () = tokio::time::sleep(left) => drop(self.tell(0, MemberEvent::Tick)),
            }
        }
    }

    /// Would the process that makes this claim be admitted?
    pub(crate) fn admit(&self, member: MemberIndex, claim: Peer) -> Result<(), Rejected> {
        let mut told = self.tell(0, MemberEvent::Hailed { member, claim });
        match told.effects.pop() {
            Some(MemberEffect::Welcome) => Ok(()),
            Some(MemberEffect::Reject(rejected)) => {
                count(&self.links.peers[member.at()].strangers);
                Err(rejected)
            }
            other => unreachable!("a hail leads to {other:?}"),
        }
    }

    /// The sentence of a refusal, unless the place of the member that was refused became another
    /// member's between its hello and that.
    pub(crate) fn unless_members_changed(
        &self,
        (member, url): (MemberIndex, &str),
        claim: Peer,
        sentence: String,
    ) -> String {
        let newest = self.epochs.newest();
        // The hello was judged: it is not ahead.
        match newest.record.folder(claim.node, url, 0) {
            KnownFolder::Member(id) if newest.layout.index_of(id) == Some(member) => sentence,
            _ => "the members changed during this handshake: it begins anew".to_owned(),
        }
    }

    /// Is `life` the admitted one of the member?
    pub(crate) fn is_current(&self, member: MemberIndex, life: u64) -> bool {
        self.admissions.lives[member.at()].load(Ordering::Acquire) == life
    }

    /// A link that a loop of the member opened was admitted.
    pub(crate) fn heard(&self, member: MemberIndex, lane: u16) {
        drop(self.tell(0, MemberEvent::Heard { member, lane }));
        self.links.tell_news(member);
    }

    /// The version of a note that loop `lane` writes.
    pub(crate) fn note_version(&self, lane: usize) -> Version {
        Version {
            hlc: self.hlc.tick(clock::wall_ms()),
            origin: self.own.origin(lane),
            rmw: 0,
        }
    }

    /// Does a connection to this node come from `maker`, or from the address that it said? Without
    /// TLS between members the secret says so, later.
    ///
    /// # Errors
    /// 403: its certificate is not the member's.
    pub(crate) fn check_identity(
        &self,
        stream: &ByteStream,
        maker: Option<&HelloMaker>,
        said: &str,
    ) -> Result<(), Refusal> {
        let Some(tls) = &self.links.tls else {
            return Ok(());
        };
        let member = maker.and_then(HelloMaker::member);
        let url = member.map_or_else(|| said.to_owned(), |member| self.url(member));
        let checked = tls.check_member(stream, host_of(&url));
        // A member that moves shows the certificate of before until it is started anew.
        let former = member.and_then(|member| self.epochs.former_url(member));
        let checked = checked.or_else(|why| match former {
            Some(former) => tls.check_member(stream, host_of(&former)).map_err(|_| why),
            None => Err(why),
        });
        checked.map_err(|why| {
            let sentence = format!(
                "{url} did not prove with a certificate that it is that member ({why}): start it with --tls-cert, --tls-key and \
                 --tls-peer-ca, its host among the names of its certificate"
            );
            self.links.note_stranger(member);
            if let Some(unsaid) = self.links.strangers.may_say() {
                tracing::warn!(peer = url, why, unsaid, "a peer is not let in");
            }
            Refusal::new(403, "peer-identity", sentence)
        })
    }

    /// A steward's message came over a link of a member: to the own steward.
    pub(crate) fn take_message(
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
            self.steward
                .door
                .tell(StewardEvent::Received { from, message });
        }
        Ok(())
    }

    /// Asks the steward about a process that wants to become a member.
    pub(crate) async fn enrol(&self, request: EnrolRequest) -> Option<EnrolAnswer> {
        self.steward.door.enrol(request).await
    }
}
