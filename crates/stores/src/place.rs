//! Where another engine is: the value of `--store`.
//!
//! ```text
//! etcd://10.0.0.1:2379,10.0.0.2:2379/prefix        keys begin with `prefix/`
//! cassandra://10.0.0.1:9042,10.0.0.2/keyspace       `scylla://` is the same
//! cassandra://10.0.0.1,10.0.0.2/keyspace?dc=east    its copies in one data centre decide
//! ```
//!
//! Invariants
//! 1. A place that is printed parses to the same place.
//!
//! Not here: whether this build has the driver (`lib.rs`).

use std::fmt;

/// Which engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OuterEngine {
    /// etcd, by its HTTP/JSON gateway.
    Etcd,
    /// Apache Cassandra or ScyllaDB, by CQL.
    Cassandra,
}

/// An engine, its servers, and the part of it that is ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorePlace {
    /// Which engine.
    pub engine: OuterEngine,
    /// `host:port` of its servers, at least one.
    pub servers: Vec<String>,
    /// The prefix of keys, or the keyspace.
    pub part: String,
    /// The data centre whose copies decide; `None` = those of all. Cassandra alone has some.
    pub home: Option<String>,
}

impl StorePlace {
    /// Reads `etcd://HOST:PORT,…/PREFIX` and its kin.
    ///
    /// # Errors
    /// The rest of a sentence that begins with the text.
    pub fn parse(text: &str) -> Result<StorePlace, String> {
        const SHAPES: &str =
            "is none of etcd://HOST:PORT,…/PREFIX, cassandra://HOST:PORT,…/KEYSPACE and scylla://…";
        let (scheme, rest) = text.split_once("://").ok_or(SHAPES)?;
        let (engine, port) = match scheme {
            "etcd" => (OuterEngine::Etcd, 2379),
            "cassandra" | "scylla" => (OuterEngine::Cassandra, 9042),
            _ => return Err(SHAPES.to_owned()),
        };
        let (rest, home) = match rest.split_once('?') {
            None => (rest, None),
            Some((rest, asked)) => (rest, Some(asked)),
        };
        let (servers, part) = rest.split_once('/').unwrap_or((rest, ""));
        let part = part.strip_suffix('/').unwrap_or(part);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/');
        if part.is_empty() || !part.chars().all(is_plain) {
            return Err(
                "names no part of the store: end it in /NAME, of letters, digits, `_`, `-`, `.`"
                    .to_owned(),
            );
        }
        let is_word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if engine == OuterEngine::Cassandra && !(part.len() <= 48 && part.chars().all(is_word)) {
            return Err(
                "has a keyspace that is not of at most 48 small letters, digits and `_`".to_owned(),
            );
        }
        let home = home.map(|asked| home_of(engine, asked)).transpose()?;
        let servers = servers.split(',').map(|server| address(server, port));
        Ok(StorePlace {
            engine,
            servers: servers.collect::<Result<_, _>>()?,
            part: part.to_owned(),
            home,
        })
    }
}

fn home_of(engine: OuterEngine, asked: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    match (engine, asked.strip_prefix("dc=")) {
        (OuterEngine::Etcd, _) => {
            Err("asks etcd for a data centre: it has none, so leave `?…` away".to_owned())
        }
        (OuterEngine::Cassandra, Some(dc)) if !dc.is_empty() && dc.chars().all(is_plain) => {
            Ok(dc.to_owned())
        }
        (OuterEngine::Cassandra, _) => Err(
            "ends in something else than `?dc=NAME`, with a data centre of Cassandra".to_owned(),
        ),
    }
}

fn address(server: &str, port: u16) -> Result<String, String> {
    let (host, said) = match server.rsplit_once(':') {
        Some((host, said)) if !said.contains(']') => (host, Some(said)),
        _ => (server, None),
    };
    if host.is_empty() || host.contains('@') {
        return Err(format!("has a server that is not HOST:PORT: `{server}`"));
    }
    match said.map(str::parse::<u16>) {
        None => Ok(format!("{host}:{port}")),
        Some(Ok(own_port)) if own_port > 0 => Ok(format!("{host}:{own_port}")),
        Some(_) => Err(format!("has a server with no port: `{server}`")),
    }
}

impl fmt::Display for StorePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.engine {
            OuterEngine::Etcd => "etcd",
            OuterEngine::Cassandra => "cassandra",
        };
        write!(f, "{scheme}://{}/{}", self.servers.join(","), self.part)?;
        self.home.iter().try_for_each(|dc| write!(f, "?dc={dc}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_with_its_usual_ports() {
        let place = StorePlace::parse("etcd://a,[::1]:1/p/q/").expect("a place");
        assert_eq!(place.servers, ["a:2379", "[::1]:1"]);
        assert_eq!(
            (place.engine, place.part.as_str()),
            (OuterEngine::Etcd, "p/q")
        );
        assert_eq!(place.to_string(), "etcd://a:2379,[::1]:1/p/q");
        let place = StorePlace::parse("scylla://a/k_1").expect("a place");
        assert_eq!(place.to_string(), "cassandra://a:9042/k_1");
        let place = StorePlace::parse("cassandra://a/k?dc=eu-west.1").expect("a place");
        assert_eq!(place.home.as_deref(), Some("eu-west.1"));
        assert_eq!(place.to_string(), "cassandra://a:9042/k?dc=eu-west.1");
    }

    #[test]
    fn what_is_no_place_is_refused() {
        for text in [
            "a:1/p",
            "http://a:1/p",
            "etcd://a:1",
            "etcd://a:1/",
            "etcd://a:1/p q",
            "etcd:///p",
            "etcd://a,,b/p",
            "etcd://a:0/p",
            "etcd://a:70000/p",
            "etcd://user@a:1/p",
            "cassandra://a/Big",
            "cassandra://a/a/b",
            "cassandra://a/k?dc=",
            "cassandra://a/k?dc=a&b",
            "cassandra://a/k?rack=a",
            "etcd://a/k?dc=east",
        ] {
            assert!(StorePlace::parse(text).is_err(), "{text}");
        }
    }
}
