//! Where another engine is: the value of `--store`.
//!
//! ```text
//! etcd://10.0.0.1:2379,10.0.0.2:2379/prefix        keys begin with `prefix/`
//! cassandra://10.0.0.1:9042,10.0.0.2/keyspace       `scylla://` is the same
//! etcd://…/prefix?compact-after=1h                  revisions of an hour ago are compacted
//! cassandra://10.0.0.1,10.0.0.2/keyspace?dc=east    its copies in one data centre decide
//! cassandra://…/keyspace?partition-keys=500000      so many keys fill a partition of its list
//! ```
//!
//! Invariants
//! 1. A place that is printed parses to the same place.
//!
//! Not here: whether this build has the driver (`lib.rs`).

use std::fmt;
use std::time::Duration;

/// Keys that may fill a partition of the list of keys.
const PARTITION_KEYS_MIN: usize = 64;
const PARTITION_KEYS_MAX: usize = 10_000_000;

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
    /// Keys that fill a partition of the list of keys; `None` = as usual. Cassandra alone has such.
    pub partition_keys: Option<usize>,
    /// Revisions that are older are compacted; `None` = none are. etcd alone has some.
    pub compact_after: Option<Duration>,
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
        let (rest, asked) = rest.split_once('?').unwrap_or((rest, ""));
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
        let servers = servers.split(',').map(|server| address(server, port));
        let mut place = StorePlace {
            engine,
            servers: servers.collect::<Result<_, _>>()?,
            part: part.to_owned(),
            home: None,
            partition_keys: None,
            compact_after: None,
        };
        let asked = asked.split('&').filter(|one| !one.is_empty());
        for one in asked {
            place.take(one)?;
        }
        Ok(place)
    }

    /// Reads one `NAME=VALUE` behind the `?`.
    fn take(&mut self, asked: &str) -> Result<(), String> {
        let (name, value) = asked.split_once('=').unwrap_or((asked, ""));
        match (self.engine, name) {
            (OuterEngine::Cassandra, "dc") if self.home.is_none() => {
                self.home = Some(data_centre(value)?);
            }
            (OuterEngine::Cassandra, "partition-keys") if self.partition_keys.is_none() => {
                self.partition_keys = Some(partition_keys(value)?);
            }
            (OuterEngine::Etcd, "compact-after") if self.compact_after.is_none() => {
                self.compact_after = Some(age(value)?);
            }
            (OuterEngine::Etcd, _) => {
                return Err(format!(
                    "asks etcd for `{asked}`: `?compact-after=1h` is all that can be asked for"
                ));
            }
            (OuterEngine::Cassandra, _) => {
                return Err(format!(
                    "asks Cassandra for `{asked}`: `?dc=NAME&partition-keys=N` is all that can be asked for"
                ));
            }
        }
        Ok(())
    }
}

fn data_centre(name: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if !name.is_empty() && name.chars().all(is_plain) {
        Ok(name.to_owned())
    } else {
        Err(format!(
            "has no name of a data centre of Cassandra: `{name}`"
        ))
    }
}

fn partition_keys(text: &str) -> Result<usize, String> {
    let bounds = PARTITION_KEYS_MIN..=PARTITION_KEYS_MAX;
    let read = text.parse().ok().filter(|keys| bounds.contains(keys));
    read.ok_or_else(|| {
        format!("has a partition of no {PARTITION_KEYS_MIN} to {PARTITION_KEYS_MAX} keys: `{text}`")
    })
}

/// A time in whole hours, minutes or seconds.
fn age(text: &str) -> Result<Duration, String> {
    let units = [("h", 3_600), ("m", 60), ("s", 1)];
    let read = units.into_iter().find_map(|(unit, seconds)| {
        let number = text.strip_suffix(unit)?.parse::<u32>().ok()?;
        Some(Duration::from_secs(u64::from(number) * seconds))
    });
    read.filter(|age| !age.is_zero())
        .ok_or_else(|| format!("has a time that is none of 90s, 30m, 1h: `{text}`"))
}

fn show_age(age: Duration) -> String {
    match age.as_secs() {
        seconds if seconds.is_multiple_of(3_600) => format!("{}h", seconds / 3_600),
        seconds if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
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
        let home = self.home.as_ref().map(|dc| format!("dc={dc}"));
        let keys = self
            .partition_keys
            .map(|keys| format!("partition-keys={keys}"));
        let age = self.compact_after.map(show_age);
        let age = age.map(|age| format!("compact-after={age}"));
        let asked: Vec<_> = [home, keys, age].into_iter().flatten().collect();
        if asked.is_empty() {
            Ok(())
        } else {
            write!(f, "?{}", asked.join("&"))
        }
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
        let place = StorePlace::parse("cassandra://a/k?partition-keys=256&dc=e").expect("a place");
        assert_eq!(place.partition_keys, Some(256));
        assert_eq!(
            place.to_string(),
            "cassandra://a:9042/k?dc=e&partition-keys=256"
        );
        for (age, shown) in [("90s", "90s"), ("120m", "2h"), ("180s", "3m")] {
            let place = StorePlace::parse(&format!("etcd://a/k?compact-after={age}"));
            let place = place.expect("a place").to_string();
            assert_eq!(place, format!("etcd://a:2379/k?compact-after={shown}"));
        }
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
            "cassandra://a/k?dc=a&dc=b",
            "cassandra://a/k?partition-keys=63",
            "cassandra://a/k?partition-keys=many",
            "cassandra://a/k?compact-after=1h",
            "etcd://a/k?compact-after=1",
            "etcd://a/k?compact-after=0h",
        ] {
            assert!(StorePlace::parse(text).is_err(), "{text}");
        }
    }
}
