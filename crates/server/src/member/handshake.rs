//! The asker's half of a handshake, in whichever way its bytes go.
//!
//! ```text
//! call    ─► own hello ─► their hello ─► recognise ─► proof, hail ─► their answer ─► welcomed
//!            HelloWay::hello                               HelloWay::hail
//! ```
//!
//! Invariants
//! 1. A member is recognised before it gets a proof.
//! 2. Before the other side has proven itself, no word of it ends this node.
//!
//! Not here: the two ways (`peers/frame_link.rs`, `peers/http_link.rs`), the other half
//! (`peers/accept.rs`, `peers/hop.rs`), the meaning of a failed handshake (crate `ownership`,
//! `membership/`).
//! See: docs/peer.md, section "Handshake".

use super::cluster::Cluster;
use super::epochs::host_of;
use super::secrets::Hellos;
use crate::limits;
use crate::random::random;
use crate::tls::{ByteStream, Tls};
use bytes::Bytes;
use dendra_base::ClusterVersions;
use dendra_ownership::MemberIndex;
use dendra_ownership::membership::identity::Peer;
use dendra_ownership::membership::{Maker, NoLink};
use dendra_wire::peer::{self, Hello, Malformed, Message, Proof, Seal, SessionKeys};
use tokio::net::TcpStream;

/// How the bytes of a handshake go.
pub(crate) trait HelloWay {
    /// Sends the own hello; gives the hello of the other side.
    async fn hello(&mut self, own: &Hello, own_line: &str) -> Result<String, NoLink>;

    /// Proves this member, and asks whether the other one would let it in.
    async fn hail(&mut self, own: &Hello, recognised: &Recognised) -> Result<Hailed, Unwelcome>;

    /// Begins anew, on another connection.
    async fn again(&mut self, cluster: &Cluster) -> Result<(), NoLink>;
}

/// Why a member gave no welcome.
pub(crate) enum Unwelcome {
    /// The other side does not know the secret that was proven. It may know another one that is
    /// valid here.
    OtherSecret(NoLink),
    Other(NoLink),
}

impl Unwelcome {
    fn into_reason(self) -> NoLink {
        match self {
            Unwelcome::OtherSecret(why) | Unwelcome::Other(why) => why,
        }
    }
}

impl<T: Into<NoLink>> From<T> for Unwelcome {
    fn from(why: T) -> Unwelcome {
        Unwelcome::Other(why.into())
    }
}

/// The answer to a hail.
pub(crate) struct Hailed {
    pub(crate) frame: Bytes,
    /// The frame, checked with the keys of the handshake.
    pub(crate) said: Result<Message, Malformed>,
}

/// The first half of a handshake, with one valid secret after the other: a member that would let
/// this one in, and is let in. It writes no note about this one before it is probed.
pub(crate) async fn shake_hands(
    cluster: &Cluster,
    lane: usize,
    member: MemberIndex,
    way: &mut impl HelloWay,
) -> Result<Recognised, NoLink> {
    let mut at = 0;
    loop {
        match shake_hands_with(cluster, (lane, member), at, way).await {
            Ok(recognised) => return Ok(recognised),
            Err(Unwelcome::OtherSecret(_)) if at + 1 < cluster.links.secrets.count() => {
                at += 1;
                way.again(cluster).await?;
            }
            Err(why) => return Err(why.into_reason()),
        }
    }
}

/// With the secret number `at`.
async fn shake_hands_with(
    cluster: &Cluster,
    (lane, member): (usize, MemberIndex),
    at: usize,
    way: &mut impl HelloWay,
) -> Result<Recognised, Unwelcome> {
    let nonce = random().map_err(|error| format!("no randomness: {error}"))?;
    let own = cluster.hello(lane, nonce);
    let own_line = own.to_string();
    let line = way.hello(&own, &own_line).await?;
    let hellos = Hellos {
        asker: &own_line,
        acceptor: &line,
    };
    let recognised = recognise(cluster, member, &own, hellos, at);
    let recognised = recognised?;
    let hailed = way.hail(&own, &recognised).await?;
    welcomed(cluster, member, hailed)?;
    Ok(recognised)
}

