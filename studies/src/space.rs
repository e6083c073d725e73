//! `make study-space`: a workload that uses no key twice keeps the folders at one size.
//!
//! ```text
//! for each key:   create if absent ─► write if that version ─► delete if that version
//! the folders     grow to some size, and then stay there
//! ```
//!
//! Invariants
//! 1. Clients never stop, so no step waits for a pause.
//! 2. A size is the room that the files occupy, and each row has the largest one of its time.
//! 3. Each answer is the one that the condition asks for; another one ends the study.
//!
//! Not here: whether a deleted key comes back (`dendra-sim --soak-deletes`).
//! See: docs/operating.md, "Space that deletes give back".

use super::cluster::{Members, wait_for_answers};
use super::goals::{Bound, Goals};
use super::place::{Held, Place};
use super::report::Report;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The options that this task has beside those of all.
pub(super) const OPTIONS: [&str; 2] = ["--keys", "--members"];

/// Bytes of a value.
const VALUE_BYTES: usize = 100;
/// Clients, each with one connection and one key at a time.
const CLIENTS: usize = 32;
/// Rows of a table.
const ROWS: u64 = 20;
/// Between two looks at the folders.
const LOOK: Duration = Duration::from_millis(250);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// And how long the members may take for it: the study counts bytes, on however busy a machine.
const TIMEOUT_MS: u32 = 50_000;
/// Seconds between two steps of the horizon: the default is 600, and a run takes minutes.
const FORGET_EVERY_S: &str = "5";
/// The later folders beside the earlier ones: a segment of the log more or less is 14 %.
const SIZE_BOUND: f64 = 1.25;
const MIB: f64 = 1_048_576.0;

/// Measures a node by itself, and three members.
pub(super) fn run(place: &Place) -> Held {
    let keys = place
        .options
        .count("--keys", 1_000_000, 1_000..=100_000_000)?;
    let facts = [
        (
            "load",
            format!(
                "{CLIENTS} clients: create, conditional write, conditional delete of {keys} keys with {VALUE_BYTES} bytes, no key twice"
            ),
        ),
        (
            "members",
            format!("`--durability os --forget-every-s {FORGET_EVERY_S}`"),
        ),
    ];
    let question = "Does a workload that uses no key twice keep the folders at one size?";
    let mut report = Report::new(place, "Space that deletes give back", question, &facts)?;
    let mut goals = Goals::default();
    let counts = place.options.own.get("--members");
    for count in counts.map_or("1,3", String::as_str).split(',') {
        match count {
            "1" => sizes(place, &mut report, &mut goals, keys, 1)?,
            "3" => sizes(place, &mut report, &mut goals, keys, 3)?,
            _ => return Err(format!("--members is 1, 3 or 1,3, not {count}")),
        }
    }
    let all_held = goals.show(&mut report);
    report.write(place, "space")?;
    Ok(all_held)
}

/// The sizes of the folders of `count` members while all keys come and go.
fn sizes(
    place: &Place,
    report: &mut Report,
    goals: &mut Goals,
    keys: u32,
    count: usize,
) -> Result<(), String> {
    let name = format!("space-of-{count}");
    let options = ["--durability", "os", "--forget-every-s", FORGET_EVERY_S];
    let weights = vec![1; count];
    let members = Members::start(place, &place.binary, &name, &weights, count, &options)?;
    for node in &members.nodes {
        wait_for_answers(&node.url, &format!("{count}/{count}"))?;
    }
    let folders: Vec<PathBuf> = (0..count)
        .map(|at| place.folder.join(format!("{name}-{at}")))
        .collect();
    let title = match count {
        1 => "A node by itself",
        _ => "Three members, three copies",
    };
    report.line(format_args!("\n## {title}\n"));
    report.table(&["keys that came and went", "largest folder", "keys/s"]);
    let (next, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    let mut largest: Vec<f64> = Vec::new();
    std::thread::scope(|threads| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|at| {
                let url = &members.nodes[at % count].url;
                let (next, is_over) = (&next, &is_over);
                threads.spawn(move || {
                    let done = come_and_go(url, next, u64::from(keys));
                    is_over.store(true, Ordering::Relaxed);
                    done
                })
            })
            .collect();
        let row_keys = (u64::from(keys) / ROWS).max(1);
        let (mut of_row, mut begun) = (0_u64, Instant::now());
        while !is_over.load(Ordering::Relaxed) {
            for folder in &folders {
                of_row = of_row.max(occupied(folder));
            }
            let done = next.load(Ordering::Relaxed).min(u64::from(keys));
            if done >= row_keys * (largest.len() as u64 + 1) {
                report.row(&[
                    done.to_string(),
                    format!("{:.1} MiB", of_row as f64 / MIB),
                    format!("{:.0}", row_keys as f64 / begun.elapsed().as_secs_f64()),
                ]);
                largest.push(of_row as f64);
                (of_row, begun) = (0, Instant::now());
            }
            std::thread::sleep(LOOK);
        }
        if of_row > 0 {
            report.row(&[
                keys.to_string(),
                format!("{:.1} MiB", of_row as f64 / MIB),
                String::new(),
            ]);
            largest.push(of_row as f64);
        }
        for client in clients {
            client
                .join()
                .map_err(|_| "a client panicked".to_owned())??;
        }
        Ok::<(), String>(())
    })?;
    let (earlier, later) = largest.split_at(largest.len() / 2);
    let most = |sizes: &[f64]| sizes.iter().copied().fold(0.0, f64::max);
    goals.add(
        format!("{count} members: largest folder of the second half, beside the first half's"),
        vec![most(later) / most(earlier)],
        Bound::AtMost(SIZE_BOUND),
    );
    Ok(())
}

