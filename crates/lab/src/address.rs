//! Where a target is, and the template of a request to it.
//!
//! ```text
//! http://host[:port][/path with {key}, {limit} …]      port 80 unless given; https, port 443
//!   authority ──► Host, sockets        path ──► template.rs
//! ```
//!
//! Invariants
//! 1. Only `http` and `https`: another scheme is refused with a sentence, never guessed.
//!
//! Not here: filling templates in (`template.rs`).
//! See: docs/lab/run-json.md.

use std::net::{SocketAddr, ToSocketAddrs};

/// A place that speaks HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Host and port as in the `Host` header.
    pub authority: String,
    /// Path and query as given; begins with a slash.
    pub path: String,
    /// Where to connect to.
    pub socket: SocketAddr,
    /// Is it https?
    pub is_tls: bool,
}

impl Address {
    /// Reads `text` and looks its host up. The error is a sentence.
    ///
    /// # Errors
    /// The sentence.
    pub fn parse(text: &str) -> Result<Address, String> {
        let fix = "write one like http://127.0.0.1:8080";
        let (rest, is_tls) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (rest, false),
            (None, Some(rest)) => (rest, true),
            (None, None) => return Err(format!("{text:?} is not a URL of http or https; {fix}")),
        };
        let at = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        if authority.is_empty() || authority.contains('@') {
            return Err(format!("{text:?} names no host, or more than one; {fix}"));
        }
        if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!(
                "{text:?} has a space or a byte that is not ASCII; percent-encode it"
            ));
        }
        let has_port = authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let place = if has_port {
            authority.to_owned()
        } else {
            format!("{authority}:{}", if is_tls { 443 } else { 80 })
        };
        let mut sockets = place
            .to_socket_addrs()
            .map_err(|e| format!("the host of {text:?} cannot be found ({e}); check its name"))?;
        let socket = sockets
            .next()
            .ok_or_else(|| format!("the host of {text:?} has no address; check its name"))?;
        let path = match path.chars().next() {
            Some('/') => path.to_owned(),
            _ => format!("/{path}"),
        };
        Ok(Address {
            authority: authority.to_owned(),
            path,
            socket,
            is_tls,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_with_and_without_its_parts() {
        let address = Address::parse("http://127.0.0.1:70/a?k={key}").expect("it is a place");
        assert_eq!(address.path, "/a?k={key}");
        assert_eq!(address.authority, "127.0.0.1:70");
        let address = Address::parse("http://[::1]").expect("it is a place");
        assert_eq!((address.socket.port(), address.path.as_str()), (80, "/"));
        assert!(!address.is_tls);
        let address = Address::parse("https://[::1]").expect("it is a place");
        assert_eq!((address.socket.port(), address.is_tls), (443, true));
    }

    #[test]
    fn anything_but_a_place_is_refused() {
        for text in [
            "",
            "h:80",
            "ftp://h",
            "http://",
            "http://u@h",
            "http://127.0.0.1/a b",
        ] {
            assert!(Address::parse(text).is_err(), "{text:?}");
        }
    }
}