/// A connection to a member where it is, or where it was before it moved, and the host and port of
/// the other side.
pub(crate) async fn call(
    cluster: &Cluster,
    member: MemberIndex,
) -> Result<(String, ByteStream), String> {
    let host = host_of(&cluster.url(member)).to_owned();
    let Some(former) = cluster.epochs.former_url(member) else {
        let stream = connect(cluster, &host).await?;
        return Ok((host, stream));
    };
    let first = tokio::time::timeout(limits::LINK_OPEN_TIMEOUT / 2, connect(cluster, &host)).await;
    let why = match first {
        Ok(Ok(stream)) => return Ok((host, stream)),
        Ok(Err(why)) => why,
        Err(_) => "it did not answer in time".to_owned(),
    };
    let former = host_of(&former).to_owned();
    match connect(cluster, &former).await {
        Ok(stream) => Ok((former, stream)),
        Err(_) => Err(why),
    }
}

/// A connection to this host and port of a member, sealed where links are.
pub(crate) async fn connect(cluster: &Cluster, host: &str) -> Result<ByteStream, String> {
    connect_with(cluster.links.tls.as_deref(), host).await
}

/// Connects a process that is no member yet.
pub(crate) async fn connect_with(tls: Option<&Tls>, host: &str) -> Result<ByteStream, String> {
    let stream = TcpStream::connect(host).await;
    let stream = stream.map_err(|error| error.to_string())?;
    stream
        .set_nodelay(true)
        .map_err(|error| error.to_string())?;
    match tls {
        None => Ok(ByteStream::Clear(stream)),
        Some(tls) => tls.seal(stream, host).await,
    }
}

/// The content of a member's hello, our proof for it, and the seals that check its frames.
pub(crate) struct Recognised {
    pub(crate) claim: Peer,
    pub(crate) versions: ClusterVersions,
    pub(crate) loops: u16,
    pub(crate) proof: Proof,
    pub(crate) keys: SessionKeys,
}

/// Is the acceptor's hello that of the member which is meant, and is that one let in here? The
/// proof is of the secret number `at`.
fn recognise(
    cluster: &Cluster,
    member: MemberIndex,
    own: &Hello,
    hellos: Hellos<'_>,
    at: usize,
) -> Result<Recognised, NoLink> {
    let not_admitted = NoLink::NotAdmitted;
    let url = cluster.url(member);
    let theirs = Hello::parse(hellos.acceptor.as_bytes())
        .map_err(|field| format!("its hello cannot be read: {field} is missing or wrong"))
        .map_err(not_admitted)?;
    let judged = cluster.judge_hello(own, &theirs);
    let (found, claim) = judged.map_err(|refusal| match refusal.status {
        // This member learns the other one's epoch first.
        503 => NoLink::ForNow(refusal.message.into_owned()),
        _ => NoLink::NotAdmitted(refusal.to_string()),
    })?;
    if found.member() != Some(member) {
        let them = &theirs.url;
        let why = format!("{them} answers at {url}, with another folder");
        return Err(not_admitted(why));
    }
    let admitted = cluster.admit(member, claim);
    admitted.map_err(|rejected| not_admitted(rejected.to_string()))?;
    let proven = cluster.links.secrets.prove(at, hellos);
    let (proof, keys) = proven.ok_or("the secret was changed meanwhile")?;
    Ok(Recognised {
        claim,
        versions: theirs.versions(),
        loops: theirs.loops,
        proof,
        keys,
    })
}

/// Reads the answer to a hail.
fn welcomed(cluster: &Cluster, member: MemberIndex, hailed: Hailed) -> Result<(), Unwelcome> {
    let url = cluster.url(member);
    let farewell =
        |said: &str, maker| NoLink::of_farewell(&url, said, maker, cluster.topology().epoch());
    match hailed.said {
        Ok(Message::Welcome) => Ok(()),
        Ok(Message::Farewell(said)) => Err(farewell(&said, Maker::Member).into()),
        Ok(_) => Err("its answer to a hail is none".into()),
        // Without the keys of the handshake.
        Err(malformed) => Err(Unwelcome::OtherSecret(
            match peer::decode(&hailed.frame, &mut Seal::plain()) {
                Ok(Message::Farewell(said)) => farewell(&said, Maker::Anyone),
                _ => NoLink::NotAdmitted(format!(
                    "cluster-secret: {url} does not know the secret that {} knows ({malformed}): \
                     start both with the same --cluster-secret-file",
                    cluster.own_url()
                )),
            },
        )),
    }
}
