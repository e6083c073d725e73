//! One member as an operator names it: its address, its share, and its zone.
//!
//! ```text
//! http://h1:8080                     weight 1, no zone
//! http://h1:8080;weight=2;zone=a     twice the share; copies avoid a second member of zone a
//! H1:8080/                           the same member as the first: scheme, case and slash are normalised
//! ```
//!
//! Invariants
//! 1. A normalised URL is `http://host:port` in lower case; it names a member for ever. So no name
//!    is looked up here and no address rewritten: `localhost` and `127.0.0.1` are two members, and
//!    so are `[::1]` and `[0::1]`.
//!
//! Not here: lists and the rules between members (`topology/`).
//! See: docs/cli.md, "A cluster".

use crate::limits::{HOST_BYTES_MAX, ZONE_BYTES_MAX};
use std::fmt;
use std::str::FromStr;

/// One member of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Member {
    /// Normalised `http://host:port`: where clients and the other members reach it.
    pub url: String,
    /// Share of the data beside the others'; at least 1.
    pub weight: u16,
    /// The name of a rack or a power feed: its members fail together. Empty = itself alone.
    pub zone: String,
}

/// Why an entry is no member. `Display` names the way out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadMember {
    /// The address makes no sense.
    Url {
        /// URL as given.
        url: String,
        /// The rest of the sentence.
        reason: &'static str,
    },
    /// A share of zero, or no number.
    Weight {
        /// The entry.
        url: String,
        /// Weight as given.
        weight: String,
    },
    /// Characters that a one-line description cannot carry.
    Zone {
        /// The entry.
        url: String,
        /// Zone as given.
        zone: String,
    },
    /// Something else after a semicolon.
    Attribute {
        /// The entry.
        url: String,
        /// Attribute as given.
        attribute: String,
    },
}

impl fmt::Display for BadMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadMember::Url { url, reason } => {
                write!(
                    f,
                    "{url:?} {reason}; write a member like http://10.0.0.1:8080"
                )
            }
            BadMember::Weight { url, weight } => write!(
                f,
                "{url} has the weight {weight:?}; write a number from 1 to {}, or leave a member that shall hold nothing out",
                u16::MAX
            ),
            BadMember::Zone { url, zone } => write!(
                f,
                "{url} has the zone {zone:?}; write 1 to {ZONE_BYTES_MAX} letters, digits, dots, dashes and underscores"
            ),
            BadMember::Attribute { url, attribute } => write!(
                f,
                "{url} has {attribute:?}; only ;weight=N and ;zone=NAME, each once, may follow the address"
            ),
        }
    }
}

impl std::error::Error for BadMember {}

impl Member {
    /// A member of weight 1 without a zone.
    ///
    /// # Errors
    /// When `url` is not an address.
    pub fn new(url: &str) -> Result<Member, BadMember> {
        Ok(Member {
            url: normalised(url)?,
            weight: 1,
            zone: String::new(),
        })
    }

    /// The member with its fields checked and its URL normalised.
    pub(crate) fn checked(self) -> Result<Member, BadMember> {
        let url = normalised(&self.url)?;
        if self.weight == 0 {
            let weight = "0".to_owned();
            return Err(BadMember::Weight { url, weight });
        }
        if !self.zone.is_empty() && !is_word(&self.zone, ZONE_BYTES_MAX) {
            let zone = self.zone;
            return Err(BadMember::Zone { url, zone });
        }
        Ok(Member { url, ..self })
    }
}

impl FromStr for Member {
    type Err = BadMember;

    fn from_str(text: &str) -> Result<Member, BadMember> {
        let mut parts = text.trim().split(';');
        let mut member = Member::new(parts.next().unwrap_or(""))?;
        let mut has = (false, false);
        for part in parts {
            let url = member.url.clone();
            match part.trim().split_once('=') {
                Some(("weight", weight)) if !std::mem::replace(&mut has.0, true) => {
                    member.weight = weight.parse().map_err(|_| {
                        let weight = weight.to_owned();
                        BadMember::Weight { url, weight }
                    })?;
                }
                // An empty zone would be no zone; an operator that writes the word means one.
                Some(("zone", zone)) if !std::mem::replace(&mut has.1, true) => {
                    if zone.is_empty() {
                        return Err(BadMember::Zone {
                            url,
                            zone: String::new(),
                        });
                    }
                    member.zone = zone.to_owned();
                }
                _ => {
                    let attribute = part.to_owned();
                    return Err(BadMember::Attribute { url, attribute });
                }
            }
        }
        member.checked()
    }
}

/// Text of a member in a list: defaults are left out.
impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)?;
        if self.weight != 1 {
            write!(f, ";weight={}", self.weight)?;
        }
        if !self.zone.is_empty() {
            write!(f, ";zone={}", self.zone)?;
        }
        Ok(())
    }
}

/// `http://host:port` in lower case, the one spelling of an address.
pub(super) fn normalised(text: &str) -> Result<String, BadMember> {
    let bad = |reason| BadMember::Url {
        url: text.to_owned(),
        reason,
    };
    let lower = text.trim().to_ascii_lowercase();
    if lower.starts_with("https://") {
        return Err(bad(
            "begins with https: a member's address always begins with http://, and members speak TLS \
             to each other when all of them have --tls-peer-ca",
        ));
    }
    let rest = lower.strip_prefix("http://").unwrap_or(&lower);
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.is_empty() {
        return Err(bad("names no host"));
    }
    if rest.contains(['/', '?', '#']) {
        return Err(bad("has more than a host and a port"));
    }
    if rest.contains('@') {
        return Err(bad("has a user in front of the host"));
    }
    let (host, port) = rest.rsplit_once(':').ok_or(bad("names no port"))?;
    if rest.ends_with(']') {
        return Err(bad("names no port"));
    }
    if port.is_empty() || !port.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad("has a port that is no number"));
    }
    let port: u16 = port
        .parse()
        .ok()
        .filter(|port| *port > 0)
        .ok_or(bad("has a port outside 1 to 65535"))?;
    let host = match host.strip_prefix('[') {
        Some(inside) => {
            let inside = inside.strip_suffix(']').unwrap_or("");
            let is_address = inside.matches(':').count() >= 2
                && inside
                    .bytes()
                    .all(|b| b.is_ascii_hexdigit() || b":.".contains(&b));
            if !is_address {
                return Err(bad("has no IPv6 address between the brackets"));
            }
            format!("[{inside}]")
        }
        None => name_or_ipv4(host).map_err(bad)?.to_owned(),
    };
    Ok(format!("http://{host}:{port}"))
}

fn name_or_ipv4(host: &str) -> Result<&str, &'static str> {
    if host.contains(':') {
        return Err("has an IPv6 address without brackets");
    }
    let is_name = host.split('.').all(|label| is_word(label, 63));
    if !is_name || host.len() > HOST_BYTES_MAX {
        return Err("names no host");
    }
    // Digits and dots only: an IPv4 address, and resolvers disagree about all other forms.
    let is_numeric = host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let is_byte =
        |part: &str| (part == "0" || !part.starts_with('0')) && part.parse::<u8>().is_ok();
    if is_numeric && (host.split('.').count() != 4 || !host.split('.').all(is_byte)) {
        return Err("has an IPv4 address that is none");
    }
    Ok(host)
}

/// Letters, digits, dots, dashes and underscores: fits a URL list, a file name and a log line.
pub(super) fn is_word(text: &str, bytes_max: usize) -> bool {
    (1..=bytes_max).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b".-_".contains(&b))
}
