//! A process without a cluster asks a member to let it in, until the newest epoch names it.
//!
//! ```text
//! joiner                                                               any member
//!   POST /v0/peer/hello, Dendra-Peer: <hello; joins=yes> ─────────────────►
//!   ◄───────────────────────────────────────────── 200, Dendra-Peer: <hello>
//!   POST /v0/peer/ask, Dendra-Peer-Proof: <token>, body: | Enrol | ───────►
//!   ◄───────────────────────── 200, body: | Enrolment |: Enrolled, Wait, Refused
//! ```
//!
//! Invariants
//! 1. Each question has a handshake of its own: the member proves with its answer that it knows the
//!    secret.
//! 2. A member that does not answer, or says that the joiner has to wait, is asked again.
//!
//! Not here: whether the process may come in (crate `ownership`, `steward/`), noting that it did
//! (`disk/notes.rs`).
//! See: docs/peer.md, section "Joining".

use super::carrier::Carrier;
use super::handshake::connect_with;
use super::secrets::{Hellos, Secrets};
use crate::limits;
use crate::random::random;
use crate::settings::{ClusterSettings, JoinSettings};
use crate::tls::Tls;
use dendra_engine::Identity;
use dendra_ownership::Member;
use dendra_ownership::epoch::record::EpochRecord;
use dendra_ownership::ring::table::MemberId;
use dendra_ownership::steward::messages::{EnrolAnswer, EnrolRequest};
use dendra_wire::peer::hello::{self, VERSION_MAX, VERSION_MIN};
use dendra_wire::peer::{self, Hello, Message, Nonce, Role, hop};
use std::sync::Arc;

/// The answer to a process that was let in.
#[derive(Debug)]
pub(crate) struct Enrolled {
    pub(crate) member: MemberId,
    pub(crate) record: Arc<EpochRecord>,
    /// The topology that the cluster was founded with, in a line, or its digest.
    pub(crate) founding: String,
}

const NO_MEMBER: &str = "no member answers there: give --join the address where one serves \
                         clients, and not its admin port";

/// Why a question led to no enrolment.
enum NotEnrolled {
    /// Asked again, after a pause.
    Yet(String),
    /// Something has to be changed first.
    Refused(String),
    /// The member does not know the secret that was proven.
    OtherSecret(String),
}

impl From<String> for NotEnrolled {
    fn from(why: String) -> NotEnrolled {
        NotEnrolled::Yet(why)
    }
}

/// Asks until the process is a member, or is refused.
///
/// # Errors
/// The sentence of the refusal.
pub(crate) async fn join(
    cluster: &ClusterSettings,
    join: &JoinSettings,
    identity: Identity,
    tls: Option<&Tls>,
) -> Result<Enrolled, String> {
    let mut said = String::new();
    let secrets = Secrets::new(cluster);
    let mut at = 0;
    loop {
        let asking = ask(cluster, join, identity, tls, (&secrets, at));
        let asked = tokio::time::timeout(limits::JOIN_ASK_TIMEOUT, asking).await;
        let asked = asked.unwrap_or_else(|_| Err("it does not answer in time".to_owned().into()));
        match asked {
            Ok(enrolled) => return Ok(enrolled),
            // Two are valid while the secret is changed.
            Err(NotEnrolled::OtherSecret(_)) if at + 1 < secrets.count() => {
                at += 1;
                continue;
            }
            Err(NotEnrolled::Refused(why) | NotEnrolled::OtherSecret(why)) => {
                return Err(format!(
                    "{} does not let {} in: {why}",
                    join.host,
                    cluster.member().url
                ));
            }
            Err(NotEnrolled::Yet(why)) if why != said => {
                tracing::warn!(host = join.host, why, "this node waits to be let in");
                said = why;
            }
            Err(NotEnrolled::Yet(_)) => {}
        }
        tokio::time::sleep(limits::LINK_PAUSE_MAX).await;
    }
}

