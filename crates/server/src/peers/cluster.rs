//! What all event loops of a member share: the topology, the clock, the identity, and counters.
//!
//! ```text
//! ClusterSettings + engine identity ─► Cluster ─► hello(lane), judge_hello ─► which member ─ proof ─► admit ─► or why not
//! ```
//!
//! Invariants
//! 1. The number of a version's maker names this node and one of its loops: 24 bits of the node's
//!    origin, 8 bits of the loop. Two members with equal 24 bits do not talk.
//! 2. A member shows the node id that it showed first and never a lower number of starts; both are
//!    durable here before it counts. Nor does it come back with less than it confirmed: that is noted every second
//!    while it rises, when the last link to it is lost, and at a stop; no answer waits for it.
//! 3. A member is one process: as long as links to one are up, another one is not let in, whatever it shows; and what
//!    comes from an earlier one is dropped.
//!
//! Not here: the order of the handshake (`link.rs`, `accept.rs`), its bytes (crate `wire`).
//! See: docs/peer.md, section "Handshake".

use super::disowned::Disowned;
use super::session::Sessions;
use super::tries::Tries;
use super::unproven::UnprovenGauges;
use crate::clock::{self, Tick};
use crate::settings::{ClusterSettings, PeerTransport};
use dendra_base::{Key, Space, Version};
use dendra_engine::vfs::Wait;
use dendra_engine::{Durability, Engine, Lookup};
use dendra_node::acquaintance::Acquaintance;
use dendra_node::hints::HintRoom;
use dendra_node::identity::{Peer, Verdict, peer_key};
use dendra_node::limits::HINT_BYTES_MAX_DEFAULT;
use dendra_node::{Hlc, MemberIndex, Ring, Topology, Walls};
use dendra_wire::Refusal;
use dendra_wire::peer::hello::{self, VERSION_MAX, VERSION_MIN};
use dendra_wire::peer::{Hello, Nonce, Proof, Role, SessionKeys};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

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
    pub(crate) ring: Arc<Ring>,
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
    /// How the own questions travel.
    pub(crate) transport: PeerTransport,
    /// Of peers whose questions come over plain HTTP.
    pub(crate) sessions: Sessions,
    /// Links whose asker has not proven itself.
    pub(crate) unproven: Arc<UnprovenGauges>,
    /// To open the own links.
    pub(super) tries: Arc<Tries>,
    /// By member.
    known: Mutex<Vec<Acquaintance>>,
    /// The life of each member that was met last, as in `known`.
    lives: Vec<AtomicU64>,
    /// By member: why one of the two does not let the other in.
    shut_out: Mutex<Vec<Option<String>>>,
    /// Why another member does not let this folder in.
    pub(crate) disowned: OnceLock<Disowned>,
}

/// The code word for a process whose member seems to be there already.
pub(super) const STILL_THERE: &str = "still-there";

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

/// What a note says of the member at `url`.
fn remembered(engine: &Engine, url: &str) -> Result<Option<Peer>, String> {
    let key = note_key(url);
    let found = engine.get(key.as_stored(), Wait::Block, |cell| {
        cell.is_intact(key.as_stored())
            .then(|| Peer::decode(cell.value))
            .flatten()
    });
    match found.map_err(|error| error.to_string())? {
        Lookup::Cell(Some(peer)) => Ok(Some(peer)),
        Lookup::Cell(None) => Err(format!(
            "the note about {url} is damaged or of another release; run `dendra check` on the folder and restore it from a copy"
        )),
        Lookup::Nothing => Ok(None),
        Lookup::WouldBlock => unreachable!("a read that may wait does not give up"),
    }
}

