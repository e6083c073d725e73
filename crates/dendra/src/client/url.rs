//! `--url`: where the node is.
//!
//! ```text
//! http://host[:port][/path]        port 80 unless given
//! https://host[:port][/path]       port 443 unless given; TLS, with --ca
//! ```
//!
//! Invariants
//! 1. Only `http` and `https`: a URL of another scheme is refused with a sentence, never guessed.
//!
//! Not here: percent-encoding of keys (crate `wire`).
//! See: docs/cli.md.

use crate::exit::Failure;
use hyper::Uri;
use std::fmt;

/// Why a text is no place of a node: the text and the reason, without the flag that names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadUrl(String);

impl BadUrl {
    /// Failure of a command whose `flag` names the place.
    pub(crate) fn of(self, flag: &str) -> Failure {
        Failure::usage(format!("{flag} {self}"))
    }
}

impl fmt::Display for BadUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A parsed `--url`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BaseUrl {
    host: String,
    port: u16,
    authority: String,
    path: String,
    is_tls: bool,
}

impl BaseUrl {
    /// Reads `text`.
    pub(crate) fn parse(text: &str) -> Result<BaseUrl, BadUrl> {
        let fix = "write one like http://127.0.0.1:8080";
        let uri: Uri = text
            .parse()
            .map_err(|e| BadUrl(format!("{text:?} is not a URL ({e}); {fix}")))?;
        let is_tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => {
                return Err(BadUrl(format!(
                    "{text:?} is neither http nor https, and a node speaks nothing else; {fix}"
                )));
            }
        };
        let (Some(authority), Some(host)) = (uri.authority(), uri.host()) else {
            return Err(BadUrl(format!("{text:?} names no host; {fix}")));
        };
        if authority.as_str().contains('@') || uri.query().is_some() {
            return Err(BadUrl(format!(
                "{text:?} carries more than a place; {fix}, without user and query"
            )));
        }
        let path = uri.path().trim_end_matches('/');
        if path.split('/').any(|part| part == "v0") {
            return Err(BadUrl(format!(
                "{text:?} names a path of the API; {fix}: the command adds /v0/… itself"
            )));
        }
        Ok(BaseUrl {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
            path: path.to_owned(),
            is_tls,
        })
    }

    /// Name or address, IPv6 without brackets.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Does the node speak TLS there?
    pub(crate) fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// The port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Host and port as in the `Host` header.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// The part in front of every path, without a slash at the end.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_with_and_without_its_parts() {
        let base = BaseUrl::parse("http://[::1]:7000/kv/").expect("it is a place");
        assert_eq!(
            (base.host(), base.port(), base.path()),
            ("::1", 7000, "/kv")
        );
        assert_eq!(base.authority(), "[::1]:7000");
        let base = BaseUrl::parse("http://node").expect("it is a place");
        assert_eq!((base.host(), base.port(), base.path()), ("node", 80, ""));
    }

    #[test]
    fn anything_but_a_place_is_refused() {
        for text in [
            "",
            "node:8080",
            "ftp://node",
            "http://",
            "http://me:secret@node",
            "http://node/?id=1",
            "http://node/v0",
            "http://node/kv/v0/entity",
        ] {
            assert!(BaseUrl::parse(text).is_err(), "{text:?} must be refused");
        }
    }
}
