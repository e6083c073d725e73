//! The values that all event loops of a member share: topology, clock, identity, the membership
//! machine, and counters.
//!
//! ```text
//! settings, folder ─► Cluster ─┬─ hello, judge_hello, prove, check, keys      the bytes of a handshake
//!                              ├─ tell(event) ─► Membership, under a lock ─► effects
//!                              └─ is_current(life)                            without the lock, for each frame
//! ```
//!
//! Invariants
//! 1. The number of a version's maker names this node and one of its loops: 24 bits of the node's
//!    origin, 8 bits of the loop. Two members with equal 24 bits do not talk.
//! 2. Admitted lives, stages of the start, and the versions of notes change in the order of the
//!    machine's decisions: all of that happens under its lock.
//!
//! Not here: which process is admitted (crate `node`, `membership/`), the order of the handshake
//! (`link.rs`, `accept.rs`), its bytes (crate `wire`).
//! See: docs/peer.md, section "Handshake".

use super::session::Sessions;
use super::unproven::UnprovenGauges;
use crate::disk::notes;
use crate::event_loop::clock;
use crate::settings::{ClusterSettings, PeerTransport};
use dendra_base::Version;
use dendra_engine::{Durability, Engine};
use dendra_node::hints::HintRoom;
use dendra_node::limits::HINT_BYTES_MAX_DEFAULT;
use dendra_node::membership::identity::Peer;
use dendra_node::membership::{Disowned, MemberEffect, MemberEvent, WaitEnd};
use dendra_node::{Comparisons, Fence, Hlc, Layout, MemberIndex, Membership, Topology, Walls};
use dendra_wire::Refusal;
use dendra_wire::peer::hello::{self, VERSION_MAX, VERSION_MIN};
use dendra_wire::peer::{Hello, Nonce, Proof, Role, SessionKeys};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use tokio::sync::watch;

/// Counters about one peer, of all loops together.
#[derive(Debug, Default)]
pub(crate) struct PeerGauges {
    /// Loops whose link to it is up.
    pub(crate) links: AtomicU64,
    /// Questions sent.
    pub(crate) asks: AtomicU64,
    /// Answers received.
    pub(crate) answers: AtomicU64,
    /// Questions that were refused here: no link, or too much waits for it already.
    pub(crate) refused: AtomicU64,
    /// Its questions that were too old when they arrived.
    pub(crate) late: AtomicU64,
    /// Links that were lost.
    pub(crate) lost: AtomicU64,
    /// Handshakes with somebody at its url who is not the member that was known.
    pub(crate) strangers: AtomicU64,
}

/// Adds to a counter of [`PeerGauges`].
pub(crate) fn count(gauge: &AtomicU64) {
    gauge.fetch_add(1, Ordering::Relaxed);
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) topology: Arc<Topology>,
    /// Members and owners at the start.
    pub(crate) layout: Arc<Layout>,
    /// The newest durable epoch, for all loops.
    pub(crate) fence: Arc<Fence>,
    pub(crate) me: MemberIndex,
    pub(crate) hlc: Arc<Hlc>,
    /// What the loops of this member know of all members' wall clocks.
    pub(crate) walls: Arc<Walls>,
    pub(crate) peers: Vec<PeerGauges>,
    secret: Option<Box<[u8]>>,
    node: u128,
    pub(crate) boot: u64,
    life: u64,
    /// What a hello shows: see `Peer::clock`.
    clock: u64,
    origin: u32,
    loops: u16,
    pub(crate) hints: Arc<HintRoom>,
    /// How far comparisons with other members are.
    pub(crate) comparisons: Arc<Comparisons>,
    /// For all of them together; 0 = none.
    pub(crate) compare_bytes_per_second: u64,
    /// How the own questions travel.
    pub(crate) transport: PeerTransport,
    /// Of peers whose questions come over plain HTTP.
    pub(crate) sessions: Sessions,
    /// Links whose asker has not proven itself.
    pub(crate) unproven: Arc<UnprovenGauges>,
    membership: Mutex<Membership>,
    /// The admitted life of each member, as in `membership`.
    lives: Vec<AtomicU64>,
    /// How far the start is.
    pub(super) stage: watch::Sender<StartGate>,
    /// By member: told whenever a link of it was admitted.
    news: Vec<watch::Sender<()>>,
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