async fn ask(
    cluster: &ClusterSettings,
    join: &JoinSettings,
    identity: Identity,
    tls: Option<&Tls>,
    (secrets, at): (&Secrets, usize),
) -> Result<Enrolled, NotEnrolled> {
    let own = own_hello(cluster, identity)?;
    let (own_line, host) = (own.to_string(), join.host.as_str());
    let mut carrier = Carrier::new(connect_with(tls, host).await?);
    hop::hello_request(&mut carrier.out, host, &own.url, &own_line);
    let met = carrier.exchange().await?;
    match met.status {
        200 => {}
        // It starts, stops, or has no time.
        503 => return Err(NotEnrolled::Yet(met.said())),
        404 => return Err(NotEnrolled::Refused(NO_MEMBER.to_owned())),
        status => {
            let said = met.said();
            return Err(NotEnrolled::Refused(format!(
                "it answered {status}: {said}"
            )));
        }
    }
    let Some(line) = met.hello.as_deref() else {
        return Err(NotEnrolled::Refused(NO_MEMBER.to_owned()));
    };
    let other_release =
        |why: String| NotEnrolled::Refused(format!("{why}: start both with releases that agree"));
    let theirs = Hello::parse(line.as_bytes()).map_err(|field| {
        other_release(format!(
            "its hello cannot be read, {field} is missing or wrong"
        ))
    })?;
    hello::agree(&own, &theirs, |_| None)
        .map_err(|refusal| NotEnrolled::Refused(refusal.to_string()))?;
    let hellos = Hellos {
        asker: &own_line,
        acceptor: line,
    };
    let proven = secrets.prove(at, hellos);
    let (proof, keys) = proven.expect("a try of a secret that there is");
    if !met.keeps_alive {
        carrier = Carrier::new(connect_with(tls, host).await?);
    }
    let mut frame = Vec::new();
    let request = request(cluster, join, identity);
    peer::encode_enrol(
        &mut frame,
        &mut keys.of_requests(Role::Asker),
        &request.encode(),
    );
    let head = hop::AskHead::new(host, &own.url, &proof);
    let answer = carrier.carry(&head, &frame).await?;
    match answer.status {
        200 => {}
        403 => {
            return Err(NotEnrolled::OtherSecret(format!(
                "it does not know the secret that this node knows: start both with the same --cluster-secret-file ({})",
                answer.said()
            )));
        }
        status => return Err(format!("it answered {status}: {}", answer.said()).into()),
    }
    let message = peer::decode(&answer.body, &mut keys.of_requests(Role::Acceptor));
    let Ok(Message::Enrolment(body)) = message else {
        return Err(NotEnrolled::Refused(
            "its answer is not authenticated: start both with the same --cluster-secret-file"
                .to_owned(),
        ));
    };
    let founding = if theirs.description.is_empty() {
        format!("digest={:016x}", theirs.topology)
    } else {
        theirs.description
    };
    let enrolment = EnrolAnswer::decode(&body)
        .map_err(|part| other_release(format!("its answer cannot be read, {part}")))?;
    match enrolment {
        EnrolAnswer::Enrolled { member, record } => Ok(Enrolled {
            member,
            record,
            founding,
        }),
        EnrolAnswer::Wait { why } => Err(NotEnrolled::Yet(why)),
        EnrolAnswer::Refused { why } => Err(NotEnrolled::Refused(why)),
    }
}

fn request(cluster: &ClusterSettings, join: &JoinSettings, identity: Identity) -> EnrolRequest {
    let name = cluster.topology.name();
    EnrolRequest {
        cluster: if cluster.is_named { name } else { "" }.to_owned(),
        node: identity.node,
        place: Member::clone(cluster.member()),
        replaces: join.replaces.clone(),
    }
}

fn own_hello(cluster: &ClusterSettings, identity: Identity) -> Result<Hello, String> {
    let nonce = random().map_err(|error| format!("no randomness from the system: {error}"))?;
    Ok(Hello {
        version_min: VERSION_MIN,
        version_max: VERSION_MAX,
        cluster: 0,
        cluster_name: String::new(),
        epoch: 0,
        topology: 0,
        description: String::new(),
        node: identity.node,
        origin: super::cluster::origin_of(identity),
        boot: 0,
        life: 0,
        clock: 0,
        url: cluster.member().url.clone(),
        lane: 0,
        loops: 1,
        has_secret: cluster.secret.is_some(),
        nonce: Nonce(nonce),
        joins: true,
    })
}
