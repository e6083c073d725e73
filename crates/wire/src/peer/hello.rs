//! Hellos: the speaker, its cluster, and whether the two may talk.
//!
//! ```text
//! Dendra-Peer: versions=1-1; cluster=<16 hex>; name=<pct>; epoch=<n>; topology=<16 hex>; shape=<pct>;
//!              node=<32 hex>; origin=<n>; boot=<n>; life=<16 hex>; clock=<n>; url=<pct>; lane=<n>; loops=<n>; secret=yes;
//!              nonce=<32 hex>[; joins=yes]
//! agree(own, theirs) ─► the version to speak, or a refusal that names both sides
//! ```
//!
//! Invariants
//! 1. A hello is one line of printable ASCII, at most `PEER_HELLO_BYTES_MAX` bytes.
//! 2. Fields that this version does not know are skipped; a field that it needs and that is
//!    missing, broken or repeated makes the hello unreadable.
//! 3. `judge` gives the same verdict on both sides, except for whose name comes first.
//!
//! Not here: whether that node is a member, and the one that was there before (crate `server`,
//! which knows the topology). Nor is the proof of the secret (`proof.rs`).
//! See: docs/peer.md, section "Handshake".

use super::proof::{Nonce, unhex};
use crate::limits::PEER_HELLO_BYTES_MAX;
use crate::percent;
use crate::refusal::Refusal;
use dendra_base::{ClusterVersion, ClusterVersions};
use std::fmt;

/// The oldest version of a cluster, and so of the frames, that this program knows.
pub const VERSION_MIN: u16 = ClusterVersions::OWN.oldest.0;
/// The newest one.
pub const VERSION_MAX: u16 = ClusterVersions::OWN.newest.0;

/// A member's claim when a link begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The oldest version that it speaks: not before the one in force in its cluster.
    pub version_min: u16,
    /// The newest version that it speaks.
    pub version_max: u16,
    /// The cluster's id.
    pub cluster: u64,
    /// The cluster's name, for people.
    pub cluster_name: String,
    /// Newest epoch that is durable at the sender.
    pub epoch: u64,
    /// Digest of the topology that the cluster was founded with: members, partitions, replication
    /// factor.
    pub topology: u64,
    /// Founding topology in a line, for a sentence on the difference; empty when it is long.
    pub description: String,
    /// The node's id, made when its folder was.
    pub node: u128,
    /// The number by which versions name it: no two members may have one.
    pub origin: u32,
    /// How often the node has started.
    pub boot: u64,
    /// Drawn at random at this start.
    pub life: u64,
    /// Where the clock of its folder ended at this start; 0 = the folder may have lost confirmed
    /// writes.
    pub clock: u64,
    /// The url under which the topology names the member.
    pub url: String,
    /// The event loop whose link it is.
    pub lane: u16,
    /// How many event loops it has.
    pub loops: u16,
    /// Was a cluster secret configured?
    pub has_secret: bool,
    /// Fresh for this handshake.
    pub nonce: Nonce,
    /// Does it want to become a member? Then it belongs to no cluster yet.
    pub joins: bool,
}

impl fmt::Display for Hello {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "versions={}-{}; cluster={:016x}; name={}; epoch={}; topology={:016x}; shape={}; \
             node={:032x}; origin={}; boot={}; life={:016x}; clock={}; url={}; lane={}; loops={}; secret={}; \
             nonce={}{}",
            self.version_min,
            self.version_max,
            self.cluster,
            percent::encode(self.cluster_name.as_bytes()),
            self.epoch,
            self.topology,
            percent::encode(self.description.as_bytes()),
            self.node,
            self.origin,
            self.boot,
            self.life,
            self.clock,
            percent::encode(self.url.as_bytes()),
            self.lane,
            self.loops,
            if self.has_secret { "yes" } else { "no" },
            self.nonce,
            if self.joins { "; joins=yes" } else { "" },
        )
    }
}

/// Texts inside a hello, percent-decoded.
pub const TEXT_BYTES_MAX: usize = 4096;

impl Hello {
    /// The versions that its maker speaks.
    pub fn versions(&self) -> ClusterVersions {
        ClusterVersions {
            oldest: ClusterVersion(self.version_min),
            newest: ClusterVersion(self.version_max),
        }
    }

