//! `dendra count`: how many records a range has.
//!
//! Invariants
//! 1. The number is printed once, when a node said that nothing of the range is left out. A node
//!    counts a part of a large range and names the key where the next request goes on.
//!
//! Not here: the ranges of scans (`scan.rs`).
//! See: docs/cli.md, docs/api.md.

use crate::cli::CountArgs;
use crate::client::HttpRequest;
use crate::console::Console;
use crate::exit::{Exit, ExitResult, Failure};
use crate::ops::{self, Query};
use bytes::Bytes;
use dendra_base::Space;
use dendra_wire::meta::MetaBuf;
use dendra_wire::percent;
use dendra_wire::route::successor;
use hyper::{Method, StatusCode};
use serde_json::Value;
use std::ffi::OsString;

/// The number in an answer, and the key where the rest of the range begins.
fn part_of(answer: &[u8]) -> Option<(u64, Option<Vec<u8>>)> {
    let object: Value = serde_json::from_slice(answer).ok()?;
    let count = object["count"].as_u64()?;
    if object["complete"].as_bool()? {
        return Some((count, None));
    }
    let text = object["next"].as_str()?.as_bytes();
    let mut next = vec![0; text.len()];
    let len = percent::decode_into(text, &mut next).ok()?;
    next.truncate(len);
    Some((count, Some(next)))
}

/// `dendra count`
pub(crate) async fn count(args: &CountArgs, console: Console) -> ExitResult {
    let client = ops::client(&args.client, console)?;
    let key_of = |name: &str, given: &Option<OsString>| -> Result<Option<Vec<u8>>, Failure> {
        let read = |text| ops::key_bytes(&format!("--{name}"), text, args.client.encoding());
        given.as_deref().map(read).transpose()
    };
    let (mut start, mut end) = (
        key_of("start", &args.range.start)?,
        key_of("end", &args.range.end)?,
    );
    if let Some(prefix) = key_of("prefix", &args.range.prefix)? {
        let behind = successor(&[&[Space::User.byte()], &prefix[..]].concat());
        end = (behind.len() > 1).then(|| behind[1..].to_vec());
        start = Some(prefix);
    }
    let mut sum = 0;
    loop {
        let mut query = Query::default();
        for (name, key) in [("start", &start), ("end", &end)] {
            if let Some(key) = key {
                query.add(name, key);
            }
        }
        let ask = HttpRequest {
            meta: MetaBuf::default(),
            method: Method::GET,
            path: query.behind("/v0/count"),
            headers: Vec::new(),
            body: Bytes::new(),
        };
        let sent = client.send(&ask).await;
        let answer = sent.map_err(|trouble| trouble.failure(client.place()))?;
        if answer.status != StatusCode::OK {
            return Err(answer.failure("count"));
        }
        let broken = |why: &str| {
            let place = client.place();
            Failure::new(Exit::FAILURE, format!("{place}: {why}; see --url"))
        };
        let (count, next) =
            part_of(&answer.body).ok_or_else(|| broken("what answers there is no Dendra node"))?;
        sum += count;
        match next {
            None => break,
            next if next == start => return Err(broken("the count does not get on")),
            next => start = next,
        }
        console.detail(|| format!("{sum} records so far"));
    }
    ops::print(format!("{sum}\n").as_bytes())?;
    Ok(Exit::OK)
}
