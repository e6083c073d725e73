//! The text of an option as its value, by the kind that the table says.
//!
//! Invariants
//! 1. A parse error is the rest of a sentence that begins with where the value came from.
//! 2. A value that was parsed is within its bounds: no later place checks them again.
//!
//! Not here: the options and their kinds (`table.rs`), sizes and times (`units.rs`).
//! See: docs/cli.md.

use super::table::{OptionKind, OptionValue};
use super::units;
use crate::client::BaseUrl;
use dendra_server::settings::{HostRule, Member, OriginRule, Topology};
use dendra_stores::StorePlace;
use std::ffi::OsStr;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::PathBuf;
use std::time::Duration;

fn parse_count(text: &str, min: u64, max: u64) -> Result<u64, String> {
    match text.trim().replace('_', "").parse::<u64>() {
        Ok(n) if (min..=max).contains(&n) => Ok(n),
        Ok(n) => Err(format!("{n} is outside {min} to {max}")),
        Err(_) => Err(format!(
            "{text:?} is not a number; write one from {min} to {max}"
        )),
    }
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let text = text.trim();
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let fix = "write an address and a port, like 127.0.0.1:8080 or [::1]:8080";
    match text.to_socket_addrs() {
        Ok(mut found) => found
            .next()
            .ok_or_else(|| format!("{text:?} names no address; {fix}")),
        Err(e) => Err(format!("{text:?} is not an address ({e}); {fix}")),
    }
}

/// `text` as a value of `kind`, or the fault in it and how to write it.
pub(crate) fn parse(kind: OptionKind, text: &OsStr) -> Result<OptionValue, String> {
    if let OptionKind::Folder = kind {
        return if text.is_empty() {
            Err("is empty; name a folder".to_owned())
        } else {
            Ok(OptionValue::Folder(PathBuf::from(text)))
        };
    }
    if let OptionKind::FileOrOff = kind {
        return match text.to_str() {
            Some("off") => Ok(OptionValue::File(None)),
            Some("") => Err("is empty; name a file, or off".to_owned()),
            _ => Ok(OptionValue::File(Some(PathBuf::from(text)))),
        };
    }
    let text = text
        .to_str()
        .ok_or_else(|| format!("{text:?} is not UTF-8; write plain text"))?;
    match kind {
        OptionKind::Folder => Ok(OptionValue::Folder(PathBuf::from(text))),
        OptionKind::FileOrOff => Ok(OptionValue::File(Some(PathBuf::from(text)))),
        OptionKind::Members | OptionKind::MemberOrOff if text == "off" => {
            Ok(OptionValue::Members(Vec::new()))
        }
        OptionKind::Members => {
            let found: Result<Vec<Member>, _> = text.split(',').map(str::parse).collect();
            found
                .map(OptionValue::Members)
                .map_err(|bad| bad.to_string())
        }
        OptionKind::MemberOrOff => Member::new(text)
            .map(|member| OptionValue::Members(vec![member]))
            .map_err(|bad| bad.to_string()),
        OptionKind::Hosts if text == "off" => Ok(OptionValue::Hosts(Vec::new())),
        OptionKind::Hosts => {
            let found: Result<Vec<HostRule>, _> = text.split(',').map(str::parse).collect();
            found.map(OptionValue::Hosts)
        }
        OptionKind::Origins if text == "off" => Ok(OptionValue::Origins(Vec::new())),
        OptionKind::Origins => {
            let found: Result<Vec<OriginRule>, _> = text.split(',').map(str::parse).collect();
            found.map(OptionValue::Origins)
        }
        OptionKind::ClusterName => Topology::check_name(text)
            .map(|()| OptionValue::Text(text.to_owned()))
            .map_err(|bad| bad.to_string()),
        OptionKind::Addresses => {
            let found: Result<Vec<SocketAddr>, String> =
                text.split(',').map(parse_address).collect();
            found.map(OptionValue::Addresses)
        }
        OptionKind::AddressOrOff if text == "off" => Ok(OptionValue::Addresses(Vec::new())),
        OptionKind::AddressOrOff => {
            parse_address(text).map(|address| OptionValue::Addresses(vec![address]))
        }
        OptionKind::Count { min, max } => parse_count(text, min, max).map(OptionValue::Count),
        OptionKind::Bytes { min, max } => match units::parse_bytes(text)? {
            n if (min..=max).contains(&n) => Ok(OptionValue::Bytes(n)),
            n => Err(format!(
                "{} is outside {} to {}",
                units::show_bytes(n),
                units::show_bytes(min),
                units::show_bytes(max)
            )),
        },
        OptionKind::Choice(words) => words
            .iter()
            .find(|word| **word == text)
            .map(|word| OptionValue::Choice(word))
            .ok_or_else(|| format!("{text:?} is not one of: {}", words.join(", "))),
        OptionKind::Time => match units::parse_duration(text)? {
            time if time >= Duration::from_secs(1) => Ok(OptionValue::Text(text.to_owned())),
            _ => Err(format!(
                "{text:?} is too short; write at least a second, like 24h"
            )),
        },
        OptionKind::StoreOrOff if text == "off" => Ok(OptionValue::Text(text.to_owned())),
        OptionKind::StoreOrOff => match StorePlace::parse(text) {
            Ok(place) => Ok(OptionValue::Text(place.to_string())),
            Err(bad) => Err(format!("{text:?} {bad}")),
        },
        OptionKind::Urls if text == "off" => Ok(OptionValue::Text(text.to_owned())),
        OptionKind::Urls => match text.split(',').find_map(|url| BaseUrl::parse(url).err()) {
            None => Ok(OptionValue::Text(text.to_owned())),
            Some(bad) => Err(bad.to_string()),
        },
        OptionKind::Levels => {
            crate::logs::parse_levels(text).map(|_| OptionValue::Text(text.to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::table::{Fallback, OPTIONS};

    #[test]
    fn every_fixed_default_parses_as_its_own_kind() {
        for spec in &OPTIONS {
            if let Fallback::Fixed(text) = spec.fallback {
                let parsed = parse(spec.kind, OsStr::new(text));
                assert!(parsed.is_ok(), "{}: {parsed:?}", spec.key);
            }
        }
    }

    #[test]
    fn ranges_are_enforced() {
        for (key, text) in [
            ("workers", "0"),
            ("workers", "2000"),
            ("memory", "1MiB"),
            ("value-bytes-max", "9MiB"),
            ("durability", "maybe"),
            ("listen", "nowhere"),
            ("listen", "127.0.0.1"),
            ("listen", "127.0.0.1:80,"),
            ("listen", "off"),
            ("admin", "127.0.0.1:80,127.0.0.1:81"),
            ("data", ""),
            ("log", "loud"),
            ("cluster", ""),
            ("cluster", "http://h1:1,"),
            ("cluster", "http://h1:1;weight=0"),
            ("self", "http://h1"),
            ("self", "http://h1:1;weight=2"),
            ("self", "http://h1:1,http://h2:1"),
            ("replication-factor", "0"),
            ("replication-factor", "101"),
            ("cluster-name", "a b"),
            ("cluster-secret-file", ""),
            ("insecure-peers", "yes"),
            ("peer-transport", "smoke"),
        ] {
            let spec = OPTIONS.iter().find(|spec| spec.key == key);
            let spec = spec.expect("it is in the table");
            assert!(parse(spec.kind, OsStr::new(text)).is_err(), "{key}={text}");
        }
    }
}
