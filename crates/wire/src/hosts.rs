//! Which requests are meant for this node: the host they name, and the page that sent them.
//!
//! ```text
//! Host: 10.0.0.2:8080        an address as a literal           taken
//! Host: localhost            this machine                      taken
//! Host: db1:8080             a name of the node itself         taken: --self, the machine's name
//! Host: kv.example.com       --allowed-hosts *.example.com     taken
//! Host: evil.example         any other name                    421
//! Origin: https://app.example.com    --allowed-origins         taken on the data port, with CORS
//! Sec-Fetch-Site: cross-site, same-site; Origin of another     403
//! ```
//!
//! A page of a foreign site can point its own name at this node's address (DNS rebinding). Its
//! browser then takes the node for that site, and only the name in `Host` tells. A page that did
//! not do so is marked by its browser.
//!
//! Invariants
//! 1. Bytes are compared, no name is looked up, and a check allocates only if it refuses.
//! 2. The port does not decide: proxies and forwarded ports change it.
//! 3. `*` lets in every host, and no page: which site a page is of is never a matter of one host.
//! 4. Without a `Host` (HTTP/1.0) there is no page: browsers have not spoken HTTP/1.0 for decades.
//!
//! Not here: the form of `Host` (`http/request/`).
//! See: docs/api.md, section "Hosts and pages"; SECURITY.md.

use crate::http::response::PageLines;
use crate::http::{Field, Head};
use crate::refusal::{Refusal, echo};
use core::net::{Ipv4Addr, Ipv6Addr};
use std::fmt;
use std::str::FromStr;

/// Longest name that DNS has.
const NAME_BYTES_MAX: usize = 253;

/// One entry of `--allowed-hosts`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostRule {
    /// `*`: every host.
    Any,
    /// `kv.example.com`: this name.
    Name(String),
    /// `*.example.com`: every name below it, kept with its dot in front.
    Below(String),
}

impl FromStr for HostRule {
    type Err = String;

    fn from_str(text: &str) -> Result<HostRule, String> {
        let text = text.trim();
        if text == "*" {
            return Ok(HostRule::Any);
        }
        let (name, is_below) = match text.strip_prefix("*.") {
            Some(name) => (name, true),
            None => (text, false),
        };
        let is_of_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        let is_name = !name.is_empty()
            && name.len() <= NAME_BYTES_MAX
            && name.bytes().all(is_of_name)
            && !name.starts_with('.')
            && !name.contains("..");
        if !is_name {
            return Err(format!(
                "{text:?} is not a host; write a name without scheme and port, like kv.example.com, *.example.com, or *"
            ));
        }
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        Ok(if is_below {
            HostRule::Below(format!(".{name}"))
        } else {
            HostRule::Name(name)
        })
    }
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostRule::Any => f.write_str("*"),
            HostRule::Name(name) => f.write_str(name),
            HostRule::Below(name) => write!(f, "*{name}"),
        }
    }
}

impl HostRule {
    /// Is `host`, without port and dot at its end, one of these?
    fn takes(&self, host: &[u8]) -> bool {
        match self {
            HostRule::Any => true,
            HostRule::Name(name) => host.eq_ignore_ascii_case(name.as_bytes()),
            HostRule::Below(end) => {
                let front = host.len().checked_sub(end.len());
                front.is_some_and(|at| at > 0 && host[at..].eq_ignore_ascii_case(end.as_bytes()))
            }
        }
    }
}

/// One entry of `--allowed-origins`, as browsers write it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OriginRule(String);

impl FromStr for OriginRule {
    type Err = String;

    fn from_str(text: &str) -> Result<OriginRule, String> {
        let text = text.trim().to_ascii_lowercase();
        let wrong = || {
            format!(
                "{text:?} is not an origin; write scheme, host and perhaps a port, like https://app.example.com or http://localhost:3000, one for each site"
            )
        };
        let (scheme, authority) = text.split_once("://").ok_or_else(wrong)?;
        let own_port = match scheme {
            "http" => ":80",
            "https" => ":443",
            _ => return Err(wrong()),
        };
        let host = host_of(authority.as_bytes());
        let port = authority.as_bytes().get(host.len()..).unwrap_or_default();
        let is_port = match port {
            [] => true,
            [b':', digits @ ..] => {
                (1..=5).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit)
            }
            _ => false,
        };
        let is_host = is_address(host)
            || std::str::from_utf8(host).is_ok_and(|host| {
                matches!(host.parse(), Ok(HostRule::Name(_))) && !host.starts_with('*')
            });
        if !is_host || !is_port {
            return Err(wrong());
        }
        // A browser leaves the usual port away.
        let authority = authority.strip_suffix(own_port).unwrap_or(authority);
        Ok(OriginRule(format!("{scheme}://{authority}")))
    }
}