/// What the membership machine wants of the caller that told it an event.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) effects: Vec<MemberEffect>,
    /// For the note among them.
    pub(super) version: Option<Version>,
}

/// Bits of an origin that name the loop.
const LANE_BITS: u32 = 8;

/// Bytes from the operating system that cannot be guessed. They take no descriptor: strangers can ask for many.
pub(crate) fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        let flags = rustix::rand::GetRandomFlags::empty();
        filled +=
            rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut bytes[filled..], flags))?;
    }
    Ok(bytes)
}

impl Cluster {
    /// The cluster of `settings` for the node whose folder `engine` has open.
    pub(crate) fn new(
        settings: &ClusterSettings,
        durability: Durability,
        engine: &Engine,
        starts: u64,
        loops: usize,
        last: Option<u64>,
        wall_ms: u64,
    ) -> Result<Cluster, String> {
        if cfg!(feature = "one-phase") {
            tracing::error!(
                "a test build: plain writes are not linearizable, and nothing is promised"
            );
        }
        let identity = engine.identity();
        let topology = Arc::new(settings.topology.clone());
        let members = topology.members();
        let known = members
            .iter()
            .map(|member| notes::peer(engine, &member.url))
            .collect::<Result<Vec<_>, String>>()?;
        let loops = u16::try_from(loops).expect("loops are counted in eight bits");
        let membership = Membership::new(&topology, settings.me, loops, known);
        let lives = |member| membership.life(MemberIndex(member)).into();
        let life = random().map_err(|error| format!("no randomness from the system: {error}"))?;
        let layout = Arc::new(Layout::of_list(&topology));
        Ok(Cluster {
            fence: Arc::new(Fence::at(&layout)),
            layout,
            me: settings.me,
            hlc: Arc::new(Hlc::resume(last, engine.hlc_floor(), wall_ms)),
            walls: Arc::new(Walls::new(settings.me, topology.members().len())),
            peers: topology
                .members()
                .iter()
                .map(|_| PeerGauges::default())
                .collect(),
            secret: settings
                .secret
                .as_ref()
                .map(|secret| secret.expose().into()),
            node: identity.node,
            boot: starts,
            // Zero stands for "not known".
            life: u64::from_le_bytes(life).max(1),
            clock: match durability {
                Durability::Sync => engine.hlc_floor().max(1),
                Durability::Os => 0,
            },
            origin: identity.origin,
            loops,
            hints: Arc::new(HintRoom::new(HINT_BYTES_MAX_DEFAULT)),
            comparisons: Arc::default(),
            compare_bytes_per_second: settings.compare_bytes_per_second,
            transport: settings.transport,
            sessions: Sessions::default(),
            unproven: Arc::default(),
            lives: (0..topology.len()).map(lives).collect(),
            membership: Mutex::new(membership),
            stage: watch::Sender::new(StartGate::Begun),
            news: members.iter().map(|_| watch::Sender::new(())).collect(),
            disowned: OnceLock::new(),
            topology,
        })
    }

    /// The number of the versions that loop `lane` makes.
    pub(crate) fn origin(&self, lane: usize) -> u32 {
        let lane = u32::try_from(lane).expect("loops are counted in eight bits");
        (self.origin << LANE_BITS) | lane
    }

    /// MemberEvent loops of this member.
    pub(crate) fn loops(&self) -> u16 {
        self.loops
    }

    /// The url of a member.
    pub(crate) fn url(&self, member: MemberIndex) -> &str {
        &self.topology.member(member).url
    }

    /// The other members' urls and counters.
    pub(crate) fn others(&self) -> impl Iterator<Item = (&str, &PeerGauges)> {
        let me = self.me.at();
        let members = self.topology.members().iter().zip(&self.peers);
        members
            .enumerate()
            .filter(move |(index, _)| *index != me)
            .map(|(_, (member, gauges))| (member.url.as_str(), gauges))
    }

    /// The other members with their urls.
    pub(crate) fn other_members(&self) -> impl Iterator<Item = (MemberIndex, &str)> {
        (0..self.topology.len())
            .map(MemberIndex)
            .filter(|member| *member != self.me)
            .map(|member| (member, self.url(member)))
    }

    /// Why this process is not ready although others are: see [`Membership::shut_out`].
    pub(crate) fn shut_out(&self) -> Option<String> {
        self.membership().shut_out()
    }