/// Where the note about the member at `url` is.
pub(crate) fn note_key(url: &str) -> Key {
    Key::new(Space::Meta, &peer_key(url))
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
        let known: Vec<Acquaintance> = topology
            .members()
            .iter()
            .map(|member| remembered(engine, &member.url).map(Acquaintance::of_note))
            .collect::<Result<_, String>>()?;
        let life = random().map_err(|error| format!("no randomness from the system: {error}"))?;
        Ok(Cluster {
            ring: Arc::new(Ring::new(&topology)),
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
            loops: u16::try_from(loops).expect("loops are counted in eight bits"),
            hints: Arc::new(HintRoom::new(HINT_BYTES_MAX_DEFAULT)),
            transport: settings.transport,
            sessions: Sessions::default(),
            unproven: Arc::default(),
            tries: Tries::new(topology.members().len(), loops),
            lives: known.iter().map(|met| met.life().into()).collect(),
            shut_out: Mutex::new(vec![None; known.len()]),
            known: Mutex::new(known),
            disowned: OnceLock::new(),
            topology,
        })
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

    /// Notes whether the last try to open a link to `member` failed because one of the two does not let the other in.
    pub(super) fn set_shut_out(&self, member: MemberIndex, why: Option<&str>) {
        let mut shut_out = self.shut_out.lock().expect("no holder panics");
        shut_out[member.at()] = why.map(str::to_owned);
    }

    /// Why this node is of no use although others are there: it is not linked to a majority, and one that answers does
    /// not let it in, or is not let in. Whoever finds nobody at all may be the first to start.
    pub(crate) fn shut_out(&self) -> Option<String> {
        let links = self.others().map(|(_, gauges)| &gauges.links);
        let linked = links.filter(|links| links.load(Ordering::Relaxed) > 0);
        if 1 + linked.count() > self.topology.members().len() / 2 {
            return None;
        }
        let shut_out = self.shut_out.lock().expect("no holder panics");
        let found = self
            .other_members()
            .find_map(|(member, url)| Some((url, shut_out[member.at()].as_ref()?)));
        found.map(|(url, why)| format!("shut out: no link to {url}: {why}"))
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

    /// Which member says `theirs`, and is it of this cluster as this node knows it? Nothing is asked about the member
    /// itself: the hello is not proven yet.
    pub(crate) fn judge_hello(
        &self,
        own: &Hello,
        theirs: &Hello,
    ) -> Result<(MemberIndex, Peer), Refusal> {
        hello::judge(own, theirs, |other| self.topology.difference(other))?;
        let (us, them) = (&own.url, &theirs.url);
        let member = self.topology.index_of(them).filter(|&m| m != self.me);
        let member = member.ok_or_else(|| {
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

    /// May the program that makes this claim be the member?
    pub(crate) fn admit(&self, member: MemberIndex, claim: Peer) -> Result<(), Refusal> {
        let (us, them) = (self.url(self.me), self.url(member));
        if self.is_another(member, claim) {
            count(&self.peers[member.at()].strangers);
            let sentence = format!(
                "{us} has links to another process that is {them}: two must not be one member; when that one has ended, this one is let in"
            );
            return Err(Refusal::new(409, STILL_THERE, sentence));
        }
        match self.judge(member, claim) {
            Verdict::Known | Verdict::Learn(_) => Ok(()),
            Verdict::Refuse(reason) => {
                count(&self.peers[member.at()].strangers);
                Err(Refusal::new(409, reason.code(), reason.to_string()))
            }
        }
    }

    /// Is the member that makes this claim the one that is known?
    fn judge(&self, member: MemberIndex, claim: Peer) -> Verdict {
        let url = self.url(member);
        self.with_known(member, |met| met.judge(url, claim))
    }

    /// As `judge`; of two processes that make news at once only one goes on.
    pub(crate) fn claim(&self, member: MemberIndex, claim: Peer) -> Verdict {
        let url = self.url(member);
        self.with_known(member, |met| met.claim(url, claim))
    }

    fn with_known<R>(&self, member: MemberIndex, act: impl FnOnce(&mut Acquaintance) -> R) -> R {
        let mut known = self.known.lock().expect("no holder panics");
        act(&mut known[member.at()])
    }

    /// Remembers a member. Requires: it was claimed, and its note is durable.
    pub(crate) fn remember(&self, member: MemberIndex, peer: Peer) {
        self.with_known(member, |met| {
            if met.remember(peer) {
                self.lives[member.at()].store(peer.life, Ordering::Release);
            }
        });
    }

    /// Is `life` the one in which the member was met last?
    pub(crate) fn is_current(&self, member: MemberIndex, life: u64) -> bool {
        self.lives[member.at()].load(Ordering::Acquire) == life
    }

    /// Are there links to another process than the one that makes this claim?
    fn is_another(&self, member: MemberIndex, claim: Peer) -> bool {
        self.with_known(member, |met| met.is_linked_to_another(claim))
    }

    /// An own link to the member is up, and this is what it said about itself.
    pub(crate) fn linked(&self, member: MemberIndex, claim: Peer) {
        self.with_known(member, |met| met.linked(claim));
    }

    /// An own link to the member was lost; over it the member had confirmed writes with clock values up to `confirmed`.
    pub(crate) fn unlinked(&self, member: MemberIndex, confirmed: u64) {
        self.with_known(member, |met| met.unlinked(confirmed));
    }

    /// As [`Acquaintance::rose`], with the version for that note.
    pub(crate) fn rose(
        &self,
        member: MemberIndex,
        confirmed: u64,
        lane: usize,
        now: Tick,
    ) -> Option<(Peer, Version)> {
        let now_us = now.monotonic_ns / 1_000;
        self.with_known(member, |met| {
            let news = met.rose(confirmed, now_us)?;
            Some((news, self.note_version(lane, now.wall_ms())))
        })
    }

    /// What is known of other members and is not in their notes, at a stop: no loop works any more.
    pub(crate) fn unnoted_at_stop(&self) -> Vec<(MemberIndex, Peer)> {
        let known = self.known.lock().expect("no holder panics");
        let of = |(at, met): (usize, &Acquaintance)| {
            let noted = met.unnoted_at_stop()?;
            Some((MemberIndex(u8::try_from(at).ok()?), noted))
        };
        known.iter().enumerate().filter_map(of).collect()
    }

    /// What is known of a member that has gone and is not in its note, with the version for that note. Whoever comes
    /// in its place has the later one.
    pub(crate) fn unnoted(
        &self,
        member: MemberIndex,
        lane: usize,
        wall_ms: u64,
    ) -> Option<(Peer, Version)> {
        self.with_known(member, |met| {
            let news = met.unnoted()?;
            Some((news, self.note_version(lane, wall_ms)))
        })
    }

    /// The note of `unnoted` is in the log.
    pub(crate) fn noted(&self, member: MemberIndex, peer: Peer) {
        self.with_known(member, |met| met.noted(peer));
    }

    /// The version of a note that loop `lane` writes.
    pub(crate) fn note_version(&self, lane: usize, wall_ms: u64) -> Version {
        Version {
            hlc: self.hlc.tick(wall_ms),
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