/// The bytes that the files below a folder occupy. A file that goes meanwhile occupies no room.
fn occupied(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    entries
        .flatten()
        .map(|entry| match entry.metadata() {
            Ok(found) if found.is_dir() => occupied(&entry.path()),
            Ok(found) => found.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}

/// Takes keys until there is none left.
fn come_and_go(url: &str, next: &AtomicU64, keys: u64) -> Result<(), String> {
    let address = url.trim_start_matches("http://");
    let failed = |e: std::io::Error| format!("{url}: {e}");
    let stream = TcpStream::connect(address).map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let mut client = Client {
        door: BufReader::new(stream),
        host: address.to_owned(),
        line: String::new(),
    };
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= keys {
            return Ok(());
        }
        // Neighbours in time are spread over the key space, as ids that are drawn.
        let key = format!("{:016x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let etag = client.change("PUT", &key, "If-None-Match: *", "201")?;
        let etag = client.change("PUT", &key, &format!("If-Match: {etag}"), "201")?;
        client.change("DELETE", &key, &format!("If-Match: {etag}"), "202")?;
    }
}

struct Client {
    door: BufReader<TcpStream>,
    host: String,
    /// The line that was read last.
    line: String,
}

impl Client {
    /// One conditional change: its ETag.
    fn change(
        &mut self,
        method: &str,
        key: &str,
        condition: &str,
        status: &str,
    ) -> Result<String, String> {
        let length = if method == "PUT" { VALUE_BYTES } else { 0 };
        let request = format!(
            "{method} /v0/entity?id={key} HTTP/1.1\r\nHost: {}\r\nDendra-Timeout-Ms: {TIMEOUT_MS}\r\n{condition}\r\nContent-Length: {length}\r\n\r\n{:length$}",
            self.host, ""
        );
        let (first, etag) = self
            .ask(&request)
            .map_err(|e| format!("{method} {key}: {e}"))?;
        if first.split(' ').nth(1) == Some(status) {
            Ok(etag)
        } else {
            Err(format!("{method} {key} with {condition}: {first}"))
        }
    }

    /// The status line of an answer, and its ETag.
    fn ask(&mut self, request: &str) -> std::io::Result<(String, String)> {
        self.door.get_mut().write_all(request.as_bytes())?;
        let (mut first, mut etag, mut length) = (String::new(), String::new(), 0);
        loop {
            self.line.clear();
            if self.door.read_line(&mut self.line)? == 0 {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            let line = self.line.trim_end();
            if first.is_empty() {
                line.clone_into(&mut first);
                continue;
            }
            match line.split_once(": ") {
                None => break,
                Some((name, value)) if name.eq_ignore_ascii_case("etag") => {
                    value.clone_into(&mut etag);
                }
                Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                    length = value.parse().unwrap_or(0);
                }
                Some(_) => {}
            }
        }
        std::io::copy(&mut self.door.by_ref().take(length), &mut std::io::sink())?;
        Ok((first, etag))
    }
}