    /// Why this node writes nothing, although others are there: its clock agrees with no majority.
    pub(crate) fn wrong_clock(&self) -> Option<String> {
        let standing = self.walls.standing(clock::now());
        standing.is_doubted.then(|| {
            let (far, known) = (standing.far, standing.far + standing.near - 1);
            let seconds = standing.ahead_ms.unsigned_abs() / 1_000;
            let way = match standing.ahead_ms > 0 {
                true => "ahead of",
                false => "behind",
            };
            format!(
                "wrong clock: {far} of {known} other members' clocks differ from this one's by more than a minute, which is {seconds} s {way} \
                 the nearest: set it right. Writes are refused here until then"
            )
        })
    }

    /// What this member says about itself on a link of `lane`.
    pub(crate) fn hello(&self, lane: usize, nonce: [u8; 16]) -> Hello {
        let description = self.topology.describe();
        Hello {
            version_min: VERSION_MIN,
            version_max: VERSION_MAX,
            cluster: self.topology.id(),
            cluster_name: self.topology.name().to_owned(),
            epoch: self.topology.epoch(),
            topology: self.topology.digest(),
            description: match description.len() {
                0..=hello::TEXT_BYTES_MAX => description,
                _ => String::new(),
            },
            node: self.node,
            origin: self.origin << LANE_BITS,
            boot: self.boot,
            life: self.life,
            clock: self.clock,
            url: self.url(self.me).to_owned(),
            lane: u16::try_from(lane).expect("loops are counted in eight bits"),
            loops: self.loops,
            has_secret: self.secret.is_some(),
            nonce: Nonce(nonce),
        }
    }

    /// Which member says `theirs`, and is it of this cluster as this node knows it? The hello is not
    /// proven yet, so nothing is asked about the member itself.
    pub(crate) fn judge_hello(
        &self,
        own: &Hello,
        theirs: &Hello,
    ) -> Result<(MemberIndex, Peer), Refusal> {
        hello::judge(own, theirs, |other| self.topology.difference(other))?;
        let (us, them) = (&own.url, &theirs.url);
        let member = self.membership().other_at(them).ok_or_else(|| {
            Refusal::new(
                403,
                "not-a-member",
                format!("{us} knows no other member {them} in its topology"),
            )
        })?;
        let claim = Peer {
            node: theirs.node,
            boot: theirs.boot,
            life: theirs.life,
            clock: theirs.clock,
        };
        Ok((member, claim))
    }

    fn membership(&self) -> MutexGuard<'_, Membership> {
        self.membership.lock().expect("no holder panics")
    }

    /// Tells the membership machine an event, on an event loop.
    pub(super) fn tell(&self, lane: usize, event: MemberEvent) -> Told {
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
        Told { effects, version }
    }

    /// When the machine wants a `Tick`.
    pub(super) fn due_us(&self) -> Option<u64> {
        self.membership().due_us()
    }

    /// Would the process that makes this claim be admitted?
    pub(crate) fn admit(&self, member: MemberIndex, claim: Peer) -> Result<(), Refusal> {
        let mut told = self.tell(0, MemberEvent::Hailed { member, claim });
        match told.effects.pop() {
            Some(MemberEffect::Welcome) => Ok(()),
            Some(MemberEffect::Reject(rejected)) => {
                count(&self.peers[member.at()].strangers);
                Err(Refusal::new(409, rejected.code, rejected.sentence))
            }
            other => unreachable!("a hail leads to {other:?}"),
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

    /// The proof that this member knows the secret, if there is one.
    pub(crate) fn prove(&self, role: Role, asker: &str, acceptor: &str) -> Proof {
        Proof::new(self.secret(), role, asker, acceptor)
    }

    /// Does `proof` show that the other side knows it, too?
    pub(crate) fn check(&self, proof: &Proof, role: Role, asker: &str, acceptor: &str) -> bool {
        proof.holds(self.secret(), role, asker, acceptor)
    }

    /// What the frames of a handshake are authenticated with.
    pub(crate) fn keys(&self, asker: &str, acceptor: &str) -> SessionKeys {
        SessionKeys::new(self.secret.as_deref(), asker, acceptor)
    }

    fn secret(&self) -> &[u8] {
        self.secret.as_deref().unwrap_or_default()
    }
}