    /// Reads the form that `Display` writes.
    ///
    /// # Errors
    /// The name of the field that is missing, broken or repeated.
    pub fn parse(line: &[u8]) -> Result<Hello, &'static str> {
        if line.len() > PEER_HELLO_BYTES_MAX {
            return Err("the length");
        }
        let field = |name: &'static str| {
            let mut found = line
                .split(|&b| b == b';')
                .map(<[u8]>::trim_ascii)
                .filter_map(|part| part.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
            match (found.next(), found.next()) {
                (Some(value), None) => Ok(value),
                _ => Err(name),
            }
        };
        let number = |name: &'static str| crate::http::request::digits(field(name)?).ok_or(name);
        let short = |name: &'static str| u16::try_from(number(name)?).map_err(|_| name);
        let hex = |name: &'static str| {
            Ok::<_, &'static str>(u64::from_be_bytes(unhex(field(name)?).ok_or(name)?))
        };
        let text = |name: &'static str| {
            let mut room = [0; TEXT_BYTES_MAX];
            let len = percent::decode_into(field(name)?, &mut room).map_err(|_| name)?;
            let text = std::str::from_utf8(&room[..len]).map_err(|_| name)?;
            Ok::<_, &'static str>(text.to_owned())
        };
        let (version_min, version_max) = versions(field("versions")?).ok_or("versions")?;
        Ok(Hello {
            version_min,
            version_max,
            cluster: hex("cluster")?,
            cluster_name: text("name")?,
            epoch: number("epoch")?,
            topology: hex("topology")?,
            description: text("shape")?,
            node: u128::from_be_bytes(unhex(field("node")?).ok_or("node")?),
            origin: u32::try_from(number("origin")?).map_err(|_| "origin")?,
            boot: number("boot")?,
            life: hex("life")?,
            clock: number("clock")?,
            url: text("url")?,
            lane: short("lane")?,
            loops: short("loops")?,
            has_secret: match field("secret")? {
                b"yes" => true,
                b"no" => false,
                _ => return Err("secret"),
            },
            nonce: Nonce(unhex(field("nonce")?).ok_or("nonce")?),
            joins: field("joins") == Ok(b"yes"),
        })
    }
}

fn versions(text: &[u8]) -> Option<(u16, u16)> {
    let dash = text.iter().position(|&b| b == b'-')?;
    let number = |digits: &[u8]| u16::try_from(crate::http::request::digits(digits)?).ok();
    let (min, max) = (number(&text[..dash])?, number(&text[dash + 1..])?);
    (min <= max).then_some((min, max))
}

/// May `own` and `theirs` talk? Then the version that both speak. A joiner belongs to no cluster
/// yet. `difference` tells how the own topology differs from a description.
///
/// # Errors
/// A refusal for the asker, naming both sides.
pub fn agree(
    own: &Hello,
    theirs: &Hello,
    difference: impl FnOnce(&str) -> Option<String>,
) -> Result<u16, Refusal> {
    let refuse = |code, sentence| Err(Refusal::new(409, code, sentence));
    let (us, them) = (&own.url, &theirs.url);
    let version = own.version_max.min(theirs.version_max);
    if version < own.version_min.max(theirs.version_min) {
        let is_older = own.version_max < theirs.version_max;
        let older = if is_older { us } else { them };
        return refuse(
            "peer-version",
            format!(
                "{us} speaks peer version {}, {them} speaks {}: there is no common one. Start {older} with a later release \
                 (docs/operating.md, \"Upgrades\")",
                own.versions(),
                theirs.versions()
            ),
        );
    }
    let joins = own.joins || theirs.joins;
    let is_cluster = (own.cluster, &own.cluster_name) == (theirs.cluster, &theirs.cluster_name);
    if !joins && !is_cluster {
        return refuse(
            "other-cluster",
            format!(
                "{us} is of cluster `{}` ({:016x}), {them} is of cluster `{}` ({:016x})",
                own.cluster_name, own.cluster, theirs.cluster_name, theirs.cluster
            ),
        );
    }
    if !joins && own.topology != theirs.topology {
        let difference = difference(&theirs.description).unwrap_or_else(|| {
            format!(
                "its digest is {:016x} here, {:016x} there",
                own.topology, theirs.topology
            )
        });
        return refuse(
            "other-topology",
            format!(
                "{us} and {them} are not of one topology (here = {us}, there = {them}): {difference}; start all members with the same \
                 --cluster, --replication-factor and --partitions"
            ),
        );
    }
    let has = |hello: &Hello| {
        if hello.has_secret {
            "has one"
        } else {
            "has none"
        }
    };
    if own.has_secret != theirs.has_secret {
        return refuse(
            "cluster-secret",
            format!(
                "of a cluster secret {us} {} and {them} {}: start both with the same --cluster-secret-file",
                has(own),
                has(theirs)
            ),
        );
    }
    // A copy of the folder at the same url has another life.
    if (own.node, own.life, us) == (theirs.node, theirs.life, them) {
        return refuse(
            "same-node",
            format!(
                "{us} is who asks: this node answers there itself: check --listen and the list of --cluster"
            ),
        );
    }
    if own.node == theirs.node {
        return refuse(
            "same-node",
            format!(
                "{us} and {them} are both node {:032x}: one of the folders is a copy of the other",
                own.node
            ),
        );
    }
    if own.origin == theirs.origin {
        return refuse(
            "same-node",
            format!(
                "{us} and {them} have one origin, {:#x}: versions could not tell them apart; start one of them with an \
                 empty folder before it joins",
                own.origin
            ),
        );
    }
    Ok(version)
}