impl fmt::Display for OriginRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The facts of a request about its way here.
#[derive(Clone, Copy, Debug)]
pub struct Sender<'a> {
    /// Host and port that the request is for; `None` in HTTP/1.0 only.
    pub authority: Option<&'a [u8]>,
    /// `Origin`
    pub origin: Field<'a>,
    /// `Sec-Fetch-Site`
    pub site: Field<'a>,
}

impl<'a> From<&Head<'a>> for Sender<'a> {
    fn from(head: &Head<'a>) -> Sender<'a> {
        Sender {
            authority: head.authority,
            origin: head.origin,
            site: head.fetch_site,
        }
    }
}

/// The hosts that a node answers for, beside literal addresses and `localhost`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts {
    own: Vec<String>,
    allowed: Vec<HostRule>,
    origins: Vec<(String, &'static PageLines)>,
}

impl Hosts {
    /// `own`: names of the node itself, with or without a port. `allowed`: the operator's.
    pub fn new(own: impl IntoIterator<Item = String>, allowed: &[HostRule]) -> Hosts {
        let mut own: Vec<String> = own
            .into_iter()
            .map(|name| String::from_utf8_lossy(host_of(name.as_bytes())).to_ascii_lowercase())
            .collect();
        own.sort();
        own.dedup();
        Hosts {
            own,
            allowed: allowed.to_vec(),
            origins: Vec::new(),
        }
    }

    /// Hosts with pages of other sites that may ask, too.
    #[must_use]
    pub fn with_origins(self, origins: &[OriginRule]) -> Hosts {
        let origins = origins.iter();
        let origins = origins.map(|rule| (rule.0.clone(), PageLines::new(&rule.0)));
        Hosts {
            origins: origins.collect(),
            ..self
        }
    }

    /// Is a request with this host and port meant for this node?
    pub fn answers_for(&self, authority: &[u8]) -> bool {
        let host = host_of(authority);
        is_address(host)
            || host.eq_ignore_ascii_case(b"localhost")
            || self
                .own
                .iter()
                .any(|name| host.eq_ignore_ascii_case(name.as_bytes()))
            || self.allowed.iter().any(|rule| rule.takes(host))
    }

    /// Refuses a request that names a foreign host.
    ///
    /// # Errors
    /// 421.
    pub fn check_host(&self, sender: &Sender<'_>) -> Result<(), Refusal> {
        match sender.authority {
            Some(authority) if !self.answers_for(authority) => {
                Err(Refusal::misdirected(&echo(host_of(authority))))
            }
            _ => Ok(()),
        }
    }

    /// Judges pages as `check_page` does, and pages of origins that the operator named: returns the
    /// lines that their answers must have.
    ///
    /// # Errors
    /// 403.
    pub fn judge_page(&self, sender: &Sender<'_>) -> Result<Option<&'static PageLines>, Refusal> {
        if let (Field::Once(origin), false) = (sender.origin, sender.site == Field::Repeated) {
            let mut origins = self.origins.iter();
            if let Some((_, lines)) = origins.find(|(name, _)| name.as_bytes() == origin) {
                return Ok(Some(lines));
            }
        }
        self.check_page(sender).map(|()| None)
    }

    /// Refuses a request that a browser sent for a page of another site.
    ///
    /// # Errors
    /// 403.
    pub fn check_page(&self, sender: &Sender<'_>) -> Result<(), Refusal> {
        match sender.site {
            Field::Absent | Field::Once(b"same-origin" | b"none") => {}
            Field::Once(site) => {
                let mark = format!("Sec-Fetch-Site: {}", echo(site));
                return Err(Refusal::cross_site(&mark));
            }
            Field::Repeated => return Err(Refusal::cross_site("several Sec-Fetch-Site")),
        }
        match sender.origin {
            Field::Absent => Ok(()),
            Field::Once(origin) if self.is_own_origin(origin, sender.authority) => Ok(()),
            Field::Once(origin) => {
                let mark = format!("Origin: {}", echo(origin));
                Err(Refusal::cross_site(&mark))
            }
            Field::Repeated => Err(Refusal::cross_site("several Origin")),
        }
    }

    /// Was the page loaded from where its request goes, or from a host that the operator named? A
    /// proxy may have written another `Host` than the browser sent.
    fn is_own_origin(&self, origin: &[u8], authority: Option<&[u8]>) -> bool {
        let place = origin.strip_prefix(b"http://");
        let Some(place) = place.or_else(|| origin.strip_prefix(b"https://")) else {
            return false;
        };
        let is_same = authority.is_some_and(|to| to.eq_ignore_ascii_case(place));
        let is_named = |rule: &HostRule| *rule != HostRule::Any && rule.takes(host_of(place));
        is_same || self.allowed.iter().any(is_named)
    }
}

/// Host and port of a URL, or all of it where it has no scheme.
pub fn authority_of_url(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('/').next().unwrap_or(rest)
}

/// The host of a host and port, an IPv6 address without its brackets.
pub fn name_of_authority(authority: &str) -> &str {
    let host = host_of(authority.as_bytes());
    let host = host.strip_prefix(b"[").unwrap_or(host);
    let host = host.strip_suffix(b"]").unwrap_or(host);
    std::str::from_utf8(host).unwrap_or_default()
}

/// The host of a host and port, without a dot at its end.
fn host_of(authority: &[u8]) -> &[u8] {
    let end = match authority.first() {
        Some(b'[') => authority.iter().position(|&b| b == b']').map(|at| at + 1),
        _ => authority.iter().position(|&b| b == b':'),
    };
    let host = &authority[..end.unwrap_or(authority.len())];
    host.strip_suffix(b".").unwrap_or(host)
}

/// Is this an address and no name? In the forms in which browsers write one: others are names to
/// them.
fn is_address(host: &[u8]) -> bool {
    let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
    match host {
        [b'[', inner @ .., b']'] => text(inner).parse::<Ipv6Addr>().is_ok(),
        _ => text(host).parse::<Ipv4Addr>().is_ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::{Limits, Parsed, parse_head};
    use proptest::prelude::*;

    fn hosts(allowed: &[&str]) -> Hosts {
        let rules: Result<Vec<HostRule>, String> =
            allowed.iter().map(|text| text.parse()).collect();
        let own = ["db1:8080", "DB2", "[2001:db8::1]:8080"].map(str::to_owned);
        Hosts::new(own, &rules.expect("they are hosts"))
    }

    /// The status of a request with these lines, 200 when it is sound.
    fn status(hosts: &Hosts, request: &str) -> u16 {
        let Parsed::Head(head) = parse_head(request.as_bytes(), &Limits::USUAL) else {
            panic!("{request:?} is not a head");
        };
        let sender = Sender::from(&head);
        let checked = hosts
            .check_host(&sender)
            .and_then(|()| hosts.check_page(&sender));
        checked.map_or_else(|refusal| refusal.status, |()| 200)
    }

    fn with_host(hosts: &Hosts, host: &str) -> u16 {
        status(hosts, &format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"))
    }

    #[test]
    fn the_authority_of_a_url_is_what_stands_before_its_path() {
        for url in [
            "http://db1:8080",
            "https://db1:8080/a/b",
            "db1:8080",
            "db1:8080/",
        ] {
            assert_eq!(authority_of_url(url), "db1:8080", "{url}");
        }
    }

    #[test]
    fn a_name_that_was_rebound_to_this_address_is_misdirected() {
        let hosts = hosts(&["kv.example.com", "*.internal"]);
        for host in [
            "127.0.0.1",
            "127.0.0.1:8080",
            "10.1.2.3:1",
            "[::1]",
            "[::1]:8080",
            "localhost",
            "LocalHost:80",
            "localhost.:80",
            "db1",
            "DB1:1",
            "db2.",
            "kv.example.com",
            "KV.example.com.:443",
            "a.internal",
            "a.b.INTERNAL:8",
        ] {
            assert_eq!(with_host(&hosts, host), 200, "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:8080",
            "db1.evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "example.com",
            "a.kv.example.com",
            "internal",
            ".internal",
            "xinternal",
            "",
            ":80",
            "1",
            "127.1",
            "0x7f.1",
            "2130706433",
            "256.1.1.1",
            "127.0.0.1.",
            "[::g]",
            "[::1].evil",
        ] {
            let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
            if let Parsed::Bad(refusal) = parse_head(request.as_bytes(), &Limits::USUAL) {
                assert_eq!(refusal.status, 400, "{host}");
                continue;
            }
            let is_dotted = host == "127.0.0.1.";
            assert_eq!(
                with_host(&hosts, host),
                if is_dotted { 200 } else { 421 },
                "{host}"
            );
        }
        assert_eq!(
            with_host(&Hosts::new([], &[HostRule::Any]), "evil.example"),
            200
        );
    }

    #[test]
    fn the_authority_of_an_absolute_target_counts_and_http_1_0_needs_none() {
        let hosts = hosts(&[]);
        let of = |first: &str, lines: &str| status(&hosts, &format!("{first}\r\n{lines}\r\n"));
        assert_eq!(
            of("GET http://evil.example/ HTTP/1.1", "Host: localhost\r\n"),
            421
        );
        assert_eq!(
            of("GET http://localhost/ HTTP/1.1", "Host: evil.example\r\n"),
            200
        );
        assert_eq!(of("GET / HTTP/1.0", ""), 200);
        assert_eq!(of("GET / HTTP/1.0", "Host: evil.example\r\n"), 421);
        assert_eq!(of("GET http://evil.example/ HTTP/1.0", ""), 421);
    }

    #[test]
    fn a_page_of_another_site_is_refused_and_our_own_is_not() {
        let hosts = hosts(&["kv.example.com", "*"]);
        let of = |lines: &str| {
            status(
                &hosts,
                &format!("GET / HTTP/1.1\r\nHost: localhost:8080\r\n{lines}\r\n"),
            )
        };
        for lines in [
            "",
            "Sec-Fetch-Site: none\r\n",
            "Sec-Fetch-Site: same-origin\r\n",
            "Sec-Fetch-Site: same-origin\r\nOrigin: http://localhost:8080\r\n",
            "Origin: https://LOCALHOST:8080\r\n",
            "Origin: https://kv.example.com\r\n",
        ] {
            assert_eq!(of(lines), 200, "{lines}");
        }
        for lines in [
            "Sec-Fetch-Site: cross-site\r\n",
            "Sec-Fetch-Site: same-site\r\n",
            "Sec-Fetch-Site: else\r\n",
            "Sec-Fetch-Site: none\r\nSec-Fetch-Site: none\r\n",
            "Sec-Fetch-Site: same-origin\r\nOrigin: http://evil.example\r\n",
            "Origin: null\r\n",
            "Origin: \r\n",
            "Origin: localhost:8080\r\n",
            "Origin: http://localhost\r\n",
            "Origin: http://localhost:3000\r\n",
            "Origin: http://evil.example\r\n",
            "Origin: http://localhost:8080\r\nOrigin: http://localhost:8080\r\n",
        ] {
            assert_eq!(of(lines), 403, "{lines}");
        }
    }

    #[test]
    fn a_page_of_an_origin_that_was_named_may_ask_and_its_neighbours_may_not() {
        let named = ["https://App.example.com:443", "http://localhost:3000"];
        let named = named.map(|text| text.parse().expect("an origin"));
        let hosts = hosts(&[]).with_origins(&named);
        let of = |lines: &str| {
            let text = format!("GET / HTTP/1.1\r\nHost: localhost:8080\r\n{lines}\r\n");
            let Parsed::Head(head) = parse_head(text.as_bytes(), &Limits::USUAL) else {
                panic!("{text:?} is not a head");
            };
            let judged = hosts.judge_page(&Sender::from(&head));
            judged
                .map(|lines| lines.is_some())
                .map_err(|bad| bad.status)
        };
        for (lines, expected) in [
            (
                "Origin: https://app.example.com\r\nSec-Fetch-Site: cross-site\r\n",
                Ok(true),
            ),
            (
                "Origin: http://localhost:3000\r\nSec-Fetch-Site: same-site\r\n",
                Ok(true),
            ),
            (
                "Origin: http://localhost:8080\r\nSec-Fetch-Site: same-origin\r\n",
                Ok(false),
            ),
            ("", Ok(false)),
            ("Origin: http://app.example.com\r\n", Err(403)),
            ("Origin: https://app.example.com:8443\r\n", Err(403)),
            ("Origin: https://app.example.com.evil\r\n", Err(403)),
            ("Origin: https://evil/app.example.com\r\n", Err(403)),
            ("Origin: null\r\n", Err(403)),
            // A picture of such a page: it names no origin.
            ("Sec-Fetch-Site: cross-site\r\n", Err(403)),
            (
                "Origin: https://app.example.com\r\nOrigin: https://app.example.com\r\n",
                Err(403),
            ),
            (
                "Origin: https://app.example.com\r\nSec-Fetch-Site: none\r\nSec-Fetch-Site: none\r\n",
                Err(403),
            ),
        ] {
            assert_eq!(of(lines), expected, "{lines}");
        }
    }

    #[test]
    fn what_is_no_origin_is_no_rule() {
        for text in [
            "",
            "*",
            "https://*",
            "https://*.a.b",
            "app.example.com",
            "ftp://a",
            "https://a/",
            "https://a/b",
            "https://a:",
            "https://a:x",
            "https://a b",
            "null",
            "https://",
            "https://a:80:80",
        ] {
            let error = text.parse::<OriginRule>().expect_err(text);
            assert!(error.contains("is not an origin"), "{error}");
        }
        for (text, shown) in [
            ("HTTPS://A.b", "https://a.b"),
            ("http://a:80", "http://a"),
            ("https://a:80", "https://a:80"),
            ("http://[::1]:3000", "http://[::1]:3000"),
            ("http://127.0.0.1:3000", "http://127.0.0.1:3000"),
        ] {
            let rule: OriginRule = text.parse().expect(text);
            assert_eq!(rule.to_string(), shown);
        }
    }

    #[test]
    fn a_refusal_names_the_option_and_does_not_echo_much() {
        let sender = Sender {
            authority: Some(b"evil.example:80"),
            origin: Field::Absent,
            site: Field::Absent,
        };
        let refusal = Hosts::default().check_host(&sender).expect_err("foreign");
        assert_eq!(refusal.code, "misdirected");
        assert!(refusal.message.contains("`evil.example`"), "{refusal}");
        assert!(refusal.message.contains("--allowed-hosts"), "{refusal}");
    }

    #[test]
    fn what_is_no_host_is_no_rule() {
        for text in [
            "", "*.", "**", "*.*.com", "a:80", "http://a", "a b", ".a", "a..b", "[::1]", "a/b",
            "*a",
        ] {
            let error = text.parse::<HostRule>().expect_err(text);
            assert!(error.contains("is not a host"), "{error}");
        }
        for text in ["*", "*.example.com", "kv_1.example.com", "10.0.0.1"] {
            let rule: HostRule = text.parse().expect(text);
            assert_eq!(rule.to_string(), text);
        }
    }

    proptest! {
        #[test]
        fn only_names_that_were_given_are_taken(name in "[a-z]{1,9}(\\.[a-z]{1,9}){0,3}", port in any::<u16>()) {
            let hosts = hosts(&["kv.example.com", "*.internal"]);
            let expected = ["localhost", "db1", "db2", "kv.example.com"].contains(&name.as_str())
                || name.ends_with(".internal");
            prop_assert_eq!(hosts.answers_for(name.as_bytes()), expected);
            prop_assert_eq!(hosts.answers_for(format!("{name}:{port}").as_bytes()), expected);
        }

        #[test]
        fn every_address_is_taken(
            v4 in any::<[u8; 4]>(), v6 in any::<[u8; 16]>(), port in any::<u16>(),
        ) {
            let hosts = Hosts::default();
            let (v4, v6) = (Ipv4Addr::from(v4), Ipv6Addr::from(v6));
            for text in [format!("{v4}"), format!("{v4}:{port}"), format!("[{v6}]"), format!("[{v6}]:{port}")] {
                prop_assert!(hosts.answers_for(text.as_bytes()), "{}", text);
            }
        }

        #[test]
        fn no_bytes_panic(authority in prop::collection::vec(any::<u8>(), 0..40)) {
            let _is_taken = hosts(&["*.internal"]).answers_for(&authority);
        }
    }
}