/// Appends the request that opens a link.
pub fn request(out: &mut Vec<u8>, host: &str, hello: &str) {
    out.extend_from_slice(
        format!(
            "GET /v0/peer HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: dendra-peer/1\r\n\
             Dendra-Peer: {hello}\r\n\r\n"
        )
        .as_bytes(),
    );
}

/// Appends the answer that turns the connection into a link.
pub fn accept(out: &mut Vec<u8>, hello: &str) {
    out.extend_from_slice(
        format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: dendra-peer/1\r\n\
             Dendra-Peer: {hello}\r\n\r\n"
        )
        .as_bytes(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Asked, ParsedAnswer, parse_answer};
    use crate::http::{Field, Limits, Parsed, parse_head};
    use proptest::prelude::*;

    fn hello() -> Hello {
        Hello {
            version_min: 1,
            version_max: 1,
            cluster: 0xc1,
            cluster_name: "main; or not".into(),
            epoch: 3,
            topology: 0x70,
            description: "cluster=main members=http://127.0.0.1:8080".into(),
            node: 0xa,
            origin: 0xa00,
            boot: 12,
            life: 0x11fe,
            clock: 0x0193_f2a8_c1d4_0000,
            url: "http://127.0.0.1:8080".into(),
            lane: 1,
            loops: 4,
            has_secret: true,
            nonce: Nonce([7; 16]),
            joins: false,
        }
    }

    fn other() -> Hello {
        Hello {
            node: 0xb,
            origin: 0xb00,
            url: "http://127.0.0.1:8081".into(),
            ..hello()
        }
    }

    #[test]
    fn a_hello_reads_back_and_later_fields_are_skipped() {
        let line = hello().to_string();
        assert_eq!(Hello::parse(line.as_bytes()), Ok(hello()));
        let later = format!("{line}; weather=fine");
        assert_eq!(Hello::parse(later.as_bytes()), Ok(hello()));
    }

    #[test]
    fn a_member_without_a_secret_says_so() {
        let without = Hello {
            has_secret: false,
            ..hello()
        };
        let line = without.to_string();
        assert!(line.contains("secret=no;"), "{line}");
        assert_eq!(Hello::parse(line.as_bytes()), Ok(without));
    }

    #[test]
    fn a_missing_broken_or_repeated_field_is_named() {
        let line = hello().to_string();
        let parse = |line: String| Hello::parse(line.as_bytes()).expect_err("unreadable");
        assert_eq!(parse(line.replace("boot=12", "boot=twelve")), "boot");
        assert_eq!(parse(line.replace("epoch=3; ", "")), "epoch");
        assert_eq!(parse(format!("{line}; lane=1")), "lane");
        assert_eq!(
            parse(line.replace("versions=1-1", "versions=2-1")),
            "versions"
        );
        assert_eq!(
            parse(line.replace("secret=yes", "secret=perhaps")),
            "secret"
        );
        assert_eq!(
            parse(format!("{line}{}", " ".repeat(PEER_HELLO_BYTES_MAX))),
            "the length"
        );
    }

    #[test]
    fn a_process_that_joins_is_of_no_cluster_yet() {
        let joiner = Hello {
            joins: true,
            cluster: 0,
            cluster_name: String::new(),
            topology: 0,
            ..other()
        };
        let line = joiner.to_string();
        assert_eq!(Hello::parse(line.as_bytes()).as_ref(), Ok(&joiner));
        assert_eq!(agree(&hello(), &joiner, none), Ok(1));
        assert_eq!(agree(&joiner, &hello(), none), Ok(1));
        let open = Hello {
            has_secret: false,
            ..joiner
        };
        let refusal = agree(&hello(), &open, none).expect_err("it has no secret");
        assert_eq!(refusal.code, "cluster-secret");
    }

    fn none(_: &str) -> Option<String> {
        None
    }

    #[test]
    fn what_differs_is_said_by_who_knows() {
        let theirs = Hello {
            topology: 1,
            ..other()
        };
        let refusal = agree(&hello(), &theirs, |line| Some(format!("not {line}")));
        let refusal = refusal.expect_err("another topology");
        assert!(refusal.message.contains("not cluster=main"), "{refusal}");
    }

    #[test]
    fn members_of_two_releases_use_what_both_know_and_the_older_one_is_named_if_there_is_none() {
        let knows = |hello: Hello, version_min, version_max| Hello {
            version_min,
            version_max,
            ..hello
        };
        let common = |own: (u16, u16), theirs: (u16, u16)| {
            let own = knows(hello(), own.0, own.1);
            agree(&own, &knows(other(), theirs.0, theirs.1), none)
        };
        for (own, theirs, version) in [
            ((4, 4), (4, 4), 4),
            ((4, 4), (4, 5), 4),
            ((4, 5), (4, 4), 4),
            ((4, 5), (4, 5), 5),
            // In a cluster at version 5.
            ((5, 5), (4, 5), 5),
            ((5, 6), (4, 5), 5),
        ] {
            assert_eq!(common(own, theirs), Ok(version), "{own:?} {theirs:?}");
        }
        for (own, theirs, older) in [
            ((4, 4), (3, 3), other()),
            ((4, 4), (5, 5), hello()),
            ((5, 5), (4, 4), other()),
            ((4, 4), (5, 6), hello()),
        ] {
            let refusal = common(own, theirs).expect_err("there is none");
            assert_eq!((refusal.status, refusal.code), (409, "peer-version"));
            let way_out = format!("Start {} with a later release", older.url);
            assert!(refusal.message.contains(&way_out), "{refusal}");
        }
    }

    #[test]
    fn members_of_one_cluster_may_talk() {
        assert_eq!(agree(&hello(), &other(), none), Ok(1));
    }

    #[test]
    fn whoever_does_not_belong_is_told_why_with_both_names() {
        let table = [
            (
                "peer-version",
                Hello {
                    version_min: 2,
                    version_max: 3,
                    ..other()
                },
            ),
            (
                "other-cluster",
                Hello {
                    cluster: 1,
                    ..other()
                },
            ),
            (
                "other-cluster",
                Hello {
                    cluster_name: "test".into(),
                    ..other()
                },
            ),
            (
                "other-topology",
                Hello {
                    topology: 1,
                    ..other()
                },
            ),
            (
                "cluster-secret",
                Hello {
                    has_secret: false,
                    ..other()
                },
            ),
            (
                "same-node",
                Hello {
                    node: 0xa,
                    ..other()
                },
            ),
            (
                "same-node",
                Hello {
                    origin: 0xa00,
                    ..other()
                },
            ),
        ];
        for (code, theirs) in table {
            let refusal = agree(&hello(), &theirs, none).expect_err(code);
            assert_eq!((refusal.code, refusal.status), (code, 409));
            assert!(
                refusal.message.contains("http://127.0.0.1:8080"),
                "{refusal}"
            );
            assert!(
                refusal.message.contains("http://127.0.0.1:8081"),
                "{refusal}"
            );
            let mirrored = agree(&theirs, &hello(), none).expect_err(code);
            assert_eq!(mirrored.code, code);
        }
    }

    #[test]
    fn a_node_that_reached_itself_is_told_so_and_not_of_a_copied_folder() {
        let refusal = agree(&hello(), &hello(), none).expect_err("itself");
        assert_eq!((refusal.code, refusal.status), ("same-node", 409));
        let wanted =
            "http://127.0.0.1:8080 is who asks: this node answers there itself: check --listen";
        assert!(refusal.message.starts_with(wanted), "{refusal}");
        let twin = Hello {
            life: 0x2fe,
            ..hello()
        };
        let refusal = agree(&hello(), &twin, none).expect_err("a copy");
        assert!(
            refusal.message.contains("is a copy of the other"),
            "{refusal}"
        );
    }

    #[test]
    fn the_handshake_is_http_that_our_own_parsers_read() {
        let mut bytes = Vec::new();
        request(&mut bytes, "127.0.0.1:8080", &hello().to_string());
        let Parsed::Head(head) = parse_head(&bytes, &Limits::USUAL) else {
            panic!("the request is a whole head");
        };
        assert!(head.wants_peer_upgrade);
        assert_eq!(head.peer_hello, Field::Once(hello().to_string().as_bytes()));

        let mut bytes = Vec::new();
        accept(&mut bytes, &other().to_string());
        bytes.extend_from_slice(b"frames");
        let ParsedAnswer::Head(answer) = parse_answer(&bytes, Asked::WithBody) else {
            panic!("the answer is a whole head");
        };
        assert_eq!(
            (answer.status, &bytes[answer.consumed..]),
            (101, &b"frames"[..])
        );
        assert_eq!(answer.peer_hello.map(Hello::parse), Some(Ok(other())));
    }

    proptest! {
        #[test]
        fn any_legal_hello_is_read_as_it_was_sent(
            name in "[A-Za-z0-9._-]{0,64}", url in "\\PC{0,40}|http://[a-z.]{253}:[0-9]{5}",
            description in "\\PC{0,40}|[ -~]{4096}", versions: (u16, u16),
            numbers: [u64; 6], node: u128, origin: u32, lane: u16, loops: u16,
            bits: (bool, bool), nonce: [u8; 16],
        ) {
            let [cluster, epoch, topology, boot, life, clock] = numbers;
            let (has_secret, joins) = bits;
            let hello = Hello {
                version_min: versions.0.min(versions.1),
                version_max: versions.0.max(versions.1),
                cluster,
                cluster_name: name,
                epoch,
                topology,
                description,
                node,
                origin,
                boot,
                life,
                clock,
                url,
                lane,
                loops,
                has_secret,
                nonce: Nonce(nonce),
                joins,
            };
            let line = hello.to_string();
            prop_assert!(line.bytes().all(|b| b == b' ' || b.is_ascii_graphic()));
            prop_assert_eq!(Hello::parse(line.as_bytes()), Ok(hello.clone()));
            let mut bytes = Vec::new();
            request(&mut bytes, "127.0.0.1:8080", &line);
            let Parsed::Head(head) = parse_head(&bytes, &Limits::USUAL) else {
                return Err(TestCaseError::fail("the request is a whole head"));
            };
            prop_assert_eq!(head.peer_hello, Field::Once(line.as_bytes()));
            bytes.clear();
            accept(&mut bytes, &line);
            let ParsedAnswer::Head(answer) = parse_answer(&bytes, Asked::WithBody) else {
                return Err(TestCaseError::fail("the answer is a whole head"));
            };
            prop_assert_eq!(answer.peer_hello.map(Hello::parse), Some(Ok(hello)));
        }

        #[test]
        fn no_bytes_panic(
            line in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..250, byte: u8,
        ) {
            // The verdict does not matter here, only that there is one.
            let _ = Hello::parse(&line).is_ok();
            let mut near = hello().to_string().into_bytes();
            let at = at % near.len();
            near[at] = byte;
            let _ = Hello::parse(&near).is_ok();
        }
    }
}
